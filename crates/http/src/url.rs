//! URLs that people write in flags, configurations and lists. Request targets are bytes: see [`target`](crate::target).

use crate::host::check_host;
use core::net::IpAddr;
use std::fmt;

/// Upper bound of a host in bytes (RFC 1035 §2.3.4 permits 255 for names).
const HOST_BYTES_MAX: usize = 255;

/// An absolute `http` or `https` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// True for https.
    pub secure: bool,
    /// Host in lower case, without the brackets of an IPv6 address.
    pub host: String,
    /// Port as written, or the scheme's default.
    pub port: u16,
    /// Path and query in origin form, beginning with a slash.
    pub target: String,
}

/// Reason why a text is not a valid URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// The text has no scheme.
    SchemeMissing(String),
    /// The scheme is neither http nor https.
    SchemeUnknown(String),
    /// There is no host.
    HostMissing,
    /// The host is neither a name in ASCII nor an address.
    HostInvalid(String),
    /// An IPv6 address has no brackets.
    BracketsMissing(String),
    /// There is user information before the host.
    UserInfo,
    /// The port is not a number from 1 to 65535.
    PortInvalid(String),
    /// The path or the query contains a character that must be percent-encoded.
    CharacterInvalid(char),
}

impl fmt::Display for UrlError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SchemeMissing(text) => {
                write!(formatter, "`{text}` is not a URL; write the complete URL, such as http://127.0.0.1:8080/")
            }
            Self::SchemeUnknown(scheme) => {
                write!(formatter, "`{scheme}` is neither http nor https; give a URL such as http://127.0.0.1:8080/")
            }
            Self::HostMissing => {
                formatter.write_str("the URL has no host; write the complete URL, such as http://127.0.0.1:8080/")
            }
            Self::HostInvalid(host) => write!(
                formatter,
                "`{host}` is not a valid host; write a name such as example.com (letters outside ASCII as xn--…), \
                 or an address"
            ),
            Self::BracketsMissing(address) => {
                write!(formatter, "an IPv6 address needs brackets in a URL: [{address}]")
            }
            Self::UserInfo => {
                formatter.write_str("user names in URLs are not sent; use a header 'Authorization: ...' instead")
            }
            Self::PortInvalid(port) => write!(formatter, "the port {port:?} is not a number from 1 to 65535"),
            Self::CharacterInvalid(character) => {
                write!(formatter, "the URL contains {character:?}; percent-encode it (a space is %20)")
            }
        }
    }
}

impl std::error::Error for UrlError {}

impl Url {
    /// Parses a URL whose path and query follow RFC 3986. A fragment is dropped, as clients do not send it.
    ///
    /// # Errors
    /// The first problem.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = Self::parse_lenient(text)?;
        let invalid = |character: &char| !character.is_ascii() || "\"<>\\^`{|}".contains(*character);
        url.target.chars().find(invalid).map_or(Ok(url), |character| Err(UrlError::CharacterInvalid(character)))
    }

    /// Parses a URL whose path and query may contain all that servers accept in a request target: also UTF-8, and
    /// characters that browsers send unencoded.
    ///
    /// # Errors
    /// The first problem.
    pub fn parse_lenient(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UrlError::SchemeMissing(text.to_owned()))?;
        let secure = scheme.eq_ignore_ascii_case("https");
        if !secure && !scheme.eq_ignore_ascii_case("http") {
            return Err(UrlError::SchemeUnknown(scheme.to_owned()));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = parse_authority(secure, authority)?;
        let valid = |char: char| char.is_ascii_graphic() || !(char.is_ascii() || char.is_control());
        if let Some(character) = target.chars().find(|char| !valid(*char)) {
            return Err(UrlError::CharacterInvalid(character));
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(Self { secure, host, port, target: format!("{slash}{target}") })
    }

    /// The Host field's value, without the scheme's default port.
    pub fn authority(&self) -> String {
        format_authority(self.secure, &self.host, self.port)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}{}", if self.secure { "https" } else { "http" }, self.authority(), self.target)
    }
}

/// A server by its scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginAddress {
    /// True for https.
    pub secure: bool,
    /// A name or an IP address, without the brackets of an IPv6 address.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
}

impl OriginAddress {
    /// The origin at `host`, a name or an address with or without brackets, and `port`.
    pub fn new(secure: bool, host: &str, port: u16) -> Self {
        Self { secure, host: strip_brackets(host).into(), port }
    }

    /// Parses `host[:port]`.
    ///
    /// # Errors
    /// The first problem.
    pub fn parse(secure: bool, authority: &str) -> Result<Self, UrlError> {
        let (host, port) = parse_authority(secure, authority)?;
        Ok(Self { secure, host: host.into(), port })
    }

    /// The IP address, if the host is one: no name resolution is needed then.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// The value of a Host field; the scheme's default port is left out (RFC 9110 §7.2).
    pub fn authority(&self) -> String {
        format_authority(self.secure, &self.host, self.port)
    }
}

impl fmt::Display for OriginAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}", if self.secure { "https" } else { "http" }, self.authority())
    }
}

/// Parses `host[:port]`: the host in lower case without brackets, and the port or the scheme's default. A port must
/// follow a colon: an empty one, which RFC 9110 §4.2.3 allows, usually stands for a variable that was not set.
///
/// # Errors
/// The first problem.
pub fn parse_authority(secure: bool, authority: &str) -> Result<(String, u16), UrlError> {
    if authority.contains('@') {
        return Err(UrlError::UserInfo);
    }
    let (host, port) = split_port(authority);
    let port = match port {
        None => default_port(secure),
        Some(port) => parse_port(port).ok_or_else(|| UrlError::PortInvalid(port.to_owned()))?,
    };
    if host.is_empty() {
        return Err(UrlError::HostMissing);
    }
    if host.parse::<core::net::Ipv6Addr>().is_ok() {
        return Err(UrlError::BracketsMissing(host.to_owned()));
    }
    if host.len() > HOST_BYTES_MAX || check_host(host.as_bytes()).is_err() {
        return Err(UrlError::HostInvalid(host.to_owned()));
    }
    Ok((strip_brackets(host).to_ascii_lowercase(), port))
}

/// A port from 1 to 65535, in digits alone.
pub fn parse_port(text: &str) -> Option<u16> {
    // `parse` would accept a sign.
    text.parse().ok().filter(|port| *port != 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Splits `host:port` into the host with its brackets and the text after the colon. Colons in brackets, or several
/// without brackets, belong to an IPv6 address.
pub fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') && (host.ends_with(']') || !host.contains(':')) => (host, Some(port)),
        _ => (authority, None),
    }
}

/// The host without the brackets of an IPv6 address.
pub fn strip_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The Host field's value (RFC 9110 §7.2) for a host without brackets; the scheme's default port is left out.
pub fn format_authority(secure: bool, host: &str, port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == default_port(secure) { host } else { format!("{host}:{port}") }
}

/// The port of a scheme.
pub const fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::{OriginAddress, Url, UrlError, split_port};

    #[test]
    fn authorities_leave_out_the_implied_port() {
        for (secure, host, port, text) in [
            (false, "a.example", 80, "http://a.example"),
            (false, "a.example", 443, "http://a.example:443"),
            (true, "a.example", 443, "https://a.example"),
            (true, "127.0.0.1", 8443, "https://127.0.0.1:8443"),
            (false, "[::1]", 80, "http://[::1]"),
            (false, "::1", 3000, "http://[::1]:3000"),
        ] {
            let address = OriginAddress::new(secure, host, port);
            assert_eq!(address.to_string(), text);
            assert_eq!(address.ip().is_some(), host != "a.example");
        }
    }

    #[test]
    fn urls_are_parsed_and_printed() {
        for (text, host, port, target, whole) in [
            ("http://127.0.0.1:8080/", "127.0.0.1", 8080, "/", "http://127.0.0.1:8080/"),
            ("HTTP://example.org", "example.org", 80, "/", "http://example.org/"),
            ("http://A.example/B?c=%2f#d", "a.example", 80, "/B?c=%2f", "http://a.example/B?c=%2f"),
            ("http://a:80/b/c?d=e#f", "a", 80, "/b/c?d=e", "http://a/b/c?d=e"),
            ("http://a?d", "a", 80, "/?d", "http://a/?d"),
            ("http://[::1]:81/x", "::1", 81, "/x", "http://[::1]:81/x"),
            ("http://[::1]", "::1", 80, "/", "http://[::1]/"),
            ("https://[2001:DB8::1]:8443?x", "2001:db8::1", 8443, "/?x", "https://[2001:db8::1]:8443/?x"),
            ("HTTPS://a:443", "a", 443, "/", "https://a/"),
            ("https://a:80/", "a", 80, "/", "https://a:80/"),
            ("http://a:443/", "a", 443, "/", "http://a:443/"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port, url.target.as_str()), (host, port, target), "{text}");
            assert_eq!(url.to_string(), whole);
            assert_eq!(Url::parse(whole), Ok(url));
        }
    }

    #[test]
    fn invalid_urls_say_why() {
        for (text, error) in [
            ("", UrlError::SchemeMissing(String::new())),
            ("a/b", UrlError::SchemeMissing("a/b".to_owned())),
            ("127.0.0.1:8080", UrlError::SchemeMissing("127.0.0.1:8080".to_owned())),
            ("ftp://a/", UrlError::SchemeUnknown("ftp".to_owned())),
            ("http:///x", UrlError::HostMissing),
            ("http://", UrlError::HostMissing),
            ("http://#", UrlError::HostMissing),
            ("http://:80/", UrlError::HostMissing),
            ("http://u:p@a/", UrlError::UserInfo),
            ("http://a:0/", UrlError::PortInvalid("0".to_owned())),
            ("http://a:65536/", UrlError::PortInvalid("65536".to_owned())),
            ("http://a:99999/", UrlError::PortInvalid("99999".to_owned())),
            ("http://a:+1/", UrlError::PortInvalid("+1".to_owned())),
            ("http://a:/", UrlError::PortInvalid(String::new())),
            ("http://::1/", UrlError::BracketsMissing("::1".to_owned())),
            ("http://a:1:2/", UrlError::HostInvalid("a:1:2".to_owned())),
            ("http://[::1/", UrlError::HostInvalid("[::1".to_owned())),
            ("http://[::g]/", UrlError::HostInvalid("[::g]".to_owned())),
            ("http://[::1]x/", UrlError::HostInvalid("[::1]x".to_owned())),
            ("http://a b/", UrlError::HostInvalid("a b".to_owned())),
            ("http://a\\b/", UrlError::HostInvalid("a\\b".to_owned())),
            ("http://\u{fc}/", UrlError::HostInvalid("\u{fc}".to_owned())),
            ("http://a/b c", UrlError::CharacterInvalid(' ')),
            ("http://a/\u{85}", UrlError::CharacterInvalid('\u{85}')),
            ("http://a/\r\nX: y", UrlError::CharacterInvalid('\r')),
        ] {
            assert_eq!(Url::parse(text), Err(error.clone()), "{text:?}");
            assert_eq!(Url::parse_lenient(text), Err(error.clone()), "{text:?}");
            assert!(!error.to_string().is_empty());
        }
        for text in ["http://a/\u{e9}", "http://a/|", "http://a/?\"", "http://a/{b}"] {
            assert!(matches!(Url::parse(text), Err(UrlError::CharacterInvalid(_))), "{text}");
            assert_eq!(Url::parse_lenient(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn ports_are_split_from_hosts() {
        for (authority, host, port) in [
            ("a", "a", None),
            ("a:80", "a", Some("80")),
            ("a:", "a", Some("")),
            ("[::1]", "[::1]", None),
            ("[::1]:9", "[::1]", Some("9")),
            ("::1", "::1", None),
        ] {
            assert_eq!(split_port(authority), (host, port), "{authority}");
        }
    }
}
