//! Validation of header fields that a page sets.

use flatout_http::lines::is_of_a_connection;
use flatout_http::percent;
use flatout_http::token::is_token;

/// Maximum length of a field's value, in bytes.
pub const VALUE_BYTES_MAX: usize = 8192;
/// Maximum length of a field's name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Maximum number of fields that a page may set.
pub const FIELDS_MAX: usize = 64;

/// Fields reserved for the server, in addition to connection-specific ones (RFC 9112 §6).
const SERVERS_OWN: [&str; 3] = ["content-length", "date", "http2-settings"];

flatout_reason::reasons! {
    /// The reason why a page may not set a field.
    pub enum FieldError { text, }
    /// The name is not a token.
    Name, "a header's name may contain only letters, digits and !#$%&'*+-.^_`|~";
    /// The value contains a line break or another control character.
    Value, "a header's value must not contain line breaks or other control characters";
    /// The name or the value is too long.
    TooLong, "a header's name may have at most 128 bytes, and its value at most 8,192";
    /// The field is reserved for the server because it concerns the connection or message framing.
    ServersOwn, "the server itself sets this framing or connection-specific header";
    /// The field is Set-Cookie, which has a separate function.
    Cookie, "set cookies with response.cookie(name, value)";
    /// The page sets more than [`FIELDS_MAX`] fields.
    TooMany, "a page may set at most 64 headers";
}

/// Checks whether a page may set this field.
pub fn check_field(name: &[u8], value: &[u8]) -> Result<(), FieldError> {
    if !is_token(name) {
        return Err(FieldError::Name);
    }
    if name.len() > NAME_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
        return Err(FieldError::TooLong);
    }
    if !is_value(value) {
        return Err(FieldError::Value);
    }
    if is_of_a_connection(name) || SERVERS_OWN.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes())) {
        return Err(FieldError::ServersOwn);
    }
    if name.eq_ignore_ascii_case(b"set-cookie") {
        return Err(FieldError::Cookie);
    }
    Ok(())
}

/// Returns whether `value` contains no control characters other than tabs, as a field-value requires (RFC 9110 §5.5).
pub fn is_value(value: &[u8]) -> bool {
    value.iter().all(|&byte| byte == b'\t' || byte >= 0x20 && byte != 0x7f)
}

/// Returns the value of Location for a redirect to `target`, with characters that a URL cannot contain percent-encoded
/// (RFC 3986 §4.1). Returns `None` if `target` is empty, too long, or contains spaces or control characters.
pub fn location(target: &[u8]) -> Option<Vec<u8>> {
    if target.is_empty() || target.len() > VALUE_BYTES_MAX || target.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
        return None;
    }
    // Browsers treat a backslash as a slash, so `/\host` would lead to another host.
    Some(percent::encode(target, |byte| !b"\\\"<>^`{|}".contains(&byte)).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::{FieldError, check_field, is_value, location};
    use proptest::prelude::*;

    #[test]
    fn what_may_be_set() {
        let long = vec![b'x'; 8193];
        for (name, value, expected) in [
            (&b"X-A"[..], &b"b c\t\xe9"[..], Ok(())),
            (b"Content-Type", b"text/plain", Ok(())),
            (b"Cache-Control", b"no-store", Ok(())),
            (b"", b"b", Err(FieldError::Name)),
            (b"A B", b"b", Err(FieldError::Name)),
            (b"A\r\nB", b"b", Err(FieldError::Name)),
            (b"A:", b"b", Err(FieldError::Name)),
            (b"A", b"b\r\nC: d", Err(FieldError::Value)),
            (b"A", b"b\n", Err(FieldError::Value)),
            (b"A", b"\0", Err(FieldError::Value)),
            (b"A", &long, Err(FieldError::TooLong)),
            (&long, b"", Err(FieldError::TooLong)),
            (b"content-length", b"3", Err(FieldError::ServersOwn)),
            (b"Transfer-Encoding", b"chunked", Err(FieldError::ServersOwn)),
            (b"CONNECTION", b"close", Err(FieldError::ServersOwn)),
            (b"Set-Cookie", b"a=b", Err(FieldError::Cookie)),
        ] {
            assert_eq!(check_field(name, value), expected, "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn where_a_redirect_leads() {
        for (target, expected) in [
            ("/a?b=c#d", Some("/a?b=c#d")),
            ("https://a.example/%20", Some("https://a.example/%20")),
            ("/\\evil.example", Some("/%5Cevil.example")),
            ("/\u{e9}", Some("/%C3%A9")),
            ("", None),
            ("/a b", None),
            ("/a\r\nX: y", None),
            ("/\t", None),
        ] {
            assert_eq!(location(target.as_bytes()), expected.map(|text| text.as_bytes().to_vec()), "{target}");
        }
    }

    proptest! {
        #[test]
        fn no_location_breaks_out_of_its_line(target in any::<Vec<u8>>()) {
            if let Some(location) = location(&target) {
                prop_assert!(is_value(&location) && location.is_ascii());
            }
        }
    }
}
