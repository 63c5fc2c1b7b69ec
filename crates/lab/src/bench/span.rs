//! One uninterrupted span of load: the client threads from start to end, and their records.
//!
//! A level is one span, or two spans with the machine's limit between them. The limit is also measured as a span, so
//! the server and the bare loop are measured by the same client.

use super::BenchError;
use super::drive::{
    Driven, LabDrive, NOT_KNOWN, RequestSelection, SharedStatistics, Signals, Sums, ThreadProgress, Whole,
};
use super::progress::{Live, Phase, ProgressReceiver};
use super::watchdog::{ProcessStops, Watchdog};
use crate::cgroup::HeldBack;
use crate::cores::Placement;
use flatout_client::{ClientSettings, ClientTls, PreparedRequest, SharedStreams, Sources, WorkerReport, run_worker};
use flatout_load::judge::steady::WarmupDetector;
use flatout_load::judge::tight::TightWatch;
use flatout_load::plan::{CookieUse, Loop, Plan, PlanError, Share, Stop, WarmUp};
use flatout_load::record::{Hdr, Recorder, RecorderSettings};
use flatout_load::report::{Cpu, WarmUpReport};
use flatout_load::schedule::{Schedule, Tally};
use flatout_load::template::ValueSource;
use flatout_os::clock::precise_ns;
use flatout_os::procfs::{ProcessStat, read_sched_time};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

/// Interval of progress reports, in nanoseconds.
const PROGRESS_INTERVAL_NS: u64 = 250_000_000;

/// Number of finished requests from which on a span may end because too many failed; of fewer, one failure would be a
/// large share. A guess.
const STOP_REQUESTS_MIN: u64 = 20;

/// Length of the batches by which the warm-up and the precision of an estimate are judged.
const BATCH: Duration = Duration::from_millis(100);

/// Time from starting the threads to the start of the run, in nanoseconds, so that no thread is late. A guess: threads
/// start in a fraction of this time.
const START_DELAY_NS: u64 = 5_000_000;

/// Time from detecting the end of a warm-up to the start of the measured part, in nanoseconds. By then, every thread
/// has seen the signal.
const HEARING_NS: u64 = 150_000_000;

/// The load of a span, and the server that receives it.
#[derive(Clone, Debug)]
pub(crate) struct SpanPlan {
    pub(crate) plan: Plan,
    pub(crate) threads: u32,
    /// The server's addresses, which connections use in turn: at least one, unless the server is at a Unix socket.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Path of the server's Unix socket, if it is at one.
    pub(crate) unix_socket: Option<Arc<Path>>,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) streams: Option<SharedStreams>,
    pub(crate) requests: Arc<[PreparedRequest]>,
    /// The values of placeholders in requests.
    pub(crate) values: ValueSource,
    pub(crate) choice: RequestSelection,
    /// Number of source addresses, if specified.
    pub(crate) sources: Option<u32>,
    pub(crate) digest_every: u32,
    pub(crate) request_timeout_ns: u64,
    /// The cores on which each client thread may run.
    pub(crate) placement: Placement,
    /// True if client threads may poll without taking CPU time from the server.
    pub(crate) may_stay_awake: bool,
    pub(crate) handle_interrupts: bool,
    /// Share of failed requests above which the span ends early, 0 to 1, if specified.
    pub(crate) stop_when: Option<f64>,
    /// The share of the plan that this process runs: index, from 0, and number of shares.
    pub(crate) share: (u32, u32),
    /// Time at which the span starts, in nanoseconds on the monotonic clock, if specified.
    pub(crate) begin_at_ns: Option<u64>,
    /// Duration of resolving the server's name in nanoseconds, for the first span; 0 for further spans.
    pub(crate) resolve_ns: u64,
}

/// The result of one span, or of several spans combined.
#[derive(Debug)]
pub(crate) struct SpanResult {
    pub(crate) recorder: Recorder,
    pub(crate) tally: Tally,
    pub(crate) whole: Whole,
    pub(crate) loop_lag: Hdr,
    /// Length of the measured part in nanoseconds, in which load was offered.
    pub(crate) elapsed_ns: u64,
    /// Time from the start to the end of the span, including the warm-up, in nanoseconds.
    pub(crate) whole_ns: u64,
    pub(crate) warm_up: WarmUpReport,
    /// CPU time of the client threads in the measured part, without polling.
    pub(crate) client_cpu: Cpu,
    pub(crate) client_awake_ns: u64,
    /// Share of its time that the busiest thread was on a core, 0 to 1.
    pub(crate) busy_share: f64,
    pub(crate) wait_share: f64,
    /// Share of quota periods in which the process was throttled, if it has a CPU quota.
    pub(crate) held_back_share: Option<f64>,
    /// Time in the measured part for which this process did not run, because something had stopped it, in nanoseconds.
    pub(crate) stopped_ns: u64,
    pub(crate) interrupted: bool,
    /// The addresses of the server to which connections were started.
    pub(crate) addresses_used: BTreeSet<SocketAddr>,
    /// The share of failed requests because of which the span ended early.
    pub(crate) stopped_at_share: Option<f64>,
}

impl SpanResult {
    /// Appends the result of a later span, such as a second half.
    pub(crate) fn append(&mut self, other: &Self) -> Result<(), BenchError> {
        self.recorder.append(&other.recorder).map_err(|_| BenchError::Recorder)?;
        let slots_peak = self.tally.slots_peak.max(other.tally.slots_peak);
        let slots_unusable = self.tally.slots_unusable.max(other.tally.slots_unusable);
        self.add(other)?;
        (self.tally.slots_peak, self.tally.slots_unusable) = (slots_peak, slots_unusable);
        let (mine_ns, theirs_ns) = (self.whole_ns as f64, other.whole_ns as f64);
        let weigh = |one: f64, two: f64| (one * mine_ns + two * theirs_ns) / (mine_ns + theirs_ns).max(1.0);
        self.busy_share = weigh(self.busy_share, other.busy_share);
        self.wait_share = weigh(self.wait_share, other.wait_share);
        self.held_back_share = match (self.held_back_share, other.held_back_share) {
            (Some(one), Some(two)) => Some(weigh(one, two)),
            (one, two) => one.or(two),
        };
        self.elapsed_ns += other.elapsed_ns;
        self.stopped_ns += other.stopped_ns;
        self.whole_ns += other.whole_ns;
        Ok(())
    }

    /// Merges the result of another thread of the same span.
    fn merge(&mut self, other: &Self) -> Result<(), BenchError> {
        self.recorder.merge(&other.recorder).map_err(|_| BenchError::Recorder)?;
        self.add(other)?;
        // The busiest thread is the potential bottleneck.
        if other.busy_share + other.wait_share > self.busy_share + self.wait_share {
            (self.busy_share, self.wait_share) = (other.busy_share, other.wait_share);
        }
        Ok(())
    }

    /// Adds the values that do not depend on time.
    fn add(&mut self, other: &Self) -> Result<(), BenchError> {
        self.loop_lag.merge(&other.loop_lag).map_err(|_| BenchError::Recorder)?;
        self.tally.merge(&other.tally);
        self.whole.merge(&other.whole);
        self.client_cpu.add(other.client_cpu);
        self.client_awake_ns += other.client_awake_ns;
        self.interrupted |= other.interrupted;
        self.addresses_used.extend(&other.addresses_used);
        self.stopped_at_share = self.stopped_at_share.or(other.stopped_at_share);
        Ok(())
    }

    /// Returns the number of successful responses in the whole span, including the warm-up, by which CPU time is
    /// divided.
    pub(crate) fn answers_whole(&self) -> u64 {
        self.whole.successes
    }
}

/// The result of one thread.
struct ThreadOutcome {
    report: WorkerReport<LabDrive>,
    cpu: Cpu,
    wait_ns: u64,
}

/// Runs a span on new threads and waits for them. Reports to `progress` in the meantime.
pub(crate) fn run_span(
    span: &SpanPlan,
    phase: Phase,
    progress: &mut dyn ProgressReceiver,
) -> Result<SpanResult, BenchError> {
    progress.handle_begin(phase, &span.plan);
    let watchdog = Watchdog::begin().map_err(BenchError::Thread)?;
    let held_before = HeldBack::read();
    let is_live = progress.is_live();
    let (ended, ending) = mpsc::channel::<()>();
    let signals = Arc::new(Signals::new());
    let soon_ns = precise_ns() + START_DELAY_NS;
    let start_ns = span.begin_at_ns.map_or(soon_ns, |begin_ns| begin_ns.max(soon_ns));
    let (mut threads, mut statistics_by_thread) = (Vec::new(), Vec::new());
    let shares = span.plan.shares(span.threads, span.share.0, span.share.1);
    if shares.is_empty() {
        // There are more agents than connections.
        return Err(BenchError::Plan(PlanError::Connections(span.plan.connections)));
    }
    for share in shares {
        let statistics = Arc::new(SharedStatistics::default());
        statistics_by_thread.push(Arc::clone(&statistics));
        let (settings, drive) = thread_parts(span, share, start_ns, (&signals, &statistics), is_live)?;
        let (placement, ended) = (span.placement, ended.clone());
        let name = format!("client-{}", share.index);
        let thread = thread::Builder::new().name(name).spawn(move || {
            // It is better to run on other cores than not to run, so a failure is ignored.
            let _placed = placement.apply();
            let waited_ns = || read_sched_time("thread-self").unwrap_or_default().wait_ns;
            let ticks = || ProcessStat::read("thread-self").map(|stat| stat.own).unwrap_or_default();
            let (wait_before_ns, ticks_before) = (waited_ns(), ticks());
            let report = run_worker(settings, drive);
            let wait_ns = waited_ns().saturating_sub(wait_before_ns);
            let ticks = ticks().since(ticks_before);
            drop(ended);
            report.map(|report| ThreadOutcome {
                cpu: Cpu::split(report.counted.work_ns, ticks.user_share()),
                report,
                wait_ns,
            })
        });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                // Stop the other threads: without this thread, their results are useless.
                signals.stop.store(true, Ordering::Relaxed);
                for thread in threads {
                    drop(thread.join());
                }
                return Err(BenchError::Thread(error));
            }
        }
    }
    drop(ended);
    let mut attendant = Attendant::new(&span.plan, span.stop_when, start_ns);
    // The channel carries no messages. It closes when the last thread drops its sender.
    while let Err(RecvTimeoutError::Timeout) = ending.recv_timeout(BATCH) {
        let now_ns = precise_ns();
        attendant.attend(now_ns, &statistics_by_thread, &signals);
        if now_ns.saturating_sub(attendant.shown_ns) >= PROGRESS_INTERVAL_NS {
            attendant.shown_ns = now_ns;
            progress.handle_live(phase, standing_of(&statistics_by_thread).as_ref());
        }
    }
    let mut outcomes = Vec::new();
    for thread in threads {
        outcomes.push(thread.join().map_err(|_| BenchError::ThreadPanicked)?.map_err(BenchError::Thread)?);
    }
    let stops = watchdog.end().ok_or(BenchError::ThreadPanicked)?;
    let mut whole = sum_up(&span.plan, outcomes, start_ns, &attendant, &stops)?;
    whole.held_back_share = held_before.and_then(|before| Some(HeldBack::read()?.share_since(&before)));
    Ok(whole)
}

fn thread_parts(
    span: &SpanPlan,
    share: Share,
    start_ns: u64,
    (signals, statistics): (&Arc<Signals>, &Arc<SharedStatistics>),
    is_live: bool,
) -> Result<(ClientSettings, LabDrive), BenchError> {
    let mut addresses = span.addresses.clone();
    // The threads together use the addresses in turn.
    let first_connection = share.first_connection / span.streams.map_or(1, |streams| streams.per_connection.max(1));
    let first = first_connection as usize % addresses.len().max(1);
    addresses.rotate_left(first);
    let settings = ClientSettings {
        addresses: addresses.into(),
        unix_socket: span.unix_socket.clone(),
        tls: span.tls.clone(),
        streams: span.streams,
        requests: Arc::clone(&span.requests),
        values: span.values,
        slots: share.connections,
        sources: match span.sources {
            None => Sources::Automatic,
            Some(count) => Sources::Loopback { first: share.index, count },
        },
        request_timeout_ns: span.request_timeout_ns,
        stores_cookies: span.plan.cookies == CookieUse::Stored,
        digest_every: span.digest_every,
        stays_awake: stays_awake(span),
        handle_interrupts: span.handle_interrupts,
    };
    let schedule = Schedule::begin(&span.plan, share, start_ns).map_err(BenchError::Plan)?;
    let classes = span.choice.work.workload().classes.len();
    // If the end of the warm-up is still undetermined, so is the start of measuring.
    let measured_from_ns = schedule.measured_from_ns().unwrap_or(NOT_KNOWN);
    let recorder = Recorder::new(RecorderSettings { classes, start_ns, measured_from_ns });
    let (mut recorder, loop_lag) =
        (recorder.map_err(|_| BenchError::Recorder)?, Hdr::new().map_err(|_| BenchError::Recorder)?);
    recorder.expect(span.plan.expected.clone());
    if let Stop::After { duration_ns } = span.plan.stop {
        recorder.end_span_after(duration_ns);
    }
    let resolve_ns = if share.index == 0 { span.resolve_ns } else { 0 };
    let between = (Arc::clone(signals), Arc::clone(statistics));
    let drive = LabDrive::new(schedule, recorder, loop_lag, span.choice.clone(), between, (is_live, resolve_ns));
    Ok((settings, drive))
}

/// Maximum number of visits per second of a thread that polls. At a higher rate, the core does not sleep deeply enough
/// for the wake-up time to matter, and the time may be needed for work.
const AWAKE_PER_S_MAX: f64 = 2_000.0;

/// Returns whether client threads poll for due bursts and awaited responses. They do so only in an open loop, where the
/// schedule determines the starts, and only if polling takes no core from a local server.
fn stays_awake(span: &SpanPlan) -> bool {
    let Loop::Open(arrivals) = &span.plan.kind else { return false };
    // Connections with streams are read by separate tasks, whose work could not be distinguished from polling.
    span.may_stay_awake
        && span.streams.is_none()
        && arrivals.rate_mean() <= AWAKE_PER_S_MAX * f64::from(span.threads.max(1))
}

/// Observes a span: detects the end of the warm-up, and when the estimate is precise enough.
struct Attendant {
    shown_ns: u64,
    start_ns: u64,
    warming: Option<Warming>,
    /// True if a steady state was found; `None` before the end of the warm-up, or if none was requested.
    steady: Option<bool>,
    tight: Option<TightWatch>,
    /// Share of failed requests above which the span ends early.
    stop_when: Option<f64>,
    /// The share of failed requests because of which the span ended early.
    stopped_at_share: Option<f64>,
    /// True if the span ended early, because the estimate was precise enough or too many requests failed.
    stopped: bool,
    /// Start of the data on which the estimate is based, in nanoseconds.
    tight_from_ns: u64,
    before: Sums,
}

struct Warming {
    watch: WarmupDetector,
    /// End of the ramp, in which nothing is steady.
    from_ns: u64,
    until_ns: u64,
}

impl Attendant {
    fn new(plan: &Plan, stop_when: Option<f64>, start_ns: u64) -> Self {
        let warming = match plan.warm_up {
            WarmUp::Steady { .. } => Some(Warming {
                watch: WarmupDetector::new(),
                from_ns: start_ns.saturating_add(plan.ramp_ns),
                until_ns: start_ns.saturating_add(plan.unmeasured_ns_max()),
            }),
            WarmUp::None | WarmUp::For { .. } => None,
        };
        let tight = if let Stop::Tight { share, .. } = plan.stop { Some(TightWatch::new(share)) } else { None };
        let tight_from_ns = start_ns.saturating_add(plan.unmeasured_ns().unwrap_or(0));
        Self {
            shown_ns: start_ns,
            start_ns,
            warming,
            steady: None,
            tight,
            stop_when,
            stopped_at_share: None,
            stopped: false,
            tight_from_ns,
            before: Sums::default(),
        }
    }

    fn attend(&mut self, now_ns: u64, statistics_by_thread: &[Arc<SharedStatistics>], signals: &Signals) {
        if self.warming.is_none() && self.tight.is_none() && self.stop_when.is_none() {
            return;
        }
        let sums = sums_of(statistics_by_thread);
        // A span of which nothing is left to start ends by itself.
        let may_stop = !self.stopped && !sums.has_begun_all && sums.ended >= STOP_REQUESTS_MIN;
        if let Some(share_max) = self.stop_when.filter(|_| may_stop) {
            let share = sums.ended.saturating_sub(sums.successes) as f64 / sums.ended as f64;
            if share > share_max {
                self.stopped = true;
                self.stopped_at_share = Some(share);
                signals.stop.store(true, Ordering::Relaxed);
            }
        }
        let mean = |sum: (u64, u64), count: (u64, u64)| {
            let count = count.0.saturating_sub(count.1);
            (count > 0).then(|| sum.0.saturating_sub(sum.1) as f64 / count as f64)
        };
        let before = self.before;
        let service = mean((sums.service_ns, before.service_ns), (sums.answers, before.answers));
        let response = mean((sums.response_ns, before.response_ns), (sums.successes, before.successes));
        self.before = sums;
        if let Some(warming) = &mut self.warming {
            let is_steady = service.is_some_and(|mean| now_ns >= warming.from_ns && warming.watch.push(mean));
            if is_steady || now_ns >= warming.until_ns {
                self.warming = None;
                self.steady = Some(is_steady);
                let from_ns = now_ns + HEARING_NS;
                self.tight_from_ns = from_ns;
                signals.measured_from_ns.store(from_ns, Ordering::Relaxed);
            }
        } else if let (Some(tight), Some(mean), true) = (&mut self.tight, response, now_ns >= self.tight_from_ns)
            && tight.push(mean)
        {
            self.stopped = true;
            signals.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn sums_of(statistics_by_thread: &[Arc<SharedStatistics>]) -> Sums {
    let mut all = Sums { has_begun_all: true, ..Sums::default() };
    for statistics in statistics_by_thread {
        let sums = *statistics.sums.lock().unwrap_or_else(PoisonError::into_inner);
        all.has_begun_all &= sums.has_begun_all;
        all.ended += sums.ended;
        all.answers += sums.answers;
        all.successes += sums.successes;
        all.service_ns = all.service_ns.saturating_add(sums.service_ns);
        all.response_ns = all.response_ns.saturating_add(sums.response_ns);
    }
    all
}

fn standing_of(statistics_by_thread: &[Arc<SharedStatistics>]) -> Option<Live> {
    let mut live: Option<Live> = None;
    let (mut threads, mut sum_ns) = (0, 0);
    for statistics in statistics_by_thread {
        let Some(standing) = statistics.standing.lock().ok().and_then(|standing| standing.clone()) else { continue };
        let ThreadProgress { at_ns, statuses, responses, failures, unanswered, latency, lag } = standing;
        threads += 1;
        sum_ns += u128::from(at_ns);
        live = Some(match live {
            None => Live { at_ns, statuses, responses, failures, unanswered, latency, lag },
            Some(mut sum) => {
                let added = sum.latency.add(&latency).and_then(|()| sum.lag.add(&lag));
                debug_assert!(added.is_ok(), "all recorders have the same bounds");
                sum.statuses.merge(&statuses);
                Live {
                    responses: sum.responses + responses,
                    failures: sum.failures + failures,
                    unanswered: sum.unanswered + unanswered,
                    ..sum
                }
            }
        });
    }
    let at_ns = (sum_ns / threads.max(1)) as u64;
    live.map(|live| Live { at_ns, ..live })
}

fn sum_up(
    plan: &Plan,
    mut outcomes: Vec<ThreadOutcome>,
    start_ns: u64,
    attendant: &Attendant,
    stops: &ProcessStops,
) -> Result<SpanResult, BenchError> {
    let mut sum: Option<SpanResult> = None;
    let last_ns = outcomes.iter().map(|outcome| outcome.report.ended_ns).max().unwrap_or(start_ns);
    let whole_ns = last_ns.saturating_sub(start_ns);
    let is_cut_short = attendant.stopped || outcomes.iter().any(|outcome| outcome.report.interrupted);
    let recorders: Vec<&Recorder> = outcomes.iter().map(|outcome| outcome.report.drive.recorder()).collect();
    let measured_from_ns = match recorders.iter().map(|recorder| recorder.measured_from_ns).min() {
        None | Some(NOT_KNOWN) => last_ns,
        Some(from_ns) => from_ns.max(start_ns),
    };
    let until_ns = measured_from_ns.saturating_add(span_length_ns(plan, &recorders, measured_from_ns, is_cut_short));
    for outcome in &mut outcomes {
        outcome.report.drive.close_span(until_ns);
    }
    for ThreadOutcome { report, cpu, wait_ns } in outcomes {
        let Driven { mut recorder, tally, whole, loop_lag } = report.drive.finish(report.ended_ns);
        recorder.counts.cookies = report.cookies;
        let thread_ns = report.elapsed_ns.max(1) as f64;
        let part = SpanResult {
            recorder,
            tally,
            whole,
            loop_lag,
            elapsed_ns: 0,
            whole_ns,
            warm_up: WarmUpReport::default(),
            client_cpu: cpu,
            client_awake_ns: report.counted.awake_ns,
            busy_share: report.cpu.work_ns as f64 / thread_ns,
            wait_share: wait_ns as f64 / thread_ns,
            held_back_share: None,
            stopped_ns: 0,
            interrupted: report.interrupted,
            addresses_used: report.addresses_used.into_iter().collect(),
            stopped_at_share: attendant.stopped_at_share,
        };
        let Some(all) = &mut sum else {
            sum = Some(part);
            continue;
        };
        all.merge(&part)?;
    }
    let mut span = sum.ok_or(BenchError::ThreadPanicked)?;
    span.elapsed_ns = until_ns.saturating_sub(measured_from_ns);
    span.stopped_ns = stops.stopped_ns(measured_from_ns, until_ns);
    span.warm_up = WarmUpReport {
        elapsed_ns: measured_from_ns.saturating_sub(attendant.start_ns),
        samples: span.recorder.warm_up_samples,
        steady: attendant.steady,
    };
    Ok(span)
}

/// Returns the length of the measured part in nanoseconds, in which load was offered. A plan by time specifies it. In a
/// plan by count, or an interrupted run, the part ends when the last request starts; in an open loop, the following gap
/// is added. If at least half of all requests are in progress at that time, as with ten requests over ten connections,
/// the part ends when the last request finishes.
fn span_length_ns(plan: &Plan, recorders: &[&Recorder], measured_from_ns: u64, is_cut_short: bool) -> u64 {
    if let (Stop::After { duration_ns }, false) = (plan.stop, is_cut_short) {
        return duration_ns;
    }
    let most = |of: fn(&Recorder) -> u64| recorders.iter().map(|recorder| of(recorder)).max().unwrap_or(0);
    let gap_ns = plan.visits_per_s().filter(|_| plan.is_open()).map_or(0, |rate| (1e9 / rate.max(1e-9)) as u64);
    let offered_ns = most(|recorder| recorder.intended_span_ns).saturating_add(gap_ns);
    let offered_ns = if plan.is_open() { offered_ns } else { 0 };
    let length_ns = offered_ns.max(most(|recorder| recorder.begun_span_ns));
    let until_ns = measured_from_ns.saturating_add(length_ns);
    let late: u64 = recorders.iter().map(|recorder| recorder.late_after(until_ns)).sum();
    let ended: u64 = recorders.iter().map(|recorder| recorder.in_flight.ended).sum();
    if 2 * late >= ended {
        return most(|recorder| recorder.last_ended_ns).saturating_sub(measured_from_ns).max(length_ns);
    }
    match plan.stop {
        Stop::After { duration_ns } | Stop::Tight { duration_ns_max: duration_ns, .. } => length_ns.min(duration_ns),
        Stop::Count(_) => length_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::{Attendant, NOT_KNOWN, SharedStatistics, Signals};
    use flatout_load::plan::{Plan, WarmUp};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_warm_up_is_not_over_before_the_end_of_the_ramp() {
        const SECOND_NS: u64 = 1_000_000_000;
        let end_of_warm_up = |ramp_ns: u64| {
            let warm_up = WarmUp::Steady { duration_ns_max: 60 * SECOND_NS };
            let plan = Plan { warm_up, ramp_ns, ..Plan::default() };
            let (signals, statistics) = (Signals::new(), [Arc::new(SharedStatistics::default())]);
            let mut attendant = Attendant::new(&plan, None, SECOND_NS);
            // The service time is the same throughout.
            let mut times = (0..).map(|batch: u64| SECOND_NS + batch * SECOND_NS / 10);
            let found = times.find(|now_ns| {
                {
                    let mut sums = statistics[0].sums.lock().unwrap();
                    sums.answers += 10;
                    sums.service_ns += 10_000_000;
                }
                attendant.attend(*now_ns, &statistics, &signals);
                signals.measured_from_ns.load(Ordering::Relaxed) != NOT_KNOWN
            });
            assert_eq!(attendant.steady, Some(true));
            found.unwrap() - SECOND_NS
        };
        let without = end_of_warm_up(0);
        assert!(without < 20 * SECOND_NS, "{without}");
        assert_eq!(end_of_warm_up(20 * SECOND_NS), 20 * SECOND_NS + without);
    }
}
