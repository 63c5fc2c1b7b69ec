//! Creation of sockets, choice of source addresses, and start of connections.

use super::{ClientSettings, Sources};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Maximum number of source addresses to try before a connection fails, if the client chooses the addresses. One
/// address has about 28,000 ports per target, and on loopback a used port is free again after a second
/// (`net.ipv4.tcp_tw_reuse`), so a few addresses cover any observed rate; 16 leaves a margin.
const SOURCES_TRIED_MAX: u32 = 16;

/// Number of connections per source address before the next address is used, if the client chooses the addresses. Linux
/// first searches half of the ports, those of one parity. When these 14,000 or so are in use, each connect walks
/// through all of them: with 18,000 connections from one address, a client stalled for seconds.
const CONNECTIONS_A_SOURCE: u32 = 10_000;

/// Maximum number of source addresses: the host parts of 127.0.0.0/16 except the first and the last.
const SOURCES_MAX: u32 = 65_534;

/// Opens the connections of one worker.
#[derive(Debug)]
pub(super) struct Connector {
    addresses: ServerAddresses,
    /// The address of the server's Unix socket, if it is at one, or the reason there is none.
    unix_socket: Option<Result<SocketAddrUnix, Errno>>,
    sources: Sources,
    /// Host part of the source address 127.0.x.y; 0 lets the kernel choose.
    source: Cell<u32>,
    /// Number of connections started from `source`.
    begun: Cell<u32>,
}

/// The state of a connection after connect has returned.
#[derive(Debug)]
pub(super) enum Begun {
    /// The kernel reports the connection as established.
    Connected(OwnedFd),
    /// The connection may be established. Over loopback it nearly always is, but the kernel does not report it.
    UnderWay(OwnedFd),
}

/// The addresses of the server, which connections use in turn.
#[derive(Debug)]
pub(super) struct ServerAddresses {
    /// At least one.
    all: Arc<[SocketAddr]>,
    /// Number of connections that were started.
    taken: Cell<usize>,
}

impl ServerAddresses {
    pub(super) fn new(all: Arc<[SocketAddr]>) -> Self {
        Self { all, taken: Cell::new(0) }
    }

    /// Returns the address of the next connection.
    pub(super) fn take(&self) -> SocketAddr {
        let taken = self.taken.replace(self.taken.get() + 1);
        self.all[taken % self.all.len()]
    }

    /// Returns the addresses to which connections were started.
    pub(super) fn used(&self) -> &[SocketAddr] {
        &self.all[..self.taken.get().min(self.all.len())]
    }

    /// Returns the first address. All addresses are of the same family.
    pub(super) fn first(&self) -> SocketAddr {
        self.all[0]
    }
}

impl Connector {
    /// Creates a connector.
    pub(super) fn new(settings: &ClientSettings) -> Self {
        let unix_socket = settings.unix_socket.as_deref().map(SocketAddrUnix::new);
        Self { unix_socket, ..Self::over_ip(Arc::clone(&settings.addresses), settings.sources) }
    }

    fn over_ip(addresses: Arc<[SocketAddr]>, sources: Sources) -> Self {
        let source = match sources {
            Sources::Automatic => 0,
            Sources::Loopback { first, count } => 1 + first % count.clamp(1, SOURCES_MAX),
        };
        let addresses = ServerAddresses::new(addresses);
        Self { addresses, unix_socket: None, sources, source: Cell::new(source), begun: Cell::new(0) }
    }

    /// Returns whether connections are over a Unix socket.
    pub(super) fn is_unix(&self) -> bool {
        self.unix_socket.is_some()
    }

    /// Starts a connection.
    ///
    /// # Errors
    /// Returns the system's error: [`Errno::AGAIN`] if the server's Unix socket has no room for another connection.
    pub(super) fn begin(&self) -> Result<Begun, Errno> {
        if let Some(address) = &self.unix_socket {
            return begin_unix(address.as_ref().map_err(|error| *error)?);
        }
        let address = self.addresses.take();
        match self.sources {
            Sources::Automatic => {
                if self.begun.get() >= CONNECTIONS_A_SOURCE && self.can_rotate() {
                    self.rotate(254);
                }
                self.begun.set(self.begun.get().saturating_add(1));
                for _ in 0..SOURCES_TRIED_MAX {
                    match begin_from(address, self.source.get()) {
                        Err(Errno::ADDRNOTAVAIL) if self.can_rotate() => self.rotate(254),
                        begun => return begun,
                    }
                }
                Err(Errno::ADDRNOTAVAIL)
            }
            Sources::Loopback { count, .. } => {
                // Rotate in turn, so that no address runs out of ports before the others. An address without free ports
                // returns an error.
                let begun = begin_from(address, self.source.get());
                self.rotate(count.clamp(1, SOURCES_MAX));
                begun
            }
        }
    }

    /// Returns the addresses of the server to which connections were started.
    pub(super) fn addresses_used(&self) -> &[SocketAddr] {
        self.addresses.used()
    }

    /// Returns whether there are further source addresses: only IPv4 loopback has others that surely belong to this
    /// machine.
    fn can_rotate(&self) -> bool {
        self.addresses.all.iter().all(|address| address.is_ipv4() && address.ip().is_loopback())
    }

    /// Switches to the next of `count` addresses. If the kernel chose the address (127.0.0.1), switches to the second.
    fn rotate(&self, count: u32) {
        self.begun.set(0);
        self.source.set(match self.source.get() {
            0 => 2,
            source if source >= count => 1,
            source => source + 1,
        });
    }
}

/// Starts a connection from a source address, 127.0.x.y with this host part, or from any if it is 0.
fn begin_from(address: SocketAddr, source: u32) -> Result<Begun, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if source != 0 {
        // With this option, the port is chosen not by bind, which does not know the destination, but by connect.
        flatout_os::socket::set_ip_bind_address_no_port(socket.as_fd())?;
        bind(&socket, &SocketAddr::from((address_of(source), 0)))?;
    }
    match connect(&socket, &address) {
        Ok(()) => Ok(Begun::Connected(socket)),
        Err(Errno::INPROGRESS) => Ok(Begun::UnderWay(socket)),
        Err(error) => Err(error),
    }
}

/// Starts a connection over a Unix socket. It is established at once.
fn begin_unix(address: &SocketAddrUnix) -> Result<Begun, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, address).map(|()| Begun::Connected(socket))
}

/// Returns 127.0.x.y for a host part from 1 up.
pub(super) fn address_of(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 0, 0)) + host)
}

#[cfg(test)]
mod tests {
    use super::{Connector, SOURCES_MAX, ServerAddresses, address_of};
    use crate::Sources;
    use std::net::Ipv4Addr;

    #[test]
    fn sources_rotate_through_loopback_addresses() {
        let connector = Connector::over_ip(["127.0.0.1:1".parse().unwrap()].into(), Sources::Automatic);
        assert!(connector.can_rotate());
        let mut seen = Vec::new();
        for _ in 0..256 {
            connector.rotate(254);
            seen.push(connector.source.get());
        }
        assert_eq!((seen[0], seen[252], seen[253], seen[254]), (2, 254, 1, 2));
        assert!(!Connector::over_ip(["[::1]:1".parse().unwrap()].into(), Sources::Automatic).can_rotate());
        assert!(!Connector::over_ip(["192.0.2.1:1".parse().unwrap()].into(), Sources::Automatic).can_rotate());
    }

    #[test]
    fn given_sources_rotate_from_each_workers_start() {
        let connector = |first, count| {
            Connector::over_ip(["127.0.0.1:1".parse().unwrap()].into(), Sources::Loopback { first, count })
        };
        let turns = |connector: &Connector, count| {
            let mut seen = Vec::new();
            for _ in 0..4 {
                seen.push(connector.source.get());
                connector.rotate(count);
            }
            seen
        };
        assert_eq!(turns(&connector(0, 3), 3), [1, 2, 3, 1]);
        assert_eq!(turns(&connector(2, 3), 3), [3, 1, 2, 3]);
        assert_eq!(turns(&connector(7, 1), 1), [1, 1, 1, 1]);
        assert_eq!(connector(9, 0).source.get(), 1);
        assert_eq!(address_of(1), Ipv4Addr::LOCALHOST);
        assert_eq!(address_of(SOURCES_MAX), Ipv4Addr::new(127, 0, 255, 254));
    }

    #[test]
    fn connections_use_all_addresses_in_turn() {
        let all = ["127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"].map(|address| address.parse().unwrap());
        let addresses = ServerAddresses::new(all.into());
        assert!(addresses.used().is_empty());
        let taken: Vec<_> = (0..2).map(|_| addresses.take()).collect();
        assert_eq!(addresses.used(), &all[..2]);
        let taken: Vec<_> = taken.into_iter().chain((2..4).map(|_| addresses.take())).collect();
        assert_eq!(addresses.used(), &all[..]);
        assert_eq!((&taken[..3], taken[3], addresses.first()), (&all[..], all[0], all[0]));
    }
}
