//! Kernel memory of data that was sent on accepted TCP connections and has not been acknowledged.

#![allow(unsafe_code)] // an option and the address of sockets that other threads own

use std::collections::BTreeSet;
use std::os::fd::RawFd;

/// The socket option that returns a socket's memory, as an array (include/uapi/asm-generic/socket.h).
const SO_MEMINFO: libc::c_int = 55;

/// Length of that array, and the index of the memory of data to send (include/uapi/linux/sock_diag.h).
const FIELDS: usize = 9;
const WRITE_QUEUED: usize = 5;

/// Kernel memory of data that has not been acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendMemory {
    /// Number of bytes, as the kernel counts them: the data, and what manages it.
    pub bytes: u64,
    /// Number of connections with such data.
    pub connections: u64,
}

impl SendMemory {
    /// Returns the memory of this process's TCP connections to these local ports whose descriptors are at most
    /// `descriptor_max`. Takes one or two system calls for each descriptor, so it must not run on an event loop. A
    /// connection that opens or closes meanwhile may be left out.
    pub fn measure(ports: &BTreeSet<u16>, descriptor_max: RawFd) -> Self {
        let mut sum = Self::default();
        for descriptor in 0..=descriptor_max {
            let bytes = queued_bytes(descriptor);
            if bytes > 0 && local_port(descriptor).is_some_and(|port| ports.contains(&port)) {
                sum.bytes += u64::from(bytes);
                sum.connections += 1;
            }
        }
        sum
    }
}

/// Returns the memory of a TCP socket's data to send; 0 if the descriptor is no TCP socket.
fn queued_bytes(descriptor: RawFd) -> u32 {
    let mut fields = [0_u32; FIELDS];
    let mut length = size_of_val(&fields) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `fields`, which is that large, and every bit pattern is valid.
    // If the descriptor is closed or no socket, the call fails; if it was reused, it reads the other socket's memory.
    let result = unsafe {
        libc::getsockopt(descriptor, libc::SOL_SOCKET, SO_MEMINFO, (&raw mut fields).cast(), &raw mut length)
    };
    if result == 0 { fields[WRITE_QUEUED] } else { 0 }
}

/// An address as the kernel writes it.
#[repr(C, align(8))]
struct AddressBytes([u8; size_of::<libc::sockaddr_storage>()]);

/// Returns the local port of a socket, unless it has none.
fn local_port(descriptor: RawFd) -> Option<u16> {
    let mut address = AddressBytes([0; size_of::<libc::sockaddr_storage>()]);
    let mut length = size_of::<AddressBytes>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `address`, which is that large, and every bit pattern is valid.
    // The descriptor is as above.
    let result = unsafe { libc::getsockname(descriptor, (&raw mut address).cast(), &raw mut length) };
    // Both families have the port at the same offset.
    let [family @ .., high, low] = address.0.first_chunk::<4>()?;
    let is_ip = [libc::AF_INET, libc::AF_INET6].contains(&u16::from_ne_bytes(*family).into());
    (result == 0 && is_ip).then(|| u16::from_be_bytes([*high, *low]))
}

#[cfg(test)]
mod tests {
    use super::SendMemory;
    use crate::socket::unacknowledged_bytes;
    use std::collections::BTreeSet;
    use std::io::Write as _;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
    use std::os::fd::{AsFd as _, AsRawFd as _};

    #[test]
    fn unread_data_of_accepted_connections_is_counted() {
        for host in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            // There may be no IPv6.
            let Ok(listener) = TcpListener::bind::<(IpAddr, u16)>((host, 0)) else { continue };
            let address = listener.local_addr().unwrap();
            let (mut client, other) = (TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap());
            let (mut accepted, _idle) = (listener.accept().unwrap().0, listener.accept().unwrap().0);
            let ports = BTreeSet::from([address.port()]);
            let descriptor_max =
                [accepted.as_raw_fd(), client.as_raw_fd(), other.as_raw_fd()].into_iter().max().unwrap();
            assert_eq!(SendMemory::measure(&ports, descriptor_max), SendMemory::default());
            // What the other side sends is not counted.
            for stream in [&mut accepted, &mut client] {
                stream.set_nonblocking(true).unwrap();
                while stream.write(&[0; 16 * 1024]).is_ok() {}
            }
            let memory = SendMemory::measure(&ports, descriptor_max);
            let unacknowledged = u64::from(unacknowledged_bytes(accepted.as_fd()).unwrap());
            assert!(memory.connections == 1 && unacknowledged > 0, "{memory:?}, {unacknowledged} bytes");
            assert!(memory.bytes >= unacknowledged, "{memory:?}, {unacknowledged} bytes");
            assert_eq!(SendMemory::measure(&BTreeSet::new(), descriptor_max), SendMemory::default());
        }
    }
}
