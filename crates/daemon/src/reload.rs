//! The atomic switch to a new configuration. Everything that can fail is done first; the remaining steps cannot fail.
//! Connections and requests in progress are not affected.
//!
//! A worker process compiles the configuration on another thread, because a network file system may not respond, and a
//! migration of a database may take long. Meanwhile, the control thread executes commands of the supervisor, which may
//! stop this process or start another one.

use crate::accelerate::open_store;
use crate::admin::CommandResult;
use crate::arrange::arrange;
use crate::certificates::{CertificateSet, Certificates, Loaded};
use crate::confine::{Confinement, Outside};
use crate::control::Control;
use crate::events::WorkerEvent;
use crate::failure::{EXIT_USAGE, Failure, SENT_TEXT_BYTES_MAX, say, shorten};
use crate::folders::{check_owners, describe_replaced, describe_unusable};
use crate::here::find_exposed;
use crate::inherit::Inherited;
use crate::listeners::access::AccessChange;
use crate::listeners::{Address, bind_added, change_http3, find_live, partition};
use crate::memory::{decide_budget, memory_limit};
use crate::messages::{ConfigParcel, ToSupervisor};
use crate::receive::check_opened;
use crate::spec::{compile, open_pages};
use crate::watch;
use flatout_access_log::LogSet;
use flatout_config::Style;
use flatout_config::model::Config;
use flatout_engine::MetricsText;
use flatout_engine::spec::{PagesShared, Spec};
use flatout_proxy::Accelerator;
use flatout_server::{Command, Listener, Phase};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

/// Stack size of the thread that compiles: that of the main thread, which compiles at startup.
const STACK_BYTES: usize = 8 << 20;

/// The parts of the configuration in use that are needed to compile another one.
struct CompileContext {
    previous: Arc<Spec>,
    metrics: MetricsText,
    accelerator: Arc<Accelerator>,
    pages: Arc<PagesShared>,
}

impl CompileContext {
    fn compile(&self, config: &Config) -> Result<Arc<Spec>, Failure> {
        compile(config, Some(&self.previous), &self.metrics, &self.accelerator, &self.pages)
    }
}

/// A compiled configuration whose databases are open.
pub(crate) struct CompiledReload {
    config: Config,
    live: Vec<bool>,
    spec: Arc<Spec>,
    applied: Vec<String>,
}

impl std::fmt::Debug for CompiledReload {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CompiledReload").finish_non_exhaustive()
    }
}

/// A reload whose configuration a thread is compiling: the other parts that the supervisor has sent.
pub(crate) struct PendingReload {
    number: u64,
    inherited: Inherited,
    certificates: Option<Loaded>,
    /// The command that waits for the result.
    order: Option<u64>,
}

/// A new configuration for which everything that can fail has succeeded.
struct Prepared {
    config: Config,
    spec: Arc<Spec>,
    /// One line for each database to which migrations were applied.
    applied: Vec<String>,
    /// Added addresses, and their listeners per worker.
    added: Vec<Address>,
    listeners: Vec<Vec<Listener>>,
    /// The numbers of removed listeners.
    removed: Vec<u32>,
    access: Vec<AccessChange>,
    /// New UDP sockets by listener number, for addresses at which HTTP/3 is added. The list is empty if HTTP/3 is
    /// removed.
    datagrams: Vec<(u32, Vec<OwnedFd>)>,
    certificates: Option<Loaded>,
    logs: LogSet,
}

impl Control {
    /// Reads the configuration again, and switches to it if it is valid. Also prints the result to standard error.
    pub(crate) fn reload(&mut self) -> CommandResult {
        if self.workers.phase() != Phase::Serve || !self.announced {
            return CommandResult {
                status: 409,
                text: "this process is starting or stopping; try again later\n".to_owned(),
            };
        }
        if self.upgrade.is_some() {
            return CommandResult {
                status: 409,
                text: "an upgrade is already in progress; try again later\n".to_owned(),
            };
        }
        self.service_manager.reloading();
        let config = self.in_force.options.source.load(Style::Plain);
        let prepared = config.and_then(|mut config| {
            let live = arrange(&mut config, &self.in_force.config.listeners);
            let spec = self.compile_context().compile(&config)?;
            self.prepare(config, live, spec)
        });
        let answer = match prepared {
            Ok(prepared) => self.put_in_force(prepared),
            Err(failure) => self.refuse(&failure),
        };
        self.service_manager.ready(&self.summary());
        answer
    }

    /// Returns whether this process checks for replaced folders.
    pub(crate) fn follows_folders(&self) -> bool {
        let is_quiet = self.workers.phase() == Phase::Serve && self.announced && self.upgrade.is_none();
        self.link.is_none() && is_quiet && self.in_force.spec.folders().next().is_some()
    }

    /// Puts the configuration in force again if a folder was replaced.
    pub(crate) fn look_at_folders(&mut self) {
        let replaced = self.folder_check.take_replaced();
        if !self.follows_folders() {
            return;
        }
        if self.folder_check.is_due() {
            self.folder_check.begin(self.in_force.spec.opened_folders());
        }
        let Some(path) = replaced else { return };
        self.folder_check.request();
        match self.prepare_again() {
            Ok(prepared) => {
                self.put_in_force(prepared);
                say(&describe_replaced(&path));
            }
            Err(failure) if self.folder_check.fail(failure.text.clone()) => say(&describe_unusable(&path, &failure)),
            Err(_) => {}
        }
    }

    /// Does everything that can fail to put the same configuration in force again, which opens replaced folders.
    fn prepare_again(&mut self) -> Result<Prepared, Failure> {
        let config = self.in_force.config.clone();
        let live = find_live(&config, &self.addresses);
        let spec = self.compile_context().compile(&config)?;
        check_owners(&self.in_force.spec.opened_folders(), &spec.opened_folders())?;
        self.prepare(config, live, spec)
    }

    /// Begins a reload with a configuration that the supervisor has sent together with `descriptors`. The supervisor
    /// gets the result, and sends no other configuration before.
    pub(crate) fn begin_received_reload(
        &mut self,
        parcel: ConfigParcel,
        descriptors: Vec<OwnedFd>,
        order: Option<u64>,
    ) {
        if let Err(failure) = self.start_compiling(parcel, descriptors, order) {
            self.report_not_reloaded(failure, order);
        }
    }

    fn start_compiling(
        &mut self,
        parcel: ConfigParcel,
        descriptors: Vec<OwnedFd>,
        order: Option<u64>,
    ) -> Result<(), Failure> {
        ConfigParcel::check_count(descriptors.len(), parcel.socket_count())?;
        let inherited = parcel.take_sockets(&mut descriptors.into_iter());
        let mut config = self.in_force.options.source.load_from(&parcel.files, Style::Plain)?;
        self.check_budget(&config)?;
        let live = arrange(&mut config, &self.in_force.config.listeners);
        self.reload_number += 1;
        let number = self.reload_number;
        let (context, workers, sender) = (self.compile_context(), self.workers.all.len(), self.events.sender.clone());
        let confinement = self.limits.confinement.clone();
        let compile = move || {
            let spec = context.compile(&config)?;
            check_opened(&spec, confinement.as_ref())?;
            let applied = open_pages(&spec, &config, workers)?;
            Ok(Box::new(CompiledReload { config, live, spec, applied }))
        };
        let body = move || {
            let compiled = catch_unwind(AssertUnwindSafe(compile));
            let panicked = |_| Err(Failure::runtime("the thread of the reload panicked; please report this"));
            sender.send(WorkerEvent::Compiled(number, compiled.unwrap_or_else(panicked)));
        };
        thread::Builder::new()
            .name("reload".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(body)
            .map_err(|error| Failure::runtime(format!("cannot start a thread for the reload: {error}")))?;
        let certificates = Loaded::received(parcel.certificates);
        self.pending_reload = Some(PendingReload { number, inherited, certificates, order });
        Ok(())
    }

    /// Switches to a configuration that a thread has compiled, and reports to the supervisor. Does nothing if the
    /// supervisor has given up this reload.
    pub(crate) fn finish_received_reload(&mut self, number: u64, compiled: Result<Box<CompiledReload>, Failure>) {
        let is_wanted = self.workers.phase() == Phase::Serve;
        let pending = self.pending_reload.take_if(|pending| pending.number == number).filter(|_| is_wanted);
        let Some(PendingReload { inherited, certificates, order, .. }) = pending else { return };
        let prepared =
            compiled.and_then(|compiled| self.prepare_rest(*compiled, inherited, Some(CertificateSet(certificates))));
        match prepared {
            Ok(prepared) => {
                let result = self.put_in_force(prepared);
                let generation = self.shared.generation.load(Ordering::Relaxed);
                let answer = order.map(|order| (order, shorten(result.text, SENT_TEXT_BYTES_MAX)));
                self.tell_supervisor(&ToSupervisor::Reloaded { generation, answer });
            }
            Err(failure) => self.report_not_reloaded(failure, order),
        }
    }

    fn report_not_reloaded(&self, failure: Failure, order: Option<u64>) {
        self.tell_supervisor(&ToSupervisor::NotReloaded { failure: failure.shortened(), order });
    }

    fn compile_context(&self) -> CompileContext {
        CompileContext {
            previous: Arc::clone(&self.in_force.spec),
            metrics: Arc::clone(&self.in_force.metrics),
            accelerator: Arc::clone(&self.accelerator),
            pages: Arc::clone(&self.in_force.pages),
        }
    }

    /// Checks the memory limit of a store that is not open yet.
    fn check_budget(&self, config: &Config) -> Result<(), Failure> {
        if self.accelerator.store().is_none() {
            decide_budget(config.store.memory_bytes_max, memory_limit())?;
        }
        Ok(())
    }

    fn put_in_force(&mut self, prepared: Prepared) -> CommandResult {
        let changes = self.commit(prepared);
        let generation = self.shared.generation.fetch_add(1, Ordering::Relaxed) + 1;
        self.shared.view().last_error = None;
        self.folder_check.succeed();
        let text = format!("reloaded, generation {generation}{changes}\n");
        say(text.trim_end());
        CommandResult { status: 200, text }
    }

    /// Reports that a configuration was rejected.
    pub(crate) fn refuse(&self, failure: &Failure) -> CommandResult {
        self.shared.reloads_refused.fetch_add(1, Ordering::Relaxed);
        let heading = "the new configuration was rejected; the old one remains in use";
        let text = if failure.diagnostics { failure.text.clone() } else { format!("error: {}", failure.text) };
        let text = format!("{text}\n{heading}\n");
        say(text.trim_end());
        self.shared.view().last_error = Some(text.clone());
        CommandResult { status: if failure.code == EXIT_USAGE { 422 } else { 500 }, text }
    }

    /// Does everything that can fail after `config` was compiled.
    fn prepare(&mut self, config: Config, live: Vec<bool>, spec: Arc<Spec>) -> Result<Prepared, Failure> {
        self.check_confinement(&spec)?;
        self.check_budget(&config)?;
        let applied = open_pages(&spec, &config, self.workers.all.len())?;
        self.prepare_rest(CompiledReload { config, live, spec, applied }, Inherited::default(), None)
    }

    /// Does everything that can fail after the databases of the configuration were opened. Nothing of the running
    /// configuration is changed, except the permissions of socket files, which are reduced, and the log files, which are
    /// replaced last. Sockets in `inherited` need not be bound, and if `certificates` is given, certificates need not be
    /// read.
    fn prepare_rest(
        &mut self,
        compiled: CompiledReload,
        mut inherited: Inherited,
        certificates: Option<CertificateSet>,
    ) -> Result<Prepared, Failure> {
        let CompiledReload { config, live, spec, applied } = compiled;
        let certificates = match (certificates, &mut self.certificates) {
            (Some(CertificateSet(received)), _) => received,
            (None, Some(certificates)) => certificates.load(&config)?,
            (None, None) => None,
        };
        watch::extend(&mut self.watch, &spec)?;
        let (addresses, workers, quic) = (&self.addresses, self.workers.all.len(), &self.quic);
        let added = bind_added(addresses, (&config, &live), workers, quic, &mut inherited)?;
        let datagrams = change_http3(addresses, (&config, &live), workers, quic, &mut inherited)?;
        let listeners = self.listeners_of(&added, &datagrams).map_err(|error| {
            Failure::runtime(format!("no descriptor for the listeners of the new configuration: {error}"))
        })?;
        let (remaining, removed) = partition(addresses, &live);
        let access = AccessChange::prepare(remaining.chain(&added), &config)?;
        let logs = self.logs.replace(&config.log_settings()).map_err(Failure::usage)?;
        Ok(Prepared { config, spec, applied, added, listeners, removed, access, datagrams, certificates, logs })
    }

    /// Checks that all folders of `spec` are among those to which the threads are permanently confined.
    fn check_confinement(&self, spec: &Spec) -> Result<(), Failure> {
        let Some(confinement) = &self.limits.confinement else { return Ok(()) };
        match confinement.find_outside(&Confinement::of_thread(spec)) {
            Some(Outside::Path(path)) => Err(Failure::usage(format!(
                "{} is outside the folders to which the workers were confined at startup (landlock)\n  \
                 try: flatout upgrade (or SIGUSR2), which confines a new process to the new folders",
                path.display()
            ))),
            // Worker threads may connect to any port.
            Some(Outside::Port(_)) | None => Ok(()),
        }
    }

    fn listeners_of(&self, added: &[Address], datagrams: &[(u32, Vec<OwnedFd>)]) -> io::Result<Vec<Vec<Listener>>> {
        let count = self.workers.all.len();
        let of_worker = |worker| {
            let listeners: io::Result<Vec<Vec<Listener>>> =
                added.iter().map(|address| address.listeners_of(worker, count)).collect();
            let mut listeners: Vec<Listener> = listeners?.into_iter().flatten().collect();
            for address in &self.addresses {
                for (_, sockets) in datagrams.iter().filter(|(id, _)| *id == address.id) {
                    listeners.extend(address.quic_listeners_of(sockets, worker, count)?);
                }
            }
            Ok(listeners)
        };
        (0..count).map(of_worker).collect()
    }

    /// Switches to the new configuration, and returns a summary of the changes.
    fn commit(&mut self, prepared: Prepared) -> String {
        let Prepared { config, spec, applied, added, mut listeners, removed, access, datagrams, certificates, logs } =
            prepared;
        let changes = self.describe_changes(&config, applied, &added, &removed, &datagrams);
        spec.use_secrets();
        // Certificates are replaced before the listeners that use them are added.
        if let Some(all) = &mut self.certificates {
            let shown = Certificates::show(all, certificates);
            self.shared.view().certificates = shown;
        }
        // If the store is opened now, no responses are in progress in it, so only this thread waits for its disks.
        let shares = (self.limits.shares, self.workers.all.len());
        if let Err(failure) = open_store(&self.accelerator, &config, &spec, shares, &self.events.sender) {
            // This happens only if the memory limit was reduced after it was checked.
            say(&format!("warning: nothing is stored: {}", failure.text));
        }
        // The engine and the logs are replaced at the same time, because responses of the new engine refer to the new
        // logs. New listeners are added after the engine that knows them, and old listeners are removed last.
        self.workers.tell(|_| {
            let (spec, logs) = (Arc::clone(&spec), logs.clone());
            Command::Logs(logs, Box::new(move |engine| engine.swap(spec)))
        });
        for (worker, listeners) in self.workers.all.iter().zip(&mut listeners) {
            for listener in listeners.drain(..) {
                let _ = worker.commands.send(Command::AddListener(listener));
            }
        }
        // The control thread's copies of the sockets are closed first; see `listeners`.
        self.addresses.retain(|address| !removed.contains(&address.id));
        for id in removed {
            self.workers.tell(|_| Command::RemoveListener(id));
        }
        self.addresses.extend(added);
        for (id, sockets) in datagrams {
            if sockets.is_empty() {
                self.workers.tell(|_| Command::RemoveQuic(id));
            }
            if let Some(address) = self.addresses.iter_mut().find(|address| address.id == id) {
                address.set_datagrams(sockets);
            }
        }
        // This ensures that requests sent after the reply are handled with the new configuration.
        self.workers.wait_until_executed();
        access.into_iter().for_each(AccessChange::commit);
        watch::retain(self.watch.as_mut(), &spec);
        self.in_force.published.store(Arc::clone(&spec));
        (self.in_force.config, self.in_force.spec) = (config, spec);
        // Reports name the steps of the configuration.
        self.has_changed_origins = true;
        self.show();
        changes
    }

    fn describe_changes(
        &self,
        config: &Config,
        applied: Vec<String>,
        added: &[Address],
        removed: &[u32],
        datagrams: &[(u32, Vec<OwnedFd>)],
    ) -> String {
        let mut lines = applied;
        let before = (&self.in_force.config, self.addresses.as_slice());
        lines.extend(describe_served(before, config, added, removed, datagrams));
        let fixed = fixed_settings(&self.in_force.config, config, self.accelerator.store().is_some());
        lines.extend(warn_of_fixed(&fixed));
        lines.iter().map(|line| format!("\n  {line}")).collect()
    }
}

/// Returns one line for each added or removed site and listener; `before` are the configuration and the addresses in force.
pub(crate) fn describe_served(
    before: (&Config, &[Address]),
    config: &Config,
    added: &[Address],
    removed: &[u32],
    datagrams: &[(u32, Vec<OwnedFd>)],
) -> Vec<String> {
    let (old, addresses) = before;
    let mut lines = Vec::new();
    if config.sites.len() != old.sites.len() {
        lines.push(format!("sites: {} (were {})", config.sites.len(), old.sites.len()));
    }
    lines.extend(added.iter().map(|address| format!("also listening on {}", address.bound)));
    let gone = addresses.iter().filter(|address| removed.contains(&address.id));
    lines.extend(gone.map(|address| format!("no longer listening on {}", address.bound)));
    for (id, sockets) in datagrams {
        let bound = addresses.iter().find(|address| address.id == *id).map(|address| address.bound.to_string());
        let change = if sockets.is_empty() { "no longer serving HTTP/3" } else { "also serving HTTP/3" };
        lines.push(format!("{change} on {}", bound.unwrap_or_default()));
    }
    let known = find_exposed(old);
    lines.extend(find_exposed(config).into_iter().filter(|warning| !known.contains(warning)));
    lines
}

/// The warning about changed settings that are not in force.
pub(crate) fn warn_of_fixed(names: &[&str]) -> Option<String> {
    let names = (!names.is_empty()).then(|| names.join(", "))?;
    Some(format!("warning: {names}: changed, but a reload cannot apply this change; use flatout upgrade"))
}

/// Returns the changed settings that belong to the supervisor, so that a new worker process does not apply them.
pub(crate) fn fixed_by_supervisor(old: &Config, new: &Config) -> Vec<&'static str> {
    let differs = [
        ("user", old.user != new.user || old.group != new.group),
        ("worker-process", old.worker_process != new.worker_process),
        ("admin", old.admin != new.admin),
        ("sockets", old.sockets != new.sockets),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// Returns the changed settings that only a new process can apply. The store's limits can change until the store is
/// opened.
fn fixed_settings(old: &Config, new: &Config, has_store: bool) -> Vec<&'static str> {
    let differs = [
        ("workers", old.workers != new.workers),
        ("user", old.user != new.user || old.group != new.group),
        ("open-files", old.open_files != new.open_files),
        ("worker-process", old.worker_process != new.worker_process),
        ("landlock", old.landlock() != new.landlock()),
        ("seccomp", old.seccomp != new.seccomp),
        ("state", old.state != new.state),
        ("admin", old.admin != new.admin),
        ("timeouts", old.timeouts != new.timeouts),
        ("request-head", old.request_head != new.request_head),
        ("request-body", old.request_body != new.request_body),
        ("limit-connections", old.limit_connections != new.limit_connections),
        ("sockets", old.sockets != new.sockets),
        ("cache", old.cache != new.cache),
        ("store", has_store && old.store != new.store),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::{fixed_by_supervisor, fixed_settings};
    use flatout_config::model::{Config, StoreBudget};

    #[test]
    fn what_a_reload_cannot_change_is_named() {
        let old = Config::default();
        assert!(fixed_settings(&old, &old, true).is_empty());
        let store = StoreBudget { memory_objects_max: 5, ..StoreBudget::default() };
        let new = Config { workers: Some(3), state: Some("x".into()), store, ..Config::default() };
        assert_eq!(fixed_settings(&old, &new, true), ["workers", "state", "store"]);
        assert_eq!(fixed_settings(&old, &new, false), ["workers", "state"]);
        // A new worker process applies them.
        assert!(fixed_by_supervisor(&old, &new).is_empty());
        let new = Config { user: Some("x".to_owned()), worker_process: false, ..new };
        assert_eq!(fixed_by_supervisor(&old, &new), ["user", "worker-process"]);
    }
}
