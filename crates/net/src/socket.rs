//! Listeners, socket options, and who holds a port.

#![allow(unsafe_code)] // socket options and one question that no safe wrapper offers

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Connections the kernel completes before we accept them; the kernel caps it at net.core.somaxconn (4096).
const BACKLOG: i32 = 4096;

/// How long the kernel keeps a connection to itself while the client sends nothing, in seconds. A client that only
/// connects is handed over after that, so nothing is lost.
const DEFER_ACCEPT_S: u32 = 1;

/// Creates a non-blocking TCP socket for `address`.
pub fn new_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?)
}

/// Whether anyone listens at `address` already. With SO_REUSEPORT two servers of one user would share a port without
/// a word, so this is asked without it first.
pub fn check_free(address: &SocketAddr) -> io::Result<()> {
    let socket = new_socket(address)?;
    set_socket_reuseaddr(&socket, true)?;
    Ok(bind(&socket, address)?)
}

/// A listener that shares its port with the other workers' listeners. Returns the address too, which tells the port
/// when 0 was asked for. TCP_NODELAY is inherited by accepted connections, which saves each a system call.
pub fn bind_listener(address: &SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = new_socket(address)?;
    set_socket_reuseaddr(&socket, true)?;
    set_socket_reuseport(&socket, true)?;
    set_tcp_nodelay(&socket, true)?;
    set_tcp_defer_accept(socket.as_fd(), DEFER_ACCEPT_S)?;
    bind(&socket, address)?;
    listen(&socket, BACKLOG)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// TCP_DEFER_ACCEPT: the listener wakes when a client's first bytes are there, so that accept, receive, send and
/// close follow one another without a wait.
pub fn set_tcp_defer_accept(fd: BorrowedFd<'_>, seconds: u32) -> rustix::io::Result<()> {
    let value = libc::c_int::try_from(seconds).unwrap_or(libc::c_int::MAX);
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value)
}

/// IP_BIND_ADDRESS_NO_PORT: binding a source address leaves the choice of the port to connect, which may then use
/// one port for several destinations.
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

/// Bytes handed to the kernel that the peer has not acknowledged (SIOCOUTQ).
pub fn unacknowledged_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel writes one int to where the pointer
    // leads.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { Ok(u32::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

/// The process that listens on `port`, as (pid, name), when /proc lets us see it.
pub fn find_port_owner(port: u16) -> Option<(u32, String)> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        let holds = descriptors.flatten().any(|descriptor| {
            fs::read_link(descriptor.path())
                .is_ok_and(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str()))
        });
        if holds {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some((pid, name.trim().to_owned()));
        }
    }
    None
}

/// Inodes of the sockets that listen on `port`, from the text of /proc/net/tcp.
pub fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let listens = columns.get(3) == Some(&LISTEN) && columns.get(1)?.ends_with(&suffix);
            if listens { columns.get(9)?.parse().ok() } else { None }
        })
        .collect()
}

/// The next port above `address`'s that is free, looking at no more than 100.
pub fn suggest_port(address: &SocketAddr) -> Option<u16> {
    (1..=100_u16)
        .filter_map(|step| address.port().checked_add(step))
        .find(|&port| check_free(&SocketAddr::new(address.ip(), port)).is_ok())
}

/// Raises the soft limit on descriptors to the hard one, and returns it.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{bind_listener, check_free, find_port_owner, listening_inodes, suggest_port, unacknowledged_bytes};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn a_taken_port_is_seen_named_and_another_suggested() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (_listener, address) = bind_listener(&any).unwrap();
        assert!(check_free(&address).is_err());
        assert_eq!(find_port_owner(address.port()).unwrap().0, std::process::id());
        let suggested = suggest_port(&address).unwrap();
        assert!(suggested > address.port());
        // Our own other workers may share it.
        assert!(bind_listener(&address).is_ok());
    }

    #[test]
    fn what_the_peer_has_not_taken_is_known() {
        let (listener, address) = bind_listener(&"127.0.0.1:0".parse().unwrap()).unwrap();
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
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n\
            1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4243 1\n\
            2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4244 1\n\
            3: short\n";
        assert_eq!(listening_inodes(table, 8080), [4242]);
    }
}
