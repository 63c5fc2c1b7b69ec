//! Parsers for durations, addresses, networks and names, which need no other settings.

use crate::model::{Cidr, ListenAddress};
use flatout_http::percent::decode_first;
use flatout_http::url::split_port;
use flatout_units::quantity::{MILLISECOND, exact_duration};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Formats a number of milliseconds as a string that reads as the same duration.
pub(crate) fn show_duration(duration_ms: u64) -> String {
    exact_duration(duration_ms, MILLISECOND)
}

/// Parses `127.0.0.1:8080`, `[::1]:8080`, `:8080` for all addresses of both families, or `unix:/run/flatout/site.sock`.
///
/// # Errors
/// What is wrong, or how to correct it.
pub fn addresses(text: &str) -> Result<Vec<ListenAddress>, &'static str> {
    if let Some(port) = text.strip_prefix(':') {
        let port = digits(port).ok_or("a port is a number from 0 to 65535")?;
        let all = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
        return Ok(all.map(|ip| SocketAddr::new(ip, port).into()).into());
    }
    Ok(vec![text.parse()?])
}

/// Parses a port or another small number that consists only of digits; `u16::from_str` would accept a plus sign.
pub(super) fn digits(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The reason why a string could not be parsed as a network.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NetworkError {
    /// The address or the prefix length is malformed.
    Form,
    /// Bits after the prefix are set. Contains the network without these bits.
    HostBits(Cidr),
}

/// Parses a network such as `10.0.0.0/8`, or a single address.
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

/// Returns true if `text` is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

/// Returns true if `text` is a valid field value (RFC 9110 §5.5): visible characters, with spaces and tabs only between
/// them.
pub(crate) fn is_field_value(text: &str) -> bool {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f))
        && !bytes.first().is_some_and(is_blank)
        && !bytes.last().is_some_and(is_blank)
}

/// If a host name is invalid, returns the problem or how to correct it.
pub(super) fn host_fault(host: &str) -> Option<&'static str> {
    if host == "*" {
        return None;
    }
    if host.contains("://") {
        return Some("remove `http://` or `https://`");
    }
    if let Some(inside) = host.strip_prefix('[') {
        let address = inside.strip_suffix(']').and_then(|inside| inside.parse::<Ipv6Addr>().ok());
        return if address.is_some() {
            None
        } else {
            Some("not an IPv6 address in brackets; a port belongs in `listen`")
        };
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return Some("write an IPv6 address in brackets");
    }
    if host.contains(':') {
        return Some("remove the port: it belongs in `listen`");
    }
    if host.contains('/') {
        return Some("remove the path: paths belong in `route`");
    }
    if !host.is_ascii() {
        return Some("write non-ASCII letters as `xn--…` (RFC 5891)");
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    if name.contains('*') {
        return Some("`*` can replace only whole labels at the beginning: `*.example.com`");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > 253 {
        return Some("a host name must have 1 to 253 characters");
    }
    for label in name.split('.') {
        if label.is_empty() || label.len() > 63 {
            return Some("each label must have 1 to 63 characters");
        }
        if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
            return Some("use only letters, digits, hyphens and dots");
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Some("a label must not begin or end with a hyphen");
        }
    }
    None
}

/// Returns true if `text` looks like a supported password hash: argon2 in PHC form, or bcrypt.
pub(super) fn is_password_hash(text: &str) -> bool {
    is_bcrypt(text) || is_argon2(text)
}

/// Returns true if `text` has the form `$2b$12$` followed by 53 characters of bcrypt's base64.
fn is_bcrypt(text: &str) -> bool {
    let Some(rest) = ["$2a$", "$2b$", "$2x$", "$2y$"].iter().find_map(|prefix| text.strip_prefix(prefix)) else {
        return false;
    };
    let Some((cost, hash)) = rest.split_once('$') else { return false };
    let cost_fits = cost.len() == 2 && digits(cost).is_some_and(|cost| (4..=31).contains(&cost));
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/';
    cost_fits && hash.len() == 53 && hash.bytes().all(is_base64)
}

/// Returns true if `text` has the form `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`.
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

/// Returns true if `text` is a media type without parameters such as `text/html`, a media range such as `image/*`, or
/// `*`.
pub(super) fn is_media_pattern(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let Some((family, kind)) = text.split_once('/') else { return false };
    is_token(family) && !family.contains('*') && (kind == "*" || is_token(kind) && !kind.contains('*'))
}

/// Returns true if `text` is a media type, optionally with parameters, such as `text/plain; charset=utf-8`.
pub(super) fn is_media_type(text: &str) -> bool {
    let (kind, parameters) = text.split_once(';').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
    let parameters_fit = parameters.is_none_or(|rest| {
        rest.split(';').all(|parameter| {
            parameter.trim().split_once('=').is_some_and(|(name, value)| is_token(name) && !value.is_empty())
        })
    });
    kind != "*" && !kind.contains('*') && is_media_pattern(kind.trim_end()) && is_field_value(text) && parameters_fit
}

/// Returns true if `text` is a web origin such as `https://example.com`, optionally with a port (RFC 6454 §6.2).
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

/// Maximum number of patterns for which one with alternatives may stand.
const ALTERNATIVES_MAX: usize = 100;

/// Returns the patterns for which `pattern` stands: `*.{jpg,png}` is `*.jpg` and `*.png`.
///
/// # Errors
/// The problem, if the braces are not those of alternatives.
pub(super) fn alternatives(pattern: &str) -> Result<Vec<String>, &'static str> {
    let mut patterns = vec![String::new()];
    let mut rest = pattern;
    while let Some(open) = rest.find(['{', '}']) {
        let (before, group) = rest.split_at(open);
        let group = group.strip_prefix('{').ok_or("a `}` without `{`: alternatives are written {jpg,png}")?;
        let (words, after) = group.split_once('}').ok_or("a `{` without `}`: alternatives are written {jpg,png}")?;
        if words.contains('{') {
            return Err("alternatives in braces cannot contain braces");
        }
        if !words.contains(',') {
            return Err("a pattern contains no variables; alternatives are written {jpg,png}");
        }
        let words: Vec<&str> = words.split(',').collect();
        if patterns.len() * words.len() > ALTERNATIVES_MAX {
            return Err("these are more than 100 alternatives");
        }
        patterns =
            patterns.iter().flat_map(|begun| words.iter().map(move |word| format!("{begun}{before}{word}"))).collect();
        rest = after;
    }
    for pattern in &mut patterns {
        pattern.push_str(rest);
    }
    Ok(patterns)
}

/// Returns the problem if a path pattern is invalid.
pub(super) fn pattern_fault(pattern: &str) -> Option<&'static str> {
    if !pattern.starts_with(['/', '*']) {
        return Some("a pattern must begin with `/` or `*`");
    }
    if pattern.contains(['?', '#']) {
        return Some("a path must not contain `?` or `#`");
    }
    if pattern.split('/').any(|segment| segment == "." || segment == "..") {
        return Some("`.` and `..` are resolved before paths are compared");
    }
    if pattern.contains("//") {
        return Some("consecutive slashes are merged before paths are compared");
    }
    if pattern.as_bytes().windows(3).any(|bytes| decode_first(bytes).is_some()) {
        return Some(
            "it is compared with the decoded path: write the character itself, such as a space instead of %20",
        );
    }
    if pattern.contains("**") {
        return Some("use a single star");
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
    fn a_pattern_with_alternatives_stands_for_several() {
        for (pattern, expected) in [
            ("/a", &["/a"][..]),
            ("*.{jpg,png}", &["*.jpg", "*.png"]),
            ("/{a,b}/x.{c,d}*", &["/a/x.c*", "/a/x.d*", "/b/x.c*", "/b/x.d*"]),
            ("/a{,.html}", &["/a", "/a.html"]),
        ] {
            assert_eq!(alternatives(pattern).unwrap(), expected);
        }
        for pattern in ["/{path}", "/{}", "*.{jpg", "*.jpg}", "/{a,{b,c}}", "/}{a,b}"] {
            assert!(alternatives(pattern).is_err(), "{pattern}");
        }
        assert!(alternatives(&"{a,b}".repeat(6)).is_ok());
        assert!(alternatives(&"{a,b}".repeat(7)).is_err());
    }

    #[test]
    fn addresses_of_both_families() {
        assert_eq!(addresses(":80").map(|list| list.len()), Ok(2));
        assert_eq!(addresses("[::1]:80"), Ok(vec!["[::1]:80".parse().unwrap()]));
        for text in [":", ":+80", ":65536", "80", "localhost:80", "::1", "127.0.0.1", "127.0.0.1:", ""] {
            assert!(addresses(text).is_err(), "{text}");
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
