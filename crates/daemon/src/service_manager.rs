//! Notifications to systemd (sd_notify(3)): ready, reloading, stopping, watchdog. Without systemd, none are sent.

use sd_notify::{NotifyState, watchdog_enabled};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Maximum time that a notification waits for space in the service manager's queue, except for the watchdog's, which do
/// not wait. `sd_notify::notify` would wait without a limit.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The service manager, if any.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    /// The address in `NOTIFY_SOCKET`.
    address: Option<SocketAddr>,
    /// Interval between watchdog notifications; `None` if none are expected.
    pub(crate) watchdog_interval: Option<Duration>,
}

impl ServiceManager {
    /// Finds the service manager from the environment.
    pub(crate) fn find() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET").and_then(|name| parse_address(&name).ok());
        // Half of the permitted interval, as recommended by sd_watchdog_enabled(3).
        let watchdog_interval = watchdog_enabled().filter(|_| address.is_some()).map(|allowed| allowed / 2);
        Self { address, watchdog_interval }
    }

    /// Creates a `ServiceManager` that sends nothing, because another process sends the notifications.
    pub(crate) const fn none() -> Self {
        Self { address: None, watchdog_interval: None }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if let Some(address) = &self.address {
            // A service manager that does not respond is not a reason to stop.
            let _ = send(address, states);
        }
    }

    pub(crate) fn ready(&self, status: &str) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    pub(crate) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    pub(crate) fn alive(&self) {
        self.tell(&[NotifyState::Watchdog]);
    }

    /// Reports that another process is now the service.
    pub(crate) fn hand_over(&self, pid: u32) {
        self.tell(&[NotifyState::MainPid(pid)]);
    }
}

fn parse_address(name: &OsString) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

fn send(address: &SocketAddr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match states {
        [NotifyState::Watchdog] => socket.set_nonblocking(true)?,
        _ => socket.set_write_timeout(Some(SEND_TIMEOUT))?,
    }
    let mut text = String::new();
    for state in states {
        let _ = writeln!(text, "{state}");
    }
    socket.send_to_addr(text.as_bytes(), address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::ServiceManager;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    #[test]
    fn a_service_manager_that_does_not_read_blocks_nothing() {
        let name = format!("flatout-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let service =
            ServiceManager { address: super::parse_address(&format!("@{name}").into()).ok(), watchdog_interval: None };
        // More than the queue of any socket holds (net.unix.max_dgram_qlen).
        for _ in 0..5_000 {
            service.alive();
        }
        service.stopping();
        let mut buffer = [0; 64];
        let count = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"WATCHDOG=1\n");
    }
}
