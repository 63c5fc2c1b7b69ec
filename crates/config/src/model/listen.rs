//! Addresses to listen on: TCP ports and Unix sockets.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The prefix of the path of a Unix socket.
const UNIX: &str = "unix:";

/// Maximum length of the path of a Unix socket in bytes: `sun_path` without its terminating zero byte (unix(7)).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, derive_more::Display, derive_more::From)]
pub enum ListenAddress {
    /// An IP address and a TCP port.
    Ip(SocketAddr),
    /// The path of a Unix socket.
    #[display("unix:{}", _0.display())]
    Unix(PathBuf),
}

impl ListenAddress {
    /// Returns the IP address and port, or `None` for a Unix socket.
    pub const fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns the port, or `None` for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        self.ip().map(|address| address.port())
    }

    /// Returns the path of a Unix socket, or `None` for an IP address.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Ip(_) => None,
            Self::Unix(path) => Some(path),
        }
    }
}

impl FromStr for ListenAddress {
    /// The fault, or how to correct it.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(path) = text.strip_prefix(UNIX) else {
            if text.starts_with('/') {
                return Err("write `unix:` before the path of a Unix socket");
            }
            return text.parse().map(Self::Ip).map_err(|_| "not an IP address with a port");
        };
        path_fault(path).map_or_else(|| Ok(Self::Unix(path.into())), Err)
    }
}

/// If a Unix socket cannot have this path, returns the problem or how to correct it.
fn path_fault(path: &str) -> Option<&'static str> {
    // These characters separate addresses where a process hands its listeners over to the next.
    let is_reserved = |character: char| character.is_whitespace() || character.is_control() || "=;".contains(character);
    if path.starts_with('@') {
        Some("abstract sockets have no permissions: write a path, such as unix:/run/flatout/site.sock")
    } else if !path.starts_with('/') {
        Some("write an absolute path, such as unix:/run/flatout/site.sock")
    } else if path.ends_with('/') {
        Some("the path of a folder: add the name of the socket")
    } else if path.len() > SOCKET_PATH_BYTES_MAX {
        Some("a path of more than 107 bytes: choose a shorter one")
    } else if path.contains(is_reserved) {
        Some("the path contains a space, a control character, `=` or `;`: choose another one")
    } else {
        None
    }
}

/// Permissions of a socket file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits.
    pub mode: u32,
    /// The name of the group; `None` for the group of the process.
    pub group: Option<String>,
}

impl SocketAccess {
    /// By default, every user of the machine can connect, as to a port of a loopback address.
    pub const MODE_DEFAULT: u32 = 0o666;
}

impl Default for SocketAccess {
    fn default() -> Self {
        Self { mode: Self::MODE_DEFAULT, group: None }
    }
}

#[cfg(test)]
mod tests {
    use super::{ListenAddress, SOCKET_PATH_BYTES_MAX};

    #[test]
    fn paths_and_ports() {
        for text in ["unix:/run/flatout/site.sock", "unix:/a:b", "127.0.0.1:0", "[::1]:80"] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.path().is_some()), (text, text.starts_with("unix:")));
            assert_eq!(address.port().is_some(), address.ip().is_some());
        }
        let longest = format!("unix:/{}", "a".repeat(SOCKET_PATH_BYTES_MAX - 1));
        assert!(longest.parse::<ListenAddress>().is_ok());
        for (text, fault) in [
            ("unix:", "absolute path"),
            ("unix:site.sock", "absolute path"),
            ("unix:./site.sock", "absolute path"),
            ("unix:@site", "abstract"),
            ("unix:/run/", "add the name"),
            ("unix:/a b", "a space"),
            ("unix:/a=b", "a space"),
            ("unix:/a;b", "a space"),
            ("unix:/a\0", "a space"),
            ("/run/site.sock", "write `unix:`"),
            ("localhost:80", "not an IP address"),
            (&format!("{longest}a"), "107 bytes"),
        ] {
            assert!(text.parse::<ListenAddress>().unwrap_err().contains(fault), "{text}");
        }
    }
}
