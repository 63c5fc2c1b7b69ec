//! A run of a scenario: events in virtual time, and connections.

mod checks;
mod drive;
mod end;
mod upstream;

pub use drive::run;

use crate::oracle::Asked;
use crate::origin::{BEGUN_UNIX_S, HOST, Origin};
use crate::reader::{Found, Reader};
use crate::scenario::{Kind, Method, Request, Scenario};
use drive::compile;
use end::{End, Input};
use flatout_engine::Engine;
use flatout_engine::spec::Spec;
use flatout_os::clock::SettableClock;
use flatout_proxy::Accelerator;
use flatout_server::Command;
use flatout_store::Purge;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt::{self, Write as _};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use upstream::OriginEnd;

/// Time after the last action within which every response has to be there: timeouts and retries of the origin take less.
const RESPONSE_MS_MAX: u64 = 120_000;

/// Time after which a stalled origin goes on, in milliseconds: above the timeout of [`Scenario::kdl`].
const LATE_MS: u64 = 6_000;

/// Upper bound of steps of a run; more mean that it does not come to rest.
const STEPS_MAX: u64 = 200_000;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The number of the visitor's request, or 0.
    pub serial: u32,
    /// The invariant and how it is broken.
    pub rule: String,
}

impl Violation {
    /// Returns true if this breaks the same invariant as `rule`, whatever the figures.
    pub fn is_like(&self, rule: &str) -> bool {
        let words = |text: &str| text.chars().filter(|letter| !letter.is_ascii_digit()).take(60).collect::<String>();
        words(&self.rule) == words(rule)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "request {}: {}", self.serial, self.rule)
    }
}

/// Totals over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests of visitors.
    pub requests: u64,
    /// Complete responses.
    pub complete: u64,
    /// Responses that ended visibly incomplete, and connections closed without a response.
    pub broken: u64,
    /// Complete responses with content that another request had caused.
    pub shared: u64,
    /// Responses that the origin has sent.
    pub origin_responses: u64,
    /// Evicted responses.
    pub evicted: u64,
    /// Steps of virtual time.
    pub steps: u64,
}

impl Figures {
    /// Adds those of another run.
    pub const fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.complete += other.complete;
        self.broken += other.broken;
        self.shared += other.shared;
        self.origin_responses += other.origin_responses;
        self.evicted += other.evicted;
        self.steps += other.steps;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Action(usize),
    /// A visitor's connection writes its next piece.
    ClientPiece(usize),
    /// A visitor begins to read.
    ClientReads(usize),
    /// A visitor leaves.
    ClientLeaves(usize, u32),
    /// The origin's connection begins its response.
    OriginResponds(usize),
    /// The origin's connection writes its next piece.
    OriginPiece(usize),
}

/// A request that waits for its response.
#[derive(Debug)]
struct Waiting {
    serial: u32,
    /// When its last byte was sent, as a time and in the order of events.
    begun: Option<(u64, u64)>,
    /// It was sent on a connection that had carried others.
    is_reused: bool,
    /// If-None-Match or If-Range; empty for no such field.
    tag: String,
}

#[derive(Debug)]
struct Client {
    end: End,
    visitor: u8,
    waiting: VecDeque<Waiting>,
    /// Writes to come, and the request that is complete with each.
    pieces: VecDeque<(Vec<u8>, Option<u32>, u64)>,
    reader: Reader,
    reads: bool,
    /// No more requests: one said `Connection: close`, or a response did.
    is_last: bool,
    requests: u32,
}

/// The simulated world around the worker.
struct World {
    scenario: Rc<Scenario>,
    accelerator: Arc<Accelerator>,
    spec: Arc<Spec>,
    clock: SettableClock,
    address: SocketAddr,
    now_ms: u64,
    order: u64,
    wall_s: i64,
    /// When the wall clock was changed last, and when it was set back, in the order of events.
    stepped_order: u64,
    set_back_order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    clients: Vec<Client>,
    origin: Origin,
    origins: Vec<OriginEnd>,
    /// For each resource and group: when a purge was complete, and which responses it covers, in the order of events.
    purges: Vec<(PurgeScope, u64, u64)>,
    /// The same of soft purges.
    expiries: Vec<(PurgeScope, u64, u64)>,
    commands: UnboundedSender<Command<Engine>>,
    asked: HashMap<u32, Asked>,
    /// Requests that got a stale response because the origin had hung, with the resource and when.
    owed: Vec<(u32, usize, u64)>,
    tags: HashMap<(u8, usize), String>,
    figures: Figures,
    heads: u64,
    /// Visitors who left, and responses that were cut: counters then need not be equal.
    irregular: u64,
    violation: Option<Violation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PurgeScope {
    Resource(usize),
    Group(u8),
    All,
}

impl World {
    fn fail(&mut self, serial: u32, rule: impl Into<String>) {
        self.violation.get_or_insert(Violation { serial, rule: rule.into() });
    }

    const fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn schedule(&mut self, delay_ms: u64, event: Event) {
        let order = self.next_order();
        self.events.push(Reverse((self.now_ms + delay_ms, order, event)));
    }

    fn unix_s(&self) -> i64 {
        BEGUN_UNIX_S + self.wall_s + (self.now_ms / 1_000).cast_signed()
    }

    /// Moves time to the next event or tick, and handles the events that are due. Returns false once nothing is left.
    fn step(&mut self, last_ms: u64) -> bool {
        let event_ms = self.events.peek().map(|Reverse((at_ms, _, _))| *at_ms);
        let tick = self.clock.until_next_tick();
        let tick_ms = tick.map(|tick| self.now_ms + tick.as_nanos().div_ceil(1_000_000) as u64);
        let is_waiting = self.clients.iter().any(|client| !client.waiting.is_empty());
        if event_ms.is_none() && !is_waiting {
            return false;
        }
        let Some(next_ms) = event_ms.into_iter().chain(tick_ms).min() else {
            self.fail(self.waiting_serial(), "no response, and nothing that could send one");
            return false;
        };
        if event_ms.is_none() && next_ms > last_ms + RESPONSE_MS_MAX {
            self.fail(self.waiting_serial(), "no response");
            return false;
        }
        self.clock.advance(Duration::from_millis(next_ms - self.now_ms));
        self.now_ms = next_ms;
        while let Some(Reverse((at_ms, _, event))) = self.events.peek().copied() {
            if at_ms > self.now_ms {
                break;
            }
            self.events.pop();
            self.handle_event(event);
        }
        true
    }

    fn waiting_serial(&self) -> u32 {
        self.clients.iter().find_map(|client| client.waiting.front()).map_or(0, |waiting| waiting.serial)
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Action(index) => {
                let action = self.scenario.actions[index].clone();
                self.handle_action(action.serial, &action.kind);
            }
            Event::ClientPiece(index) => self.write_piece(index),
            Event::ClientReads(index) => self.clients[index].reads = true,
            Event::ClientLeaves(index, serial) => {
                if self.clients[index].waiting.iter().any(|waiting| waiting.serial == serial) {
                    self.leave(index);
                }
            }
            Event::OriginResponds(index) => self.respond(index),
            Event::OriginPiece(index) => self.write_origin_piece(index),
        }
    }

    fn handle_action(&mut self, serial: u32, kind: &Kind) {
        let scope = match kind {
            Kind::Request(request) => return self.send_request(serial, request),
            Kind::Change(resource) => return self.origin.change(*resource),
            Kind::StepWall(seconds) => {
                self.clock.step_wall(*seconds);
                self.wall_s += seconds;
                self.stepped_order = self.next_order();
                if *seconds < 0 {
                    self.set_back_order = self.stepped_order;
                }
                return;
            }
            Kind::Reload => return self.reload(),
            Kind::PurgeUrl(resource) | Kind::Expire(resource) => PurgeScope::Resource(*resource),
            Kind::PurgeGroup(group) => PurgeScope::Group(*group),
            Kind::PurgeHost | Kind::PurgeAll => PurgeScope::All,
        };
        let Some(store) = self.accelerator.store() else { return };
        let purges = match kind {
            Kind::PurgeUrl(resource) | Kind::Expire(resource) => {
                let targets = self.spec.key_targets(&format!("/r{resource}"));
                targets.iter().map(|target| Purge::Url(format!("{HOST}{target}").into_bytes())).collect()
            }
            Kind::PurgeGroup(group) => vec![Purge::Tag(format!("group{group}").into_bytes())],
            Kind::PurgeHost => vec![Purge::Host(HOST.into())],
            _ => vec![Purge::All],
        };
        let is_soft = matches!(kind, Kind::Expire(_));
        for purge in &purges {
            let _ = store.purge(purge, is_soft, false);
        }
        let order = self.next_order();
        let purged = if is_soft { &mut self.expiries } else { &mut self.purges };
        purged.push((scope, order, order));
    }

    /// Switches the worker to a new compilation of the configuration. Requests in progress go on.
    fn reload(&mut self) {
        match compile(&self.scenario, &self.accelerator) {
            Ok(spec) => {
                self.spec = Arc::clone(&spec);
                let _ = self.commands.send(Command::Handler(Box::new(move |engine: &Engine| engine.swap(spec))));
            }
            Err(error) => self.fail(0, format!("a reload fails: {error}")),
        }
    }

    fn send_request(&mut self, serial: u32, request: &Request) {
        let usable = |client: &Client| {
            let is_free = client.waiting.is_empty() || request.is_pipelined;
            client.visitor == request.visitor && client.end.stream.is_some() && !client.is_last && is_free
        };
        let index = self.clients.iter().position(usable).or_else(|| self.connect(request.visitor));
        let Some(index) = index else { return self.fail(serial, "the server refuses connections") };
        let mut text = match request.method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
        }
        .to_owned();
        let _ = write!(text, " /r{} HTTP/1.1\r\nHost: {HOST}\r\n", request.resource);
        let _ = write!(text, "X-Visitor: {}\r\nX-Request: {serial}\r\n", request.visitor);
        for (name, value) in request.fields() {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        let known = self.tags.get(&(request.visitor, request.resource)).filter(|_| request.is_conditional);
        let tag = known.cloned().unwrap_or_default();
        if !tag.is_empty() {
            let name = if request.range.is_some() { "If-Range" } else { "If-None-Match" };
            let _ = write!(text, "{name}: {tag}\r\n");
        }
        if request.closes {
            text += "Connection: close\r\n";
        }
        text += match request.method {
            Method::Post if request.is_empty => "Content-Length: 0\r\n\r\n",
            Method::Post => "Content-Length: 5\r\n\r\nvalue",
            Method::Get | Method::Head => "\r\n",
        };
        self.figures.requests += 1;
        let client = &mut self.clients[index];
        client.is_last |= request.closes;
        client.waiting.push_back(Waiting { serial, begun: None, is_reused: client.requests > 0, tag });
        client.requests += 1;
        let is_idle = client.pieces.is_empty();
        let bytes = text.as_bytes();
        let pieces: Vec<_> = bytes.chunks(request.piece_bytes.min(bytes.len())).collect();
        for (number, piece) in pieces.iter().enumerate() {
            let ends = (number + 1 == pieces.len()).then_some(serial);
            client.pieces.push_back((piece.to_vec(), ends, request.piece_delay_ms));
        }
        if request.reads_after_ms > 0 {
            client.reads = false;
            self.schedule(request.reads_after_ms, Event::ClientReads(index));
        }
        if let Some(leaves_after_ms) = request.leaves_after_ms {
            self.schedule(leaves_after_ms, Event::ClientLeaves(index, serial));
        }
        if is_idle {
            self.write_piece(index);
        }
    }

    fn connect(&mut self, visitor: u8) -> Option<usize> {
        let stream = UnixStream::connect_addr(&self.address).ok()?;
        stream.set_nonblocking(true).ok()?;
        self.clients.push(Client {
            end: End::new(stream),
            visitor,
            waiting: VecDeque::new(),
            pieces: VecDeque::new(),
            reader: Reader::default(),
            reads: true,
            is_last: false,
            requests: 0,
        });
        Some(self.clients.len() - 1)
    }

    fn write_piece(&mut self, index: usize) {
        let order = self.next_order();
        let now_ms = self.now_ms;
        let client = &mut self.clients[index];
        let Some((bytes, ends, delay_ms)) = client.pieces.pop_front() else { return };
        client.end.send(&bytes);
        if let Some(serial) = ends
            && let Some(waiting) = client.waiting.iter_mut().find(|waiting| waiting.serial == serial)
        {
            waiting.begun = Some((now_ms, order));
        }
        if !client.pieces.is_empty() {
            self.schedule(delay_ms, Event::ClientPiece(index));
        }
    }

    fn leave(&mut self, index: usize) {
        self.irregular += 1;
        let client = &mut self.clients[index];
        client.end.stream = None;
        client.waiting.clear();
        client.pieces.clear();
    }

    /// Receives and sends on all connections. Returns whether anything happened.
    fn exchange(&mut self) -> bool {
        let mut fds = Vec::new();
        let mut owners = Vec::new();
        let flags = |reads: bool, end: &End| {
            let input = if reads { PollFlags::IN } else { PollFlags::empty() };
            if end.unsent.is_empty() { input } else { input | PollFlags::OUT }
        };
        for (index, client) in self.clients.iter().enumerate() {
            if let Some(stream) = &client.end.stream
                && (client.reads || !client.end.unsent.is_empty())
            {
                fds.push(PollFd::new(stream, flags(client.reads, &client.end)));
                owners.push((true, index));
            }
        }
        for (index, origin) in self.origins.iter().enumerate() {
            if let Some(stream) = &origin.end.stream {
                fds.push(PollFd::new(stream, flags(!origin.is_busy, &origin.end)));
                owners.push((false, index));
            }
        }
        if fds.is_empty() || poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0) {
            return false;
        }
        let ready: Vec<_> = fds.iter().map(PollFd::revents).zip(owners).filter(|(got, _)| !got.is_empty()).collect();
        drop(fds);
        let mut has_happened = false;
        for (got, (is_client, index)) in ready {
            has_happened |= if is_client { self.client_ready(index) } else { self.origin_ready(index, got) };
        }
        has_happened
    }

    fn client_ready(&mut self, index: usize) -> bool {
        let client = &mut self.clients[index];
        client.end.flush();
        if !client.reads {
            return true;
        }
        match client.end.receive(&mut client.reader.input) {
            Input::Nothing => return false,
            Input::Bytes => self.read_responses(index),
            Input::Closed => {
                self.read_responses(index);
                self.handle_end(index);
            }
        }
        true
    }

    fn read_responses(&mut self, index: usize) {
        loop {
            let client = &mut self.clients[index];
            if client.end.stream.is_none() {
                return;
            }
            let Some(waiting) = client.waiting.front() else {
                if !client.reader.input.is_empty() {
                    self.fail(0, "the server sent bytes without a request");
                }
                return;
            };
            let serial = waiting.serial;
            let begun = waiting.begun;
            let is_to_head = self.scenario.request(serial).is_some_and(|request| request.method == Method::Head);
            let found = client.reader.read(is_to_head);
            match found {
                Err(fault) => return self.fail(serial, format!("not a response: {fault}")),
                Ok(Found::Nothing) => return,
                Ok(Found::Head) => {
                    self.heads += 1;
                    let (begun_ms, begun_order) = begun.unwrap_or((self.now_ms, self.order));
                    if let Some(request) = self.scenario.request(serial).cloned() {
                        self.asked.insert(serial, Asked { serial, request, begun_ms, begun_order });
                    }
                    self.check_head(index, serial);
                }
                Ok(Found::End) => {
                    self.check_content(index, serial, true);
                    let order = self.next_order();
                    let client = &mut self.clients[index];
                    let (head, _) = client.reader.take();
                    client.waiting.pop_front();
                    self.figures.complete += 1;
                    let Some(head) = head else { continue };
                    if head.field("connection").is_some_and(|options| options.contains("close")) {
                        self.clients[index].is_last = true;
                    }
                    self.learn(serial, &head, order);
                }
            }
        }
    }

    fn handle_end(&mut self, index: usize) {
        self.clients[index].end.stream = None;
        let Some(waiting) = self.clients[index].waiting.front() else { return };
        let (serial, is_reused, has_begun) = (waiting.serial, waiting.is_reused, waiting.begun.is_some());
        self.irregular += 1;
        self.figures.broken += 1;
        let client = &self.clients[index];
        let has_head = client.reader.head.is_some();
        if has_head {
            self.check_content(index, serial, false);
        } else if has_begun && !is_reused {
            self.fail(serial, "the connection was closed without a response");
        }
        let client = &mut self.clients[index];
        client.waiting.clear();
        client.pieces.clear();
    }
}
