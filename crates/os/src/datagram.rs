//! UDP sockets, and the BPF program that distributes the packets of a port among its sockets.

#![allow(unsafe_code)] // one socket option that no safe wrapper offers

use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_reuseport,
    set_socket_send_buffer_size, socket_recv_buffer_size,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

/// One instruction of a classic BPF program, as in `linux/filter.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Opcode: the operation with its class, size and source.
    pub code: u16,
    /// Number of instructions to skip if the condition is true.
    pub jump_true: u8,
    /// Number of instructions to skip if the condition is false.
    pub jump_false: u8,
    /// The constant, offset or jump distance that the instruction uses.
    pub operand: u32,
}

fn new_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        // As for TCP: [::] and 0.0.0.0 can be bound separately.
        set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// Checks that no other socket is bound to `address`. With SO_REUSEPORT, two servers of the same user would silently
/// share a port, so this check binds without it.
pub fn check_free(address: &SocketAddr) -> io::Result<()> {
    Ok(bind(&new_socket(address)?, address)?)
}

/// Opens a UDP socket, which shares its port with other sockets if `reuseport` is true. Also returns its address, which
/// contains the port that the kernel has chosen if the requested port is 0.
pub fn bind_datagram(address: &SocketAddr, reuseport: bool) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = new_socket(address)?;
    set_socket_reuseport(&socket, reuseport)?;
    bind(&socket, address)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// Requests buffers of `receive_bytes` and `send_bytes`. Returns the actual size of the receive buffer in bytes, which
/// net.core.rmem_max may limit.
pub fn set_buffers(socket: BorrowedFd<'_>, receive_bytes: usize, send_bytes: usize) -> io::Result<usize> {
    // With CAP_NET_ADMIN, the kernel's limit does not apply.
    set_socket_recv_buffer_size_force(socket, receive_bytes)
        .or_else(|_| set_socket_recv_buffer_size(socket, receive_bytes))?;
    set_socket_send_buffer_size(socket, send_bytes)?;
    receive_buffer(socket)
}

/// The size of the receive buffer, in bytes.
pub fn receive_buffer(socket: BorrowedFd<'_>) -> io::Result<usize> {
    // The kernel reports twice the usable size, to account for its own structures.
    Ok(socket_recv_buffer_size(socket)? / 2)
}

/// Attaches a program that chooses the socket for each packet of a port (SO_ATTACH_REUSEPORT_CBPF). `program` returns
/// the socket's index among the sockets that share the port, in the order in which they were bound. It applies to all
/// of these sockets, including sockets bound later.
pub fn attach_steering(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|instruction| libc::sock_filter {
            code: instruction.code,
            jt: instruction.jump_true,
            jf: instruction.jump_false,
            k: instruction.operand,
        })
        .collect();
    let Ok(len) = u16::try_from(filter.len()) else { return Err(io::ErrorKind::InvalidInput.into()) };
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the descriptor is open for as long as it is borrowed, `program` describes the instructions in `filter`,
    // and the kernel only reads both during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::{Instruction, attach_steering, bind_datagram, check_free, set_buffers};
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd as _;

    #[test]
    fn a_program_chooses_the_socket() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (first, bound) = bind_datagram(&any, true).unwrap();
        let (second, _) = bind_datagram(&bound, true).unwrap();
        assert!(check_free(&bound).is_err());
        // Return the first byte of the datagram.
        let load = Instruction { code: 0x30, jump_true: 0, jump_false: 0, operand: 0 };
        let give = Instruction { code: 0x16, jump_true: 0, jump_false: 0, operand: 0 };
        attach_steering(first.as_fd(), &[load, give]).unwrap();
        let sockets = [UdpSocket::from(first), UdpSocket::from(second)];
        let client = UdpSocket::bind(any).unwrap();
        for index in [0_u8, 1, 1, 0, 1] {
            client.send_to(&[index], bound).unwrap();
            let mut byte = [9];
            let socket = &sockets[usize::from(index)];
            socket.set_nonblocking(false).unwrap();
            assert_eq!((socket.recv(&mut byte).unwrap(), byte), (1, [index]));
        }
    }

    #[test]
    fn the_size_of_the_receive_buffer_is_known() {
        let (socket, _) = bind_datagram(&"127.0.0.1:0".parse().unwrap(), false).unwrap();
        assert_eq!(set_buffers(socket.as_fd(), 64 << 10, 64 << 10).unwrap(), 64 << 10);
    }
}
