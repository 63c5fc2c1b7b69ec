//! The address of a URL in a list: an absolute URL, or a path on the server under test.

use super::fault::FaultKind;
use flatout_http::url::{OriginAddress, Url, UrlError};
use std::fmt;

/// Maximum length of a target in bytes, about as much as servers accept.
pub const TARGET_BYTES_MAX: usize = 8192;

/// A URL, either absolute or relative to the server under test.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The server, if the URL names one.
    pub origin: Option<OriginAddress>,
    /// Path and query in origin form (RFC 9112 §3.2.1): graphic ASCII, at most [`TARGET_BYTES_MAX`] bytes.
    pub target: Box<str>,
}

impl Address {
    /// Parses `/path` or `http://host[:port]/path`. Drops a fragment, which clients do not send.
    ///
    /// # Errors
    /// Returns what is wrong with the URL.
    pub fn parse(text: &str) -> Result<Self, FaultKind> {
        let text = text.split('#').next().unwrap_or_default();
        if text.starts_with('/') {
            return Ok(Self { origin: None, target: check_target(text)?.into() });
        }
        let url = Url::parse_lenient(text)?;
        check_target(&url.target)?;
        let origin = OriginAddress { secure: url.secure, host: url.host.into(), port: url.port };
        Ok(Self { origin: Some(origin), target: url.target.into() })
    }
}

impl From<UrlError> for FaultKind {
    fn from(error: UrlError) -> Self {
        match error {
            UrlError::SchemeMissing(_) => Self::NoAddress,
            UrlError::SchemeUnknown(_) => Self::SchemeUnknown,
            UrlError::HostMissing | UrlError::HostInvalid(_) | UrlError::BracketsMissing(_) | UrlError::UserInfo => {
                Self::HostInvalid
            }
            UrlError::PortInvalid(_) => Self::PortInvalid,
            UrlError::CharacterInvalid(_) => Self::TargetInvalid,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            origin.fmt(formatter)?;
        }
        formatter.write_str(&self.target)
    }
}

/// Checks that a target can be used unchanged in a request line.
///
/// # Errors
/// Returns what is wrong with the target.
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
