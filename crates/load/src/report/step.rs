//! One load level of a run: what was asked, what came of it, and whether it can be believed.

use super::Percentiles;
use crate::judge::failing::{self, Finding};
use crate::judge::figures::{self, Figure, FigureVerdict, Soundness};
use crate::judge::little::Little;
use crate::judge::reconcile::Reconciliation;
use crate::judge::steady::{self, Steady};
use crate::judge::threshold::{Judged, Threshold, ThresholdOutcome};
use crate::judge::validity::{Evidence, Invalid, judge};
use crate::plan::{Loop, Plan, Stop, Visit};
use crate::record::{Hdr, Point, Recorder};
use crate::schedule::Tally;
use serde::{Deserialize, Serialize};

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepReport {
    /// Number of the step, from 0.
    pub step: u16,
    /// What was asked.
    pub plan: Plan,
    /// The load in numbers.
    pub offered: Offered,
    /// Length of the measured span, in which load was offered, in nanoseconds. Rates are of what came within it.
    pub elapsed_ns: u64,
    /// What became of the requests of the span.
    #[serde(default)]
    pub requests: RequestsReport,
    /// Responses a second: those in time.
    pub responses_per_s: f64,
    /// Requests begun a second.
    pub begun_per_s: f64,
    /// Bytes received a second: those in time.
    pub bytes_in_per_s: f64,
    /// Share of requests that failed or were answered 4xx or 5xx, 0 to 1.
    pub error_share: f64,
    /// Response times in short: from the intended start.
    pub response: Option<Percentiles>,
    /// Service times in short: from the client's act.
    pub service: Option<Percentiles>,
    /// Lag in short.
    pub lag: Option<Percentiles>,
    /// Phases in short.
    pub phases: PhasesReport,
    /// The whole record: counts, histograms, sums, classes, connections, series.
    pub record: Recorder,
    /// What the schedules counted, added up.
    pub tally: Tally,
    /// How it warmed up.
    pub warm_up: WarmUpReport,
    /// What it took of the client.
    pub client: ClientReport,
    /// What it took of the server, where that can be read.
    pub server: Option<ServerReport>,
    /// What the kernel counted meanwhile, for the whole machine.
    pub kernel: Option<KernelReport>,
    /// What the verdict was found from.
    pub evidence: Evidence,
    /// What each figure is worth.
    #[serde(default)]
    pub figures: Vec<FigureVerdict>,
    /// Why figures do not hold, or what was not measured; none when all of them hold.
    pub invalid: Vec<Invalid>,
    /// What failed in it: requests, statuses.
    pub failing: Vec<Reason>,
    /// What a reader should know besides.
    pub notes: Vec<Reason>,
}

/// A name from a table, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The short name.
    pub name: String,
    /// One sentence for people, with its numbers.
    pub text: String,
}

/// What became of the requests of the measured span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestsReport {
    /// Requests that were due, where the clock decides.
    pub offered: Option<u64>,
    /// Requests begun.
    pub begun: u64,
    /// Requests that were answered within the span.
    pub in_time: u64,
    /// Requests that were answered after its end.
    pub late: u64,
    /// From the end of the span to the end of the last request, in nanoseconds.
    pub drain_ns: u64,
    /// Requests that failed, within the span or after it.
    pub failed: u64,
    /// Requests that were due and never begun.
    pub never_begun: u64,
}

/// The load of a step in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// Requests a second, where the clock decides.
    pub rate_per_s: Option<f64>,
    /// Visits (connections, sessions or requests) a second, where the clock decides.
    pub visits_per_s: Option<f64>,
    /// Connections open at once, at most (open loop) or always (closed loop).
    pub connections: u32,
}

/// Phases in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhasesReport {
    /// Looking up the name.
    pub resolve: Option<Percentiles>,
    /// Establishing the TCP connection.
    pub connect: Option<Percentiles>,
    /// The TLS handshake.
    pub tls: Option<Percentiles>,
    /// From the last byte sent to the first byte received.
    pub wait: Option<Percentiles>,
    /// From the first byte received to the last.
    pub transfer: Option<Percentiles>,
}

/// A histogram with its percentiles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// In short; absent when there is no value.
    pub summary: Option<Percentiles>,
    /// The whole histogram.
    pub histogram: Hdr,
}

impl Times {
    /// A histogram and what it says.
    pub fn of(histogram: Hdr) -> Self {
        Self { summary: histogram.percentiles(), histogram }
    }
}

/// How a step warmed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmUpReport {
    /// Its length, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requests that ended and are in no figure for it.
    pub samples: u64,
    /// Whether the steady state was found; absent when it was not looked for.
    pub steady: Option<bool>,
}

/// On-CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// In user mode, in nanoseconds.
    pub user_ns: u64,
    /// In the kernel, in nanoseconds.
    pub system_ns: u64,
}

impl Cpu {
    /// Both together.
    pub const fn total_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }
}

/// What a step took of the client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientReport {
    /// On-CPU time of all client threads in the measured part, busy-waiting left out.
    pub cpu: Cpu,
    /// The same for each response, in nanoseconds.
    pub cpu_ns_per_response: Option<f64>,
    /// On-CPU time of all client threads in the measured part in which they only stayed awake for what was due or awaited
    /// (busy-waiting), in nanoseconds.
    #[serde(default)]
    pub busy_wait_ns: u64,
    /// Share of its time that the busiest client thread was on a core, 0 to 1.
    pub busy_share: f64,
    /// Share of its time that this thread was ready and waited for a core, 0 to 1.
    pub wait_share: f64,
    /// Share of the periods of its cgroup's quota in which the quota was used up and the client stood still, 0 to 1; nothing
    /// where there is no quota.
    #[serde(default)]
    pub held_back_share: Option<f64>,
    /// Share of its time that this thread was ready and waited for a core, 0 to 1, but not more than other processes than
    /// client and server ran meanwhile: a bound of what they did to it. Nothing where it is not known.
    #[serde(default)]
    pub crowded_share: Option<f64>,
    /// How late the loops of the client threads woke up.
    pub loop_lag: Times,
    /// Most memory of the client's process, in bytes.
    pub memory_bytes_peak: Option<u64>,
    /// Share of the machine's CPU that neither client nor server used, 0 to 1, where known.
    pub other_cpu_share: Option<f64>,
    /// One for each agent, where there were any.
    #[serde(default)]
    pub agents: Vec<AgentReport>,
}

impl ClientReport {
    /// Busy-waiting for each of so many responses, in nanoseconds; `None` where nobody waited busily, or nothing came.
    pub fn busy_wait_ns_per_response(&self, responses: u64) -> Option<f64> {
        (self.busy_wait_ns > 0 && responses > 0).then(|| self.busy_wait_ns as f64 / responses as f64)
    }
}

/// An agent's part in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentReport {
    /// What it calls itself.
    pub name: String,
    /// Its clock against the controller's, in nanoseconds, by half the round trip.
    pub skew_ns: i64,
    /// Share of its time that its busiest thread was on a core or waited for one, 0 to 1.
    pub busy_share: f64,
    /// Answers it received.
    pub responses: u64,
    /// Whether it was lost.
    pub lost: bool,
}

/// What a step took of the server's processes, on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    /// On-CPU time of its processes.
    pub cpu: Cpu,
    /// CPU for each response, in nanoseconds.
    pub cpu_ns_per_response: Option<f64>,
    /// Share of the step's time it was on a core; 2 means two cores.
    pub cores_used: f64,
    /// Resident memory at the end, in bytes.
    pub memory_bytes: Option<u64>,
    /// Most resident memory, in bytes.
    pub memory_bytes_peak: Option<u64>,
    /// Context switches that it asked for by waiting.
    pub switches_voluntary: Option<u64>,
    /// Context switches forced on it.
    pub switches_forced: Option<u64>,
    /// How many processes these figures are of.
    pub processes: u32,
    /// Where the CPU time was read.
    #[serde(default)]
    pub cpu_clock: CpuClock,
    /// Whether it used more than that: children ended whose time nobody was told.
    #[serde(default)]
    pub cpu_is_short: bool,
    /// Share of the step's time that its threads were ready and waited for a core; 2 means two threads always did.
    #[serde(default)]
    pub wait_cores: Option<f64>,
    /// The same, as far as other processes than client and server ran meanwhile: a bound of what they did to it.
    #[serde(default)]
    pub crowded_cores: Option<f64>,
}

/// Where a server's CPU time was read, the most exact clock first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuClock {
    /// The CPU clock of each process, in nanoseconds, with the time of threads that have ended.
    Process,
    /// `/proc/PID/stat` of each process, in ticks of 10 ms, with the time of threads that have ended.
    ProcessTicks,
    /// `/proc/PID/task`: the threads that were there at the end alone.
    #[default]
    Threads,
}

impl CpuClock {
    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Process => "by the CPU clocks of its processes",
            Self::ProcessTicks => "by /proc/PID/stat, to 10 ms",
            Self::Threads => "without threads that ended",
        }
    }
}

/// What the kernel counted during a step, for the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// TCP segments sent again.
    pub tcp_retransmits: u64,
    /// Connections dropped because a listen queue was full.
    pub listen_overflows: u64,
    /// SYNs dropped at a listener, for whatever reason.
    pub listen_drops: u64,
    /// Attempts to connect that failed.
    pub connect_failures: u64,
    /// Connections reset.
    pub resets: u64,
}

/// The machine, as far as it bears on a measurement. What cannot be read is absent, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineReport {
    /// Model name of the processor.
    pub cpu_model: String,
    /// Its clock as the kernel tells it, in MHz: the highest where that is known, else the present one.
    #[serde(default)]
    pub cpu_mhz: Option<u64>,
    /// Cores this process may use.
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
    /// Most open files of this process.
    #[serde(default)]
    pub files_max: Option<u64>,
    /// Settings of the kernel that bear on the run, by name: `net.core.somaxconn`, `net.ipv4.ip_local_port_range`.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// Digest of this program's file, in hexadecimal.
    #[serde(default)]
    pub binary_digest: Option<String>,
}

/// What a step's report is made from, besides its record.
#[derive(Clone, Debug)]
pub struct StepFacts {
    /// Number of the step, from 0.
    pub step: u16,
    /// What was asked.
    pub plan: Plan,
    /// Length of the measured span, in nanoseconds.
    pub elapsed_ns: u64,
    /// What the schedules counted, added up.
    pub tally: Tally,
    /// How it warmed up.
    pub warm_up: WarmUpReport,
    /// What it took of the client.
    pub client: ClientReport,
    /// What it took of the server.
    pub server: Option<ServerReport>,
    /// What the kernel counted.
    pub kernel: Option<KernelReport>,
    /// Agreement with the server's own counts, where those were read.
    pub reconciliation: Option<Reconciliation>,
    /// Agents lost.
    pub agents_lost: u32,
    /// Why the server's own counts, which were asked for, are not there.
    pub counts_missing: Option<String>,
    /// Whether somebody ended it.
    pub interrupted: bool,
    /// Whether it was past the knee on purpose.
    pub overload: bool,
}

impl StepReport {
    /// Computes rates, percentiles and the verdict of a finished record, and packs its histograms: a run has as many
    /// reports as levels.
    pub fn of(mut record: Recorder, mut facts: StepFacts) -> Self {
        let seconds = facts.elapsed_ns as f64 / 1e9;
        let per_second = |count: u64| if facts.elapsed_ns == 0 { 0.0 } else { count as f64 / seconds };
        let visits_per_s = match &facts.plan.kind {
            Loop::Open(_) => facts.plan.visits_per_s(),
            Loop::Closed => None,
        };
        let offered =
            Offered { rate_per_s: facts.plan.offered_per_s(), visits_per_s, connections: facts.plan.connections };
        let phases = PhasesReport {
            resolve: record.phases.resolve.percentiles(),
            connect: record.phases.connect.percentiles(),
            tls: record.phases.tls.percentiles(),
            wait: record.phases.wait.percentiles(),
            transfer: record.phases.transfer.percentiles(),
        };
        let evidence = evidence_of(&record, &facts);
        let invalid = judge(&evidence);
        let requests_asked = match (&facts.plan.kind, facts.plan.stop) {
            (Loop::Closed, Stop::Count(bursts)) => Some(bursts.saturating_mul(u64::from(facts.plan.burst))),
            _ => None,
        };
        record.pack();
        facts.client.loop_lag.histogram.pack();
        let failing = failing::failing(&record.counts, requests_asked);
        let notes = failing::notes(&record.counts, facts.client.other_cpu_share);
        Self {
            step: facts.step,
            offered,
            elapsed_ns: facts.elapsed_ns,
            requests: requests_of(&record, &facts),
            responses_per_s: per_second(record.responses_in_time()),
            begun_per_s: evidence.begun_per_s,
            bytes_in_per_s: per_second(record.bytes_in_time()),
            error_share: record.counts.error_share(),
            response: record.response.percentiles(),
            service: record.service.percentiles(),
            lag: record.lag.percentiles(),
            phases,
            record,
            tally: facts.tally,
            warm_up: facts.warm_up,
            client: facts.client,
            server: facts.server,
            kernel: facts.kernel,
            figures: figures::verdicts(&evidence, &invalid),
            invalid,
            evidence,
            failing,
            notes,
            plan: facts.plan,
        }
    }

    /// Says that something that was asked for is missing beside this step or after it, and why: the run is invalid for it.
    pub fn add_missing(&mut self, what: String) {
        match &mut self.evidence.part_missing {
            Some(text) => *text = format!("{text}; {what}"),
            none => *none = Some(what),
        }
        self.invalid = judge(&self.evidence);
        self.figures = figures::verdicts(&self.evidence, &self.invalid);
    }

    /// What a figure is worth, and why.
    pub fn verdict(&self, figure: Figure) -> FigureVerdict {
        figures::verdict(figure, &self.evidence, &self.invalid)
    }

    /// What a figure is worth.
    pub fn soundness(&self, figure: Figure) -> Soundness {
        self.verdict(figure).soundness
    }

    /// Whether any of its figures holds.
    pub fn has_sound(&self) -> bool {
        // The counts alone say nothing of a server's speed.
        Figure::ALL.iter().any(|figure| *figure != Figure::Counts && self.soundness(*figure).is_sound())
    }

    /// Judges a requirement by this step, where no failure is allowed.
    pub fn judge(&self, threshold: &Threshold) -> ThresholdOutcome {
        self.judge_among(threshold, &[])
    }

    /// Judges a requirement by this step; failures are allowed where one of `all` bounds them and is met.
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

    /// Takes what is allowed for out of what failed: what a requirement bounds, and beyond the server's limit what a run
    /// is about. It stays in the notes.
    pub fn allow(&mut self, thresholds: &[Threshold]) {
        let is_allowed = |reason: &Reason| {
            let Some(finding) = Finding::of_name(&reason.name) else { return false };
            self.evidence.overload && finding.is_of_overload()
                || thresholds.iter().any(|threshold| threshold.allows(finding))
        };
        let (allowed, failing) = std::mem::take(&mut self.failing).into_iter().partition(is_allowed);
        let allowed: Vec<Reason> = allowed;
        self.failing = failing;
        self.notes.extend(allowed.iter().map(failing::allowed));
    }
}

/// What became of the requests. What was due is as many requests as its arrivals have on average.
fn requests_of(record: &Recorder, facts: &StepFacts) -> RequestsReport {
    let of_arrivals = |arrivals: u64| (arrivals as f64 * facts.plan.arrival().requests).round() as u64;
    let (never_begun, begun) = (of_arrivals(facts.tally.dropped), record.counts.requests_begun);
    RequestsReport {
        offered: facts.plan.is_open().then_some(begun + never_begun),
        begun,
        in_time: record.responses_in_time(),
        late: record.late.responses,
        drain_ns: record.late.drain_ns,
        failed: record.counts.failures_total(),
        never_begun,
    }
}

fn evidence_of(record: &Recorder, facts: &StepFacts) -> Evidence {
    let plan = &facts.plan;
    // In a closed loop of kept connections all are held all the time; otherwise they come and go.
    let holds_all = matches!((&plan.kind, &plan.visit), (Loop::Closed, Visit::Request));
    // A plan by time is spread over its time, even where the last request of it was begun earlier.
    let planned_ns = if let Stop::After { duration_ns } = plan.stop { duration_ns } else { 0 };
    let begun_ns = record.begun_span_ns.max(planned_ns.min(facts.elapsed_ns)).max(1);
    let at = |histogram: &Hdr, quantile| histogram.histogram().value_at_quantile(quantile);
    Evidence {
        elapsed_ns: facts.elapsed_ns,
        responses: record.counts.responses,
        client_busy_share: facts.client.busy_share,
        client_wait_share: facts.client.wait_share,
        client_held_back_share: facts.client.held_back_share,
        client_crowded_share: facts.client.crowded_share,
        server_crowded_cores: facts.server.and_then(|server| server.crowded_cores),
        server_cpu_is_short: facts.server.is_some_and(|server| server.cpu_is_short),
        server_cores: facts.server.map(|server| server.cores_used),
        offered_per_s: plan.offered_per_s(),
        begun_per_s: record.counts.requests_begun as f64 * 1e9 / begun_ns as f64,
        intended_span_ns: record.intended_span_ns,
        begun_span_ns: record.begun_span_ns,
        connections_asked: holds_all.then(|| u64::from(plan.connections_used())),
        // Streams of HTTP/2 share connections; they are what is in flight at once.
        connections_peak: record.connections.peak.max(record.in_flight.peak),
        lag_p50_ns: at(&record.lag, 0.5),
        lag_p99_ns: at(&record.lag, 0.99),
        response_p50_ns: at(&record.response, 0.5),
        response_p99_ns: at(&record.response, 0.99),
        arrivals_waited: facts.tally.waited,
        arrivals_dropped: facts.tally.dropped,
        visits: facts.tally.visits,
        little: Little::of(record, facts.elapsed_ns),
        reconciliation: facts.reconciliation.clone(),
        counts_missing: facts.counts_missing.clone(),
        part_missing: None,
        agents_lost: facts.agents_lost,
        no_steady_state: match facts.warm_up.steady {
            None => false,
            Some(false) => true,
            // Found steady while it warmed up; but what was measured must be so too.
            Some(true) => {
                let measured_from_ns = record.measured_from_ns.saturating_sub(record.series.start_ns);
                let first = measured_from_ns.div_ceil(record.series.step_s.max(1) * 1_000_000_000) as usize;
                let points = record.series.points();
                let means: Vec<f64> = points.iter().skip(first).filter_map(Point::service_mean_ns).collect();
                steady::judge(&means) == Steady::Never
            }
        },
        interrupted: facts.interrupted,
        overload: facts.overload,
    }
}
