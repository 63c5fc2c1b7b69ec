//! Served addresses with their sockets: one per worker if the kernel permits sharing a port.
//!
//! The control thread keeps a copy of each worker's socket: for handing over in an upgrade, and for changing an
//! address's protocol without a gap. A socket lives until its last copy is closed, so the control thread's copy is
//! closed before the worker removes its listener: otherwise the kernel would keep queueing connections that
//! are never accepted.

use crate::failure::Failure;
use crate::inherit::Inherited;
use flatout_config::model;
use flatout_os::socket::{ListenOptions, bind_listener, check_free, find_port_owner, suggest_port};
use flatout_server::{Listener, Protocol};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::getsockname;
use rustix::net::sockopt::socket_reuseport;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// One address.
#[derive(Debug)]
pub(crate) struct Address {
    /// The listener's number, see `arrange`.
    pub(crate) id: u32,
    /// As configured; the port may be 0.
    pub(crate) asked: SocketAddr,
    /// As bound.
    pub(crate) bound: SocketAddr,
    /// Its protocol.
    pub(crate) protocol: Protocol,
    /// One per worker; fewer if another process opened them; more if the previous process had more workers.
    sockets: Vec<OwnedFd>,
}

/// The worker's protocol for a configured listener.
pub(crate) fn protocol_of(listener: &model::Listener) -> Protocol {
    match listener.protocol {
        model::Protocol::Plain => Protocol::Plain { http2: listener.http2_cleartext },
        model::Protocol::Tls => Protocol::Tls,
    }
}

/// The listen options of a configuration.
pub(crate) fn listen_options(config: &model::Config) -> ListenOptions {
    let asked = &config.sockets;
    ListenOptions {
        reuseport: asked.reuseport,
        defer_accept: asked.defer_accept,
        nodelay: asked.nodelay,
        backlog: i32::try_from(asked.backlog).unwrap_or(i32::MAX),
        busy_poll_us: asked.busy_poll_us,
    }
}

impl Address {
    /// Takes over inherited sockets for `listener`, and binds missing ones.
    ///
    /// # Errors
    /// The process that holds the port, or another obstacle.
    pub(crate) fn bind(
        id: usize,
        listener: &model::Listener,
        workers: usize,
        options: &ListenOptions,
        inherited: &mut Inherited,
    ) -> Result<Self, Failure> {
        let asked = listener.address;
        let sockets = inherited.take_listeners(asked);
        let explain = |error: io::Error| explain_bind(listener, &error);
        let (bound, sockets) = if sockets.is_empty() {
            bind_all(asked, workers, options).map_err(explain)?
        } else {
            complete(sockets, workers, options).map_err(explain)?
        };
        Ok(Self { id: id as u32, asked, bound, protocol: protocol_of(listener), sockets })
    }

    /// The same sockets for another protocol, under another number.
    pub(crate) fn with_protocol(&self, id: usize, listener: &model::Listener) -> Result<Self, Failure> {
        let copies: io::Result<Vec<OwnedFd>> = self.sockets.iter().map(copy).collect();
        let sockets = copies.map_err(|error| explain_bind(listener, &error))?;
        Ok(Self { id: id as u32, asked: self.asked, bound: self.bound, protocol: protocol_of(listener), sockets })
    }

    /// Copies of the sockets that worker number `worker` of `workers` accepts from. Every socket is assigned.
    pub(crate) fn listeners_of(&self, worker: usize, workers: usize) -> io::Result<Vec<Listener>> {
        let (id, protocol) = (self.id, self.protocol);
        let of_worker = shares(self.sockets.len(), worker, workers);
        of_worker.map(|index| Ok(Listener { fd: copy(&self.sockets[index])?, id, protocol })).collect()
    }

    /// The sockets, for an upgrade.
    pub(crate) fn sockets(&self) -> &[OwnedFd] {
        &self.sockets
    }
}

/// The sockets of one worker, by index: its own, and surplus ones; with too few, a shared one.
fn shares(sockets: usize, worker: usize, workers: usize) -> impl Iterator<Item = usize> {
    let first = if sockets == 0 { 0 } else { worker % sockets };
    let step = if sockets >= workers { workers } else { sockets };
    (first..sockets).step_by(step.max(1)).take(if sockets >= workers { usize::MAX } else { 1 })
}

fn copy(socket: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(socket, 0)?)
}

fn bind_all(asked: SocketAddr, workers: usize, options: &ListenOptions) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    if asked.port() != 0 {
        check_free(&asked)?;
    }
    let mut bound = asked;
    let mut sockets = Vec::with_capacity(workers);
    // Without SO_REUSEPORT there can only be one, and workers share it.
    for _ in 0..if options.reuseport { workers } else { 1 } {
        let (socket, with_port) = bind_listener(&bound, options)?;
        bound = with_port;
        sockets.push(socket);
    }
    Ok((bound, sockets))
}

/// Binds further sockets as far as the kernel permits: another user may have bound the existing ones, or without
/// SO_REUSEPORT. Then workers share.
fn complete(
    mut sockets: Vec<OwnedFd>,
    workers: usize,
    options: &ListenOptions,
) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    for socket in &sockets {
        options.apply(socket.as_fd())?;
    }
    let Some(first) = sockets.first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let bound = SocketAddr::try_from(getsockname(first)?)?;
    if options.reuseport && socket_reuseport(first)? {
        while sockets.len() < workers {
            let Ok((socket, _)) = bind_listener(&bound, options) else { break };
            sockets.push(socket);
        }
    }
    Ok((bound, sockets))
}

/// Explains a failed bind: which process holds the port, and which port is free.
fn explain_bind(listener: &model::Listener, error: &io::Error) -> Failure {
    let address = &listener.address;
    // In the syntax in which this address was configured.
    let propose = |free: SocketAddr| {
        if listener.place.line == 0 { format!("--listen {free}") } else { format!("listen \"{free}\"") }
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let owner = find_port_owner(address.port())
                .map_or_else(|| "another process".to_owned(), |(pid, name)| format!("{name} (process {pid})"));
            let mut text = format!("port {} on {} is already in use by {owner}", address.port(), address.ip());
            if let Some(port) = suggest_port(address) {
                let _ = write!(text, "\n  try: {}", propose(SocketAddr::new(address.ip(), port)));
            }
            Failure::runtime(text)
        }
        io::ErrorKind::PermissionDenied => Failure::runtime(format!(
            "may not listen on {address}: ports below 1024 need root or CAP_NET_BIND_SERVICE\n  try: {}",
            propose(SocketAddr::new(address.ip(), 8080))
        )),
        io::ErrorKind::AddrNotAvailable => {
            Failure::usage(format!("cannot listen on {address}: this machine has no such address"))
        }
        _ => Failure::runtime(format!("cannot listen on {address}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{bind_all, complete, shares};
    use flatout_os::socket::ListenOptions;

    #[test]
    fn without_sharing_a_port_there_is_one_socket_for_all() {
        let asked = "127.0.0.1:0".parse().unwrap();
        let count = |options: &ListenOptions| bind_all(asked, 3, options).unwrap().1.len();
        assert_eq!(count(&ListenOptions::DEFAULT), 3);
        let one = ListenOptions { reuseport: false, ..ListenOptions::DEFAULT };
        assert_eq!(count(&one), 1);
        // What was inherited is neither thrown away nor added to.
        let inherited = bind_all(asked, 2, &ListenOptions::DEFAULT).unwrap().1;
        assert_eq!(complete(inherited, 3, &one).unwrap().1.len(), 2);
    }

    #[test]
    fn every_socket_has_an_owner_and_every_worker_a_socket() {
        for sockets in 1..6 {
            for workers in 1..6 {
                let of = |worker| shares(sockets, worker, workers).collect::<Vec<_>>();
                let all: Vec<Vec<usize>> = (0..workers).map(of).collect();
                assert!(all.iter().all(|own| !own.is_empty()), "{sockets} sockets, {workers} workers: {all:?}");
                let mut owned = all.concat();
                owned.sort_unstable();
                owned.dedup();
                assert_eq!(owned, (0..sockets).collect::<Vec<_>>(), "{workers} workers: {all:?}");
            }
        }
        assert_eq!(shares(0, 0, 2).count(), 0);
        assert_eq!(shares(5, 1, 2).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(shares(1, 3, 4).collect::<Vec<_>>(), [0]);
    }
}
