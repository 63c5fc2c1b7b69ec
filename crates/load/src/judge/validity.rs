//! Reasons why figures of a run are invalid, and the rules that detect them.

use super::little::{DIFFERENCE_SHARE_MAX, Little};
use super::reconcile::Reconciliation;
use serde::{Deserialize, Serialize};

flatout_reason::reasons! {
    /// Reason why figures of a run are invalid or incomplete; [`super::figures`] determines which.
    #[derive(PartialOrd, Ord)]
    pub enum InvalidReason {
        name,
        text,
        /// Remedy.
        remedy: &'static str,
    }
    ScheduleLag,          "schedule-lag",          "the client started requests late, and the delay is significant compared with the response time",
        "offer less load with --rate, stop other programs, or leave the client its own cores: fewer --threads than cores, or other machines with --agents";
    ClientSaturated,      "client-saturated",      "a client thread was saturated, so the client was the bottleneck, not the server",
        "give the client more cores with --threads, or other machines with --agents; to measure response times, offer less load with --rate. The server's CPU time per response is valid in any case";
    CpuContention,        "cpu-contention",        "the server or the client waited for CPU cores that other processes used",
        "stop the other programs, or pin server and client to separate cores, for example with taskset";
    CpuContentionUnknown, "cpu-contention-unknown", "other processes ran during the run, and the run was too short to measure their effect",
        "measure for a second or longer with -d, or stop the other programs";
    ChildrenNotReaped,    "children-not-reaped",   "the server did not wait for its exited child processes, so their CPU time is unknown",
        "have the server wait for its children instead of ignoring SIGCHLD, or keep its processes alive during the run";
    RateNotReached,       "rate-not-reached",      "fewer requests were started than planned",
        "offer less load with --rate, or give the client more connections with -c, more --threads or other machines with --agents";
    ConnectionsNotReached, "connections-not-reached", "fewer connections were open at once than planned",
        "check that the server listens, look at the failures for refused connections, raise the limit of open files (ulimit -n), or use fewer connections with -c";
    ConnectionsShort,     "connections-short",     "arrivals waited because every connection was in use, and the wait is significant compared with the response time",
        "allow more connections with -c. If real clients share as few connections, they wait as well, and the times are right";
    ArrivalsDropped,      "arrivals-dropped",      "arrivals waited longer than the backlog or the drain time allows, and their requests were never sent",
        "offer less load with --rate, allow more connections with -c, or measure the server beyond its limit with --overload";
    LittlesLaw,           "littles-law",           "requests in flight over time differ by more than 2 % from the responses' rate times their mean service time",
        "run it again. If the reason persists, it is a bug in flatout: report it with the result of --json";
    CountsDiffer,         "counts-differ",         "the client's counts and the server's own counts differ",
        "make sure that no other client sends requests to the server during the run, and that the log or the metrics belong to this server";
    CountsMissing,        "counts-missing",        "the server's own counts could not be read for the comparison",
        "make sure that the log or the metrics can be read during the whole run";
    NotMeasured,          "not-measured",          "a part of the requested run could not be measured: a later level, or the machine's limit",
        "fix the named cause and rerun; the measured figures hold";
    AgentLost,            "agent-lost",            "an agent did not finish its part of the run",
        "read the agent's output on its machine, and run the bench again";
    NoSteadyState,        "no-steady-state",       "the service time never became steady, so no figure is reliable",
        "measure longer with -d, allow a longer --warm-up, and look for what changes in the server over time: caches, garbage collection, a throttled processor";
    Interrupted,          "interrupted",           "the run was interrupted",
        "let it run to the end; the figures cover only the part that ran";
}

crate::by_name! {
    InvalidReason, "reason why a run is invalid",
    "children-lost" => "children-not-reaped",
    "crowded" => "cpu-contention",
    "crowding-unknown" => "cpu-contention-unknown",
    "part-missing" => "not-measured"
}

impl InvalidReason {
    /// Returns whether something requested was not measured, regardless of the validity of the other figures.
    pub const fn is_of_a_part(self) -> bool {
        matches!(self, Self::CountsMissing | Self::NotMeasured | Self::AgentLost | Self::Interrupted)
    }
}

/// A reason with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invalid {
    /// The reason.
    pub reason: InvalidReason,
    /// The evidence in one sentence.
    pub text: String,
}

/// Maximum share of quota periods with throttling of the client, before the quota was likely the limit.
pub const HELD_BACK_SHARE_MAX: f64 = 0.1;

/// Maximum share of its time a client thread may be busy, or waiting for a core, before the client was likely the
/// limit.
pub const CLIENT_BUSY_SHARE_MAX: f64 = 0.9;

/// Minimum length of a run for tests of CPU use and Little's law, in nanoseconds: shorter runs mostly consist of their
/// start.
pub const JUDGED_NS_MIN: u64 = 100_000_000;

/// Lag that is always permitted, in nanoseconds: about the wake-up latency of a thread on an idle machine.
pub const LAG_NS_SMALL: u64 = 100_000;

/// Maximum median lag as a share of the median response time.
pub const LAG_SHARE_P50_MAX: f64 = 0.1;

/// Maximum 99th percentile of lag as a share of the same percentile of the response time.
pub const LAG_SHARE_P99_MAX: f64 = 0.25;

/// Minimum requests for evaluating the 99th percentile of lag; with fewer, it is just the slowest request.
pub const P99_REQUESTS_MIN: u64 = 100;

/// Minimum share of the requested rate that counts as that rate.
pub const REACHED_SHARE_MIN: f64 = 0.98;

/// Permitted delay of the last request in nanoseconds: one late request at the end of a short run says little about
/// its rate.
pub const LATE_NS_SMALL: u64 = 100_000_000;

/// Maximum share of visits that wait for a connection before waiting counts as the cause of lag.
pub const WAITED_SHARE_MAX: f64 = 0.01;

/// Maximum share of its time that a thread may wait for a core used by another process before p99 is invalid: the
/// share of responses above p99. Requests that arrive at random find a thread waiting as often as it waits (PASTA:
/// Wolff, 1982), so below this limit fewer responses are delayed than lie above p99; above it, other processes alone
/// may determine p99.
pub const CROWDED_TAIL_MAX: f64 = 0.01;

/// Maximum share of its runnable time that a thread may wait in this way before the rate is invalid. Throughput falls
/// by the share of time that the thread waits; a rate is valid if no more than this is missing.
pub const CROWDED_RATE_MAX: f64 = 1.0 - REACHED_SHARE_MIN;

/// The same for the median: a thread that waits this share of its runnable time takes that much longer per response on
/// average. The client's lag may contribute the same share to the median.
pub const CROWDED_MEDIAN_MAX: f64 = LAG_SHARE_P50_MAX;

/// Resolution of other processes' CPU time: `/proc/stat` counts ticks of 10 ms (USER_HZ is 100 in Linux's interface).
const TICK_NS: u64 = 10_000_000;

/// In shorter runs the CPU time of other processes is unknown: one tick is more than [`CROWDED_TAIL_MAX`] of the run.
pub const CROWDED_NS_MIN: u64 = (TICK_NS as f64 / CROWDED_TAIL_MAX) as u64;

/// Input to the verdict on one step. `None`: unknown or not requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Length of the measured span in nanoseconds.
    pub elapsed_ns: u64,
    /// Responses in it.
    pub responses: u64,
    /// Share of its time that the busiest client thread was on a core, 0 to 1.
    pub client_busy_share: f64,
    /// Share of its time that this thread was runnable but waited for a core, 0 to 1, including throttling by a cgroup
    /// quota.
    pub client_wait_share: f64,
    /// Share of quota periods in which the client was throttled, 0 to 1, if its cgroup has a quota.
    pub client_held_back_share: Option<f64>,
    /// Upper bound of the share of its time that this thread was runnable but waited for a core while processes other
    /// than client and server ran, 0 to 1; `None` if unknown.
    pub client_crowded_share: Option<f64>,
    /// The same for all server threads together, in cores.
    pub server_crowded_cores: Option<f64>,
    /// True if the server's CPU use is known only in part.
    pub server_cpu_is_short: bool,
    /// Cores used by the server.
    pub server_cores: Option<f64>,
    /// Planned requests per second, if the clock determines the rate.
    pub offered_per_s: Option<f64>,
    /// Requests begun per second.
    pub begun_per_s: f64,
    /// Time from the start of the measured span to the intended start of the last request, in nanoseconds.
    pub intended_span_ns: u64,
    /// Time from the start of the measured span to the actual start of the last request, in nanoseconds.
    pub begun_span_ns: u64,
    /// Requested connections, if the plan holds all of them at once (closed loop).
    pub connections_asked: Option<u64>,
    /// Maximum connections, or streams, open at once.
    pub connections_peak: u64,
    /// Median lag of all requests, in nanoseconds.
    pub lag_p50_ns: u64,
    /// 99th percentile of the lag, in nanoseconds.
    pub lag_p99_ns: u64,
    /// Median response time, in nanoseconds.
    pub response_p50_ns: u64,
    /// 99th percentile of the response time, in nanoseconds.
    pub response_p99_ns: u64,
    /// Arrivals that waited for a free connection, including warm-up.
    pub arrivals_waited: u64,
    /// Arrivals never begun.
    pub arrivals_dropped: u64,
    /// Visits begun.
    pub visits: u64,
    /// Little's law, given enough requests.
    pub little: Option<Little>,
    /// Comparison with the server's own counts, if they were read.
    pub reconciliation: Option<Reconciliation>,
    /// Reason why requested server counts could not be read.
    pub counts_missing: Option<String>,
    /// Other requested measurements that failed, with reasons.
    pub part_missing: Option<String>,
    /// Agents lost.
    pub agents_lost: u32,
    /// True if warm-up by steady state was requested but none was found.
    pub no_steady_state: bool,
    /// True if the run was interrupted.
    pub interrupted: bool,
    /// True if this run deliberately exceeds the knee (`--overload`): waiting and dropped arrivals are then expected.
    pub overload: bool,
}

impl Evidence {
    /// Evidence of a closed loop in which other processes used half of the server's time, for explanations of reasons.
    pub fn crowded_throughout() -> Self {
        Self { elapsed_ns: CROWDED_NS_MIN, server_cores: Some(0.5), server_crowded_cores: Some(0.5), ..Self::default() }
    }

    /// Share of the planned rate that was achieved, if the clock determines it: affected by late starts and by
    /// requests never begun, but not by the randomness of arrivals.
    pub fn reached_share(&self) -> Option<f64> {
        self.offered_per_s?;
        let arrivals = self.visits + self.arrivals_dropped;
        if arrivals == 0 {
            return None;
        }
        let late_ns = self.begun_span_ns.saturating_sub(self.intended_span_ns);
        let stretch = if late_ns <= LATE_NS_SMALL || self.begun_span_ns == 0 {
            1.0
        } else {
            self.intended_span_ns as f64 / self.begun_span_ns as f64
        };
        Some(stretch * self.visits as f64 / arrivals as f64)
    }

    /// Returns whether the median lag is significant compared with the median response time.
    pub fn median_is_late(&self) -> bool {
        is_late(self.lag_p50_ns, self.response_p50_ns, LAG_SHARE_P50_MAX)
    }

    /// The same for the 99th percentiles. With few requests, a late median implies a late tail.
    pub fn tail_is_late(&self) -> bool {
        self.median_is_late()
            || self.responses >= P99_REQUESTS_MIN && is_late(self.lag_p99_ns, self.response_p99_ns, LAG_SHARE_P99_MAX)
    }

    /// Returns whether waiting for other processes may affect p99. In a run shorter than [`CROWDED_NS_MIN`] the time of
    /// other processes is too coarse for that; then the limit is that of the median.
    pub fn is_crowded(&self) -> bool {
        let wait_max = if self.elapsed_ns < CROWDED_NS_MIN { CROWDED_MEDIAN_MAX } else { CROWDED_TAIL_MAX };
        self.elapsed_ns > 0
            && [self.client_crowded_share, self.server_crowded_cores].into_iter().flatten().any(|wait| wait > wait_max)
    }

    /// Returns whether it is enough to lower the rate of a closed loop.
    pub fn is_rate_contended(&self) -> bool {
        self.is_crowded_above(CROWDED_RATE_MAX)
    }

    /// Returns whether it is enough to affect the median.
    pub fn is_median_contended(&self) -> bool {
        self.is_crowded_above(CROWDED_MEDIAN_MAX)
    }

    /// Returns whether a thread waited more than this share of its runnable time.
    fn is_crowded_above(&self, share: f64) -> bool {
        let is_large = |wait: Option<f64>, busy: f64| wait.is_some_and(|wait| wait > share * (busy + wait));
        self.is_crowded()
            && (is_large(self.client_crowded_share, self.client_busy_share)
                || is_large(self.server_crowded_cores, self.server_cores.unwrap_or(0.0)))
    }

    /// Returns whether arrivals without a free connection caused the lag.
    fn waited_for_connections(&self) -> bool {
        self.arrivals_waited as f64 > WAITED_SHARE_MAX * (self.visits + self.arrivals_dropped) as f64
    }
}

fn is_late(lag_ns: u64, response_ns: u64, share: f64) -> bool {
    lag_ns > LAG_NS_SMALL && lag_ns as f64 > share * response_ns as f64
}

/// Returns every reason why figures with this evidence are invalid.
pub fn judge(evidence: &Evidence) -> Vec<Invalid> {
    let mut invalid = Vec::new();
    let mut add = |reason: InvalidReason, text: String| invalid.push(Invalid { reason, text });
    let is_judged = evidence.responses > 0 && evidence.elapsed_ns >= JUDGED_NS_MIN;
    if evidence.responses > 0 && evidence.tail_is_late() {
        let times = format!(
            "p50 {} of {}, p99 {} of {}",
            milliseconds(evidence.lag_p50_ns),
            milliseconds(evidence.response_p50_ns),
            milliseconds(evidence.lag_p99_ns),
            milliseconds(evidence.response_p99_ns)
        );
        if !evidence.waited_for_connections() {
            add(InvalidReason::ScheduleLag, format!("the client began requests late: {times} response time"));
        } else if !evidence.overload {
            let (waited, visits) = (evidence.arrivals_waited, evidence.visits + evidence.arrivals_dropped);
            let text = format!(
                "{waited} of {visits} arrivals found every connection in use, and their wait is in the figures: {times} \
                 response time"
            );
            add(InvalidReason::ConnectionsShort, text);
        }
    }
    let (busy, wait) = (evidence.client_busy_share, evidence.client_wait_share);
    let held_back = evidence.client_held_back_share.filter(|share| *share > HELD_BACK_SHARE_MAX);
    if let Some(share) = held_back.filter(|_| is_judged) {
        let text = format!(
            "the client was likely the limit: its control group's quota held it back in {:.0} % of the periods",
            100.0 * share
        );
        add(InvalidReason::ClientSaturated, text);
    } else if is_judged && busy + wait > CLIENT_BUSY_SHARE_MAX {
        let waited = if wait >= 0.01 { format!(" and waited for one {:.0} %", 100.0 * wait) } else { String::new() };
        let text = format!(
            "the client was likely the limit: its busiest thread was on a core {:.0} % of the time{waited}",
            100.0 * busy
        );
        add(InvalidReason::ClientSaturated, text);
    }
    if evidence.responses > 0 && evidence.is_crowded() {
        let percent = |wait: Option<f64>| {
            wait.map_or_else(|| "an unknown share".to_owned(), |wait| format!("{:.1} %", 100.0 * wait))
        };
        let text = format!(
            "other processes ran while the server's threads waited for a core {} of the time, and the busiest client thread {}",
            percent(evidence.server_crowded_cores),
            percent(evidence.client_crowded_share)
        );
        if evidence.elapsed_ns < CROWDED_NS_MIN {
            let text = format!(
                "{} is too short to measure the effect of other processes: as far as is known, {text}",
                milliseconds(evidence.elapsed_ns)
            );
            add(InvalidReason::CpuContentionUnknown, text);
        } else {
            add(InvalidReason::CpuContention, text);
        }
    }
    if evidence.server_cpu_is_short {
        let text =
            "child processes of the server exited and the server did not wait for them: their CPU time is not counted";
        add(InvalidReason::ChildrenNotReaped, text.to_owned());
    }
    if let Some(share) = evidence.reached_share().filter(|share| *share < REACHED_SHARE_MIN && !evidence.overload) {
        let offered = evidence.offered_per_s.unwrap_or_default();
        let text = format!("{:.1} % of the {offered:.1} requests per second that were requested", 100.0 * share);
        add(InvalidReason::RateNotReached, text);
    }
    if let Some(asked) = evidence.connections_asked.filter(|asked| evidence.connections_peak < *asked) {
        let text = format!("only {} of {asked} connections were open at once", evidence.connections_peak);
        add(InvalidReason::ConnectionsNotReached, text);
    }
    if evidence.arrivals_dropped > 0 && !evidence.overload {
        let (dropped, all) = (evidence.arrivals_dropped, evidence.visits + evidence.arrivals_dropped);
        add(InvalidReason::ArrivalsDropped, format!("{dropped} of {all} arrivals never sent their requests"));
    }
    if let Some(little) = evidence.little.filter(|little| is_judged && little.difference_share() > DIFFERENCE_SHARE_MAX)
    {
        let text = format!(
            "{:.3} requests in flight, but their rate times their mean service time is {:.3}",
            little.in_flight, little.rate_times_service
        );
        add(InvalidReason::LittlesLaw, text);
    }
    if let Some(reconciliation) = &evidence.reconciliation {
        let differences = reconciliation.differences();
        if !differences.is_empty() {
            let text = format!("{}: {}", reconciliation.server.source, differences.join("; "));
            add(InvalidReason::CountsDiffer, text);
        }
    }
    if let Some(text) = &evidence.counts_missing {
        add(InvalidReason::CountsMissing, text.clone());
    }
    if let Some(text) = &evidence.part_missing {
        add(InvalidReason::NotMeasured, text.clone());
    }
    if evidence.agents_lost > 0 {
        let agents = if evidence.agents_lost == 1 { "agent was" } else { "agents were" };
        add(InvalidReason::AgentLost, format!("{} {agents} lost", evidence.agents_lost));
    }
    if evidence.no_steady_state {
        add(InvalidReason::NoSteadyState, "the service time never became steady".to_owned());
    }
    if evidence.interrupted {
        add(InvalidReason::Interrupted, "ended early: the figures cover the part that ran".to_owned());
    }
    invalid
}

fn milliseconds(value_ns: u64) -> String {
    format!("{:.3} ms", value_ns as f64 / 1e6)
}

#[cfg(test)]
mod tests;
