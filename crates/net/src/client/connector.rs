//! Makes sockets and begins connections; knows how to go on when local ports run out.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// Source addresses tried before a connection is given up. One address has about 28,000 ports for each target, and a
/// used one is free again after a second on loopback (`net.ipv4.tcp_tw_reuse`), so a handful covers any rate seen; 16 is
/// that with room.
const SOURCES_TRIED_MAX: u32 = 16;

/// Opens connections of one worker to one address.
#[derive(Debug)]
pub(super) struct Connector {
    address: SocketAddr,
    /// Last octet of the source address 127.0.0.x; 0 leaves the choice to the kernel.
    source: Cell<u8>,
    request_bytes: usize,
}

/// The smallest segment a path may be limited to (RFC 9293 §3.7.1); what fits is sent as one.
const SEGMENT_BYTES_MIN: usize = 536;

/// How far a connection has come when the connect call returned.
#[derive(Debug)]
pub(super) enum Begun {
    /// The system says it stands.
    Connected(OwnedFd),
    /// It may stand or not: over loopback it stands nearly always, but the system does not say so.
    UnderWay(OwnedFd),
}

impl Connector {
    pub(super) fn new(address: SocketAddr, request_bytes: usize) -> Self {
        Self { address, source: Cell::new(0), request_bytes }
    }

    /// Begins a connection.
    pub(super) fn begin(&self) -> Result<Begun, Errno> {
        for _ in 0..SOURCES_TRIED_MAX {
            match self.begin_from(self.source.get()) {
                Err(Errno::ADDRNOTAVAIL) if self.can_rotate() => self.rotate(),
                begun => return begun,
            }
        }
        Err(Errno::ADDRNOTAVAIL)
    }

    fn begin_from(&self, source: u8) -> Result<Begun, Errno> {
        let family = if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if self.request_bytes > SEGMENT_BYTES_MIN {
            // The tail of a long request must not wait for its beginning to be acknowledged. A short one is one segment, on
            // a connection with nothing under way, and leaves at once anyway.
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        if source != 0 {
            // The port is then chosen by connect, which knows the target, and not by bind, which must assume any.
            crate::socket::set_ip_bind_address_no_port(socket.as_fd())?;
            bind(&socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, source), 0)))?;
        }
        match connect(&socket, &self.address) {
            Ok(()) => Ok(Begun::Connected(socket)),
            Err(Errno::INPROGRESS) => Ok(Begun::UnderWay(socket)),
            Err(error) => Err(error),
        }
    }

    /// Only IPv4 loopback has more than one address that is surely ours.
    fn can_rotate(&self) -> bool {
        matches!(self.address.ip(), IpAddr::V4(address) if address.is_loopback())
    }

    fn rotate(&self) {
        self.source.set(match self.source.get() {
            0 => 2,
            254 => 1,
            source => source + 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Connector;

    #[test]
    fn sources_go_round_the_loopback_addresses() {
        let connector = Connector::new("127.0.0.1:1".parse().unwrap(), 1);
        assert!(connector.can_rotate());
        let mut seen = Vec::new();
        for _ in 0..256 {
            connector.rotate();
            seen.push(connector.source.get());
        }
        assert_eq!((seen[0], seen[252], seen[253], seen[254]), (2, 254, 1, 2));
        assert!(!Connector::new("[::1]:1".parse().unwrap(), 1).can_rotate());
        assert!(!Connector::new("192.0.2.1:1".parse().unwrap(), 1).can_rotate());
    }
}
