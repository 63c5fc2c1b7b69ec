//! Reasons why figures of a run are invalid, and the rules that detect them.

use super::little::{DIFFERENCE_SHARE_MAX, Little};
use super::reconcile::Reconciliation;
use flatout_units::show::{self, plural};
use serde::{Deserialize, Serialize};

flatout_reason::reasons! {
    /// A reason why figures of a run are invalid or incomplete. [`super::figures`] determines which figures.
    #[derive(PartialOrd, Ord)]
    pub enum InvalidReason {
        name,
        text,
        /// An action of the user that leads to valid figures.
        remedy: &'static str,
    }
    ScheduleLag,          "schedule-lag",          "the client started requests late, and the delay is significant compared with the response time",
        "offer less load with --rate, stop other programs, or reserve cores for the client: use fewer --threads than cores, or other machines with --agents";
    ClientSaturated,      "client-saturated",      "a client thread was saturated, so the client was the bottleneck, not the server",
        "give the client more cores with --threads, or use other machines with --agents; to measure response times, offer less load with --rate. The server's CPU time per response is valid in any case";
    CpuContention,        "cpu-contention",        "the server or the client waited for CPU cores that other processes used",
        "stop the other programs, or pin server and client to separate cores, for example with taskset";
    CpuContentionUnknown, "cpu-contention-unknown", "other processes were active during the run, and the run was too short to measure their effect",
        "measure for a second or longer with -d, or stop the other programs";
    ClientStopped,        "client-stopped",        "the load generator did not run for part of the measurement, because something had stopped it or its machine",
        "do not stop, throttle, freeze or debug the load generator (SIGSTOP, cpulimit, a debugger), nor suspend its machine, while it measures";
    ChildrenNotReaped,    "children-not-reaped",   "the server did not wait for its exited child processes, so their CPU time is unknown",
        "have the server wait for its children instead of ignoring SIGCHLD, or keep its processes alive during the run";
    RateNotReached,       "rate-not-reached",      "fewer requests were started than planned",
        "offer less load with --rate, or give the client more connections with -c, more --threads, or other machines with --agents";
    ClientStarved,        "client-starved",        "the client had no file descriptor or port for some requests, which therefore failed",
        "raise the limit on open files (ulimit -n), give the client more ports with --source-addresses, use fewer connections with -c, or use other machines with --agents";
    ConnectionsNotReached, "connections-not-reached", "fewer connections were open at once than planned",
        "check that the server listens, look at the failures for refused connections, raise the limit on open files (ulimit -n), or use fewer connections with -c";
    ServerUnreachable,    "server-unreachable",    "connections could not be opened for part of the measurement, so the client sent no requests in that time",
        "check that the server runs, listens and accepts connections during the whole run, and look in its log for a crash or a restart";
    ConnectionsShort,     "connections-short",     "arrivals waited because every connection was in use, and the wait is significant compared with the response time",
        "allow more connections with -c. If your real clients share that few connections, they also wait, and the times are valid";
    ArrivalsDropped,      "arrivals-dropped",      "arrivals waited longer than the backlog or the drain time allows, and their requests were never sent",
        "offer less load with --rate, allow more connections with -c, or measure the server beyond its limit with --overload";
    LittlesLaw,           "littles-law",           "the mean number of requests in flight differs by more than 2 % from the response rate times the mean service time",
        "repeat the run. If the reason appears again, it is a bug in flatout: report it with the output of --json";
    CountsDiffer,         "counts-differ",         "the client's counts and the server's own counts differ",
        "make sure that no other client sends requests to the server during the run, and that the log or the metrics belong to this server";
    CountsMissing,        "counts-missing",        "the server's own counts could not be read for the comparison",
        "make sure that the log or the metrics can be read during the whole run";
    NotMeasured,          "not-measured",          "part of the requested run could not be measured: a later level, or the machine's limit",
        "fix the cause that the report names, and run the bench again; the figures that were measured are valid";
    AgentLost,            "agent-lost",            "an agent did not finish its part of the run",
        "read the agent's output on its machine, and run the bench again";
    NoSteadyState,        "no-steady-state",       "the service time never became steady, so no figure is reliable",
        "measure longer with -d, allow a longer --warm-up, and look for things that change in the server over time: caches, garbage collection, a throttled processor";
    StoppedEarly,         "stopped-early",         "the run was stopped because more requests failed than --stop-when allows",
        "fix the cause of the failures, or allow more of them with --stop-when; the figures cover only the part that ran";
    Interrupted,          "interrupted",           "the run was interrupted",
        "let it run to the end; the figures cover only the part that ran";
}

// Results stored by earlier versions contain the name `crowded`.
crate::by_name! { InvalidReason, "reason why a run is invalid", "crowded" => "cpu-contention" }

impl InvalidReason {
    /// Returns whether a requested measurement is missing, which says nothing about the validity of the other figures.
    pub const fn is_of_a_part(self) -> bool {
        matches!(
            self,
            Self::CountsMissing | Self::NotMeasured | Self::AgentLost | Self::StoppedEarly | Self::Interrupted
        )
    }
}

/// A reason with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invalid {
    /// The named reason, which `flatout help NAME` explains.
    pub reason: InvalidReason,
    /// The evidence in one sentence.
    pub text: String,
}

/// Largest share of quota periods in which the client may be throttled. Above it, the quota was likely the limit.
pub const HELD_BACK_SHARE_MAX: f64 = 0.1;

/// Largest share of its time that a client thread may be on a core or waiting for one. Above it, the client was likely
/// the limit.
pub const CLIENT_BUSY_SHARE_MAX: f64 = 0.9;

/// Largest share of the time of all connections of a closed loop for which they could not be opened. The client pauses
/// between attempts, so a server that is down gets few requests, and few of them fail.
pub const UNCONNECTED_SHARE_MAX: f64 = 0.05;

/// Shortest run in nanoseconds for which CPU use and Little's law are judged; most of a shorter run is its start.
pub const JUDGED_NS_MIN: u64 = 100_000_000;

/// Lag in nanoseconds that is always permitted: about the wake-up latency of a thread on an idle machine.
pub const LAG_NS_SMALL: u64 = 100_000;

/// Largest permitted median lag, as a share of the median response time.
pub const LAG_SHARE_P50_MAX: f64 = 0.1;

/// Largest permitted 99th percentile of lag, as a share of the 99th percentile of the response time.
pub const LAG_SHARE_P99_MAX: f64 = 0.25;

/// Minimum number of requests for judging the 99th percentile of lag; with fewer, it is just the slowest request.
pub const P99_REQUESTS_MIN: u64 = 100;

/// Smallest share of the requested rate at which the rate counts as reached.
pub const REACHED_SHARE_MIN: f64 = 0.98;

/// Permitted delay of the last request, in nanoseconds: one late request at the end of a short run says little about
/// its rate.
pub const LATE_NS_SMALL: u64 = 100_000_000;

/// Largest share of visits that may wait for a connection before the wait counts as the cause of lag.
pub const WAITED_SHARE_MAX: f64 = 0.01;

/// Largest share of its time that a thread may wait for a core used by another process before p99 is invalid. It equals
/// the share of responses above p99. Requests that arrive at random find a thread waiting as often as it waits (PASTA:
/// Wolff, 1982), so below this limit fewer responses are delayed than lie above p99; above it, other processes alone
/// may determine p99.
pub const CROWDED_TAIL_MAX: f64 = 0.01;

/// Largest share of its runnable time that a thread may wait for a core used by another process before the rate is
/// invalid. Throughput falls by the share of time that the thread waits, and a rate is valid if no more than this is
/// missing.
pub const CROWDED_RATE_MAX: f64 = 1.0 - REACHED_SHARE_MIN;

/// Largest share of its runnable time that a thread may wait for a core used by another process before the median is
/// invalid. Each response takes longer by this share on average. The client's lag may contribute the same share to the
/// median.
pub const CROWDED_MEDIAN_MAX: f64 = LAG_SHARE_P50_MAX;

/// Resolution of other processes' CPU time: `/proc/stat` counts ticks of 10 ms (Linux reports USER_HZ as 100).
const TICK_NS: u64 = 10_000_000;

/// Shortest run in nanoseconds in which the CPU time of other processes is known: in a shorter run, one tick is more
/// than [`CROWDED_TAIL_MAX`] of the run.
pub const CROWDED_NS_MIN: u64 = (TICK_NS as f64 / CROWDED_TAIL_MAX) as u64;

/// Input to the verdict on one step. A `None` is unknown or was not requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Length of the measured span in nanoseconds.
    pub elapsed_ns: u64,
    /// Number of successful responses in the measured span.
    pub responses: u64,
    /// Share of its time that the busiest client thread was on a core, 0 to 1.
    pub client_busy_share: f64,
    /// Share of its time that the busiest client thread was runnable but waited for a core, 0 to 1, including
    /// throttling by a cgroup quota.
    pub client_wait_share: f64,
    /// Share of quota periods in which the client was throttled, 0 to 1, if its cgroup has a quota.
    pub client_held_back_share: Option<f64>,
    /// Time in the measured span for which the client process did not run, because something had stopped it, in
    /// nanoseconds.
    pub client_stopped_ns: u64,
    /// Upper bound of the share of its time that the busiest client thread was runnable but waited for a core while
    /// processes other than client and server ran, 0 to 1; `None` if unknown.
    pub client_crowded_share: Option<f64>,
    /// Upper bound of the time that server threads were runnable but waited for a core while processes other than
    /// client and server ran, summed over all threads, in cores; `None` if unknown.
    pub server_crowded_cores: Option<f64>,
    /// True if part of the server's CPU time is missing.
    pub server_cpu_is_short: bool,
    /// Mean number of cores used by the server.
    pub server_cores: Option<f64>,
    /// Number of requests that failed because the client had no file descriptor or port.
    pub client_starved: u64,
    /// Share of the time of all connections of a closed loop for which they could not be opened, 0 to 1.
    pub unconnected_share: f64,
    /// Planned requests per second, if the clock determines the rate.
    pub offered_per_s: Option<f64>,
    /// Requests started per second.
    pub begun_per_s: f64,
    /// Time from the start of the measured span to the intended start of the last request, in nanoseconds.
    pub intended_span_ns: u64,
    /// Time from the start of the measured span to the actual start of the last request, in nanoseconds.
    pub begun_span_ns: u64,
    /// Number of requested connections, if the plan keeps all of them open at once (closed loop).
    pub connections_asked: Option<u64>,
    /// Maximum number of connections, or of streams, open at once.
    pub connections_peak: u64,
    /// Median lag of all requests, in nanoseconds.
    pub lag_p50_ns: u64,
    /// 99th percentile of the lag, in nanoseconds.
    pub lag_p99_ns: u64,
    /// Median response time, in nanoseconds.
    pub response_p50_ns: u64,
    /// 99th percentile of the response time, in nanoseconds.
    pub response_p99_ns: u64,
    /// Number of arrivals that waited for a free connection, including warm-up.
    pub arrivals_waited: u64,
    /// Number of arrivals that were not started.
    pub arrivals_dropped: u64,
    /// Number of visits started.
    pub visits: u64,
    /// Both sides of Little's law, if enough requests finished.
    pub little: Option<Little>,
    /// Comparison with the server's own counts, if they were read.
    pub reconciliation: Option<Reconciliation>,
    /// Reason why requested server counts could not be read.
    pub counts_missing: Option<String>,
    /// Other requested measurements that failed, with the reasons.
    pub part_missing: Option<String>,
    /// Number of load agents whose connection closed before their results arrived.
    pub agents_lost: u32,
    /// True if the warm-up was to last until steady state, and no steady state was found.
    pub no_steady_state: bool,
    /// Why the run was stopped before its end, in one sentence, if `--stop-when` ended it.
    pub stopped_early: Option<String>,
    /// True if the run was interrupted.
    pub interrupted: bool,
    /// True if this run deliberately exceeds the knee (`--overload`): waiting and dropped arrivals are then expected.
    pub overload: bool,
}

impl Evidence {
    /// Returns evidence of a closed loop in which other processes used half of the server's time, and the client was
    /// stopped for half of the time, for explaining reasons.
    pub fn crowded_throughout() -> Self {
        Self {
            elapsed_ns: CROWDED_NS_MIN,
            client_stopped_ns: CROWDED_NS_MIN / 2,
            server_cores: Some(0.5),
            server_crowded_cores: Some(0.5),
            ..Self::default()
        }
    }

    /// Returns the share of the planned rate that was achieved, if the clock determines the rate. Late starts and
    /// requests that were not started lower it; the randomness of arrivals does not.
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

    /// Returns whether the 99th percentile of lag is significant compared with that of the response time. A late median
    /// implies a late tail; with few requests, only the median counts.
    pub fn tail_is_late(&self) -> bool {
        self.median_is_late()
            || self.responses >= P99_REQUESTS_MIN && is_late(self.lag_p99_ns, self.response_p99_ns, LAG_SHARE_P99_MAX)
    }

    /// Returns whether waiting for other processes may affect p99. In a run shorter than [`CROWDED_NS_MIN`], the time
    /// of other processes is too coarse to tell, so the limit of the median applies instead.
    pub fn is_crowded(&self) -> bool {
        let wait_max = if self.elapsed_ns < CROWDED_NS_MIN { CROWDED_MEDIAN_MAX } else { CROWDED_TAIL_MAX };
        self.elapsed_ns > 0
            && [self.client_crowded_share, self.server_crowded_cores].into_iter().flatten().any(|wait| wait > wait_max)
    }

    /// Returns whether waiting for other processes is enough to lower the rate of a closed loop.
    pub fn is_rate_contended(&self) -> bool {
        self.is_crowded_above(CROWDED_RATE_MAX)
    }

    /// Returns whether waiting for other processes is enough to affect the median.
    pub fn is_median_contended(&self) -> bool {
        self.is_crowded_above(CROWDED_MEDIAN_MAX)
    }

    /// Returns whether threads of the client or the server waited for other processes for more than this share of their
    /// runnable time.
    fn is_crowded_above(&self, share: f64) -> bool {
        let is_large = |wait: Option<f64>, busy: f64| wait.is_some_and(|wait| wait > share * (busy + wait));
        self.is_crowded()
            && (is_large(self.client_crowded_share, self.client_busy_share)
                || is_large(self.server_crowded_cores, self.server_cores.unwrap_or(0.0)))
    }

    /// Returns the share of the measured span for which the client process did not run, 0 to 1.
    pub fn stopped_share(&self) -> f64 {
        self.client_stopped_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// Returns whether the lag is explained by arrivals that found no free connection.
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
            "p50 {} (response time {}), p99 {} (response time {})",
            milliseconds(evidence.lag_p50_ns),
            milliseconds(evidence.response_p50_ns),
            milliseconds(evidence.lag_p99_ns),
            milliseconds(evidence.response_p99_ns)
        );
        if !evidence.waited_for_connections() {
            add(InvalidReason::ScheduleLag, format!("the client started requests late: {times}"));
        } else if !evidence.overload {
            let (waited, visits) = (evidence.arrivals_waited, evidence.visits + evidence.arrivals_dropped);
            let text = format!(
                "{waited} of {visits} arrivals found every connection in use, and the figures include their wait: \
                 {times}"
            );
            add(InvalidReason::ConnectionsShort, text);
        }
    }
    let (busy, wait) = (evidence.client_busy_share, evidence.client_wait_share);
    let held_back = evidence.client_held_back_share.filter(|share| *share > HELD_BACK_SHARE_MAX);
    if let Some(share) = held_back.filter(|_| is_judged) {
        let text = format!(
            "the client was likely the bottleneck: its cgroup's quota throttled it in {:.0} % of the periods",
            100.0 * share
        );
        add(InvalidReason::ClientSaturated, text);
    } else if is_judged && busy + wait > CLIENT_BUSY_SHARE_MAX {
        let waited = if wait >= 0.01 { format!(" and waited for one {:.0} %", 100.0 * wait) } else { String::new() };
        let text = format!(
            "the client was likely the bottleneck: its busiest thread was on a core {:.0} % of the time{waited}",
            100.0 * busy
        );
        add(InvalidReason::ClientSaturated, text);
    }
    if evidence.responses > 0 && evidence.is_crowded() {
        let percent = |wait: Option<f64>| {
            wait.map_or_else(|| "for an unknown share".to_owned(), |wait| format!("{:.1} %", 100.0 * wait))
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
    if evidence.stopped_share() > CROWDED_TAIL_MAX {
        let text = format!(
            "the load generator did not run for {} of the {} of the measurement interval, because something had \
             stopped it",
            show::duration(evidence.client_stopped_ns as f64),
            show::duration(evidence.elapsed_ns as f64)
        );
        add(InvalidReason::ClientStopped, text);
    }
    if evidence.server_cpu_is_short {
        let text =
            "child processes of the server exited and the server did not wait for them: their CPU time is not counted";
        add(InvalidReason::ChildrenNotReaped, text.to_owned());
    }
    if let Some(share) = evidence.reached_share().filter(|share| *share < REACHED_SHARE_MIN && !evidence.overload) {
        let offered = evidence.offered_per_s.unwrap_or_default();
        let text = format!("only {:.1} % of the {offered:.1} requests per second were started", 100.0 * share);
        add(InvalidReason::RateNotReached, text);
    }
    if evidence.client_starved > 0 {
        let requests = plural(evidence.client_starved, "request", "requests");
        let text = format!("{requests} failed because this process had no free file descriptor or port");
        add(InvalidReason::ClientStarved, text);
    }
    // Without a descriptor or a port, the client could not open connections, whatever the server did.
    if is_judged && evidence.unconnected_share > UNCONNECTED_SHARE_MAX && evidence.client_starved == 0 {
        let text = format!(
            "connections could not be opened for {:.0} % of their time, in which the client sent no requests",
            100.0 * evidence.unconnected_share
        );
        add(InvalidReason::ServerUnreachable, text);
    }
    if let Some(asked) = evidence.connections_asked.filter(|asked| evidence.connections_peak < *asked) {
        let text = match evidence.connections_peak {
            0 => format!("none of {asked} connections could be opened"),
            peak => format!("only {peak} of {asked} connections were open at once"),
        };
        add(InvalidReason::ConnectionsNotReached, text);
    }
    if evidence.arrivals_dropped > 0 && !evidence.overload {
        let (dropped, all) = (evidence.arrivals_dropped, evidence.visits + evidence.arrivals_dropped);
        add(InvalidReason::ArrivalsDropped, format!("{dropped} of {all} arrivals never sent their requests"));
    }
    if let Some(little) = evidence.little.filter(|little| is_judged && little.difference_share() > DIFFERENCE_SHARE_MAX)
    {
        let text = format!(
            "{:.3} requests were in flight on average, but the response rate times the mean service time is {:.3}",
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
    if let Some(text) = &evidence.stopped_early {
        add(InvalidReason::StoppedEarly, text.clone());
    }
    if evidence.interrupted {
        add(InvalidReason::Interrupted, "the run ended early: the figures cover only the part that ran".to_owned());
    }
    invalid
}

fn milliseconds(value_ns: u64) -> String {
    format!("{:.3} ms", value_ns as f64 / 1e6)
}

#[cfg(test)]
mod tests;
