//! What a handler answers with: a status, a head built beforehand, and one of a few kinds of body.

use crate::file::OpenFile;
use crate::shared::SharedBytes;
use flatout_http::date::DATE_BYTES;
use flatout_http::status::reason;
use std::rc::Rc;

/// A response head, complete but for the Date's value, the Connection field and the empty line.
#[derive(Clone, Debug)]
pub struct Head {
    /// Of one worker, so counted without an atomic operation.
    bytes: Rc<[u8]>,
    /// Where the Date's value stands.
    date_at: usize,
}

/// Every head begins with a status line of this version, then Date.
const DATE_FIELD: &str = "\r\nDate: ";

impl Head {
    /// Builds the head for `status` with `fields`, whose values must be fit for a header line.
    pub fn new(status: u16, fields: &[(&str, &str)]) -> Self {
        use std::fmt::Write as _;
        let mut text = format!("HTTP/1.1 {status} {}{DATE_FIELD}", reason(status));
        let date_at = text.len();
        text.push_str(&" ".repeat(DATE_BYTES));
        text.push_str("\r\n");
        for (name, value) in fields {
            debug_assert!(!value.contains(['\r', '\n', '\0']), "a field value with a line end: {name}");
            // Writing to a String cannot fail.
            let _ = write!(text, "{name}: {value}\r\n");
        }
        Self { bytes: text.into_bytes().into(), date_at }
    }

    /// Appends the head to `output` with `date` and, for the last response of a connection or the keep-alive of an
    /// HTTP/1.0 client, a Connection field.
    #[inline]
    pub fn append_to(&self, output: &mut Vec<u8>, date: &[u8; DATE_BYTES], connection: Option<&'static str>) {
        let start = output.len();
        output.extend_from_slice(&self.bytes);
        let date_at = start + self.date_at;
        output[date_at..date_at + DATE_BYTES].copy_from_slice(date);
        if let Some(option) = connection {
            output.extend_from_slice(b"Connection: ");
            output.extend_from_slice(option.as_bytes());
            output.extend_from_slice(b"\r\n");
        }
        output.extend_from_slice(b"\r\n");
    }

    /// Bytes of the head without the Connection field and the empty line.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: a head has a status line.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The content of a response. HEAD is answered with the body its GET would have; the pump leaves it out.
#[derive(Clone, Debug)]
pub enum Body {
    /// None.
    Empty,
    /// Bytes in memory, shared with a cache.
    Bytes(SharedBytes),
    /// A part of a file, sent from the page cache.
    File(FileBody),
}

impl Body {
    /// Bytes of content.
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.bytes,
        }
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A part of one version of a file.
#[derive(Clone, Debug)]
pub struct FileBody {
    /// The file, with the identity of the version that the head describes.
    pub file: Rc<OpenFile>,
    /// The first byte to send.
    pub offset: u64,
    /// How many bytes to send; `offset + bytes` is within the version's size.
    pub bytes: u64,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status, as in the head.
    pub status: u16,
    /// The head.
    pub head: Head,
    /// The content.
    pub body: Body,
    /// Why this answer: an index into the handler's `OUTCOMES`.
    pub outcome: u8,
}

#[cfg(test)]
mod tests {
    use super::Head;
    use flatout_http::date::format_date;

    #[test]
    fn heads_take_date_and_connection_when_they_are_sent() {
        let head = Head::new(200, &[("Content-Length", "3"), ("ETag", "\"a\"")]);
        let mut output = b"before".to_vec();
        head.append_to(&mut output, &format_date(784_111_777), None);
        head.append_to(&mut output, &format_date(0), Some("close"));
        let expected = "beforeHTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 3\r\n\
            ETag: \"a\"\r\n\r\nHTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Length: 3\r\n\
            ETag: \"a\"\r\nConnection: close\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&output), expected);
    }
}
