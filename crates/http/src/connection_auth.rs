//! Authentication of a connection instead of a request: NTLM, Negotiate and Kerberos (RFC 4559).
//!
//! Contrary to RFC 9110 §11.1, a server that uses these schemes serves every later request on the connection as the
//! same user. A connection to it must not carry requests of different clients.

use crate::token::trim;

/// Schemes that authenticate a connection.
const SCHEMES: [&[u8]; 3] = [b"ntlm", b"negotiate", b"kerberos"];

/// Returns whether `value`, that of a WWW-Authenticate or Authorization field, contains a scheme that authenticates the
/// connection. A comma in a quoted string counts as the end of a challenge, so the result may be true by mistake.
pub fn has_connection_scheme(value: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|challenge| {
        let challenge = trim(challenge);
        let end = challenge.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(challenge.len());
        SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(&challenge[..end]))
    })
}

/// Returns whether any of `lines`, which are the lines of a request head, has credentials that authenticate the
/// connection.
pub fn authenticates_connection(lines: &[u8]) -> bool {
    let mut start = 0;
    loop {
        let line = &lines[start..];
        if let Some(value) = strip_name(line, b"authorization:").or_else(|| strip_name(line, b"proxy-authorization:")) {
            let end = memchr::memchr(b'\n', value).unwrap_or(value.len());
            if has_connection_scheme(value[..end].trim_ascii_end()) {
                return true;
            }
        }
        match memchr::memchr(b'\n', line) {
            Some(end) => start += end + 1,
            None => return false,
        }
    }
}

/// Returns the rest of `line` after `name`, which is in lower case.
fn strip_name<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.split_at_checked(name.len()).filter(|(start, _)| start.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::{authenticates_connection, has_connection_scheme};

    #[test]
    fn schemes_that_authenticate_the_connection() {
        for value in [
            "NTLM",
            "ntlm TlRMTVNTUAAB",
            "Negotiate",
            "Basic realm=\"a\", Negotiate",
            "Negotiate YII=, Basic realm=\"a\"",
            "Kerberos",
            "Basic realm=\"a\",NTLM\t",
        ] {
            assert!(has_connection_scheme(value.as_bytes()), "{value}");
        }
        for value in ["", "Basic bnRsbQ==", "Bearer NTLM", "NTLMv9 a", "Digest realm=\"negotiate\"", "Basic ntlm="] {
            assert!(!has_connection_scheme(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn credentials_in_request_heads() {
        for head in [
            "GET / HTTP/1.1\r\nHost: a\r\nAUTHORIZATION:NTLM TlRM\r\n\r\n",
            "Authorization: negotiate YII=\r\n",
            "Host: a\r\nAuthorization: Basic eDp5\r\nProxy-Authorization: NTLM TlRM\r\n",
            "Host: a\r\nAuthorization:  Negotiate",
        ] {
            assert!(authenticates_connection(head.as_bytes()), "{head}");
        }
        for head in [
            "",
            "GET /Authorization:NTLM HTTP/1.1\r\nHost: a\r\n\r\n",
            "Authorization: Basic eDp5\r\nX-Authorization: NTLM a\r\n",
            "Authorization: Bearer a\r\nX: NTLM\r\n",
        ] {
            assert!(!authenticates_connection(head.as_bytes()), "{head}");
        }
    }
}
