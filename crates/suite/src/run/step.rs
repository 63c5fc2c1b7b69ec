//! A step: for each combination of its variables, in every repetition each of its servers in turn.

use super::bench::{self, Ending, Measurement};
use super::cell;
use super::engine::{Engine, expected_s_of, is_measured, repetitions_of, seconds_of, shown};
use super::fill::{Fill, Whereabouts};
use crate::combine::{self, Values};
use crate::document::{Cell, ConfigEntry, ProcessCost, StepEntry, Why};
use crate::model::{Server, Step};
use crate::server::instance::{Launch, free_port};
use crate::server::{Instance, group};
use crate::testbed::{self, Link, Network};
use crate::why::Reason;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Deaths of a server in one step after which it is not started again.
const DEATHS_MAX: u32 = 2;

/// What a step knows of its servers.
#[derive(Debug, Default)]
struct Health {
    deaths: BTreeMap<String, u32>,
    /// Servers that are not tried again in this combination.
    given_up: BTreeMap<String, Why>,
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
            cells: Vec::new(),
            absent: self.step_absent(step),
        };
        let is_absent = entry.absent.is_some();
        self.report.steps.push(entry);
        let mut health = Health::default();
        for values in &combinations {
            self.combination(step, values, is_absent, &mut health);
        }
        self.stop_servers();
        self.network = None;
    }

    /// Why a whole step is left out.
    fn step_absent(&self, step: &Step) -> Option<Why> {
        if !is_measured(self.suite, self.options, step) {
            let how = if self.options.only.is_empty() { "--quick leaves it out" } else { "--only leaves it out" };
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
            if let Some(entry) = self.report.servers.iter().find(|entry| entry.name == server.text) {
                cell.absent = entry.absent.clone().or(cell.absent);
            }
            cells.push(cell);
        }
        // A fault of one combination need not be one of the next.
        health.given_up.clear();
        for repetition in 0..repetitions_of(self.suite, self.options, step) {
            for cell in &mut cells {
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

    /// One measurement, unless it was made before. Returns whether it was made now.
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
            let entry = cell::entry(repetition, &files.relative, &report, processes);
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
            cell.absent = Some(Reason::Interrupted.why("the suite was ended before it"));
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
        let (url, words) = {
            let fill = self.fill(&cell.server, &values);
            let words: Vec<String> = step.bench.iter().map(|word| fill.fill(&word.text)).collect();
            (format!("{}{}", fill.fill("{url}"), fill.fill(&path.text)), words)
        };
        let quick_s = self.suite.quick.seconds.filter(|_| self.options.quick);
        let mut command = self.network.as_ref().map(|network| testbed::within(network.client())).unwrap_or_default();
        command.push(self.options.own.display().to_string());
        command.extend(bench::words(&url, &files, seconds_of(self.suite, self.options, step), quick_s, &words));
        let involved: Vec<String> =
            self.involved(step, &cell.server).iter().map(|server| server.name.clone()).collect();
        let before = self.costs(&involved);
        let measurement = Measurement {
            command,
            files: &files,
            cores: &self.suite.cores.client,
            expected_s: expected_s_of(self.suite, self.options, step),
        };
        let mut alive: Vec<&mut Instance> =
            self.instances.iter_mut().filter(|instance| involved.contains(&instance.launch.name)).collect();
        match bench::measure(&measurement, &mut alive, self.stop) {
            Ending::Report(report) => {
                let after = self.costs(&involved);
                let processes = processes(&before, &after);
                if let Err(error) = self.bundle.keep_run(&files, &processes) {
                    let why = Reason::WriteFailed.why(format!("{}: {error}", files.result.display()));
                    self.trouble(&why, &step.place, Some(&cell.server), Some(&step.name), Vec::new());
                    return Err(why);
                }
                let values = cell::values(cell, &report, &processes);
                let entry = cell::entry(repetition, &files.relative, &report, processes);
                if !entry.failing.is_empty() && !step.failures_expected {
                    let why = Reason::RequestsFailed.why(format!("{}: {}", cell.server, entry.failing.join("; ")));
                    let log = self.log_tail(&cell.server);
                    self.trouble(&why, &step.place, Some(&cell.server), Some(&step.name), log);
                }
                cell::add(cell, entry, values);
                Ok(())
            }
            Ending::Died(index) => {
                let dead = alive[index].launch.name.clone();
                let ending = alive[index].ending();
                let why = Reason::Died.why(format!("{dead} ended while {} was measured ({ending})", cell.server));
                let log = alive[index].log_tail();
                self.died(step, &dead, &why, log, health);
                Err(why)
            }
            Ending::Stopped => Err(Reason::Interrupted.why("the suite was ended while it was measured")),
            Ending::Failed(why) => {
                let log = self.log_tail(&cell.server);
                self.trouble(&why, &step.place, Some(&cell.server), Some(&step.name), log);
                Err(why)
            }
        }
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

    fn log_tail(&self, server: &str) -> Vec<String> {
        let found = self.instances.iter().find(|instance| instance.launch.name == server);
        found.map(Instance::log_tail).unwrap_or_default()
    }

    /// Values made of figures of earlier steps.
    fn taken(&self, step: &Step, server: &str, values: &Values) -> Result<Values, Why> {
        let mut taken = Values::new();
        for take in &step.takes {
            let of = take.of.as_ref().map_or(server, |of| &of.text);
            let found = self.report.step(&take.step).and_then(|entry| entry.cell(of, values));
            let figure = found.and_then(|cell| cell.figure(&take.measure)).ok_or_else(|| {
                let text = format!(
                    "{{{}}} is made of {} of {of} in step {}, which has none",
                    take.name, take.measure, take.step
                );
                Reason::TakenMissing.why(text)
            })?;
            let times = crate::template::expand(&take.times.text, &|name| {
                values.iter().find(|(known, _)| known == name.name).map(|(_, value)| value.clone())
            });
            let times: f64 = times.parse().map_err(|_| {
                let text = format!("{}: {times:?} is no number to multiply by", shown(&take.times.place));
                Reason::TakenMissing.why(text)
            })?;
            taken.push((take.name.clone(), rounded(figure.median * times)));
        }
        Ok(taken)
    }

    fn network_for(&mut self, step: &Step, values: &Values) -> Result<(), Why> {
        let Some(testbed) = step.testbed.as_ref().and_then(|name| self.suite.testbed(&name.text)) else {
            return Ok(());
        };
        let link = {
            let fill = self.fill("", values);
            let filled = |text: &Option<crate::model::Placed>| text.as_ref().map(|text| fill.fill(&text.text));
            Link {
                mtu: filled(&testbed.mtu),
                rate: filled(&testbed.rate),
                delay: filled(&testbed.delay),
                hosts: testbed.hosts,
            }
        };
        if self.network.as_ref().is_some_and(|network| network.link == link) {
            return Ok(());
        }
        self.stop_servers();
        self.network = None;
        match Network::make(link) {
            Ok(network) => {
                self.network = Some(network);
                Ok(())
            }
            Err(why) => {
                self.trouble(&why, &testbed.place, None, Some(&step.name), Vec::new());
                Err(why)
            }
        }
    }

    /// The servers that take part when one of a step's is measured.
    fn involved(&self, step: &Step, server: &str) -> Vec<&Server> {
        let alone = Step {
            servers: step.servers.iter().filter(|other| other.text == server).cloned().collect(),
            ..step.clone()
        };
        let names: Vec<String> =
            combine::servers_of(self.suite, &alone).into_iter().map(|server| server.name.clone()).collect();
        self.suite.servers.iter().filter(|server| names.contains(&server.name)).collect()
    }

    /// Has all servers run that a measurement needs.
    fn servers_for(&mut self, step: &Step, cell: &Cell, values: &Values, health: &mut Health) -> Result<(), Why> {
        let suite = self.suite;
        let alone = Step {
            servers: step.servers.iter().filter(|other| other.text == cell.server).cloned().collect(),
            ..step.clone()
        };
        let needed = combine::servers_of(suite, &alone);
        for server in &needed {
            self.place(server)
                .map_err(|error| Reason::StartFailed.why(format!("no port is free for {}: {error}", server.name)))?;
        }
        for server in needed {
            if let Some(why) = health.given_up.get(&server.name) {
                return Err(needed_failed(server, cell, why));
            }
            if let Err(why) = self.server_for(server, values) {
                let log = crate::server::instance::tail(&self.log_of(&server.name));
                if Reason::of(&why) != Some(Reason::Interrupted) {
                    self.trouble(&why, &server.place, Some(&server.name), Some(&step.name), log);
                }
                health.given_up.insert(server.name.clone(), why.clone());
                self.places.retain(|place| place.server != server.name);
                return Err(needed_failed(server, cell, &why));
            }
        }
        Ok(())
    }

    /// Gives a server its address, ports and folder.
    fn place(&mut self, server: &Server) -> std::io::Result<()> {
        if self.places.iter().any(|place| place.server == server.name) {
            return Ok(());
        }
        let ip: IpAddr = match &self.network {
            Some(network) => network.address().parse().map_err(std::io::Error::other)?,
            None => server.address.parse().map_err(std::io::Error::other)?,
        };
        // A namespace has all its ports free; those that are free here are told apart at least.
        let asked: IpAddr = if self.network.is_some() { IpAddr::from([127, 0, 0, 1]) } else { ip };
        let taken: Vec<u16> = self.places.iter().flat_map(|place| [place.address.port(), place.port2]).collect();
        let free = || -> std::io::Result<u16> {
            for _ in 0..100 {
                let port = free_port(asked)?;
                if !taken.contains(&port) {
                    return Ok(port);
                }
            }
            Err(std::io::Error::other("the kernel gives the same ports again and again"))
        };
        let port = server.port.map_or_else(free, Ok)?;
        let mut port2 = free()?;
        while port2 == port {
            port2 = free()?;
        }
        let dir = self.bundle.path("work").join(&server.name);
        std::fs::create_dir_all(&dir)?;
        let (server, address) = (server.name.clone(), (ip, port).into());
        self.places.push(Whereabouts { server, address, port2, dir });
        Ok(())
    }

    fn log_of(&self, server: &str) -> std::path::PathBuf {
        self.bundle.path(&format!("logs/{server}-{}.log", self.starts.get(server).copied().unwrap_or(0)))
    }

    /// Has one server run as its texts say now: one that runs with other texts is started anew.
    fn server_for(&mut self, server: &Server, values: &Values) -> Result<(), Why> {
        let launch = self.launch(server, values)?;
        let configs: Vec<(String, String)> = {
            let fill = self.fill(&server.name, values);
            server.configs.iter().map(|config| (config.name.clone(), fill.fill(&config.content.text))).collect()
        };
        if let Some(index) = self.instances.iter().position(|instance| instance.launch.name == server.name) {
            let runs = &mut self.instances[index];
            let is_same = runs.launch.command == launch.command
                && runs.launch.environment == launch.environment
                && configs.iter().all(|(name, text)| {
                    std::fs::read_to_string(launch.dir.join(name)).is_ok_and(|there| there == *text)
                });
            if is_same && runs.is_running() {
                return Ok(());
            }
            let place = self.places.iter().find(|place| place.server == server.name).cloned();
            let instance = self.instances.remove(index);
            self.stop_server(instance);
            self.places.extend(place);
        }
        let start = {
            let starts = self.starts.entry(server.name.clone()).or_default();
            *starts += 1;
            *starts
        };
        self.write_configs(server, &launch.dir, &configs, start)?;
        let launch = Launch { log: self.log_of(&server.name), ..launch };
        let entry = self.report.servers.iter_mut().find(|entry| entry.name == server.name);
        if let Some(entry) = entry {
            entry.command.clone_from(&launch.command);
            entry.logs.push(format!("logs/{}-{start}.log", server.name));
        }
        let stop = self.stop;
        let instance = Instance::start(launch, &|| stop.is_asked())?;
        self.instances.push(instance);
        let leaders: Vec<u32> = self.instances.iter().map(Instance::leader).collect();
        self.bundle.note_running(&leaders);
        Ok(())
    }

    fn launch(&self, server: &Server, values: &Values) -> Result<Launch, Why> {
        let fill = self.fill(&server.name, values);
        let lost = || Reason::StartFailed.why(format!("{} has no address", server.name));
        let place = self.places.iter().find(|place| place.server == server.name).ok_or_else(lost)?;
        let found = self
            .found
            .get(&server.name)
            .ok_or_else(|| Reason::NeededAbsent.why(format!("{} was left out", server.name)))?;
        let mut command = vec![found.path.display().to_string()];
        command.extend(server.start.iter().map(|word| fill.fill(&word.text)));
        let prober = self.network.as_ref().map(|network| {
            let mut words = testbed::within(network.client());
            words.extend([self.options.own.display().to_string(), "suite".to_owned(), "probe".to_owned()]);
            words
        });
        Ok(Launch {
            name: server.name.clone(),
            command,
            environment: server
                .environment
                .iter()
                .map(|(name, value)| (name.clone(), fill.fill(&value.text)))
                .collect(),
            dir: place.dir.clone(),
            log: self.log_of(&server.name),
            cores: self.suite.cores.server.clone(),
            namespace: self.network.as_ref().map(|network| network.server().to_owned()),
            address: place.address,
            port2: place.port2,
            ready_path: server.ready.path.as_ref().map(|path| fill.fill(&path.text)),
            ready_socket: server.ready.socket.as_ref().map(|socket| Path::new(&fill.fill(&socket.text)).to_owned()),
            prober,
            ready_timeout: Duration::from_millis(server.ready.timeout_ms),
            stop_signal: server.stop_signal,
        })
    }

    /// A server's files, in its folder and in the bundle. Those of a later start that are the same are not kept twice.
    fn write_configs(
        &mut self,
        server: &Server,
        dir: &Path,
        configs: &[(String, String)],
        start: u32,
    ) -> Result<(), Why> {
        for (name, text) in configs {
            let failed = |error: std::io::Error| {
                Reason::ConfigFailed.why(format!("{} of {} could not be written: {error}", name, server.name))
            };
            crate::bundle::write_whole(&dir.join(name), text.as_bytes()).map_err(failed)?;
            let Some(entry) = self.report.servers.iter_mut().find(|entry| entry.name == server.name) else { continue };
            let is_known = entry.configs.iter().any(|config| config.text == *text && config.path.ends_with(name));
            if !is_known {
                let path = format!("configs/{}-{start}/{name}", server.name);
                crate::bundle::write_whole(&self.bundle.path(&path), text.as_bytes()).map_err(failed)?;
                entry.configs.push(ConfigEntry { path, text: text.clone() });
            }
        }
        Ok(())
    }

    fn fill<'f>(&'f self, server: &'f str, values: &'f Values) -> Fill<'f> {
        Fill {
            server,
            servers: &self.places,
            values,
            fixtures: &self.fixtures,
            cores: match self.suite.cores.server.len() {
                0 => flatout_lab::cores::cores_allowed().len(),
                cores => cores,
            },
            suite_dir: self.suite.file.parent().unwrap_or(Path::new("")),
            own: &self.options.own,
        }
    }

    /// What the processes of these servers have taken up to now.
    fn costs(&self, servers: &[String]) -> Vec<Cost> {
        let instances = self.instances.iter().filter(|instance| servers.contains(&instance.launch.name));
        instances
            .map(|instance| {
                let members = instance.members();
                Cost {
                    server: instance.launch.name.clone(),
                    cpu: group::cpu(&members),
                    memory_bytes: group::memory(&members),
                    processes: members.len() as u32,
                }
            })
            .collect()
    }
}

/// What a server's processes have taken up to a moment.
struct Cost {
    server: String,
    cpu: BTreeMap<(u32, u32), u64>,
    memory_bytes: u64,
    processes: u32,
}

fn processes(before: &[Cost], after: &[Cost]) -> Vec<ProcessCost> {
    let nothing = BTreeMap::new();
    let earlier = |server: &str| before.iter().find(|cost| cost.server == server).map_or(&nothing, |cost| &cost.cpu);
    after
        .iter()
        .map(|cost| ProcessCost {
            server: cost.server.clone(),
            cpu_ns: group::used(earlier(&cost.server), &cost.cpu),
            memory_bytes: cost.memory_bytes,
            processes: cost.processes,
        })
        .collect()
}

fn needed_failed(server: &Server, cell: &Cell, why: &Why) -> Why {
    if server.name == cell.server {
        return why.clone();
    }
    Reason::NeededFailed.why(format!("{} needs {}: {}", cell.server, server.name, why.text))
}

/// A figure as an argument: whole numbers without a fraction, small ones with three digits of it.
fn rounded(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}
