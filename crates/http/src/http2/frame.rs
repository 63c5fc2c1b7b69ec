//! Frame boundaries of HTTP/2 (RFC 9113 §4.1) in any split of the input. Only the first bytes of a payload are
//! inspected.

/// Client preface (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame head.
pub const HEAD_BYTES: usize = 9;

/// Inspected bytes of a payload: an error code, an increment, or the start of a field block after pad length and
/// priority.
pub(super) const LEAD_BYTES: usize = 24;

/// Frame types of RFC 9113 §6.
pub mod kind {
    /// DATA.
    pub const DATA: u8 = 0;
    /// HEADERS.
    pub const HEADERS: u8 = 1;
    /// PRIORITY.
    pub const PRIORITY: u8 = 2;
    /// RST_STREAM.
    pub const RST_STREAM: u8 = 3;
    /// SETTINGS.
    pub const SETTINGS: u8 = 4;
    /// PUSH_PROMISE.
    pub const PUSH_PROMISE: u8 = 5;
    /// PING.
    pub const PING: u8 = 6;
    /// GOAWAY.
    pub const GOAWAY: u8 = 7;
    /// WINDOW_UPDATE.
    pub const WINDOW_UPDATE: u8 = 8;
    /// CONTINUATION.
    pub const CONTINUATION: u8 = 9;
}

/// Frame flags used here.
pub mod flag {
    /// Of SETTINGS and PING.
    pub const ACK: u8 = 0x1;
    /// Of DATA and HEADERS.
    pub const END_STREAM: u8 = 0x1;
    /// Of HEADERS and CONTINUATION.
    pub const END_HEADERS: u8 = 0x4;
    /// Of DATA and HEADERS.
    pub const PADDED: u8 = 0x8;
    /// Of HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// Head of a frame, and the start of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Length of the payload.
    pub payload_bytes: u32,
    /// The type; see [`kind`].
    pub kind: u8,
    /// The flags; see [`flag`].
    pub flags: u8,
    /// Stream identifier without the reserved bit; 0 for the connection.
    pub stream: u32,
    /// First bytes of the payload, padded with 0.
    pub lead: [u8; LEAD_BYTES],
}

impl Frame {
    /// Returns whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// First four bytes as a number: the error code of RST_STREAM.
    pub const fn lead_number(&self) -> u32 {
        let [first, second, third, fourth, ..] = self.lead;
        u32::from_be_bytes([first, second, third, fourth])
    }
}

/// Finds frames in a byte stream.
#[derive(Clone, Debug)]
pub struct Scanner {
    /// Current head and inspected payload bytes.
    gathered: [u8; HEAD_BYTES + LEAD_BYTES],
    gathered_bytes: u8,
    /// Bytes to skip before the next head.
    skip_bytes: u32,
}

impl Scanner {
    /// Scanner for a server's stream, which begins with a frame.
    pub const fn new() -> Self {
        Self { gathered: [0; HEAD_BYTES + LEAD_BYTES], gathered_bytes: 0, skip_bytes: 0 }
    }

    /// Scanner for a client's stream, which begins with the preface.
    pub const fn after_preface() -> Self {
        Self { skip_bytes: PREFACE.len() as u32, ..Self::new() }
    }

    /// Returns whether a head is incomplete.
    pub const fn is_within_head(&self) -> bool {
        self.gathered_bytes > 0
    }

    /// Consumes `bytes` up to the next complete frame head and inspected payload, or to their end. Later calls skip
    /// the rest of the payload.
    pub fn next_frame(&mut self, bytes: &mut &[u8]) -> Option<Frame> {
        loop {
            let skipped = bytes.len().min(self.skip_bytes as usize);
            *bytes = &bytes[skipped..];
            self.skip_bytes -= skipped as u32;
            if bytes.is_empty() {
                return self.known_frame();
            }
            if let Some(frame) = self.known_frame() {
                return Some(frame);
            }
            let wanted = self.wanted_bytes() - usize::from(self.gathered_bytes);
            let taken = bytes.len().min(wanted);
            let at = usize::from(self.gathered_bytes);
            self.gathered[at..at + taken].copy_from_slice(&bytes[..taken]);
            self.gathered_bytes += taken as u8;
            *bytes = &bytes[taken..];
        }
    }

    fn payload_bytes(&self) -> u32 {
        u32::from_be_bytes([0, self.gathered[0], self.gathered[1], self.gathered[2]])
    }

    /// Required bytes of the head and, once it is complete, of the inspected payload.
    fn wanted_bytes(&self) -> usize {
        if usize::from(self.gathered_bytes) < HEAD_BYTES {
            return HEAD_BYTES;
        }
        HEAD_BYTES + LEAD_BYTES.min(self.payload_bytes() as usize)
    }

    fn known_frame(&mut self) -> Option<Frame> {
        let gathered_bytes = usize::from(self.gathered_bytes);
        if gathered_bytes < HEAD_BYTES || gathered_bytes < self.wanted_bytes() {
            return None;
        }
        let payload_bytes = self.payload_bytes();
        let [_, _, _, kind, flags, stream @ ..] = &self.gathered;
        let mut lead = [0; LEAD_BYTES];
        let lead_bytes = gathered_bytes - HEAD_BYTES;
        lead[..lead_bytes].copy_from_slice(&self.gathered[HEAD_BYTES..gathered_bytes]);
        let stream = u32::from_be_bytes([stream[0], stream[1], stream[2], stream[3]]) & 0x7fff_ffff;
        let frame = Frame { payload_bytes, kind: *kind, flags: *flags, stream, lead };
        self.gathered_bytes = 0;
        self.skip_bytes = payload_bytes - lead_bytes as u32;
        Some(frame)
    }
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, PREFACE, Scanner, kind};
    use crate::feed::assert_pieces_agree;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    fn scan(bytes: &[u8], start: &Scanner) -> Vec<Frame> {
        let (mut scanner, mut rest, mut frames) = (start.clone(), bytes, Vec::new());
        while let Some(frame) = scanner.next_frame(&mut rest) {
            frames.push(frame);
        }
        assert!(rest.is_empty());
        frames
    }

    #[test]
    fn frames_are_found_behind_the_preface() {
        let bytes = [
            &PREFACE[..],
            &frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]),
            &frame(kind::SETTINGS, 1, 0, &[]),
            &frame(kind::RST_STREAM, 0, 0x8000_0003, &[0, 0, 0, 8]),
            &frame(kind::DATA, 9, 5, &[1, 0]),
        ]
        .concat();
        let frames = scan(&bytes, &Scanner::after_preface());
        let seen: Vec<_> =
            frames.iter().map(|f| (f.kind, f.flags, f.stream, f.payload_bytes, f.lead_number())).collect();
        let expected = [(4, 0, 0, 6, 0x30000), (4, 1, 0, 0, 0), (3, 0, 3, 4, 8), (0, 9, 5, 2, 0x0100_0000)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn cuts_change_nothing() {
        let bytes = [
            frame(kind::HEADERS, 4, 1, &[0x82; 300]),
            frame(kind::PING, 0, 0, &[7; 8]),
            frame(kind::CONTINUATION, 0, 1, &[]),
            frame(0xff, 0xff, u32::MAX, &[1, 2, 3]),
        ]
        .concat();
        assert_pieces_agree(&bytes, Scanner::new, |scanner, piece, output| {
            let mut rest = piece;
            while let Some(frame) = scanner.next_frame(&mut rest) {
                output.extend_from_slice(format!("{frame:?}").as_bytes());
            }
            Ok::<_, ()>((piece.len(), false))
        });
        let mut scanner = Scanner::new();
        assert!(scanner.next_frame(&mut &bytes[..8]).is_none());
        assert!(scanner.is_within_head());
    }
}
