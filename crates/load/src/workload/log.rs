//! Access logs: what was asked for, by whom and when.
//!
//! Three forms are read, each line by its own looks: common, combined (and what goes on behind it, as flatout's does), and
//! flatout's JSON. [`LogReader`] takes the text in pieces of any size and keeps of each request 24 bytes; URLs and
//! clients are kept once each. All of it is bounded.
//!
//! A line that cannot be read is a fault with a number. A line that can be read but not asked for again (another method
//! than GET, HEAD and OPTIONS, whose body no log has; a request that was no HTTP; bytes that no request line may have) is
//! passed over and counted by its reason.

mod date;
mod line;

pub use line::{Line, parse_line};

use super::address::check_target;
use super::fault::{FaultKind, Faults};
use super::lines::{Lines, TooLong};
use super::{ENTRIES_MAX, Method, Origin, TEXT_BYTES_MAX};
use std::collections::HashMap;

/// Longest line of a log, in bytes. A target, a referrer and a user agent may be some thousands each, four times that
/// when escaped.
pub const LINE_BYTES_MAX: usize = 128 << 10;

/// Most requests that are kept: a quarter of a gigabyte of them.
pub const REQUESTS_MAX: usize = 10_000_000;

/// Most clients.
pub const CLIENTS_MAX: usize = 5_000_000;

/// Longest name of a client: an address, or what a resolver made of it.
const CLIENT_BYTES_MAX: usize = 255;

flatout_reason::reasons! {
    /// Why a line that was understood is not asked for again.
    pub enum Skip { name, text, }
    NoRequest, "no-request", "what came was no request that the server understood";
    OtherMethod, "other-method", "the method is neither GET, HEAD nor OPTIONS, and its body is in no log";
    TargetUnsendable, "target-unsendable", "the target is no path, or has bytes that no request line may have";
    HostUnsendable, "host-unsendable", "the Host field's value is no host";
    Unanswered, "unanswered", "the request was never whole and got no answer";
}

impl Skip {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
}

/// A request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// When, in nanoseconds since 1970, to the log's precision.
    pub unix_ns: i64,
    /// What, an index into [`Log::entries`].
    pub entry: u32,
    /// By whom, a number below [`Log::clients`].
    pub client: u32,
    /// Whether the log tells whole seconds only.
    pub is_whole_second: bool,
}

/// A thing that was asked for, and how that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The method.
    pub method: Method,
    /// The host that was named, where the log has it.
    pub host: Option<Origin>,
    /// Path and query.
    pub target: Box<str>,
    /// How often.
    pub requests: u64,
    /// How often the status was 200.
    pub ok: u64,
    /// Least and most bytes of those answers' content; `None` when there are none or the log does not tell.
    pub ok_bytes: Option<(u64, u64)>,
}

/// What was read of a log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Requests, in the order of the log.
    pub requests: Vec<LogRequest>,
    /// What they ask for, in the order in which it first occurs.
    pub entries: Vec<LogEntry>,
    /// How many clients there are.
    pub clients: u32,
    /// Lines, blank ones included.
    pub lines: u64,
    /// Lines that could not be read.
    pub faults: Faults,
    /// Lines that were passed over, by reason, in the order of [`Skip::ALL`].
    pub skipped: [u64; Skip::COUNT],
}

impl Log {
    /// Reads a whole text.
    pub fn read(text: &[u8]) -> Self {
        let mut reader = LogReader::default();
        reader.handle_bytes(text);
        reader.finish()
    }

    /// Lines that were passed over, for all reasons.
    pub fn skipped_total(&self) -> u64 {
        self.skipped.iter().sum()
    }

    /// How many lines were passed over for each reason that occurs.
    pub fn skips(&self) -> impl Iterator<Item = (Skip, u64)> + '_ {
        Skip::ALL.iter().zip(self.skipped).filter(|(_, count)| *count > 0).map(|(skip, count)| (*skip, count))
    }
}

/// Reads a log that comes in pieces.
#[derive(Debug)]
pub struct LogReader {
    lines: Lines,
    gatherer: Gatherer,
}

impl Default for LogReader {
    fn default() -> Self {
        Self { lines: Lines::new(LINE_BYTES_MAX), gatherer: Gatherer::default() }
    }
}

impl LogReader {
    /// Takes the next piece of the text. Returns whether more is wanted: not when a bound is reached, which is then
    /// among the faults.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> bool {
        let gatherer = &mut self.gatherer;
        self.lines.handle_bytes(bytes, |number, line| gatherer.take(number, line));
        !self.gatherer.is_full
    }

    /// The text has ended.
    pub fn finish(mut self) -> Log {
        let gatherer = &mut self.gatherer;
        self.lines.handle_end(|number, line| gatherer.take(number, line));
        self.gatherer.log
    }
}

/// What entries are told apart by: whether the method is another than GET and which, host, target.
type Key = (Method, Option<Origin>, Box<str>);

#[derive(Debug)]
struct Gatherer {
    log: Log,
    numbers: HashMap<Key, u32>,
    clients: HashMap<Box<[u8]>, u32>,
    text_bytes_left: usize,
    is_full: bool,
}

impl Default for Gatherer {
    fn default() -> Self {
        Self {
            log: Log::default(),
            numbers: HashMap::new(),
            clients: HashMap::new(),
            text_bytes_left: TEXT_BYTES_MAX,
            is_full: false,
        }
    }
}

/// A bound was reached.
struct Full;

impl Gatherer {
    fn take(&mut self, number: u64, line: Result<&[u8], TooLong>) {
        if self.is_full {
            return;
        }
        self.log.lines = number;
        match line {
            Err(TooLong) => self.log.faults.add(number, FaultKind::LineTooLong, b""),
            Ok(text) if text.trim_ascii().is_empty() => {}
            Ok(text) => match parse_line(text) {
                Err(kind) => self.log.faults.add(number, kind, text),
                Ok(line) => match self.keep(&line) {
                    Ok(None) => {}
                    Ok(Some(skip)) => self.log.skipped[skip as usize] += 1,
                    Err(Full) => {
                        self.is_full = true;
                        self.log.faults.add(number, FaultKind::TooMany, b"");
                    }
                },
            },
        }
    }

    fn keep(&mut self, line: &Line<'_>) -> Result<Option<Skip>, Full> {
        let Some(method) = &line.method else { return Ok(Some(Skip::NoRequest)) };
        let Some(method) = Method::parse(method) else { return Ok(Some(Skip::OtherMethod)) };
        let Ok(Ok(target)) = core::str::from_utf8(&line.target).map(check_target) else {
            return Ok(Some(Skip::TargetUnsendable));
        };
        let Ok(host) = line
            .host
            .as_deref()
            .filter(|host| !host.is_empty())
            .map(|host| Origin::parse(line.secure, host))
            .transpose()
        else {
            return Ok(Some(Skip::HostUnsendable));
        };
        if line.status == Some(0) {
            return Ok(Some(Skip::Unanswered));
        }
        if self.log.requests.len() >= REQUESTS_MAX {
            return Err(Full);
        }
        let entry = self.entry((method, host, target.into()))?;
        let client = self.client(&line.client)?;
        let known = &mut self.log.entries[entry as usize];
        known.requests += 1;
        if line.status == Some(200) {
            known.ok += 1;
            known.ok_bytes = match (line.body_bytes, known.ok_bytes) {
                (None, before) => before,
                (Some(bytes), None) => Some((bytes, bytes)),
                (Some(bytes), Some((least, most))) => Some((least.min(bytes), most.max(bytes))),
            };
        }
        self.log.requests.push(LogRequest {
            unix_ns: line.unix_ns,
            entry,
            client,
            is_whole_second: line.is_whole_second,
        });
        Ok(None)
    }

    fn entry(&mut self, key: Key) -> Result<u32, Full> {
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        let (method, host, target) = key.clone();
        self.spend(2 * target.len() + 2 * host.as_ref().map_or(0, |host| host.host.len()))?;
        if self.log.entries.len() >= ENTRIES_MAX {
            return Err(Full);
        }
        let number = self.log.entries.len() as u32;
        self.log.entries.push(LogEntry { method, host, target, requests: 0, ok: 0, ok_bytes: None });
        self.numbers.insert(key, number);
        Ok(number)
    }

    fn client(&mut self, name: &[u8]) -> Result<u32, Full> {
        let name = &name[..name.len().min(CLIENT_BYTES_MAX)];
        if let Some(number) = self.clients.get(name) {
            return Ok(*number);
        }
        self.spend(name.len())?;
        if self.clients.len() >= CLIENTS_MAX {
            return Err(Full);
        }
        let number = self.log.clients;
        self.clients.insert(name.into(), number);
        self.log.clients += 1;
        Ok(number)
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Full> {
        self.text_bytes_left = self.text_bytes_left.checked_sub(bytes).ok_or(Full)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
