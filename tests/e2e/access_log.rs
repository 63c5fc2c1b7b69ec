//! The access log: one line per request, whatever its result, which no client can break or forge.

mod signals;
mod targets;
mod unanswered;

use super::cli::{Running, get, without_root_warning};
use super::harness::{Folder, Server, flatout, read_response, read_to_end, wait_until, wait_until_read};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A line, split into the fields of its documented format:
/// `client - - [date] "request line" status bytes "referer" "user agent" outcome ending duration_us`
#[derive(Debug)]
struct Line {
    client: String,
    date: String,
    request: String,
    status: u16,
    bytes: u64,
    referer: String,
    agent: String,
    outcome: String,
    ending: String,
    duration_us: u64,
}

impl Line {
    fn parse(line: &str) -> Self {
        assert!(line.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "an unescaped byte in {line:?}");
        // Quotes in values are escaped, so quotes split the line into seven parts.
        let parts: Vec<&str> = line.split('"').collect();
        let [first, request, numbers, referer, " ", agent, last] = parts[..] else {
            panic!("not the documented format: {line}")
        };
        let (client, date) = first.split_once(" - - [").unwrap();
        let [status, bytes] = numbers.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let [outcome, ending, duration_us] = last.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(status.len() == 3, "{line}");
        Self {
            client: client.to_owned(),
            date: date.strip_suffix("] ").unwrap().to_owned(),
            request: request.to_owned(),
            status: status.parse().unwrap(),
            bytes: bytes.parse().unwrap(),
            referer: referer.to_owned(),
            agent: agent.to_owned(),
            outcome: outcome.to_owned(),
            ending: ending.to_owned(),
            duration_us: duration_us.parse().unwrap(),
        }
    }

    /// The status, the outcome and the ending of the request.
    fn result(&self) -> (u16, &str, &str) {
        (self.status, &self.outcome, &self.ending)
    }
}

/// A server with an access log.
struct Logging {
    server: Server,
    file: PathBuf,
    site: Folder,
    _logs: Folder,
}

impl Logging {
    fn start(files: &[(&str, &[u8])], arguments: &[&str]) -> Self {
        let (site, logs) = (Folder::with(files), Folder::new());
        let file = logs.path().join("access.log");
        let server = Server::start(site.path(), &[&["--access-log", file.to_str().unwrap()], arguments].concat());
        Self { server, file, site, _logs: logs }
    }

    /// Waits until the log has `count` lines, and returns them.
    fn lines(&self, count: usize) -> Vec<Line> {
        let text = || whole_lines(&self.file);
        wait_until(&format!("{count} lines of log"), || text().lines().count() >= count);
        let lines: Vec<Line> = text().lines().map(Line::parse).collect();
        assert_eq!(lines.len(), count, "{lines:#?}");
        lines
    }

    /// Sends `bytes` on a fresh connection and returns the resulting line, which is the `count`th.
    fn line_of(&self, bytes: &[u8], count: usize) -> Line {
        self.server.exchange(bytes);
        self.lines(count).remove(count - 1)
    }
}

#[test]
fn a_line_has_the_documented_fields() {
    let logging = Logging::start(&[("a.txt", b"0123456789")], &[]);
    let request = b"GET /a.txt?q=1 HTTP/1.1\r\nHost: test\r\nReferer: http://from.example/\r\nUser-Agent: me/1\r\n\
        Connection: close\r\n\r\n";
    let before = date_of(&logging.server);
    let line = logging.line_of(request, 2);
    let after = date_of(&logging.server);
    assert_eq!((line.client.as_str(), line.request.as_str()), ("127.0.0.1", "GET /a.txt?q=1 HTTP/1.1"));
    assert_eq!((line.referer.as_str(), line.agent.as_str()), ("http://from.example/", "me/1"));
    assert_eq!((line.result(), line.bytes), ((200, "hit", "sent"), 10));
    let (before, logged, after) = (instant_of_field(&before), instant_of_line(&line.date), instant_of_field(&after));
    assert!(before <= logged && logged <= after, "{logged:?} is not between {before:?} and {after:?}");
}

/// A date that sorts in chronological order: year, month (January is 0), day, time of day.
type Instant = (u32, usize, u32, String);

fn instant(year: &str, month: &str, day: &str, time: &str) -> Instant {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|name| *name == month).unwrap();
    (year.parse().unwrap(), month, day.parse().unwrap(), time.to_owned())
}

/// Parses a Date field: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn instant_of_field(date: &str) -> Instant {
    let parts: Vec<&str> = date.split(' ').collect();
    let [_, day, month, year, time, "GMT"] = parts[..] else { panic!("{date}") };
    instant(year, month, day, time)
}

/// Parses the date of a log line: `06/Nov/1994:08:49:37 +0000`.
fn instant_of_line(date: &str) -> Instant {
    let (date, zone) = date.split_once(' ').unwrap();
    assert_eq!(zone, "+0000");
    let (date, time) = date.split_once(':').unwrap();
    let parts: Vec<&str> = date.split('/').collect();
    let [day, month, year] = parts[..] else { panic!("{date}") };
    instant(year, month, day, time)
}

/// The complete lines of a log.
pub(crate) fn whole_lines(log: &Path) -> String {
    let mut text = fs::read_to_string(log).unwrap();
    text.truncate(text.rfind('\n').map_or(0, |last| last + 1));
    text
}

fn date_of(server: &Server) -> String {
    server.get("/a.txt").field("date").unwrap().to_owned()
}

#[test]
fn every_kind_of_response_has_its_own_outcome() {
    let logging = Logging::start(&[("a.txt", b"0123456789"), (".hidden", b"h"), ("folder/index.html", b"i")], &[]);
    let cases = [
        ("GET /a.txt HTTP/1.1\r\n", (200, "loaded", "sent"), 10),
        ("GET /a.txt HTTP/1.0\r\n", (200, "hit", "sent"), 10),
        ("HEAD /a.txt HTTP/1.1\r\n", (200, "hit", "sent"), 0),
        ("GET /a.txt HTTP/1.1\r\nRange: bytes=2-4\r\n", (206, "hit", "sent"), 3),
        ("GET /a.txt HTTP/1.1\r\nIf-None-Match: *\r\n", (304, "not_modified", "sent"), 0),
        ("OPTIONS * HTTP/1.1\r\n", (204, "options", "sent"), 0),
    ];
    for (count, (request, result, bytes)) in cases.iter().enumerate() {
        let line = logging.line_of(format!("{request}Host: test\r\nConnection: close\r\n\r\n").as_bytes(), count + 1);
        // `checked`, a hit whose file was checked for changes after a second, is as good as `hit`.
        let line_result = (line.status, line.outcome.replace("checked", "hit"), line.ending.as_str());
        assert_eq!((line_result.0, line_result.1.as_str(), line_result.2), *result, "{request}");
        assert_eq!(line.bytes, *bytes, "{request}");
        assert_eq!(line.request, request.split("\r\n").next().unwrap());
        assert_eq!((line.referer.as_str(), line.agent.as_str()), ("-", "-"));
    }
    let errors = [
        ("GET /none", (404, "not_found")),
        ("GET /.hidden", (404, "hidden_name")),
        ("GET /folder", (301, "folder_slash")),
        ("GET //a.txt", (301, "slashes_merged")),
        ("POST /", (405, "method_not_allowed")),
        ("BREW /", (501, "method_unknown")),
        ("GET /../a.txt", (400, "path_above_root")),
        ("GET /a%00", (400, "target_nul")),
    ];
    for (count, (request, (status, outcome))) in errors.iter().enumerate() {
        let text = format!("{request} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        let line = logging.line_of(text.as_bytes(), cases.len() + count + 1);
        assert_eq!(line.result(), (*status, *outcome, "sent"), "{request}");
        assert!(line.bytes > 100, "{request}: its page has {} bytes", line.bytes);
    }
}

#[test]
fn pipelined_and_sequential_requests_have_a_line_each() {
    let logging = Logging::start(&[("a.txt", b"0123456789")], &["--workers", "2"]);
    let one = "GET /a.txt HTTP/1.1\r\nHost: test\r\n\r\n";
    logging.server.exchange(one.repeat(5).as_bytes());
    let mut stream = logging.server.connect();
    for _ in 0..5 {
        stream.write_all(one.as_bytes()).unwrap();
        assert_eq!(read_response(&mut stream).status, 200);
    }
    // The lines are there while the connection is still open and idle.
    assert!(logging.lines(10).iter().all(|line| line.request == "GET /a.txt HTTP/1.1" && line.bytes == 10));
}

#[test]
fn client_input_cannot_break_or_forge_a_line() {
    let logging = Logging::start(&[("a.txt", b"a")], &[]);
    let forged = "127.0.0.1 - - [01/Jan/2000:00:00:00 +0000]";
    let cases: &[(&[u8], &str, &str)] = &[
        (
            b"GET /a.txt HTTP/1.1\r\nHost: a\r\nUser-Agent: x\" 200 1 \"\\\r\n",
            "GET /a.txt HTTP/1.1",
            "x\\x22 200 1 \\x22\\x5c",
        ),
        (b"GET /a.txt HTTP/1.1\r\nHost: a\r\nUser-Agent: \x80\xff\tx\r\n", "GET /a.txt HTTP/1.1", "\\x80\\xff\\x09x"),
        (b"GET /%22%0a%0d\\x22 HTTP/1.1\r\nHost: a\r\n", "GET /%22%0a%0d\\x5cx22 HTTP/1.1", "-"),
        (b"GET /\"\x1b[31m\x07 HTTP/1.1\r\nHost: a\r\n", "GET /\\x22\\x1b[31m\\x07 HTTP/1.1", "-"),
        (b"GET /a\nGET /b HTTP/1.1\r\nHost: a\r\n", "GET /a\\x0aGET /b HTTP/1.1", "-"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n", "\\x16\\x03\\x01\\x02\\x00\\x01\\x00", "-"),
        (b"GET /a.txt HTTP/1.1\r\nHost: a\r\nUser-Agent: a\nb\r\n", "GET /a.txt HTTP/1.1", "-"),
    ];
    for (count, (request, logged, agent)) in cases.iter().enumerate() {
        let line = logging.line_of(&[request, &b"Connection: close\r\n\r\n"[..]].concat(), count + 1);
        assert_eq!((line.request.as_str(), line.agent.as_str()), (*logged, *agent));
    }
    let request =
        format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: \"\r\nConnection: close\r\nUser-Agent: {forged}\r\n\r\n");
    let line = logging.line_of(request.as_bytes(), cases.len() + 1);
    assert_eq!((line.referer.as_str(), line.agent.as_str()), ("\\x22", forged));
    // A refused request line may be very long, but only a limited part of it is logged.
    let long = [b"GET /", &b"a".repeat(100_000)[..], b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    let line = logging.line_of(&long, cases.len() + 2);
    assert!(line.status == 414 && line.request.len() <= 128, "{line:?}");
}

#[test]
fn refused_and_incomplete_requests_are_logged() {
    let logging = Logging::start(&[("a.txt", b"a")], &[]);
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /a.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n",
        // This client disconnects in the middle of its body.
        b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfour",
    ] {
        logging.server.exchange(bytes);
    }
    let lines = logging.lines(5);
    let found: Vec<_> = lines.iter().map(|line| (line.request.as_str(), line.result())).collect();
    let expected = [
        ("GET / HTTP/1.1", (400, "host_missing", "sent")),
        ("GET /a.txt HTTP/1.1", (400, "length_with_transfer_encoding", "sent")),
        ("GET /a.txt HTTP/1.1", (400, "chunk_size", "sent")),
        ("GET /a.txt HTTP/1.1", (413, "body_too_large", "sent")),
        ("GET /a.txt HTTP/1.1", (0, "client_closed", "client_cut_body")),
    ];
    assert_eq!(found, expected);
}

/// A request that is refused for its head alone has a site too, because the handler has already been called.
#[test]
fn an_oversized_request_is_logged_with_its_site() {
    let folder = Folder::with(&[("a.txt", b"a")]);
    let path = folder.path().display();
    let site = format!(
        "site \"a.example\" {{ listen \"127.0.0.1:0\"; log \"{path}/site.log\" format=\"json\"; files \"{path}\"; }}"
    );
    let server = Server::run(&folder, &format!("admin off=#true\nlog \"{path}/all.log\" format=\"json\"\n{site}\n"));
    server.exchange(b"GET /a.txt HTTP/1.1\r\nHost: a.example\r\nContent-Length: 99999999\r\n\r\n");
    let read = || fs::read_to_string(folder.path().join("site.log")).unwrap_or_default();
    wait_until("the request is logged", || read().ends_with('\n'));
    let line: serde_json::Value = serde_json::from_str(read().lines().next().unwrap()).unwrap();
    assert_eq!((&line["status"], &line["outcome"]), (&413.into(), &"body_too_large".into()), "{line}");
    assert_eq!(line["site"], "a.example", "{line}");
}

#[test]
fn timed_out_requests_are_logged() {
    let logging = Logging::start(&[("a.txt", b"a")], &["--head-timeout", "200ms", "--body-timeout", "200ms"]);
    let late = [
        (&b"GET /slow HTTP/1.1\r\nHost: a\r\n"[..], "GET /slow HTTP/1.1", "head_timeout"),
        (b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfour", "GET /a.txt HTTP/1.1", "body_timeout"),
    ];
    for (count, (bytes, request, outcome)) in late.into_iter().enumerate() {
        let mut stream = logging.server.connect();
        stream.write_all(bytes).unwrap();
        read_to_end(&mut stream);
        let line = logging.lines(count + 1).remove(count);
        assert_eq!((line.request.as_str(), line.result()), (request, (408, outcome, "sent")));
        // Counted from the first byte of the head: at least the timeout, minus a tick of the coarse clock.
        assert!((150_000..60_000_000).contains(&line.duration_us), "{line:?}");
    }
}

/// The head of a request arrives in two pieces. Its time starts with the first piece.
#[test]
fn a_request_is_timed_from_its_first_byte() {
    let logging = Logging::start(&[("a.txt", b"a")], &[]);
    let mut stream = logging.server.connect();
    stream.write_all(b"GET /a.txt HTTP/1.1\r\nHo").unwrap();
    wait_until_read(&stream);
    std::thread::sleep(Duration::from_secs(1));
    stream.write_all(b"st: a\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).status, 200);
    stream.write_all(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).status, 200);
    let lines = logging.lines(2);
    assert!(lines[0].duration_us >= 900_000 && lines[1].duration_us < lines[0].duration_us, "{lines:?}");
}

/// More than the kernel buffers for a client that does not read.
const DOWNLOAD_BYTES: u64 = 64 * 1024 * 1024;

/// Serves one large sparse file.
fn downloads(arguments: &[&str]) -> Logging {
    let logging = Logging::start(&[("large", b"")], arguments);
    File::create(logging.site.path().join("large")).unwrap().set_len(DOWNLOAD_BYTES).unwrap();
    logging
}

fn begin_download(logging: &Logging) -> TcpStream {
    let mut stream = logging.server.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    stream
}

#[test]
fn a_truncated_download_is_logged_with_the_reason() {
    let logging = downloads(&[]);
    // The client closes with the response unread, which is a reset.
    drop(begin_download(&logging));
    assert_eq!(logging.lines(1)[0].result(), (200, "loaded", "client_reset"));
    // A download that is read to its end.
    read_to_end(&mut begin_download(&logging));
    let line = logging.lines(2).remove(1);
    assert_eq!((line.ending.as_str(), line.bytes), ("sent", DOWNLOAD_BYTES));
    // The file is overwritten during the download.
    let mut stream = begin_download(&logging);
    fs::write(logging.site.path().join("large"), b"other").unwrap();
    assert!((read_to_end(&mut stream).len() as u64) < DOWNLOAD_BYTES - 1000);
    assert_eq!(logging.lines(3)[2].ending, "file_changed");
}

#[test]
fn an_unread_download_is_logged_as_a_write_timeout() {
    let logging = downloads(&["--write-timeout", "300ms"]);
    let stream = begin_download(&logging);
    assert_eq!(logging.lines(1)[0].result(), (200, "loaded", "write_timeout"));
    drop(stream);
}

/// Of pipelined responses in one send, those that the kernel took completely are logged as sent. Only the others were
/// truncated.
#[test]
fn each_pipelined_response_is_logged_with_its_own_ending() {
    let logging = Logging::start(&[("a.bin", &[b'a'; 1000])], &["--write-timeout", "300ms"]);
    let one = b"GET /a.bin HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer_bytes = logging.server.exchange(one).len();
    let mut stream = logging.server.connect();
    // More responses than the kernel buffers. The requests themselves wait in the kernel when the server stops reading.
    let _ = stream.write_all(&one.repeat(20_000));
    wait_until("the write timeout is logged", || {
        fs::read_to_string(&logging.file).unwrap().lines().any(|line| line.contains(" write_timeout "))
    });
    drop(stream);
    let (status, stderr) = logging.server.stop();
    assert!(status.success(), "{stderr}");
    let count = |name: &str| -> usize {
        let row = stderr.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        row.trim().parse().unwrap()
    };
    let lines: Vec<Line> = fs::read_to_string(&logging.file).unwrap().lines().map(Line::parse).collect();
    let sent = lines.iter().filter(|line| line.ending == "sent").count();
    assert_eq!(lines.len(), count("requests"), "{stderr}");
    assert_eq!(sent, count("bytes_sent") / answer_bytes, "{} lines", lines.len());
    assert!(sent < lines.len() && lines[sent..].iter().all(|line| line.ending == "write_timeout"));
}

fn serve(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = flatout();
    command.arg("serve").arg(folder).args(["--listen", "127.0.0.1:0", "--workers", "1"]).args(arguments);
    command
}

fn stop(mut running: Running) -> String {
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
    running.stderr()
}

#[test]
fn standard_output_contains_only_the_log() {
    let folder = Folder::with(&[("a.txt", b"a")]);
    let mut running = Running::spawn(serve(folder.path(), &["--access-log", "-"]));
    let address = running.addresses().unwrap()[0];
    assert!(running.stderr().starts_with(&format!("http://{address}/\nserving ")), "{}", running.stderr());
    for path in ["/a.txt", "/none"] {
        get(address, path);
    }
    wait_until("two lines", || running.stdout().lines().count() == 2);
    let lines: Vec<Line> = running.stdout().lines().map(Line::parse).collect();
    assert_eq!(lines.iter().map(|line| line.status).collect::<Vec<_>>(), [200, 404]);
    let stdout = running.stdout();
    let stderr = stop(running);
    assert!(stdout.lines().count() == 2 && stderr.contains("outcome_not_found"), "{stderr}");
}

#[test]
fn lines_are_appended_to_an_existing_file() {
    let (folder, logs) = (Folder::with(&[("a.txt", b"a")]), Folder::with(&[("log", b"before\n")]));
    let log = logs.path().join("log");
    let server = Server::start(folder.path(), &["--access-log", log.to_str().unwrap()]);
    assert_eq!(server.get("/a.txt").status, 200);
    assert!(server.stop().0.success());
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.starts_with("before\n127.0.0.1 ") && text.lines().count() == 2, "{text}");
}

#[test]
fn an_unwritable_log_is_a_usage_error() {
    let folder = Folder::with(&[("a.txt", b"a")]);
    let missing = folder.path().join("none/log");
    for (path, why) in [(missing.as_path(), "No such file or directory"), (folder.path(), "Is a directory")] {
        let output = serve(folder.path(), &["--access-log", path.to_str().unwrap()]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let expected = format!("error: cannot write the access log {}: {why}", path.display());
        assert!(stderr.starts_with(&expected), "{stderr}");
    }
    // Root may write everywhere, and another user may not write here.
    let locked = folder.path().join("locked");
    fs::write(&locked, b"").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o444)).unwrap();
    let writable = File::options().append(true).open(&locked).is_ok();
    if !writable {
        let output = serve(folder.path(), &["--access-log", locked.to_str().unwrap()]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn requests_are_served_while_the_log_cannot_be_written() {
    const REQUESTS: u64 = 20;
    let folder = Folder::with(&[("a.txt", b"a")]);
    let mut running = Running::spawn(serve(folder.path(), &["--access-log", "/dev/full"]));
    let address: SocketAddr = running.addresses().unwrap()[0];
    for _ in 0..REQUESTS {
        assert_eq!(get(address, "/a.txt").body, b"a");
    }
    let stderr = without_root_warning(&stop(running));
    let lost = ["log_lines_lost".to_owned(), REQUESTS.to_string()];
    assert!(stderr.lines().any(|line| line.split_whitespace().eq(lost.clone())), "{stderr}");
    let warnings: Vec<_> = stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    let expected = "warning: the access log /dev/full cannot be written (No space left on device";
    assert!(matches!(warnings[..], [warning] if warning.starts_with(expected)), "{stderr}");
}

/// A limit on the file size takes effect in the middle of a line, as on a full disk.
#[test]
fn a_log_on_a_full_disk_ends_with_a_complete_line() {
    const REQUESTS: usize = 200;
    let (folder, logs) = (Folder::with(&[("a.txt", b"a")]), Folder::new());
    let log = logs.path().join("log");
    let mut command = Command::new("sh");
    // The unit is blocks of 512 bytes.
    command.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh"]).arg(flatout().get_program());
    command.arg("serve").arg(folder.path()).args(["--listen", "127.0.0.1:0", "--workers", "1", "--access-log"]);
    command.arg(&log);
    let mut running = Running::spawn(command);
    let address = running.addresses().unwrap()[0];
    for _ in 0..REQUESTS {
        assert_eq!(get(address, "/a.txt").body, b"a");
    }
    let stderr = stop(running);
    let text = fs::read_to_string(&log).unwrap();
    let lost = stderr.lines().find_map(|line| line.strip_prefix("log_lines_lost")).unwrap();
    let lost: usize = lost.trim().parse().unwrap();
    assert!(text.ends_with('\n') && text.lines().map(Line::parse).count() + lost == REQUESTS, "{lost} {stderr}");
    assert!(lost > 0 && stderr.contains(" cannot be written (File too large"), "{stderr}");
}

/// Lines for an unread FIFO are lost and counted. The rest of the server is not affected.
#[test]
fn an_unread_fifo_delays_no_request() {
    const REQUESTS: u64 = 20_000;
    let (folder, logs) = (Folder::with(&[("a.txt", b"a")]), Folder::new());
    let fifo = logs.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut running = Running::spawn(serve(folder.path(), &["--access-log", fifo.to_str().unwrap()]));
    let mut stream = TcpStream::connect(running.addresses().unwrap()[0]).unwrap();
    for _ in 0..REQUESTS / 10 {
        stream.write_all(&b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n".repeat(10)).unwrap();
        for _ in 0..10 {
            assert_eq!(read_response(&mut stream).status, 200);
        }
    }
    drop(stream);
    let stderr = stop(running);
    let lost = stderr.lines().find_map(|line| line.strip_prefix("log_lines_lost")).unwrap();
    let lost: u64 = lost.trim().parse().unwrap();
    assert!((1..=REQUESTS).contains(&lost), "{stderr}");
}

/// An incomplete request counts as no request, and a connection without a request leaves no line.
#[test]
fn connections_without_a_request_are_not_logged() {
    let logging = Logging::start(&[("a.txt", b"a")], &[]);
    let mut stream = TcpStream::connect(logging.server.address).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    read_to_end(&mut stream);
    logging.server.exchange(b"GET /a.txt HTTP/1.1\r\nHo");
    assert_eq!(logging.line_of(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n", 1).result(), (200, "loaded", "sent"));
}
