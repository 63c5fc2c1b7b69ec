//! Texts to numbers, addresses and networks, by rule alone.

use crate::model::Cidr;
use flatout_http::url::split_port;
use flatout_units::quantity::{MILLISECOND, exact_duration};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Milliseconds to a text that reads as the same.
pub(crate) fn show_duration(duration_ms: u64) -> String {
    exact_duration(duration_ms, MILLISECOND)
}

/// `127.0.0.1:8080`, `[::1]:8080`, and `:8080` for all addresses of both families.
pub fn addresses(text: &str) -> Option<Vec<SocketAddr>> {
    if let Some(port) = text.strip_prefix(':') {
        let port = digits(port)?;
        return Some(vec![(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()]);
    }
    text.parse().ok().map(|address| vec![address])
}

/// A port without sign or space, as `u16::from_str` would take a plus.
pub(super) fn digits(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The problem with a network.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NetworkError {
    /// No address, or no number of bits.
    Form,
    /// Bits behind the network's are set; this would be the network.
    HostBits(Cidr),
}

/// `10.0.0.0/8`, or one address.
pub(super) fn network(text: &str) -> Result<Cidr, NetworkError> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| NetworkError::Form)?;
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => bits_max,
        Some(bits) => {
            let bits = digits(bits).and_then(|bits| u8::try_from(bits).ok());
            bits.filter(|bits| *bits <= bits_max).ok_or(NetworkError::Form)?
        }
    };
    let network = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    };
    let cidr = Cidr { address: network, bits };
    if network == address { Ok(cidr) } else { Err(NetworkError::HostBits(cidr)) }
}

/// RFC 9110, section 5.6.2.
pub(crate) fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

/// RFC 9110, section 5.5: visible characters, with spaces and tabs within.
pub(crate) fn is_field_value(text: &str) -> bool {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f))
        && !bytes.first().is_some_and(is_blank)
        && !bytes.last().is_some_and(is_blank)
}

/// Returns the problem with a host name, if any.
pub(super) fn host_fault(host: &str) -> Option<&'static str> {
    if host == "*" {
        return None;
    }
    if host.contains("://") {
        return Some("without `http://` or `https://`");
    }
    if let Some(inside) = host.strip_prefix('[') {
        let address = inside.strip_suffix(']').and_then(|inside| inside.parse::<Ipv6Addr>().ok());
        return if address.is_some() {
            None
        } else {
            Some("not an IPv6 address in brackets; a port belongs to `listen`")
        };
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return Some("write an IPv6 address in brackets");
    }
    if host.contains(':') {
        return Some("without port: that belongs to `listen`");
    }
    if host.contains('/') {
        return Some("remove the path: paths belong in `route`");
    }
    if !host.is_ascii() {
        return Some("other letters are written in their ASCII form, `xn--…` (RFC 5891)");
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    if name.contains('*') {
        return Some("a star replaces whole labels, and only at the beginning: `*.example.com`");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > 253 {
        return Some("a name has 1 to 253 characters");
    }
    for label in name.split('.') {
        if label.is_empty() || label.len() > 63 {
            return Some("each part between dots has 1 to 63 characters");
        }
        if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
            return Some("letters, digits, hyphens and dots only");
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Some("no part begins or ends with a hyphen");
        }
    }
    None
}

/// Returns true if a text looks like a password's hash that we can check: argon2 in PHC form, or bcrypt.
pub(super) fn is_password_hash(text: &str) -> bool {
    is_bcrypt(text) || is_argon2(text)
}

/// `$2b$12$` and 53 characters of bcrypt's base64.
fn is_bcrypt(text: &str) -> bool {
    let Some(rest) = ["$2a$", "$2b$", "$2x$", "$2y$"].iter().find_map(|prefix| text.strip_prefix(prefix)) else {
        return false;
    };
    let Some((cost, hash)) = rest.split_once('$') else { return false };
    let cost_fits = cost.len() == 2 && digits(cost).is_some_and(|cost| (4..=31).contains(&cost));
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/';
    cost_fits && hash.len() == 53 && hash.bytes().all(is_base64)
}

/// `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`.
fn is_argon2(text: &str) -> bool {
    let parts: Vec<&str> = text.split('$').collect();
    let ["", kind, version, parameters, salt, hash] = parts[..] else { return false };
    let is_base64 = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/');
    let mut named = parameters.split(',').map(|parameter| {
        let (name, number) = parameter.split_once('=')?;
        number.parse::<u32>().ok().map(|_| name)
    });
    let named = [named.next(), named.next(), named.next(), named.next()];
    matches!(kind, "argon2id" | "argon2i" | "argon2d")
        && version == "v=19"
        && named == [Some(Some("m")), Some(Some("t")), Some(Some("p")), None]
        && (11..=64).contains(&salt.len())
        && (14..=86).contains(&hash.len())
        && is_base64(salt)
        && is_base64(hash)
}

/// `text/html`, `image/*` or `*`.
pub(super) fn is_media_pattern(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let Some((family, kind)) = text.split_once('/') else { return false };
    is_token(family) && !family.contains('*') && (kind == "*" || is_token(kind) && !kind.contains('*'))
}

/// `text/plain; charset=utf-8`.
pub(super) fn is_media_type(text: &str) -> bool {
    let (kind, parameters) = text.split_once(';').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
    let parameters_fit = parameters.is_none_or(|rest| {
        rest.split(';').all(|parameter| {
            parameter.trim().split_once('=').is_some_and(|(name, value)| is_token(name) && !value.is_empty())
        })
    });
    kind != "*" && !kind.contains('*') && is_media_pattern(kind.trim_end()) && is_field_value(text) && parameters_fit
}

/// `https://example.com`, with a port perhaps (RFC 6454, section 6.2).
pub(super) fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte));
    let (name, port) = split_port(host);
    let lower = !host.bytes().any(|byte| byte.is_ascii_uppercase());
    scheme_fits
        && lower
        && !name.contains('*')
        && host_fault(name).is_none()
        && port.is_none_or(|port| digits(port).is_some())
}

/// Returns the problem with a path pattern, if any.
pub(super) fn pattern_fault(pattern: &str) -> Option<&'static str> {
    if !pattern.starts_with(['/', '*']) {
        return Some("a pattern begins with `/` or `*`");
    }
    if pattern.contains(['?', '#']) {
        return Some("a path ends before `?` and `#`");
    }
    if pattern.split('/').any(|segment| segment == "." || segment == "..") {
        return Some("requested paths never contain `.` or `..` segments");
    }
    if pattern.contains("//") {
        return Some("slashes that follow one another are merged before");
    }
    let is_encoding =
        |bytes: &[u8]| matches!(bytes, [b'%', high, low] if [high, low].iter().all(|b| b.is_ascii_hexdigit()));
    if pattern.as_bytes().windows(3).any(is_encoding) {
        return Some("it is compared with the decoded path: write the character itself, for %20 a space");
    }
    if pattern.contains("**") {
        return Some("one star is enough");
    }
    if pattern.chars().any(char::is_control) {
        return Some("control characters");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_no_host_bits() {
        assert_eq!(network("0.0.0.0/0"), Ok(Cidr { address: [0, 0, 0, 0].into(), bits: 0 }));
        assert_eq!(network("::/0").map(|cidr| cidr.bits), Ok(0));
        assert_eq!(network("192.0.2.1").map(|cidr| cidr.bits), Ok(32));
        assert_eq!(network("2001:db8::1").map(|cidr| cidr.bits), Ok(128));
        let near = Cidr { address: [10, 0, 0, 0].into(), bits: 8 };
        assert_eq!(network("10.1.2.3/8"), Err(NetworkError::HostBits(near)));
        for text in ["10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "", "/8", "all"] {
            assert_eq!(network(text), Err(NetworkError::Form), "{text}");
        }
    }

    #[test]
    fn addresses_of_both_families() {
        assert_eq!(addresses(":80").map(|list| list.len()), Some(2));
        assert_eq!(addresses("[::1]:80"), Some(vec!["[::1]:80".parse().unwrap()]));
        for text in [":", ":+80", ":65536", "80", "localhost:80", "::1", "127.0.0.1", "127.0.0.1:", ""] {
            assert_eq!(addresses(text), None, "{text}");
        }
    }

    #[test]
    fn hosts_hashes_types_and_origins() {
        for host in [
            "*",
            "*.example.com",
            "localhost",
            "a_b.example",
            "127.0.0.1",
            "[::1]",
            "xn--mnchen-3ya.de",
            "example.com.",
        ] {
            assert_eq!(host_fault(host), None, "{host}");
        }
        let long = "a".repeat(64);
        for host in
            ["", ".", "*.", "a b", "*a.com", "a-.com", "http://a", "a:1", "a/b", "ü", "[::1", "::1", "a..b", &long]
        {
            assert!(host_fault(host).is_some(), "{host}");
        }
        let bcrypt = "$2b$12$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy";
        let argon2 =
            "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$Zm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyMDA";
        assert!(is_password_hash(bcrypt) && is_password_hash(argon2));
        for hash in ["", "secret", "$2b$12$short", "$2b$99$", "$argon2id$v=19$m=1,t=2$a$b", "$1$salt$hash", "{SHA}x"] {
            assert!(!is_password_hash(hash), "{hash}");
        }
        assert!(!is_password_hash(&bcrypt.replace("12", "1x")) && !is_password_hash(&argon2.replace("v=19", "v=16")));
        for (text, pattern, whole) in [
            ("text/html", true, true),
            ("image/*", true, false),
            ("*", true, false),
            ("text/plain; charset=utf-8", false, true),
            ("text", false, false),
            ("text/", false, false),
            ("*/*", false, false),
            ("text/html;", false, false),
        ] {
            assert_eq!((is_media_pattern(text), is_media_type(text)), (pattern, whole), "{text}");
        }
        for (text, expected) in [
            ("https://a.example", true),
            ("http://[::1]:8080", true),
            ("capacitor://localhost", true),
            ("https://a.example/", false),
            ("https://A.example", false),
            ("https://*.a", false),
            ("https://", false),
            ("null", false),
        ] {
            assert_eq!(is_origin(text), expected, "{text}");
        }
    }
}
