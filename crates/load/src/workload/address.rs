//! URL in a list: absolute, or a path on the server under test.

use super::fault::FaultKind;
use std::fmt;

/// Maximum length of a target in bytes. Servers accept about as much.
pub const TARGET_BYTES_MAX: usize = 8192;

/// Maximum length of a host in bytes (RFC 1035 §2.3.4 permits 255 for names).
const HOST_BYTES_MAX: usize = 255;

/// A URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The server, if the list names one.
    pub origin: Option<ServerOrigin>,
    /// Path and query in origin form (RFC 9112 §3.2.1): graphic ASCII, at most [`TARGET_BYTES_MAX`] bytes.
    pub target: Box<str>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerOrigin {
    /// True if the scheme is https.
    pub secure: bool,
    /// Host as written, without the brackets of an IPv6 address.
    pub host: Box<str>,
    /// Port as written, or the scheme's default.
    pub port: u16,
}

impl Address {
    /// Parses `/path` or `http://host[:port]/path`; drops a fragment, which clients do not send.
    ///
    /// # Errors
    /// Returns the kind of error.
    pub fn parse(text: &str) -> Result<Self, FaultKind> {
        let text = text.split('#').next().unwrap_or_default();
        if text.starts_with('/') {
            return Ok(Self { origin: None, target: check_target(text)?.into() });
        }
        let (scheme, rest) = text.split_once("://").ok_or(FaultKind::NoAddress)?;
        let secure = match scheme {
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ => return Err(FaultKind::SchemeUnknown),
        };
        let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_end);
        let origin = ServerOrigin::parse(secure, authority)?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let target = format!("{slash}{path}");
        check_target(&target)?;
        Ok(Self { origin: Some(origin), target: target.into() })
    }
}

impl ServerOrigin {
    /// Parses `host[:port]`.
    ///
    /// # Errors
    /// Returns the kind of error.
    pub fn parse(secure: bool, authority: &str) -> Result<Self, FaultKind> {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_sound = match bare {
            Some(bare) => bare.parse::<core::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
        };
        if !is_sound || host.len() > HOST_BYTES_MAX {
            return Err(FaultKind::HostInvalid);
        }
        let port = match port {
            None => default_port(secure),
            // `parse` would accept a sign.
            Some(port) if !port.bytes().all(|byte| byte.is_ascii_digit()) => return Err(FaultKind::PortInvalid),
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or(FaultKind::PortInvalid)?,
        };
        Ok(Self { secure, host: bare.unwrap_or(host).into(), port })
    }

    /// Value of the Host field, without the port if it is the scheme's default.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        if self.port == default_port(self.secure) { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            let scheme = if origin.secure { "https" } else { "http" };
            write!(formatter, "{scheme}://{}", origin.authority())?;
        }
        formatter.write_str(&self.target)
    }
}

const fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

/// Checks that a target is usable in a request line unchanged.
///
/// # Errors
/// Returns the kind of error.
pub fn check_target(target: &str) -> Result<&str, FaultKind> {
    if target.len() > TARGET_BYTES_MAX {
        return Err(FaultKind::TargetTooLong);
    }
    if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(FaultKind::TargetInvalid);
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::{Address, FaultKind, TARGET_BYTES_MAX};

    #[test]
    fn paths_and_urls_are_read_and_written() {
        for (text, written) in [
            ("/", "/"),
            ("/a?b=c#d", "/a?b=c"),
            ("//x", "//x"),
            ("http://a", "http://a/"),
            ("HTTP://a:80?q", "http://a/?q"),
            ("https://a.example:443/x", "https://a.example/x"),
            ("https://a:80/", "https://a:80/"),
            ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.to_string(), written);
            assert_eq!(Address::parse(written), Ok(address));
        }
    }

    #[test]
    fn what_is_no_url_says_why() {
        let long = format!("/{}", "a".repeat(TARGET_BYTES_MAX));
        for (text, fault) in [
            ("", FaultKind::NoAddress),
            ("file.html", FaultKind::NoAddress),
            ("*", FaultKind::NoAddress),
            ("ftp://a/", FaultKind::SchemeUnknown),
            ("http:///x", FaultKind::HostInvalid),
            ("http://u@a/", FaultKind::HostInvalid),
            ("http://[::g]/", FaultKind::HostInvalid),
            ("http://a\r\nb/", FaultKind::HostInvalid),
            ("http://a:0/", FaultKind::PortInvalid),
            ("http://a:+1/", FaultKind::PortInvalid),
            ("http://a:/", FaultKind::PortInvalid),
            ("http://a:65536/", FaultKind::PortInvalid),
            ("/a b", FaultKind::TargetInvalid),
            ("/a\r\nX: y", FaultKind::TargetInvalid),
            ("/é", FaultKind::TargetInvalid),
            (long.as_str(), FaultKind::TargetTooLong),
        ] {
            assert_eq!(Address::parse(text), Err(fault), "{text:?}");
        }
    }
}
