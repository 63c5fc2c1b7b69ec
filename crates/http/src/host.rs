//! Hosts with an optional port: `Host = uri-host [ ":" port ]` (RFC 9110 §7.2, RFC 3986 §3.2.2).

use crate::percent::decode_first;
use crate::refusal::Refusal;
use crate::token::{HEX, REG_NAME, is};
use core::net::Ipv6Addr;

/// Validates a host with an optional port, as in a Host field or an authority. Refuses user information (RFC 9110
/// §4.2.4) and an empty host, which no http URI may have (§4.2.1).
pub fn check_host(value: &[u8]) -> Result<(), Refusal> {
    // The usual case: a name or an IPv4 address, possibly with a port.
    let name_bytes = value.iter().position(|&byte| !is(byte, REG_NAME)).unwrap_or(value.len());
    let valid = match &value[name_bytes..] {
        [] => name_bytes > 0,
        [b':', port @ ..] if name_bytes > 0 => is_port(port),
        _ => split_port(value).is_some_and(|(host, port)| is_host(host) && port.is_none_or(is_port)),
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

/// Splits `value` at the colon before the port. Returns `None` if a bracket is not closed.
fn split_port(value: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let host_end = if value.first() == Some(&b'[') {
        value.iter().position(|&byte| byte == b']')? + 1
    } else {
        value.iter().position(|&byte| byte == b':').unwrap_or(value.len())
    };
    match &value[host_end..] {
        [] => Some((value, None)),
        [b':', port @ ..] => Some((&value[..host_end], Some(port))),
        _ => None,
    }
}

fn is_reg_name(host: &[u8]) -> bool {
    let mut rest = host;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [_, _, tail @ ..]) if decode_first(rest).is_some() => tail,
            (byte, tail) if is(*byte, REG_NAME) => tail,
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
            && address.iter().all(|&byte| is(byte, REG_NAME) || byte == b':');
    }
    std::str::from_utf8(literal).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::{Refusal, check_host};

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
            "\u{fc}",
            "a\"",
        ] {
            let expected = if host == "a,b" { Ok(()) } else { Err(Refusal::HostInvalid) };
            assert_eq!(check_host(host.as_bytes()), expected, "{host}");
        }
    }
}
