//! Incremental splitting of text into lines.
//!
//! A line ends in LF or CR LF, and the last line also at the end of the text. A line above the limit is reported once
//! and skipped, so the buffer never exceeds the limit.

/// Splits text into lines, which are numbered from 1.
#[derive(Clone, Debug)]
pub struct LineReader {
    partial: Vec<u8>,
    number: u64,
    is_too_long: bool,
    bytes_max: usize,
}

/// A line exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl LineReader {
    /// Creates a splitter for lines of at most `bytes_max` bytes, not counting line ends.
    pub const fn new(bytes_max: usize) -> Self {
        Self { partial: Vec::new(), number: 0, is_too_long: false, bytes_max }
    }

    /// Handles the next piece of text. Calls `take` with the number and content of every completed line.
    pub fn handle_bytes(&mut self, bytes: &[u8], mut take: impl FnMut(u64, Result<&[u8], TooLong>)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (piece, behind) = (&rest[..end], &rest[end + 1..]);
            rest = behind;
            if self.partial.is_empty() && !self.is_too_long {
                self.number += 1;
                take(self.number, bounded(piece, self.bytes_max));
            } else {
                self.keep(piece);
                self.give(&mut take);
            }
        }
        self.keep(rest);
    }

    /// Handles the end of the text. Calls `take` with the last line if it has no line end.
    pub fn handle_end(&mut self, mut take: impl FnMut(u64, Result<&[u8], TooLong>)) {
        if !self.partial.is_empty() || self.is_too_long {
            self.give(&mut take);
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        // Keep one more byte than the limit, for the CR of a line end.
        let room = (self.bytes_max + 1).saturating_sub(self.partial.len());
        self.is_too_long |= piece.len() > room;
        self.partial.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    fn give(&mut self, take: &mut impl FnMut(u64, Result<&[u8], TooLong>)) {
        self.number += 1;
        let line = if self.is_too_long { Err(TooLong) } else { bounded(&self.partial, self.bytes_max) };
        take(self.number, line);
        self.is_too_long = false;
        self.partial.clear();
    }
}

fn bounded(line: &[u8], bytes_max: usize) -> Result<&[u8], TooLong> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > bytes_max { Err(TooLong) } else { Ok(line) }
}

/// Calls `take` with every line of a whole text.
pub fn each_line(text: &[u8], bytes_max: usize, mut take: impl FnMut(u64, Result<&[u8], TooLong>)) {
    let mut lines = LineReader::new(bytes_max);
    lines.handle_bytes(text, &mut take);
    lines.handle_end(&mut take);
}

#[cfg(test)]
mod tests {
    use super::{LineReader, TooLong};

    type Found = Vec<(u64, Result<Vec<u8>, TooLong>)>;

    fn in_pieces(text: &[u8], piece_bytes: usize) -> Found {
        let mut found = Found::new();
        let mut lines = LineReader::new(4);
        let mut take = |number, line: Result<&[u8], TooLong>| found.push((number, line.map(<[u8]>::to_vec)));
        for piece in text.chunks(piece_bytes) {
            lines.handle_bytes(piece, &mut take);
        }
        lines.handle_end(&mut take);
        found
    }

    #[test]
    fn lines_are_the_same_however_they_come() {
        let ok = |number: u64, line: &str| (number, Ok(line.as_bytes().to_vec()));
        let long = |number: u64| (number, Err(TooLong));
        let cases: [(&[u8], Found); 9] = [
            (b"", vec![]),
            (b"a", vec![ok(1, "a")]),
            (b"a\r\n\nbc\n", vec![ok(1, "a"), ok(2, ""), ok(3, "bc")]),
            (b"1234\r\n1234\n1234", vec![ok(1, "1234"), ok(2, "1234"), ok(3, "1234")]),
            (b"12345\nx\n", vec![long(1), ok(2, "x")]),
            (b"1234567890\r\nx", vec![long(1), ok(2, "x")]),
            (b"x\n1234567890", vec![ok(1, "x"), long(2)]),
            (b"123\r\r\n", vec![ok(1, "123\r")]),
            (b"1234\r\r\nx\n", vec![long(1), ok(2, "x")]),
        ];
        for (text, expected) in cases {
            for piece_bytes in 1..=text.len().max(1) {
                assert_eq!(in_pieces(text, piece_bytes), expected, "{:?} by {piece_bytes}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn no_more_than_the_bound_is_kept() {
        let mut lines = LineReader::new(4);
        lines.handle_bytes(&vec![b'x'; 1 << 20], |_, _| {});
        assert!(lines.partial.capacity() < 64);
    }
}
