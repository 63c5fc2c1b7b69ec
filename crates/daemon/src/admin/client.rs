//! The other side of the admin socket: one question, one answer.

use super::path::Places;
use super::socket::connect;
use crate::failure::Failure;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// More than the server gives any order.
const TIMEOUT: Duration = Duration::from_secs(150);

/// Bytes of an answer. Metrics are a few ten thousand.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The content.
    pub body: String,
}

/// Asks the server whose admin socket is at `path`, or at one of the usual places.
///
/// # Errors
/// When nobody answers there.
pub fn ask(path: Option<&Path>, method: &str, target: &str) -> Result<Reply, Failure> {
    let paths = path.map_or_else(|| Places::read().candidates(), |path| vec![path.to_owned()]);
    let (mut stream, path) = find(&paths)?;
    let failed = |error: std::io::Error| {
        Failure::runtime(format!("the flatout behind {} does not answer: {error}", path.display()))
    };
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let question = format!("{method} {target} HTTP/1.1\r\nHost: flatout\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(failed)?;
    parse_reply(&answer).ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))
}

fn find(paths: &[PathBuf]) -> Result<(UnixStream, &Path), Failure> {
    for path in paths {
        match connect(path) {
            Ok(Some(stream)) => return Ok((stream, path)),
            Ok(None) => {}
            Err(error) => {
                return Err(Failure::runtime(format!("may not ask the flatout behind {}: {error}", path.display())));
            }
        }
    }
    let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Err(Failure::runtime(format!(
        "no flatout is running with an admin socket at {}\n  try: --admin PATH, if it was started with another",
        shown.join(" or ")
    )))
}

/// Status and content of an answer that ended with its connection; `None` when it is not one.
fn parse_reply(answer: &[u8]) -> Option<Reply> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?.parse::<usize>().ok()?;
    let body = &answer[end + 4..];
    // Cut short, it would be half a truth.
    (body.len() == length).then(|| Reply { status, body: String::from_utf8_lossy(body).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::parse_reply;

    #[test]
    fn only_whole_answers_are_believed() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(parse_reply(text).unwrap().body, "abc");
        for end in 0..text.len() {
            assert_eq!(parse_reply(&text[..end]), None, "{end}");
        }
        assert_eq!(parse_reply(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"), None);
    }
}
