//! The supervisor of `flatout run`: it opens what needs privileges or the disk, and starts the worker process, which
//! serves. It reads no byte from the network.
//!
//! It reads the configuration and certificates, binds listeners, receives signals, and tells systemd. The worker
//! process gets all of it over a `Channel`, and confines itself for good. A reload that needs more than its
//! confinement permits gets a new worker process, which takes over as in an upgrade. If a worker process dies, another
//! one follows at most once per second; the listeners stay open in between.

mod change;
mod process;
mod upgrade;

use crate::Options;
use crate::admin::socket::AdminSocket;
use crate::admin::{CommandResult, OrderKind};
use crate::banner::introduce;
use crate::certificates::{Certificates, LOOK_INTERVAL};
use crate::channel::Incoming;
use crate::confine::{Confinement, lacks_port_rules};
use crate::failure::{EXIT_FAILED, EXIT_UNCLEAN, Failure, say};
use crate::folders::FolderCheck;
use crate::inherit::PreviousProcess;
use crate::listeners::access::AccessChange;
use crate::listeners::{Address, socket_files};
use crate::messages::{History, ToSupervisor, ToWorker};
use crate::quic::QuicContext;
use crate::service_manager::ServiceManager;
use crate::source::RecordedFiles;
use crate::start::{Bound, Unprivileged, count_workers, create_state, load, uses_authority};
use crate::upgrade::Upgrade;
use change::{Cause, Change, create_confined_files};
use flatout_config::model::Config;
use flatout_engine::spec::OpenedFolder;
use flatout_os::clock;
use flatout_os::process::Identity;
use flatout_os::signals::{SignalAction, Signals};
use flatout_server::Phase;
use process::{Role, WorkerProcess, describe_ending, is_stop_signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// Worker processes that die are replaced at most this often.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// Time that worker processes have to exit after an order to stop immediately.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(10);

/// Messages of one worker process that are handled before the supervisor looks at everything else again: a process that
/// was taken over may send without end.
const MESSAGES_PER_TURN: usize = 64;

/// The operator who waits for a result: the worker process that was asked, and the number of the order.
type Asker = Option<(u32, u64)>;

/// The supervisor's state.
pub(crate) struct Supervisor {
    options: Options,
    signals: Signals,
    /// The configuration in force, with arranged listeners.
    config: Config,
    files: RecordedFiles,
    confinement: Confinement,
    /// False after a file was replaced, and no worker process could be started for the new one, until a reload succeeds.
    follows_files: bool,
    /// When the last worker process was started because a file was replaced.
    followed_at: Option<Instant>,
    /// The folders of the configuration in force.
    folders: Vec<OpenedFolder>,
    folder_check: FolderCheck,
    certificates: Option<Certificates>,
    /// For binding, and for what an earlier server process has handed over.
    quic: QuicContext,
    /// The number of the newest worker process.
    generation: Option<u8>,
    /// The sockets through which the workers of worker processes receive datagrams, by the number of the process.
    relays: Vec<(u8, Vec<OwnedFd>)>,
    addresses: Vec<Address>,
    admin: Option<AdminSocket>,
    service_manager: ServiceManager,
    root_warning: Option<String>,
    /// The user that this process has become, if it was another one.
    identity: Option<Identity>,
    /// The previous server process, which waits until this one is ready.
    previous: Option<PreviousProcess>,
    history: History,
    processes: Vec<WorkerProcess>,
    phase: Phase,
    announced: bool,
    change: Option<Change>,
    waiting: VecDeque<Asker>,
    upgrade: Option<(Upgrade, Asker)>,
    restart_at: Option<Instant>,
    started_at: Instant,
    kill_at: Option<Instant>,
    looked_at: Instant,
    alive_at: Instant,
    /// The exit code so far.
    code: u8,
}

impl Unprivileged {
    /// Opens what belongs to the final user, and starts the worker process.
    ///
    /// # Errors
    /// If something cannot be opened, or the process cannot be started.
    pub(crate) fn supervise(self) -> Result<Supervisor, Failure> {
        let Bound {
            options,
            signals,
            mut inherited,
            config,
            files,
            compiled,
            certificates: mut store,
            mut loaded,
            quic,
            addresses,
            admin,
            root_warning,
            identity,
            ..
        } = self.bound;
        create_state(&config);
        create_confined_files(&config, &compiled)?;
        if uses_authority(&config) {
            loaded = load(store.as_mut(), &config)?;
        }
        if let Some(store) = &mut store {
            store.show(loaded);
        }
        let confinement = Confinement::of_process(&compiled.spec, &config);
        if config.landlock() && lacks_port_rules() {
            say(
                "note: this kernel's Landlock has no rules for ports (Linux 6.7), so the worker process may connect to any port",
            );
        }
        let now = clock::now();
        let mut supervisor = Supervisor {
            options,
            signals,
            config,
            files,
            confinement,
            follows_files: true,
            followed_at: None,
            folders: compiled.spec.opened_folders(),
            folder_check: FolderCheck::new(),
            certificates: store,
            quic,
            generation: None,
            relays: Vec::new(),
            addresses,
            admin,
            service_manager: ServiceManager::find(),
            root_warning,
            identity,
            previous: inherited.take_previous(),
            history: History { generation: 1, ..History::default() },
            processes: Vec::new(),
            phase: Phase::Serve,
            announced: false,
            change: None,
            waiting: VecDeque::new(),
            upgrade: None,
            restart_at: None,
            started_at: now,
            kill_at: None,
            looked_at: now,
            alive_at: now,
            code: 0,
        };
        supervisor
            .start_process(Role::Starting)
            .map_err(|error| Failure::runtime(format!("cannot start the worker process: {error}")))?;
        Ok(supervisor)
    }
}

impl Supervisor {
    /// Runs until the last worker process has exited.
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        loop {
            self.wait()?;
            while let Some(told) = self.signals.next() {
                self.handle_signal(told);
            }
            self.receive();
            if let Some(failure) = self.look_at_exits() {
                return Err(failure);
            }
            self.look_at_upgrade();
            self.look_at_timeouts();
            if self.phase != Phase::Serve && self.processes.is_empty() {
                return Ok(self.finish());
            }
            self.next_reload();
        }
    }

    fn wait(&self) -> Result<(), Failure> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN)];
        for process in &self.processes {
            fds.push(PollFd::new(&process.exited, PollFlags::IN));
            if !process.is_silent {
                fds.push(PollFd::from_borrowed_fd(process.channel.fd(), PollFlags::IN));
            }
        }
        fds.extend(self.upgrade.as_ref().map(|(upgrade, _)| PollFd::from_borrowed_fd(upgrade.fd(), PollFlags::IN)));
        fds.extend(self.folder_check.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let left = |interval: Duration, since: Instant| interval.saturating_sub(clock::since(since));
        let until = |at: Instant| at.saturating_duration_since(clock::now());
        let looks = self.looks();
        let waits = [
            self.upgrade.as_ref().map(|(upgrade, _)| upgrade.time_left()),
            self.change.as_ref().map(Change::time_left),
            self.restart_at.map(until),
            self.kill_at.map(until),
            looks.then(|| left(LOOK_INTERVAL, self.looked_at)),
            self.folder_check.time_left().filter(|_| self.follows_folders()),
            self.own_watchdog().map(|interval| left(interval, self.alive_at)),
        ];
        let timeout = waits.into_iter().flatten().min().map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::runtime(format!("cannot wait: {error}"))),
        }
    }

    /// The interval at which this process tells the watchdog. It otherwise passes on the messages of the process that
    /// serves, which sends none while it puts a configuration in force.
    fn own_watchdog(&self) -> Option<Duration> {
        let is_busy = self.change.as_ref().is_some_and(|change| change.why_replace.is_none());
        self.service_manager.watchdog_interval.filter(|_| self.current().is_none() || is_busy)
    }

    /// Returns whether files are to be checked periodically.
    fn looks(&self) -> bool {
        let lacks_certificates = self.processes.iter().any(|process| process.lacks_certificates);
        self.is_confined() || lacks_certificates || self.certificates.as_ref().is_some_and(Certificates::any)
    }

    fn current(&self) -> Option<usize> {
        self.processes.iter().position(|process| process.role == Role::Current)
    }

    /// Returns whether Landlock confines the process that serves.
    fn is_confined(&self) -> bool {
        self.current().is_some_and(|current| self.processes[current].confined)
    }

    fn handle_signal(&mut self, told: SignalAction) {
        match told {
            SignalAction::Stop => self.stop(),
            SignalAction::Reload => self.reload(None),
            SignalAction::Report => {
                for process in &mut self.processes {
                    process.tell(&ToWorker::Report, &[]);
                }
            }
            SignalAction::Upgrade => self.begin_upgrade(None),
        }
    }

    /// Receives from all worker processes.
    fn receive(&mut self) {
        let pids: Vec<u32> = self.processes.iter().map(WorkerProcess::pid).collect();
        for pid in pids {
            self.receive_some(pid);
        }
    }

    /// Receives at most [`MESSAGES_PER_TURN`] messages from a worker process.
    fn receive_some(&mut self, pid: u32) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(message) = self.receive_from(pid) else { return };
            self.handle_message(pid, message);
        }
    }

    fn process(&mut self, pid: u32) -> Option<&mut WorkerProcess> {
        self.processes.iter_mut().find(|process| process.pid() == pid)
    }

    fn receive_from(&mut self, pid: u32) -> Option<ToSupervisor> {
        let process = self.process(pid).filter(|process| !process.is_silent)?;
        match process.channel.receive() {
            Ok(Incoming::Message(message, _)) => Some(message),
            Ok(Incoming::Nothing | Incoming::Lost) => None,
            Ok(Incoming::Closed) => {
                process.is_silent = true;
                None
            }
            Err(error) => {
                say(&format!("error: the worker process {pid} does not follow the protocol, and is stopped: {error}"));
                process.is_silent = true;
                let _ = process.child.kill();
                None
            }
        }
    }

    fn handle_message(&mut self, pid: u32, message: ToSupervisor) {
        let Some(role) = self.process(pid).map(|process| process.role) else { return };
        match message {
            ToSupervisor::Ready { confined, applied } => {
                if let Some(process) = self.process(pid) {
                    process.confined = confined;
                }
                match role {
                    Role::Starting => {
                        for line in &applied {
                            say(line);
                        }
                        self.handle_started(pid);
                    }
                    Role::Candidate => self.hand_over_to(pid, applied),
                    Role::Current | Role::Leaving | Role::Abandoned => {}
                }
            }
            ToSupervisor::Failed(failure) => {
                if let Some(process) = self.process(pid) {
                    process.failure = Some(failure);
                }
            }
            ToSupervisor::Failing if role == Role::Current && self.phase == Phase::Serve => {
                if let Some(process) = self.process(pid) {
                    process.role = Role::Leaving;
                }
                self.lose_current();
            }
            ToSupervisor::Reloaded { generation, answer } => {
                match &self.change {
                    // It will leave.
                    _ if role != Role::Current => {}
                    Some(change) if change.why_replace.is_some() => {}
                    Some(_) => {
                        self.history.generation = generation;
                        self.commit();
                    }
                    // It was complete in the moment in which it was given up: put in force what is on the disk.
                    None => self.reload(None),
                }
                if let Some((order, text)) = answer {
                    self.answer(Some((pid, order)), 200, &text);
                }
            }
            ToSupervisor::NotReloaded { failure, .. } if role == Role::Current => self.handle_not_reloaded(failure),
            ToSupervisor::Lost(failure) => {
                if let Some(process) = self.process(pid) {
                    process.lacks_certificates = true;
                }
                if role == Role::Current {
                    self.handle_not_reloaded(failure);
                }
            }
            ToSupervisor::Alive if role == Role::Current => {
                self.service_manager.alive();
                self.alive_at = clock::now();
            }
            ToSupervisor::Order { kind, order } => match kind {
                OrderKind::Reload => self.reload(Some((pid, order))),
                OrderKind::Upgrade => self.begin_upgrade(Some((pid, order))),
                OrderKind::Stop => {
                    self.answer(Some((pid, order)), 202, "stopping\n");
                    self.stop();
                }
            },
            ToSupervisor::Failing | ToSupervisor::NotReloaded { .. } | ToSupervisor::Alive => {}
        }
    }

    fn answer(&mut self, asker: Asker, status: u16, text: &str) {
        let Some((pid, order)) = asker else { return };
        let result = CommandResult { status, text: text.to_owned() };
        if let Some(process) = self.process(pid) {
            process.tell(&ToWorker::Answer { order, result }, &[]);
        }
    }

    /// The first worker process serves, or the one that follows another that has died.
    fn handle_started(&mut self, pid: u32) {
        let Some(process) = self.process(pid) else { return };
        process.role = Role::Current;
        if self.phase != Phase::Serve {
            return;
        }
        if self.announced {
            say(&format!("the worker process {pid} is serving"));
            return;
        }
        self.announced = true;
        if !self.folders.is_empty() {
            self.folder_check.start_thread();
        }
        let root = self.certificates.as_ref().and_then(Certificates::root_path);
        let (config, workers) = (&self.config, count_workers(&self.config));
        introduce(&self.options.source, config, &self.addresses, workers, (self.root_warning.as_deref(), root));
        self.service_manager.ready(&self.summary());
        if let Some(previous) = self.previous.take() {
            AccessChange::apply(&self.addresses, &self.config);
            previous.take_over(socket_files(self.admin.as_ref(), &self.addresses));
        }
    }

    fn summary(&self) -> String {
        let (sites, addresses, workers) = (self.config.sites.len(), self.addresses.len(), count_workers(&self.config));
        format!("serving {sites} sites on {addresses} addresses with {workers} workers")
    }

    /// The process that served does not any more.
    fn lose_current(&mut self) {
        if let Some(change) = self.change.take_if(|change| change.why_replace.is_none()) {
            say("error: the reload was abandoned, because the worker process has died");
            self.history.reloads_refused += 1;
            if let Cause::Folder(_) = change.cause {
                self.folder_check.delay_next();
            }
            drop(change);
            self.service_manager.ready(&self.summary());
        }
        let has_candidate = self.processes.iter().any(|process| process.role == Role::Candidate);
        if self.phase == Phase::Serve && !has_candidate {
            self.restart_at = Some((self.started_at + RESTART_INTERVAL).max(clock::now()));
        }
    }

    /// Handles processes that have exited. Returns a failure if the first one could not start.
    fn look_at_exits(&mut self) -> Option<Failure> {
        let mut index = 0;
        while index < self.processes.len() {
            let Ok(Some(status)) = self.processes[index].child.try_wait() else {
                index += 1;
                continue;
            };
            let pid = self.processes[index].pid();
            // What it said before it exited.
            self.receive_some(pid);
            let Some(index) = self.processes.iter().position(|process| process.pid() == pid) else { continue };
            let process = self.processes.remove(index);
            self.relays.retain(|(generation, _)| *generation != process.generation);
            if let Some(failure) = self.handle_exit(process, status) {
                return Some(failure);
            }
        }
        None
    }

    fn handle_exit(&mut self, process: WorkerProcess, status: ExitStatus) -> Option<Failure> {
        let ending = describe_ending(status);
        let shown = format!("the worker process {} {ending}", process.pid());
        match process.role {
            Role::Leaving => {
                if self.phase == Phase::Serve {
                    // A failure of its own has been reported by itself.
                    if status.code().is_none() {
                        say(&format!("error: {shown} before its last request was finished"));
                    }
                } else {
                    self.note_code(status, &shown);
                }
            }
            _ if self.phase != Phase::Serve => {
                if let Some(failure) = &process.failure {
                    failure.report();
                }
                // Ctrl-C and some service managers signal all processes; one that is not ready may not handle it yet.
                let was_ready = process.role == Role::Current;
                if was_ready || !is_stop_signal(status) {
                    self.note_code(status, &shown);
                }
            }
            Role::Abandoned => {}
            Role::Starting if !self.announced => {
                return Some(process.failure.unwrap_or_else(|| Failure::runtime(format!("{shown} before it served"))));
            }
            Role::Starting => {
                match process.failure {
                    Some(failure) => drop(failure.report()),
                    None => say(&format!("error: {shown} before it served")),
                }
                self.restart_at = Some(self.started_at + RESTART_INTERVAL);
            }
            Role::Candidate => {
                let failure = process.failure;
                self.give_up_change(failure.unwrap_or_else(|| Failure::runtime(format!("{shown} before it served"))));
            }
            Role::Current => {
                say(&format!("error: {shown}; another one starts, and the listeners stay open"));
                self.lose_current();
            }
        }
        None
    }

    fn note_code(&mut self, status: ExitStatus, shown: &str) {
        if status.code().is_none() {
            say(&format!("error: {shown}"));
        }
        let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_FAILED);
        // A failure is worse than an unclean stop.
        self.code = match (self.code, code) {
            (0, code) => code,
            (EXIT_UNCLEAN, code) if code != 0 => code,
            (before, _) => before,
        };
    }

    fn look_at_timeouts(&mut self) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| clock::now() >= at);
        if is_due(self.restart_at) && self.phase == Phase::Serve {
            self.restart_at = None;
            self.confinement = self.confinement.renewed();
            if let Err(error) = self.start_process(Role::Starting) {
                say(&format!("error: cannot start a worker process: {error}"));
                self.restart_at = Some(clock::now() + RESTART_INTERVAL);
            }
        }
        if self.change.as_ref().is_some_and(|change| change.time_left().is_zero()) {
            self.look_at_late_change();
        }
        if is_due(self.kill_at) {
            self.kill_at = None;
            for process in &mut self.processes {
                let _ = process.child.kill();
            }
        }
        if self.looks() && clock::since(self.looked_at) >= LOOK_INTERVAL {
            self.looked_at = clock::now();
            self.look_at_files();
        }
        self.look_at_folders();
        if let Some(interval) = self.own_watchdog()
            && clock::since(self.alive_at) >= interval
        {
            self.service_manager.alive();
            self.alive_at = clock::now();
        }
    }

    /// The first call drains, the second aborts.
    fn stop(&mut self) {
        if let Some((mut upgrade, asker)) = self.upgrade.take() {
            upgrade.kill();
            self.report_failed_upgrade(asker, "stop requested");
        }
        // What it binds is of no use any more.
        self.change = None;
        self.restart_at = None;
        if self.phase != Phase::HandOver {
            self.service_manager.stopping();
        }
        self.phase = match self.phase {
            Phase::Serve | Phase::HandOver => Phase::Drain,
            Phase::Drain | Phase::Abandon => Phase::Abandon,
        };
        if self.phase == Phase::Abandon {
            self.kill_at.get_or_insert_with(|| clock::now() + ABANDON_TIMEOUT);
        }
        // Before the worker process closes its own: each socket closes with its worker.
        self.addresses.clear();
        for process in &mut self.processes {
            process.tell(&ToWorker::Stop, &[]);
        }
    }

    fn finish(self) -> ExitCode {
        ExitCode::from(self.code)
    }
}
