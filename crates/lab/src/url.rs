//! The URL of a bench, with the parts that a client needs to send a request.

use crate::target::is_local;
use flatout_net::socket::read_listening;
use std::net::{SocketAddr, ToSocketAddrs};

/// An `http` or `https` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// True for https.
    pub secure: bool,
    /// Host as written, without the brackets of an IPv6 address.
    pub host: String,
    /// Port as written, or the scheme's default.
    pub port: u16,
    /// Path and query, in origin form, beginning with a slash.
    pub target: String,
}

/// Why a text is not a valid URL for a bench.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// The scheme is unknown or missing.
    SchemeUnknown(String),
    /// There is no host.
    HostMissing,
    /// There is user information before the host.
    UserInfo,
    /// The port is not a number from 1 to 65535.
    PortInvalid(String),
    /// The host or the path contains a character that must be percent-encoded.
    CharacterInvalid(char),
    /// The name has no address.
    Unresolvable {
        /// The name.
        host: String,
        /// The system's error.
        cause: String,
    },
}

impl std::fmt::Display for UrlError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SchemeUnknown(scheme) if scheme.is_empty() => {
                formatter.write_str("the URL has no scheme; write it whole, such as http://127.0.0.1:8080/")
            }
            Self::SchemeUnknown(scheme) => {
                write!(
                    formatter,
                    "{scheme}:// is not supported; give an http:// or https:// URL, such as http://127.0.0.1:8080/"
                )
            }
            Self::HostMissing => {
                formatter.write_str("the URL has no host; write it whole, such as http://127.0.0.1:8080/")
            }
            Self::UserInfo => {
                formatter.write_str("user names in URLs are not sent; use --header 'Authorization: ...' instead")
            }
            Self::PortInvalid(port) => write!(formatter, "the port {port:?} is not a number from 1 to 65535"),
            Self::CharacterInvalid(character) => {
                write!(formatter, "the URL contains {character:?}; percent-encode it (a space is %20)")
            }
            Self::Unresolvable { host, cause } => {
                write!(formatter, "the host {host:?} has no address ({cause}); check its spelling, or give an address")
            }
        }
    }
}

impl std::error::Error for UrlError {}

impl Url {
    /// Parses an absolute URL. A fragment is dropped, as clients do not send it.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let Some((scheme, rest)) = text.split_once("://") else { return Err(UrlError::SchemeUnknown(String::new())) };
        let secure = scheme.eq_ignore_ascii_case("https");
        if !secure && !scheme.eq_ignore_ascii_case("http") {
            return Err(UrlError::SchemeUnknown(scheme.to_owned()));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_end);
        if authority.contains('@') {
            return Err(UrlError::UserInfo);
        }
        let (host, port) = split_port(authority);
        let port = match port {
            None => default_port(secure),
            Some(text) => match text.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(UrlError::PortInvalid(text.to_owned())),
            },
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(UrlError::HostMissing);
        }
        let invalid = |character: char| !character.is_ascii_graphic() || "\"<>\\^`{|}".contains(character);
        if let Some(character) = host.chars().chain(path.chars()).find(|character| invalid(*character)) {
            return Err(UrlError::CharacterInvalid(character));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self { secure, host: host.to_owned(), port, target: format!("{slash}{path}") })
    }

    /// The Host field's value, without the scheme's default port.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.secure) { host } else { format!("{host}:{}", self.port) }
    }

    /// An address of the host. Of several (`localhost` has two), the first with a listener on this machine, else the
    /// first IPv4 address, else the first.
    pub fn resolve(&self) -> Result<SocketAddr, UrlError> {
        let unresolvable = |cause: String| UrlError::Unresolvable { host: self.host.clone(), cause };
        let addresses: Vec<SocketAddr> = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| unresolvable(error.to_string()))?
            .collect();
        let listening = || {
            let sockets = read_listening().unwrap_or_default();
            addresses
                .iter()
                .copied()
                .find(|address| is_local(address.ip()) && sockets.iter().any(|socket| socket.serves(*address)))
        };
        let chosen = if addresses.len() > 1 { listening() } else { None };
        chosen
            .or_else(|| addresses.iter().copied().find(SocketAddr::is_ipv4))
            .or_else(|| addresses.first().copied())
            .ok_or_else(|| unresolvable("no address".to_owned()))
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}://{}{}", if self.secure { "https" } else { "http" }, self.authority(), self.target)
    }
}

const fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

/// Splits `host:port`; colons inside brackets belong to the host.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::{Url, UrlError};

    #[test]
    fn urls_are_taken_apart_and_put_together() {
        for (text, host, port, target, whole) in [
            ("http://127.0.0.1:8080/", "127.0.0.1", 8080, "/", "http://127.0.0.1:8080/"),
            ("HTTP://example.org", "example.org", 80, "/", "http://example.org/"),
            ("http://a:80/b/c?d=e#f", "a", 80, "/b/c?d=e", "http://a/b/c?d=e"),
            ("http://a?d", "a", 80, "/?d", "http://a/?d"),
            ("http://[::1]:81/x", "::1", 81, "/x", "http://[::1]:81/x"),
            ("http://[::1]", "::1", 80, "/", "http://[::1]/"),
            ("https://a/", "a", 443, "/", "https://a/"),
            ("https://a:80/", "a", 80, "/", "https://a:80/"),
            ("http://a:443/", "a", 443, "/", "http://a:443/"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port, url.target.as_str()), (host, port, target), "{text}");
            assert_eq!(url.to_string(), whole);
        }
    }

    #[test]
    fn what_cannot_be_benched_says_why() {
        for (text, error) in [
            ("ftp://a/", UrlError::SchemeUnknown("ftp".to_owned())),
            ("127.0.0.1:8080", UrlError::SchemeUnknown(String::new())),
            ("http:///x", UrlError::HostMissing),
            ("http://", UrlError::HostMissing),
            ("http://u:p@a/", UrlError::UserInfo),
            ("http://a:0/", UrlError::PortInvalid("0".to_owned())),
            ("http://a:65536/", UrlError::PortInvalid("65536".to_owned())),
            ("http://a:/", UrlError::PortInvalid(String::new())),
            ("http://a/b c", UrlError::CharacterInvalid(' ')),
            ("http://a/\u{e9}", UrlError::CharacterInvalid('\u{e9}')),
            ("http://a/\r\nX: y", UrlError::CharacterInvalid('\r')),
        ] {
            assert_eq!(Url::parse(text), Err(error.clone()), "{text:?}");
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn names_and_addresses_are_resolved() {
        let resolve = |text: &str| Url::parse(text).unwrap().resolve();
        assert_eq!(resolve("http://127.0.0.1:8/").unwrap(), "127.0.0.1:8".parse().unwrap());
        assert_eq!(resolve("http://[::1]:8/").unwrap(), "[::1]:8".parse().unwrap());
        // RFC 2606 keeps .invalid free of addresses.
        assert!(matches!(resolve("http://no.such.host.invalid/"), Err(UrlError::Unresolvable { .. })));
    }
}
