//! An entry of a listing: its name, address, size and time.

use flatout_http::percent;
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A folder, or a link to one.
    Folder,
    /// A regular file, or a link to one.
    File {
        /// Size in bytes.
        size_bytes: u64,
    },
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListingEntry {
    /// The name, which need not be UTF-8.
    pub(super) name: Vec<u8>,
    /// The name in lower case, as the sort key.
    pub(super) key: Box<str>,
    /// The kind of entry.
    pub(super) kind: EntryKind,
    /// Time of the last modification, in seconds since 1970.
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

    /// Returns the size of a file in bytes. Returns 0 for a folder, whose size means nothing to a reader.
    pub(super) fn size_bytes(&self) -> u64 {
        match self.kind {
            EntryKind::Folder => 0,
            EntryKind::File { size_bytes } => size_bytes,
        }
    }

    /// Returns the address relative to that of the folder. It begins with `./`, so that no name can be mistaken for a
    /// scheme, a host or a query. The address of a folder ends with a slash.
    pub(super) fn href(&self) -> String {
        format!("./{}{}", percent::encode(&self.name, percent::is_unreserved), if self.is_folder() { "/" } else { "" })
    }
}

/// Returns `name` for display. Replaces ASCII control characters with their pictures (U+2400 and following), and
/// invalid UTF-8, other control characters and bidirectional controls with U+FFFD.
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

#[cfg(test)]
mod tests {
    use super::{EntryKind, ListingEntry, shown};

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
}
