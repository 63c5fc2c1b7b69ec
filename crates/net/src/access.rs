//! The access log: a line for each request, in the combined format with three fields more.
//!
//! `client - - [date] "request line" status bytes "referer" "user agent" outcome ending duration_us`
//!
//! A line is staged when its response is made and written when the response has been handed to the kernel, or was cut
//! short; `ending` says which. Lines gather in a buffer for each worker and reach the file whole, with O_APPEND.

use flatout_http::date::format_date;
use flatout_http::request::RequestHead;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

/// A worker writes to the file when so much has gathered, and at each sweep.
const BUFFER_BYTES_MAX: usize = 32 * 1024;

/// A refused request is shown so far.
const RAW_BYTES_MAX: usize = 128;

/// What is logged of a request.
#[derive(Clone, Copy, Debug)]
pub enum Logged<'a> {
    /// A parsed request.
    Head(&'a RequestHead<'a>),
    /// The beginning of what was refused, or of what was not complete in time.
    Raw(&'a [u8]),
}

/// Lines whose responses are not sent yet.
#[derive(Clone, Debug, Default)]
pub struct Staged {
    text: Vec<u8>,
    lines: Vec<StagedLine>,
}

#[derive(Clone, Copy, Debug)]
struct StagedLine {
    end: usize,
    started_ns: u64,
}

impl Staged {
    /// Whether no line waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// One worker's side of the log.
#[derive(Debug)]
pub struct AccessLog {
    file: Arc<File>,
    buffer: Vec<u8>,
    buffer_lines: u64,
    staged: Staged,
    date_unix_s: i64,
    date: Vec<u8>,
}

/// What a line says of the response.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Bytes of content the response has; what a cut response lost is not known here.
    pub body_bytes: u64,
    /// Why this answer: the handler's outcome or the refusal's name.
    pub outcome: &'static str,
    /// When the request's bytes were received, on the precise clock.
    pub started_ns: u64,
}

impl Answer {
    /// The answer to a request that was refused, or to one that never came to an answer.
    pub const fn refused(status: u16, outcome: &'static str, body_bytes: u64, started_ns: u64) -> Self {
        Self { status, body_bytes, outcome, started_ns }
    }
}

/// The parts of a line that are known when a head is, kept while the request's body comes.
#[derive(Clone, Debug)]
pub struct Description {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl AccessLog {
    /// A log that appends to `file`.
    pub const fn new(file: Arc<File>) -> Self {
        Self {
            file,
            buffer: Vec::new(),
            buffer_lines: 0,
            staged: Staged { text: Vec::new(), lines: Vec::new() },
            date_unix_s: i64::MIN,
            date: Vec::new(),
        }
    }

    /// Stages the line of a request from `client` that has its answer.
    pub fn stage(&mut self, client: Option<SocketAddr>, unix_s: i64, logged: Logged<'_>, answer: Answer) {
        self.read_date(unix_s);
        append_request(&mut self.staged.text, client, &self.date, logged);
        append_answer(&mut self.staged.text, answer);
        append_agents(&mut self.staged.text, logged);
        self.end_line(answer);
    }

    /// What will be logged of a request whose answer is not known yet.
    pub fn describe(&mut self, client: Option<SocketAddr>, unix_s: i64, logged: Logged<'_>) -> Description {
        self.read_date(unix_s);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        append_request(&mut before, client, &self.date, logged);
        append_agents(&mut after, logged);
        Description { before, after }
    }

    /// Stages the line of a request described before.
    pub fn stage_described(&mut self, description: &Description, answer: Answer) {
        self.staged.text.extend_from_slice(&description.before);
        append_answer(&mut self.staged.text, answer);
        self.staged.text.extend_from_slice(&description.after);
        self.end_line(answer);
    }

    fn end_line(&mut self, answer: Answer) {
        self.staged.text.extend_from_slice(answer.outcome.as_bytes());
        self.staged.lines.push(StagedLine { end: self.staged.text.len(), started_ns: answer.started_ns });
    }

    fn read_date(&mut self, unix_s: i64) {
        if unix_s != self.date_unix_s {
            self.date_unix_s = unix_s;
            self.date = format_log_date(unix_s);
        }
    }

    /// Takes the staged lines away, to be committed when their responses have been sent.
    pub fn take_staged(&mut self) -> Staged {
        std::mem::take(&mut self.staged)
    }

    /// Writes the lines staged here: their responses ended with `ending` at `now_ns`.
    pub fn commit(&mut self, ending: &'static str, now_ns: u64) {
        let mut staged = std::mem::take(&mut self.staged);
        self.commit_staged(&staged, ending, now_ns);
        staged.text.clear();
        staged.lines.clear();
        self.staged = staged;
    }

    /// Writes lines that were taken away.
    pub fn commit_staged(&mut self, staged: &Staged, ending: &'static str, now_ns: u64) {
        let mut start = 0;
        for line in &staged.lines {
            self.buffer.extend_from_slice(&staged.text[start..line.end]);
            let duration_us = now_ns.saturating_sub(line.started_ns) / 1000;
            let _ = writeln!(self.buffer, " {ending} {duration_us}");
            self.buffer_lines += 1;
            start = line.end;
        }
    }

    /// Whether nothing waits to be written.
    pub const fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Whether enough has gathered to be written.
    pub const fn is_full(&self) -> bool {
        self.buffer.len() >= BUFFER_BYTES_MAX
    }

    /// Writes what has gathered to the file. Returns how many lines were lost, when the file took none.
    pub fn flush(&mut self) -> u64 {
        if self.buffer.is_empty() {
            return 0;
        }
        let lost = if (&*self.file).write_all(&self.buffer).is_ok() { 0 } else { self.buffer_lines };
        self.buffer.clear();
        self.buffer.shrink_to(2 * BUFFER_BYTES_MAX);
        self.buffer_lines = 0;
        lost
    }
}

/// `client - - [date] "request line"`. Writing to a Vec cannot fail, here and below.
fn append_request(text: &mut Vec<u8>, client: Option<SocketAddr>, date: &[u8], logged: Logged<'_>) {
    let _ = match client {
        Some(client) => write!(text, "{}", client.ip()),
        None => write!(text, "-"),
    };
    text.extend_from_slice(b" - - [");
    text.extend_from_slice(date);
    text.extend_from_slice(b"] \"");
    match logged {
        Logged::Head(head) => {
            text.extend_from_slice(head.method.as_str().as_bytes());
            text.push(b' ');
            text.extend_from_slice(head.target_text);
            text.push(b' ');
            text.extend_from_slice(head.version.as_str().as_bytes());
        }
        Logged::Raw(raw) => {
            // An empty line before it, or a lone CR within it, hides nothing.
            let raw = raw.strip_prefix(b"\r\n").unwrap_or(raw);
            let raw = &raw[..raw.len().min(RAW_BYTES_MAX)];
            let line_end = raw.windows(2).position(|pair| pair == b"\r\n").unwrap_or(raw.len());
            append_escaped(text, &raw[..line_end]);
        }
    }
    text.push(b'"');
}

fn append_answer(text: &mut Vec<u8>, answer: Answer) {
    let _ = write!(text, " {:03} {} ", answer.status, answer.body_bytes);
}

/// `"referer" "user agent" `.
fn append_agents(text: &mut Vec<u8>, logged: Logged<'_>) {
    for name in ["referer", "user-agent"] {
        let value = match logged {
            Logged::Head(head) => head.fields.first(name),
            Logged::Raw(_) => None,
        };
        text.push(b'"');
        append_escaped(text, value.unwrap_or(b"-"));
        text.extend_from_slice(b"\" ");
    }
}

/// `06/Nov/1994:08:49:37 +0000`, from the HTTP-date.
fn format_log_date(unix_s: i64) -> Vec<u8> {
    let date = format_date(unix_s);
    [&date[5..7], b"/", &date[8..11], b"/", &date[12..16], b":", &date[17..25], b" +0000"].concat()
}

/// Appends `bytes` so that they stay within their quotes and their line.
fn append_escaped(text: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        if (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\' {
            text.push(byte);
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AccessLog, Answer, Logged, append_escaped, format_log_date};
    use flatout_http::head::FieldStorage;
    use flatout_http::limits::Limits;
    use flatout_http::request::parse_request_head;
    use std::sync::Arc;

    fn answer(status: u16, outcome: &'static str) -> Answer {
        Answer { status, body_bytes: 12, outcome, started_ns: 1_000_000 }
    }

    #[test]
    fn a_line_holds_the_request_and_both_reasons() {
        let request = b"GET /a?b HTTP/1.1\r\nHost: h\r\nUser-Agent: x\"y\r\n\r\n";
        let mut storage = FieldStorage::new();
        let head = parse_request_head(request, &Limits::DEFAULT, &mut storage).unwrap().unwrap();
        let mut log = AccessLog::new(Arc::new(std::fs::File::open("/dev/null").unwrap()));
        let client = "192.0.2.1:5".parse().ok();
        log.stage(client, 784_111_777, Logged::Head(&head), answer(200, "hit"));
        log.stage(client, 784_111_777, Logged::Raw(b"\x16\x03\"\r\nX"), answer(400, "tls_on_plain_port"));
        log.commit("sent", 3_500_000);
        assert_eq!(
            String::from_utf8_lossy(&log.buffer),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 200 12 \"-\" \"x\\x22y\" hit sent 2500\n\
             192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"\\x16\\x03\\x22\" 400 12 \"-\" \"-\" tls_on_plain_port sent 2500\n"
        );
    }

    #[test]
    fn a_refused_request_cannot_hide_from_its_line() {
        let mut log = AccessLog::new(Arc::new(std::fs::File::open("/dev/null").unwrap()));
        log.stage(None, 0, Logged::Raw(b"\r\nGET /a\rb\nc\r\nX: y\r\n"), answer(400, "bare_cr"));
        log.stage(None, 0, Logged::Raw(&[b'a'; 1000]), answer(501, "method_too_long"));
        log.commit("sent", 0);
        let text = String::from_utf8_lossy(&log.buffer).into_owned();
        assert!(text.contains(" \"GET /a\\x0db\\x0ac\" 400 "), "{text}");
        assert!(text.contains(&format!(" \"{}\" 501 ", "a".repeat(128))), "{text}");
    }

    #[test]
    fn lines_taken_away_come_later_and_lost_ones_are_counted() {
        let mut log = AccessLog::new(Arc::new(std::fs::File::open("/dev/null").unwrap()));
        log.stage(None, 0, Logged::Raw(b""), answer(408, "head_timeout"));
        let staged = log.take_staged();
        assert!(!staged.is_empty());
        log.commit("sent", 0);
        assert!(log.buffer.is_empty());
        log.commit_staged(&staged, "write_timeout", 0);
        assert!(String::from_utf8_lossy(&log.buffer).ends_with("head_timeout write_timeout 0\n"));
        // Opened for reading, the file takes nothing.
        assert_eq!(log.flush(), 1);
        assert_eq!(log.flush(), 0);
    }

    #[test]
    fn dates_and_escapes() {
        assert_eq!(format_log_date(784_111_777), b"06/Nov/1994:08:49:37 +0000");
        let mut text = Vec::new();
        append_escaped(&mut text, b"a\nb\\\xff");
        assert_eq!(text, b"a\\x0ab\\x5c\\xff");
    }
}
