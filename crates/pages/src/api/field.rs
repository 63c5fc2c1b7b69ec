//! Validation of header fields set by a page.

use flatout_http::lines::is_of_a_connection;
use flatout_http::token::is_token;

/// Upper bound of a field's value, in bytes.
pub const VALUE_BYTES_MAX: usize = 8192;
/// Upper bound of a field's name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Upper bound of fields set by one page.
pub const FIELDS_MAX: usize = 64;

/// Fields reserved for the server, besides connection-specific ones (RFC 9112 §6).
const SERVERS_OWN: [&str; 4] = ["content-length", "date", "http2-settings", "content-range"];

/// Why a page may not set a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The name is not a token.
    Name,
    /// The value contains a line end or another control character.
    Value,
    /// The name or the value is too long.
    TooLong,
    /// The field is reserved for the connection or the framing.
    ServersOwn,
    /// Set-Cookie, which has a separate function.
    Cookie,
    /// More fields than [`FIELDS_MAX`].
    TooMany,
}

impl FieldError {
    /// The message for the page's author.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Name => "a header's name may have letters, digits and !#$%&'*+-.^_`|~ only",
            Self::Value => "a header's value may not have line ends or other control characters",
            Self::TooLong => "a header's name may have 128 bytes and its value 8192",
            Self::ServersOwn => "this header belongs to the connection or to the framing, which the server looks after",
            Self::Cookie => "cookies are set with response.cookie(name, value)",
            Self::TooMany => "a page may set 64 headers",
        }
    }
}

/// Validates a field set by a page.
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

/// Returns whether `value` is a field-value (RFC 9110 §5.5) without surrounding white space.
pub fn is_value(value: &[u8]) -> bool {
    value.iter().all(|&byte| byte == b'\t' || byte >= 0x20 && byte != 0x7f)
}

/// The target of a redirect: a reference (RFC 3986 §4.1) in visible ASCII, or in UTF-8, which is encoded here. `None`
/// if it is empty or contains white space or control characters.
pub fn location(target: &[u8]) -> Option<Vec<u8>> {
    if target.is_empty() || target.len() > VALUE_BYTES_MAX || target.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
        return None;
    }
    let mut out = Vec::with_capacity(target.len());
    for &byte in target {
        // Browsers treat a backslash as a slash, so `/\host` would lead to another host.
        if byte >= 0x80 || b"\\\"<>^`{|}".contains(&byte) {
            super::form::encode_component(&[byte], &mut out);
        } else {
            out.push(byte);
        }
    }
    Some(out)
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
