//! Addresses of origins.

use flatout_http::url::{format_authority, strip_brackets};
use std::fmt;
use std::net::IpAddr;

/// The address of an origin, common to all connections to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginAddress {
    /// True for https.
    pub secure: bool,
    /// A host name or an IP address, without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
}

impl OriginAddress {
    /// The origin at `host`, a name or an address with or without brackets, and `port`.
    pub fn new(secure: bool, host: &str, port: u16) -> Self {
        Self { secure, host: strip_brackets(host).into(), port }
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

#[cfg(test)]
mod tests {
    use super::OriginAddress;

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
}
