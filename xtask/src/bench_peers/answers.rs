//! True if a server answers right, as curl sees it. One that answers wrong may well answer fast.

use super::bench::Bench;
use super::cases::{Behind, Case, Kind, Speech};
use super::origin;
use super::servers::Server;
use super::subjects::{Mark, Setup, Subject};
use super::{dynamic, timed};
use crate::failure::{Context, Outcome};
use crate::shell;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a digest or a variant may take to be made.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What curl saw.
struct Answer {
    status: String,
    version: String,
    /// The head's lines, names in lower case.
    fields: Vec<(String, String)>,
    /// Decoded, if it was encoded.
    body: Vec<u8>,
}

/// Asks until the answer shows what it must. Every answer on the way must be right in all else.
pub(super) fn check(bench: &Bench, subject: Subject, case: &Case, server: &Server) -> Outcome<()> {
    let start = Instant::now();
    loop {
        let answer = ask(bench, subject, case, server)?;
        is_right(&answer, subject, case)?;
        let Some(lacking) = lacking(bench, &answer, subject, case)? else { break };
        if start.elapsed() > TIMEOUT {
            return Err(lacking.into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    if subject.setup.is_active() {
        check_freshness(bench, subject, case, server)?;
    }
    case.behind.map_or(Ok(()), |behind| check_forwarding(bench, subject, case, server, behind))
}

/// Makes sure that a page is made again, and the time in it the time.
fn check_freshness(bench: &Bench, subject: Subject, case: &Case, server: &Server) -> Outcome<()> {
    let mut earlier = None;
    for _ in 0..2 {
        let answer = ask(bench, subject, case, server)?;
        let inserted = case.file.inserted(&answer.body).cannot("find what it puts into the page")?;
        if case.file.is_timed() && !timed::is_now(&inserted)? {
            return Err(format!("it says that it is {inserted}").into());
        }
        if earlier.replace(inserted.clone()).is_some_and(|earlier| earlier == inserted) {
            return Err(format!("it says {inserted} again after more than a second").into());
        }
        std::thread::sleep(Duration::from_millis(1100));
    }
    // PHP that compiles the page for each request would be no peer.
    if subject.setup == Setup::NginxPhp {
        let said = text(&server.url(&dynamic::opcache_path(case.file.stem())), case.speech)?;
        if said != "cached" {
            return Err(format!("its script is {said}").into());
        }
    }
    Ok(())
}

/// Warms a cache, and makes sure by the origin's own count that answers come from where they must.
fn check_forwarding(bench: &Bench, subject: Subject, case: &Case, server: &Server, behind: Behind) -> Outcome<()> {
    let start = Instant::now();
    loop {
        let Some(before) = server.forwarded()? else { return Ok(()) };
        for _ in 0..PROOFS {
            is_right(&ask(bench, subject, case, server)?, subject, case)?;
        }
        let reached = server.forwarded()?.unwrap_or(before).saturating_sub(before);
        match origin::is_right(behind, PROOFS, reached) {
            // Some write what they keep behind the answer's back.
            Err(_) if behind == Behind::Kept && start.elapsed() < TIMEOUT => {}
            verdict => return verdict,
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// So many answers in a row.
const PROOFS: u64 = 3;

/// The content behind an address, as text.
pub(super) fn text(url: &str, speech: Speech) -> Outcome<String> {
    let mut curl = curl();
    if speech == Speech::Http2 {
        // A listener of HTTP/2 in clear text may understand nothing else.
        curl.arg("--http2-prior-knowledge");
    }
    shell::output_of(curl.arg(url))
}

/// The field lines, `Name: value`, of a subject's request beside the usual ones.
pub(super) fn request_fields(subject: Subject, case: &Case) -> Vec<String> {
    let host = case.host.map(|host| format!("Host: {host}"));
    host.into_iter().chain(subject.asks.iter().map(|line| (*line).to_owned())).collect()
}

fn curl() -> Command {
    let mut curl = Command::new("curl");
    // A certificate of our own making is no more than that.
    curl.args(["--silent", "--show-error", "--insecure", "--max-time", "10"]);
    curl
}

fn ask(bench: &Bench, subject: Subject, case: &Case, server: &Server) -> Outcome<Answer> {
    let body = bench.folder().join("answer");
    let mut curl = curl();
    curl.arg(match case.speech {
        Speech::Http1 | Speech::Http1Tls => "--http1.1",
        Speech::Http2 => "--http2-prior-knowledge",
        Speech::Http2Tls => "--http2",
    });
    for line in request_fields(subject, case) {
        // Decodes the answer; what is asked for is still said by the field.
        if line.starts_with("Accept-Encoding:") {
            curl.arg("--compressed");
        }
        curl.args(["--header", &line]);
    }
    curl.arg("--output").arg(&body).args(["--dump-header", "-"]);
    curl.args(["--write-out", "%{http_code} %{http_version}"]);
    let said = shell::output_of(curl.arg(server.url(&subject.path(case.file))))?;
    let (status, version) = said.lines().last().and_then(|line| line.split_once(' ')).cannot("read what curl saw")?;
    let fields = said.lines().filter_map(|line| line.split_once(':'));
    Ok(Answer {
        status: status.to_owned(),
        version: version.to_owned(),
        fields: fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect(),
        body: std::fs::read(&body).cannot("read the content that curl received")?,
    })
}

fn is_right(answer: &Answer, subject: Subject, case: &Case) -> Outcome<()> {
    let Answer { status, version, body, .. } = answer;
    // What is put into an active page is not as long everywhere; the page around it is looked at below.
    let has_length = subject.setup.is_active() || body.len() == case.file.bytes;
    if status != "200" || !has_length {
        return Err(format!("it answers wrong: status {status}, {} bytes", body.len()).into());
    }
    if (version == "2") != case.speech.is_http2() {
        return Err(format!("it answers in HTTP/{version}").into());
    }
    // The bare loop sends as many bytes, not the same.
    let sends_the_file = subject.setup != Setup::Bare || case.kind == Kind::ServerPerMebibyte;
    if subject.setup.is_active() {
        let is_page = case.file.inserted(body).is_some();
        return if is_page { Ok(()) } else { Err("what it sends is not the page".into()) };
    }
    if sends_the_file && *body != case.file.contents() {
        return Err("what it sends is not the file".into());
    }
    Ok(())
}

/// What the answer does not show yet, or shows and should not.
fn lacking(bench: &Bench, answer: &Answer, subject: Subject, case: &Case) -> Outcome<Option<String>> {
    for mark in Mark::ALL {
        let name = mark.field();
        let found = answer.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let wanted = if subject.shows.contains(mark) { Some(value(*mark, bench, case)?) } else { None };
        if found != wanted.as_deref() {
            let shown =
                |value: Option<&str>| value.map_or_else(|| format!("no {name}"), |value| format!("{name}: {value}"));
            return Ok(Some(format!("its answer has {}, not {}", shown(found), shown(wanted.as_deref()))));
        }
    }
    Ok(None)
}

/// What a field must say.
fn value(mark: Mark, bench: &Bench, case: &Case) -> Outcome<String> {
    let file = case.file.place(bench.folder());
    Ok(match mark {
        Mark::ReprDigest => format!("sha-256=:{}:", digest("sha256", &file)?),
        Mark::ContentMd5 => digest("md5", &file)?,
        Mark::Brotli => "br".to_owned(),
    })
}

/// A file's digest in base64, by OpenSSL.
fn digest(algorithm: &str, file: &Path) -> Outcome<String> {
    let mut sh = Command::new("sh");
    sh.args(["-c", "openssl dgst -\"$1\" -binary \"$2\" | openssl base64 -A", "sh", algorithm]);
    shell::output_of(sh.arg(file)).map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::super::subjects::{BARE, FLATOUT};
    use super::*;

    #[test]
    fn a_wrong_status_length_content_or_version_is_no_right_answer() {
        let case = &CASES[0];
        let answer = |status: &str, version: &str, body: Vec<u8>| Answer {
            status: status.to_owned(),
            version: version.to_owned(),
            fields: Vec::new(),
            body,
        };
        let file = case.file.contents();
        let blank = vec![0; file.len()];
        assert!(is_right(&answer("200", "1.1", file.clone()), FLATOUT, case).is_ok());
        assert!(is_right(&answer("200", "1.1", blank.clone()), BARE, case).is_ok());
        let wrong = [
            answer("404", "1.1", file.clone()),
            answer("200", "2", file.clone()),
            answer("200", "1.1", blank),
            answer("200", "1.1", file[1..].to_vec()),
        ];
        for answer in wrong {
            assert!(is_right(&answer, FLATOUT, case).is_err(), "{} {}", answer.status, answer.version);
        }
    }
}
