//! Base64 (RFC 4648) with or without padding, using the `data-encoding` crate.

use data_encoding::Encoding;
pub use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD};

/// Decodes `text`, with or without padding. `encoding` must be a variant without padding.
///
/// Returns `None` if `text` contains white space or a character outside the alphabet, if its padding is wrong, or if
/// its trailing bits are not zero. Apart from padding, no two inputs decode to the same bytes.
pub fn decode(text: &[u8], encoding: &Encoding) -> Option<Vec<u8>> {
    let bare = match text.len() % 4 {
        0 => text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text),
        _ => text,
    };
    encoding.decode(bare).ok()
}

#[cfg(test)]
mod tests {
    use super::{BASE64_NOPAD, BASE64URL_NOPAD, decode};

    #[test]
    fn padding_is_optional_and_nothing_else() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zg", "f"), ("Zm8=", "fo"), ("Zm8", "fo"), ("Zm9v", "foo")] {
            assert_eq!(decode(text.as_bytes(), &BASE64_NOPAD).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        for text in ["A", "AAAAA", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z g=", "=", "====", "Zm-v"] {
            assert_eq!(decode(text.as_bytes(), &BASE64_NOPAD), None, "{text}");
        }
        assert_eq!(decode(b"Zm+v", &BASE64URL_NOPAD), None);
        assert_eq!(decode(b"-_8=", &BASE64URL_NOPAD), Some(vec![0xfb, 0xff]));
    }
}
