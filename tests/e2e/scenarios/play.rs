//! Runs one scenario: starts the accelerator, runs the steps, and collects all complaints.

use super::super::harness::{Folder, flatout};
use super::Failure;
use super::client::Client;
use super::origin;
use super::parse::parse_scenario;
use super::script::{Expect, Scenario, Step, What};
use super::stage::Stage;
use super::subject::{Kind, Subject};
use super::text::{Block, Names, blocks, fill_in, take_table};
use super::wire::Wire;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Runs every row of the scenario in `text`. Returns the failures, each with its row and what happened.
pub(crate) fn play_text(text: &str, kind: Kind) -> Result<(), Vec<Failure>> {
    let mut all = blocks(text).map_err(|failure| vec![failure])?;
    let rows = take_table(&mut all).map_err(|failure| vec![failure])?;
    let mut failures = Vec::new();
    for row in rows {
        let named: Vec<String> = row.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if let Err(found) = play_row(&all, &row, kind) {
            failures.extend(found.into_iter().map(|failure| failure.in_row(&named.join(", "))));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

fn play_row(all: &[Block], row: &Names, kind: Kind) -> Result<(), Vec<Failure>> {
    let start = |why: String| vec![Failure::at(1, why)];
    let mut listeners = Vec::new();
    let (mut names, folder) = (row.clone(), Folder::new());
    for name in origin_names(all) {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| start(error.to_string()))?;
        let address = listener.local_addr().map_err(|error| start(error.to_string()))?;
        names.insert(name.clone(), address.to_string());
        listeners.push((name, address, listener));
    }
    // Bound, so that nobody else can take the port, but not listening, so connections are refused.
    let dead = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
    let dead = dead.map_err(|error| start(error.to_string()))?;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    rustix::net::bind(&dead, &any_port).map_err(|error| start(error.to_string()))?;
    let dead_address = rustix::net::getsockname(&dead).map_err(|error| start(error.to_string()))?;
    let dead_address: SocketAddr = dead_address.try_into().map_err(|_| start("no address".to_owned()))?;
    names.insert("dead".to_owned(), dead_address.to_string());
    names.insert("folder".to_owned(), folder.path().display().to_string());
    let mut filled = all.to_vec();
    fill_in(&mut filled, &names, super::now_s()).map_err(|failure| vec![failure])?;
    let scenario = parse_scenario(&filled).map_err(|failure| vec![failure])?;
    if !kind.can(&scenario.launch) {
        return Ok(());
    }
    let (turns, stage) = (Arc::new(scenario.turns), Arc::new(Stage::new(filled.len())));
    let main = listeners.iter().find(|(name, ..)| name == "origin").map_or(dead_address, |(_, address, _)| *address);
    let addresses: Vec<SocketAddr> = listeners.iter().map(|(_, address, _)| *address).collect();
    for (name, _, listener) in listeners {
        origin::listen(&name, listener, &stage, &turns);
    }
    let scenario = Scenario { launch: scenario.launch, turns: Vec::new(), steps: scenario.steps };
    let subject = Subject::start(kind, &scenario.launch, main, &folder).map_err(start)?;
    let mut player = Player {
        scenario: &scenario,
        stage: Arc::clone(&stage),
        folder: &folder,
        kind,
        main,
        subject: Some(subject),
        kept: None,
        background: Vec::new(),
        open: Vec::new(),
    };
    let mut failures = player.play();
    if failures.is_empty() {
        failures = stage.complaints(&turns);
    } else {
        // Failures that an origin saw are closer to the cause.
        failures.splice(0..0, stage.complaints(&[]));
    }
    stage.end();
    addresses.into_iter().for_each(origin::wake);
    let said = player.end(!failures.is_empty());
    if let Some(first) = failures.first_mut() {
        first.record = format!("{}{said}", stage.record());
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// The origins that the scenario mentions: `origin`, and named ones.
fn origin_names(all: &[Block]) -> BTreeSet<String> {
    let mut names = BTreeSet::from(["origin".to_owned()]);
    for block in all {
        let mut words = block.text.split_whitespace();
        if words.next() == Some("origin")
            && let Some(name) = words.next().filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
        {
            names.insert(name.to_owned());
        }
    }
    names
}

struct Player<'a> {
    scenario: &'a Scenario,
    stage: Arc<Stage>,
    folder: &'a Folder,
    kind: Kind,
    /// The origin that is used if none is named.
    main: SocketAddr,
    subject: Option<Subject>,
    kept: Option<Wire>,
    background: Vec<JoinHandle<Result<Option<Wire>, Failure>>>,
    /// Connections of background clients, open until the end.
    open: Vec<Wire>,
}

impl Player<'_> {
    fn play(&mut self) -> Vec<Failure> {
        for (line, step) in &self.scenario.steps {
            let line = *line;
            let result = match step {
                Step::Client(exchange) => {
                    let client = self.client();
                    let kept = self.kept.take();
                    if exchange.clients == 1 && !exchange.background {
                        client.play(exchange, kept).map(|wire| self.kept = wire)
                    } else {
                        self.start_clients(exchange);
                        if exchange.background { Ok(()) } else { self.join() }
                    }
                }
                Step::Release(name) => {
                    self.stage.release(name);
                    Ok(())
                }
                Step::Await(count) => self.stage.await_requests(*count).map_err(|why| Failure::at(line, why)),
                Step::Wait(duration) => {
                    thread::sleep(*duration);
                    Ok(())
                }
                Step::Join => self.join(),
                Step::Command(arguments, expects) => self.command(line, arguments, expects),
                Step::Restart(signal) => self.restart(signal).map_err(|why| Failure::at(line, why)),
            };
            if let Err(failure) = result {
                return vec![failure];
            }
        }
        if let Err(failure) = self.join() {
            return vec![failure];
        }
        let address = self.subject.as_ref().map(Subject::address);
        match address.map(TcpStream::connect) {
            Some(Ok(_)) => Vec::new(),
            _ => vec![Failure::at(0, "the accelerator is gone")],
        }
    }

    fn client(&self) -> Client {
        let address = self.subject.as_ref().map_or(self.main, Subject::address);
        Client { address, kind: self.kind, stage: Arc::clone(&self.stage) }
    }

    fn start_clients(&mut self, exchange: &super::script::Exchange) {
        for _ in 0..exchange.clients {
            let (client, exchange) = (self.client(), exchange.clone());
            self.background.push(thread::spawn(move || client.play(&exchange, None)));
        }
    }

    /// Waits for the background clients.
    fn join(&mut self) -> Result<(), Failure> {
        let mut result = Ok(());
        for client in self.background.drain(..) {
            let ended = client.join().unwrap_or_else(|_| Err(Failure::at(0, "a client panicked")));
            result = result.and(ended.map(|wire| self.open.extend(wire)));
        }
        result
    }

    fn command(&mut self, line: usize, arguments: &[String], expects: &[Expect]) -> Result<(), Failure> {
        if self.kind != Kind::Flatout {
            return Ok(());
        }
        let server = self.client().address.to_string();
        let mut command = flatout();
        command.env("RUNTIME_DIRECTORY", self.folder.path()).env("XDG_STATE_HOME", self.folder.path());
        command.args(arguments.iter().map(|argument| argument.replace("{server}", &server)));
        let output = command.output().map_err(|error| Failure::at(line, error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        self.stage.note(&format!("flatout {} says {}: {said}", arguments.join(" "), output.status));
        let code = output.status.code().unwrap_or(-1);
        if code != 0 && !expects.iter().any(|expect| matches!(expect.what, What::Exit(_))) {
            return Err(Failure::at(line, format!("the exit code is {code}: {said}")));
        }
        for expect in expects {
            let holds = match &expect.what {
                What::Exit(wanted) => code == *wanted,
                What::Output(part, wanted) => said.contains(part.as_str()) == *wanted,
                _ => return Err(Failure::at(expect.line, "this cannot be expected of a command")),
            };
            if !holds {
                let text = format!("expected: {}; but the exit code is {code}, and it says {said}", expect.text);
                return Err(Failure::at(expect.line, text));
            }
        }
        Ok(())
    }

    fn restart(&mut self, signal: &str) -> Result<(), String> {
        self.kept = None;
        if let Some(subject) = self.subject.take() {
            let said = subject.end(signal);
            self.stage.note(&format!("the accelerator ends: {said}"));
        }
        self.subject = Some(Subject::start(self.kind, &self.scenario.launch, self.main, self.folder)?);
        Ok(())
    }

    /// Stops the accelerator, and returns its output if `wanted`.
    fn end(&mut self, wanted: bool) -> String {
        let _ = self.join();
        self.kept = None;
        self.open.clear();
        match self.subject.take() {
            Some(subject) if wanted || self.kind != Kind::Flatout => subject.end("TERM"),
            _ => String::new(),
        }
    }
}
