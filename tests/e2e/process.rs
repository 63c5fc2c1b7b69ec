//! Other programs that tests start, and what these need to start.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixDatagram};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// A process that is stopped when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM, so that it stops its own children too.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Returns a free port below the kernel's range for outgoing connections. No other call returns it while this process
/// runs, in this test program or in another one.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    /// A socket for each port, with the port in its abstract name, which only one process can bind at a time.
    static TAKEN: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    loop {
        let number = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        let name = unix::SocketAddr::from_abstract_name(format!("flatout-test-port-{port}")).unwrap();
        let Ok(taken) = UnixDatagram::bind_addr(&name) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            TAKEN.lock().unwrap().push(taken);
            return port;
        }
    }
}

/// A bound socket that does not listen: connections to its address are refused, and no other test can get its port.
pub(crate) struct Refusing(OwnedFd);

impl Refusing {
    pub(crate) fn new() -> Self {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        Self(socket)
    }

    /// Binds the port of a server that has exited, so that no other server and no client gets this port.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &address).unwrap();
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        getsockname(&self.0).unwrap().try_into().unwrap()
    }
}

pub(crate) fn php_fpm() -> PathBuf {
    let programs = fs::read_dir("/usr/sbin").unwrap().flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        programs.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("php-fpm")).collect();
    found.sort();
    found.pop().expect("PHP-FPM is not installed; please run: apt-get install php-fpm (or `make test`)")
}

/// Returns true if the tests run as root. PHP-FPM and nginx then need to be told which user to run as.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
