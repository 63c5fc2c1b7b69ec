//! Splitting of a script's error output (FCGI_STDERR) into lines, within limits.

use std::fmt::Write as _;

/// Maximum length of a line, in bytes. The rest of the line is dropped.
pub const LINE_BYTES_MAX: usize = 4 * 1024;

/// Maximum number of lines per response.
pub const LINES_MAX: u32 = 100;

/// Splits error output into lines, regardless of how its bytes arrive.
#[derive(Debug, Default)]
pub struct LineSplitter {
    line: Vec<u8>,
    /// Number of dropped bytes of the current line.
    cut_bytes: usize,
    told: u32,
    untold: u64,
}

impl LineSplitter {
    /// Appends `bytes` and calls `tell` with each complete line.
    pub fn add(&mut self, bytes: &[u8], tell: &mut impl FnMut(&str)) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = LINE_BYTES_MAX - self.line.len();
            let taken = text.len().min(room);
            self.line.extend_from_slice(&text[..taken]);
            self.cut_bytes = self.cut_bytes.saturating_add(text.len() - taken);
            if ends {
                self.end_line(tell);
            }
        }
    }

    /// Ends the output. Calls `tell` with the incomplete line, if any, and with the number of dropped lines.
    pub fn end(&mut self, tell: &mut impl FnMut(&str)) {
        self.end_line(tell);
        if self.untold > 0 {
            tell(&format!("({} more lines)", self.untold));
            self.untold = 0;
        }
    }

    fn end_line(&mut self, tell: &mut impl FnMut(&str)) {
        let mut line = std::mem::take(&mut self.line);
        let cut_bytes = std::mem::take(&mut self.cut_bytes);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if line.is_empty() {
            self.line = line;
            return;
        }
        if self.told == LINES_MAX {
            self.untold += 1;
        } else {
            self.told += 1;
            // Control characters are replaced, because a script must not control the terminal that shows the log.
            let mut text: String = String::from_utf8_lossy(&line)
                .chars()
                .map(|char| if char.is_control() && char != '\t' { '\u{fffd}' } else { char })
                .collect();
            if cut_bytes > 0 {
                // Writing to a String cannot fail.
                let _ = write!(text, " ({cut_bytes} more bytes)");
            }
            tell(&text);
        }
        line.clear();
        self.line = line;
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, LINES_MAX, LineSplitter};
    use proptest::prelude::*;

    fn tell(bytes: &[u8], piece_bytes: usize) -> Vec<String> {
        let (mut lines, mut told) = (LineSplitter::default(), Vec::new());
        let mut tell = |line: &str| told.push(line.to_owned());
        for piece in bytes.chunks(piece_bytes) {
            lines.add(piece, &mut tell);
        }
        lines.end(&mut tell);
        told
    }

    #[test]
    fn lines_are_split_cleaned_and_bounded() {
        let text = "PHP message: a\r\n\n\nb\u{1b}[31m\tc\nlast".as_bytes();
        assert_eq!(tell(text, 100), ["PHP message: a", "b\u{fffd}[31m\tc", "last"]);
        let long = [vec![b'x'; LINE_BYTES_MAX + 5], b"\ny".to_vec()].concat();
        let told = tell(&long, 1000);
        assert!(told[0].ends_with("xx (5 more bytes)") && told[0].len() < LINE_BYTES_MAX + 20);
        assert_eq!(told[1], "y");
        let flood = b"line\n".repeat(LINES_MAX as usize + 7);
        let told = tell(&flood, 64);
        assert_eq!((told.len(), told.last().map(String::as_str)), (LINES_MAX as usize + 1, Some("(7 more lines)")));
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_bytes_are_split(bytes: Vec<u8>, piece_bytes in 1_usize..9) {
            prop_assert_eq!(tell(&bytes, piece_bytes), tell(&bytes, usize::MAX));
        }
    }
}
