//! The head of a CGI response (RFC 3875 §6): field lines up to an empty line, without a status line.
//!
//! Lines may end with CR LF or with LF alone (§6.2). Everything else is parsed as strictly as in messages from any
//! other peer. A script that writes the status line itself ("NPH", §5) is refused, because the end of its response
//! cannot be detected in FastCGI.

use flatout_http::lines::{each_line, is_of_a_connection};
use flatout_http::media;
use flatout_http::token::{is_token, parse_decimal, trim};

/// Maximum size of a head including its empty line, in bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of field lines.
pub const FIELDS_MAX: usize = 1000;

flatout_reason::reasons! {
    /// The reason why a head is invalid.
    #[derive(thiserror::Error)]
    #[error("{}", self.text())]
    pub enum HeadError { text, }
    /// The head is larger than [`HEAD_BYTES_MAX`] or has more than [`FIELDS_MAX`] fields.
    TooLarge, "the head is too large";
    /// The script wrote an HTTP status line.
    StatusLine, "the script writes its own status line (NPH)";
    /// A line of the head is not a field.
    Field, "a line of the header section is not a field";
    /// A Status field is not a number from 200 to 599, or there is more than one Status field.
    Status, "Status is not a number from 200 to 599, or occurs twice";
    /// There are two different Content-Lengths.
    ContentLength, "Content-Length occurs twice, with different values";
    /// Location, X-Sendfile or X-Accel-Redirect occurs more than once.
    Doubled, "a field that may occur only once occurs twice";
}

/// A parsed head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgiHead {
    /// The status that the script has set; by default, 302 if there is a Location, and 200 otherwise.
    pub status: u16,
    /// Field lines for the client, each consisting of `Name: value` and CR LF. Connection-specific fields,
    /// Content-Length and the fields below are left out.
    pub lines: Vec<u8>,
    /// Length of the content in bytes, if the script declared it.
    pub content_length: Option<u64>,
    /// True if the lines contain a Date field.
    pub has_date: bool,
    /// The path in the file system of a file to send instead of content (X-Sendfile).
    pub sendfile: Option<Vec<u8>>,
    /// The internal URL path of a file to send instead of content (X-Accel-Redirect).
    pub accel: Option<Vec<u8>>,
}

impl CgiHead {
    /// Returns whether the content is a stream of server-sent events.
    pub fn is_event_stream(&self) -> bool {
        each_line(&self.lines).any(|(name, line)| {
            name.eq_ignore_ascii_case(b"content-type")
                && media::is_event_stream(line.get(name.len() + 1..).unwrap_or_default().trim_ascii())
        })
    }
}

/// Fields with instructions for nginx, which have no meaning here. They are left out like connection-specific fields.
const LEFT_OUT: [&str; 4] = ["x-accel-buffering", "x-accel-charset", "x-accel-expires", "x-accel-limit-rate"];

/// Finds the end of a head. Examines each byte only once.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndFinder {
    looked: usize,
}

impl EndFinder {
    /// Returns the length of the head in `bytes`, including its empty line, or `None` if the head is incomplete. In
    /// that case, call it again with the same bytes followed by more.
    ///
    /// # Errors
    /// [`HeadError::TooLarge`] if the head is not complete within [`HEAD_BYTES_MAX`].
    pub fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, HeadError> {
        let within = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
        // The previous line may have ended with the last examined byte, possibly followed by a CR.
        let mut at = self.looked.saturating_sub(2);
        while let Some(found) = memchr::memchr(b'\n', &within[at..]) {
            let line_feed = at + found;
            let line = &within[..line_feed];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.ends_with(b"\n") {
                return Ok(Some(line_feed + 1));
            }
            at = line_feed + 1;
        }
        self.looked = within.len();
        if bytes.len() > HEAD_BYTES_MAX { Err(HeadError::TooLarge) } else { Ok(None) }
    }
}

impl CgiHead {
    /// Parses `head`, a complete head including its empty line.
    ///
    /// # Errors
    /// If the head is invalid.
    pub fn parse(head: &[u8]) -> Result<Self, HeadError> {
        if head.starts_with(b"HTTP/") {
            return Err(HeadError::StatusLine);
        }
        let mut parsed = Self { lines: Vec::with_capacity(head.len() + 32), ..Self::default() };
        let (mut status, mut has_location) = (None, false);
        for (index, line) in head.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                break;
            }
            if index == FIELDS_MAX {
                return Err(HeadError::TooLarge);
            }
            let (name, value) = split_field(line)?;
            let name_is = |other: &str| name.eq_ignore_ascii_case(other);
            if name_is("status") {
                set_once(&mut status, parse_status(value)?, HeadError::Status)?;
            } else if name_is("content-length") {
                // Records delimit the content, so a value that is no number, as of a file that does not exist, does no
                // harm.
                if let Some(length) = parse_decimal(value)
                    && parsed.content_length.replace(length).is_some_and(|before| before != length)
                {
                    return Err(HeadError::ContentLength);
                }
            } else if name_is("x-sendfile") {
                set_once(&mut parsed.sendfile, value.to_vec(), HeadError::Doubled)?;
            } else if name_is("x-accel-redirect") {
                set_once(&mut parsed.accel, value.to_vec(), HeadError::Doubled)?;
            } else if !is_of_a_connection(name.as_bytes()) && !LEFT_OUT.iter().any(|other| name_is(other)) {
                if name_is("location") && std::mem::replace(&mut has_location, true) {
                    return Err(HeadError::Doubled);
                }
                parsed.has_date |= name_is("date");
                parsed.lines.extend_from_slice(name.as_bytes());
                parsed.lines.extend_from_slice(b": ");
                parsed.lines.extend_from_slice(value);
                parsed.lines.extend_from_slice(b"\r\n");
            }
        }
        parsed.status = status.unwrap_or(if has_location { 302 } else { 200 });
        Ok(parsed)
    }

    /// Returns whether the lines contain a field with this name.
    pub fn has(&self, name: &str) -> bool {
        each_line(&self.lines).any(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T, error: HeadError) -> Result<(), HeadError> {
    if slot.replace(value).is_some() { Err(error) } else { Ok(()) }
}

/// Splits a line into name and value. A line that begins with white space would be a continuation (obs-fold), and has
/// no valid name.
fn split_field(line: &[u8]) -> Result<(&str, &[u8]), HeadError> {
    let colon = memchr::memchr(b':', line).ok_or(HeadError::Field)?;
    let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
    let is_value = value.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
    match std::str::from_utf8(name) {
        Ok(name) if is_token(name.as_bytes()) && is_value => Ok((name, value)),
        _ => Err(HeadError::Field),
    }
}

/// Parses three digits and an optional reason (RFC 3875 §6.3.3). An interim status is invalid because the request would
/// have no final response.
fn parse_status(value: &[u8]) -> Result<u16, HeadError> {
    let (digits, rest) = value.split_at(value.len().min(3));
    let status = parse_decimal(digits).and_then(|status| u16::try_from(status).ok());
    match status {
        Some(status @ 200..=599) if digits.len() == 3 && rest.first().is_none_or(|&byte| byte == b' ') => Ok(status),
        _ => Err(HeadError::Status),
    }
}

#[cfg(test)]
mod tests;
