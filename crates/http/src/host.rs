//! Hosts with an optional port: `Host = uri-host [ ":" port ]` (RFC 9110 §7.2, RFC 3986 §3.2.2).
//!
//! A comma, which RFC 3986 allows in a name, is refused: no name has one, and it is what several Host fields become when
//! an intermediary joins them.

use crate::percent::decode_first;
use crate::refusal::Refusal;
use crate::token::{HEX, REG_NAME, is};
use core::net::Ipv6Addr;

/// Validates a host with an optional port, as in a Host field or an authority. Refuses user information (RFC 9110
/// §4.2.4) and an empty host, which no http URI may have (§4.2.1).
pub fn check_host(value: &[u8]) -> Result<(), Refusal> {
    // The usual case: a name or an IPv4 address, possibly with a port.
    let name_bytes = value.iter().position(|&byte| !is_name_byte(byte)).unwrap_or(value.len());
    let valid = match &value[name_bytes..] {
        [] => name_bytes > 0,
        [b':', port @ ..] if name_bytes > 0 => is_port(port),
        _ => {
            let (host, port) = split_port(value);
            is_host(host) && port.is_none_or(is_port)
        }
    };
    if valid { Ok(()) } else { Err(Refusal::HostInvalid) }
}

fn is_host(host: &[u8]) -> bool {
    match host {
        [] => false,
        [b'[', literal @ .., b']'] => is_ip_literal(literal),
        _ => is_reg_name(host),
    }
}

/// Returns whether `digits` matches `port = *DIGIT` and is at most 65535.
fn is_port(digits: &[u8]) -> bool {
    digits.len() <= 5
        && digits.iter().all(u8::is_ascii_digit)
        && digits.iter().fold(0_u32, |value, digit| value * 10 + u32::from(digit - b'0')) <= 65_535
}

/// Splits `host[:port]` into the host, with the brackets of an IPv6 address, and the text after the colon. A colon in
/// brackets belongs to the host.
#[inline]
pub fn split_port(host_port: &[u8]) -> (&[u8], Option<&[u8]>) {
    let from = host_port.iter().rposition(|&byte| byte == b']').map_or(0, |bracket| bracket + 1);
    match host_port[from..].iter().position(|&byte| byte == b':') {
        Some(colon) => (&host_port[..from + colon], Some(&host_port[from + colon + 1..])),
        None => (host_port, None),
    }
}

/// Returns whether two valid hosts with optional ports name the same host and port of the scheme http, or https if
/// `secure`. Case is not significant, and a missing or empty port is the default port (RFC 9110 §4.2.3).
pub(crate) fn is_same_host(secure: bool, one: &[u8], other: &[u8]) -> bool {
    if one.eq_ignore_ascii_case(other) {
        return true;
    }
    let default: &[u8] = if secure { b"443" } else { b"80" };
    let parts = |value| {
        let (host, port) = split_port(value);
        (host, port.filter(|port| !port.is_empty()).unwrap_or(default))
    };
    let ((one, one_port), (other, other_port)) = (parts(one), parts(other));
    one.eq_ignore_ascii_case(other) && one_port == other_port
}

fn is_name_byte(byte: u8) -> bool {
    is(byte, REG_NAME) && byte != b','
}

fn is_reg_name(host: &[u8]) -> bool {
    let mut rest = host;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [_, _, tail @ ..]) if decode_first(rest).is_some() => tail,
            (byte, tail) if is_name_byte(*byte) => tail,
            _ => return false,
        };
    }
    true
}

/// Returns whether `literal` matches `IPv6address / IPvFuture`. A URI host has no zone identifier.
fn is_ip_literal(literal: &[u8]) -> bool {
    if let [b'v' | b'V', rest @ ..] = literal {
        let Some(dot) = rest.iter().position(|&byte| byte == b'.') else { return false };
        let (version, address) = (&rest[..dot], &rest[dot + 1..]);
        return !version.is_empty()
            && version.iter().all(|&byte| is(byte, HEX))
            && !address.is_empty()
            && address.iter().all(|&byte| is_name_byte(byte) || byte == b':');
    }
    std::str::from_utf8(literal).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::{Refusal, check_host, is_same_host, split_port};

    #[test]
    fn hosts_that_are_valid() {
        for host in [
            "a",
            "example.com",
            "example.com:",
            "example.com:80",
            "127.0.0.1:65535",
            "[::1]",
            "[::1]:8080",
            "[v1.a:b]",
            "a_b",
            "xn--bcher-kva.example",
            "%41",
            "a;b=c",
            "1.2.3.4.5",
        ] {
            assert_eq!(check_host(host.as_bytes()), Ok(()), "{host}");
        }
    }

    #[test]
    fn hosts_that_are_not() {
        for host in [
            "",
            ":80",
            "a b",
            "a:b",
            "a:65536",
            "a:99999999999",
            "a:80:80",
            "a/b",
            "a?b",
            "a#b",
            "u@a",
            "[::1",
            "::1",
            "[::g]",
            "[::1]x",
            "[]",
            "[v1]",
            "[v.a]",
            "[fe80::1%25eth0]",
            "%4",
            "%zz",
            "a\\b",
            "a,b",
            "a,b:80",
            "[v1.a,b]",
            "\u{fc}",
            "a\"",
        ] {
            assert_eq!(check_host(host.as_bytes()), Err(Refusal::HostInvalid), "{host}");
        }
    }

    #[test]
    fn ports_are_split_from_hosts() {
        for (text, host, port) in [
            ("a", "a", None),
            ("a:80", "a", Some("80")),
            ("a:", "a", Some("")),
            ("[::1]", "[::1]", None),
            ("[::1]:8", "[::1]", Some("8")),
        ] {
            assert_eq!(split_port(text.as_bytes()), (host.as_bytes(), port.map(str::as_bytes)), "{text}");
        }
    }

    #[test]
    fn hosts_are_compared_by_name_and_port() {
        for (secure, one, other, same) in [
            (false, "a", "A", true),
            (false, "a", "a:80", true),
            (false, "a:", "A:80", true),
            (true, "a:443", "a", true),
            (false, "[::1]:80", "[::1]", true),
            (false, "a:443", "a", false),
            (true, "a:80", "a", false),
            (false, "a", "b", false),
            (false, "[::1]:80", "[::2]", false),
            (false, "a", "a.", false),
        ] {
            assert_eq!(is_same_host(secure, one.as_bytes(), other.as_bytes()), same, "{one} {other}");
        }
    }
}
