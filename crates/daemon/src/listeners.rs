//! Served addresses with their sockets: one socket per worker, if the kernel permits sharing a port. A Unix socket is
//! shared by all workers.
//!
//! The control thread keeps a copy of each worker's socket, for handing it over in an upgrade and for changing the
//! protocol of an address without a gap. A socket lives until its last copy is closed. So the control thread's copy is
//! closed before the worker removes its listener; otherwise, the kernel would keep queueing connections that are never
//! accepted.

pub(crate) mod access;

use crate::admin::socket::AdminSocket;
use crate::failure::Failure;
use crate::inherit::{Inherited, covers};
use crate::quic::QuicContext;
use crate::socket_file::{BindFault, SocketFile};
use access::{explain_access, find_gid};
use flatout_config::model::{self, Http3, ListenAddress};
use flatout_os::datagram::{self, receive_buffer};
use flatout_os::socket::{
    ListenOptions, accept_queue, bind_listener, check_free, find_path_owners, find_port_owner, has_ipv6, set_backlog,
    suggest_port,
};
use flatout_overload::QueueReading;
use flatout_server::{Listener, Protocol};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::getsockname;
use rustix::net::sockopt::socket_reuseport;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// Most ports that are tried where the kernel chooses the port.
const PORTS_TRIED: usize = 8;

/// A served address.
#[derive(Debug)]
pub(crate) struct Address {
    /// The listener's stable number; see `arrange`.
    pub(crate) id: u32,
    /// The configured address. Its port may be 0.
    pub(crate) asked: ListenAddress,
    /// The bound address.
    pub(crate) bound: ListenAddress,
    /// The protocol spoken on the sockets.
    pub(crate) protocol: Protocol,
    /// True if each connection begins with a PROXY header.
    proxy_protocol: bool,
    /// The listening sockets: one per worker. There are fewer if another process bound them, and more if the previous
    /// process had more workers.
    sockets: Arc<Vec<OwnedFd>>,
    /// The UDP sockets for HTTP/3: one per worker, or none.
    datagrams: Vec<OwnedFd>,
    /// The file of a Unix socket, unless systemd has bound it or this is a worker process.
    file: Option<Rc<SocketFile>>,
}

/// The accept queues of an address. It does not keep the sockets open.
#[derive(Clone, Debug)]
pub(crate) struct AcceptQueues {
    pub(crate) address: ListenAddress,
    sockets: Weak<Vec<OwnedFd>>,
}

impl AcceptQueues {
    /// Returns the sum over all sockets; `None` if the address is not served any more, or if the kernel does not report
    /// the length of its queue, as for Unix sockets.
    pub(crate) fn read(&self) -> Option<QueueReading> {
        let sockets = self.sockets.upgrade()?;
        let mut sum = QueueReading::default();
        for socket in sockets.iter() {
            let queue = accept_queue(socket.as_fd()).ok()?;
            sum.add(QueueReading { waiting: queue.length.into(), waiting_max: queue.length_max.into() });
        }
        Some(sum)
    }
}

/// Returns the workers' protocol for a configured listener.
pub(crate) fn protocol_of(listener: &model::Listener) -> Protocol {
    match listener.protocol {
        model::Protocol::Plain => Protocol::Plain { http2: listener.http2_cleartext },
        model::Protocol::Tls => Protocol::Tls,
    }
}

/// Returns the numbers of the listeners of `config` that are to be bound: those in use, except for `[::]` and a port on
/// a machine without IPv6, if `0.0.0.0` and the same port is in use as well. So `listen ":80"` works there.
pub(crate) fn bindable<'a>(config: &'a model::Config, live: &'a [bool]) -> impl Iterator<Item = usize> + 'a {
    let has_ipv6 = has_ipv6();
    let in_use = move |id: &usize| live.get(*id) == Some(&true);
    let is_left_out = move |id: &usize| {
        let Some(address) = config.listeners[*id].address.ip() else { return false };
        let twin = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())).into();
        let mut listeners = config.listeners.iter().enumerate();
        !has_ipv6
            && address.is_ipv6()
            && address.ip().is_unspecified()
            && listeners.any(|(id, listener)| listener.address == twin && in_use(&id))
    };
    (0..config.listeners.len()).filter(in_use).filter(move |id| !is_left_out(id))
}

/// Checks that the listener `id` and that for all IPv6 addresses serve the same, if they share a socket from systemd
/// that accepts connections of both families: it does not tell for which of them a connection is.
///
/// # Errors
/// If other sites, or another protocol, are configured for IPv6.
fn check_shared(config: &model::Config, id: usize, sockets: &[OwnedFd]) -> Result<(), Failure> {
    let listener = &config.listeners[id];
    let Some(address) = listener.address.ip() else { return Ok(()) };
    let twin = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
    let is_twin = |socket: &OwnedFd| getsockname(socket).is_ok_and(|bound| SocketAddr::try_from(bound) == Ok(twin));
    if !address.is_ipv4() || !sockets.iter().any(is_twin) {
        return Ok(());
    }
    let sites_of = |id: usize| config.sites.iter().map(move |site| site.listeners.contains(&id));
    let differs = |&other: &usize| {
        let shown = &config.listeners[other];
        // A listener that was removed has no sites.
        let is_in_use = shown.address == twin.into() && sites_of(other).any(|has| has);
        is_in_use && (!sites_of(other).eq(sites_of(id)) || !shown.is_like(listener))
    };
    if !(0..config.listeners.len()).any(|other| differs(&other)) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "systemd listens on {twin} for IPv4 as well, but {} has other sites or settings\n  try: BindIPv6Only=ipv6-only and \
         ListenStream={} in the socket unit",
        listener.address, listener.address
    )))
}

/// Returns the socket options of a configuration.
pub(crate) fn listen_options(config: &model::Config) -> ListenOptions {
    let asked = &config.sockets;
    ListenOptions {
        reuseport: asked.reuseport,
        defer_accept: asked.defer_accept,
        nodelay: asked.nodelay,
        not_sent_bytes_max: u32::try_from(asked.not_sent_bytes_max).unwrap_or(u32::MAX),
        backlog: i32::try_from(asked.backlog).unwrap_or(i32::MAX),
        busy_poll_us: asked.busy_poll_us,
    }
}

impl Address {
    /// Takes over the inherited sockets for the listener with the number `id`, and binds missing sockets.
    ///
    /// # Errors
    /// Returns an error that names the process that holds the port, or another obstacle.
    pub(crate) fn bind(
        id: usize,
        config: &model::Config,
        workers: usize,
        quic: &QuicContext,
        inherited: &mut Inherited,
    ) -> Result<Self, Failure> {
        let Some(listener) = config.listeners.get(id) else { return Err(Failure::runtime("no such listener")) };
        let options = &listen_options(config);
        let asked = &listener.address;
        let failed = |error: io::Error| Failure::runtime(format!("cannot listen on {asked}: {error}"));
        let sockets = inherited.take_listeners(asked).map_err(failed)?;
        check_shared(config, id, &sockets)?;
        let (bound, sockets, file) = match asked {
            ListenAddress::Unix(path) if sockets.is_empty() => {
                let (socket, file) = bind_path(path, listener, options)?;
                (asked.clone(), vec![socket], Some(file))
            }
            ListenAddress::Unix(path) => {
                for socket in &sockets {
                    // Fails only for a socket that does not listen.
                    let _ = set_backlog(socket.as_fd(), options.backlog.unsigned_abs());
                }
                let file = inherited.take_file(path);
                if file.is_some() {
                    find_gid(listener)?;
                }
                (asked.clone(), sockets, file)
            }
            ListenAddress::Ip(address) => {
                let explain = |error: io::Error| explain_bind(listener, address, &error);
                let (bound, sockets) = if sockets.is_empty() {
                    let suits =
                        |bound: &SocketAddr| config.http3(id) == Http3::Off || datagram::check_free(bound).is_ok();
                    bind_suitable(*address, workers, options, suits).map_err(explain)?
                } else {
                    complete(*address, sockets, workers, options).map_err(explain)?
                };
                (bound.into(), sockets, None)
            }
        };
        let datagrams = bind_datagrams(id, config, &bound, workers, quic, inherited)?;
        let (protocol, proxy_protocol) = (protocol_of(listener), listener.proxy_protocol.is_some());
        let (file, sockets) = (file.map(Rc::new), Arc::new(sockets));
        Ok(Self { id: id as u32, asked: asked.clone(), bound, protocol, proxy_protocol, sockets, datagrams, file })
    }

    /// Returns copies of the sockets under another listener number: for another protocol, or for an address that they
    /// cover as well.
    pub(crate) fn with_protocol(
        &self,
        id: usize,
        config: &model::Config,
        workers: usize,
        quic: &QuicContext,
        inherited: &mut Inherited,
    ) -> Result<Self, Failure> {
        let Some(listener) = config.listeners.get(id) else { return Err(Failure::runtime("no such listener")) };
        check_shared(config, id, &self.sockets)?;
        let copies: io::Result<Vec<OwnedFd>> = self.sockets.iter().map(copy).collect();
        let asked = listener.address.clone();
        let sockets =
            copies.map_err(|error| Failure::runtime(format!("no descriptor to listen on {asked}: {error}")))?;
        let bound = if asked.port() == Some(0) { self.bound.clone() } else { asked.clone() };
        let datagrams = bind_datagrams(id, config, &bound, workers, quic, inherited)?;
        let (protocol, proxy_protocol) = (protocol_of(listener), listener.proxy_protocol.is_some());
        let (file, sockets) = (self.file.clone(), Arc::new(sockets));
        Ok(Self { id: id as u32, asked, bound, protocol, proxy_protocol, sockets, datagrams, file })
    }

    /// Returns copies of the sockets from which the worker with the index `worker` accepts connections. Every socket is
    /// assigned to some worker.
    pub(crate) fn listeners_of(&self, worker: usize, workers: usize) -> io::Result<Vec<Listener>> {
        let (id, protocol, proxy_protocol) = (self.id, self.protocol, self.proxy_protocol);
        let of_worker = shares(self.sockets.len(), worker, workers);
        let mut listeners: Vec<Listener> = of_worker
            .map(|index| Ok(Listener { fd: copy(&self.sockets[index])?, id, protocol, proxy_protocol }))
            .collect::<io::Result<_>>()?;
        listeners.extend(self.quic_listeners_of(&self.datagrams, worker, workers)?);
        Ok(listeners)
    }

    /// The smallest receive buffer of the UDP sockets, in bytes; `None` without HTTP/3.
    pub(crate) fn receive_bytes(&self) -> Option<u64> {
        self.datagrams.iter().filter_map(|socket| receive_buffer(socket.as_fd()).ok()).min().map(|bytes| bytes as u64)
    }

    /// Returns whether HTTP/3 is served at this address.
    pub(crate) fn serves_http3(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// Returns copies of `datagrams`, UDP sockets of this address, for the worker with the index `worker`.
    pub(crate) fn quic_listeners_of(
        &self,
        datagrams: &[OwnedFd],
        worker: usize,
        workers: usize,
    ) -> io::Result<Vec<Listener>> {
        let own = shares(datagrams.len(), worker, workers);
        let listener = |fd| Listener { fd, id: self.id, protocol: Protocol::Quic, proxy_protocol: false };
        own.map(|index| Ok(listener(copy(&datagrams[index])?))).collect()
    }

    /// Replaces the UDP sockets. If `datagrams` is empty, HTTP/3 is no longer served.
    pub(crate) fn set_datagrams(&mut self, datagrams: Vec<OwnedFd>) {
        self.datagrams = datagrams;
    }

    /// The UDP sockets, for an upgrade.
    pub(crate) fn datagrams(&self) -> &[OwnedFd] {
        &self.datagrams
    }

    /// The file of a Unix socket, if this process removes it at the end or takes it over from another one.
    pub(crate) fn file(&self) -> Option<&SocketFile> {
        self.file.as_deref()
    }

    /// The listening sockets, for an upgrade.
    pub(crate) fn sockets(&self) -> &[OwnedFd] {
        &self.sockets
    }

    /// The listening sockets, for the status, as long as this address is served.
    pub(crate) fn queues(&self) -> AcceptQueues {
        AcceptQueues { address: self.bound.clone(), sockets: Arc::downgrade(&self.sockets) }
    }
}

/// Returns for each listener of `config`, the configuration in force, whether it is in use: removed listeners keep their
/// numbers.
pub(crate) fn find_live(config: &model::Config, addresses: &[Address]) -> Vec<bool> {
    let is_live = |id: usize| addresses.iter().any(|address| address.id as usize == id);
    (0..config.listeners.len()).map(is_live).collect()
}

/// Splits `addresses` into those that are in use according to `live`, and the numbers of the others.
pub(crate) fn partition<'a>(
    addresses: &'a [Address],
    live: &'a [bool],
) -> (impl Iterator<Item = &'a Address>, Vec<u32>) {
    let is_live = |address: &&Address| live.get(address.id as usize) == Some(&true);
    let removed = addresses.iter().filter(move |address| !is_live(address)).map(|address| address.id).collect();
    (addresses.iter().filter(is_live), removed)
}

/// Binds the listeners of `config` that are in use but not among `addresses`.
///
/// # Errors
/// Returns an error that names the process that holds the port, or another obstacle.
pub(crate) fn bind_added(
    addresses: &[Address],
    (config, live): (&model::Config, &[bool]),
    workers: usize,
    quic: &QuicContext,
    inherited: &mut Inherited,
) -> Result<Vec<Address>, Failure> {
    let has = |id: usize| addresses.iter().any(|address| address.id as usize == id);
    for address in addresses.iter().filter(|address| live.get(address.id as usize) == Some(&true)) {
        check_shared(config, address.id as usize, &address.sockets)?;
    }
    let mut added = Vec::new();
    for id in bindable(config, live).filter(|id| !has(*id)) {
        let asked = &config.listeners[id].address;
        let covers = |address: &&Address| address.sockets.iter().any(|socket| covers(socket, asked));
        // If only the protocol of an address changes, the same sockets are used, so that there is no gap.
        let old = addresses.iter().find(|address| address.asked == *asked).or_else(|| addresses.iter().find(covers));
        let address = if let Some(old) = old {
            old.with_protocol(id, config, workers, quic, inherited)?
        } else {
            Address::bind(id, config, workers, quic, inherited)?
        };
        added.push(address);
    }
    Ok(added)
}

/// Returns the UDP sockets for those of `addresses` at which HTTP/3 will be added, by listener number. The list of
/// sockets is empty for an address at which HTTP/3 will be removed.
///
/// # Errors
/// If HTTP/3 is configured and the port is not available.
pub(crate) fn change_http3(
    addresses: &[Address],
    (config, live): (&model::Config, &[bool]),
    workers: usize,
    quic: &QuicContext,
    inherited: &mut Inherited,
) -> Result<Vec<(u32, Vec<OwnedFd>)>, Failure> {
    let mut changed = Vec::new();
    for address in addresses.iter().filter(|address| live.get(address.id as usize) == Some(&true)) {
        let wanted = config.http3(address.id as usize);
        if (wanted != Http3::Off) == address.serves_http3() {
            continue;
        }
        let sockets = bind_datagrams(address.id as usize, config, &address.bound, workers, quic, inherited)?;
        if wanted == Http3::Off || !sockets.is_empty() {
            changed.push((address.id, sockets));
        }
    }
    Ok(changed)
}

/// Binds the UDP sockets of the listener `id`, or takes over inherited ones. A Unix socket has none.
fn bind_datagrams(
    id: usize,
    config: &model::Config,
    bound: &ListenAddress,
    workers: usize,
    quic: &QuicContext,
    inherited: &mut Inherited,
) -> Result<Vec<OwnedFd>, Failure> {
    let (Some(bound), Some(listener)) = (bound.ip(), config.listeners.get(id)) else { return Ok(Vec::new()) };
    quic.bind(config.http3(id), bound, workers, inherited.take_datagrams(&listener.address))
}

/// Returns the socket files that this process removes, or takes over from another one.
pub(crate) fn socket_files<'a>(
    admin: Option<&'a AdminSocket>,
    addresses: &'a [Address],
) -> impl Iterator<Item = &'a SocketFile> {
    admin.map(|admin| &admin.file).into_iter().chain(addresses.iter().filter_map(Address::file))
}

/// Binds a Unix socket, which all workers share.
fn bind_path(
    path: &Path,
    listener: &model::Listener,
    options: &ListenOptions,
) -> Result<(OwnedFd, SocketFile), Failure> {
    let gid = find_gid(listener)?;
    let bound = SocketFile::bind(path, listener.access.mode, gid, options.backlog);
    bound.map_err(|fault| explain_path(path, listener, &fault))
}

/// Explains why a socket could not be bound at `path`.
fn explain_path(path: &Path, listener: &model::Listener, fault: &BindFault) -> Failure {
    let address = &listener.address;
    let another = if listener.place.line == 0 { "--listen with another path" } else { "`listen` with another path" };
    let folder = path.parent().unwrap_or(path).display();
    match fault {
        BindFault::InUse => {
            let owner = find_path_owners(path)
                .into_iter()
                .next()
                .map_or_else(|| "another process".to_owned(), |(pid, name)| format!("{name} (process {pid})"));
            Failure::runtime(format!("{address} is already in use by {owner}\n  try: {another}"))
        }
        BindFault::NotSocket => Failure::usage(format!(
            "cannot listen on {address}: a file that is not a socket already exists at this path\n  try: {another}"
        )),
        BindFault::Access(error) => explain_access(listener, error),
        BindFault::Failed(error) => {
            let advice = match error.kind() {
                io::ErrorKind::NotFound => {
                    format!("\n  try: create the folder {folder}, or RuntimeDirectory= in the unit")
                }
                io::ErrorKind::PermissionDenied => {
                    format!("\n  try: a folder in which the user of flatout may create files, instead of {folder}")
                }
                _ => format!("\n  try: {another}"),
            };
            Failure::runtime(format!("cannot listen on {address}: {error}{advice}"))
        }
    }
}

/// Returns the indices of the sockets for one worker: its own socket, and surplus sockets. If there are fewer sockets
/// than workers, returns a shared socket.
fn shares(sockets: usize, worker: usize, workers: usize) -> impl Iterator<Item = usize> {
    let first = if sockets == 0 { 0 } else { worker % sockets };
    let step = if sockets >= workers { workers } else { sockets };
    (first..sockets).step_by(step.max(1)).take(if sockets >= workers { usize::MAX } else { 1 })
}

fn copy(socket: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(socket, 0)?)
}

/// Binds the sockets for `asked`. If the kernel chooses the port, the port must suit: for HTTP/3, the UDP port with the
/// same number must be free. After [`PORTS_TRIED`] ports, it is the last one all the same.
fn bind_suitable(
    asked: SocketAddr,
    workers: usize,
    options: &ListenOptions,
    suits: impl Fn(&SocketAddr) -> bool,
) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    let mut chosen = bind_all(asked, workers, options)?;
    for _ in 1..PORTS_TRIED {
        if asked.port() != 0 || suits(&chosen.0) {
            break;
        }
        // Those of the previous port are closed afterwards, so that the kernel does not choose it again.
        chosen = bind_all(asked, workers, options)?;
    }
    Ok(chosen)
}

fn bind_all(asked: SocketAddr, workers: usize, options: &ListenOptions) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    if asked.port() != 0 {
        check_free(&asked)?;
    }
    let mut bound = asked;
    let mut sockets = Vec::with_capacity(workers);
    // Without SO_REUSEPORT, there can only be one socket, which the workers share.
    for _ in 0..if options.reuseport { workers } else { 1 } {
        let (socket, with_port) = bind_listener(&bound, options)?;
        bound = with_port;
        sockets.push(socket);
    }
    Ok((bound, sockets))
}

/// Binds the missing sockets, as far as the kernel permits: the existing sockets may belong to another user, or may
/// lack SO_REUSEPORT. In that case, workers share sockets.
fn complete(
    asked: SocketAddr,
    mut sockets: Vec<OwnedFd>,
    workers: usize,
    options: &ListenOptions,
) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    for socket in &sockets {
        options.apply(socket.as_fd())?;
    }
    let Some(first) = sockets.first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    // A socket from systemd for both families is named by the address for which it is used.
    let bound = if asked.port() == 0 { SocketAddr::try_from(getsockname(first)?)? } else { asked };
    if options.reuseport && socket_reuseport(first)? {
        while sockets.len() < workers {
            let Ok((socket, _)) = bind_listener(&bound, options) else { break };
            sockets.push(socket);
        }
    }
    Ok((bound, sockets))
}

/// Returns whether a bind to `address` failed because the machine has no IPv6.
pub(crate) fn is_without_ipv6(address: &SocketAddr, error: &io::Error) -> bool {
    address.is_ipv6() && error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
}

/// Explains why a bind failed: names the process that holds the port, and suggests a free port.
fn explain_bind(listener: &model::Listener, address: &SocketAddr, error: &io::Error) -> Failure {
    // Suggests an address in the syntax in which this listener was configured.
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
            "cannot listen on {address}: ports below 1024 need root or CAP_NET_BIND_SERVICE\n  try: {}",
            propose(SocketAddr::new(address.ip(), 8080))
        )),
        _ if is_without_ipv6(address, error) => {
            let same = |ip: Ipv4Addr| propose(SocketAddr::from((ip, address.port())));
            let proposal = match address.ip() {
                ip if ip.is_unspecified() => format!("\n  try: {}", same(Ipv4Addr::UNSPECIFIED)),
                ip if ip.is_loopback() => format!("\n  try: {}", same(Ipv4Addr::LOCALHOST)),
                _ => String::new(),
            };
            Failure::usage(format!("cannot listen on {address}: this machine has no IPv6{proposal}"))
        }
        io::ErrorKind::AddrNotAvailable => {
            Failure::usage(format!("cannot listen on {address}: this machine does not have this address"))
        }
        _ => Failure::runtime(format!("cannot listen on {address}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{PORTS_TRIED, bind_all, bind_suitable, complete, shares};
    use flatout_os::socket::ListenOptions;
    use std::cell::RefCell;

    #[test]
    fn without_sharing_a_port_there_is_one_socket_for_all() {
        let asked = "127.0.0.1:0".parse().unwrap();
        let count = |options: &ListenOptions| bind_all(asked, 3, options).unwrap().1.len();
        assert_eq!(count(&ListenOptions::DEFAULT), 3);
        let one = ListenOptions { reuseport: false, ..ListenOptions::DEFAULT };
        assert_eq!(count(&one), 1);
        // Inherited sockets are neither closed nor added to.
        let inherited = bind_all(asked, 2, &ListenOptions::DEFAULT).unwrap().1;
        assert_eq!(complete(asked, inherited, 3, &one).unwrap().1.len(), 2);
    }

    #[test]
    fn a_chosen_port_suits() {
        let bind = |asked: &str, suitable: usize| {
            let seen = RefCell::new(Vec::new());
            let suits = |bound: &std::net::SocketAddr| {
                seen.borrow_mut().push(*bound);
                seen.borrow().len() == suitable
            };
            let (bound, _) = bind_suitable(asked.parse().unwrap(), 1, &ListenOptions::DEFAULT, suits).unwrap();
            (bound, seen.into_inner())
        };
        let (bound, seen) = bind("127.0.0.1:0", 3);
        assert_eq!((seen.len(), seen.last()), (3, Some(&bound)));
        assert!(seen[0] != seen[1] && seen[1] != seen[2]);
        // The last port is used all the same.
        assert_eq!(bind("127.0.0.1:0", usize::MAX).1.len(), PORTS_TRIED - 1);
        // A configured port is used as it is.
        let (again, seen) = bind(&bound.to_string(), usize::MAX);
        assert_eq!((again, seen.len()), (bound, 0));
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
