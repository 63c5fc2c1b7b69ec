//! The client of the admin socket: sends one request and receives one response.

use super::socket::connect;
use crate::failure::Failure;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Read timeout, which exceeds the server's own timeout for any command.
const TIMEOUT: Duration = Duration::from_secs(150);

/// Maximum size of a response, in bytes. Metrics take a few tens of thousands of bytes.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A response from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminReply {
    /// The HTTP status code.
    pub status: u16,
    /// The content.
    pub body: String,
}

/// A possible location of an admin socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The socket.
    pub path: PathBuf,
    /// The configuration that specifies the path.
    pub named_in: Option<PathBuf>,
}

impl Candidate {
    /// Creates a candidate from a path that does not come from a configuration.
    pub const fn new(path: PathBuf) -> Self {
        Self { path, named_in: None }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.path.display())?;
        self.named_in.as_ref().map_or(Ok(()), |config| write!(formatter, " (`admin` in {})", config.display()))
    }
}

/// Sends a request to the first of `candidates` that accepts a connection, and returns the response.
///
/// # Errors
/// If no candidate responds.
pub fn ask(candidates: &[Candidate], method: &str, target: &str) -> Result<AdminReply, Failure> {
    let (mut stream, path) = find(candidates)?;
    let failed =
        |error: std::io::Error| Failure::runtime(format!("flatout does not respond at {}: {error}", path.display()));
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let question = format!("{method} {target} HTTP/1.1\r\nHost: flatout\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(failed)?;
    parse_reply(&answer).ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))
}

fn find(candidates: &[Candidate]) -> Result<(UnixStream, &Path), Failure> {
    let mut refused = None;
    for candidate in candidates {
        match connect(&candidate.path) {
            Ok(Some(stream)) => return Ok((stream, &candidate.path)),
            Ok(None) => {}
            // Another socket may belong to this user.
            Err(error) => refused = refused.or(Some((candidate, error))),
        }
    }
    if let Some((candidate, error)) = refused {
        return Err(Failure::runtime(format!(
            "cannot connect to the admin socket {candidate}: {error}\n  try: run this command as the user that runs flatout"
        )));
    }
    let mut shown: Vec<String> = candidates.iter().map(ToString::to_string).collect();
    let last = shown.pop().unwrap_or_default();
    let shown = if shown.is_empty() { last } else { format!("{} or {last}", shown.join(", ")) };
    Err(Failure::runtime(format!(
        "no flatout is running with an admin socket at {shown}\n  try: -c FILE with its configuration, or --admin PATH"
    )))
}

/// Parses a response that ended with its connection. Returns `None` if it is malformed.
fn parse_reply(answer: &[u8]) -> Option<AdminReply> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?.parse::<usize>().ok()?;
    let body = &answer[end + 4..];
    // A truncated response is rejected.
    (body.len() == length).then(|| AdminReply { status, body: String::from_utf8_lossy(body).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::parse_reply;

    #[test]
    fn only_complete_responses_are_accepted() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(parse_reply(text).unwrap().body, "abc");
        for end in 0..text.len() {
            assert_eq!(parse_reply(&text[..end]), None, "{end}");
        }
        assert_eq!(parse_reply(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"), None);
    }
}
