//! Addresses of application servers.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

/// Address of an application server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FastcgiAddress {
    /// A Unix domain socket.
    Unix(PathBuf),
    /// A host name or IP address, without brackets, and a port.
    Tcp(String, u16),
}

impl FastcgiAddress {
    /// Returns whether the host is a name that must be resolved.
    pub fn is_named(&self) -> bool {
        matches!(self, Self::Tcp(host, _) if host.parse::<std::net::IpAddr>().is_err())
    }
}

impl fmt::Display for FastcgiAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Self::Tcp(host, port) if host.parse::<Ipv6Addr>().is_ok() => write!(formatter, "tcp:[{host}]:{port}"),
            Self::Tcp(host, port) => write!(formatter, "tcp:{host}:{port}"),
        }
    }
}
