//! Sets of bytes: the character classes and bracket sets of patterns.

/// A set of bytes, with one bit for each byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set([u64; 4]);

impl Set {
    pub(crate) fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    pub(crate) fn add_range(&mut self, first: u8, last: u8) {
        for byte in first..=last {
            self.add(byte);
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine |= theirs;
        }
    }

    pub(crate) fn invert(&mut self) {
        for word in &mut self.0 {
            *word = !*word;
        }
    }

    #[inline]
    pub(crate) const fn has(&self, byte: u8) -> bool {
        self.0[(byte >> 6) as usize] >> (byte & 63) & 1 == 1
    }

    /// Returns the class for the letter after a percent sign, in the C locale. An uppercase letter stands for the
    /// complement. Returns `None` if the character is literal.
    pub(crate) fn class(letter: u8) -> Option<Self> {
        let accepts: fn(u8) -> bool = match letter.to_ascii_lowercase() {
            b'a' => |byte| byte.is_ascii_alphabetic(),
            b'c' => |byte| byte.is_ascii_control(),
            b'd' => |byte| byte.is_ascii_digit(),
            b'g' => |byte| byte.is_ascii_graphic(),
            b'l' => |byte| byte.is_ascii_lowercase(),
            b'p' => |byte| byte.is_ascii_punctuation(),
            b's' => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
            b'u' => |byte| byte.is_ascii_uppercase(),
            b'w' => |byte| byte.is_ascii_alphanumeric(),
            b'x' => |byte| byte.is_ascii_hexdigit(),
            b'z' => |byte| byte == 0,
            _ => return None,
        };
        let mut set = Self::default();
        for byte in 0..=u8::MAX {
            if accepts(byte) {
                set.add(byte);
            }
        }
        if letter.is_ascii_uppercase() {
            set.invert();
        }
        Some(set)
    }
}
