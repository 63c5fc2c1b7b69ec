//! Load levels, run one after another. The resource use of server and machine is measured for each.

use super::drive::RequestSelection;
use super::server_counters::{CounterSnapshot, CounterSource};
use super::span::{SpanPlan, SpanResult, run_span};
use super::{
    BenchError, BenchReport, BenchSpec, Limit, Live, Phase, Ports, ProgressReceiver, ServerFound, limit, question,
};
use crate::cgroup;
use crate::cores::{Placement, cores_allowed, leave_room};
use crate::cpu_roles::CrowdWatch;
use crate::machine;
use crate::request::HttpVersion;
use crate::resolve::list_addresses;
use crate::target::{CpuSnapshot, CpuUsed, ServerProcesses, TargetStatus, TargetUnknown};
use crate::tree::ObservedProcesses;
use flatout_load::judge::failing;
use flatout_load::judge::reconcile::Reconciliation;
use flatout_load::plan::{Plan, PlanError, Stop};
use flatout_load::report::{
    ClientReport, Cpu, KernelReport, RunReport, SCHEMA, SCHEMA_VERSION, ServerReport, StepFacts, StepReport, Times,
};
use flatout_load::template::ValueSource;
use flatout_os::clock;
use flatout_os::procfs::{self, ProcessStat, read_tcp_counters};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

/// Gap between two levels that agents start together, in nanoseconds.
const LEVEL_GAP_NS: u64 = 2_000_000_000;

/// Value of `{seq}` in the first request of a run.
const SEQ_FIRST: u64 = 1;

/// A run: the results so far, and everything needed for the next level.
#[derive(Debug)]
pub struct Bench {
    ask: BenchSpec,
    like: SpanPlan,
    begun_unix_ms: u64,
    server: Result<ServerProcesses, TargetUnknown>,
    counter_source: Option<CounterSource>,
    used: CpuUsed,
    whole_ns: u64,
    /// Number of spans so far.
    parts: u64,
    steps: Vec<StepReport>,
    addresses_used: BTreeSet<SocketAddr>,
    last: Option<SpanResult>,
    limit: Option<Limit>,
    interrupted: bool,
    /// The share of failed requests because of which the run was stopped.
    stopped_at_share: Option<f64>,
    /// The reason something could not be measured, which is reported with the last level.
    missing: Option<BenchError>,
}

/// Observes the server's child processes several times a second, and forwards progress to another receiver.
struct Looking<'a> {
    progress: &'a mut dyn ProgressReceiver,
    target: Option<&'a ServerProcesses>,
    seen: ObservedProcesses,
}

impl ProgressReceiver for Looking<'_> {
    fn is_live(&self) -> bool {
        self.progress.is_live()
    }

    fn handle_begin(&mut self, phase: Phase, plan: &Plan) {
        self.progress.handle_begin(phase, plan);
    }

    fn handle_live(&mut self, phase: Phase, live: Option<&Live>) {
        if let Some(target) = self.target {
            target.look(&mut self.seen);
        }
        self.progress.handle_live(phase, live);
    }
}

/// Readings of server and machine before a part of a run.
struct Before {
    server: Option<(CpuSnapshot, TargetStatus)>,
    kernel: Option<KernelReport>,
    crowd: CrowdWatch,
}

/// The resources used by server and machine during a part of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Around {
    server: Option<ServerReport>,
    kernel: Option<KernelReport>,
    other_cpu_share: Option<f64>,
    /// Share of its time that the busiest client thread waited because other processes ran.
    crowded_share: Option<f64>,
}

impl Bench {
    /// Prepares everything before the first request. After this, no result is lost: failures are stored and reported.
    pub fn prepare(ask: BenchSpec, counter_source: Option<CounterSource>) -> Result<Self, BenchError> {
        let resolving = Instant::now();
        let addresses = ask.addresses()?;
        let resolve_ns = if ask.url.host.parse::<std::net::IpAddr>().is_ok() { 0 } else { nanoseconds(resolving) };
        let Some(first) = ask.plans.first() else { return Err(BenchError::NothingToAsk) };
        let ports = Ports::here(&addresses);
        for plan in &ask.plans {
            plan.check().map_err(BenchError::Plan)?;
            check_ports(plan, &ask, ports)?;
        }
        if let (Some(count), false) = (ask.sources, ports.has_more) {
            let text = format!("--source-addresses {count} needs a server with an address in 127.0.0.0/8");
            return Err(BenchError::Plan(PlanError::Meaningless(text)));
        }
        // If the server's counters are unreadable, fail now instead of after a level.
        if let Some(counter_source) = &counter_source {
            counter_source.open().map_err(BenchError::ServerCounters)?;
        }
        // Raise the limit of descriptors as far as the system permits. If there are still too few, the failures are
        // counted as fd-unavail.
        let _limit = flatout_os::socket::raise_descriptor_limit();
        let server = match &ask.unix_socket {
            Some(path) => ServerProcesses::find_at_socket(path),
            None => ServerProcesses::find(&addresses),
        };
        let leaves_room = match &server {
            Ok(target) => leave_room(ask.threads, target.processes().iter().copied()),
            Err(TargetUnknown::NotLocal) => cores_allowed().len() >= ask.threads as usize,
            Err(_) => false,
        };
        let is_realtime = ProcessStat::read("thread-self").is_ok_and(|stat| stat.is_realtime());
        let like = SpanPlan {
            plan: first.clone(),
            threads: ask.threads,
            addresses,
            unix_socket: ask.unix_socket.clone(),
            tls: ask.tls()?,
            streams: ask.speech.version.streams(),
            requests: ask.table()?,
            values: ValueSource { seed: first.seed, seq_first: SEQ_FIRST },
            choice: RequestSelection { work: ask.work.clone(), seed: first.seed, step: 0 },
            sources: ask.sources,
            digest_every: ask.digest_every(),
            request_timeout_ns: ask.request_timeout_ns,
            placement: Placement::Anywhere,
            may_stay_awake: leaves_room && !is_realtime && !cgroup::has_quota(),
            handle_interrupts: true,
            stop_when: ask.stop_when,
            share: ask.share,
            begin_at_ns: ask.begin_at_ns,
            resolve_ns,
        };
        Ok(Self {
            like,
            begun_unix_ms: clock::unix_ms().unsigned_abs(),
            server,
            counter_source,
            used: CpuUsed::default(),
            whole_ns: 0,
            parts: 0,
            steps: Vec::new(),
            addresses_used: BTreeSet::new(),
            last: None,
            limit: None,
            interrupted: false,
            stopped_at_share: None,
            missing: None,
            ask,
        })
    }

    /// Returns whether no further level should start, because the run was interrupted or stopped, or the client itself
    /// failed. A lack of ports for one level is no reason to stop, because another level may have enough.
    pub const fn is_over(&self) -> bool {
        self.has_stopped() || matches!(&self.missing, Some(error) if !matches!(error, BenchError::Ports(_)))
    }

    /// Returns whether the run was interrupted, or stopped because too many requests failed.
    const fn has_stopped(&self) -> bool {
        self.interrupted || self.stopped_at_share.is_some()
    }

    /// Returns whether everything requested so far was measured.
    pub const fn is_whole(&self) -> bool {
        !self.interrupted && self.missing.is_none()
    }

    /// Stores the reason something is missing. Only the first reason is stored, because it usually causes the others;
    /// but an abort takes precedence over a skipped level.
    pub(super) fn miss(&mut self, error: BenchError) {
        let ends = !matches!(error, BenchError::Ports(_));
        if self.missing.is_none() || ends && !self.is_over() {
            self.missing = Some(error);
        }
    }

    /// Runs a level and adds its report. Returns `None` if the level could not run. `overload` marks an intentional
    /// overload.
    pub fn step(&mut self, plan: &Plan, overload: bool, progress: &mut dyn ProgressReceiver) -> Option<&StepReport> {
        let measured = check_ports(plan, &self.ask, Ports::here(&self.like.addresses)).and_then(|()| {
            let page = self.open_counters();
            let (span, around) = self.part(plan, progress)?;
            Ok((span, around, page))
        });
        match measured {
            Ok((span, around, page)) => Some(self.add_step(plan, span, around, page, overload)),
            Err(error) => {
                self.miss(error);
                None
            }
        }
    }

    /// Runs a level in two halves, with the bare loop between them.
    pub(super) fn step_with_limit(&mut self, plan: &Plan, progress: &mut dyn ProgressReceiver) {
        let page = self.open_counters();
        let (first, second) = halves(plan);
        let (mut span, mut around) = match self.part(&first, progress) {
            Ok(part) => part,
            Err(error) => return self.miss(error),
        };
        let answers = span.recorder.counts.responses > 0;
        let bare = (answers && !self.has_stopped())
            .then(|| limit::measure(&self.like, &span, &self.busy_tasks(), progress))
            .and_then(|bare| self.take(bare));
        self.interrupted |= bare.as_ref().is_some_and(limit::Measured::interrupted);
        let bare = bare.filter(|_| !self.interrupted);
        // A server that sent no response is not measured a second time.
        if let (true, false, Some(second)) = (answers, self.has_stopped(), second) {
            let more = self.part(&second, progress);
            if let Some((more, more_around)) = self.take(more) {
                around = around.merge(more_around, span.whole_ns, more.whole_ns);
                let appended = span.append(&more);
                self.take(appended);
            }
        }
        let step = self.add_step(plan, span, around, page, false);
        let (rate, cpu) = (step.responses_per_s, step.server.and_then(|server| server.cpu_ns_per_response));
        self.limit = bare.map(|bare| bare.compare(rate, cpu));
    }

    /// Measures the bare loop after the levels, with the parameters of the last level.
    pub(super) fn measure_limit(&mut self, progress: &mut dyn ProgressReceiver) {
        let Some(last) = self.last.take().filter(|span| span.recorder.counts.responses > 0 && !self.is_over()) else {
            return;
        };
        let bare = limit::measure(&self.like, &last, &self.busy_tasks(), progress);
        let Some(bare) = self.take(bare) else { return };
        self.interrupted |= bare.interrupted();
        let best = self.steps.iter().max_by(|one, two| one.responses_per_s.total_cmp(&two.responses_per_s));
        if let (Some(step), false) = (best, self.interrupted) {
            let cpu = step.server.and_then(|server| server.cpu_ns_per_response);
            self.limit = Some(bare.compare(step.responses_per_s, cpu));
        }
    }

    /// Returns the result, or stores the error and returns `None`.
    fn take<T>(&mut self, measured: Result<T, BenchError>) -> Option<T> {
        measured.map_err(|error| self.miss(error)).ok()
    }

    /// Reads the server's counters before a level. Returns the reason if they are unreadable, and `None` without a
    /// source.
    fn open_counters(&self) -> Option<Result<CounterSnapshot, String>> {
        self.counter_source.as_ref().map(CounterSource::open)
    }

    /// Runs one span of load. Reads server and machine before and after it.
    fn part(&mut self, plan: &Plan, progress: &mut dyn ProgressReceiver) -> Result<(SpanResult, Around), BenchError> {
        self.like.plan = plan.clone();
        self.like.choice.step = self.steps.len() as u16;
        self.like.choice.seed = plan.seed;
        // The numbers of requests begin with 0 in each part, so each part has its own seed.
        self.like.values.seed = plan.seed.wrapping_add(self.parts);
        let before = self.look();
        let mut looking = Looking { progress, target: self.server.as_ref().ok(), seen: ObservedProcesses::default() };
        let span = run_span(&self.like, Phase::Server, &mut looking)?;
        let seen = looking.seen;
        self.parts += 1;
        self.like.values.seq_first = self.like.values.seq_first.saturating_add(span.whole.numbers_end);
        self.like.resolve_ns = 0;
        self.like.begin_at_ns = self.like.begin_at_ns.map(|begin_ns| begin_ns.saturating_add(time_for(plan)));
        self.interrupted |= span.interrupted;
        self.addresses_used.extend(&span.addresses_used);
        self.stopped_at_share = self.stopped_at_share.or(span.stopped_at_share);
        self.whole_ns += span.whole_ns;
        let around = self.look_back(before, &seen, &span);
        Ok((span, around))
    }

    fn look(&self) -> Before {
        Before {
            server: self.server.as_ref().ok().map(|target| (target.snapshot(), target.status())),
            kernel: read_kernel_report(),
            crowd: CrowdWatch::begin(),
        }
    }

    fn look_back(&mut self, before: Before, seen: &ObservedProcesses, span: &SpanResult) -> Around {
        let kernel = before.kernel.and_then(|before| Some(read_kernel_report()?.since(before)));
        let (mut used, mut status) = (None, None);
        if let (Ok(target), Some((snapshot, status_before))) = (&self.server, before.server) {
            used = Some(target.snapshot().since(&snapshot, seen));
            status = Some((target.status(), status_before));
        }
        let server_cpu_ns = used.as_ref().map_or(0, CpuUsed::total_ns);
        let crowd = match &self.server {
            // The CPU time of lost child processes would be attributed to other processes.
            Ok(_) if used.as_ref().is_some_and(|used| used.is_short) => None,
            Ok(_) | Err(TargetUnknown::NotLocal) => before.crowd.crowd(server_cpu_ns),
            // The server runs on this machine, but its CPU time cannot be separated from that of other processes.
            Err(_) => None,
        };
        let server = used.as_ref().zip(status).map(|(used, (status, status_before))| {
            let whole_ns = span.whole_ns.max(1) as f64;
            let wait_cores = used.wait_ns as f64 / whole_ns;
            ServerReport {
                cpu: Cpu::split(server_cpu_ns, status.ticks.since(status_before.ticks).user_share()),
                cpu_ns_per_response: per_response(server_cpu_ns, span.answers_whole()),
                cores_used: server_cpu_ns as f64 / whole_ns,
                memory_bytes: Some(status.memory_bytes),
                memory_bytes_peak: Some(status.memory_bytes_peak),
                switches_voluntary: Some(status.switches_voluntary.saturating_sub(status_before.switches_voluntary)),
                switches_forced: Some(status.switches_forced.saturating_sub(status_before.switches_forced)),
                processes: status.processes,
                cpu_clock: used.clock,
                cpu_is_short: used.is_short,
                wait_cores: Some(wait_cores),
                crowded_cores: crowd.map(|crowd| crowd.of_server(wait_cores)),
            }
        });
        if let Some(used) = &used {
            self.used.merge(used);
        }
        Around {
            server,
            kernel,
            other_cpu_share: crowd.map(|crowd| crowd.other_cpu_share),
            crowded_share: crowd.map(|crowd| crowd.of_client(span.wait_share, span.busy_share)),
        }
    }

    fn add_step(
        &mut self,
        plan: &Plan,
        span: SpanResult,
        around: Around,
        page: Option<Result<CounterSnapshot, String>>,
        overload: bool,
    ) -> &StepReport {
        let (mut reconciliation, mut counts_missing) = (None, None);
        if let (Some(counter_source), Some(page)) = (&self.counter_source, page) {
            let whole = span.whole;
            // Of the failed requests, some may not have reached the server.
            let expected = whole.requests.saturating_sub(whole.uncertain);
            match page.and_then(|page| counter_source.close(&page, expected)) {
                Ok(server) => {
                    reconciliation = Some(Reconciliation {
                        server,
                        client_classes: whole.classes,
                        uncertain: whole.uncertain,
                        sent_again: whole.sent_again,
                        client_requests: whole.requests,
                    });
                }
                // The load was measured, and further levels can be measured.
                Err(why) => counts_missing = Some(why),
            }
        }
        let facts = StepFacts {
            step: u16::try_from(self.steps.len()).unwrap_or(u16::MAX),
            plan: plan.clone(),
            elapsed_ns: span.elapsed_ns,
            tally: span.tally,
            warm_up: span.warm_up,
            client: ClientReport {
                cpu: span.client_cpu,
                cpu_ns_per_response: per_response(span.client_cpu.total_ns(), span.recorder.counts.successes()),
                busy_wait_ns: span.client_awake_ns,
                busy_share: span.busy_share,
                wait_share: span.wait_share,
                held_back_share: span.held_back_share,
                stopped_ns: span.stopped_ns,
                crowded_share: around.crowded_share,
                loop_lag: Times::of(span.loop_lag.clone()),
                memory_bytes_peak: procfs::read_process_status(std::process::id())
                    .ok()
                    .map(|status| status.memory_bytes_peak),
                other_cpu_share: around.other_cpu_share,
                agents: Vec::new(),
            },
            server: around.server,
            kernel: around.kernel,
            reconciliation,
            counts_missing,
            agents_lost: 0,
            stopped_early: span.stopped_at_share.zip(self.ask.stop_when).map(|(share, share_max)| {
                failing::stopped_early(share, share_max, span.recorder.counts.requests_begun == 0)
            }),
            interrupted: span.interrupted || self.interrupted,
            overload,
        };
        let step = StepReport::of(span.recorder.clone(), facts);
        self.last = Some(span);
        let index = self.steps.len();
        self.steps.push(step);
        &self.steps[index]
    }

    fn busy_tasks(&self) -> Vec<u32> {
        if self.server.is_ok() { self.used.busy_tasks(self.whole_ns) } else { Vec::new() }
    }

    /// Returns the report of all measured levels, or the reason there is none.
    pub fn finish(mut self) -> Result<BenchReport, BenchError> {
        if let Some(error) = self.missing.take() {
            // If there is no measurement, nothing is lost by returning an error.
            let Some(step) = self.steps.last_mut() else { return Err(error) };
            step.add_missing(format!("part of the run could not be measured: {error}"));
        }
        note_sizes(&mut self.steps);
        let mut report = self.sum_up();
        if let Some(finding) = question::scalability(&report.run) {
            report.run.findings.insert("scalability".to_owned(), finding);
        }
        Ok(report)
    }

    fn sum_up(self) -> BenchReport {
        let busy_threads = self.busy_tasks().len();
        let threads = self.like.plan.shares(self.like.threads, self.like.share.0, self.like.share.1).len();
        let reached = self.steps.iter().map(|step| step.responses_per_s).fold(0.0, f64::max);
        let run = RunReport {
            schema: SCHEMA.to_owned(),
            schema_version: SCHEMA_VERSION,
            label: self.ask.url.to_string(),
            flatout_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: Vec::new(),
            begun_unix_ms: self.begun_unix_ms,
            url: self.ask.url.to_string(),
            address: match &self.like.unix_socket {
                Some(path) => path.display().to_string(),
                None => list_addresses(&self.like.addresses),
            },
            protocol: self.ask.protocol(),
            workload: self.ask.work.workload().describe(),
            seed: self.like.plan.seed,
            request_timeout_ns: self.ask.request_timeout_ns,
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            agents: 0,
            server_software: self.server.as_ref().ok().map(|target| target.name().to_owned()),
            machine: machine::here(),
            class_names: self.ask.work.workload().classes.iter().map(|class| class.name.clone()).collect(),
            steps: self.steps,
            limit: self.limit.as_ref().map(|limit| limit.report(reached)),
            thresholds: Vec::new(),
            findings: serde_json::Map::new(),
        };
        BenchReport {
            run,
            addresses_used: {
                let used = |address: &SocketAddr| self.addresses_used.contains(address);
                self.like.addresses.into_iter().filter(used).collect()
            },
            threads,
            server: self.server.map(|target| ServerFound {
                name: target.name().to_owned(),
                processes: target.processes().iter().copied().collect(),
                busy_threads,
            }),
            limit: self.limit,
            interrupted: self.interrupted,
            asked: self.ask,
        }
    }
}

impl Around {
    /// Combines the resource use of two parts, weighted by their durations.
    fn merge(self, other: Self, mine_ns: u64, theirs_ns: u64) -> Self {
        let (mine, theirs) = (mine_ns as f64, theirs_ns as f64);
        let weigh = |one: f64, two: f64| (one * mine + two * theirs) / (mine + theirs).max(1.0);
        let mean = |one: Option<f64>, two: Option<f64>| one.zip(two).map(|(one, two)| weigh(one, two));
        let server = self.server.zip(other.server).map(|(one, two)| {
            let sum = |one: Option<u64>, two: Option<u64>| one.zip(two).map(|(one, two)| one + two);
            let mut cpu = one.cpu;
            cpu.add(two.cpu);
            // Both halves have about the same number of responses.
            let costs = one.cpu_ns_per_response.zip(two.cpu_ns_per_response);
            ServerReport {
                cpu,
                cpu_ns_per_response: costs.map(|(one, two)| weigh(one, two)),
                cores_used: weigh(one.cores_used, two.cores_used),
                switches_voluntary: sum(one.switches_voluntary, two.switches_voluntary),
                switches_forced: sum(one.switches_forced, two.switches_forced),
                wait_cores: mean(one.wait_cores, two.wait_cores),
                crowded_cores: mean(one.crowded_cores, two.crowded_cores),
                cpu_clock: one.cpu_clock.max(two.cpu_clock),
                cpu_is_short: one.cpu_is_short || two.cpu_is_short,
                ..two
            }
        });
        let kernel = self.kernel.zip(other.kernel).map(|(one, two)| one.plus(two));
        let other_cpu_share = mean(self.other_cpu_share, other.other_cpu_share);
        Self { server, kernel, other_cpu_share, crowded_share: mean(self.crowded_share, other.crowded_share) }
    }
}

/// Notes at which levels the responses have other sizes than at the first level with successful ones: a server may send
/// a small page with an excuse when it is busy. Levels with the same load, as in a comparison, differ only by chance.
fn note_sizes(steps: &mut [StepReport]) {
    let Some(index) = steps.iter().position(|step| step.record.counts.successes() > 0) else { return };
    let (before, later) = steps.split_at_mut(index + 1);
    let first = &before[index];
    for step in later.iter_mut().filter(|step| step.plan != first.plan) {
        let sizes_first = (first.step, &first.record.sums.body_bytes);
        step.notes.extend(failing::sizes_differ(sizes_first, (step.step, &step.record.sums.body_bytes)));
    }
}

/// Checks whether there are enough local ports, if source addresses are specified or the server is remote. Over
/// loopback, a closed loop finds more ports by itself.
fn check_ports(plan: &Plan, ask: &BenchSpec, ports: Ports) -> Result<(), BenchError> {
    // QUIC connections share sockets, so they need no further ports. Connections to a Unix socket have none.
    let needs_none = matches!(ask.speech.version, HttpVersion::Http3 { .. }) || ask.unix_socket.is_some();
    if needs_none || !plan.is_open() && ask.sources.is_none() && ports.has_more {
        return Ok(());
    }
    ports.check(plan, ask.sources.unwrap_or(1)).map_err(BenchError::Ports)
}

/// Returns the time between the starts of two levels if agents start together, in nanoseconds: the plan's duration, and
/// some time for the last responses.
fn time_for(plan: &Plan) -> u64 {
    let run_ns = match plan.stop {
        Stop::After { duration_ns } | Stop::Tight { duration_ns_max: duration_ns, .. } => duration_ns,
        // The duration of a number of requests is unknown, so the next level starts when this one has finished.
        Stop::Count(_) => 0,
    };
    plan.unmeasured_ns_max().saturating_add(run_ns).saturating_add(LEVEL_GAP_NS)
}

fn per_response(cpu_ns: u64, answers: u64) -> Option<f64> {
    (answers > 0).then(|| cpu_ns as f64 / answers as f64)
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The TCP counters of the network namespace since boot; `None` if the kernel lacks them.
fn read_kernel_report() -> Option<KernelReport> {
    let names = ["RetransSegs", "ListenOverflows", "ListenDrops", "AttemptFails", "EstabResets"];
    let [tcp_retransmits, listen_overflows, listen_drops, connect_failures, resets] = read_tcp_counters(names)?;
    Some(KernelReport { tcp_retransmits, listen_overflows, listen_drops, connect_failures, resets })
}

/// Splits a plan into two halves; a single request has only one half. Plans whose length is decided during the run are
/// not split.
pub(super) fn halves(plan: &Plan) -> (Plan, Option<Plan>) {
    let (first, second) = match plan.stop {
        // The second half would begin with the rate of the start again.
        _ if plan.changes() => return (plan.clone(), None),
        Stop::After { duration_ns } => {
            let half_ns = duration_ns / 2;
            (Stop::After { duration_ns: half_ns }, Stop::After { duration_ns: duration_ns - half_ns })
        }
        Stop::Count(requests) => (Stop::Count(requests / 2), Stop::Count(requests - requests / 2)),
        Stop::Tight { .. } => return (plan.clone(), None),
    };
    let (first, second) = (Plan { stop: first, ..plan.clone() }, Plan { stop: second, ..plan.clone() });
    if first.check().is_err() { (second, None) } else { (first, Some(second)) }
}
