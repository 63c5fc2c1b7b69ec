//! One worker's connections to one application server.

use super::address::FastcgiAddress;
use super::connection::Connection;
use super::crowd::Crowd;
use crate::clock::Now;
use crate::origin::transport::Socket;
use crate::origin::{OriginAddress, OriginClient, OriginCounts, OriginFailure, OriginSettings};
use crate::registered::Registered;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket, socket_with};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// One receive takes so much at the most. Shared by all connections of the client.
const INPUT_BYTES: usize = 64 * 1024;

/// How long to wait before a socket is tried again whose queue of connections is full: the kernel does not tell when it
/// no longer is.
const BUSY_PAUSE_MS: u64 = 10;

/// How often kept connections are looked through.
const SWEEP_MS: u64 = 100;

/// Why no connection could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// Nothing listens there.
    Refused,
    /// There is no socket of that name.
    NoSocket,
    /// This process may not use the socket.
    Forbidden,
    /// The name has no address, or could not be looked up.
    Unresolved,
    /// It took longer than the connect timeout.
    Timeout,
    /// The server's queue of connections was full for the whole connect timeout.
    Busy,
    /// No descriptor or local port was left.
    NoDescriptor,
    /// Another reason.
    Failed,
}

/// Timeouts and bounds of one worker's connections to one application server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastcgiSettings {
    /// For a connection, the look-up of a name included, in milliseconds.
    pub connect_timeout_ms: u64,
    /// The shortest other timeout in use, in milliseconds: deadlines are exact to a tenth of it.
    pub shortest_timeout_ms: u64,
    /// How long a connection without use is kept, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Connections kept without use.
    pub idle_connections_max: u32,
}

struct Idle {
    socket: Socket,
    /// When it has been without use for as long as the client that used it last keeps connections.
    expires_ms: u64,
}

/// One worker's idle connections to one application server, which all of the worker's clients of that server share: a
/// process of the server that waits on one for the next request must be free for the request of another client.
struct Pool {
    /// The one used last is at the end and is used first: so those that a crowd has left behind grow old.
    idle: RefCell<Vec<Idle>>,
    crowd: Arc<Crowd>,
    sweeps: Cell<bool>,
}

/// What all connections of one client share.
pub(super) struct Shared {
    address: FastcgiAddress,
    settings: FastcgiSettings,
    /// Knows the time, looks up names, makes connections over TCP.
    pub(super) timing: OriginClient,
    pub(super) input: RefCell<Box<[u8]>>,
    pool: Rc<Pool>,
}

/// A worker's connections to one application server. Clones share them.
#[derive(Clone)]
pub struct FastcgiClient(Rc<Shared>);

impl FastcgiClient {
    /// A client without connections. Where it is made does not matter; it is used within one worker's runtime.
    pub fn new(address: FastcgiAddress, settings: FastcgiSettings) -> Self {
        let pool = Pool { idle: RefCell::default(), crowd: Crowd::of(&address), sweeps: Cell::new(false) };
        Self::with_pool(address, settings, Rc::new(pool))
    }

    /// A client of the same server with timeouts and bounds of its own. Both use the same idle connections.
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
        Self(Rc::new(Shared {
            address,
            settings,
            timing: OriginClient::new(timing, None, Arc::new(OriginCounts::default())),
            input: RefCell::new(vec![0; INPUT_BYTES].into_boxed_slice()),
            pool,
        }))
    }

    /// Where the server is.
    pub fn address(&self) -> &FastcgiAddress {
        &self.0.address
    }

    /// A kept connection on which nothing has come, not even its end.
    pub fn kept(&self) -> Option<Connection> {
        let shared = &self.0;
        let now = Now::read();
        let mut idle = shared.pool.idle.borrow_mut();
        while let Some(last) = idle.pop() {
            if now.monotonic_ms <= last.expires_ms && last.socket.is_quiet(true) {
                return Some(Connection::new(last.socket, shared, true));
            }
        }
        None
    }

    /// A fresh connection.
    ///
    /// # Errors
    /// When there is none within the connect timeout.
    pub async fn connect(&self) -> Result<Connection, ConnectFailure> {
        let shared = &self.0;
        let socket = match &shared.address {
            FastcgiAddress::Unix(path) => connect_unix(shared, path).await?,
            FastcgiAddress::Tcp(host, port) => {
                let address = OriginAddress::new(false, host, *port);
                shared.timing.connect_plain(&address).await.map_err(name_failure)?
            }
        };
        Ok(Connection::new(socket, shared, false))
    }

    /// What `future` gives, or `None` when that takes longer than `timeout_ms`, by the clock of
    /// [`OriginClient::within`].
    pub async fn within<T>(&self, timeout_ms: u64, future: impl Future<Output = T>) -> Option<T> {
        self.0.timing.within(timeout_ms, future).await
    }

    /// What is known of the server's crowd.
    pub fn crowd(&self) -> &Crowd {
        &self.0.pool.crowd
    }

    /// Connections kept without use now.
    pub fn idle_connections(&self) -> usize {
        self.0.pool.idle.borrow().len()
    }

    /// Closes what is kept without use.
    pub fn close_idle(&self) {
        self.0.pool.idle.borrow_mut().clear();
    }
}

impl std::fmt::Debug for FastcgiClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FastcgiClient").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl Shared {
    /// Keeps a connection that has nothing to say.
    pub(super) fn keep(&self, socket: Socket) {
        let now = Now::read();
        let mut idle = self.pool.idle.borrow_mut();
        if self.pool.crowd.is_suspected(now) {
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
    /// Closes what is too old, what the server has closed, and everything when there is a crowd.
    fn handle_time(&self, now: Now) {
        let mut idle = self.idle.borrow_mut();
        if self.crowd.is_suspected(now) {
            idle.clear();
            return;
        }
        idle.retain(|kept| now.monotonic_ms <= kept.expires_ms && kept.socket.is_quiet(false));
    }
}

/// Looks through kept connections while there are any.
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

async fn connect_unix(shared: &Shared, path: &Path) -> Result<Socket, ConnectFailure> {
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
            // Of a socket in the file system this means that the listener's queue is full (unix(7)).
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
