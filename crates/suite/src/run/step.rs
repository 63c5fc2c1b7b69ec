//! Running a step: for each combination of its variables and each repetition, its servers are measured in turn.

use super::bench::{self, Ending, ForeignClient, Measurement};
use super::cell;
use super::engine::{Engine, expected_s_of, is_measured, repetitions_of, seconds_of, shown};
use super::host::processes;
use crate::bundle::RunFiles;
use crate::combine::{self, Values};
use crate::document::{Cell, StepEntry, Why};
use crate::model::{Client, Placed, Step};
use crate::server::{Instance, program};
use crate::testbed;
use crate::why::{LEFT_OUT_BY_ONLY, Reason};
use flatout_load::report::RunReport;
use std::collections::{BTreeMap, BTreeSet};

/// Number of exits of a server during one step after which it is not restarted.
const DEATHS_MAX: u32 = 2;

/// A server that exited during a measurement.
#[derive(Debug, Default)]
struct Dead {
    server: String,
    ending: String,
    log: Vec<String>,
}

/// The servers of a step that have failed, and those that have been checked.
#[derive(Debug, Default)]
pub(super) struct Health {
    deaths: BTreeMap<String, u32>,
    /// Servers that are not tried again in this combination, with the reasons.
    pub(super) given_up: BTreeMap<String, Why>,
    /// Servers whose responses have been checked in this combination.
    pub(super) checked: BTreeSet<String>,
}

impl Engine<'_> {
    pub(super) fn step(&mut self, step: &Step) {
        let combinations = combine::combinations(self.suite, step, self.options.quick);
        let variables = combine::variables_of(self.suite, step);
        let entry = StepEntry {
            name: step.name.clone(),
            about: step.about.clone(),
            view: step.view.clone(),
            testbed: step.testbed.as_ref().map(|testbed| testbed.text.clone()),
            variables: variables.iter().map(|variable| variable.name.clone()).collect(),
            servers: step.servers.iter().map(|server| server.text.clone()).collect(),
            bench: step.bench.iter().map(|word| word.text.clone()).collect(),
            clients: step.clients.iter().map(client_line).collect(),
            compare: step.compare.iter().map(|server| server.text.clone()).collect(),
            cells: Vec::new(),
            absent: self.step_absent(step),
        };
        let is_absent = entry.absent.is_some();
        self.report.steps.push(entry);
        let mut health = Health::default();
        for values in &combinations {
            self.combination(step, values, is_absent, &mut health);
        }
        // A step that is skipped in this run may have been measured in an earlier run.
        if let Some(entry) = self.report.steps.last_mut()
            && entry.cells.iter().any(|cell| !cell.runs.is_empty())
        {
            entry.absent = None;
        }
        self.stop_servers();
        self.network = None;
    }

    /// Returns the reason the whole step is left out, if it is.
    fn step_absent(&self, step: &Step) -> Option<Why> {
        if !is_measured(self.suite, self.options, step) {
            let how = if self.options.only.is_empty() { "--quick leaves it out" } else { LEFT_OUT_BY_ONLY };
            return Some(Reason::Skipped.why(how));
        }
        let testbed = step.testbed.as_ref().and_then(|name| {
            self.report.testbeds.iter().find(|entry| entry.name == name.text).and_then(|entry| entry.absent.clone())
        });
        testbed.or_else(|| self.fixture_fault.clone())
    }

    fn combination(&mut self, step: &Step, values: &Values, is_absent: bool, health: &mut Health) {
        let mut cells = Vec::new();
        for server in &step.servers {
            let mut cell = Cell { server: server.text.clone(), values: values.clone(), ..Cell::default() };
            match self.taken(step, &server.text, values) {
                Ok(taken) => cell.taken = taken,
                Err(why) => cell.absent = Some(why),
            }
            if let Some(client) = step.client_for(&server.text).map(|client| client.program)
                && program::look_up(client.name()).is_none()
            {
                let text = format!("{} is not installed; {} provides it", client.name(), client.package());
                cell.absent = Some(Reason::ProgramMissing.why(text));
            }
            if let Some(entry) = self.report.servers.iter().find(|entry| entry.name == server.text) {
                cell.absent = entry.absent.clone().or(cell.absent);
            }
            cells.push(cell);
        }
        // A failure in one combination need not occur in the next.
        health.given_up.clear();
        health.checked.clear();
        for repetition in 0..repetitions_of(self.suite, self.options, step) {
            // Reverse the order in every second repetition. Otherwise a server would always find the machine in the
            // state in which the same other server left it.
            let mut turns: Vec<&mut Cell> = cells.iter_mut().collect();
            if repetition % 2 == 1 {
                turns.reverse();
            }
            for cell in turns {
                self.clock.begin();
                let was_made = self.repetition(step, cell, repetition, is_absent, health);
                if is_measured(self.suite, self.options, step) {
                    self.clock.end(expected_s_of(self.suite, self.options, step), was_made);
                }
            }
        }
        if let Some(entry) = self.report.steps.last_mut() {
            entry.cells.append(&mut cells);
        }
    }

    /// Makes one measurement, unless its result already exists. Returns whether it was made.
    fn repetition(
        &mut self,
        step: &Step,
        cell: &mut Cell,
        repetition: u32,
        is_absent: bool,
        health: &mut Health,
    ) -> bool {
        let files = self.bundle.run_files(&step.name, &cell.server, &cell.values, repetition);
        if let Some((report, processes)) = self.bundle.read_run(&files) {
            let values = cell::values(cell, &report, &processes);
            let entry = cell::entry(step, repetition, &files.relative, &report, processes);
            self.say_failing(step, &cell.server, &entry.failing);
            cell::add(cell, entry, values);
            return false;
        }
        if is_absent
            || cell.absent.as_ref().is_some_and(|why| Reason::of(why).is_none_or(|reason| !reason.is_failure()))
        {
            return false;
        }
        if let Some(why) = health.given_up.get(&cell.server) {
            cell.absent = Some(why.clone());
            return false;
        }
        if self.stop.is_asked() {
            cell.absent = Some(Reason::Interrupted.why("the suite was interrupted before this measurement"));
            return false;
        }
        let shown_values: String = cell.values.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let what = format!("{}: {}{shown_values}", step.name, cell.server);
        self.watch.tell(&self.clock.told(&what));
        if let Err(why) = self.measure(step, cell, repetition, health) {
            cell.absent = Some(why);
        }
        if step.fresh_servers {
            self.stop_servers();
        }
        true
    }

    fn measure(&mut self, step: &Step, cell: &mut Cell, repetition: u32, health: &mut Health) -> Result<(), Why> {
        let files = self.bundle.run_files(&step.name, &cell.server, &cell.values, repetition);
        let values: Values = cell.values.iter().chain(&cell.taken).cloned().collect();
        self.network_for(step, &values)?;
        self.servers_for(step, cell, &values, health)?;
        let path =
            step.paths.iter().find(|(server, _)| server.text == cell.server).map_or(&step.path, |(_, path)| path);
        let client = step.client_for(&cell.server);
        let (url, first, words) = {
            let fill = self.fill(&cell.server, &values);
            let filled = |words: &[Placed]| words.iter().map(|word| fill.fill(&word.text)).collect::<Vec<String>>();
            let own = client.map_or(&step.bench, |client| &client.arguments);
            let (first, words) = (filled(&step.first), filled(own));
            (format!("{}{}", fill.fill("{url}"), fill.fill(&path.text)), first, words)
        };
        let quick_s = self.suite.quick.seconds.filter(|_| self.options.quick);
        let within = self.network.as_ref().map(|network| testbed::within(network.client())).unwrap_or_default();
        let seconds = seconds_of(self.suite, self.options, step);
        let bench = |words: &[String]| -> Vec<String> {
            let own = self.options.own.display().to_string();
            let words = bench::words(&url, &files.part, seconds, quick_s, words);
            within.iter().cloned().chain([own]).chain(words).collect()
        };
        let command = match client {
            None => bench(&words),
            Some(client) => {
                let arguments = client.program.arguments(&words, quick_s.unwrap_or(seconds), &url);
                within.iter().cloned().chain([client.program.name().to_owned()]).chain(arguments).collect()
            }
        };
        let preparation = (!first.is_empty()).then(|| bench(&first));
        self.check_response(step, cell, &url, &values, health)?;
        if let Some(command) = preparation {
            self.first(step, cell, &files, command, health)?;
        }
        let involved: Vec<String> =
            self.involved(step, &cell.server).iter().map(|server| server.name.clone()).collect();
        let reached = self.reached(step, cell, &values)?;
        let before = self.costs(&involved);
        let measurement = Measurement {
            command,
            files: &files,
            cores: &self.suite.cores.client,
            expected_s: expected_s_of(self.suite, self.options, step),
            client: client.map(|client| ForeignClient {
                program: client.program,
                url: &url,
                seconds: quick_s.unwrap_or(seconds),
                cores: match self.suite.cores.client.len() {
                    0 => flatout_lab::cores::cores_allowed().len(),
                    cores => cores,
                },
            }),
        };
        let ending = self.bench(&measurement, &involved);
        let report = self.ended(step, cell, ending, health)?;
        let processes = processes(&before, &self.costs(&involved));
        self.check_reached(step, cell, &reached, &values, &report)?;
        if let Err(error) = self.bundle.keep_run(&files, &processes) {
            let why = Reason::WriteFailed.why(format!("{}: {error}", files.result.display()));
            self.trouble(&why, &step.place, Some(&cell.server), Some(&step.name), Vec::new());
            return Err(why);
        }
        let values = cell::values(cell, &report, &processes);
        let entry = cell::entry(step, repetition, &files.relative, &report, processes);
        self.say_failing(step, &cell.server, &entry.failing);
        cell::add(cell, entry, values);
        Ok(())
    }

    /// Runs the client. Also returns the server that exited during the measurement, if any.
    fn bench(&mut self, measurement: &Measurement<'_>, involved: &[String]) -> (Ending, Option<Dead>) {
        let mut running: Vec<u32> = self.instances.iter().map(Instance::leader).collect();
        let mut alive: Vec<&mut Instance> =
            self.instances.iter_mut().filter(|instance| involved.contains(&instance.launch.name)).collect();
        // After a crash, a client that still runs would write its result in place of the next run's.
        let started = |client: u32| {
            running.push(client);
            self.bundle.note_running(&running);
        };
        let ending = bench::measure(measurement, &mut alive, self.stop, started);
        let dead = match &ending {
            Ending::Died(index) => alive.get(*index).map(|dead| Dead {
                server: dead.launch.name.clone(),
                ending: dead.ending(),
                log: dead.log_tail(),
            }),
            _ => None,
        };
        (ending, dead)
    }

    /// Returns the result of a measurement, or the reason there is none, which is also recorded.
    fn ended(
        &mut self,
        step: &Step,
        cell: &Cell,
        (ending, dead): (Ending, Option<Dead>),
        health: &mut Health,
    ) -> Result<Box<RunReport>, Why> {
        match ending {
            Ending::Report(report) => Ok(report),
            Ending::Died(_) => {
                let Dead { server, ending, log } = dead.unwrap_or_default();
                let why = Reason::Died.why(format!("{server} exited while {} was measured ({ending})", cell.server));
                self.died(step, &server, &why, log, health);
                Err(why)
            }
            Ending::Stopped => Err(Reason::Interrupted.why("the suite was interrupted during this measurement")),
            Ending::Failed(why) => {
                let log = self.log_tail(&cell.server);
                self.trouble(&why, &step.place, Some(&cell.server), Some(&step.name), log);
                Err(why)
            }
        }
    }

    /// Runs the step's `first` bench before a measurement.
    fn first(
        &mut self,
        step: &Step,
        cell: &Cell,
        files: &RunFiles,
        command: Vec<String>,
        health: &mut Health,
    ) -> Result<(), Why> {
        let involved: Vec<String> =
            self.involved(step, &cell.server).iter().map(|server| server.name.clone()).collect();
        let expected_s = expected_s_of(self.suite, self.options, step);
        let cores = &self.suite.cores.client;
        let measurement = Measurement { command, files, cores, expected_s, client: None };
        let ending = self.bench(&measurement, &involved);
        // The result of this bench must not be mistaken for that of the measurement.
        let _removed = std::fs::remove_file(&files.part);
        self.ended(step, cell, ending, health).map(|_| ())
    }

    /// Reports failed requests, unless the step expects failures.
    fn say_failing(&mut self, step: &Step, server: &str, failing: &[String]) {
        if failing.is_empty() || step.failures_expected {
            return;
        }
        let why = Reason::RequestsFailed.why(format!("{server}: {}", failing.join("; ")));
        let log = self.log_tail(server);
        self.trouble(&why, &step.place, Some(server), Some(&step.name), log);
    }

    fn died(&mut self, step: &Step, dead: &str, why: &Why, log: Vec<String>, health: &mut Health) {
        let place = self.suite.server(dead).map(|server| server.place.clone()).unwrap_or_default();
        self.trouble(why, &place, Some(dead), Some(&step.name), log);
        if let Some(index) = self.instances.iter().position(|instance| instance.launch.name == dead) {
            let instance = self.instances.remove(index);
            self.stop_server(instance);
        }
        let deaths = health.deaths.entry(dead.to_owned()).or_default();
        *deaths += 1;
        if *deaths >= DEATHS_MAX {
            health.given_up.insert(dead.to_owned(), why.clone());
        }
    }

    pub(super) fn log_tail(&self, server: &str) -> Vec<String> {
        let found = self.instances.iter().find(|instance| instance.launch.name == server);
        found.map(Instance::log_tail).unwrap_or_default()
    }

    /// Computes the values of variables that depend on figures of earlier steps.
    fn taken(&self, step: &Step, server: &str, values: &Values) -> Result<Values, Why> {
        let mut taken = Values::new();
        for take in &step.takes {
            let of = take.of.as_ref().map_or(server, |of| &of.text);
            let found = self.report.step(&take.step).and_then(|entry| entry.cell(of, values));
            let figure = found.and_then(|cell| cell.figure(&take.measure)).ok_or_else(|| {
                let text = format!(
                    "{{{}}} is computed from {} of {of} in step {}, which has none",
                    take.name, take.measure, take.step
                );
                Reason::TakenMissing.why(text)
            })?;
            let times = crate::template::expand(&take.times.text, &|name| {
                values.iter().find(|(known, _)| known == name.name).map(|(_, value)| value.clone())
            });
            let times: f64 = times.parse().map_err(|_| {
                let text = format!("{}: {times:?} is not a factor", shown(&take.times.place));
                Reason::TakenMissing.why(text)
            })?;
            taken.push((take.name.clone(), rounded(figure.median * times)));
        }
        Ok(taken)
    }
}

/// Returns a client's command line and version, for the result.
fn client_line(client: &Client) -> String {
    let words = client.arguments.iter().map(|word| word.text.as_str());
    let line = std::iter::once(client.program.name()).chain(words).collect::<Vec<_>>().join(" ");
    let path = program::look_up(client.program.name());
    let version = path.and_then(|path| program::version_line(&path, client.program.version_arguments()));
    version.map_or_else(|| line.clone(), |version| format!("{line} ({version})"))
}

/// Formats a figure as an argument. Figures from 100 on have no decimals, smaller figures have three.
fn rounded(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}
