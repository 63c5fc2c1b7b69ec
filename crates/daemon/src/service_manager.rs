//! Notifications to systemd (sd_notify(3)): ready, reloading, stopping, watchdog. Without systemd, none are sent.

use sd_notify::{NotifyState, watchdog_enabled};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Maximum time that the notification of a state change waits for space in the service manager's queue. Each is sent only
/// once, so it must have time to arrive. `sd_notify::notify` would wait without a limit.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

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
            let _ = send(address, states, SEND_TIMEOUT);
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

/// Sends `states`. Waits up to `timeout` for space in the queue, except for the watchdog, whose next notification follows.
fn send(address: &SocketAddr, states: &[NotifyState<'_>], timeout: Duration) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match states {
        [NotifyState::Watchdog] => socket.set_nonblocking(true)?,
        _ => socket.set_write_timeout(Some(timeout))?,
    }
    let mut text = String::new();
    for state in states {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{state}");
    }
    loop {
        match socket.send_to_addr(text.as_bytes(), address) {
            // Signals interrupt a send with a timeout (signal(7)).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ServiceManager, parse_address, send};
    use sd_notify::NotifyState;
    use std::io::ErrorKind;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::time::Duration;

    #[test]
    fn a_service_manager_that_does_not_read_blocks_nothing_and_gets_later_states() {
        let name = format!("flatout-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let address = parse_address(&format!("@{name}").into()).unwrap();
        let service = ServiceManager { address: Some(address.clone()), watchdog_interval: None };
        // More than the queue of any socket holds (net.unix.max_dgram_qlen).
        for _ in 0..5_000 {
            service.alive();
        }
        let stopping = [NotifyState::Stopping];
        let refused = send(&address, &stopping, Duration::from_millis(1)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let receive = || {
            let mut buffer = [0; 64];
            let count = manager.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..count]).into_owned()
        };
        assert_eq!(receive(), "WATCHDOG=1\n");
        send(&address, &stopping, Duration::from_millis(1)).unwrap();
        while receive() != "STOPPING=1\n" {}
    }
}
