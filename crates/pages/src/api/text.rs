//! Bytes as text: hexadecimal digits and Base64 (RFC 4648).

/// The two alphabets of Base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// With `+` and `/`, padded (§4).
    Standard,
    /// With `-` and `_`, not padded (§5): for URLs, cookies and file names.
    Url,
}

/// `bytes` in Base64.
pub fn encode_base64(bytes: &[u8], alphabet: Alphabet) -> String {
    let mut text = flatout_http::digest::encode_base64(bytes);
    if alphabet == Alphabet::Url {
        text.truncate(text.trim_end_matches('=').len());
        if text.contains(['+', '/']) {
            text = text.replace('+', "-").replace('/', "_");
        }
    }
    text
}

/// The bytes that `text` stands for. Padding may be missing; characters of the other alphabet, white space and bits
/// that no encoder leaves behind make it `None`, so that no two texts stand for the same bytes, padding aside.
pub fn decode_base64(text: &[u8], alphabet: Alphabet) -> Option<Vec<u8>> {
    let bare = match text.len() % 4 {
        0 => text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text),
        _ => text,
    };
    let (plus, slash) = match alphabet {
        Alphabet::Standard => (b'+', b'/'),
        Alphabet::Url => (b'-', b'_'),
    };
    let mut bytes = Vec::with_capacity(bare.len() / 4 * 3 + 2);
    for group in bare.chunks(4) {
        let mut bits = 0_u32;
        for &character in group {
            let sextet = match character {
                b'A'..=b'Z' => character - b'A',
                b'a'..=b'z' => character - b'a' + 26,
                b'0'..=b'9' => character - b'0' + 52,
                _ if character == plus => 62,
                _ if character == slash => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(sextet);
        }
        let [_, first, second, third] = (bits << (6 * (4 - group.len()))).to_be_bytes();
        match (group.len(), second, third) {
            (4, ..) => bytes.extend_from_slice(&[first, second, third]),
            (3, _, 0) => bytes.extend_from_slice(&[first, second]),
            (2, 0, 0) => bytes.push(first),
            _ => return None,
        }
    }
    Some(bytes)
}

/// `bytes` in hexadecimal digits, in lower case.
pub fn encode_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The bytes that hexadecimal digits of either case stand for.
pub fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = flatout_http::token::hex_value;
    text.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Alphabet, decode_base64, decode_hex, encode_base64, encode_hex};
    use proptest::prelude::*;

    #[test]
    fn vectors_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode_base64(bytes.as_bytes(), Alphabet::Standard), text);
            assert_eq!(decode_base64(text.as_bytes(), Alphabet::Standard).unwrap(), bytes.as_bytes());
            assert_eq!(encode_base64(bytes.as_bytes(), Alphabet::Url), text.trim_end_matches('='));
        }
        assert_eq!(encode_base64(&[0xfb, 0xff], Alphabet::Url), "-_8");
        assert_eq!(encode_hex(b"\x00\xfe"), "00fe");
        assert_eq!(decode_hex(b"00FE"), Some(vec![0, 0xfe]));
    }

    #[test]
    fn nonsense() {
        for text in ["A", "AAAAA", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z g=", "=", "====", "Zm-v"] {
            assert_eq!(decode_base64(text.as_bytes(), Alphabet::Standard), None, "{text}");
        }
        assert_eq!(decode_base64(b"Zm+v", Alphabet::Url), None);
        assert_eq!((decode_hex(b"0"), decode_hex(b"0g")), (None, None));
    }

    proptest! {
        #[test]
        fn what_went_in_comes_out(bytes in any::<Vec<u8>>()) {
            for alphabet in [Alphabet::Standard, Alphabet::Url] {
                let text = encode_base64(&bytes, alphabet);
                prop_assert_eq!(decode_base64(text.as_bytes(), alphabet), Some(bytes.clone()));
                // Padding may be left out.
                prop_assert_eq!(decode_base64(text.trim_end_matches('=').as_bytes(), alphabet), Some(bytes.clone()));
            }
            prop_assert_eq!(decode_hex(encode_hex(&bytes).as_bytes()), Some(bytes.clone()));
        }

        #[test]
        fn one_text_for_the_same_bytes(text in any::<Vec<u8>>()) {
            if let Some(bytes) = decode_base64(&text, Alphabet::Url) {
                let bare = String::from_utf8_lossy(&text).trim_end_matches('=').to_owned();
                prop_assert_eq!(encode_base64(&bytes, Alphabet::Url), bare);
            }
        }
    }
}
