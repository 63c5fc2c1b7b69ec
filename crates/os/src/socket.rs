//! Listeners, socket options, and the process that owns a port.

#![allow(unsafe_code)] // socket options and one question that no safe wrapper offers

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay, socket_domain,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, listen, recv, send, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Backlog of a listener: the number of connections that the kernel completes before they are accepted, capped at
/// net.core.somaxconn (4096).
pub const BACKLOG: i32 = 4096;

/// How long the kernel withholds a connection whose client sends nothing, in seconds. After that, the connection is
/// handed over, so no connection is lost.
pub const DEFER_ACCEPT_S: u32 = 1;

/// Maximum number of unsent bytes in a connection's send buffer at which the socket is writable. Without a bound, the
/// kernel buffers up to 4 MiB for each client that reads slowly, and a response of high priority has to wait for
/// everything that was written before it.
pub const NOT_SENT_BYTES_MAX: u32 = 64 << 10;

/// Options of a listener, which its connections inherit. The defaults measured best or are required by the design;
/// other values exist for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// SO_REUSEPORT: each worker has its own socket, and the kernel distributes connections among them. Without it, all
    /// workers accept from the same socket.
    pub reuseport: bool,
    /// TCP_DEFER_ACCEPT, with a timeout of [`DEFER_ACCEPT_S`].
    pub defer_accept: bool,
    /// TCP_NODELAY: a short segment does not wait for the acknowledgement of the previous segment (Nagle's algorithm,
    /// RFC 1122 §4.2.3.4). Accepted connections inherit the option, which saves a system call for each.
    pub nodelay: bool,
    /// TCP_NOTSENT_LOWAT in bytes, see [`NOT_SENT_BYTES_MAX`]; 0 keeps the kernel's default.
    pub not_sent_bytes_max: u32,
    /// Backlog in connections, see [`BACKLOG`].
    pub backlog: i32,
    /// SO_BUSY_POLL in microseconds: how long a receive polls the network device before it gives up; 0 disables
    /// polling. Devices without a receive queue, such as loopback, cannot be polled.
    pub busy_poll_us: u32,
}

impl ListenOptions {
    /// The default options.
    pub const DEFAULT: Self = Self {
        reuseport: true,
        defer_accept: true,
        nodelay: true,
        not_sent_bytes_max: NOT_SENT_BYTES_MAX,
        backlog: BACKLOG,
        busy_poll_us: 0,
    };

    /// Sets the options that connections inherit on `socket`, which need not be a listener.
    pub fn apply(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        set_tcp_nodelay(socket, self.nodelay)?;
        set_tcp_defer_accept(socket, if self.defer_accept { DEFER_ACCEPT_S } else { 0 })?;
        if self.not_sent_bytes_max > 0 {
            set_not_sent_bytes_max(socket, self.not_sent_bytes_max)?;
        }
        if self.busy_poll_us > 0 {
            let value = libc::c_int::try_from(self.busy_poll_us).unwrap_or(libc::c_int::MAX);
            // Values above net.core.busy_read need CAP_NET_ADMIN. The error must not be mistaken for an error of bind.
            set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, value)
                .map_err(|errno| io::Error::other(format!("SO_BUSY_POLL: {}", io::Error::from(errno))))?;
        }
        Ok(())
    }
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The state of a listening socket in /proc/net/tcp.
const LISTEN: &str = "0A";

/// Returns whether this process can use IPv6: false if the kernel was built or started without it, or if a service
/// manager forbids it (`RestrictAddressFamilies`).
pub fn has_ipv6() -> bool {
    let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    socket.err() != Some(Errno::AFNOSUPPORT)
}

/// Creates a non-blocking TCP socket for `address`.
pub fn new_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        // Allows listening on [::] and 0.0.0.0 separately, and makes client addresses appear in only one form in the
        // log.
        set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// Checks that no other socket listens on `address`. With SO_REUSEPORT, two servers of the same user would silently
/// share a port, so this check binds without it.
pub fn check_free(address: &SocketAddr) -> io::Result<()> {
    let socket = new_socket(address)?;
    set_socket_reuseaddr(&socket, true)?;
    Ok(bind(&socket, address)?)
}

/// Opens a listener, which shares its port with the other workers' listeners if `options.reuseport` is set. Also
/// returns its address, which contains the port that the kernel has chosen if the requested port is 0.
pub fn bind_listener(address: &SocketAddr, options: &ListenOptions) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = new_socket(address)?;
    set_socket_reuseaddr(&socket, true)?;
    set_socket_reuseport(&socket, options.reuseport)?;
    options.apply(socket.as_fd())?;
    bind(&socket, address)?;
    listen(&socket, options.backlog)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// Sets TCP_DEFER_ACCEPT: the listener wakes when a client's first bytes have arrived, so that accept, receive, send
/// and close follow without waiting. With 0 seconds, it wakes when the connection is established.
pub fn set_tcp_defer_accept(fd: BorrowedFd<'_>, seconds: u32) -> rustix::io::Result<()> {
    let value = libc::c_int::try_from(seconds).unwrap_or(libc::c_int::MAX);
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value)
}

/// Returns whether `socket` is a Unix socket.
pub fn is_unix(socket: BorrowedFd<'_>) -> bool {
    socket_domain(socket) == Ok(AddressFamily::UNIX)
}

/// Changes the backlog of a listener. Connections that are already queued stay, even if there are more than
/// `connections`.
pub fn set_backlog(fd: BorrowedFd<'_>, connections: u32) -> rustix::io::Result<()> {
    listen(fd, i32::try_from(connections).unwrap_or(i32::MAX))
}

/// Sets TCP_QUICKACK: received data is acknowledged immediately instead of with the response. The kernel may clear the
/// option at any time, so it affects only the start of a connection.
pub fn set_tcp_quickack(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1)
}

/// Sets IP_BIND_ADDRESS_NO_PORT: the port of a bound source address is chosen by connect, which may use the same port
/// for several destinations.
pub fn set_ip_bind_address_no_port(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    set_option(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Sets an option of type int that no safe wrapper offers.
fn set_option(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> rustix::io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and the pointer and length describe `value`,
    // which the kernel only reads during the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)) }
}

/// Sets SO_ZEROCOPY: a send with MSG_ZEROCOPY lends its pages to the kernel instead of copying them, until a
/// notification in the socket's error queue returns them. Accepted connections inherit the option.
pub fn set_zerocopy(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(set_option(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)?)
}

/// Sends `bytes` without copying them. They must not change before the kernel has queued the notification that
/// [`take_zerocopy_notices`] drains.
pub fn send_zerocopy(socket: BorrowedFd<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
    const ZEROCOPY: SendFlags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY.cast_unsigned());
    send(socket, bytes, SendFlags::NOSIGNAL.union(ZEROCOPY))
}

/// Drains the zero-copy notifications from the socket's error queue.
pub fn take_zerocopy_notices(socket: BorrowedFd<'_>) {
    // Notifications are control data, and no buffer for control data is provided, so the kernel discards them. Their
    // content is not needed.
    while recv(socket, &mut [0_u8; 1], RecvFlags::ERRQUEUE).is_ok() {}
}

/// Sets TCP_NOTSENT_LOWAT of one connection in bytes, see [`NOT_SENT_BYTES_MAX`].
pub fn set_not_sent_bytes_max(fd: BorrowedFd<'_>, bytes_max: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes_max).unwrap_or(libc::c_int::MAX);
    Ok(set_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value)?)
}

/// TCP_NOTSENT_LOWAT of one connection, in bytes; `u32::MAX` if the connection has no bound of its own.
pub fn not_sent_bytes_max(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let (mut value, mut length) = (0_u32, size_of::<u32>() as libc::socklen_t);
    // SAFETY: the descriptor is open for as long as it is borrowed. The kernel writes at most `length` bytes to
    // `value`, which is that large, and every bit pattern is a valid `u32`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    match (result, value) {
        // The bound from `net.ipv4.tcp_notsent_lowat` applies.
        (0, 0) => Ok(u32::MAX),
        (0, value) => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of bytes handed to the kernel that the peer has not acknowledged yet (SIOCOUTQ).
pub fn unacknowledged_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel writes one int to `bytes`.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { Ok(u32::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

/// The accept queue of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptQueueStatus {
    /// Number of connections waiting to be accepted.
    pub length: u32,
    /// The backlog. The kernel queues one connection more.
    pub length_max: u32,
}

/// Returns the state of the accept queue of a listener, from the listening socket's `TCP_INFO`.
pub fn accept_queue(listener: BorrowedFd<'_>) -> io::Result<AcceptQueueStatus> {
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed. The kernel writes at most `length` bytes to `info`,
    // which is that large, and every bit pattern is a valid `tcp_info`.
    let (result, info) = unsafe {
        let mut info = std::mem::zeroed::<libc::tcp_info>();
        let at = (&raw mut info).cast();
        let result = libc::getsockopt(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut length);
        (result, info)
    };
    let status = AcceptQueueStatus { length: info.tcpi_unacked, length_max: info.tcpi_sacked };
    if result == 0 { Ok(status) } else { Err(io::Error::last_os_error()) }
}

/// The process that listens on `port`, as (pid, name). Returns `None` if no process does or if /proc cannot be read.
pub fn find_port_owner(port: u16) -> Option<(u32, String)> {
    let sockets = read_listening().ok()?;
    let inodes = sockets.iter().filter(|socket| socket.local.port() == port).map(|socket| socket.inode).collect();
    let pid = read_holders(&inodes).ok()?.0.first().copied()?;
    Some((pid, read_process_name(pid).unwrap_or_default()))
}

/// The processes that listen on the Unix socket at `path`, as (pid, name), in the order of their numbers. Empty if none
/// does or if /proc does not show them.
pub fn find_path_owners(path: &Path) -> Vec<(u32, String)> {
    let holders = read_listening_unix(path).and_then(|inodes| read_holders(&inodes));
    let named = |pid| Some((pid, read_process_name(pid)?));
    holders.map(|(holders, _)| holders.into_iter().filter_map(named).collect()).unwrap_or_default()
}

/// Returns whether an address belongs to this machine.
pub fn is_local(address: IpAddr) -> bool {
    // Binding succeeds only for an address of this machine, and sends nothing.
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// A listening TCP socket, as listed in /proc/net/tcp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListeningSocket {
    /// Local address and port; the address may be the unspecified one.
    pub local: SocketAddr,
    /// Inode of the socket, as in the links of /proc/PID/fd.
    pub inode: u64,
}

impl ListeningSocket {
    /// Returns whether the socket accepts connections to `address`. A listener on `[::]` is assumed to accept IPv4 as
    /// well, as is the kernel's default.
    pub fn serves(&self, address: SocketAddr) -> bool {
        let same_host = self.local.ip().to_canonical() == address.ip().to_canonical();
        let any_host = self.local.ip().is_unspecified() && (self.local.is_ipv6() || address.is_ipv4());
        self.local.port() == address.port() && (same_host || any_host)
    }
}

/// All listening TCP sockets of this network namespace.
pub fn read_listening() -> io::Result<Vec<ListeningSocket>> {
    let mut sockets = parse_listening(BufReader::new(File::open("/proc/net/tcp")?))?;
    // A kernel without IPv6 does not have this file.
    if let Ok(file) = File::open("/proc/net/tcp6") {
        sockets.extend(parse_listening(BufReader::new(file))?);
    }
    Ok(sockets)
}

/// Parses the listening sockets, which the kernel lists first. After a benchmark, there can be tens of thousands of
/// other sockets, which take the kernel a quarter of a second to print, so reading stops at the first of them.
fn parse_listening(lines: impl BufRead) -> io::Result<Vec<ListeningSocket>> {
    let mut sockets = Vec::new();
    for line in lines.lines().skip(1) {
        match parse_listening_line(&line?) {
            Some(socket) => sockets.push(socket),
            None => break,
        }
    }
    Ok(sockets)
}

fn parse_listening_line(line: &str) -> Option<ListeningSocket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != LISTEN {
        return None;
    }
    Some(ListeningSocket { local: parse_address(local)?, inode: inode.parse().ok()? })
}

/// Parses an address and port such as `0100007F:1F90`: the address consists of 32-bit words in native byte order.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| u32::from_str_radix(address.get(8 * index..8 * index + 8)?, 16).ok();
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut octets = [0; 16];
            for (index, octets) in octets.chunks_exact_mut(4).enumerate() {
                octets.copy_from_slice(&word(index)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Returns the inodes of the listening Unix sockets at `path` in this network namespace, as in the links of /proc/PID/fd.
pub fn read_listening_unix(path: &Path) -> io::Result<BTreeSet<u64>> {
    let wanted = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_same = |bound: &Path| bound == path || fs::canonicalize(bound).is_ok_and(|bound| bound == wanted);
    // Paths are bytes.
    let text = fs::read("/proc/net/unix")?;
    let sockets = text.split(|byte| *byte == b'\n').filter_map(parse_listening_unix_line);
    Ok(sockets.filter(|(bound, _)| is_same(bound)).map(|(_, inode)| inode).collect())
}

/// Flag of a listening Unix socket in /proc/net/unix (`__SO_ACCEPTCON`).
const ACCEPTS_CONNECTIONS: u32 = 1 << 16;

/// Returns the path and the inode of a listening socket from a line of /proc/net/unix:
/// `0000000000000000: 00000002 00000000 00010000 0001 01 12345 /path`.
fn parse_listening_unix_line(line: &[u8]) -> Option<(&Path, u64)> {
    let mut fields = line.splitn(8, |byte| *byte == b' ').skip(3);
    let flags = u32::from_str_radix(std::str::from_utf8(fields.next()?).ok()?, 16).ok()?;
    // The inode is padded with blanks on the left.
    let rest = line.splitn(7, |byte| *byte == b' ').nth(6)?.trim_ascii_start();
    let (inode, path) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
    let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
    (flags & ACCEPTS_CONNECTIONS != 0).then_some((Path::new(OsStr::from_bytes(&path[1..])), inode))
}

/// The processes that hold any of the given sockets open, and the number of processes that could not be inspected.
pub fn read_holders(inodes: &BTreeSet<u64>) -> io::Result<(BTreeSet<u32>, usize)> {
    let (mut holders, mut hidden) = (BTreeSet::new(), 0);
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) else { continue };
        match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(mut links) => {
                let holds = links.any(|link| {
                    link.ok()
                        .and_then(|link| parse_socket_link(fs::read_link(link.path()).ok()?.to_str()?))
                        .is_some_and(|inode| inodes.contains(&inode))
                });
                if holds {
                    holders.insert(pid);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => hidden += 1,
            // The process exited while /proc was being read.
            Err(_) => {}
        }
    }
    Ok((holders, hidden))
}

fn parse_socket_link(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Short name of a process, such as `nginx`.
pub fn read_process_name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

/// Finds a free port above that of `address`, among at most 100 candidates.
pub fn suggest_port(address: &SocketAddr) -> Option<u16> {
    (1..=100_u16)
        .filter_map(|step| address.port().checked_add(step))
        .find(|&port| check_free(&SocketAddr::new(address.ip(), port)).is_ok())
}

/// Raises the soft limit of open files to the hard limit. Returns the resulting soft limit.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{
        AcceptQueueStatus, BACKLOG, DEFER_ACCEPT_S, ListenOptions, ListeningSocket, accept_queue, bind_listener,
        check_free, find_port_owner, parse_address, parse_listening, parse_socket_link, read_holders,
        read_listening_unix, suggest_port, unacknowledged_bytes,
    };
    use std::fs;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Duration;

    #[test]
    fn a_port_in_use_names_its_owner_and_a_free_port() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (_listener, address) = bind_listener(&any, &ListenOptions::DEFAULT).unwrap();
        assert!(check_free(&address).is_err());
        assert_eq!(find_port_owner(address.port()).unwrap().0, std::process::id());
        let suggested = suggest_port(&address).unwrap();
        assert!(suggested > address.port());
        // Our own other workers may share it.
        assert!(bind_listener(&address, &ListenOptions::DEFAULT).is_ok());
    }

    #[test]
    fn the_accept_queue_is_read_from_the_listener() {
        let options = ListenOptions { backlog: 2, ..ListenOptions::DEFAULT };
        let (listener, _) = bind_listener(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
        assert_eq!(accept_queue(listener.as_fd()).unwrap(), AcceptQueueStatus { length: 0, length_max: 2 });
    }

    #[test]
    fn socket_options_take_effect_in_the_kernel() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let read = |fd: &OwnedFd, level, name| {
            let (mut value, mut bytes) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
            // SAFETY: both pointers lead to values that live for the call and are as long as is said.
            let result =
                unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut bytes) };
            assert_eq!(result, 0);
            value
        };
        let all = |fd: &OwnedFd| {
            [
                read(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT),
                read(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
                read(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY),
            ]
        };
        let (ours, address) = bind_listener(&any, &ListenOptions::DEFAULT).unwrap();
        assert_eq!(all(&ours), [1, DEFER_ACCEPT_S.cast_signed(), 1]);
        let plain = ListenOptions { reuseport: false, defer_accept: false, nodelay: false, ..ListenOptions::DEFAULT };
        let (bare, bare_address) = bind_listener(&any, &plain).unwrap();
        assert_eq!(all(&bare), [0, 0, 0]);
        // A port that is not shared is not shared by one side alone either.
        assert!(bind_listener(&bare_address, &ListenOptions::DEFAULT).is_err());
        assert!(bind_listener(&address, &plain).is_err());
        // One that was opened by somebody else is made the same.
        ListenOptions::DEFAULT.apply(bare.as_fd()).unwrap();
        assert_eq!(all(&bare), [0, DEFER_ACCEPT_S.cast_signed(), 1]);
        let polling = ListenOptions { busy_poll_us: 50, backlog: 2, ..ListenOptions::DEFAULT };
        match bind_listener(&any, &polling) {
            Ok((polling, _)) => assert_eq!(read(&polling, libc::SOL_SOCKET, libc::SO_BUSY_POLL), 50),
            Err(error) => assert!(error.to_string().contains("SO_BUSY_POLL"), "{error}"),
        }
        assert_eq!(ListenOptions::default().backlog, BACKLOG);
    }

    #[test]
    fn a_configured_backlog_limits_pending_connections() {
        let options = ListenOptions { backlog: 1, defer_accept: false, ..ListenOptions::DEFAULT };
        let (_listener, address) = bind_listener(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        // The kernel takes one more than it was told.
        let taken: Vec<_> = (0..8).map_while(|_| connect().ok()).collect();
        assert!((1..8).contains(&taken.len()), "{}", taken.len());
    }

    #[test]
    fn unacknowledged_bytes_are_known() {
        let (listener, address) = bind_listener(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::DEFAULT).unwrap();
        let listener = std::net::TcpListener::from(listener);
        listener.set_nonblocking(false).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"x").unwrap();
        let mut server = listener.accept().unwrap().0;
        assert_eq!(unacknowledged_bytes(server.as_fd()).unwrap(), 0);
        server.set_nonblocking(true).unwrap();
        while server.write(&[0; 4096]).is_ok() {}
        let stuck = unacknowledged_bytes(server.as_fd()).unwrap();
        assert!(stuck > 0);
        // As the client reads, its kernel takes more.
        while unacknowledged_bytes(server.as_fd()).unwrap() == stuck {
            assert!(client.read(&mut [0; 4096]).unwrap() > 0);
        }
    }

    #[test]
    fn reading_socket_tables_stops_after_listeners() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0\n\
            1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4\n\
            2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0\n";
        let local = "127.0.0.1:8080".parse().unwrap();
        assert_eq!(parse_listening(text.as_bytes()).unwrap(), vec![ListeningSocket { local, inode: 4711 }]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn addresses_in_proc_are_native_endian_words() {
        assert_eq!(parse_address("00000000:0050"), "0.0.0.0:80".parse().ok());
        assert_eq!(parse_address("00000000000000000000000001000000:1F90"), "[::1]:8080".parse().ok());
        assert_eq!(parse_address("0000000000000000FFFF00000100007F:1F90"), "[::ffff:127.0.0.1]:8080".parse().ok());
        for broken in ["", ":", "0100007F", "0100007:1F90", "0100007F:G", "ÄÄÄÄ:1"] {
            assert_eq!(parse_address(broken), None, "{broken}");
        }
    }

    #[test]
    fn unspecified_listeners_serve_every_address_of_their_family() {
        let served = |local: &str, address: &str| {
            ListeningSocket { local: local.parse().unwrap(), inode: 1 }.serves(address.parse().unwrap())
        };
        assert!(served("0.0.0.0:80", "127.0.0.1:80"));
        assert!(served("[::]:80", "127.0.0.1:80") && served("[::]:80", "[::1]:80"));
        assert!(served("[::ffff:127.0.0.1]:80", "127.0.0.1:80"));
        assert!(!served("0.0.0.0:80", "[::1]:80"));
        assert!(!served("127.0.0.1:81", "127.0.0.1:80") && !served("127.0.0.2:80", "127.0.0.1:80"));
    }

    #[test]
    fn the_process_that_listens_at_a_unix_socket_is_found() {
        let folder = std::env::temp_dir().join(format!("flatout socket {}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, link) = (folder.join("a socket"), folder.join("link"));
        let listener = UnixListener::bind(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        // Connections have the same path, but do not listen.
        let client = UnixStream::connect(&path).unwrap();
        let accepted = listener.accept().unwrap();
        for path in [&path, &link] {
            let inodes = read_listening_unix(path).unwrap();
            assert_eq!(inodes.len(), 1);
            assert!(read_holders(&inodes).unwrap().0.contains(&std::process::id()));
        }
        assert!(read_listening_unix(&folder.join("another")).unwrap().is_empty());
        drop((listener, client, accepted));
        assert!(read_listening_unix(&path).unwrap().is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn socket_links_are_recognised() {
        assert_eq!(parse_socket_link("socket:[12]"), Some(12));
        assert_eq!(parse_socket_link("pipe:[12]"), None);
    }
}
