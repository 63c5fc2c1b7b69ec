//! Worker processes: how the supervisor starts one, and the first message that it sends.

use super::{Change, Supervisor};
use crate::certificates::{CertificateParcel, CertificateSet, Certificates, Loaded};
use crate::channel::Channel;
use crate::failure::{Failure, say};
use crate::inherit::{ADMIN, DATAGRAMS, LISTENERS, QUIC, READY, WORKER};
use crate::listeners::Address;
use crate::messages::{AdminPath, ConfigParcel, QuicParcel, Start, ToWorker};
use crate::quic::relay_sockets;
use crate::source::ConfigSource;
use crate::start::count_workers;
use crate::upgrade::remove_service_variables;
use flatout_net::quic::ids::Owner;
use flatout_os::clock;
use rustix::io::{Errno, dup};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

/// This program, even if another one has its name by now.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The purpose of a worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It will serve once it is ready, and no other does.
    Starting,
    /// It will take over from the current one once it is ready.
    Candidate,
    /// It serves.
    Current,
    /// It finishes the requests in progress.
    Leaving,
    /// It has not become ready in time for its reload, and was killed.
    Abandoned,
}

#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) child: Child,
    /// Readable once it has exited.
    pub(super) exited: OwnedFd,
    pub(super) channel: Channel,
    /// True if the channel is of no use any more.
    pub(super) is_silent: bool,
    pub(super) role: Role,
    /// Its number as an owner of QUIC connections.
    pub(super) generation: u8,
    /// Its worker threads.
    pub(super) workers: usize,
    /// Closed once the process before it receives no more datagrams.
    pub(super) go: Option<OwnedFd>,
    /// True if Landlock confines it.
    pub(super) confined: bool,
    /// True if it may lack the current certificates, because a message was lost.
    pub(super) lacks_certificates: bool,
    /// Why it could not start, as it said.
    pub(super) failure: Option<Failure>,
}

impl WorkerProcess {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a message. A process that does not receive is stopped: it could not serve either.
    pub(super) fn tell(&mut self, message: &ToWorker, descriptors: &[BorrowedFd<'_>]) {
        if self.is_silent {
            return;
        }
        if let Err(error) = self.channel.send(message, descriptors)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            say(&format!("error: the worker process {} receives no messages: {error}", self.pid()));
            let _ = self.child.kill();
        }
    }
}

impl Supervisor {
    /// Starts a worker process; a candidate for the change, any other for the configuration in force.
    pub(super) fn start_process(&mut self, role: Role) -> io::Result<()> {
        let workers = match &self.change {
            Some(change) if role == Role::Candidate => count_workers(&change.config),
            _ => count_workers(&self.config),
        };
        self.connect_relays()?;
        let generation = self.generation.map_or_else(|| self.quic.generation(), Owner::next_generation);
        // The previous process receives datagrams until the supervisor tells it that another one serves.
        let (wait, go) = match (self.current(), &self.quic.go) {
            (Some(_), _) => {
                let (wait, go) = pipe_with(PipeFlags::CLOEXEC)?;
                (Some(wait), Some(go))
            }
            (None, Some(go)) => (Some(rustix::io::fcntl_dupfd_cloexec(go, 0)?), None),
            (None, None) => (None, None),
        };
        let (channel, other) = Channel::pair()?;
        let child = start_program(&self.options.source, &other)?;
        drop(other);
        let exited = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
        let exited = exited.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let mut child = child;
        let exited = match exited {
            Ok(exited) => exited,
            Err(errno) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(errno.into());
            }
        };
        let change = self.change.as_ref().filter(|_| role == Role::Candidate);
        let (start, descriptors) = self.describe_start(change, generation, wait.as_ref());
        if let Err(error) = channel.send(&ToWorker::Start(Box::new(start)), &descriptors) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        self.generation = Some(generation);
        self.started_at = clock::now();
        self.processes.push(WorkerProcess {
            child,
            exited,
            channel,
            is_silent: false,
            role,
            generation,
            workers,
            go,
            confined: false,
            lacks_certificates: false,
            failure: None,
        });
        Ok(())
    }

    /// Prepares that another process relays datagrams to the worker process that serves.
    pub(super) fn connect_relays(&mut self) -> io::Result<()> {
        let Some(current) = self.current() else { return Ok(()) };
        let process = &mut self.processes[current];
        let is_connected = self.relays.iter().any(|(generation, _)| *generation == process.generation);
        if is_connected || !self.addresses.iter().any(Address::serves_http3) {
            return Ok(());
        }
        let (senders, receivers) = relay_sockets(process.workers)?;
        let descriptors: Vec<_> = receivers.iter().map(|socket| socket.as_fd()).collect();
        process.tell(&ToWorker::Relayed, &descriptors);
        self.relays.push((process.generation, senders));
        Ok(())
    }

    /// The first message to a worker process for `change`, or for the configuration in force.
    pub(super) fn describe_start<'a>(
        &'a self,
        change: Option<&'a Change>,
        generation: u8,
        wait: Option<&'a OwnedFd>,
    ) -> (Start, Vec<BorrowedFd<'a>>) {
        let is_kept = |address: &&Address| change.is_none_or(|change| !change.removed.contains(&address.id));
        let changed = |address: &&Address| {
            change.is_some_and(|change| {
                change.datagrams.iter().any(|(id, sockets)| *id == address.id && !sockets.is_empty())
            })
        };
        let addresses = self.addresses.iter().filter(is_kept).filter(|address| !changed(address));
        let added = change.into_iter().flat_map(|change| &change.added);
        let (mut parcel, mut descriptors) = ConfigParcel::new(
            change.map_or(&self.files, |change| &change.files).clone(),
            self.certificates_for(change),
            addresses.chain(added),
            std::iter::empty(),
        );
        for address in self.addresses.iter().filter(is_kept).filter(changed) {
            let datagrams = change.into_iter().flat_map(|change| &change.datagrams);
            for (_, sockets) in datagrams.filter(|(id, _)| *id == address.id) {
                parcel.add(&address.asked, address.sockets(), sockets, &mut descriptors);
            }
        }
        let admin = self.admin.as_ref().map(|admin| {
            descriptors.push(admin.listener.as_fd());
            AdminPath(admin.file.path().to_owned())
        });
        descriptors.extend(wait.map(|wait| wait.as_fd()));
        let mut predecessors = Vec::new();
        let own = self.relays.iter().map(|(generation, sockets)| (*generation, sockets.as_slice()));
        for (number, sockets) in own.chain(self.quic.predecessors()) {
            predecessors.push((number, sockets.len()));
            descriptors.extend(sockets.iter().map(|socket| socket.as_fd()));
        }
        let quic = QuicParcel {
            generation,
            secrets: self.quic.secrets().as_bytes().to_vec(),
            must_wait: wait.is_some(),
            predecessors,
        };
        let (config, confinement) =
            change.map_or((&self.config, &self.confinement), |change| (&change.config, &change.confinement));
        let mut history = self.history.clone();
        history.generation += u64::from(change.is_some());
        let start = Start {
            parcel,
            confinement: config.landlock().then(|| confinement.clone()),
            admin,
            quic,
            history,
            supervisor: std::process::id(),
            identity: self.identity.map(|identity| (identity.uid, identity.gid)),
            alive_interval_ms: self.service_manager.watchdog_interval.map(|interval| interval.as_millis() as u64),
        };
        (start, descriptors)
    }

    pub(super) fn certificates_for(&self, change: Option<&Change>) -> CertificateParcel {
        match change.and_then(|change| change.certificates.as_ref()) {
            Some(CertificateSet(loaded)) => loaded.as_ref().map(Loaded::parcel).unwrap_or_default(),
            None => self.certificates.as_ref().map(Certificates::parcel).unwrap_or_default(),
        }
    }
}

/// Starts this program as a worker process for `source`, which finds its supervisor at `socket`. Its command line names
/// the configuration that the supervisor has found: the worker process may not find it again.
fn start_program(source: &ConfigSource, socket: &OwnedFd) -> io::Result<Child> {
    let mut option = OsString::from("--config=");
    option.push(source.path().unwrap_or(Path::new("")));
    let name = std::env::args_os().next().unwrap_or_else(|| "flatout".into());
    let start = |program: &Path| {
        // A copy without close-on-exec, which exists until the new process has it.
        let copy = dup(socket)?;
        let mut command = Command::new(program);
        command.arg0(&name).arg("run").arg(&option).env(WORKER, copy.as_raw_fd().to_string());
        for name in [LISTENERS, DATAGRAMS, QUIC, READY, ADMIN, "NOTIFY_SOCKET", "WATCHDOG_USEC"] {
            command.env_remove(name);
        }
        remove_service_variables(&mut command);
        command.spawn()
    };
    // Without /proc, the program that now has the name, as in an upgrade.
    start(Path::new(OWN_PROGRAM)).or_else(|error| match std::env::args_os().next() {
        Some(program) => start(Path::new(&program)),
        None => Err(error),
    })
}

/// Returns whether one of the signals that ask a process to stop has ended it.
pub(super) fn is_stop_signal(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(libc::SIGINT | libc::SIGTERM))
}

/// How a process ended: `exited with code 1`, `was killed by signal 9`.
pub(super) fn describe_ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => {
            let name = match signal {
                libc::SIGKILL => " (SIGKILL)",
                libc::SIGSEGV => " (SIGSEGV)",
                libc::SIGABRT => " (SIGABRT)",
                libc::SIGBUS => " (SIGBUS)",
                libc::SIGILL => " (SIGILL)",
                libc::SIGSYS => " (SIGSYS)",
                _ => "",
            };
            format!("was killed by signal {signal}{name}")
        }
        (None, None) => "has exited".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{describe_ending, is_stop_signal};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    #[test]
    fn only_signals_to_stop_are_no_failure_of_a_process_that_is_not_ready() {
        for (raw, expected) in
            [(libc::SIGINT, true), (libc::SIGTERM, true), (libc::SIGKILL, false), (2 << 8, false), (0, false)]
        {
            assert_eq!(is_stop_signal(ExitStatus::from_raw(raw)), expected, "{raw}");
        }
    }

    #[test]
    fn endings_are_named() {
        assert_eq!(describe_ending(ExitStatus::from_raw(3 << 8)), "exited with code 3");
        assert_eq!(describe_ending(ExitStatus::from_raw(libc::SIGSEGV)), "was killed by signal 11 (SIGSEGV)");
        assert_eq!(describe_ending(ExitStatus::from_raw(libc::SIGUSR1)), "was killed by signal 10");
    }
}
