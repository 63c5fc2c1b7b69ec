//! Replay of a log: the same requests in the same order and by the same clients, at the log's pace or faster.
//!
//! A log line is written after the response, so a request with a slow response is replayed late by the response's
//! duration. Lines are sorted by time. If a log contains only whole seconds, the requests of a second are spread evenly
//! over it, in log order.

use super::log::{AccessLog, LogRequest, Skip};
use super::{Address, Faults, Method, Workload, WorkloadEntry};
use crate::plan::ReplayLines;
use crate::workload::fault::FaultKind;

/// Idle time after which a client starts a new session, in nanoseconds; a convention of log analysis.
pub const SESSION_GAP_NS: u64 = 30 * 60 * 1_000_000_000;

/// A logged request with its time in the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// Time in nanoseconds after the first request.
    pub at_ns: u64,
    /// Index into the workload's entries.
    pub entry: u32,
    /// Number of the session, below [`Replay::sessions`].
    pub session: u32,
}

/// A log that can be replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The possible requests. The workload's own way of choosing among them is not used.
    pub workload: Workload,
    /// Requests sorted by time, at least one.
    pub requests: Vec<ReplayRequest>,
    /// Number of sessions.
    pub sessions: u32,
    /// Number of skipped lines of the log by reason.
    pub passed_over: Vec<(Skip, u64)>,
}

impl Replay {
    /// Creates a replay of a log, accelerated by `speed`, which must be finite and above 0; otherwise it counts as 1.
    /// The size of a GET response is known if all its logged responses had status 200 and the same size.
    ///
    /// # Errors
    /// Fails if the log contains nothing to request.
    pub fn of(log: &AccessLog, speed: f64) -> Result<Self, Faults> {
        let speed = if speed.is_finite() && speed > 0.0 { speed } else { 1.0 };
        let entries: Vec<WorkloadEntry> = log
            .entries
            .iter()
            .map(|entry| WorkloadEntry {
                method: entry.method,
                address: Address { origin: None, target: entry.target.clone() },
                host: entry.host.as_ref().map(|origin| origin.authority().into()),
                weight: entry.requests as f64,
                body_bytes: entry
                    .ok_bytes
                    .filter(|(least, most)| least == most && entry.ok == entry.requests && entry.method == Method::Get)
                    .map(|(bytes, _)| bytes),
                ..WorkloadEntry::get(Address { origin: None, target: entry.target.clone() })
            })
            .collect();
        let mut workload = Workload::by_weight("replay", entries).ok_or_else(|| Faults::of_text(FaultKind::Empty))?;
        let timed = timed(&log.requests);
        let start_ns = timed.first().map_or(0, |(at_ns, _)| *at_ns);
        let mut sessions = Sessions::new(log.clients);
        let requests: Vec<_> = timed
            .into_iter()
            .map(|(at_ns, request)| {
                let at_ns = at_ns.abs_diff(start_ns);
                let session = sessions.number(request.client, at_ns);
                ReplayRequest { at_ns: (at_ns as f64 / speed) as u64, entry: request.entry, session }
            })
            .collect();
        let duration_s = requests.last().map_or(0.0, |request| request.at_ns as f64 / 1e9);
        workload.parameters = vec![
            ("requests", requests.len().to_string()),
            ("URLs", workload.entries.len().to_string()),
            ("sessions", sessions.count.to_string()),
            ("speed", format!("x{speed}")),
            ("duration", format!("{duration_s:.3} s")),
        ];
        Ok(Self { workload, requests, sessions: sessions.count, passed_over: log.skips().collect() })
    }

    /// Removes the sizes of responses, so that they are not checked. A logged size is that of the coding that the client
    /// accepted.
    pub fn forget_sizes(&mut self) {
        self.workload.entries.iter_mut().for_each(|entry| entry.body_bytes = None);
    }

    /// Returns the requests as arrivals.
    pub fn lines(&self) -> ReplayLines {
        ReplayLines::of(self.requests.iter().map(|request| (request.at_ns, request.session)))
    }
}

/// Returns requests with their times, sorted by time.
fn timed(requests: &[LogRequest]) -> Vec<(i64, LogRequest)> {
    let mut timed: Vec<_> = requests.iter().map(|request| (request.unix_ns, *request)).collect();
    timed.sort_by_key(|(at_ns, _)| *at_ns);
    for same in timed.chunk_by_mut(|(one, _), (other, _)| one == other) {
        let whole: i64 = same.iter().map(|(_, request)| i64::from(request.is_whole_second)).sum();
        let spread = same.iter_mut().filter(|(_, request)| request.is_whole_second);
        for (index, (at_ns, _)) in (0..).zip(spread) {
            *at_ns = at_ns.saturating_add(1_000_000_000 * index / whole.max(1));
        }
    }
    // Sort again, because a file may mix formats with and without fractional seconds.
    timed.sort_by_key(|(at_ns, _)| *at_ns);
    timed
}

/// Assigns session numbers to the requests of clients.
struct Sessions {
    /// Number of the current session of each client, and the time of its last request in nanoseconds.
    of_clients: Vec<Option<(u32, u64)>>,
    count: u32,
}

impl Sessions {
    fn new(clients: u32) -> Self {
        Self { of_clients: vec![None; clients as usize], count: 0 }
    }

    fn number(&mut self, client: u32, at_ns: u64) -> u32 {
        let slot = &mut self.of_clients[client as usize];
        let number = match *slot {
            Some((number, seen_ns)) if at_ns - seen_ns <= SESSION_GAP_NS => number,
            _ => {
                self.count += 1;
                self.count - 1
            }
        };
        *slot = Some((number, at_ns));
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> AccessLog {
        let log = AccessLog::read(lines.join("\n").as_bytes());
        assert!(log.faults.is_empty(), "{}", log.faults);
        log
    }

    fn common(client: &str, time: &str, target: &str, bytes: u64) -> String {
        format!("{client} - - [21/Nov/2026:{time} +0000] \"GET {target} HTTP/1.1\" 200 {bytes}")
    }

    fn times_ms(replay: &Replay) -> Vec<u64> {
        replay.requests.iter().map(|request| request.at_ns / 1_000_000).collect()
    }

    #[test]
    fn a_second_is_shared_out_and_times_are_put_in_order() {
        let lines = [
            common("a", "10:00:01", "/2", 1),
            common("a", "10:00:00", "/1", 1),
            common("b", "10:00:01", "/3", 1),
            common("a", "10:00:01", "/2", 2),
            common("b", "10:00:01", "/5", 1),
        ];
        let log = log(&lines.each_ref().map(String::as_str));
        let replay = Replay::of(&log, 1.0).unwrap();
        let target = |request: &ReplayRequest| replay.workload.entries[request.entry as usize].address.to_string();
        let found: Vec<_> = replay.requests.iter().map(|r| (r.at_ns / 1_000_000, target(r), r.session)).collect();
        let expected = [(0, "/1", 0), (1000, "/2", 0), (1250, "/3", 1), (1500, "/2", 0), (1750, "/5", 1)];
        assert_eq!(found, expected.map(|(at, target, session)| (at, target.to_owned(), session)));
        // At double speed, in half the time.
        let fast = times_ms(&Replay::of(&log, 2.0).unwrap());
        assert_eq!(fast, [0, 500, 625, 750, 875]);
        // A size that changed is not checked.
        let sizes: Vec<_> = replay.workload.entries.iter().map(|entry| entry.body_bytes).collect();
        assert_eq!(sizes, [None, Some(1), Some(1), Some(1)]);
        assert!(replay.workload.describe().contains("sessions 2"), "{}", replay.workload.describe());
    }

    #[test]
    fn milliseconds_and_hosts_are_kept() {
        let line = |ms: u32, host: &str| {
            format!(
                "{{\"time\":\"2026-11-21T10:00:00.{ms:03}Z\",\"client\":\"::1\",\"host\":\"{host}\",\"method\":\"HEAD\",\"target\":\"/\",\"status\":200,\"body_bytes\":0,\"tls\":false}}"
            )
        };
        let replay = Replay::of(&log(&[&line(5, "a.example"), &line(907, "b.example:8080")]), 1.0).unwrap();
        assert_eq!(times_ms(&replay), [0, 902]);
        let hosts: Vec<_> = replay.workload.entries.iter().map(|entry| entry.host.as_deref()).collect();
        assert_eq!(hosts, [Some("a.example"), Some("b.example:8080")]);
        assert!(replay.workload.entries.iter().all(|entry| entry.method == Method::Head && entry.body_bytes.is_none()));
    }

    #[test]
    fn a_client_that_comes_back_later_begins_a_session() {
        let lines = [common("a", "10:00:00", "/", 1), common("a", "10:30:00", "/", 1), common("a", "11:00:01", "/", 1)];
        let replay = Replay::of(&log(&lines.each_ref().map(String::as_str)), 1.0).unwrap();
        assert_eq!(replay.requests.iter().map(|request| request.session).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(replay.sessions, 2);
    }

    #[test]
    fn an_empty_log_is_none() {
        assert_eq!(Replay::of(&AccessLog::default(), 1.0).unwrap_err(), Faults::of_text(FaultKind::Empty));
    }
}
