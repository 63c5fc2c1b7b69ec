//! One connection of the bare loop: how much of the end of a request head has arrived, and how many bytes are still to
//! be sent.

use memchr::memmem;
use std::os::fd::OwnedFd;

/// The bytes that end a request head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// A connection of the bare loop.
#[derive(Debug)]
pub(super) struct ResponderConnection {
    pub(super) socket: OwnedFd,
    pub(super) ends: HeadEnds,
    pub(super) owed_bytes: u64,
}

impl ResponderConnection {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, ends: HeadEnds::default(), owed_bytes: 0 }
    }
}

/// Counts the ends of request heads in a stream that arrives in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeadEnds {
    /// Number of bytes of [`HEAD_END`] that the last piece ended with, 0 to 3.
    matched: u8,
}

impl HeadEnds {
    /// Handles the next piece of the stream. Returns how many heads ended in it.
    pub(super) fn handle_bytes(&mut self, mut bytes: &[u8]) -> u64 {
        let mut heads = 0;
        while self.matched > 0 {
            let Some((first, rest)) = bytes.split_first() else { return heads };
            bytes = rest;
            self.matched = advance(self.matched, *first);
            if usize::from(self.matched) == HEAD_END.len() {
                self.matched = 0;
                heads += 1;
            }
        }
        // Nearly every piece is exactly one head.
        while let Some(position) = memmem::find(bytes, HEAD_END) {
            bytes = &bytes[position + HEAD_END.len()..];
            heads += 1;
        }
        self.matched =
            (1..HEAD_END.len()).rev().find(|length| bytes.ends_with(&HEAD_END[..*length])).unwrap_or(0) as u8;
        heads
    }
}

fn advance(matched: u8, byte: u8) -> u8 {
    if byte == HEAD_END[usize::from(matched)] {
        matched + 1
    } else {
        // A CR starts a new match. After CR LF CR, it cannot be the expected LF.
        u8::from(byte == b'\r')
    }
}

#[cfg(test)]
mod tests {
    use super::HeadEnds;

    #[test]
    fn heads_are_counted_however_the_bytes_arrive() {
        let stream = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\n\r\n\r\r\n\r\r\n\r\n\n\r\n\r\nGET";
        let whole = HeadEnds::default().handle_bytes(stream);
        assert_eq!(whole, 4);
        for size in 1..stream.len() {
            let mut ends = HeadEnds::default();
            let counted: u64 = stream.chunks(size).map(|piece| ends.handle_bytes(piece)).sum();
            assert_eq!(counted, whole, "pieces of {size}");
        }
    }

    #[test]
    fn nothing_ends_in_nothing() {
        assert_eq!(HeadEnds::default().handle_bytes(b""), 0);
        assert_eq!(HeadEnds::default().handle_bytes(b"\r\n\r"), 0);
    }
}
