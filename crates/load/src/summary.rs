//! What a record says: rates, percentiles, costs, and whether the run can be believed.
//!
//! A [`Summary`] is computed once, from counts and facts, and is what every view prints. A run that failed says why with
//! named reasons ([`Failing`]); what a reader should know besides, a [`Note`] says.

use crate::recorder::{Counts, Recorder};
use hdrhistogram::Histogram;

/// Share of its time a client thread may be busy, or waiting for a core, before the client was likely the limit.
pub const CLIENT_BUSY_SHARE_MAX: f64 = 0.9;

/// Runs shorter than this are mostly their own beginning and are not judged by their use of CPU.
pub const JUDGED_NS_MIN: u64 = 100_000_000;

/// Share of the machine's CPU that others may use before the figures must be expected to vary.
pub const OTHER_CPU_SHARE_MAX: f64 = 0.1;

/// What is known about a run besides its record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunFacts {
    /// From the first request's beginning to the last answer's end, in nanoseconds.
    pub elapsed_ns: u64,
    /// On-CPU time of all client threads, in nanoseconds.
    pub client_cpu_ns: u64,
    /// Share of its time that the busiest client thread was on a core, 0 to 1.
    pub client_busy_share: f64,
    /// Share of its time that this thread was ready but waited for a core, 0 to 1.
    pub client_wait_share: f64,
    /// On-CPU time of the server's processes, in nanoseconds, when they run on this machine and may be read.
    pub server_cpu_ns: Option<u64>,
    /// Share of the machine's CPU that neither the client nor the server used during the run, 0 to 1, where known.
    pub other_cpu_share: Option<f64>,
    /// Whether somebody ended the run before its time.
    pub interrupted: bool,
    /// How many requests were asked for, where the run was not asked for a time.
    pub requests_asked: Option<u64>,
}

/// Percentiles of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencySummary {
    /// How many values there are, at least 1.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Smallest value.
    pub min_ns: u64,
    /// Half of all values are no larger.
    pub p50_ns: u64,
    /// 90 of 100 are no larger.
    pub p90_ns: u64,
    /// 99 of 100 are no larger.
    pub p99_ns: u64,
    /// 999 of 1000 are no larger.
    pub p99_9_ns: u64,
    /// Largest value, to three digits.
    pub max_ns: u64,
}

impl LatencySummary {
    /// Percentiles of a histogram, or nothing when it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        Some(Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            min_ns: histogram.min(),
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p99_ns: histogram.value_at_quantile(0.99),
            p99_9_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        })
    }
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// No request left this process.
    NothingSent,
    /// Fewer requests were sent than asked for.
    NotAllSent {
        /// Sent whole.
        sent: u64,
        /// Asked for.
        asked: u64,
    },
    /// Requests were sent and none was answered in full.
    NothingAnswered,
    /// This many requests failed, short bodies not counted.
    RequestsFailed(u64),
    /// This many bodies were shorter than declared.
    BodiesShort(u64),
    /// This many answers were 4xx.
    ClientErrors(u64),
    /// This many answers were 5xx.
    ServerErrors(u64),
}

impl Failing {
    /// The short name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NothingSent => "nothing-sent",
            Self::NotAllSent { .. } => "not-all-sent",
            Self::NothingAnswered => "nothing-answered",
            Self::RequestsFailed(_) => "requests-failed",
            Self::BodiesShort(_) => "bodies-short",
            Self::ClientErrors(_) => "status-4xx",
            Self::ServerErrors(_) => "status-5xx",
        }
    }
}

impl std::fmt::Display for Failing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::NothingSent => write!(formatter, "nothing was sent"),
            Self::NotAllSent { sent, asked } => {
                write!(formatter, "{sent} of {asked} {} sent", requests_were(asked))
            }
            Self::NothingAnswered => write!(formatter, "nothing was answered"),
            Self::RequestsFailed(count) => write!(formatter, "{count} {} failed", requests(count)),
            Self::BodiesShort(1) => write!(formatter, "1 body was shorter than declared"),
            Self::BodiesShort(count) => write!(formatter, "{count} bodies were shorter than declared"),
            Self::ClientErrors(count) => write!(formatter, "{count} {} answered 4xx", requests_were(count)),
            Self::ServerErrors(count) => write!(formatter, "{count} {} answered 5xx", requests_were(count)),
        }
    }
}

fn requests(count: u64) -> &'static str {
    if count == 1 { "request" } else { "requests" }
}

fn requests_were(count: u64) -> &'static str {
    if count == 1 { "request was" } else { "requests were" }
}

/// Whether the run can be believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Every reason why the run failed; none means it passed.
    pub failing: Vec<Failing>,
}

impl Verdict {
    /// Judges the counts of a finished run, of which `requests_asked` were asked for where that is known.
    pub fn of(counts: &Counts, requests_asked: Option<u64>) -> Self {
        let bodies_short = counts.failures_of(crate::FailureKind::ShortBody);
        let failures = counts.failures_total() - bodies_short;
        let mut failing = Vec::new();
        let sent = counts.requests_sent;
        if sent == 0 {
            failing.push(Failing::NothingSent);
        } else if let Some(asked) = requests_asked.filter(|asked| sent < *asked) {
            failing.push(Failing::NotAllSent { sent, asked });
        }
        if sent > 0 && counts.responses == 0 {
            failing.push(Failing::NothingAnswered);
        }
        let counted = [
            (failures, Failing::RequestsFailed(failures)),
            (bodies_short, Failing::BodiesShort(bodies_short)),
            (counts.status_classes[3], Failing::ClientErrors(counts.status_classes[3])),
            (counts.status_classes[4], Failing::ServerErrors(counts.status_classes[4])),
        ];
        failing.extend(counted.into_iter().filter(|(count, _)| *count > 0).map(|(_, reason)| reason));
        Self { failing }
    }

    /// Whether nothing went wrong.
    pub fn passed(&self) -> bool {
        self.failing.is_empty()
    }
}

/// What a reader of the figures should know, though the run did not fail for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Note {
    /// A client thread never idled, so the client was likely the limit and not the server.
    ClientLimit {
        /// Share of its time the busiest client thread was on a core, 0 to 1.
        busy_share: f64,
        /// Share of its time it was ready and waited for a core, 0 to 1.
        wait_share: f64,
    },
    /// Other work kept the machine busy, with this share of its CPU, 0 to 1.
    Crowded(f64),
    /// Somebody ended the run early.
    Interrupted,
    /// This many answers were redirections, which are not followed.
    Redirects(u64),
    /// The server closed this many kept-alive connections, and each was made anew.
    Reconnects(u64),
}

impl Note {
    /// The short name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientLimit { .. } => "client-limit",
            Self::Crowded(_) => "crowded",
            Self::Interrupted => "interrupted",
            Self::Redirects(_) => "redirects",
            Self::Reconnects(_) => "reconnects",
        }
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::ClientLimit { busy_share, wait_share } => {
                let (busy, wait) = (100.0 * busy_share, 100.0 * wait_share);
                write!(
                    formatter,
                    "the client was likely the limit: its busiest thread was on a core {busy:.0} % of the time"
                )?;
                if wait >= 1.0 {
                    write!(formatter, " and waited for one {wait:.0} %")?;
                }
                Ok(())
            }
            Self::Crowded(share) => {
                let percent = 100.0 * share;
                write!(formatter, "other work used {percent:.0} % of the machine meanwhile; expect the figures to vary")
            }
            Self::Interrupted => write!(formatter, "ended early: the figures cover the part that ran"),
            Self::Redirects(count) => {
                write!(formatter, "{count} {} answered 3xx, which is not followed", requests_were(count))
            }
            Self::Reconnects(1) => write!(formatter, "the server closed 1 kept-alive connection, which was made anew"),
            Self::Reconnects(count) => {
                write!(formatter, "the server closed {count} kept-alive connections, which were made anew")
            }
        }
    }
}

/// Everything a finished run says.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The facts it was computed from.
    pub facts: RunFacts,
    /// The counts it was computed from.
    pub counts: Counts,
    /// Responses received whole, a second.
    pub requests_per_s: f64,
    /// Bytes received, heads and bodies, a second.
    pub bytes_in_per_s: f64,
    /// Latency of answered requests.
    pub latency: Option<LatencySummary>,
    /// Time to establish connections.
    pub connect: Option<LatencySummary>,
    /// Client CPU for each response, in nanoseconds.
    pub client_cpu_ns_per_request: Option<f64>,
    /// Server CPU for each response, in nanoseconds, where known.
    pub server_cpu_ns_per_request: Option<f64>,
    /// Whether the run can be believed.
    pub verdict: Verdict,
    /// What a reader should know besides.
    pub notes: Vec<Note>,
}

impl Summary {
    /// Sums up a finished run.
    pub fn of(recorder: &Recorder, facts: RunFacts) -> Self {
        let counts = *recorder.counts();
        let elapsed_s = facts.elapsed_ns as f64 / 1e9;
        let per_second = |count: u64| if facts.elapsed_ns == 0 { 0.0 } else { count as f64 / elapsed_s };
        let per_response = |ns: u64| (counts.responses > 0).then(|| ns as f64 / counts.responses as f64);
        Self {
            facts,
            counts,
            requests_per_s: per_second(counts.responses),
            bytes_in_per_s: per_second(counts.bytes_in()),
            latency: LatencySummary::of(recorder.latency()),
            connect: LatencySummary::of(recorder.connect()),
            client_cpu_ns_per_request: per_response(facts.client_cpu_ns),
            server_cpu_ns_per_request: facts.server_cpu_ns.and_then(per_response),
            verdict: Verdict::of(&counts, facts.requests_asked),
            notes: notes_of(&counts, &facts),
        }
    }
}

fn notes_of(counts: &Counts, facts: &RunFacts) -> Vec<Note> {
    let mut notes = Vec::new();
    if facts.interrupted {
        notes.push(Note::Interrupted);
    }
    let (busy_share, wait_share) = (facts.client_busy_share, facts.client_wait_share);
    // A thread that waits for a core is as unable to send as one that has it.
    let is_judged = counts.responses > 0 && facts.elapsed_ns >= JUDGED_NS_MIN;
    if is_judged && busy_share + wait_share > CLIENT_BUSY_SHARE_MAX {
        notes.push(Note::ClientLimit { busy_share, wait_share });
    }
    if let Some(share) = facts.other_cpu_share.filter(|share| is_judged && *share > OTHER_CPU_SHARE_MAX) {
        notes.push(Note::Crowded(share));
    }
    if counts.status_classes[2] > 0 {
        notes.push(Note::Redirects(counts.status_classes[2]));
    }
    if counts.reconnects > 0 {
        notes.push(Note::Reconnects(counts.reconnects));
    }
    notes
}

#[cfg(test)]
mod tests;
