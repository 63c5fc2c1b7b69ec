//! Alt-Svc (RFC 7838): responses over HTTP/1.1 and HTTP/2 tell clients that HTTP/3 is available.

use flatout_http::http2::hpack::encode_field;
use flatout_http::lines::write_line;
use std::cell::RefCell;

/// How long clients remember the announcement, in seconds: a day, which is a common value.
const REMEMBERED_S: u32 = 86_400;

/// The Alt-Svc field in the encoding of each protocol.
#[derive(Debug)]
struct Announcement {
    /// The number of the listener whose responses contain the field.
    listener: u32,
    line: Vec<u8>,
    block: Vec<u8>,
}

/// The listeners of a worker that announce HTTP/3. The fields are encoded once, so that each response costs only a
/// copy.
#[derive(Debug, Default)]
pub(crate) struct Announcements(RefCell<Vec<Announcement>>);

impl Announcements {
    /// Announces HTTP/3 on the UDP port `port` in the responses of a listener.
    pub(super) fn add(&self, listener: u32, port: u16) {
        self.remove(listener);
        let value = format!("h3=\":{port}\"; ma={REMEMBERED_S}");
        let (mut line, mut block) = (Vec::new(), Vec::new());
        write_line(b"Alt-Svc", value.as_bytes(), &mut line);
        encode_field(b"alt-svc", value.as_bytes(), &mut block);
        self.0.borrow_mut().push(Announcement { listener, line, block });
    }

    /// Stops announcing HTTP/3 in the responses of a listener.
    pub(super) fn remove(&self, listener: u32) {
        self.0.borrow_mut().retain(|known| known.listener != listener);
    }

    /// Inserts the field into a complete HTTP/1.1 head at the end of `output`.
    pub(crate) fn insert_line(&self, listener: u32, output: &mut Vec<u8>) {
        if let Some(known) = self.0.borrow().iter().find(|known| known.listener == listener) {
            // Remove the empty line, which must follow the field.
            output.truncate(output.len().saturating_sub(2));
            output.extend_from_slice(&known.line);
            output.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the field to an HTTP/2 field block.
    pub(crate) fn append_block(&self, listener: u32, output: &mut Vec<u8>) {
        if let Some(known) = self.0.borrow().iter().find(|known| known.listener == listener) {
            output.extend_from_slice(&known.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Announcements;

    #[test]
    fn the_field_is_inserted_before_the_empty_line() {
        let announcements = Announcements::default();
        announcements.add(3, 8443);
        let head = |listener| {
            let mut output = b"HTTP/1.1 200 OK\r\nDate: x\r\n\r\n".to_vec();
            announcements.insert_line(listener, &mut output);
            String::from_utf8(output).unwrap()
        };
        let expected = "HTTP/1.1 200 OK\r\nDate: x\r\nAlt-Svc: h3=\":8443\"; ma=86400\r\n\r\n";
        assert_eq!(head(3), expected);
        assert!(!head(2).contains("Alt-Svc"));
        announcements.remove(3);
        assert!(!head(3).contains("Alt-Svc"));
    }
}
