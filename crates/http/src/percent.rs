//! Percent-encoding (RFC 3986 §2.1). Request paths have a separate decoder, which also resolves segments:
//! [`crate::path::decode_path`].

use crate::token::hex_value;

/// Returns whether `byte` is an unreserved character (RFC 3986 §2.3), which is never encoded.
pub fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Percent-encodes `bytes`, except the ASCII characters for which `stays` returns true.
pub fn encode(bytes: &[u8], stays: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii() && stays(byte) { text.push(char::from(byte)) } else { push_encoded(&mut text, byte) }
    }
    text
}

/// Appends the percent-encoding of `byte` to `text`.
pub fn push_encoded(text: &mut String, byte: u8) {
    text.extend(encode_byte(byte).map(char::from));
}

/// Returns the percent-encoding of `byte`.
pub fn encode_byte(byte: u8) -> [u8; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// Decodes the percent-encodings in `bytes`. Invalid encodings are unchanged.
pub fn decode(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (&first, after) = rest.split_first()?;
        let encoded = decode_first(rest);
        rest = if encoded.is_some() { &rest[3..] } else { after };
        Some(encoded.unwrap_or(first))
    })
}

/// Decodes the percent-encoding at the start of `bytes`, if there is one.
pub const fn decode_first(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => match (hex_value(*high), hex_value(*low)) {
            (Some(high), Some(low)) => Some(high << 4 | low),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, is_unreserved};

    #[test]
    fn all_bytes_survive_and_invalid_encodings_stay() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encode(&all, |byte| is_unreserved(byte) || byte >= 0x80);
        assert!(text.is_ascii() && text.contains("-.%2F0") && text.ends_with("%FF"), "{text}");
        assert_eq!(decode(text.as_bytes()).collect::<Vec<u8>>(), all);
        assert!(decode(b"%4a%4A%%4%zz%").eq(*b"JJ%%4%zz%"));
    }
}
