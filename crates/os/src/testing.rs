//! Helpers for unit tests: waiting for a condition or for a peer to read, and attempting what a confined process must
//! not be able to do. Nothing here sleeps for a fixed time.

#![allow(clippy::panic, clippy::expect_used)] // a wait that is too long fails the test
#![allow(unsafe_code)] // ptrace, which no safe wrapper offers

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Time after which a wait fails the test.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until `holds` returns true. Yields the core between two checks.
///
/// # Panics
/// If that takes more than 30 seconds; the message contains `what`.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "never: {what}");
        thread::yield_now();
    }
}

/// Begins to trace the process `pid` with ptrace, without stopping it. The kernel ends the tracing when this process
/// exits.
///
/// # Errors
/// If the kernel refuses.
pub fn trace(pid: u32) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_SEIZE accesses no memory of this process, and both pointers are null.
    let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until the peer, a socket on this machine, has read everything that was sent on `stream`.
///
/// # Panics
/// If that takes more than 30 seconds, or if `stream` is not connected through IPv4.
pub fn wait_until_read(stream: &TcpStream) {
    let (local, peer) = (stream.local_addr(), stream.peer_addr());
    let (local, peer) = (shown(local.expect("a socket")), shown(peer.expect("a connection")));
    wait_until("the peer has read everything", || {
        let table = fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp");
        let queues = |from: &str, to: &str| {
            let mut columns = table.lines().map(|line| line.split_whitespace().skip(1));
            columns.find_map(|mut columns| {
                let is_it = columns.next() == Some(from) && columns.next() == Some(to);
                columns.nth(1).filter(|_| is_it).map(str::to_owned)
            })
        };
        // Number of bytes to be sent and to be read, in hexadecimal. A closed socket has no line in the table.
        let is_sent = queues(&local, &peer).is_none_or(|queues| queues.starts_with("00000000:"));
        let is_read = queues(&peer, &local).is_none_or(|queues| queues.ends_with(":00000000"));
        is_sent && is_read
    });
}

/// An address as /proc/net/tcp shows it.
fn shown(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else { panic!("{address} is not IPv4") };
    format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
}

#[cfg(test)]
mod tests {
    use super::wait_until_read;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn waiting_for_a_reading_peer_succeeds() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        stream.write_all(b"abc").unwrap();
        let is_read = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                is_read.store(true, Ordering::SeqCst);
                peer.read_exact(&mut [0; 3]).unwrap();
            });
            wait_until_read(&stream);
            assert!(is_read.load(Ordering::SeqCst));
        });
    }
}
