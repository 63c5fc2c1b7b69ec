//! Where the frames of HTTP/2 begin (RFC 9113 §4.1), however the bytes were cut. Payloads pass unread but for their
//! first bytes.

/// What a client begins with (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 9;

/// Bytes of a payload that are looked at: an error code, an increment, or the start of a field block behind the length of its
/// padding and a priority.
pub(super) const LEAD_BYTES: usize = 24;

/// The types that RFC 9113 §6 defines.
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

/// The flags that matter here.
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

/// The head of one frame, and the beginning of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// The type; see [`kind`].
    pub kind: u8,
    /// The flags; see [`flag`].
    pub flags: u8,
    /// The stream it belongs to; 0 for the connection. The reserved bit is left out.
    pub stream: u32,
    /// The first bytes of the payload; 0 where there are none.
    pub lead: [u8; LEAD_BYTES],
}

impl Frame {
    /// Whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The first four bytes as a number: the error code of RST_STREAM.
    pub const fn lead_number(&self) -> u32 {
        let [first, second, third, fourth, ..] = self.lead;
        u32::from_be_bytes([first, second, third, fourth])
    }
}

/// Finds the frames in a stream of bytes.
#[derive(Clone, Debug)]
pub struct Scanner {
    /// The head at hand, and what is looked at of its payload.
    gathered: [u8; HEAD_BYTES + LEAD_BYTES],
    gathered_bytes: u8,
    /// Bytes to pass over before the next head.
    skip_bytes: u32,
}

impl Scanner {
    /// For a stream that begins with a frame: what a server sends.
    pub const fn new() -> Self {
        Self { gathered: [0; HEAD_BYTES + LEAD_BYTES], gathered_bytes: 0, skip_bytes: 0 }
    }

    /// For a stream that begins with the preface: what a client sends.
    pub const fn after_preface() -> Self {
        Self { skip_bytes: PREFACE.len() as u32, ..Self::new() }
    }

    /// Whether a part of a head has passed and the rest has not.
    pub const fn is_within_head(&self) -> bool {
        self.gathered_bytes > 0
    }

    /// Takes from `bytes` up to where the next frame is known, or to their end. The rest of the payload passes with
    /// the calls that follow.
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

    /// Bytes of the head and, when it is there, of what is looked at behind it.
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
