//! Notifications to systemd (sd_notify(3)): ready, reloading, stopping, watchdog. Without systemd, none are sent.

use sd_notify::{NotifyState, notify, watchdog_enabled};
use std::time::Duration;

/// The service manager, if any.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    present: bool,
    /// Interval between watchdog notifications; `None` if none are expected.
    pub(crate) watchdog_interval: Option<Duration>,
}

impl ServiceManager {
    /// Finds the service manager from the environment.
    pub(crate) fn find() -> Self {
        let present = std::env::var_os("NOTIFY_SOCKET").is_some();
        // Half of the permitted interval, as recommended by sd_watchdog_enabled(3).
        let watchdog_interval = watchdog_enabled().filter(|_| present).map(|allowed| allowed / 2);
        Self { present, watchdog_interval }
    }

    /// Creates a `ServiceManager` that sends nothing, because another process sends the notifications.
    pub(crate) const fn none() -> Self {
        Self { present: false, watchdog_interval: None }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if self.present {
            // A service manager that does not respond is not a reason to stop.
            let _ = notify(states);
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
