//! Reloads: a configuration is put in force by the worker process that serves, or by another one that takes over.

use super::process::{Role, WorkerProcess};
use super::{Asker, RESTART_INTERVAL, Supervisor};
use crate::admin::CommandResult;
use crate::arrange::arrange;
use crate::certificates::{CertificateSet, Certificates};
use crate::confine::{Confinement, digest_file};
use crate::failure::{Failure, say};
use crate::folders::{check_owners, describe_replaced, describe_unusable};
use crate::inherit::Inherited;
use crate::listeners::access::AccessChange;
use crate::listeners::{Address, bind_added, change_http3, find_live, partition};
use crate::messages::{ConfigParcel, ToWorker};
use crate::reload::{describe_served, fixed_by_supervisor, warn_of_fixed};
use crate::source::{RecordedFiles, RecordingDisk};
use crate::spec::explain;
use crate::start::{CompiledConfig, count_workers};
use flatout_config::Style;
use flatout_config::model::{Config, StepKind};
use flatout_engine::spec::OpenedFolder;
use flatout_os::clock;
use flatout_server::Phase;
use flatout_store::create_private_folder;
use std::fs::OpenOptions;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval of warnings about a reload that is not complete. After the first one, the next reload does not wait any more.
/// The worker process that serves is never stopped: a migration of a database may take long, and requests are served
/// meanwhile.
const LATE_INTERVAL: Duration = Duration::from_secs(30);

/// Timeout for a new worker process to serve. Opening large stores and migrations take a while.
const REPLACE_TIMEOUT: Duration = Duration::from_mins(10);

/// Worker processes are replaced because of replaced files at most this often: each loses the responses in memory.
const FOLLOW_INTERVAL: Duration = Duration::from_mins(5);

/// Number of worker processes, including earlier ones that are finishing their requests, from which on no other one is
/// started for a replaced folder.
const PROCESSES_MAX: usize = 4;

/// Upper bound of reloads that wait for another one.
const RELOADS_WAITING_MAX: usize = 64;

/// Why a configuration is put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// An operator requested it, with a command or a signal.
    Operator,
    /// A file that the worker process may open was replaced. The configuration stays the same.
    File,
    /// The folder at this path was replaced. The configuration stays the same.
    Folder(PathBuf),
}

/// A configuration that is to be put in force.
pub(super) struct Change {
    pub(super) config: Config,
    pub(super) files: RecordedFiles,
    pub(super) folders: Vec<OpenedFolder>,
    /// `None` if the certificates do not change.
    pub(super) certificates: Option<CertificateSet>,
    pub(super) added: Vec<Address>,
    /// Numbers of removed listeners.
    pub(super) removed: Vec<u32>,
    pub(super) access: Vec<AccessChange>,
    pub(super) datagrams: Vec<(u32, Vec<OwnedFd>)>,
    pub(super) confinement: Confinement,
    pub(super) asker: Asker,
    pub(super) since: Instant,
    /// When the supervisor has last warned, or has begun.
    pub(super) warned_at: Instant,
    /// True if the supervisor has warned that it is not complete.
    pub(super) is_late: bool,
    /// Why a new worker process is needed; `None` if the current one puts it in force.
    pub(super) why_replace: Option<String>,
    pub(super) cause: Cause,
}

impl Change {
    /// Time until the supervisor warns.
    pub(super) fn time_left(&self) -> Duration {
        LATE_INTERVAL.saturating_sub(clock::since(self.warned_at))
    }

    /// Notes that it begins now.
    fn begin(&mut self) {
        (self.since, self.warned_at, self.is_late) = (clock::now(), clock::now(), false);
    }
}

/// The part of a reload's result about the data of a worker process that leaves.
const LOST: &str = "the counters start at zero; the previous worker process prints its own when it exits";
const LOST_WITH_RESPONSES: &str = "responses stored in memory are lost, and the counters start at zero; the previous \
                                   worker process prints its own when it exits";

/// Returns whether a worker process stores responses of origins.
fn keeps_responses(config: &Config) -> bool {
    config.steps().any(|step| matches!(step.kind, StepKind::Cache(_)))
}

/// Creates missing files and folders that a worker process may use, but not create.
pub(super) fn create_confined_files(config: &Config, compiled: &CompiledConfig) -> Result<(), Failure> {
    for (folder, _) in &config.store.disks {
        // The worker process says what is wrong with its volumes.
        let _ = create_private_folder(folder);
    }
    if let Some(state) = &config.state {
        // A folder that cannot be written has been reported, or the worker process will say what it loses.
        let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(digest_file(state));
    }
    compiled.spec.create_secrets().map_err(|errors| explain(&errors))
}

impl Supervisor {
    /// Reads the configuration again, and has it put in force. `asker` receives the result.
    pub(super) fn reload(&mut self, asker: Asker) {
        // A signal that arrives before the first worker process serves waits for it, as one during another reload does.
        if self.phase != Phase::Serve || (!self.announced && asker.is_some()) {
            return self.answer(asker, 409, "this process is starting or stopping; try again later\n");
        }
        if self.upgrade.is_some() {
            return self.answer(asker, 409, "an upgrade is already in progress; try again later\n");
        }
        // Signals that arrive meanwhile are one reload.
        let is_known = asker.is_none() && self.waiting.contains(&None);
        if self.waiting.len() >= RELOADS_WAITING_MAX {
            return self.answer(asker, 409, "too many reloads are in progress; try again later\n");
        }
        if !is_known {
            self.waiting.push_back(asker);
        }
    }

    /// Begins the next reload that waits, if none is in progress, or if the one in progress is late.
    pub(super) fn next_reload(&mut self) {
        while self.phase == Phase::Serve && self.upgrade.is_none() {
            let is_late = self.change.as_ref().is_some_and(|change| change.is_late);
            if self.change.is_some() && (!is_late || self.waiting.is_empty()) {
                return;
            }
            // The one that starts would be lost sight of.
            if self.processes.iter().any(|process| process.role == Role::Starting) {
                return;
            }
            let Some(asker) = self.waiting.pop_front() else { return };
            let late = self.give_up_late_change();
            self.service_manager.reloading();
            match (self.prepare_change(asker), late) {
                (Ok(change), Some(why)) => self.replace(change, why),
                (Ok(change), None) => self.apply(change),
                (Err(failure), _) => self.refuse(failure, asker),
            }
        }
    }

    /// Reports that `change` is not put in force, because of `failure`.
    fn refuse_change(&mut self, change: &mut Change, failure: Failure) {
        // The permissions of socket files are restored before the result is known.
        change.access.clear();
        match &change.cause {
            Cause::Folder(path) => {
                self.report_unusable(path, &failure);
                self.service_manager.ready(&self.summary());
            }
            Cause::Operator | Cause::File => self.refuse(failure, change.asker),
        }
    }

    /// Reports that the new folder at `path` is not served, unless the last report was the same.
    fn report_unusable(&mut self, path: &Path, failure: &Failure) {
        if self.folder_check.fail(failure.text.clone()) {
            say(&describe_unusable(path, failure));
        }
    }

    /// Gives up a change that is late, so that another one can begin. Returns why that one needs a new worker process, if
    /// there was any: the one that serves may never become free.
    fn give_up_late_change(&mut self) -> Option<String> {
        let mut change = self.change.take()?;
        for process in self.processes.iter_mut().filter(|process| process.role == Role::Candidate) {
            process.role = Role::Abandoned;
            let _ = process.child.kill();
        }
        for process in self.processes.iter_mut().filter(|process| process.role == Role::Current) {
            process.tell(&ToWorker::GiveUpReload, &[]);
        }
        let seconds = clock::since(change.since).as_secs();
        let text = format!("this reload was not complete after {seconds} s, and another one was requested");
        self.refuse_change(&mut change, Failure::runtime(text));
        Some(format!("an earlier reload was not complete after {seconds} s"))
    }

    /// Reads the configuration, and does everything that can fail and needs this process.
    pub(super) fn prepare_change(&mut self, asker: Asker) -> Result<Change, Failure> {
        let disk = RecordingDisk::default();
        let mut config = self.options.source.load_from(&disk, Style::Plain)?;
        let live = arrange(&mut config, &self.config.listeners);
        let change = self.prepare_config((config, &live), disk.into_recorded(), Cause::Operator)?;
        Ok(Change { asker, ..change })
    }

    /// Does everything that can fail and needs this process, to put in force a configuration read from `files`: with
    /// arranged listeners, and whether each of them is in use.
    fn prepare_config(
        &mut self,
        (config, live): (Config, &[bool]),
        files: RecordedFiles,
        cause: Cause,
    ) -> Result<Change, Failure> {
        let compiled = CompiledConfig::compile(&config)?;
        let folders = compiled.spec.opened_folders();
        if matches!(cause, Cause::Folder(_)) {
            check_owners(&self.folders, &folders)?;
        }
        let certificates = match &mut self.certificates {
            Some(certificates) => Some(CertificateSet(certificates.load(&config)?)),
            None => None,
        };
        create_confined_files(&config, &compiled)?;
        let confinement = Confinement::of_process(&compiled.spec, &config);
        drop(compiled);
        let workers = self.current().map_or_else(|| count_workers(&config), |current| self.processes[current].workers);
        let mut none = Inherited::default();
        let (addresses, quic) = (&self.addresses, &self.quic);
        let added = bind_added(addresses, (&config, live), workers, quic, &mut none)?;
        let datagrams = change_http3(addresses, (&config, live), workers, quic, &mut none)?;
        let (remaining, removed) = partition(addresses, live);
        let access = AccessChange::prepare(remaining.chain(&added), &config)?;
        Ok(Change {
            config,
            files,
            folders,
            certificates,
            added,
            removed,
            access,
            datagrams,
            confinement,
            asker: None,
            since: clock::now(),
            warned_at: clock::now(),
            is_late: false,
            why_replace: None,
            cause,
        })
    }

    /// Has a change put in force by the worker process that serves, or by a new one.
    pub(super) fn apply(&mut self, mut change: Change) {
        change.begin();
        let outside = self.is_confined().then(|| self.confinement.find_outside(&change.confinement)).flatten();
        let Some(current) = self.current() else {
            return self.replace(change, "none was running".to_owned());
        };
        if let Some(outside) = outside {
            return self.replace(change, format!("the previous one may not {outside} (landlock)"));
        }
        let asked = |id: u32| self.addresses.iter().find(|address| address.id == id).map(|address| &address.asked);
        let datagrams = change.datagrams.iter();
        let datagrams = datagrams.filter_map(|(id, sockets)| Some((asked(*id)?, sockets.as_slice())));
        let (parcel, descriptors) = ConfigParcel::new(
            change.files.clone(),
            self.certificates_for(Some(&change)),
            change.added.iter(),
            datagrams,
        );
        let order = change.asker.filter(|(pid, _)| *pid == self.processes[current].pid()).map(|(_, order)| order);
        self.processes[current].tell(&ToWorker::Reload { parcel: Box::new(parcel), order }, &descriptors);
        self.change = Some(change);
    }

    /// Starts a new worker process, which takes over once it serves.
    pub(super) fn replace(&mut self, mut change: Change, why: String) {
        if matches!(change.cause, Cause::Folder(_)) && self.processes.len() >= PROCESSES_MAX {
            let text = format!(
                "it needs another worker process, because {why}, and {PROCESSES_MAX} exist until earlier ones have \
                 finished their requests"
            );
            return self.refuse_change(&mut change, Failure::runtime(text));
        }
        change.why_replace = Some(why);
        change.begin();
        self.restart_at = None;
        self.change = Some(change);
        if let Err(error) = self.start_process(Role::Candidate) {
            self.give_up_change(Failure::runtime(format!("cannot start a worker process: {error}")));
        }
    }

    pub(super) fn handle_not_reloaded(&mut self, failure: Failure) {
        let Some(mut change) = self.change.take_if(|change| change.why_replace.is_none()) else { return };
        if self.is_confined() {
            // A new one is confined to the files that are there now, and gives the reason if it cannot serve either.
            let reason = failure.text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            return self.replace(change, format!("the previous one could not apply the configuration: {reason}"));
        }
        self.refuse_change(&mut change, failure);
    }

    pub(super) fn give_up_change(&mut self, failure: Failure) {
        let Some(mut change) = self.change.take() else { return };
        self.refuse_change(&mut change, failure);
        if change.cause == Cause::File {
            self.follows_files = false;
            say(
                "warning: no worker process could be started for the replaced file; until the next successful reload, \
                 flatout does not try again",
            );
        }
        if self.current().is_none() && self.restart_at.is_none() && self.phase == Phase::Serve {
            self.restart_at = Some(self.started_at + RESTART_INTERVAL);
        }
    }

    pub(super) fn refuse(&mut self, failure: Failure, asker: Asker) {
        self.history.reloads_refused += 1;
        self.answer_elsewhere(asker, &failure.text);
        match self.current() {
            Some(current) => {
                let process = &mut self.processes[current];
                let order = asker.filter(|(pid, _)| *pid == process.pid()).map(|(_, order)| order);
                process.tell(&ToWorker::Refused { failure, order }, &[]);
            }
            None => {
                failure.report();
            }
        }
        self.service_manager.ready(&self.summary());
    }

    /// Tells an operator who asked a process that has stopped to serve since.
    pub(super) fn answer_elsewhere(&mut self, asker: Asker, text: &str) {
        let current = self.current().map(|current| self.processes[current].pid());
        if asker.is_some_and(|(pid, _)| Some(pid) != current) {
            self.answer(asker, 500, &format!("{text}\n"));
        }
    }

    /// The configuration of the change is in force.
    pub(super) fn commit(&mut self) -> Option<Change> {
        let mut change = self.change.take()?;
        self.addresses.retain(|address| !change.removed.contains(&address.id));
        self.addresses.append(&mut change.added);
        change.access.drain(..).for_each(AccessChange::commit);
        for (id, sockets) in change.datagrams.drain(..) {
            if let Some(address) = self.addresses.iter_mut().find(|address| address.id == id) {
                address.set_datagrams(sockets);
            }
        }
        if let (Some(certificates), Some(CertificateSet(loaded))) = (&mut self.certificates, change.certificates.take())
        {
            certificates.show(loaded);
        }
        self.config = change.config.clone();
        if change.is_late {
            AccessChange::apply(&self.addresses, &self.config);
        }
        self.files = change.files.clone();
        self.folders = std::mem::take(&mut change.folders);
        self.folder_check.succeed();
        if change.why_replace.is_some() {
            self.confinement = change.confinement.clone();
        }
        if let Cause::Folder(path) = &change.cause {
            say(&describe_replaced(path));
            if change.why_replace.is_some() {
                self.folder_check.delay_next();
            }
        }
        self.follows_files = true;
        self.service_manager.ready(&self.summary());
        Some(change)
    }

    /// The candidate serves: the current process leaves.
    /// `applied` are lines about the migrations that it has applied.
    pub(super) fn hand_over_to(&mut self, pid: u32, applied: Vec<String>) {
        let Some(change) = &self.change else { return };
        self.history.generation += 1;
        let before = (&self.config, self.addresses.as_slice());
        let mut lines = applied;
        lines.extend(describe_served(before, &change.config, &change.added, &change.removed, &change.datagrams));
        lines.extend(warn_of_fixed(&fixed_by_supervisor(&self.config, &change.config)));
        lines.push(match self.current() {
            Some(_) if keeps_responses(&self.config) => LOST_WITH_RESPONSES.to_owned(),
            Some(_) => LOST.to_owned(),
            None => "the counters start at zero".to_owned(),
        });
        let Some(change) = self.commit() else { return };
        let Some(process) = self.process(pid) else { return };
        process.role = Role::Current;
        let go = process.go.take();
        let why = change.why_replace.unwrap_or_default();
        let mut text =
            format!("reloaded, generation {}\n  the worker process {pid} serves: {why}", self.history.generation);
        text.extend(lines.iter().map(|line| format!("\n  {line}")));
        say(&text);
        self.dismiss(pid, go.as_ref(), change.asker, &format!("{text}\n"));
    }

    /// Makes all processes but `successor` leave new connections to it. `asker` gets the text once they do.
    pub(super) fn dismiss(&mut self, successor: u32, go: Option<&OwnedFd>, asker: Asker, text: &str) {
        let go: Vec<_> = go.iter().map(|go| go.as_fd()).collect();
        let mut is_answered = false;
        for process in &mut self.processes {
            if process.pid() == successor || process.role == Role::Leaving {
                continue;
            }
            process.role = Role::Leaving;
            let order = asker.filter(|(pid, _)| *pid == process.pid()).map(|(_, order)| order);
            is_answered |= order.is_some();
            let result = CommandResult { status: 200, text: text.to_owned() };
            process.tell(&ToWorker::HandOver { order, result }, &go);
        }
        if !is_answered {
            self.answer(asker, 200, text);
        }
    }

    /// Warns if the process that serves has not completed a reload yet; stops a new one that does not serve in time.
    pub(super) fn look_at_late_change(&mut self) {
        let Some(change) = &mut self.change else { return };
        let is_replacing = change.why_replace.is_some();
        let seconds = clock::since(change.since).as_secs();
        (change.warned_at, change.is_late) = (clock::now(), true);
        // Until it is complete, clients may connect as the configuration in use says.
        change.access.clear();
        let is_over = is_replacing && clock::since(change.since) >= REPLACE_TIMEOUT;
        let role = if is_replacing { Role::Candidate } else { Role::Current };
        let Some(process) = self.processes.iter_mut().find(|process| process.role == role) else {
            return self.give_up_change(Failure::runtime("the worker process has exited"));
        };
        let pid = process.pid();
        if !is_over {
            let state = if is_replacing {
                "is not ready to serve the new configuration"
            } else {
                "has not completed the reload"
            };
            return say(&format!(
                "warning: the worker process {pid} {state} after {seconds} s; the previous configuration remains in use \
                 meanwhile\n  try: another reload, which does not wait for this one"
            ));
        }
        let late = format!("the worker process {pid} was not ready to serve within {seconds} s");
        say(&format!("error: {late}"));
        let _ = process.failure.get_or_insert(Failure::runtime(late));
        // Its exit ends the change.
        let _ = process.child.kill();
    }

    /// Returns whether the supervisor checks for replaced folders.
    pub(super) fn follows_folders(&self) -> bool {
        let is_quiet = self.phase == Phase::Serve && self.change.is_none() && self.upgrade.is_none();
        is_quiet && !self.folders.is_empty() && self.current().is_some()
    }

    /// Has the configuration put in force again if a folder was replaced. Landlock may forbid the worker process that
    /// serves to read the new folder; then another worker process takes over.
    pub(super) fn look_at_folders(&mut self) {
        let replaced = self.folder_check.take_replaced();
        if !self.follows_folders() {
            return;
        }
        if self.folder_check.is_due() {
            self.folder_check.begin(self.folders.clone());
        }
        let Some(path) = replaced else { return };
        self.folder_check.request();
        let live = find_live(&self.config, &self.addresses);
        let cause = Cause::Folder(path.clone());
        match self.prepare_config((self.config.clone(), &live), self.files.clone(), cause) {
            Ok(change) => {
                self.service_manager.reloading();
                self.apply(change);
            }
            Err(failure) => self.report_unusable(&path, &failure),
        }
    }

    /// Follows changed certificates, and files that were replaced by others.
    pub(super) fn look_at_files(&mut self) {
        // A change has read the certificates itself.
        if self.change.is_some() {
            return;
        }
        let changed = self.certificates.as_mut().and_then(|certificates| certificates.look(&self.config)).is_some();
        let needs = |process: &&mut WorkerProcess| {
            matches!(process.role, Role::Starting | Role::Current) && (changed || process.lacks_certificates)
        };
        for process in self.processes.iter_mut().filter(needs) {
            process.lacks_certificates = false;
            let parcel = self.certificates.as_ref().map(Certificates::parcel).unwrap_or_default();
            process.tell(&ToWorker::Certificates(parcel), &[]);
        }
        // An earlier process takes as much memory as the current one.
        let is_alone = self.processes.len() == 1;
        let is_quiet = is_alone && self.upgrade.is_none() && self.phase == Phase::Serve;
        let was_recent = self.followed_at.is_some_and(|at| clock::since(at) < FOLLOW_INTERVAL);
        if !is_quiet || was_recent || !self.follows_files || !self.is_confined() {
            return;
        }
        let Some(path) = self.confinement.find_replaced() else { return };
        let why = format!("{} was replaced, and the previous one may not open the new file (landlock)", path.display());
        let change = Change {
            config: self.config.clone(),
            files: self.files.clone(),
            folders: self.folders.clone(),
            certificates: None,
            added: Vec::new(),
            removed: Vec::new(),
            access: Vec::new(),
            datagrams: Vec::new(),
            confinement: self.confinement.renewed(),
            asker: None,
            since: clock::now(),
            warned_at: clock::now(),
            is_late: false,
            why_replace: None,
            cause: Cause::File,
        };
        self.followed_at = Some(clock::now());
        self.service_manager.reloading();
        self.replace(change, why);
    }
}
