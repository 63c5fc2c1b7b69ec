//! URLs that users write in flags, configurations and lists. Request targets are bytes: see [`target`](crate::target).

use crate::host::check_host;
use core::net::IpAddr;

/// Maximum length of a host, in bytes (RFC 1035 §2.3.4 permits 255 for names).
const HOST_BYTES_MAX: usize = 255;

/// An absolute `http` or `https` URL.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{}://{}{target}", scheme(*secure), self.authority())]
pub struct Url {
    /// True for https, false for http.
    pub secure: bool,
    /// The host in lower case, without the brackets of an IPv6 address.
    pub host: String,
    /// The port as written, or the scheme's default port.
    pub port: u16,
    /// The path and query in origin form, beginning with a slash.
    pub target: String,
}

/// The reason a string could not be parsed as a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The string has no scheme.
    #[error("`{0}` is not a URL; write the complete URL, such as http://127.0.0.1:8080/")]
    SchemeMissing(String),
    /// The scheme is neither http nor https.
    #[error("`{0}` is neither http nor https; use a URL such as http://127.0.0.1:8080/")]
    SchemeUnknown(String),
    /// The URL has no host.
    #[error("the URL has no host; write the complete URL, such as http://127.0.0.1:8080/")]
    HostMissing,
    /// The host is neither a name in ASCII nor an IP address.
    #[error("`{0}` is not a valid host; write a name such as example.com (non-ASCII letters as xn--…), or an address")]
    HostInvalid(String),
    /// An IPv6 address has no brackets.
    #[error("an IPv6 address needs brackets in a URL: [{0}]")]
    BracketsMissing(String),
    /// There is user information before the host.
    #[error("the client does not send user names in URLs; use a header 'Authorization: ...' instead")]
    UserInfo,
    /// The port is not a number from 1 to 65535.
    #[error("the port {0:?} is not a number from 1 to 65535")]
    PortInvalid(String),
    /// The path or the query contains a character that must be percent-encoded.
    #[error("the URL contains {0:?}; percent-encode it (a space is %20)")]
    CharacterInvalid(char),
}

impl Url {
    /// Parses a URL whose path and query follow RFC 3986. Drops the fragment, which clients do not send.
    ///
    /// # Errors
    /// The first problem found.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = Self::parse_lenient(text)?;
        let invalid = |character: &char| !character.is_ascii() || "\"<>\\^`{|}".contains(*character);
        url.target.chars().find(invalid).map_or(Ok(url), |character| Err(UrlError::CharacterInvalid(character)))
    }

    /// Parses a URL whose path and query may contain everything that servers accept in a request target, including
    /// UTF-8 and characters that browsers send unencoded.
    ///
    /// # Errors
    /// The first problem found.
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

    /// Returns the value of the Host field, without the scheme's default port.
    pub fn authority(&self) -> String {
        format_authority(self.secure, &self.host, self.port)
    }
}

/// The scheme, host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{}://{}", scheme(*secure), self.authority())]
pub struct OriginAddress {
    /// True for https, false for http.
    pub secure: bool,
    /// A name or an IP address, without the brackets of an IPv6 address.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
}

impl OriginAddress {
    /// Creates the address of the origin at `host` and `port`. `host` is a name or an IP address; an IPv6 address may
    /// have brackets.
    pub fn new(secure: bool, host: &str, port: u16) -> Self {
        Self { secure, host: strip_brackets(host).into(), port }
    }

    /// Parses `host[:port]`.
    ///
    /// # Errors
    /// The first problem found.
    pub fn parse(secure: bool, authority: &str) -> Result<Self, UrlError> {
        let (host, port) = parse_authority(secure, authority)?;
        Ok(Self { secure, host: host.into(), port })
    }

    /// Returns the IP address, if the host is an IP address and needs no name resolution.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Returns the value of a Host field, without the scheme's default port (RFC 9110 §7.2).
    pub fn authority(&self) -> String {
        format_authority(self.secure, &self.host, self.port)
    }
}

/// Parses `host[:port]`. Returns the host in lower case without brackets, and the port or the scheme's default port.
/// RFC 9110 §4.2.3 allows an empty port after the colon, but it usually means that a variable was not set, so it is
/// refused.
///
/// # Errors
/// The first problem found.
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

/// Parses a port from 1 to 65535, written in digits only.
pub fn parse_port(text: &str) -> Option<u16> {
    // `parse` would accept a sign.
    text.parse().ok().filter(|port| *port != 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Splits `host:port` into the host, with its brackets, and the text after the colon. Colons in brackets, or several
/// colons without brackets, belong to an IPv6 address.
pub fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') && (host.ends_with(']') || !host.contains(':')) => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Returns the host without the brackets of an IPv6 address.
pub fn strip_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Formats the value of a Host field (RFC 9110 §7.2) for a host without brackets. Leaves out the scheme's default port.
pub fn format_authority(secure: bool, host: &str, port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == default_port(secure) { host } else { format!("{host}:{port}") }
}

/// Returns the name of the scheme.
const fn scheme(secure: bool) -> &'static str {
    if secure { "https" } else { "http" }
}

/// Returns the default port of the scheme.
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
