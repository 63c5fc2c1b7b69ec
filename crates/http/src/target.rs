//! The four forms of a request target (RFC 9112 §3.2).
//!
//! RFC 3986 requires percent-encoding of `[`, `|`, `"` and others, but browsers send them literally (WHATWG URL, "query
//! state"). Path and query may therefore contain every visible ASCII character except `#`, and UTF-8; a percent sign
//! need not begin an encoding. Bytes that could end or split the request line are refused: spaces, control characters
//! and invalid UTF-8.

use crate::host::check_host;
use crate::refusal::Refusal;
use crate::token::{PATH, TARGET, TCHAR, is};

/// A request target whose form and bytes are valid, neither decoded nor normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/path?query`, possibly from a target in absolute form.
    Resource {
        /// The path, beginning with `/`.
        path: &'a [u8],
        /// The part after `?`. `None` if there is no `?`.
        query: Option<&'a [u8]>,
    },
    /// `host:port`. Only for CONNECT.
    Authority(&'a [u8]),
    /// `*`. Only for OPTIONS.
    Asterisk,
}

/// The scheme, host and port of a target in absolute form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TargetOrigin<'a> {
    /// True for https, false for http.
    pub(crate) secure: bool,
    /// The valid host, with an optional port.
    pub(crate) authority: &'a [u8],
}

/// Parses the target of a request with `method`, but not one in absolute form.
pub fn parse_target<'a>(method: &[u8], target: &'a [u8]) -> Result<Target<'a>, Refusal> {
    match parse_any_target(method, target)? {
        (target, None) => Ok(target),
        (_, Some(_)) => Err(Refusal::Target),
    }
}

/// Parses the target of a request with `method`, and its origin if it is in absolute form.
pub(crate) fn parse_any_target<'a>(
    method: &[u8],
    target: &'a [u8],
) -> Result<(Target<'a>, Option<TargetOrigin<'a>>), Refusal> {
    if method == b"CONNECT" {
        return parse_authority_form(target).map(|authority| (Target::Authority(authority), None));
    }
    match target {
        [b'/', ..] => parse_resource(target).map(|target| (target, None)),
        b"*" if method == b"OPTIONS" => Ok((Target::Asterisk, None)),
        b"*" | [] => Err(Refusal::Target),
        _ => parse_absolute_form(method, target).map(|(target, origin)| (target, Some(origin))),
    }
}

fn parse_resource(bytes: &[u8]) -> Result<Target<'_>, Refusal> {
    let path_end = bytes.iter().position(|&byte| byte == b'?').unwrap_or(bytes.len());
    check_characters(bytes)?;
    Ok(Target::Resource { path: &bytes[..path_end], query: bytes.get(path_end + 1..) })
}

/// Checks that every byte is a visible ASCII character except `#`, or part of a UTF-8 character.
fn check_characters(bytes: &[u8]) -> Result<(), Refusal> {
    let Some(first) = bytes.iter().position(|&byte| !is(byte, TARGET)) else { return Ok(()) };
    let rest = std::str::from_utf8(&bytes[first..]).map_err(|_| Refusal::TargetCharacter)?;
    let is_allowed =
        |char: char| u8::try_from(char).is_ok_and(|byte| is(byte, TARGET)) || !(char.is_ascii() || char.is_control());
    if rest.chars().all(is_allowed) { Ok(()) } else { Err(Refusal::TargetCharacter) }
}

/// Parses `absolute-URI` with the scheme http or https, even if the connection uses the other. Any other scheme is
/// valid, but not served (RFC 9110 §7.4).
fn parse_absolute_form<'a>(method: &[u8], target: &'a [u8]) -> Result<(Target<'a>, TargetOrigin<'a>), Refusal> {
    let colon = target.iter().position(|&byte| byte == b':').ok_or(Refusal::Target)?;
    let (scheme, rest) = (&target[..colon], &target[colon + 1..]);
    let scheme_valid = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    if !scheme_valid {
        return Err(Refusal::Target);
    }
    let after_slashes = rest.strip_prefix(b"//").map(split_authority);
    let secure = scheme.eq_ignore_ascii_case(b"https");
    if !secure && !scheme.eq_ignore_ascii_case(b"http") {
        // The authority of another scheme may have user information or be empty.
        let (authority, resource) = after_slashes.unwrap_or((b"", rest));
        let host = authority.rsplit(|&byte| byte == b'@').next().unwrap_or(authority);
        check_characters(resource)?;
        check_characters(&authority[..authority.len() - host.len()])?;
        return Err(if host.is_empty() || check_host(host).is_ok() {
            Refusal::TargetScheme
        } else {
            Refusal::TargetAuthority
        });
    }
    let (authority, resource) = after_slashes.ok_or(Refusal::TargetAuthority)?;
    check_host(authority).map_err(|_| Refusal::TargetAuthority)?;
    let target = match resource {
        // RFC 9112 §3.2.4: OPTIONS for a URI with empty path and no query refers to the server.
        [] if method == b"OPTIONS" => Target::Asterisk,
        [] => Target::Resource { path: b"/", query: None },
        [b'?', query @ ..] => {
            check_characters(query)?;
            Target::Resource { path: b"/", query: Some(query) }
        }
        _ => parse_resource(resource)?,
    };
    Ok((target, TargetOrigin { secure, authority }))
}

/// Splits the text after `//` where the authority ends (RFC 3986 §3.2).
fn split_authority(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().position(|&byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(bytes.len()))
}

/// Parses `authority-form = uri-host ":" port`, whose port is required (RFC 9112 §3.2.3).
fn parse_authority_form(target: &[u8]) -> Result<&[u8], Refusal> {
    let port_given = target.iter().rposition(|&byte| byte == b':').is_some_and(|colon| {
        let port = &target[colon + 1..];
        !port.is_empty() && port.iter().all(u8::is_ascii_digit)
    });
    if !port_given || !target.iter().all(|&byte| is(byte, TCHAR | PATH) || matches!(byte, b'[' | b']')) {
        return Err(Refusal::Target);
    }
    check_host(target).map_err(|_| Refusal::TargetAuthority)?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::{Refusal, Target, TargetOrigin, parse_any_target, parse_target};

    fn resource<'a>(path: &'a str, query: Option<&'a str>) -> Target<'a> {
        Target::Resource { path: path.as_bytes(), query: query.map(str::as_bytes) }
    }

    #[test]
    fn the_four_forms() {
        let origin = |secure, authority: &'static str| Some(TargetOrigin { secure, authority: authority.as_bytes() });
        for (method, target, expected, expected_origin) in [
            ("GET", "/", resource("/", None), None),
            ("GET", "/a%20b/c?d=/?&e", resource("/a%20b/c", Some("d=/?&e")), None),
            ("GET", "/?", resource("/", Some("")), None),
            ("GET", "http://h", resource("/", None), origin(false, "h")),
            ("GET", "HTTP://h:80/a?b", resource("/a", Some("b")), origin(false, "h:80")),
            ("GET", "http://h?b", resource("/", Some("b")), origin(false, "h")),
            ("GET", "https://[::1]:8443/a?b", resource("/a", Some("b")), origin(true, "[::1]:8443")),
            ("GET", "HTTPS://h", resource("/", None), origin(true, "h")),
            ("OPTIONS", "*", Target::Asterisk, None),
            ("OPTIONS", "http://h", Target::Asterisk, origin(false, "h")),
            ("CONNECT", "h:443", Target::Authority(b"h:443"), None),
            ("CONNECT", "[::1]:443", Target::Authority(b"[::1]:443"), None),
        ] {
            let parsed = parse_any_target(method.as_bytes(), target.as_bytes());
            assert_eq!(parsed, Ok((expected, expected_origin)), "{method} {target}");
            let without_origin = if expected_origin.is_none() { Ok(expected) } else { Err(Refusal::Target) };
            assert_eq!(parse_target(method.as_bytes(), target.as_bytes()), without_origin, "{method} {target}");
        }
    }

    #[test]
    fn a_path_and_a_query_hold_what_browsers_send() {
        for byte in 0..=255_u8 {
            for target in [[b'/', byte, b'a'], [b'/', b'?', byte]] {
                let allowed = (0x21..0x7f).contains(&byte) && byte != b'#';
                assert_eq!(parse_target(b"GET", &target).is_ok(), allowed, "{byte:#x}");
            }
        }
        for target in ["/a?x[]=1&{b}|^`\"<>\\", "/[a]{b}|^`\"<>\\?%", "/%", "/%2", "/%zz?%", "/\u{fc}?\u{65e5}"] {
            assert!(parse_target(b"GET", target.as_bytes()).is_ok(), "{target}");
        }
        // A Latin-1 letter, an overlong encoding, a surrogate, and a truncated character.
        for bytes in [&b"/\xfc"[..], b"/\xc0\xae", b"/?\xed\xa0\x80", b"/\xe6\x97"] {
            assert_eq!(parse_target(b"GET", bytes), Err(Refusal::TargetCharacter), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (method, target, refusal) in [
            ("GET", "", Refusal::Target),
            ("GET", "*", Refusal::Target),
            ("GET", "a", Refusal::Target),
            ("GET", "h:80", Refusal::TargetScheme),
            ("GET", "1a://h/", Refusal::Target),
            ("GET", "ftp://h/", Refusal::TargetScheme),
            ("GET", "httpss://h/", Refusal::TargetScheme),
            ("GET", "wss://[::1]:8443/a?b", Refusal::TargetScheme),
            ("GET", "https://u@h/", Refusal::TargetAuthority),
            ("GET", "ftp://u:p@h/", Refusal::TargetScheme),
            ("GET", "file:///a", Refusal::TargetScheme),
            ("GET", "https://[::1/", Refusal::TargetAuthority),
            ("GET", "https://h\\/", Refusal::TargetAuthority),
            ("GET", "https://h/#f", Refusal::TargetCharacter),
            ("GET", "http:/h", Refusal::TargetAuthority),
            ("GET", "http:///a", Refusal::TargetAuthority),
            ("GET", "http://u@h/", Refusal::TargetAuthority),
            ("GET", "http://h:x/", Refusal::TargetAuthority),
            ("GET", "http://h/#f", Refusal::TargetCharacter),
            ("GET", "http://h#f", Refusal::TargetCharacter),
            ("GET", "/#f", Refusal::TargetCharacter),
            ("GET", "/a b", Refusal::TargetCharacter),
            ("GET", "/a\tb", Refusal::TargetCharacter),
            ("GET", "/a?\u{7f}", Refusal::TargetCharacter),
            ("GET", "/a?\0", Refusal::TargetCharacter),
            ("GET", "/\u{e9}\u{85}", Refusal::TargetCharacter),
            ("CONNECT", "/", Refusal::Target),
            ("CONNECT", "h", Refusal::Target),
            ("CONNECT", "h:", Refusal::Target),
            ("CONNECT", "http://h:80", Refusal::TargetAuthority),
            ("CONNECT", "u@h:80", Refusal::TargetAuthority),
        ] {
            assert_eq!(parse_target(method.as_bytes(), target.as_bytes()), Err(refusal), "{method} {target}");
        }
    }
}
