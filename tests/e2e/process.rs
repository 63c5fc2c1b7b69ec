//! Other programs that a test starts, and what they need to start.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};

/// A process that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM, so that it takes its own children along.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// A port that nobody has now. Somebody may take it before its user does; then that one does not start.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn php_fpm() -> PathBuf {
    let programs = fs::read_dir("/usr/sbin").unwrap().flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        programs.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("php-fpm")).collect();
    found.sort();
    found.pop().expect("PHP-FPM is not installed; please run: apt-get install php-fpm (or `make test`)")
}

/// Whether the tests run as root: PHP-FPM and nginx then want to be told whom to work as.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
