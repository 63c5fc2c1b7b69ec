//! The environment of a measurement: the network, the running servers and their costs.

use super::engine::Engine;
use super::fill::{Fill, Whereabouts};
use super::step::Health;
use crate::combine::{self, Values};
use crate::document::{Cell, ConfigEntry, ProcessCost, Why};
use crate::model::{Server, Step};
use crate::server::instance::{Launch, free_port};
use crate::server::{Instance, group};
use crate::testbed::{self, LinkProperties, Network};
use crate::why::Reason;
use flatout_lab::cpu::CpuReading;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

impl<'r> Engine<'r> {
    pub(super) fn network_for(&mut self, step: &Step, values: &Values) -> Result<(), Why> {
        let Some(testbed) = step.testbed.as_ref().and_then(|name| self.suite.testbed(&name.text)) else {
            return Ok(());
        };
        let link = {
            let fill = self.fill("", values);
            let filled = |text: &Option<crate::model::Placed>| text.as_ref().map(|text| fill.fill(&text.text));
            LinkProperties {
                mtu: filled(&testbed.mtu),
                rate: filled(&testbed.rate),
                delay: filled(&testbed.delay),
                sysctls: testbed.sysctls.iter().map(|setting| fill.fill(&setting.text)).collect(),
                cpu: filled(&testbed.cpu),
                hosts: testbed.hosts,
                cores: self.suite.cores.server.clone(),
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
                if Reason::of(&why).is_none_or(Reason::is_failure) {
                    self.trouble(&why, &testbed.place, None, Some(&step.name), Vec::new());
                } else if let Some(entry) = self.report.testbeds.iter_mut().find(|entry| entry.name == testbed.name) {
                    // Something that is missing on this machine is reported once, and the testbed is then left out.
                    if entry.absent.is_none() {
                        self.watch.say(&why.text);
                    }
                    entry.absent = Some(why.clone());
                }
                Err(why)
            }
        }
    }

    /// Returns the servers that take part in measurements of one server of the step.
    pub(super) fn involved(&self, step: &Step, server: &str) -> Vec<&'r Server> {
        let suite = self.suite;
        let alone = Step {
            servers: step.servers.iter().filter(|other| other.text == server).cloned().collect(),
            ..step.clone()
        };
        combine::servers_of(suite, &alone)
    }

    /// Starts all servers that a measurement needs.
    pub(super) fn servers_for(
        &mut self,
        step: &Step,
        cell: &Cell,
        values: &Values,
        health: &mut Health,
    ) -> Result<(), Why> {
        let needed = self.involved(step, &cell.server);
        for server in &needed {
            self.place(server).map_err(|error| {
                Reason::StartFailed.why(format!("no port is available for {}: {error}", server.name))
            })?;
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

    /// Assigns an address, ports and a folder to a server.
    fn place(&mut self, server: &Server) -> std::io::Result<()> {
        if self.places.iter().any(|place| place.server == server.name) {
            return Ok(());
        }
        let ip: IpAddr = match &self.network {
            Some(network) => network.address().parse().map_err(std::io::Error::other)?,
            None => server.address.parse().map_err(std::io::Error::other)?,
        };
        // All ports of a namespace are free. Choose different ports, which are also free on this machine.
        let asked: IpAddr = if self.network.is_some() { IpAddr::from([127, 0, 0, 1]) } else { ip };
        let taken: Vec<u16> = self.places.iter().flat_map(|place| [place.address.port(), place.port2]).collect();
        let free = || -> std::io::Result<u16> {
            for _ in 0..100 {
                let port = free_port(asked)?;
                if !taken.contains(&port) {
                    return Ok(port);
                }
            }
            Err(std::io::Error::other("all free ports are taken by other servers of the suite"))
        };
        let port = server.port.map_or_else(free, Ok)?;
        let mut port2 = free()?;
        while port2 == port {
            port2 = free()?;
        }
        let dir = self.bundle.path("work").join(&server.name);
        std::fs::create_dir_all(&dir)?;
        let (server, address, tls) = (server.name.clone(), (ip, port).into(), server.tls);
        self.places.push(Whereabouts { server, address, port2, tls, dir });
        Ok(())
    }

    fn log_of(&self, server: &str) -> std::path::PathBuf {
        self.bundle.path(&format!("logs/{server}-{}.log", self.starts.get(server).copied().unwrap_or(0)))
    }

    /// Ensures that a server runs with its current settings. Restarts a server that runs with other settings.
    fn server_for(&mut self, server: &Server, values: &Values) -> Result<(), Why> {
        let launch = self.launch(server, values)?;
        let configs: Vec<(String, String)> = {
            let fill = self.fill(&server.name, values);
            let set = server.values.iter().map(|(name, value)| (name.clone(), fill.fill(&value.text)));
            let values: Values = set.chain(values.iter().cloned()).collect();
            let fill = self.fill(&server.name, &values);
            server.configs.iter().map(|config| (config.name.clone(), fill.fill(&config.content.text))).collect()
        };
        if let Some(index) = self.instances.iter().position(|instance| instance.launch.name == server.name) {
            let runs = &mut self.instances[index];
            let is_same = runs.launch.command == launch.command
                && runs.launch.environment == launch.environment
                && configs.iter().all(|(name, text)| {
                    std::fs::read_to_string(launch.dir.join(name)).is_ok_and(|there| there == *text)
                });
            let was_running = runs.is_running();
            if is_same && was_running {
                return Ok(());
            }
            if !was_running {
                let (ending, log) = (runs.ending(), runs.log_tail());
                let why = Reason::Died.why(format!("{} exited between two measurements ({ending})", server.name));
                self.trouble(&why, &server.place, Some(&server.name), None, log);
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
        // Save now, so that a run that resumes after a crash continues with these numbers and keeps these files.
        self.keep().map_err(|error| Reason::WriteFailed.why(error.to_string()))?;
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
            cores: server.cores.clone().unwrap_or_else(|| self.suite.cores.server.clone()),
            within: self.network.as_ref().map(|network| network.server_words(&server.name)).transpose()?,
            address: place.address,
            ready_path: server.ready.path.as_ref().map(|path| fill.fill(&path.text)),
            ready_socket: server.ready.socket.as_ref().map(|socket| Path::new(&fill.fill(&socket.text)).to_owned()),
            prober,
            ready_timeout: Duration::from_millis(server.ready.timeout_ms),
            stop_signal: server.stop_signal,
        })
    }

    /// Writes a server's files to its folder and to the bundle. If an earlier start used identical files, they are not
    /// stored in the bundle again.
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

    pub(super) fn fill<'f>(&'f self, server: &'f str, values: &'f Values) -> Fill<'f> {
        Fill {
            server,
            servers: &self.places,
            values,
            fixtures: &self.fixtures,
            cores: match self.suite.cores.server.len() {
                0 => flatout_lab::cores::cores_allowed().len(),
                cores => cores,
            },
            suite_dir: &self.suite_dir,
            own: &self.options.own,
        }
    }

    /// Returns the cumulative costs of these servers' processes.
    pub(super) fn costs(&self, servers: &[String]) -> Vec<Cost> {
        let instances = self.instances.iter().filter(|instance| servers.contains(&instance.launch.name));
        instances
            .map(|instance| {
                let members = instance.members();
                Cost {
                    server: instance.launch.name.clone(),
                    cpu: CpuReading::of(members.iter().copied()),
                    memory_bytes: group::memory(&members),
                    processes: members.len() as u32,
                }
            })
            .collect()
    }
}

/// The cumulative cost of a server's processes.
pub(super) struct Cost {
    server: String,
    cpu: CpuReading,
    memory_bytes: u64,
    processes: u32,
}

pub(super) fn processes(before: &[Cost], after: &[Cost]) -> Vec<ProcessCost> {
    let nothing = CpuReading::default();
    let earlier = |server: &str| before.iter().find(|cost| cost.server == server).map_or(&nothing, |cost| &cost.cpu);
    after
        .iter()
        .map(|cost| ProcessCost {
            server: cost.server.clone(),
            cpu_ns: cost.cpu.used_since(earlier(&cost.server)),
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
