//! Cache poisoning and web cache deception: an attacker's earlier requests do not change any other client's response.
//!
//! Each case in the table is a few requests to one server, and then a last request that is also sent to a server that
//! nobody has attacked. Both responses must be the same. The origin behind both servers is careless: it reflects its
//! input, declares its responses cacheable, and trusts every field that has ever been used to forward information about
//! clients.

mod cases;
mod more;
mod site;

use super::super::harness::{Folder, Server, read_to_end};
use super::origin::Origin;
use super::{Answer, accelerate, ask, configure, get};
use std::io::Write;
use std::net::Shutdown;

/// One request. In it, `{p}` stands for a path that only this case uses, and `{5k}` for a long value.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A GET for this target with these field lines.
    Get(&'static str, &'static str),
    /// A request with this method, target and field lines.
    Of(&'static str, &'static str, &'static str),
    /// These bytes, unchanged.
    Raw(&'static str),
}

struct Case {
    name: &'static str,
    before: &'static [Step],
    last: Step,
}

impl Step {
    fn bytes(self, path: &str) -> Vec<u8> {
        let fill = |text: &str| text.replace("{p}", path).replace("{5k}", &"x".repeat(5000)).into_bytes();
        let (method, target, fields) = match self {
            Self::Raw(text) => return fill(text),
            Self::Get(target, fields) => ("GET", target, fields),
            Self::Of(method, target, fields) => (method, target, fields),
        };
        let has_host = fields.split("\r\n").any(|line| line.to_lowercase().starts_with("host"));
        let host = if has_host { "" } else { "Host: site.example\r\n" };
        let close = if fields.contains("Connection:") { "" } else { "Connection: close\r\n" };
        let (fields, body) = fields.split_once("\r\n\r\n").unwrap_or((fields, ""));
        let end = if fields.is_empty() || fields.ends_with("\r\n") { "" } else { "\r\n" };
        fill(&format!("{method} {target} HTTP/1.1\r\n{host}{fields}{end}{close}\r\n{body}"))
    }

    fn send(self, server: &Server, path: &str) -> Vec<Answer> {
        let bytes = self.bytes(path);
        let mut stream = server.connect();
        let _ = stream.write_all(&bytes);
        if matches!(self, Self::Raw(_)) {
            // Nothing more is sent, even if the server still waits for content.
            let _ = stream.shutdown(Shutdown::Write);
        }
        let all = read_to_end(&mut stream);
        let (mut rest, mut answers) = (all.as_slice(), Vec::new());
        while let Some(answer) = Answer::take(&mut rest, bytes.starts_with(b"HEAD ")) {
            answers.push(answer);
        }
        answers
    }
}

/// The parts of responses that do not depend on the server: without times, cache metadata and the port.
fn comparable(server: &Server, answers: Vec<Answer>) -> Vec<String> {
    let vague = ["date", "age", "cache-status", "via", "connection", "keep-alive", "server-timing"];
    let shown = |mut answer: Answer| {
        answer.fields.retain(|(name, _)| !vague.contains(&name.as_str()));
        answer.fields.sort();
        let text = format!("{} {:?} {:?} {}", answer.status, answer.fields, answer.text(), answer.is_whole);
        text.replace(&server.address.port().to_string(), "PORT")
    };
    answers.into_iter().map(shown).collect()
}

/// Describes each case whose last response differs, with both responses.
fn find_poisoned(cases: &[&[Case]], attacked: &Server, clean: &Server) -> Vec<String> {
    let mut found = Vec::new();
    for (number, case) in cases.iter().copied().flatten().enumerate() {
        let path = format!("/c{number}");
        for step in case.before {
            step.send(attacked, &path);
        }
        let expected = comparable(clean, case.last.send(clean, &path));
        assert!(!expected.is_empty(), "{}: no response", case.name);
        // The first time from the cache, if it is a hit, and the second time over an origin connection that others have
        // used.
        for time in ["at once", "again"] {
            let got = comparable(attacked, case.last.send(attacked, &path));
            if got != expected {
                found.push(format!("{} ({time})\n   got      {got:?}\n   expected {expected:?}", case.name));
                break;
            }
        }
        // Bytes left on an origin connection belong to no response.
        let bystander = format!("{path}/reflect/bystander");
        if !get(attacked, &bystander).text().contains(&bystander) {
            found.push(format!("{}: a bystander got another client's response", case.name));
        }
    }
    found
}

#[test]
fn an_attackers_requests_change_no_other_response() {
    const { assert!(cases::CASES.len() + more::CASES.len() >= 60) };
    let origin = Origin::start(site::respond);
    let (attacked, clean) = (accelerate(&origin, &[]), accelerate(&origin, &[]));
    let found = find_poisoned(&[cases::CASES, more::CASES], &attacked, &clean);
    assert!(found.is_empty(), "{} of the cases poison:\n{}", found.len(), found.join("\n"));
    assert_eq!(attacked.stop().0.code(), Some(0));
}

/// Rules that cache more responses for longer, and that ignore parts of the query, enable no attack.
#[test]
fn an_attackers_requests_change_no_other_response_under_broader_caching_rules() {
    let origin = Origin::start(site::respond);
    let folders = [Folder::new(), Folder::new()];
    let cache = "ttl \"60s\"\nstale-if-error \"1h\"\nquery { without \"utm_*\" \"fbclid\" }";
    let [attacked, clean] = folders.each_ref().map(|folder| configure(folder, &origin.url(), cache, ""));
    let found = find_poisoned(&[cases::CASES, more::CASES, more::OF_RULES], &attacked, &clean);
    assert!(found.is_empty(), "{} of the cases poison:\n{}", found.len(), found.join("\n"));
}

/// The number of variants per key is limited, and so is the cost of a flood of them.
#[test]
fn a_flood_of_variants_is_bounded() {
    const FLOOD: usize = 2000;
    let origin = Origin::start(site::respond);
    let server = accelerate(&origin, &["--memory", "16MiB"]);
    let before = server.memory_kb("RssAnon");
    let visit = |agent: &str| {
        let answer = ask(&server, "GET", "/flood/vary/user-agent", &format!("User-Agent: {agent}\r\n"));
        assert_eq!((answer.status, answer.text()), (200, format!("user-agent={agent}")));
    };
    for number in 0..FLOOD {
        visit(&format!("flood-{number}"));
    }
    visit("victim");
    visit("victim");
    let grown = server.memory_kb("RssAnon").saturating_sub(before);
    println!("{FLOOD} variants of one key: {grown} kB");
    assert!(grown < 8 * 1024, "{grown} kB");
}

/// Many ranges at once cost no more than the full content.
#[test]
fn a_flood_of_ranges_costs_no_more_than_the_full_content() {
    const BYTES: usize = 1024 * 1024;
    let origin = Origin::responding(|_| {
        super::origin::response("200 OK", "Cache-Control: max-age=60\r\nETag: \"a\"\r\n", &vec![b'x'; BYTES])
    });
    let server = accelerate(&origin, &[]);
    assert_eq!(get(&server, "/large").body.len(), BYTES);
    let ranges = vec!["0-"; 1000].join(",");
    for ranges in [ranges, "0-1048575,".repeat(300) + "0-0", "0-0,".repeat(1500) + "-1"] {
        let answer = ask(&server, "GET", "/large", &format!("Range: bytes={ranges}\r\n"));
        assert!(answer.is_whole && matches!(answer.status, 200 | 206 | 416), "{}", answer.status);
        assert!(answer.body.len() <= 2 * BYTES, "{} bytes", answer.body.len());
    }
    assert_eq!(get(&server, "/large").body.len(), BYTES);
    assert_eq!(origin.requests().len(), 1, "ranges are cut from what is stored");
}
