//! One entry of a listing: its display name, address, size and time as text.

use std::borrow::Cow;
use std::fmt::Write;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A folder, or a link to one.
    Folder,
    /// A regular file of this size, or a link to one.
    File {
        /// Its size in bytes.
        size_bytes: u64,
    },
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListingEntry {
    /// The name's bytes, which need not be UTF-8.
    pub(super) name: Vec<u8>,
    /// The name in lower case, the sort key.
    pub(super) key: Box<str>,
    /// The kind of entry.
    pub(super) kind: EntryKind,
    /// When it was last modified, in seconds since 1970.
    pub(super) modified_s: i64,
}

impl ListingEntry {
    pub(super) fn new(name: &[u8], kind: EntryKind, modified_s: i64) -> Self {
        let key = String::from_utf8_lossy(name).to_lowercase().into_boxed_str();
        Self { name: name.to_vec(), key, kind, modified_s }
    }

    pub(super) fn is_folder(&self) -> bool {
        self.kind == EntryKind::Folder
    }

    /// The size of a file; 0 for a folder, whose own size is meaningless.
    pub(super) fn size_bytes(&self) -> u64 {
        match self.kind {
            EntryKind::Folder => 0,
            EntryKind::File { size_bytes } => size_bytes,
        }
    }

    /// The address relative to the folder's. It begins with `./`, so that no name can be read as a scheme, a host or
    /// a query; a folder's ends with a slash.
    pub(super) fn href(&self) -> String {
        let mut href = String::with_capacity(self.name.len() + 3);
        href.push_str("./");
        append_encoded(&mut href, &self.name);
        if self.is_folder() {
            href.push('/');
        }
        href
    }
}

/// Appends `bytes` with all but unreserved characters (RFC 3986 §2.3) percent-encoded.
fn append_encoded(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

/// `name` for display: control characters as their pictures (U+2400 and following), and invalid UTF-8 and
/// bidirectional controls as U+FFFD.
pub(super) fn shown(name: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(name);
    if text.chars().all(|char| picture(char) == char) {
        return text;
    }
    Cow::Owned(text.chars().map(picture).collect())
}

fn picture(char: char) -> char {
    match char {
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(char)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{61c}' => char::REPLACEMENT_CHARACTER,
        _ => char,
    }
}

/// A moment in UTC, within the years 0000 to 9999 that RFC 3339 can write.
pub(super) struct Moment {
    date: String,
    second_of_day: i64,
}

impl Moment {
    /// The moment `unix_s`, clamped to those years.
    pub(super) fn new(unix_s: i64) -> Self {
        const FIRST_S: i64 = -62_167_219_200;
        const LAST_S: i64 = 253_402_300_799;
        const DAY_S: i64 = 86_400;
        let unix_s = unix_s.clamp(FIRST_S, LAST_S);
        // Days since 0000-03-01, so that the leap day is the last of its year and of its 4, 100 and 400 years.
        let days = unix_s.div_euclid(DAY_S) + 719_468;
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12 + 1;
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Self { date: format!("{year:04}-{month:02}-{day_of_month:02}"), second_of_day: unix_s.rem_euclid(DAY_S) }
    }

    /// `2026-11-21 04:30`.
    pub(super) fn to_minute(&self) -> String {
        let minutes = self.second_of_day / 60;
        format!("{} {:02}:{:02}", self.date, minutes / 60, minutes % 60)
    }

    /// `2026-11-21T04:30:00Z` (RFC 3339).
    pub(super) fn rfc3339(&self) -> String {
        let minutes = self.second_of_day / 60;
        let mut text = self.date.clone();
        let _ = write!(text, "T{:02}:{:02}:{:02}Z", minutes / 60, minutes % 60, self.second_of_day % 60);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryKind, ListingEntry, Moment, shown};

    fn href(name: &[u8], kind: EntryKind) -> String {
        ListingEntry::new(name, kind, 0).href()
    }

    #[test]
    fn addresses_of_hostile_names() {
        let file = EntryKind::File { size_bytes: 0 };
        for (name, expected) in [
            (&b"plain-1.0_a~.txt"[..], "./plain-1.0_a~.txt"),
            (b"<script>alert(1)</script>", "./%3Cscript%3Ealert%281%29%3C%2Fscript%3E"),
            (b"\"'&", "./%22%27%26"),
            (b"100%", "./100%25"),
            (b"%2e%2e", "./%252e%252e"),
            (b"a\nb\r", "./a%0Ab%0D"),
            (b"\xff\xc3\x28", "./%FF%C3%28"),
            ("\u{e9}".as_bytes(), "./%C3%A9"),
            (b"javascript:alert(1)", "./javascript%3Aalert%281%29"),
            (b"\\\\host", "./%5C%5Chost"),
            (b"...", "./..."),
            (b"?a#b c+", "./%3Fa%23b%20c%2B"),
        ] {
            assert_eq!(href(name, file), expected);
        }
        assert_eq!(href(b"a:b", EntryKind::Folder), "./a%3Ab/");
    }

    #[test]
    fn names_for_people() {
        assert_eq!(shown(b"a b"), "a b");
        assert_eq!(shown(b"a\nb\x1b\x7f"), "a\u{240a}b\u{241b}\u{2421}");
        assert_eq!(shown("x\u{202e}gpj.exe\u{85}".as_bytes()), "x\u{fffd}gpj.exe\u{fffd}");
        assert_eq!(shown(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn moments() {
        for (unix_s, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
            (i64::MIN, "0000-01-01T00:00:00Z"),
        ] {
            assert_eq!(Moment::new(unix_s).rfc3339(), expected);
        }
        assert_eq!(Moment::new(1_795_235_459).to_minute(), "2026-11-21 04:30");
    }
}
