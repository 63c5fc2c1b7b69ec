//! Formatting of numbers, dates and escaped strings as bytes. `write!` would take several times as long.

use flatout_http::date::{format_date, format_rfc3339};
use flatout_http::token::append_decimal;
use std::io::Write as _;
use std::net::IpAddr;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends `number`, which must be less than 1000, with three digits.
pub(super) fn append_three_digits(text: &mut Vec<u8>, number: u16) {
    debug_assert!(number < 1000);
    let digit = |number: u16| b'0' + (number % 10) as u8;
    text.extend_from_slice(&[digit(number / 100), digit(number / 10), digit(number)]);
}

pub(super) fn append_address(text: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    text.push(b'.');
                }
                append_decimal(text, octet.into());
            }
        }
        // Writing to a `Vec` cannot fail.
        IpAddr::V6(address) => {
            let _ = write!(text, "{address}");
        }
    }
}

/// Returns a table of the bytes that need no escape, within or without quotes.
const fn plain_bytes(within_quotes: bool) -> [bool; 256] {
    let mut plain = [false; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        plain[byte] = byte != b'"' as usize && byte != b'\\' as usize;
        byte += 1;
    }
    plain[b' ' as usize] = within_quotes;
    plain
}

static PLAIN_QUOTED: [bool; 256] = plain_bytes(true);
static PLAIN_WORD: [bool; 256] = plain_bytes(false);

/// Appends `bytes`, escaped so that they cannot end the quoted string or the line.
pub(super) fn append_escaped(text: &mut Vec<u8>, bytes: &[u8]) {
    append_escaped_by(text, bytes, &PLAIN_QUOTED);
}

/// Appends `bytes`, escaped so that they remain one word.
pub(super) fn append_escaped_word(text: &mut Vec<u8>, bytes: &[u8]) {
    append_escaped_by(text, bytes, &PLAIN_WORD);
}

fn append_escaped_by(text: &mut Vec<u8>, mut bytes: &[u8], plain: &[bool; 256]) {
    while let Some(special) = bytes.iter().position(|&byte| !plain[usize::from(byte)]) {
        let byte = bytes[special];
        text.extend_from_slice(&bytes[..special]);
        text.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        bytes = &bytes[special + 1..];
    }
    text.extend_from_slice(bytes);
}

/// Appends `bytes` as a JSON string (RFC 8259 §7) in ASCII only. Other characters are written as `\u` escapes, and each
/// malformed UTF-8 sequence as `\ufffd`. So no reader mistakes a character for a line end or a terminal command.
pub(super) fn append_json_string(text: &mut Vec<u8>, bytes: &[u8]) {
    text.push(b'"');
    match bytes.iter().position(|&byte| !PLAIN_QUOTED[usize::from(byte)]) {
        None => text.extend_from_slice(bytes),
        Some(special) => {
            text.extend_from_slice(&bytes[..special]);
            append_json_escaped(text, &bytes[special..]);
        }
    }
    text.push(b'"');
}

#[cold]
fn append_json_escaped(text: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => text.extend_from_slice(b"\\\""),
                '\\' => text.extend_from_slice(b"\\\\"),
                ' '..='~' => text.push(character as u8),
                _ => {
                    for &unit in character.encode_utf16(&mut [0; 2]).iter() {
                        append_json_unit(text, unit);
                    }
                }
            }
        }
        if !chunk.invalid().is_empty() {
            append_json_unit(text, 0xfffd);
        }
    }
}

fn append_json_unit(text: &mut Vec<u8>, unit: u16) {
    let digit = |shift: u32| HEX[usize::from(unit >> shift & 15)];
    text.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}

/// The formatted dates of one second.
#[derive(Clone, Debug)]
pub(super) struct Dates {
    unix_s: i64,
    combined: [u8; 26],
    rfc3339: [u8; 19],
}

impl Dates {
    pub(super) const fn new() -> Self {
        Self { unix_s: i64::MIN, combined: [b' '; 26], rfc3339: [b' '; 19] }
    }

    fn read(&mut self, unix_s: i64) {
        if unix_s == self.unix_s {
            return;
        }
        self.unix_s = unix_s;
        // Sun, 06 Nov 1994 08:49:37 GMT
        let date = format_date(unix_s);
        self.combined = *b"06/Nov/1994:08:49:37 +0000";
        self.combined[..2].copy_from_slice(&date[5..7]);
        self.combined[3..6].copy_from_slice(&date[8..11]);
        self.combined[7..11].copy_from_slice(&date[12..16]);
        self.combined[12..20].copy_from_slice(&date[17..25]);
        self.rfc3339.copy_from_slice(&format_rfc3339(unix_s).as_bytes()[..19]);
    }

    /// Formats `06/Nov/1994:08:49:37 +0000`.
    pub(super) fn combined(&mut self, unix_ms: i64) -> &[u8] {
        self.read(unix_ms.div_euclid(1000));
        &self.combined
    }

    /// Appends `1994-11-06T08:49:37.123Z` (RFC 3339 §5.6).
    pub(super) fn append_rfc3339(&mut self, text: &mut Vec<u8>, unix_ms: i64) {
        self.read(unix_ms.div_euclid(1000));
        text.extend_from_slice(&self.rfc3339);
        text.push(b'.');
        append_three_digits(text, unix_ms.rem_euclid(1000) as u16);
        text.push(b'Z');
    }
}

/// Formats `19941106-084937`, the suffix of rotated files.
pub(super) fn format_stamp(unix_s: i64) -> String {
    let mut dates = Dates::new();
    dates.read(unix_s);
    let digits = dates.rfc3339.iter().filter(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte));
    let digits: String = digits.collect();
    format!("{}-{}", &digits[..8], &digits[8..])
}

#[cfg(test)]
mod tests {
    use super::{Dates, append_address, append_escaped, append_escaped_word, append_json_string};
    use super::{append_three_digits, format_stamp};

    fn text_of(append: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut text = Vec::new();
        append(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn numbers_and_addresses() {
        assert_eq!(text_of(|text| append_three_digits(text, 7)), "007");
        assert_eq!(text_of(|text| append_three_digits(text, 599)), "599");
        for address in ["127.0.0.1", "255.10.0.99", "::1", "2001:db8::7"] {
            assert_eq!(text_of(|text| append_address(text, address.parse().unwrap())), address);
        }
    }

    #[test]
    fn dates_in_three_forms() {
        let mut dates = Dates::new();
        assert_eq!(dates.combined(784_111_777_123), b"06/Nov/1994:08:49:37 +0000");
        assert_eq!(text_of(|text| dates.append_rfc3339(text, 784_111_777_023)), "1994-11-06T08:49:37.023Z");
        assert_eq!(text_of(|text| dates.append_rfc3339(text, 1_709_208_000_999)), "2024-02-29T12:00:00.999Z");
        assert_eq!(text_of(|text| dates.append_rfc3339(text, 0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_stamp(784_111_777), "19941106-084937");
    }

    #[test]
    fn escapes_of_quoted_text_and_of_words() {
        assert_eq!(text_of(|text| append_escaped(text, b"a\nb\\ \"\xff\x7f~")), "a\\x0ab\\x5c \\x22\\xff\\x7f~");
        assert_eq!(text_of(|text| append_escaped_word(text, b"me and you")), "me\\x20and\\x20you");
    }

    #[test]
    fn json_strings_are_ascii() {
        let cases: [(&[u8], &str); 7] = [
            (b"plain /a?b", r#""plain /a?b""#),
            (b"\"\\\n\x00\x7f", r#""\"\\\u000a\u0000\u007f""#),
            ("é\u{2028}".as_bytes(), r#""\u00e9\u2028""#),
            ("\u{1f600}".as_bytes(), r#""\ud83d\ude00""#),
            (b"a\xff\xc3(\xe2\x82z", r#""a\ufffd\ufffd(\ufffdz""#),
            // A surrogate in UTF-8 is none.
            (b"\xed\xa0\x80", r#""\ufffd\ufffd\ufffd""#),
            (b"", r#""""#),
        ];
        for (bytes, expected) in cases {
            assert_eq!(text_of(|text| append_json_string(text, bytes)), expected, "{bytes:?}");
        }
    }
}
