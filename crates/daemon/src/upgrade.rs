//! Handing over to a new process, which has the same command line, uses the program now on disk, and receives this
//! process's sockets.
//!
//! The new process reports when it is ready. Until then, nothing changes: if the new process fails, exits or exceeds
//! the timeout, it is stopped, the failure is reported, and this process continues. Once the new process is ready, both
//! processes briefly accept connections from the same sockets. Then this process stops accepting, and leaves queued
//! connections to the new process.

use crate::admin::CommandResult;
use crate::admin::socket::AdminSocket;
use crate::control::Control;
use crate::failure::say;
use crate::inherit::{ADMIN, DATAGRAMS, FILES, LISTENERS, QUIC, READY, READY_WORD, format_files, format_listeners};
use crate::listeners::{Address, socket_files};
use crate::quic::Handover;
use crate::socket_file::SocketFile;
use flatout_config::model::ListenAddress;
use flatout_os::clock;
use flatout_server::{Command as ServerCommand, Phase};
use rustix::io::{Errno, dup, read};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Maximum time until the new process is ready. Opening large stores takes a while.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// A new process that is not ready yet.
#[derive(Debug)]
pub(crate) struct Upgrade {
    child: Child,
    ready: OwnedFd,
    since: Instant,
    /// Closed when this process has stopped receiving QUIC datagrams.
    go: Option<OwnedFd>,
    /// The client that waits for the result, if any.
    asker: Option<SyncSender<CommandResult>>,
}

/// Removes systemd's variables, which are only for this process. The watchdog's process ID, for example, would be wrong
/// for the new process.
pub(crate) fn remove_service_variables(command: &mut Command) {
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
}

/// The state of the readiness pipe.
pub(crate) enum Word {
    /// No message has arrived yet.
    None,
    Ready,
    /// The other end is closed.
    Closed,
}

impl Upgrade {
    /// Starts the program at the path of the current program, with the same arguments and with this process's sockets.
    ///
    /// # Errors
    /// If the program cannot be started, or no descriptor is available.
    pub(crate) fn start(
        addresses: &[Address],
        quic: Option<Handover>,
        admin: Option<&AdminSocket>,
    ) -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        // The path is looked up again, so that the program currently at that path is started.
        let program = arguments.next().ok_or_else(|| io::Error::other("the path to this program is unknown"))?;
        let (ready, other_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Copies without close-on-exec exist until the new process has inherited them. No other program is started in
        // the meantime.
        let mut copies = vec![dup(&other_end)?];
        drop(other_end);
        let mut command = Command::new(program);
        command.args(arguments).env(READY, copies[0].as_raw_fd().to_string());
        for (name, sockets_of) in
            [(LISTENERS, Address::sockets as fn(&Address) -> &[OwnedFd]), (DATAGRAMS, Address::datagrams)]
        {
            let mut listed: Vec<(ListenAddress, Vec<RawFd>)> = Vec::new();
            for address in addresses.iter().filter(|address| !sockets_of(address).is_empty()) {
                let mut numbers = Vec::new();
                for socket in sockets_of(address) {
                    let copy = dup(socket)?;
                    numbers.push(copy.as_raw_fd());
                    copies.push(copy);
                }
                listed.push((address.asked.clone(), numbers));
            }
            command.env(name, format_listeners(&listed));
        }
        command.env(FILES, format_files(socket_files(admin, addresses)));
        let go = if let Some(handover) = quic {
            command.env(QUIC, &handover.text);
            copies.extend(handover.copies);
            Some(handover.go)
        } else {
            command.env_remove(QUIC);
            None
        };
        if let Some(admin) = admin {
            let copy = dup(&admin.listener)?;
            command.env(ADMIN, format!("{}:{}", copy.as_raw_fd(), admin.file.path().display()));
            copies.push(copy);
        } else {
            command.env_remove(ADMIN);
        }
        remove_service_variables(&mut command);
        let child = command.spawn()?;
        drop(copies);
        Ok(Self { child, ready, since: clock::now(), go, asker: None })
    }

    /// The process ID of the new process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Takes the end of the pipe that the new process watches. The new process starts receiving datagrams when this end
    /// is closed.
    pub(crate) fn take_go(&mut self) -> Option<OwnedFd> {
        self.go.take()
    }

    /// Stops the new process.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// A descriptor that is readable when the new process has sent its message or has exited.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Returns the time left until the timeout.
    pub(crate) fn time_left(&self) -> Duration {
        READY_TIMEOUT.saturating_sub(clock::since(self.since))
    }

    pub(crate) fn listen(&self) -> Word {
        let mut word = [0; READY_WORD.len()];
        match read(&self.ready, &mut word) {
            Ok(count) if count > 0 && word == *READY_WORD => Word::Ready,
            Err(Errno::AGAIN | Errno::INTR) => Word::None,
            _ => Word::Closed,
        }
    }

    /// Stops the new process, and returns the reason for the failure, with the exit status if the process exited by
    /// itself.
    pub(crate) fn give_up(&mut self) -> String {
        // The new process's end of the pipe may be closed a moment before the process exits.
        for _ in 0..50 {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("the new process exited with {status} before it was ready"),
                Ok(None) => clock::sleep(Duration::from_millis(2)),
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        format!("the new process was not ready within {} s", READY_TIMEOUT.as_secs())
    }
}

impl Control {
    /// Starts the new process. `asker` receives the result.
    pub(crate) fn begin_upgrade(&mut self, asker: Option<SyncSender<CommandResult>>) {
        let refused = if self.workers.phase() != Phase::Serve || !self.announced {
            Some("this process is starting or stopping; try again later")
        } else if self.upgrade.is_some() {
            Some("an upgrade is already in progress; try again later")
        } else {
            None
        };
        if let Some(text) = refused {
            say(&format!("upgrade refused: {text}"));
            tell(asker.as_ref(), 409, text);
            return;
        }
        match self.start_process() {
            Ok(upgrade) => {
                say(&format!("upgrade: starting process {}", upgrade.pid()));
                self.upgrade = Some(Upgrade { asker, ..upgrade });
            }
            Err(error) => self.report_failed_upgrade(asker.as_ref(), &format!("cannot start the new process: {error}")),
        }
    }

    fn start_process(&self) -> io::Result<Upgrade> {
        let quic = self.addresses.iter().any(Address::serves_http3);
        let mut quic = if quic { Some(self.quic.hand_over(self.workers.all.len())?) } else { None };
        if let Some(handover) = &mut quic {
            self.receive_relayed(std::mem::take(&mut handover.relayed));
        }
        Upgrade::start(&self.addresses, quic, self.admin.as_ref())
    }

    /// Gives each worker its socket of `relayed`, through which another process relays datagrams to it.
    pub(crate) fn receive_relayed(&self, relayed: Vec<OwnedFd>) {
        for (worker, socket) in self.workers.all.iter().zip(relayed) {
            // If a worker has exited, its socket is dropped.
            let _ = worker.commands.send(ServerCommand::ReceiveRelayed(socket));
        }
    }

    /// Advances the upgrade, if there is one, after an event.
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
        self.service_manager.hand_over(pid);
        say(&format!("upgrade: process {pid} is serving; this process finishes its requests in progress"));
        tell(
            upgrade.asker.as_ref(),
            200,
            &format!("process {pid} is serving; process {} finishes its requests in progress", std::process::id()),
        );
        self.leave_to_next(upgrade.go);
    }

    /// Leaves new connections and the admin socket to another process, which is already serving. Drops `go` when this
    /// process has stopped receiving datagrams.
    pub(crate) fn leave_to_next(&mut self, go: Option<OwnedFd>) {
        // The admin thread first responds to waiting clients. The socket file belongs to the new process.
        if let Some(thread) = &self.admin_thread {
            thread.stop();
        }
        socket_files(self.admin.as_ref(), &self.addresses).for_each(SocketFile::leave);
        self.admin = None;
        if let Some(go) = go {
            // Only one process at a time receives, so that neither process responds to packets of the other's
            // connections.
            self.workers.tell(|_| ServerCommand::ReceiveQuic(false));
            self.workers.wait_until_executed();
            drop(go);
        }
        // This is done on another thread, because pending data is written first. The new process retries every second.
        if let Some(store) = self.accelerator.store() {
            let store = Arc::clone(store);
            std::thread::spawn(move || store.release_volumes());
        }
        self.set_phase(Phase::HandOver);
    }

    /// Stops a new process that is no longer wanted.
    pub(crate) fn abandon_upgrade(&mut self, why: &str) {
        let Some(mut upgrade) = self.upgrade.take() else { return };
        upgrade.kill();
        self.report_failed_upgrade(upgrade.asker.as_ref(), why);
    }

    pub(crate) fn report_failed_upgrade(&self, asker: Option<&SyncSender<CommandResult>>, text: &str) {
        self.shared.upgrades_failed.fetch_add(1, Ordering::Relaxed);
        let text = format!("upgrade failed: {text}; this process continues to serve");
        say(&format!("error: {text}"));
        self.shared.view().last_error = Some(text.clone());
        tell(asker, 500, &text);
    }
}

/// Sends the result to the client, if it is still waiting.
fn tell(asker: Option<&SyncSender<CommandResult>>, status: u16, text: &str) {
    if let Some(asker) = asker {
        let _ = asker.try_send(CommandResult { status, text: format!("{text}\n") });
    }
}
