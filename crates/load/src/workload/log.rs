//! Access logs: requests with clients and times.
//!
//! The format of each line is detected: common, combined (with optional further fields, as flatout writes), or
//! flatout's JSON. [`LogReader`] takes the text in pieces of any size and stores 24 bytes per request; each URL and
//! each client is stored once. All memory use is bounded.
//!
//! A line that cannot be parsed is an error with its line number. A line that cannot be replayed is skipped and counted
//! by reason: a method other than GET, HEAD and OPTIONS, whose content no log has; a request that was not HTTP; or
//! bytes that are not allowed in a request line.

mod date;
mod line;

pub use line::{AccessLogLine, parse_line};

use super::address::check_target;
use super::fault::{FaultKind, Faults};
use super::lines::{LineReader, TooLong};
use super::{ENTRIES_MAX, Method, TEXT_BYTES_MAX};
use flatout_http::url::OriginAddress;
use std::collections::HashMap;

/// Maximum length of a line in bytes. A target, a referrer and a user agent may have some thousand bytes each, or four
/// times as many when escaped.
pub const LINE_BYTES_MAX: usize = 128 << 10;

/// Maximum number of stored requests, which take a quarter of a gigabyte.
pub const REQUESTS_MAX: usize = 10_000_000;

/// Maximum number of clients.
pub const CLIENTS_MAX: usize = 5_000_000;

/// Maximum length of a client's name in bytes. The name is an address or a resolved host name.
const CLIENT_BYTES_MAX: usize = 255;

flatout_reason::reasons! {
    /// The reason a parsed line is not replayed.
    pub enum Skip { name, text, }
    NoRequest, "no-request", "the log line has no valid request";
    OtherMethod, "other-method", "the method is not GET, HEAD or OPTIONS, and logs do not contain request bodies";
    TargetUnsendable, "target-unsendable", "the target is not a path, or contains bytes that are not allowed in a request line";
    HostUnsendable, "host-unsendable", "the Host field's value is not a host";
    NoResponse, "no-response", "the request was never complete and got no response";
}

impl Skip {
    /// Number of reasons.
    pub const COUNT: usize = Self::ALL.len();
}

/// A logged request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// Time in nanoseconds since the epoch, to the log's precision.
    pub unix_ns: i64,
    /// Index into [`AccessLog::entries`].
    pub entry: u32,
    /// Number of the client, below [`AccessLog::clients`].
    pub client: u32,
    /// True if the log line states only whole seconds.
    pub is_whole_second: bool,
}

/// A requested resource, with statistics of its responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The request method.
    pub method: Method,
    /// The requested host, if the log contains it.
    pub host: Option<OriginAddress>,
    /// Path and query.
    pub target: Box<str>,
    /// Number of requests.
    pub requests: u64,
    /// Number of responses with status 200.
    pub ok: u64,
    /// Smallest and largest content length of the responses with status 200; `None` if there are none or the log lacks
    /// the length.
    pub ok_bytes: Option<(u64, u64)>,
}

/// A parsed log.
#[derive(Clone, Debug, Default)]
pub struct AccessLog {
    /// Requests in log order.
    pub requests: Vec<LogRequest>,
    /// Requested resources in order of first occurrence.
    pub entries: Vec<LogEntry>,
    /// Number of clients.
    pub clients: u32,
    /// Number of lines, including blank ones.
    pub lines: u64,
    /// Lines that could not be parsed.
    pub faults: Faults,
    /// Skipped lines by reason, in the order of [`Skip::ALL`].
    pub skipped: [u64; Skip::COUNT],
}

impl AccessLog {
    /// Parses a whole log.
    pub fn read(text: &[u8]) -> Self {
        let mut reader = LogReader::default();
        reader.handle_bytes(text);
        reader.finish()
    }

    /// Total number of skipped lines.
    pub fn skipped_total(&self) -> u64 {
        self.skipped.iter().sum()
    }

    /// Returns the number of skipped lines for each reason that occurs.
    pub fn skips(&self) -> impl Iterator<Item = (Skip, u64)> + '_ {
        Skip::ALL.iter().zip(self.skipped).filter(|(_, count)| *count > 0).map(|(skip, count)| (*skip, count))
    }
}

/// Incremental parser of a log.
#[derive(Debug)]
pub struct LogReader {
    lines: LineReader,
    gatherer: Gatherer,
}

impl Default for LogReader {
    fn default() -> Self {
        Self { lines: LineReader::new(LINE_BYTES_MAX), gatherer: Gatherer::default() }
    }
}

impl LogReader {
    /// Handles the next piece of text. Returns whether to continue: false if a limit was reached, which is then among
    /// the errors.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> bool {
        let gatherer = &mut self.gatherer;
        self.lines.handle_bytes(bytes, |number, line| gatherer.take(number, line));
        !self.gatherer.is_full
    }

    /// Handles the end of the text, and returns the parsed log.
    pub fn finish(mut self) -> AccessLog {
        let gatherer = &mut self.gatherer;
        self.lines.handle_end(|number, line| gatherer.take(number, line));
        self.gatherer.log
    }
}

/// The key of an entry: method, host and target.
type EntryKey = (Method, Option<OriginAddress>, Box<str>);

flatout_reason::defaults! {
    #[derive(Debug)]
    struct Gatherer {
        log: AccessLog,
        numbers: HashMap<EntryKey, u32>,
        clients: HashMap<Box<[u8]>, u32>,
        text_bytes_left: usize = TEXT_BYTES_MAX,
        is_full: bool = false,
    }
}

/// A limit was reached.
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

    fn keep(&mut self, line: &AccessLogLine<'_>) -> Result<Option<Skip>, Full> {
        let Some(method) = &line.method else { return Ok(Some(Skip::NoRequest)) };
        let Some(method) = Method::parse(method) else { return Ok(Some(Skip::OtherMethod)) };
        let Ok(Ok(target)) = core::str::from_utf8(&line.target).map(check_target) else {
            return Ok(Some(Skip::TargetUnsendable));
        };
        let Ok(host) = line
            .host
            .as_deref()
            .filter(|host| !host.is_empty())
            .map(|host| OriginAddress::parse(line.secure, host))
            .transpose()
        else {
            return Ok(Some(Skip::HostUnsendable));
        };
        if line.status == Some(0) {
            return Ok(Some(Skip::NoResponse));
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

    fn entry(&mut self, key: EntryKey) -> Result<u32, Full> {
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
