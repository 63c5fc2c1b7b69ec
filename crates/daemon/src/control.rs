//! The control thread: waits for signals, commands, a new process and exiting workers, and coordinates the other
//! threads.

use crate::Options;
use crate::admin::server::AdminThread;
use crate::admin::socket::AdminSocket;
use crate::admin::{AdminCommand, CommandResult, OrderKind, server};
use crate::banner::introduce;
use crate::certificates::{Certificates, LOOK_INTERVAL, Loaded};
use crate::confine::Confinement;
use crate::events::{EventReceiver, EventSender, WorkerEnd, WorkerEvent};
use crate::failure::{EXIT_FAILED, EXIT_UNCLEAN, Failure, say, shortened};
use crate::folders::FolderCheck;
use crate::inherit::PreviousProcess;
use crate::link::SupervisorLink;
use crate::listeners::access::AccessChange;
use crate::listeners::{Address, socket_files};
use crate::messages::{ToSupervisor, ToWorker};
use crate::notices::Notices;
use crate::overload::OverloadWatches;
use crate::quic::QuicContext;
use crate::reload::PendingReload;
use crate::service_manager::ServiceManager;
use crate::shares::Shares;
use crate::status::{StatusState, describe, phase_name};
use crate::upgrade::Upgrade;
use crate::watch::FolderWatcher;
use crate::workers::{Workers, worker_name};
use arc_swap::ArcSwap;
use flatout_access_log::Logs;
use flatout_config::model::Config;
use flatout_engine::MetricsText;
use flatout_engine::engine::Engine;
use flatout_engine::spec::{PagesShared, Spec};
use flatout_os::clock::{self, Now};
use flatout_os::signals::{SignalAction, Signals};
use flatout_proxy::Accelerator;
use flatout_server::counters::sum_rows;
use flatout_server::{Command, Phase};
use flatout_upstream::events::OriginEvent;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::IsTerminal as _;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The last stage of startup: the workers are running. This is the state of the thread that coordinates them.
pub(crate) struct Control {
    pub(crate) in_force: ConfigInForce,
    pub(crate) limits: StartupLimits,
    /// State shared by all proxies and caches.
    pub(crate) accelerator: Arc<Accelerator>,
    /// `None` if no folder is watched.
    pub(crate) watch: Option<FolderWatcher>,
    /// `None` if https cannot be used.
    pub(crate) certificates: Option<Certificates>,
    /// The keys and relay channels for QUIC.
    pub(crate) quic: QuicContext,
    pub(crate) addresses: Vec<Address>,
    pub(crate) workers: Workers<Engine>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) admin: Option<AdminSocket>,
    pub(crate) admin_thread: Option<AdminThread>,
    pub(crate) shared: Arc<StatusState>,
    pub(crate) events: ControlEvents,
    pub(crate) overload: OverloadWatches,
    /// The lines about origins.
    pub(crate) notices: Notices,
    /// True if an origin may have changed since they were last looked at.
    pub(crate) has_changed_origins: bool,
    pub(crate) service_manager: ServiceManager,
    /// `None` if there is no supervisor.
    pub(crate) link: Option<SupervisorLink>,
    pub(crate) readiness: Readiness,
    /// A new process that is not ready yet.
    pub(crate) upgrade: Option<Upgrade>,
    /// A reload that the supervisor has sent, while a thread compiles its configuration.
    pub(crate) pending_reload: Option<PendingReload>,
    /// The number of the newest of them.
    pub(crate) reload_number: u64,
    /// Not used if there is a supervisor, which checks the folders itself.
    pub(crate) folder_check: FolderCheck,
    /// True once all workers accept connections and the URLs have been printed.
    pub(crate) announced: bool,
    pub(crate) ending: Ending,
}

/// The configuration in use, and the objects created from it. A reload replaces them.
pub(crate) struct ConfigInForce {
    pub(crate) options: Options,
    /// The configuration, with listeners in the order of their stable numbers.
    pub(crate) config: Config,
    pub(crate) spec: Arc<Spec>,
    /// The same `Spec`, for the admin thread.
    pub(crate) published: Arc<ArcSwap<Spec>>,
    /// The source of the content for the `metrics` step.
    pub(crate) metrics: MetricsText,
    /// State shared by all active pages.
    pub(crate) pages: Arc<PagesShared>,
}

/// Limits that are set once per process. Only an upgrade changes them.
pub(crate) struct StartupLimits {
    /// Each worker's share of the descriptors.
    pub(crate) shares: Shares,
    /// The confinement of the worker threads, or of the whole worker process; `None` if Landlock confines neither.
    pub(crate) confinement: Option<Confinement>,
}

/// The events that the control thread waits for.
pub(crate) struct ControlEvents {
    pub(crate) signals: Signals,
    /// Cloned for each thread that sends events.
    pub(crate) sender: EventSender,
    pub(crate) receiver: EventReceiver,
}

/// State needed until this process has become the service.
pub(crate) struct Readiness {
    /// The warning to print if this process runs as root.
    pub(crate) root_warning: Option<String>,
    /// The previous process, which waits until this one is ready.
    pub(crate) previous: Option<PreviousProcess>,
    pub(crate) workers_started: usize,
    /// One line per database with the migrations that were applied, for the supervisor.
    pub(crate) applied: Vec<String>,
}

/// The facts that determine the exit code.
#[derive(Default)]
pub(crate) struct Ending {
    /// Number of connections closed before their requests were complete.
    pub(crate) connections_cut: usize,
    /// True if a worker has failed.
    pub(crate) failed: bool,
}

fn monotonic_ms() -> u64 {
    Now::read().monotonic_ms
}

impl Control {
    /// Runs until the last worker has exited.
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        let mut alive_at = clock::now();
        let mut looked_at = clock::now();
        while self.workers.any_running() {
            self.wait(alive_at, looked_at)?;
            if self.link.is_none() {
                while let Some(told) = self.events.signals.next() {
                    self.handle_signal(told);
                }
            }
            while let Some(received) = self.link.as_mut().map(SupervisorLink::receive).transpose()?.flatten() {
                self.handle_message(received);
            }
            self.events.receiver.quiet();
            while let Some(event) = self.events.receiver.next() {
                self.handle_event(event);
            }
            self.look_at_upgrade();
            self.look_at_go();
            if clock::since(looked_at) >= LOOK_INTERVAL {
                self.look_at_certificates();
                looked_at = clock::now();
            }
            self.look_at_folders();
            self.overload.look(&self.shared);
            self.look_at_origins();
            if let Some(interval) = self.alive_interval()
                && clock::since(alive_at) >= interval
            {
                match &self.link {
                    Some(link) => link.tell(&ToSupervisor::Alive),
                    None => self.service_manager.alive(),
                }
                alive_at = clock::now();
            }
        }
        Ok(self.finish())
    }

    /// Waits for the first event.
    fn wait(&self, alive_at: Instant, looked_at: Instant) -> Result<(), Failure> {
        // A worker process does not handle signals itself: its supervisor also receives them, and sends commands
        // instead.
        let orders = self.link.as_ref().map_or_else(|| self.events.signals.fd(), SupervisorLink::fd);
        let mut fds = vec![PollFd::from_borrowed_fd(orders, PollFlags::IN)];
        fds.push(PollFd::from_borrowed_fd(self.events.receiver.fd(), PollFlags::IN));
        fds.extend(self.upgrade.as_ref().map(|upgrade| PollFd::from_borrowed_fd(upgrade.fd(), PollFlags::IN)));
        fds.extend(self.quic.go.as_ref().map(|go| PollFd::new(go, PollFlags::IN)));
        fds.extend(self.folder_check.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let left = |interval: Duration, since: Instant| interval.saturating_sub(clock::since(since));
        let waits = [
            self.alive_interval().map(|interval| left(interval, alive_at)),
            self.upgrade.as_ref().map(Upgrade::time_left),
            self.certificates.as_ref().filter(|all| all.any()).map(|_| left(LOOK_INTERVAL, looked_at)),
            self.folder_check.time_left().filter(|_| self.follows_folders()),
            Some(self.overload.time_left(monotonic_ms())),
            self.notices.due_ms().map(|due_ms| Duration::from_millis(due_ms.saturating_sub(monotonic_ms()))),
        ];
        let timeout = waits.into_iter().flatten().min();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::runtime(format!("cannot wait: {error}"))),
        }
    }

    fn alive_interval(&self) -> Option<Duration> {
        match &self.link {
            Some(link) => link.alive_interval,
            None => self.service_manager.watchdog_interval,
        }
    }

    /// Executes a command from the supervisor.
    fn handle_message(&mut self, (message, descriptors): (ToWorker, Vec<OwnedFd>)) {
        match message {
            // This is always the first message, which has already been handled.
            ToWorker::Start(_) => {}
            ToWorker::Reload { parcel, order } => self.begin_received_reload(*parcel, descriptors, order),
            ToWorker::GiveUpReload => self.pending_reload = None,
            ToWorker::Refused { failure, order } => {
                let result = self.refuse(&failure);
                self.answer(order, result);
            }
            ToWorker::Answer { order, result } => self.answer(Some(order), result),
            ToWorker::UpgradeFailed { text, order } => {
                let asker = self.link.as_mut().and_then(|link| link.take_asker(order));
                self.report_failed_upgrade(asker.as_ref(), &text);
            }
            ToWorker::Certificates(parcel) => {
                if let Some(certificates) = &mut self.certificates {
                    let shown = certificates.show(Loaded::received(parcel));
                    self.shared.view().certificates = shown;
                }
            }
            ToWorker::Relayed => self.receive_relayed(descriptors),
            ToWorker::HandOver { order, result } => {
                self.leave_to_next(descriptors.into_iter().next());
                // Requests on new connections that are opened after the reply must go to the other process. The task of
                // a listener may first have to finish a batch of accepted connections.
                self.workers.wait_until_executed();
                self.workers.wait_until_executed();
                self.answer(order, result);
            }
            ToWorker::Report => {
                self.logs.reopen();
                self.print_counters();
            }
            ToWorker::Stop => self.stop(),
        }
    }

    pub(crate) fn tell_supervisor(&self, message: &ToSupervisor) {
        if let Some(link) = &self.link {
            link.tell(message);
        }
    }

    /// Sends a command's result to the client that waits for it, if any.
    pub(crate) fn answer(&mut self, order: Option<u64>, result: CommandResult) {
        if let Some(asker) = self.link.as_mut().and_then(|link| link.take_asker(order)) {
            // The receiver may have stopped waiting.
            let _ = asker.try_send(result);
        }
    }

    /// Makes the workers receive QUIC datagrams once the previous process has stopped receiving them or has exited.
    fn look_at_go(&mut self) {
        let Some(go) = &self.quic.go else { return };
        let mut looked = [PollFd::new(go, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if self.announced && !matches!(poll(&mut looked, Some(&now)), Ok(0) | Err(Errno::INTR)) {
            self.quic.go = None;
            self.workers.tell(|_| Command::ReceiveQuic(true));
        }
    }

    /// Reports changes of origins, if there may be any.
    fn look_at_origins(&mut self) {
        let now_ms = monotonic_ms();
        let is_due = self.notices.due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        if std::mem::take(&mut self.has_changed_origins) || is_due {
            let steps = self.accelerator.steps();
            let origins = steps.iter().flat_map(|step| step.origin_states());
            let origins = origins.chain(self.in_force.spec.php_states());
            self.notices.update(origins, now_ms).iter().for_each(|line| say(line));
        }
    }

    fn look_at_certificates(&mut self) {
        let shown = self.certificates.as_mut().and_then(|certificates| certificates.look(&self.in_force.config));
        if let Some(shown) = shown {
            self.shared.view().certificates = shown;
        }
    }

    fn handle_signal(&mut self, told: SignalAction) {
        match told {
            SignalAction::Stop => self.stop(),
            SignalAction::Reload => {
                self.reload();
            }
            SignalAction::Report => {
                self.logs.reopen();
                self.print_counters();
            }
            SignalAction::Upgrade => self.begin_upgrade(None),
        }
    }

    fn handle_event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Started { confined } => self.handle_started(confined),
            WorkerEvent::Ended(index, ended) => self.handle_ended(index, ended),
            WorkerEvent::Order(order) => self.handle_order(order),
            WorkerEvent::Compiled(number, compiled) => self.finish_received_reload(number, compiled),
            WorkerEvent::Said(text) => say(&text),
            WorkerEvent::Origin(event) => {
                self.has_changed_origins = true;
                match event {
                    OriginEvent::Changed => {}
                    OriginEvent::Renewed(servers) => self.notices.handle_reload(servers),
                    OriginEvent::Series { server, route, report } => self.notices.handle_series(server, route, report),
                }
            }
        }
    }

    fn handle_order(&mut self, AdminCommand { kind, answer }: AdminCommand) {
        if let Some(link) = &mut self.link {
            return link.pass_on(kind, answer);
        }
        let reply = match kind {
            OrderKind::Reload => self.reload(),
            OrderKind::Upgrade => return self.begin_upgrade(Some(answer)),
            OrderKind::Stop => {
                self.stop();
                CommandResult { status: 202, text: "stopping\n".to_owned() }
            }
        };
        // The client may have stopped waiting.
        let _ = answer.try_send(reply);
    }

    /// Counts workers that accept connections. Reports readiness once all workers do.
    fn handle_started(&mut self, confined: bool) {
        self.readiness.workers_started += 1;
        if self.readiness.workers_started < self.workers.all.len() {
            return;
        }
        self.shared.view().landlock = confined;
        self.show();
        if let Some(admin) = &self.admin {
            match server::start(admin, Arc::clone(&self.shared), self.events.sender.clone()) {
                Ok(thread) => self.admin_thread = Some(thread),
                Err(failure) => say(&format!("warning: {failure}")),
            }
        }
        if self.link.is_some() {
            self.announced = true;
            let applied = std::mem::take(&mut self.readiness.applied);
            return self.tell_supervisor(&ToSupervisor::Ready { confined, applied: shortened(applied) });
        }
        if self.in_force.spec.folders().next().is_some() {
            self.folder_check.start_thread();
        }
        let root = self.certificates.as_ref().and_then(Certificates::root_path);
        let (source, config) = (&self.in_force.options.source, &self.in_force.config);
        let said = (self.readiness.root_warning.as_deref(), root);
        introduce(source, config, &self.addresses, self.workers.all.len(), said);
        self.announced = true;
        self.service_manager.ready(&self.summary());
        if let Some(previous) = self.readiness.previous.take() {
            AccessChange::apply(&self.addresses, &self.in_force.config);
            previous.take_over(socket_files(self.admin.as_ref(), &self.addresses));
        }
    }

    /// Handles the exit of a worker. An exit is a failure of the whole process, unless the worker was asked to stop.
    fn handle_ended(&mut self, index: usize, ended: WorkerEnd) {
        self.workers.join(index);
        let name = worker_name(index);
        let failed = match ended {
            WorkerEnd::Well(report) => {
                self.ending.connections_cut += report.connections_cut;
                (self.workers.phase() == Phase::Serve).then(|| "it exited unexpectedly".to_owned())
            }
            WorkerEnd::Failed(error) => Some(error.to_string()),
            WorkerEnd::Panicked(text) => Some(format!("it panicked ({text}); please report this")),
        };
        let Some(failed) = failed else { return };
        say(&format!(
            "error: {name} failed: {failed}\n  the other workers finish the requests in progress, then this process exits"
        ));
        self.ending.failed = true;
        self.tell_supervisor(&ToSupervisor::Failing);
        if self.workers.phase() == Phase::Serve {
            self.set_phase(Phase::Drain);
        }
    }

    /// Drains connections on the first call, and closes the remaining connections on the second.
    fn stop(&mut self) {
        self.abandon_upgrade("stop requested");
        let phase = match self.workers.phase() {
            Phase::Serve | Phase::HandOver => Phase::Drain,
            Phase::Drain | Phase::Abandon => Phase::Abandon,
        };
        self.set_phase(phase);
    }

    /// Sets the phase of the workers. `Phase::Serve` cannot be set again.
    pub(crate) fn set_phase(&mut self, phase: Phase) {
        // After a hand-over, another process is the service, so the service is not stopping.
        if phase != Phase::HandOver {
            self.service_manager.stopping();
        }
        // The control thread's copies of the sockets are closed first, so that each socket is closed when its worker
        // closes it.
        self.addresses.clear();
        self.shared.view().phase = phase_name(phase);
        self.workers.set_phase(phase);
    }

    /// Updates the published status.
    pub(crate) fn show(&self) {
        let (listeners, sites) = describe(&self.in_force.config, &self.addresses);
        let mut view = self.shared.view();
        view.config = self.in_force.options.source.path().map(|path| path.display().to_string());
        (view.listeners, view.sites) = (listeners, sites);
        view.accept_queues = self.addresses.iter().map(Address::queues).collect();
    }

    /// Returns a line that summarizes what is served.
    pub(crate) fn summary(&self) -> String {
        let (sites, addresses) = (self.in_force.config.sites.len(), self.addresses.len());
        format!("serving {sites} sites on {addresses} addresses with {} workers", self.workers.all.len())
    }

    fn print_counters(&self) {
        use std::io::Write as _;
        let mut rows = sum_rows(&self.shared.counters, self.shared.outcomes);
        if self.logs.lines_lost() > 0 {
            rows.push(("log_lines_lost".to_owned(), self.logs.lines_lost()));
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let text: String = rows.iter().map(|(name, count)| format!("{name:width$} {count}\n")).collect();
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// Returns the final message for a terminal. It begins on a new line, after the `^C` that the terminal prints.
    fn farewell(&self) -> String {
        let requests = self.shared.sum(|counters| counters.requests.get());
        let plural = if requests == 1 { "request" } else { "requests" };
        let lost = match self.logs.lines_lost() {
            0 => String::new(),
            lost => format!("; {lost} log lines lost"),
        };
        format!("\nstopped after {requests} {plural} in {} s{lost}", self.shared.uptime_s())
    }

    fn finish(mut self) -> ExitCode {
        // Pending writes to disk are completed when workers and clients are gone.
        if let Some(store) = self.accelerator.store() {
            store.release_volumes();
        }
        self.abandon_upgrade("it has exited");
        self.overload.finish(&self.shared);
        // The socket file is removed first, so that no more clients connect.
        self.admin = None;
        self.logs.close();
        if std::io::stderr().is_terminal() {
            say(&self.farewell());
        } else {
            self.print_counters();
        }
        let cut = self.ending.connections_cut;
        if cut > 0 {
            say(&format!(
                "stopped and closed {cut} connections: the drain timeout expired, or a second signal arrived"
            ));
        }
        // Dropping the receiver drops pending commands, so that their clients are notified. Then the remaining
        // responses are sent.
        drop(self.events.receiver);
        drop(self.link);
        if let Some(thread) = self.admin_thread {
            thread.finish();
        }
        if self.ending.failed {
            ExitCode::from(EXIT_FAILED)
        } else if cut > 0 {
            ExitCode::from(EXIT_UNCLEAN)
        } else {
            ExitCode::SUCCESS
        }
    }
}
