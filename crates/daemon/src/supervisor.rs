//! What systemd wants to know (sd_notify(3)): ready, reloading, stopping, still alive. Without it, nothing is said.

use sd_notify::{NotifyState, notify, watchdog_enabled};
use std::time::Duration;

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Supervisor {
    present: bool,
    /// How often it wants to hear of us.
    pub(crate) watchdog_interval: Option<Duration>,
}

impl Supervisor {
    /// Looks for it in the environment.
    pub(crate) fn find() -> Self {
        let present = std::env::var_os("NOTIFY_SOCKET").is_some();
        // Twice in the time it allows, as sd_watchdog_enabled(3) advises.
        let watchdog_interval = watchdog_enabled().filter(|_| present).map(|allowed| allowed / 2);
        Self { present, watchdog_interval }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if self.present {
            // A manager that does not listen is no reason to stop.
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

    /// Another process is the service now.
    pub(crate) fn hand_over(&self, pid: u32) {
        self.tell(&[NotifyState::MainPid(pid)]);
    }
}
