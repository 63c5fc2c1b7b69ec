//! Other programs that a test starts, and what they need to start.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

/// A process that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM, so that it takes its own children along.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// A port that nobody has now. It is below those that the kernel gives to outgoing connections, and each test process
/// begins elsewhere, so that hardly anybody takes it before its user does.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn php_fpm() -> PathBuf {
    let programs = fs::read_dir("/usr/sbin").unwrap().flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        programs.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("php-fpm")).collect();
    found.sort();
    found.pop().expect("PHP-FPM is not installed; please run: apt-get install php-fpm (or `make test`)")
}

/// Returns true if the tests run as root: PHP-FPM and nginx then want to be told whom to work as.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
