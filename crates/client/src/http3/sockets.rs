//! UDP sockets of a worker, and starting connections on them.

use super::{Http3Connection, Http3Task};
use crate::Sources;
use crate::connector::{ServerAddresses, address_of};
use crate::failure::{QuicFailure, RequestFailure};
use flatout_net::quic::QuicEndpoint;
use flatout_net::quic::settings::{Bounds, client_config, client_endpoint_config};
use flatout_os::datagram::{bind_datagram, set_buffers};
use quinn_proto::ClientConfig;
use rustls_pki_types::ServerName;
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum number of sockets of a worker, which its connections use in turn. If several server processes share a port
/// without regard to connection IDs, all connections of one client socket go to the same process. A guess: 16 sockets
/// spread over the cores of common machines.
const SOCKETS_MAX: usize = 16;

/// Size of the send and receive buffers of a socket, in bytes. A server may send many windows at once.
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Limits of a connection, as large as those for HTTP/2.
const BOUNDS: Bounds = Bounds {
    streams_max: 0,
    stream_window: 1024 * 1024,
    connection_window: 64 * 1024 * 1024,
    send_window: 8 * 1024 * 1024,
    idle_timeout_ms: 300_000,
};

/// The UDP sockets and settings of a worker for QUIC connections.
pub(crate) struct QuicSockets {
    addresses: ServerAddresses,
    sources: Sources,
    config: ClientConfig,
    name: String,
    endpoints: RefCell<Vec<Rc<QuicEndpoint>>>,
    /// Number of connections started.
    begun: Cell<usize>,
}

impl QuicSockets {
    /// Creates sockets for connections to `addresses`. Returns `None` if the TLS configuration cannot be used for QUIC.
    pub(crate) fn new(
        addresses: Arc<[SocketAddr]>,
        sources: Sources,
        (tls, name): &(Arc<rustls::ClientConfig>, ServerName<'static>),
    ) -> Option<Self> {
        let config = client_config(rustls::ClientConfig::clone(tls), &BOUNDS).ok()?;
        let name = name.to_str().into_owned();
        let addresses = ServerAddresses::new(addresses);
        Some(Self { addresses, sources, config, name, endpoints: RefCell::default(), begun: Cell::new(0) })
    }

    /// Starts a connection. If `stores_cookies`, its streams return the cookies that responses set. The caller must spawn
    /// its task.
    pub(crate) fn begin(&self, stores_cookies: bool) -> Result<(Http3Connection, Http3Task), RequestFailure> {
        let begun = self.begun.replace(self.begun.get().wrapping_add(1));
        let endpoint = self.endpoint(begun % SOCKETS_MAX)?;
        let quic = endpoint.connect(self.config.clone(), self.addresses.take(), &self.name);
        let quic = quic.map_err(|_| RequestFailure::Quic(QuicFailure::Transport))?;
        Ok(Http3Connection::new(quic, stores_cookies))
    }

    /// Returns the addresses of the server to which connections were started.
    pub(crate) fn addresses_used(&self) -> &[SocketAddr] {
        self.addresses.used()
    }

    fn endpoint(&self, index: usize) -> Result<Rc<QuicEndpoint>, RequestFailure> {
        let mut endpoints = self.endpoints.borrow_mut();
        if let Some(endpoint) = endpoints.get(index) {
            return Ok(Rc::clone(endpoint));
        }
        let (socket, _) = bind_datagram(&SocketAddr::new(self.source(index), 0), false)?;
        // If the system grants smaller buffers, use those.
        let _ = set_buffers(socket.as_fd(), SOCKET_BUFFER_BYTES, SOCKET_BUFFER_BYTES);
        let config = client_endpoint_config().ok_or(RequestFailure::Quic(QuicFailure::Transport))?;
        let endpoint = QuicEndpoint::new(socket, config, None, None)?;
        tokio::task::spawn_local(Rc::clone(&endpoint).drive(|_| ()));
        endpoints.push(Rc::clone(&endpoint));
        Ok(endpoint)
    }

    /// Returns the source address of a socket.
    fn source(&self, index: usize) -> IpAddr {
        match (self.sources, self.addresses.first()) {
            (Sources::Loopback { first, count }, _) => {
                IpAddr::V4(address_of(1 + (first.wrapping_add(index as u32)) % count.max(1)))
            }
            (Sources::Automatic, SocketAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            (Sources::Automatic, SocketAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}
