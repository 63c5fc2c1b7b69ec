//! The atomic switch to a new configuration: everything that can fail is tried first, and the remaining steps cannot.
//! Connections, and requests in progress, are not affected.

use crate::accelerate::open_store;
use crate::admin::CommandResult;
use crate::arrange::arrange;
use crate::certificates::{Certificates, Loaded};
use crate::confine::Confinement;
use crate::control::Control;
use crate::failure::{EXIT_USAGE, Failure, say};
use crate::inherit::Inherited;
use crate::listeners::{Address, listen_options};
use crate::memory::decide_budget;
use crate::spec::{compile, open_pages};
use crate::watch;
use flatout_access_log::LogSet;
use flatout_config::Style;
use flatout_config::model::Config;
use flatout_engine::spec::Spec;
use flatout_os::cgroup::MemoryLimit;
use flatout_server::{Command, Listener, Phase};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A new configuration, after everything that can fail.
struct Prepared {
    config: Config,
    spec: Arc<Spec>,
    /// One line per database with the migrations that were applied.
    applied: Vec<String>,
    /// New addresses, and their listeners per worker.
    added: Vec<Address>,
    listeners: Vec<Vec<Listener>>,
    /// Numbers of removed listeners.
    removed: Vec<u32>,
    certificates: Option<Loaded>,
    logs: LogSet,
}

impl Control {
    /// Reads the configuration again and, if it is valid, puts it in force. Also prints the result to standard error.
    pub(crate) fn reload(&mut self) -> CommandResult {
        if self.workers.phase() != Phase::Serve || !self.announced {
            return CommandResult { status: 409, text: "not now: this process is starting or stopping\n".to_owned() };
        }
        if self.upgrade.is_some() {
            return CommandResult { status: 409, text: "not now: an upgrade is under way\n".to_owned() };
        }
        self.supervisor.reloading();
        let answer = match self.prepare() {
            Ok(prepared) => {
                let changes = self.commit(prepared);
                let generation = self.shared.generation.fetch_add(1, Ordering::Relaxed) + 1;
                self.shared.view().last_error = None;
                let text = format!("reloaded, generation {generation}{changes}\n");
                say(text.trim_end());
                CommandResult { status: 200, text }
            }
            Err(failure) => self.refuse(&failure),
        };
        self.supervisor.ready(&self.summary());
        answer
    }

    fn refuse(&self, failure: &Failure) -> CommandResult {
        self.shared.reloads_refused.fetch_add(1, Ordering::Relaxed);
        let heading = "the new configuration is refused; the old one stays in force";
        let text = if failure.diagnostics { failure.text.clone() } else { format!("error: {}", failure.text) };
        let text = format!("{text}\n{heading}\n");
        say(text.trim_end());
        self.shared.view().last_error = Some(text.clone());
        CommandResult { status: if failure.code == EXIT_USAGE { 422 } else { 500 }, text }
    }

    /// Does everything that can fail. It changes nothing of the running configuration except the log files, which
    /// come last.
    fn prepare(&mut self) -> Result<Prepared, Failure> {
        let mut config = self.options.source.load(Style::Plain)?;
        let live = arrange(&mut config, &self.config.listeners);
        let spec = compile(&config, Some(&self.spec), &self.metrics, &self.accelerator, &self.pages)?;
        self.check_confinement(&spec)?;
        if self.accelerator.store().is_none() {
            decide_budget(config.store.memory_bytes_max, MemoryLimit::read())?;
        }
        let applied = open_pages(&spec, &config, self.workers.all.len())?;
        let certificates = match &mut self.certificates {
            Some(certificates) => certificates.load(&config)?,
            None => None,
        };
        watch::extend(&mut self.watch, &spec)?;
        let added = self.bind_added(&config, &live)?;
        let listeners = self.listeners_of(&added).map_err(|error| {
            Failure::runtime(format!("no descriptor for the listeners of the new configuration: {error}"))
        })?;
        let is_live = |id: u32| live.get(id as usize).copied().unwrap_or(false);
        let removed = self.addresses.iter().map(|address| address.id).filter(|&id| !is_live(id)).collect();
        let logs = self.logs.replace(&config.log_settings()).map_err(Failure::usage)?;
        Ok(Prepared { config, spec, applied, added, listeners, removed, certificates, logs })
    }

    /// Checks that all folders are within the permanent confinement of threads.
    fn check_confinement(&self, spec: &Spec) -> Result<(), Failure> {
        let Some(confinement) = &self.confinement else { return Ok(()) };
        let wanted = Confinement::of(spec);
        match confinement.find_outside(&wanted) {
            None => Ok(()),
            Some(path) => Err(Failure::usage(format!(
                "{} is outside the folders to which the workers were confined at startup (landlock)\n  \
                 try: flatout upgrade (or SIGUSR2), which confines a new process to the new folders",
                path.display()
            ))),
        }
    }

    fn bind_added(&self, config: &Config, live: &[bool]) -> Result<Vec<Address>, Failure> {
        let has = |id: usize| self.addresses.iter().any(|address| address.id as usize == id);
        let mut added = Vec::new();
        for (id, listener) in config.listeners.iter().enumerate().filter(|(id, _)| live[*id] && !has(*id)) {
            let old = self.addresses.iter().find(|address| address.asked == listener.address);
            // Another protocol at the same address uses the same sockets, so that there is no gap.
            let address = if let Some(old) = old {
                old.with_protocol(id, listener)?
            } else {
                let options = listen_options(config);
                Address::bind(id, listener, self.workers.all.len(), &options, &mut Inherited::default())?
            };
            added.push(address);
        }
        Ok(added)
    }

    fn listeners_of(&self, added: &[Address]) -> io::Result<Vec<Vec<Listener>>> {
        let count = self.workers.all.len();
        let of_worker = |worker| {
            let listeners: io::Result<Vec<Vec<Listener>>> =
                added.iter().map(|address| address.listeners_of(worker, count)).collect();
            Ok(listeners?.into_iter().flatten().collect())
        };
        (0..count).map(of_worker).collect()
    }

    /// Puts it in force, and returns a summary of the changes.
    fn commit(&mut self, prepared: Prepared) -> String {
        let Prepared { config, spec, applied, added, mut listeners, removed, certificates, logs } = prepared;
        let changes = self.describe_changes(&config, applied, &added, &removed);
        // Before the listeners that use them.
        if let Some(all) = &mut self.certificates {
            let shown = Certificates::show(all, certificates);
            self.shared.view().certificates = shown;
        }
        // The first use of a store. It has no responses in progress, so only this thread waits for its disks.
        let shares = (self.shares, self.workers.all.len());
        if let Err(failure) = open_store(&self.accelerator, &config, &spec, shares, &self.event_sender) {
            // The limit has shrunk since it was checked.
            say(&format!("warning: nothing is stored: {}", failure.text));
        }
        // The engine and the logs that its responses refer to change in one moment; new listeners come after an
        // engine that knows them, and old ones are removed last.
        self.workers.tell(|_| {
            let (spec, logs) = (Arc::clone(&spec), logs.clone());
            Command::Logs(logs, Box::new(move |engine| engine.swap(spec)))
        });
        for (worker, listeners) in self.workers.all.iter().zip(&mut listeners) {
            for listener in listeners.drain(..) {
                let _ = worker.commands.send(Command::AddListener(listener));
            }
        }
        // The control thread's copies first: see `listeners`.
        self.addresses.retain(|address| !removed.contains(&address.id));
        for id in removed {
            self.workers.tell(|_| Command::RemoveListener(id));
        }
        self.addresses.extend(added);
        // Requests that follow the reply meet the new configuration.
        self.workers.wait_until_executed();
        watch::retain(self.watch.as_mut(), &spec);
        self.in_force.store(Arc::clone(&spec));
        (self.config, self.spec) = (config, spec);
        self.show();
        changes
    }

    fn describe_changes(&self, config: &Config, applied: Vec<String>, added: &[Address], removed: &[u32]) -> String {
        let mut lines = applied;
        if config.sites.len() != self.config.sites.len() {
            lines.push(format!("sites: {} (were {})", config.sites.len(), self.config.sites.len()));
        }
        lines.extend(added.iter().map(|address| format!("listening on {} too", address.bound)));
        let gone = self.addresses.iter().filter(|address| removed.contains(&address.id));
        lines.extend(gone.map(|address| format!("no longer listening on {}", address.bound)));
        let fixed = fixed_settings(&self.config, config, self.accelerator.store().is_some());
        if !fixed.is_empty() {
            let names = fixed.join(", ");
            lines.push(format!("warning: {names}: changed, but a reload cannot change that; flatout upgrade can"));
        }
        lines.iter().map(|line| format!("\n  {line}")).collect()
    }
}

/// Changed settings that need a new process. The store's bounds may change until it is opened.
fn fixed_settings(old: &Config, new: &Config, has_store: bool) -> Vec<&'static str> {
    let differs = [
        ("workers", old.workers != new.workers),
        ("user", old.user != new.user || old.group != new.group),
        ("open-files", old.open_files != new.open_files),
        ("landlock", old.landlock != new.landlock),
        ("state", old.state != new.state),
        ("admin", old.admin != new.admin),
        ("timeouts", old.timeouts != new.timeouts),
        ("sockets", old.sockets != new.sockets),
        ("cache", old.cache != new.cache),
        ("store", has_store && old.store != new.store),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::fixed_settings;
    use flatout_config::model::{Config, StoreBudget};

    #[test]
    fn what_a_reload_cannot_change_is_named() {
        let old = Config::default();
        assert!(fixed_settings(&old, &old, true).is_empty());
        let store = StoreBudget { memory_objects_max: 5, ..StoreBudget::default() };
        let new = Config { workers: Some(3), state: Some("x".into()), store, ..Config::default() };
        assert_eq!(fixed_settings(&old, &new, true), ["workers", "state", "store"]);
        assert_eq!(fixed_settings(&old, &new, false), ["workers", "state"]);
    }
}
