//! Result of one load level of a run: plan, measurements and validity.

use super::Percentiles;
use super::evidence::evidence_of;
use crate::judge::failing::{self, Finding};
use crate::judge::figures::{self, Figure, FigureVerdict, Soundness};
use crate::judge::reconcile::Reconciliation;
use crate::judge::threshold::{Judged, Threshold, ThresholdOutcome};
use crate::judge::validity::{Evidence, Invalid, judge};
use crate::plan::{Loop, Plan, Stop};
use crate::record::{Hdr, Recorder};
use crate::schedule::Tally;
use serde::{Deserialize, Serialize};

/// Result of one step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepReport {
    /// Number of the step, from 0.
    pub step: u16,
    /// The planned load.
    pub plan: Plan,
    /// The planned load as numbers.
    pub offered: Offered,
    /// Length of the measured span in nanoseconds, in which load was offered. Rates refer to it.
    pub elapsed_ns: u64,
    /// Results of the requests of the measured span.
    #[serde(default)]
    pub requests: RequestsReport,
    /// Successful responses per second within the span.
    pub responses_per_s: f64,
    /// Requests started per second.
    pub begun_per_s: f64,
    /// Bytes of successful responses per second within the span.
    pub bytes_in_per_s: f64,
    /// Share of requests that got no complete response, or one with an unexpected status, 0 to 1.
    pub error_share: f64,
    /// Summary of the response times of successful responses, from the intended start. Requests without a response,
    /// and those that were not started, count as slower than all others.
    pub response: Option<Percentiles>,
    /// Summary of the response times of responses with an unexpected status.
    #[serde(default)]
    pub unexpected: Option<Percentiles>,
    /// Summary of the service times of successful responses, from the actual start. Requests without a response count
    /// as slower than all others.
    pub service: Option<Percentiles>,
    /// Summary of schedule lag.
    pub lag: Option<Percentiles>,
    /// Summaries of the request phases.
    pub phases: PhasesReport,
    /// The whole record: counts, histograms, sums, URL classes, connections and time series.
    pub record: Recorder,
    /// Total counts of all threads' schedules.
    pub tally: Tally,
    /// The discarded phase before the measured span.
    pub warm_up: WarmUpReport,
    /// Resource use of the client.
    pub client: ClientReport,
    /// Resource use of the server, if known.
    pub server: Option<ServerReport>,
    /// Kernel counters of the whole machine during the step.
    pub kernel: Option<KernelReport>,
    /// The input from which the verdict was derived.
    pub evidence: Evidence,
    /// Validity of each figure.
    #[serde(default)]
    pub figures: Vec<FigureVerdict>,
    /// Reasons why figures are invalid or missing; empty if all figures are valid.
    pub invalid: Vec<Invalid>,
    /// Failures of the run, such as failed requests or error statuses.
    pub failing: Vec<Reason>,
    /// Notes for readers that are not failures.
    pub notes: Vec<Reason>,
}

/// A named reason or note, with a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The short name, from a table.
    pub name: String,
    /// One sentence for users, with the numbers of this run.
    pub text: String,
}

impl Reason {
    /// Returns the failure or note with this name, if this version knows it.
    fn finding(&self) -> Option<Finding> {
        Finding::of_name(&self.name)
    }
}

/// Returns whether a requirement limits this failure, so that it does not fail the run.
fn is_limited(reason: &Reason, thresholds: &[Threshold]) -> bool {
    reason.finding().is_some_and(|finding| thresholds.iter().any(|threshold| threshold.allows(finding)))
}

/// Results of the requests of the measured span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestsReport {
    /// Requests due, if the clock determines the rate.
    pub offered: Option<u64>,
    /// Requests started.
    pub begun: u64,
    /// Successful responses within the span.
    pub in_time: u64,
    /// Successful responses after the end of the span.
    pub late: u64,
    /// Time from the end of the span until the last successful response, in nanoseconds.
    pub drain_ns: u64,
    /// Requests that got no complete response, within the span or after it.
    pub failed: u64,
    /// Responses with an unexpected status, within the span or after it.
    #[serde(default)]
    pub unexpected: u64,
    /// Requests that were due but not started.
    pub never_begun: u64,
}

/// The planned load of a step as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// Requests per second, if the clock determines the rate.
    pub rate_per_s: Option<f64>,
    /// Visits (requests, bursts, connections or sessions) per second, if the clock determines the rate.
    pub visits_per_s: Option<f64>,
    /// Number of connections open at once: the maximum in an open loop, the constant number in a closed loop.
    pub connections: u32,
}

/// Summaries of the request phases, each `None` without values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhasesReport {
    /// Time to resolve the host name.
    pub resolve: Option<Percentiles>,
    /// Time to establish the TCP connection.
    pub connect: Option<Percentiles>,
    /// Time of the TLS handshake.
    pub tls: Option<Percentiles>,
    /// Time from the last byte sent to the first byte received.
    pub wait: Option<Percentiles>,
    /// Time from the first byte received to the last byte received.
    pub transfer: Option<Percentiles>,
}

/// A histogram with its percentiles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Summary of the histogram; `None` without values.
    pub summary: Option<Percentiles>,
    /// The whole histogram.
    pub histogram: Hdr,
}

impl Times {
    /// Summarises a histogram.
    pub fn of(histogram: Hdr) -> Self {
        Self { summary: histogram.percentiles(0), histogram }
    }
}

/// The warm-up of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmUpReport {
    /// Length of the warm-up, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requests that finished during the warm-up; they are excluded from figures.
    pub samples: u64,
    /// True if a steady state was found; `None` if the warm-up was not to last until steady state.
    pub steady: Option<bool>,
}

/// On-CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// CPU time in user mode, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub system_ns: u64,
}

impl Cpu {
    /// Splits CPU time into user and system time. `user_share` is the share of user time, 0 to 1.
    pub fn split(cpu_ns: u64, user_share: f64) -> Self {
        let user_ns = ((cpu_ns as f64 * user_share) as u64).min(cpu_ns);
        Self { user_ns, system_ns: cpu_ns - user_ns }
    }

    /// Returns user and system time together, in nanoseconds.
    pub const fn total_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// Adds other CPU time.
    pub const fn add(&mut self, other: Self) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
    }
}

/// Resource use of the client in a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientReport {
    /// CPU time of all client threads in the measured span, not counting busy-waiting.
    pub cpu: Cpu,
    /// CPU time per successful response, in nanoseconds.
    pub cpu_ns_per_response: Option<f64>,
    /// CPU time of all client threads in the measured span spent busy-waiting, in nanoseconds.
    #[serde(default)]
    pub busy_wait_ns: u64,
    /// Share of its time that the busiest client thread was on a core, 0 to 1.
    pub busy_share: f64,
    /// Share of its time that the busiest client thread was runnable but waited for a core, 0 to 1.
    pub wait_share: f64,
    /// Share of quota periods in which the client's cgroup was throttled, 0 to 1; `None` without a quota.
    #[serde(default)]
    pub held_back_share: Option<f64>,
    /// Time in the measured span for which the client process did not run, because something had stopped it, in
    /// nanoseconds; of several agents, the longest.
    #[serde(default)]
    pub stopped_ns: u64,
    /// Share of its time that the busiest client thread was runnable but waited for a core, 0 to 1, bounded by the CPU
    /// time of processes other than client and server. This is an upper bound of their effect. `None` if unknown.
    #[serde(default)]
    pub crowded_share: Option<f64>,
    /// Wake-up latency of the event loops of the client threads.
    pub loop_lag: Times,
    /// Peak memory of the client process, in bytes.
    pub memory_bytes_peak: Option<u64>,
    /// Share of the machine's CPU used by processes other than client and server, 0 to 1, if known.
    pub other_cpu_share: Option<f64>,
    /// One report for each agent.
    #[serde(default)]
    pub agents: Vec<AgentReport>,
}

impl ClientReport {
    /// Returns the busy-waiting time per response in nanoseconds; `None` without busy-waiting or responses.
    pub fn busy_wait_ns_per_response(&self, responses: u64) -> Option<f64> {
        (self.busy_wait_ns > 0 && responses > 0).then(|| self.busy_wait_ns as f64 / responses as f64)
    }
}

/// One agent's part of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentReport {
    /// The agent's name, as the agent reported it.
    pub name: String,
    /// Start of the agent's load relative to the common start, in nanoseconds; negative if early, 0 if unknown.
    pub skew_ns: i64,
    /// Share of its time that the agent's busiest thread used a core or waited for one, 0 to 1.
    pub busy_share: f64,
    /// Number of responses that the agent received.
    pub responses: u64,
    /// True if the connection to the agent was lost.
    pub lost: bool,
}

/// Resource use of the server's processes on this machine in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    /// CPU time of the server's processes.
    pub cpu: Cpu,
    /// CPU time per successful response, in nanoseconds.
    pub cpu_ns_per_response: Option<f64>,
    /// Mean number of cores used.
    pub cores_used: f64,
    /// Resident memory at the end of the step, in bytes.
    pub memory_bytes: Option<u64>,
    /// Peak resident memory, in bytes.
    pub memory_bytes_peak: Option<u64>,
    /// Voluntary context switches.
    pub switches_voluntary: Option<u64>,
    /// Involuntary context switches.
    pub switches_forced: Option<u64>,
    /// Number of server processes that were measured.
    pub processes: u32,
    /// The source of the CPU time.
    #[serde(default)]
    pub cpu_clock: CpuClock,
    /// True if the CPU time is incomplete: child processes exited and the server did not wait for them.
    #[serde(default)]
    pub cpu_is_short: bool,
    /// Mean number of server threads that were runnable but waited for a core.
    #[serde(default)]
    pub wait_cores: Option<f64>,
    /// The value of `wait_cores` bounded by the CPU time of processes other than client and server: an upper bound of
    /// their effect.
    #[serde(default)]
    pub crowded_cores: Option<f64>,
}

/// The source of a server's CPU time, most precise source first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuClock {
    /// The CPU clock of each process, in nanoseconds. Includes exited threads.
    Process,
    /// `/proc/PID/stat` of each process, in ticks of 10 ms. Includes exited threads.
    ProcessTicks,
    /// `/proc/PID/task` of each process. Includes only threads that still existed at the end.
    #[default]
    Threads,
}

impl CpuClock {
    /// Returns the text for users.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Process => "measured with its processes' CPU clocks",
            Self::ProcessTicks => "measured with /proc/PID/stat, to 10 ms",
            Self::Threads => "without threads that have exited",
        }
    }
}

/// Kernel counters of the whole machine during a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// TCP segments retransmitted.
    pub tcp_retransmits: u64,
    /// Connections dropped because a listen queue was full.
    pub listen_overflows: u64,
    /// SYNs dropped at a listener, for any reason.
    pub listen_drops: u64,
    /// Failed connection attempts.
    pub connect_failures: u64,
    /// Connections reset.
    pub resets: u64,
}

impl KernelReport {
    /// Returns the difference from `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    fn zip(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            tcp_retransmits: combine(self.tcp_retransmits, other.tcp_retransmits),
            listen_overflows: combine(self.listen_overflows, other.listen_overflows),
            listen_drops: combine(self.listen_drops, other.listen_drops),
            connect_failures: combine(self.connect_failures, other.connect_failures),
            resets: combine(self.resets, other.resets),
        }
    }
}

/// Properties of the machine that affect measurements. A property that could not be read is absent, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineReport {
    /// Model name of the processor.
    pub cpu_model: String,
    /// Clock rate according to the kernel in MHz: the maximum if known, otherwise the current rate.
    #[serde(default)]
    pub cpu_mhz: Option<u64>,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Main memory, in bytes.
    pub memory_bytes: u64,
    /// Host name.
    #[serde(default)]
    pub host: Option<String>,
    /// Frequency governor of the first core.
    #[serde(default)]
    pub cpu_governor: Option<String>,
    /// Maximum number of open files of this process.
    #[serde(default)]
    pub files_max: Option<u64>,
    /// Relevant kernel settings by name: `net.core.somaxconn`, `net.ipv4.ip_local_port_range`.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// Digest of the flatout executable, in hexadecimal.
    #[serde(default)]
    pub binary_digest: Option<String>,
}

impl std::fmt::Display for MachineReport {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cores = flatout_units::show::plural(self.cores as u64, "core", "cores");
        let memory_gib = self.memory_bytes as f64 / f64::from(1 << 30);
        write!(formatter, "{}, {cores}, {memory_gib:.1} GiB, Linux {}", self.cpu_model, self.kernel)
    }
}

/// The data from which a step's report is made, besides its record.
#[derive(Clone, Debug)]
pub struct StepFacts {
    /// Number of the step, from 0.
    pub step: u16,
    /// The planned load.
    pub plan: Plan,
    /// Length of the measured span, in nanoseconds.
    pub elapsed_ns: u64,
    /// Total counts of the schedules.
    pub tally: Tally,
    /// The discarded phase before the measured span.
    pub warm_up: WarmUpReport,
    /// Resource use of the client.
    pub client: ClientReport,
    /// Resource use of the server, if known.
    pub server: Option<ServerReport>,
    /// Kernel counters of the whole machine during the step.
    pub kernel: Option<KernelReport>,
    /// Comparison with the server's own counts, if they were read.
    pub reconciliation: Option<Reconciliation>,
    /// Number of load agents whose connection closed before their results arrived.
    pub agents_lost: u32,
    /// Reason why requested server counts are missing.
    pub counts_missing: Option<String>,
    /// Why the run was stopped before its end, in one sentence, if `--stop-when` ended it.
    pub stopped_early: Option<String>,
    /// True if the run was interrupted.
    pub interrupted: bool,
    /// True if the load deliberately exceeded the knee.
    pub overload: bool,
}

impl StepReport {
    /// Calculates rates, percentiles and the verdict from a finished record. Packs the record's histograms, because a
    /// run has one report per level.
    pub fn of(mut record: Recorder, mut facts: StepFacts) -> Self {
        let seconds = facts.elapsed_ns as f64 / 1e9;
        let per_second = |count: u64| if facts.elapsed_ns == 0 { 0.0 } else { count as f64 / seconds };
        let visits_per_s = match &facts.plan.kind {
            Loop::Open(_) => facts.plan.visits_per_s(),
            Loop::Closed => None,
        };
        let offered =
            Offered { rate_per_s: facts.plan.offered_per_s(), visits_per_s, connections: facts.plan.connections };
        let requests = requests_of(&record, &facts);
        let (failed, never_begun) = (requests.failed, requests.never_begun);
        let phases = PhasesReport {
            resolve: record.phases.resolve.percentiles(0),
            connect: record.phases.connect.percentiles(0),
            tls: record.phases.tls.percentiles(0),
            wait: record.phases.wait.percentiles(failed),
            transfer: record.phases.transfer.percentiles(failed),
        };
        let evidence = evidence_of(&record, &facts);
        let invalid = judge(&evidence);
        let requests_asked = match (&facts.plan.kind, facts.plan.stop) {
            (Loop::Closed, Stop::Count(bursts)) if facts.stopped_early.is_none() => {
                Some(bursts.saturating_mul(u64::from(facts.plan.burst)))
            }
            _ => None,
        };
        record.pack();
        facts.client.loop_lag.histogram.pack();
        let mut notes = failing::notes(&record.counts, facts.client.other_cpu_share);
        let warm_up_failed = failing::warm_up_failed(&record);
        // A run that was stopped in its warm-up has sent requests, but none that counts.
        let failing = if facts.stopped_early.is_some() && requests.begun == 0 {
            warm_up_failed.into_iter().collect()
        } else {
            notes.extend(warm_up_failed);
            failing::failing(&record.counts, requests_asked)
        };
        notes.extend(failing::streams_limited(&facts.tally, &facts.plan, record.in_flight.peak));
        Self {
            step: facts.step,
            offered,
            elapsed_ns: facts.elapsed_ns,
            requests,
            responses_per_s: per_second(record.responses_in_time()),
            begun_per_s: evidence.begun_per_s,
            bytes_in_per_s: per_second(record.bytes_in_time()),
            error_share: record.counts.error_share(),
            response: record.response.percentiles(failed + never_begun),
            unexpected: record.unexpected.as_ref().and_then(|times| times.percentiles(0)),
            service: record.service.percentiles(failed),
            lag: record.lag.percentiles(never_begun),
            phases,
            record,
            tally: facts.tally,
            warm_up: facts.warm_up,
            client: facts.client,
            server: facts.server,
            kernel: facts.kernel,
            figures: figures::existing(&evidence, &invalid),
            invalid,
            evidence,
            failing,
            notes,
            plan: facts.plan,
        }
    }

    /// Returns whether the run was stopped in its warm-up, so that nothing was measured.
    pub const fn is_stopped_in_warm_up(&self) -> bool {
        self.evidence.stopped_early.is_some() && self.requests.begun == 0
    }

    /// Records that a requested measurement is missing, and why. This makes the run invalid.
    pub fn add_missing(&mut self, what: String) {
        match &mut self.evidence.part_missing {
            Some(text) => *text = format!("{text}; {what}"),
            none => *none = Some(what),
        }
        self.invalid = judge(&self.evidence);
        self.figures = figures::existing(&self.evidence, &self.invalid);
    }

    /// Returns the validity of a figure, with reasons.
    pub fn verdict(&self, figure: Figure) -> FigureVerdict {
        figures::verdict(figure, &self.evidence, &self.invalid)
    }

    /// Returns the validity of a figure.
    pub fn soundness(&self, figure: Figure) -> Soundness {
        self.verdict(figure).soundness
    }

    /// Returns the number of requests that can be in progress at once: connections, or streams that the server permits.
    pub fn slots_used(&self) -> u32 {
        self.plan.connections_used().saturating_sub(self.tally.slots_unusable)
    }

    /// Returns whether any figure of the step is valid.
    pub fn has_sound(&self) -> bool {
        // Counts alone do not measure a server's speed.
        let is_sound = |figure: &Figure| *figure != Figure::Counts && self.soundness(*figure).is_sound();
        !self.is_stopped_in_warm_up() && Figure::ALL.iter().any(is_sound)
    }

    /// Evaluates a requirement on this step. Other requirements cannot permit failures.
    pub fn judge(&self, threshold: &Threshold) -> ThresholdOutcome {
        self.judge_among(threshold, &[])
    }

    /// Evaluates a requirement on this step. Failures are permitted if another of `all` limits them and is met.
    pub fn judge_among(&self, threshold: &Threshold, all: &[Threshold]) -> ThresholdOutcome {
        let failures_allowed =
            all.iter().any(|other| other.bounds_failures() && other != threshold && self.judge(other).met);
        let judged = Judged {
            record: &self.record,
            elapsed_ns: self.elapsed_ns,
            never_begun: self.requests.never_begun,
            step: self.step,
            failures_allowed,
        };
        threshold.judge(&judged, |figure| self.verdict(figure))
    }

    /// Returns the first failure of requests that fails a run with these requirements, because none of them limits it.
    pub fn unlimited_failure(&self, thresholds: &[Threshold]) -> Option<&Reason> {
        let is_of_requests = |reason: &Reason| reason.finding().is_none_or(Finding::is_of_overload);
        self.failing.iter().find(|reason| is_of_requests(reason) && !is_limited(reason, thresholds))
    }

    /// Moves permitted failures to the notes. Failures are permitted if a requirement limits them, or if they are
    /// expected because the run exceeds the server's limit.
    pub fn allow(&mut self, thresholds: &[Threshold]) {
        let is_allowed = |reason: &Reason| {
            let is_expected = self.evidence.overload && reason.finding().is_some_and(Finding::is_of_overload);
            is_expected || is_limited(reason, thresholds)
        };
        let (allowed, failing) = std::mem::take(&mut self.failing).into_iter().partition(is_allowed);
        let allowed: Vec<Reason> = allowed;
        self.failing = failing;
        self.notes.extend(allowed.iter().map(failing::allowed));
    }
}

/// Returns the results of the requests. The number of requests due is the number of arrivals times their mean requests.
fn requests_of(record: &Recorder, facts: &StepFacts) -> RequestsReport {
    let of_arrivals = |arrivals: u64| (arrivals as f64 * facts.plan.arrival().requests).round() as u64;
    let (never_begun, begun) = (of_arrivals(facts.tally.dropped), record.counts.requests_begun);
    RequestsReport {
        offered: facts.plan.is_open().then_some(begun + never_begun),
        begun,
        in_time: record.responses_in_time(),
        late: record.late.responses,
        drain_ns: record.late.response_ns,
        failed: record.counts.failures_total(),
        unexpected: record.counts.unexpected(),
        never_begun,
    }
}
