//! Connections of a worker to an application server.

use super::address::FastcgiAddress;
use super::connection::FastcgiConnection;
use super::saturation::ServerSaturation;
use crate::origin::{OriginClient, OriginCounts, OriginFailure, OriginSettings};
use flatout_http::url::OriginAddress;
use flatout_net::transport::Socket;
use flatout_os::clock::Now;
use flatout_os::registered::Registered;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket, socket_with};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Size of the receive buffer in bytes, which all connections of the client share.
const INPUT_BYTES: usize = 64 * 1024;

/// Delay before connecting is retried to a Unix socket with a full backlog, in milliseconds. The kernel does not report
/// when the backlog has room again.
const BUSY_PAUSE_MS: u64 = 10;

/// Interval between checks of idle connections, in milliseconds.
const SWEEP_MS: u64 = 100;

/// Reason why connecting failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// Nothing listens at the address.
    Refused,
    /// The socket's path does not exist.
    NoSocket,
    /// The process lacks permission for the socket.
    Forbidden,
    /// The name has no address, or resolving it failed.
    Unresolved,
    /// Connecting took longer than the connect timeout.
    Timeout,
    /// The server's backlog was full for the whole connect timeout.
    Busy,
    /// No file descriptor or local port was available.
    NoDescriptor,
    /// Connecting failed for another reason.
    Failed,
}

/// Timeouts and limits of a worker's connections to an application server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastcgiSettings {
    /// Timeout for connecting, including name resolution, in milliseconds.
    pub connect_timeout_ms: u64,
    /// The shortest other timeout in use, in milliseconds. Deadlines are precise to a tenth of it.
    pub shortest_timeout_ms: u64,
    /// Idle time after which a connection is closed, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Maximum number of idle connections.
    pub idle_connections_max: u32,
}

struct Idle {
    socket: Socket,
    /// Time when the connection expires, in milliseconds, according to the idle timeout of the client that used it
    /// last.
    expires_ms: u64,
}

/// Idle connections of a worker to an application server, shared by all of the worker's clients of that server. A
/// server process that waits for the next request on an idle connection must be available to the requests of all of
/// them.
struct Pool {
    /// Stack of idle connections: the last in is used first, so that connections that were needed only for a load peak
    /// expire.
    idle: RefCell<Vec<Idle>>,
    saturation: Arc<ServerSaturation>,
    sweeps: Cell<bool>,
}

/// State shared by all connections of a client.
pub(super) struct FastcgiShared {
    address: FastcgiAddress,
    settings: FastcgiSettings,
    /// Provides timers, name resolution and TCP connections.
    pub(super) timing: OriginClient,
    pub(super) input: RefCell<Box<[u8]>>,
    pool: Rc<Pool>,
}

/// A worker's client of an application server. Clones share its connections.
#[derive(Clone)]
pub struct FastcgiClient(Rc<FastcgiShared>);

impl FastcgiClient {
    /// Creates a client without connections. It may be created anywhere, but must be used within a single worker's
    /// runtime.
    pub fn new(address: FastcgiAddress, settings: FastcgiSettings) -> Self {
        let pool =
            Pool { idle: RefCell::default(), saturation: ServerSaturation::of(&address), sweeps: Cell::new(false) };
        Self::with_pool(address, settings, Rc::new(pool))
    }

    /// Creates a client of the same server with different settings. Both clients share the idle connections.
    #[must_use]
    pub fn with_settings(&self, settings: FastcgiSettings) -> Self {
        Self::with_pool(self.0.address.clone(), settings, Rc::clone(&self.0.pool))
    }

    fn with_pool(address: FastcgiAddress, settings: FastcgiSettings, pool: Rc<Pool>) -> Self {
        let timing = OriginSettings {
            connect_timeout_ms: settings.connect_timeout_ms,
            head_timeout_ms: settings.shortest_timeout_ms,
            body_timeout_ms: settings.shortest_timeout_ms,
            idle_timeout_ms: settings.idle_timeout_ms,
            ..OriginSettings::default()
        };
        Self(Rc::new(FastcgiShared {
            address,
            settings,
            timing: OriginClient::new(timing, None, Arc::new(OriginCounts::default())),
            input: RefCell::new(vec![0; INPUT_BYTES].into_boxed_slice()),
            pool,
        }))
    }

    /// Returns the address of the server.
    pub fn address(&self) -> &FastcgiAddress {
        &self.0.address
    }

    /// Takes an idle connection that the server has not closed and on which no data has arrived. Returns `None` if
    /// there is none.
    pub fn kept(&self) -> Option<FastcgiConnection> {
        let shared = &self.0;
        let now = Now::read();
        let mut idle = shared.pool.idle.borrow_mut();
        while let Some(last) = idle.pop() {
            if now.monotonic_ms <= last.expires_ms && last.socket.is_quiet(true) {
                return Some(FastcgiConnection::new(last.socket, shared, true));
            }
        }
        None
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Fails if no connection is established within the connect timeout.
    pub async fn connect(&self) -> Result<FastcgiConnection, ConnectFailure> {
        let shared = &self.0;
        let socket = match &shared.address {
            FastcgiAddress::Unix(path) => connect_unix(shared, path).await?,
            FastcgiAddress::Tcp(host, port) => {
                let address = OriginAddress::new(false, host, *port);
                shared.timing.connect_plain(&address).await.map_err(name_failure)?
            }
        };
        Ok(FastcgiConnection::new(socket, shared, false))
    }

    /// Returns the result of `future`, or `None` if it takes longer than `timeout_ms`, with the precision of
    /// [`OriginClient::within`].
    pub async fn within<T>(&self, timeout_ms: u64, future: impl Future<Output = T>) -> Option<T> {
        self.0.timing.within(timeout_ms, future).await
    }

    /// Returns the client that provides timers on this worker.
    pub fn timing(&self) -> &OriginClient {
        &self.0.timing
    }

    /// Returns the saturation state of the server, which all workers share.
    pub fn saturation(&self) -> &ServerSaturation {
        &self.0.pool.saturation
    }

    /// Returns the number of idle connections.
    #[cfg(test)]
    pub(super) fn idle_connections(&self) -> usize {
        self.0.pool.idle.borrow().len()
    }

    /// Closes all idle connections.
    pub fn close_idle(&self) {
        self.0.pool.idle.borrow_mut().clear();
    }
}

impl std::fmt::Debug for FastcgiClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FastcgiClient").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl FastcgiShared {
    /// Pools a connection, which must have no pending data. Closes it if the pool is full, and all idle connections if
    /// the server is saturated.
    pub(super) fn keep(&self, socket: Socket) {
        let now = Now::read();
        let mut idle = self.pool.idle.borrow_mut();
        if self.pool.saturation.is_suspected(now) {
            idle.clear();
            return;
        }
        if idle.len() < self.settings.idle_connections_max as usize {
            let expires_ms = now.monotonic_ms.saturating_add(self.settings.idle_timeout_ms);
            idle.push(Idle { socket, expires_ms });
            if !self.pool.sweeps.replace(true) {
                tokio::task::spawn_local(sweep(Rc::downgrade(&self.pool), self.timing.clone()));
            }
        }
    }
}

impl Pool {
    /// Closes connections that have expired or were closed by the server, and all connections while the server is
    /// saturated.
    fn handle_time(&self, now: Now) {
        let mut idle = self.idle.borrow_mut();
        if self.saturation.is_suspected(now) {
            idle.clear();
            return;
        }
        idle.retain(|kept| now.monotonic_ms <= kept.expires_ms && kept.socket.is_quiet(false));
    }
}

/// Checks idle connections periodically while there are any.
async fn sweep(pool: Weak<Pool>, timing: OriginClient) {
    loop {
        timing.pause(SWEEP_MS).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.handle_time(Now::read());
        if pool.idle.borrow().is_empty() {
            pool.sweeps.set(false);
            return;
        }
    }
}

async fn connect_unix(shared: &FastcgiShared, path: &Path) -> Result<Socket, ConnectFailure> {
    let address = SocketAddrUnix::new(path).map_err(|_| ConnectFailure::NoSocket)?;
    let deadline_ms = Now::read().monotonic_ms.saturating_add(shared.settings.connect_timeout_ms);
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(name_errno)?;
        match connect_socket(&socket, &address) {
            Ok(()) => {
                let registered = Registered::new(socket).map_err(|_| ConnectFailure::NoDescriptor)?;
                return Ok(Socket::new(registered));
            }
            // On a Unix socket, EAGAIN means that the listener's backlog is full (unix(7)).
            Err(Errno::AGAIN | Errno::INTR) if Now::read().monotonic_ms < deadline_ms => {}
            Err(Errno::AGAIN | Errno::INTR) => return Err(ConnectFailure::Busy),
            Err(errno) => return Err(name_errno(errno)),
        }
        drop(socket);
        shared.timing.pause(BUSY_PAUSE_MS).await;
    }
}

fn name_errno(errno: Errno) -> ConnectFailure {
    match errno {
        Errno::CONNREFUSED => ConnectFailure::Refused,
        Errno::NOENT | Errno::NOTDIR => ConnectFailure::NoSocket,
        Errno::ACCESS | Errno::PERM => ConnectFailure::Forbidden,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => ConnectFailure::NoDescriptor,
        _ => ConnectFailure::Failed,
    }
}

fn name_failure(failure: OriginFailure) -> ConnectFailure {
    match failure {
        OriginFailure::Unresolved => ConnectFailure::Unresolved,
        OriginFailure::ConnectTimeout | OriginFailure::ResolveTimeout => ConnectFailure::Timeout,
        OriginFailure::Refused => ConnectFailure::Refused,
        OriginFailure::NoDescriptor | OriginFailure::NoLocalPort => ConnectFailure::NoDescriptor,
        _ => ConnectFailure::Failed,
    }
}
