//! The control thread: waits for signals, orders, a new process, and ended workers, and coordinates the others.

use crate::Options;
use crate::admin::server::AdminThread;
use crate::admin::socket::AdminSocket;
use crate::admin::{AdminCommand, CommandResult, OrderKind, server};
use crate::banner::announce;
use crate::certificates::{Certificates, LOOK_INTERVAL};
use crate::confine::Confinement;
use crate::events::{EventReceiver, EventSender, WorkerEnd, WorkerEvent};
use crate::failure::{EXIT_FAILED, EXIT_UNCLEAN, Failure, say};
use crate::inherit::READY_WORD;
use crate::listeners::Address;
use crate::shares::Shares;
use crate::status::{StatusState, describe, phase_name};
use crate::supervisor::Supervisor;
use crate::upgrade::Upgrade;
use crate::watch::FolderWatcher;
use crate::workers::{Workers, worker_name};
use arc_swap::ArcSwap;
use flatout_access_log::Logs;
use flatout_config::model::Config;
use flatout_engine::MetricsText;
use flatout_engine::engine::Engine;
use flatout_engine::spec::{PagesShared, Spec};
use flatout_os::signals::{SignalAction, Signals};
use flatout_proxy::Accelerator;
use flatout_server::Phase;
use flatout_server::counters::{Counters, sum_rows};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::IsTerminal as _;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of the control thread.
pub(crate) struct Control {
    pub(crate) options: Options,
    /// The configuration in force, with arranged listeners.
    pub(crate) config: Config,
    pub(crate) spec: Arc<Spec>,
    /// The compiled configuration, for the admin thread.
    pub(crate) in_force: Arc<ArcSwap<Spec>>,
    /// The source of the `metrics` step.
    pub(crate) metrics: MetricsText,
    /// State shared by all proxies and caches.
    pub(crate) accelerator: Arc<Accelerator>,
    /// State shared by all active pages.
    pub(crate) pages: Arc<PagesShared>,
    /// Each worker's share of the descriptors.
    pub(crate) shares: Shares,
    /// `None` if nothing is watched.
    pub(crate) watch: Option<FolderWatcher>,
    /// `None` if https is impossible.
    pub(crate) certificates: Option<Certificates>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) workers: Workers<Engine>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) admin: Option<AdminSocket>,
    pub(crate) admin_thread: Option<AdminThread>,
    pub(crate) confinement: Option<Confinement>,
    pub(crate) shared: Arc<StatusState>,
    pub(crate) event_sender: EventSender,
    pub(crate) event_receiver: EventReceiver,
    pub(crate) signals: Signals,
    pub(crate) supervisor: Supervisor,
    /// The warning to print at startup if it runs as root.
    pub(crate) root_warning: Option<String>,
    /// The pipe on which the previous process waits for readiness.
    pub(crate) ready: Option<OwnedFd>,
    /// A new process that is not ready yet.
    pub(crate) upgrade: Option<Upgrade>,
    pub(crate) workers_started: usize,
    pub(crate) announced: bool,
    pub(crate) connections_cut: usize,
    pub(crate) failed: bool,
}

impl Control {
    /// Runs until the last worker has ended.
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        let mut alive_at = Instant::now();
        let mut looked_at = Instant::now();
        while self.workers.any_running() {
            self.wait(alive_at, looked_at)?;
            while let Some(told) = self.signals.next() {
                self.handle_signal(told);
            }
            self.event_receiver.quiet();
            while let Some(event) = self.event_receiver.next() {
                self.handle_event(event);
            }
            self.look_at_upgrade();
            if looked_at.elapsed() >= LOOK_INTERVAL {
                self.look_at_certificates();
                looked_at = Instant::now();
            }
            if let Some(interval) = self.supervisor.watchdog_interval
                && alive_at.elapsed() >= interval
            {
                self.supervisor.alive();
                alive_at = Instant::now();
            }
        }
        Ok(self.finish())
    }

    /// Waits for the first event.
    fn wait(&self, alive_at: Instant, looked_at: Instant) -> Result<(), Failure> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN)];
        fds.push(PollFd::from_borrowed_fd(self.event_receiver.fd(), PollFlags::IN));
        fds.extend(self.upgrade.as_ref().map(|upgrade| PollFd::from_borrowed_fd(upgrade.fd(), PollFlags::IN)));
        let left = |interval: Duration, since: Instant| interval.saturating_sub(since.elapsed());
        let waits = [
            self.supervisor.watchdog_interval.map(|interval| left(interval, alive_at)),
            self.upgrade.as_ref().map(Upgrade::time_left),
            self.certificates.as_ref().filter(|all| all.any()).map(|_| left(LOOK_INTERVAL, looked_at)),
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

    fn look_at_certificates(&mut self) {
        let shown = self.certificates.as_mut().and_then(|certificates| certificates.look(&self.config));
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
            WorkerEvent::Said(text) => say(&text),
        }
    }

    fn handle_order(&mut self, AdminCommand { kind, answer }: AdminCommand) {
        let reply = match kind {
            OrderKind::Reload => self.reload(),
            OrderKind::Upgrade => return self.begin_upgrade(Some(answer)),
            OrderKind::Stop => {
                self.stop();
                CommandResult { status: 202, text: "stopping\n".to_owned() }
            }
        };
        // The receiver may have stopped waiting.
        let _ = answer.try_send(reply);
    }

    /// Reports readiness once all workers accept.
    fn handle_started(&mut self, confined: bool) {
        self.workers_started += 1;
        if self.workers_started < self.workers.all.len() {
            return;
        }
        self.shared.view().landlock = confined;
        self.show();
        if let Some(admin) = &self.admin {
            match server::start(admin, Arc::clone(&self.shared), self.event_sender.clone()) {
                Ok(thread) => self.admin_thread = Some(thread),
                Err(failure) => say(&format!("warning: {failure}")),
            }
        }
        if let Some(root) = self.certificates.as_ref().and_then(Certificates::root_path) {
            say(&format!(
                "the local certificate authority signs for this machine; trust {} (curl --cacert, or the browser's settings)",
                root.display()
            ));
        }
        // The URLs come first on their stream, whichever it is.
        let is_alone = !self.config.logs_to_stdout();
        if let Some(warning) = self.root_warning.as_ref().filter(|_| is_alone) {
            say(warning);
        }
        announce(&self.options.source, &self.config, &self.addresses, self.workers.all.len());
        if let Some(warning) = self.root_warning.as_ref().filter(|_| !is_alone) {
            say(warning);
        }
        self.announced = true;
        self.supervisor.ready(&self.summary());
        if let Some(ready) = self.ready.take() {
            // The other process leaves the file to this one when it receives the message.
            if let Some(admin) = &mut self.admin {
                admin.own_file();
            }
            // It may have given up; then it has reported that, and will stop this process.
            let _ = rustix::io::write(&ready, READY_WORD);
        }
    }

    /// Handles the end of a worker, which is a failure of the whole process unless it was stopped.
    fn handle_ended(&mut self, index: usize, ended: WorkerEnd) {
        self.workers.join(index);
        let name = worker_name(index);
        let failed = match ended {
            WorkerEnd::Well(report) => {
                self.connections_cut += report.connections_cut;
                (self.workers.phase() == Phase::Serve).then(|| "it exited unexpectedly".to_owned())
            }
            WorkerEnd::Failed(error) => Some(error.to_string()),
            WorkerEnd::Panicked(text) => Some(format!("it panicked ({text}); please report this")),
        };
        let Some(failed) = failed else { return };
        say(&format!(
            "error: {name} failed: {failed}\n  the other workers finish the requests in progress, then this process exits"
        ));
        self.failed = true;
        if self.workers.phase() == Phase::Serve {
            self.set_phase(Phase::Drain);
        }
    }

    /// The first call drains, the second aborts.
    fn stop(&mut self) {
        self.abandon_upgrade("stop requested");
        let phase = match self.workers.phase() {
            Phase::Serve | Phase::HandOver => Phase::Drain,
            Phase::Drain | Phase::Abandon => Phase::Abandon,
        };
        self.set_phase(phase);
    }

    /// Sets the phase of the workers; `Serve` cannot return.
    pub(crate) fn set_phase(&mut self, phase: Phase) {
        // After a hand-over, this process is not the service any more, and the service does not stop.
        if phase != Phase::HandOver {
            self.supervisor.stopping();
        }
        // The control thread's copies of the sockets first, so that each closes with its worker.
        self.addresses.clear();
        self.shared.view().phase = phase_name(phase);
        self.workers.set_phase(phase);
    }

    /// Updates the published status.
    pub(crate) fn show(&self) {
        let bound: Vec<(usize, String)> =
            self.addresses.iter().map(|address| (address.id as usize, address.bound.to_string())).collect();
        let (listeners, sites) = describe(&self.config, &bound);
        let mut view = self.shared.view();
        view.config = self.options.source.path().map(|path| path.display().to_string());
        (view.listeners, view.sites) = (listeners, sites);
    }

    /// One line about the served sites.
    pub(crate) fn summary(&self) -> String {
        let (sites, addresses) = (self.config.sites.len(), self.addresses.len());
        format!("serving {sites} sites on {addresses} addresses with {} workers", self.workers.all.len())
    }

    fn print_counters(&self) {
        use std::io::Write as _;
        let counters: Vec<&Counters> = self.shared.counters.iter().map(Arc::as_ref).collect();
        let mut rows = sum_rows(&counters, self.shared.outcomes);
        if self.logs.lines_lost() > 0 {
            rows.push(("log_lines_lost".to_owned(), self.logs.lines_lost()));
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let text: String = rows.iter().map(|(name, count)| format!("{name:width$} {count}\n")).collect();
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// The final message for a terminal, on a separate line after its `^C`.
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
        // Pending disk writes happen after the workers and clients are gone.
        if let Some(store) = self.accelerator.store() {
            store.release_volumes();
        }
        self.abandon_upgrade("it has ended");
        // The file first, so that no more clients connect.
        self.admin = None;
        self.logs.close();
        if std::io::stderr().is_terminal() {
            say(&self.farewell());
        } else {
            self.print_counters();
        }
        let cut = self.connections_cut;
        if cut > 0 {
            say(&format!(
                "stopped and closed {cut} connections: the drain timeout expired, or a second signal arrived"
            ));
        }
        // Pending orders are dropped with the receiver, which notifies their clients; then the last response.
        drop(self.event_receiver);
        if let Some(thread) = self.admin_thread {
            thread.finish();
        }
        if self.failed {
            ExitCode::from(EXIT_FAILED)
        } else if cut > 0 {
            ExitCode::from(EXIT_UNCLEAN)
        } else {
            ExitCode::SUCCESS
        }
    }
}
