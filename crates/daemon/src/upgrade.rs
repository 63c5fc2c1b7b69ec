//! Handing over to a new process: the same command line, the program currently on disk, and this process's sockets.
//!
//! The new process reports readiness. Until then nothing changes: if it fails, times out or exits, it is stopped,
//! that is reported, and this process continues. Once it is ready, both accept from the same sockets for a moment;
//! then this process stops accepting, and leaves queued connections to the new one.

use crate::admin::CommandResult;
use crate::control::Control;
use crate::failure::say;
use crate::inherit::{ADMIN, LISTENERS, READY, READY_WORD, format_listeners};
use flatout_server::Phase;
use rustix::io::{Errno, dup, read};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Timeout for the new process's readiness. Opening large stores takes a while.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// A new process that is not ready yet.
#[derive(Debug)]
pub(crate) struct Upgrade {
    child: Child,
    ready: OwnedFd,
    since: Instant,
    /// The receiver of the result.
    asker: Option<SyncSender<CommandResult>>,
}

/// The message on the pipe.
enum Word {
    /// Nothing yet.
    None,
    Ready,
    /// The other end is closed.
    Closed,
}

impl Upgrade {
    /// Readable when the new process has sent its message, or has exited.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Time until the timeout.
    pub(crate) fn time_left(&self) -> Duration {
        READY_TIMEOUT.saturating_sub(self.since.elapsed())
    }

    fn listen(&self) -> Word {
        let mut word = [0; READY_WORD.len()];
        match read(&self.ready, &mut word) {
            Ok(count) if count > 0 && word == *READY_WORD => Word::Ready,
            Err(Errno::AGAIN | Errno::INTR) => Word::None,
            _ => Word::Closed,
        }
    }

    /// Stops the new process, and returns how it exited if it did so itself.
    fn give_up(&mut self) -> String {
        // Its end of the pipe may close a moment before it exits.
        for _ in 0..50 {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("the new process exited with {status} before it was ready"),
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        format!("the new process did not serve within {} s", READY_TIMEOUT.as_secs())
    }
}

impl Control {
    /// Starts the new process; `asker` receives the result.
    pub(crate) fn begin_upgrade(&mut self, asker: Option<SyncSender<CommandResult>>) {
        let refused = if self.workers.phase() != Phase::Serve || !self.announced {
            Some("not now: this process is starting or stopping")
        } else if self.upgrade.is_some() {
            Some("not now: an upgrade is under way")
        } else {
            None
        };
        if let Some(text) = refused {
            say(&format!("upgrade refused: {text}"));
            tell(asker.as_ref(), 409, text);
            return;
        }
        match self.start_process() {
            Ok((child, ready)) => {
                say(&format!("upgrade: process {} starts", child.id()));
                self.upgrade = Some(Upgrade { child, ready, since: Instant::now(), asker });
            }
            Err(error) => self.report_failed_upgrade(asker.as_ref(), &format!("cannot start the new process: {error}")),
        }
    }

    fn start_process(&self) -> io::Result<(Child, OwnedFd)> {
        let mut arguments = std::env::args_os();
        // Looked up again, so that it is the program currently at that name.
        let program = arguments.next().ok_or_else(|| io::Error::other("the path of this program is unknown"))?;
        let (ready, other_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Copies without close-on-exec exist until the new process has them; nothing else is started meanwhile.
        let mut copies = vec![dup(&other_end)?];
        drop(other_end);
        let mut command = Command::new(program);
        command.args(arguments).env(READY, copies[0].as_raw_fd().to_string());
        let mut listeners: Vec<(SocketAddr, Vec<RawFd>)> = Vec::new();
        for address in &self.addresses {
            let mut numbers = Vec::new();
            for socket in address.sockets() {
                let copy = dup(socket)?;
                numbers.push(copy.as_raw_fd());
                copies.push(copy);
            }
            listeners.push((address.asked, numbers));
        }
        command.env(LISTENERS, format_listeners(&listeners));
        if let Some(admin) = &self.admin {
            let copy = dup(&admin.listener)?;
            command.env(ADMIN, format!("{}:{}", copy.as_raw_fd(), admin.path().display()));
            copies.push(copy);
        } else {
            command.env_remove(ADMIN);
        }
        // systemd's variables are for this process only; the watchdog's process ID would not be the new one's.
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        let child = command.spawn()?;
        drop(copies);
        Ok((child, ready))
    }

    /// Advances an upgrade after an event.
    pub(crate) fn look_at_upgrade(&mut self) {
        let Some(upgrade) = &mut self.upgrade else { return };
        match upgrade.listen() {
            Word::None if !upgrade.time_left().is_zero() => {}
            Word::Ready => self.hand_over(),
            Word::None | Word::Closed => {
                let text = upgrade.give_up();
                let asker = upgrade.asker.take();
                self.upgrade = None;
                self.report_failed_upgrade(asker.as_ref(), &text);
            }
        }
    }

    fn hand_over(&mut self) {
        let Some(upgrade) = self.upgrade.take() else { return };
        let pid = upgrade.child.id();
        self.supervisor.hand_over(pid);
        say(&format!("upgrade: process {pid} serves; this one finishes its requests in progress"));
        tell(
            upgrade.asker.as_ref(),
            200,
            &format!("process {pid} serves; process {} finishes its requests in progress", std::process::id()),
        );
        // The thread responds to waiting clients first; the file belongs to the new process.
        if let Some(thread) = &self.admin_thread {
            thread.stop();
        }
        if let Some(admin) = &mut self.admin {
            admin.leave_file();
        }
        self.admin = None;
        // On another thread: pending data is written first, and the new process retries every second.
        if let Some(store) = self.accelerator.store() {
            let store = Arc::clone(store);
            std::thread::spawn(move || store.release_volumes());
        }
        self.set_phase(Phase::HandOver);
    }

    /// Stops a new process that is no longer wanted.
    pub(crate) fn abandon_upgrade(&mut self, why: &str) {
        let Some(mut upgrade) = self.upgrade.take() else { return };
        let _ = upgrade.child.kill();
        let _ = upgrade.child.wait();
        self.report_failed_upgrade(upgrade.asker.as_ref(), why);
    }

    fn report_failed_upgrade(&self, asker: Option<&SyncSender<CommandResult>>, text: &str) {
        self.shared.upgrades_failed.fetch_add(1, Ordering::Relaxed);
        let text = format!("upgrade failed: {text}; this process continues to serve");
        say(&format!("error: {text}"));
        self.shared.view().last_error = Some(text.clone());
        tell(asker, 500, &text);
    }
}

/// Sends the result to the client, if it still waits.
fn tell(asker: Option<&SyncSender<CommandResult>>, status: u16, text: &str) {
    if let Some(asker) = asker {
        let _ = asker.try_send(CommandResult { status, text: format!("{text}\n") });
    }
}
