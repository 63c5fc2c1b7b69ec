//! Parsing and encoding of forms and queries: `application/x-www-form-urlencoded` (WHATWG URL §5).

use std::borrow::Cow;

/// Maximum number of fields in a form or query.
pub const FIELDS_MAX: usize = 1024;

/// The error if there are more than [`FIELDS_MAX`] fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyFields;

/// Decodes the fields of `encoded`, in order. Bytes that are invalid UTF-8 after decoding become U+FFFD.
pub fn parse_form(encoded: &[u8]) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), TooManyFields>> {
    form_urlencoded::parse(encoded)
        .enumerate()
        .map(|(index, field)| if index < FIELDS_MAX { Ok(field) } else { Err(TooManyFields) })
        .take(FIELDS_MAX + 1)
}

/// Returns whether the Content-Type value `content_type` specifies `media_type`, ignoring parameters.
pub fn is_media_type(content_type: &[u8], media_type: &str) -> bool {
    let end = memchr::memchr(b';', content_type).unwrap_or(content_type.len());
    flatout_http::token::trim(&content_type[..end]).eq_ignore_ascii_case(media_type.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{FIELDS_MAX, TooManyFields, is_media_type, parse_form};
    use proptest::prelude::*;

    fn parsed(text: &str) -> Vec<(String, String)> {
        parse_form(text.as_bytes()).map(|field| field.unwrap()).map(|(a, b)| (a.into_owned(), b.into_owned())).collect()
    }

    #[test]
    fn what_browsers_send() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            parsed("a=b&c=d+e%20f&&g&=h&a=2"),
            [pair("a", "b"), pair("c", "d e f"), pair("g", ""), pair("", "h"), pair("a", "2")]
        );
        assert_eq!(parsed("%26=%3D&x=%zz%e2%82%ac%ff"), [pair("&", "="), pair("x", "%zz\u{20ac}\u{fffd}")]);
        assert!(parsed("").is_empty());
    }

    #[test]
    fn fields_are_bounded() {
        let many = "a&".repeat(FIELDS_MAX);
        assert_eq!(parse_form(many.as_bytes()).flatten().count(), FIELDS_MAX);
        assert_eq!(parse_form(format!("{many}b&c&d").as_bytes()).last(), Some(Err(TooManyFields)));
        assert_eq!(parse_form(format!("{many}b&c&d").as_bytes()).count(), FIELDS_MAX + 1);
    }

    #[test]
    fn media_types() {
        assert!(is_media_type(b"Application/JSON ; charset=utf-8", "application/json"));
        assert!(!is_media_type(b"application/jsonp", "application/json"));
        assert!(!is_media_type(b"", "application/json"));
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_fatal(bytes in any::<Vec<u8>>()) {
            prop_assert!(parse_form(&bytes).count() <= FIELDS_MAX + 1);
        }
    }
}
