//! The engine, which reads existing results, creates fixtures, runs steps and records results.

use super::fill::Whereabouts;
use super::progress::{Clock, SuiteReporter};
use super::{Options, RunError, StopRequest};
use crate::bundle::{Bundle, BundleError};
use crate::combine;
use crate::document::{SCHEMA, ServerEntry, SuiteReport, TestbedEntry, Trouble, VariableValues, Why};
use crate::model::{Step, Suite};
use crate::server::{self, Instance, LocatedProgram, group};
use crate::testbed::{self, Network};
use crate::why::Reason;
use flatout_config::model::Place;
use flatout_lab::machine;
use flatout_os::clock;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The state of the engine while a suite runs.
pub(super) struct Engine<'r> {
    pub(super) suite: &'r Suite,
    pub(super) options: &'r Options,
    pub(super) stop: &'r StopRequest,
    pub(super) watch: &'r mut dyn SuiteReporter,
    pub(super) bundle: Bundle,
    pub(super) report: SuiteReport,
    /// Programs that were found, by name of the server.
    pub(super) found: BTreeMap<String, LocatedProgram>,
    /// The servers that are running.
    pub(super) instances: Vec<Instance>,
    /// The addresses and folders of the servers.
    pub(super) places: Vec<Whereabouts>,
    /// The network of the current step, if it runs in a testbed.
    pub(super) network: Option<Network>,
    /// Folder of the suite's file, as an absolute path because servers start in their own folders.
    pub(super) suite_dir: PathBuf,
    /// Names and folders of the fixtures.
    pub(super) fixtures: Vec<(String, PathBuf)>,
    /// The reason a fixture could not be created, if any.
    pub(super) fixture_fault: Option<Why>,
    pub(super) clock: Clock,
    /// Number of starts of each server, which is part of the names of logs.
    pub(super) starts: BTreeMap<String, u32>,
}

/// Runs a suite, or the remainder of an interrupted suite.
///
/// # Errors
/// Fails if nothing can be run at all. Later failures are recorded in the result.
pub fn run(
    suite: &Suite,
    options: &Options,
    watch: &mut dyn SuiteReporter,
    stop: &StopRequest,
) -> Result<SuiteReport, RunError> {
    let known: Vec<String> = suite.steps.iter().map(|step| step.name.clone()).collect();
    if let Some(name) = options.only.iter().find(|name| !known.contains(name)) {
        return Err(RunError::StepUnknown(name.clone(), known));
    }
    let own = suite.servers.iter().filter_map(|server| server.cores.as_ref()).flatten();
    let cores: Vec<usize> = suite.cores.server.iter().chain(&suite.cores.client).chain(own).copied().collect();
    let missing = server::instance::cores_missing(&cores);
    if !missing.is_empty() {
        return Err(RunError::Cores(missing));
    }
    let bundle = Bundle::open(&options.out, suite, options.quick, options.fresh, &options.own);
    let bundle = bundle.map_err(RunError::Bundle)?;
    group::adopt_orphans();
    for name in testbed::sweep() {
        watch.say(&format!("removed the network {name}, a leftover from a crashed run"));
    }
    if bundle.is_resumed {
        watch.say(&format!("resuming {}: existing results are not measured again", bundle.folder().display()));
    }
    let plans: Vec<&Step> = suite.steps.iter().filter(|step| is_measured(suite, options, step)).collect();
    let (all, expected_s) = plans.iter().fold((0, 0.0), |(all, expected_s), step| {
        let runs = runs_of(suite, options, step);
        (all + runs, expected_s + runs as f64 * expected_s_of(suite, options, step))
    });
    let report = head(suite, options, &bundle);
    let mut engine = Engine {
        suite,
        options,
        stop,
        watch,
        bundle,
        report,
        found: BTreeMap::new(),
        instances: Vec::new(),
        places: Vec::new(),
        network: None,
        suite_dir: std::path::absolute(&suite.file)
            .ok()
            .and_then(|file| Some(file.parent()?.to_owned()))
            .unwrap_or_default(),
        fixtures: Vec::new(),
        fixture_fault: None,
        clock: Clock::new(all, expected_s),
        starts: BTreeMap::new(),
    };
    engine.find_servers();
    engine.look_at_testbeds();
    engine.read_history();
    engine.write_machine();
    engine.make_fixtures();
    for step in &suite.steps {
        engine.step(step);
        engine.keep().map_err(RunError::Bundle)?;
    }
    engine.finish()
}

/// Returns whether a step is measured in this run. Earlier results are included in any case.
pub(super) fn is_measured(suite: &Suite, options: &Options, step: &Step) -> bool {
    let is_skipped = options.quick && suite.quick.skip.iter().any(|skipped| skipped.text == step.name);
    !is_skipped && (options.only.is_empty() || options.only.contains(&step.name))
}

/// Returns the number of repetitions of a step.
pub(super) fn repetitions_of(suite: &Suite, options: &Options, step: &Step) -> u32 {
    let quick = suite.quick.repetitions.filter(|_| options.quick);
    quick.or(step.repetitions).unwrap_or(suite.repetitions)
}

/// Returns the number of measurements of a step.
pub fn measurements_of(suite: &Suite, step: &Step, quick: bool) -> usize {
    runs_of(suite, &Options { quick, ..Options::default() }, step)
}

/// Returns the expected duration of a step, in seconds.
pub fn seconds_of_step(suite: &Suite, step: &Step, quick: bool) -> f64 {
    let options = Options { quick, ..Options::default() };
    if !is_measured(suite, &options, step) {
        return 0.0;
    }
    runs_of(suite, &options, step) as f64 * expected_s_of(suite, &options, step)
}

fn runs_of(suite: &Suite, options: &Options, step: &Step) -> usize {
    let combinations = combine::combinations(suite, step, options.quick).len();
    combinations * step.servers.len() * repetitions_of(suite, options, step) as usize
}

/// Returns the configured duration of each measurement of a step, in seconds.
pub(super) fn seconds_of(suite: &Suite, options: &Options, step: &Step) -> f64 {
    let quick = suite.quick.seconds.filter(|_| options.quick);
    quick.or(step.seconds).unwrap_or(suite.seconds)
}

/// Returns the expected duration of a measurement in seconds, including preparation.
pub(super) fn expected_s_of(suite: &Suite, options: &Options, step: &Step) -> f64 {
    /// Time that a bench needs to start and to end, in seconds.
    const AROUND_S: f64 = 0.3;
    let own = step.expected_seconds.filter(|_| !options.quick || suite.quick.seconds.is_none());
    /// Estimated duration of preparing a measurement, in seconds. Preparation takes about as long as some thousand
    /// requests for files.
    const FIRST_S: f64 = 1.0;
    let first = if step.first.is_empty() { 0.0 } else { FIRST_S };
    own.unwrap_or_else(|| seconds_of(suite, options, step)) + AROUND_S + first
}

fn head(suite: &Suite, options: &Options, bundle: &Bundle) -> SuiteReport {
    let values = |variable: &crate::model::Variable| VariableValues {
        name: variable.name.clone(),
        values: combine::values_of(suite, variable, options.quick).to_vec(),
    };
    SuiteReport {
        schema: SCHEMA.to_owned(),
        suite: suite.name.clone(),
        about: suite.about.clone(),
        file: suite.file.display().to_string(),
        flatout_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        begun_unix_ms: bundle.begun_unix_ms,
        quick: options.quick,
        repetitions: suite.quick.repetitions.filter(|_| options.quick).unwrap_or(suite.repetitions),
        seconds: suite.quick.seconds.filter(|_| options.quick).unwrap_or(suite.seconds),
        machine: machine::here(),
        server_cores: suite.cores.server.clone(),
        client_cores: suite.cores.client.clone(),
        given: options.given,
        variables: suite.variables.iter().map(values).collect(),
        ..SuiteReport::default()
    }
}

impl Engine<'_> {
    fn find_servers(&mut self) {
        // Measurements made before the interruption used the files and logs of that time.
        let earlier = crate::bundle::read(self.bundle.folder()).map(|report| report.servers).unwrap_or_default();
        for server in &self.suite.servers {
            let mut entry = ServerEntry {
                name: server.name.clone(),
                about: server.about.clone(),
                package: server.program.package.clone(),
                ..ServerEntry::default()
            };
            if let Some(earlier) = earlier.iter().find(|earlier| earlier.name == server.name) {
                entry.command.clone_from(&earlier.command);
                entry.configs.clone_from(&earlier.configs);
                entry.logs.clone_from(&earlier.logs);
                self.starts.insert(server.name.clone(), earlier.logs.len() as u32);
            }
            match server::find(&server.program, &self.options.own, env!("CARGO_PKG_VERSION")) {
                Ok(found) => {
                    entry.program = found.path.display().to_string();
                    entry.version.clone_from(&found.version);
                    self.found.insert(server.name.clone(), found);
                }
                Err(why) => {
                    self.watch.say(&format!("{}: left out: {}", shown(&server.place), why.text));
                    entry.absent = Some(why);
                }
            }
            self.report.servers.push(entry);
        }
        // A server is unavailable if a server that it needs is unavailable.
        let mut later: Vec<(String, Why)> = Vec::new();
        for server in &self.suite.servers {
            let absent = combine::needed(self.suite, &server.name)
                .into_iter()
                .find(|needed| needed.name != server.name && !self.found.contains_key(&needed.name));
            if let (Some(absent), true) = (absent, self.found.contains_key(&server.name)) {
                let text = format!("{} needs {}, which was left out", server.name, absent.name);
                self.watch.say(&format!("{}: left out: {text}", shown(&server.place)));
                later.push((server.name.clone(), Reason::NeededAbsent.why(text)));
            }
        }
        for (name, why) in later {
            self.found.remove(&name);
            if let Some(entry) = self.report.servers.iter_mut().find(|entry| entry.name == name) {
                entry.absent = Some(why);
            }
        }
    }

    fn look_at_testbeds(&mut self) {
        for testbed in &self.suite.testbeds {
            let text = |placed: &Option<crate::model::Placed>| placed.as_ref().map(|placed| placed.text.clone());
            let mut entry = TestbedEntry {
                name: testbed.name.clone(),
                about: testbed.about.clone(),
                mtu: text(&testbed.mtu),
                rate: text(&testbed.rate),
                delay: text(&testbed.delay),
                sysctls: testbed.sysctls.iter().map(|setting| setting.text.clone()).collect(),
                cpu: text(&testbed.cpu),
                hosts: testbed.hosts,
                absent: None,
            };
            if !testbed::is_allowed() {
                let why = Reason::NeedsRoot.why(format!(
                    "the testbed {} and its steps are left out: network namespaces require root",
                    testbed.name
                ));
                self.watch.say(&format!("{}: {}", shown(&testbed.place), why.text));
                entry.absent = Some(why);
            }
            self.report.testbeds.push(entry);
        }
    }

    fn read_history(&mut self) {
        let folder = self.suite.file.parent().unwrap_or(std::path::Path::new("")).join("history");
        for seed in &self.suite.seeds {
            match crate::history::read(&folder, &seed.text) {
                Ok(table) => self.report.seeds.push(table),
                Err(text) => self.trouble(&Reason::HistoryUnreadable.why(text), &seed.place, None, None, Vec::new()),
            }
        }
    }

    fn write_machine(&mut self) {
        let text = serde_json::to_string_pretty(&self.report.machine).unwrap_or_default();
        let path = self.bundle.path("machine.json");
        if let Err(error) = crate::bundle::write_whole(&path, text.as_bytes()) {
            let why = Reason::WriteFailed.why(format!("{}: {error}", path.display()));
            self.trouble(&why, &Place::default(), None, None, Vec::new());
        }
    }

    fn make_fixtures(&mut self) {
        let mut maker = crate::fixture::Maker {
            suite: self.suite,
            quick: self.options.quick,
            own: &self.options.own,
            made: Vec::new(),
        };
        let mut fault = None;
        for fixture in &self.suite.fixtures {
            if self.stop.is_asked() {
                break;
            }
            self.watch.tell(&self.clock.told(&format!("creating {}", fixture.name)));
            let folder = self.bundle.path("work/fixtures").join(&fixture.name);
            if let Err(why) = maker.make(fixture, &folder) {
                fault = Some((why, fixture.place.clone()));
                break;
            }
        }
        self.fixtures = std::mem::take(&mut maker.made);
        if let Some((why, place)) = fault {
            self.trouble(&why, &place, None, None, Vec::new());
            self.fixture_fault = Some(why);
        }
    }

    /// Records a problem and prints it.
    pub(super) fn trouble(
        &mut self,
        why: &Why,
        place: &Place,
        server: Option<&str>,
        step: Option<&str>,
        log: Vec<String>,
    ) {
        let trouble = Trouble {
            why: why.clone(),
            place: shown(place),
            server: server.map(str::to_owned),
            step: step.map(str::to_owned),
            log_tail: log,
        };
        let mut said = match trouble.place.as_str() {
            "" => why.text.clone(),
            place => format!("{place}: {}", why.text),
        };
        for line in &trouble.log_tail {
            said.push_str("\n    | ");
            said.push_str(line);
        }
        self.watch.say(&said);
        self.report.troubles.push(trouble);
    }

    /// Stops every server, with all its descendants.
    pub(super) fn stop_servers(&mut self) {
        let instances = std::mem::take(&mut self.instances);
        // Servers that others need were started first, so they are stopped last.
        for instance in instances.into_iter().rev() {
            self.stop_server(instance);
        }
        self.places.clear();
        group::reap_orphans(&BTreeSet::new());
        self.bundle.note_running(&[]);
    }

    pub(super) fn stop_server(&mut self, instance: Instance) {
        let name = instance.launch.name.clone();
        let log = instance.launch.log.clone();
        if let Some(text) = instance.stop().port_holder {
            // The server's leftover processes occupy the port, which must be free.
            let known: BTreeSet<u32> = self.instances.iter().map(Instance::leader).collect();
            if group::reap_orphans(&known).is_empty() {
                let place = self.suite.server(&name).map(|server| server.place.clone()).unwrap_or_default();
                let tail = server::instance::tail(&log);
                let why = Reason::PortKept.why(format!("after {name} was stopped: {text}"));
                self.trouble(&why, &place, Some(&name), None, tail);
            }
        }
        self.places.retain(|place| place.server != name);
    }

    pub(super) fn keep(&mut self) -> Result<(), BundleError> {
        self.report.ended_unix_ms = clock::unix_ms().unsigned_abs();
        self.report.interrupted = self.stop.is_asked();
        self.report.checks = crate::judge::judge(self.suite, &self.report, self.options.quick);
        self.bundle.write(&self.report)
    }

    fn finish(mut self) -> Result<SuiteReport, RunError> {
        self.stop_servers();
        self.network = None;
        self.keep().map_err(RunError::Bundle)?;
        let folder = self.bundle.folder().to_owned();
        let page = folder.join("report.html");
        crate::report::write(&self.report, &folder).map_err(|error| RunError::Bundle(BundleError::Io(page, error)))?;
        if !self.report.interrupted {
            self.bundle.tidy();
        }
        Ok(self.report)
    }
}

/// Formats a place in the suite's file for messages.
pub(super) fn shown(place: &Place) -> String {
    if place.line == 0 { place.file.clone() } else { format!("{}:{}", place.file, place.line) }
}
