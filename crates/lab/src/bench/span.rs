//! One uninterrupted span of load: client threads from their start to their end, and what they recorded.
//!
//! A run is one span, or two with the machine's limit between them; the limit is a span as well. So the server and the
//! bare loop are measured by the very same client.

use super::BenchError;
use super::drive::{Board, LabDrive, Standing};
use super::progress::{Live, Phase, Progress};
use crate::cores::Placement;
use crate::procfs;
use flatout_load::{ConnectionUse, Plan, Recorder, RunFacts, ThreadPlan};
use flatout_net::client::{ClientSettings, WorkerReport, run_worker};
use flatout_net::clock::precise_ns;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often the live line is given something new.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// What a span sends, and where.
#[derive(Clone, Debug)]
pub(crate) struct SpanPlan {
    pub(crate) plan: Plan,
    pub(crate) address: SocketAddr,
    pub(crate) request: Arc<[u8]>,
    pub(crate) request_timeout_ns: u64,
    /// Where each client thread runs.
    pub(crate) placement: Placement,
    pub(crate) handle_interrupts: bool,
}

/// What came of a span, or of several added together.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) recorder: Recorder,
    pub(crate) facts: RunFacts,
}

impl Span {
    /// Adds a span that ran at another time.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.recorder.merge(&other.recorder);
        let (mine, theirs) = (&mut self.facts, &other.facts);
        let elapsed_ns = (mine.elapsed_ns + theirs.elapsed_ns).max(1);
        let weigh =
            |one: f64, two: f64| (one * mine.elapsed_ns as f64 + two * theirs.elapsed_ns as f64) / elapsed_ns as f64;
        mine.client_busy_share = weigh(mine.client_busy_share, theirs.client_busy_share);
        mine.client_wait_share = weigh(mine.client_wait_share, theirs.client_wait_share);
        mine.other_cpu_share = mine.other_cpu_share.zip(theirs.other_cpu_share).map(|(one, two)| weigh(one, two));
        mine.elapsed_ns = elapsed_ns;
        mine.client_cpu_ns += theirs.client_cpu_ns;
        mine.interrupted |= theirs.interrupted;
        mine.server_cpu_ns = mine.server_cpu_ns.zip(theirs.server_cpu_ns).map(|(mine, theirs)| mine + theirs);
    }
}

/// What one thread brings back.
struct ThreadOutcome {
    report: WorkerReport<LabDrive>,
    begun_ns: u64,
    wait_ns: u64,
}

/// Runs a span on threads of its own and waits for them, telling `progress` where they stand.
pub(crate) fn run_span(span: &SpanPlan, phase: Phase, progress: &mut dyn Progress) -> Result<Span, BenchError> {
    let is_live = progress.is_live();
    let (ended, ending) = mpsc::channel::<()>();
    let (mut threads, mut boards) = (Vec::new(), Vec::new());
    for (index, share) in span.plan.shares().into_iter().enumerate() {
        let board = is_live.then(Board::default);
        boards.extend(board.clone());
        let patience_ns = span.request_timeout_ns;
        let settings = ClientSettings {
            address: span.address,
            request: Arc::clone(&span.request),
            is_head: false,
            closes: span.plan.connection_use == ConnectionUse::PerRequest,
            connections: share.connections,
            request_timeout_ns: span.request_timeout_ns,
            handle_interrupts: span.handle_interrupts,
        };
        let recorder = Recorder::new().map_err(|_| BenchError::Recorder)?;
        let (placement, ended) = (span.placement, ended.clone());
        let thread = thread::Builder::new().name(format!("client-{index}")).spawn(move || {
            // Elsewhere than asked is better than not at all; the machine's cores are only a wish here.
            let _placed = placement.apply();
            let waited_ns = || procfs::read_own_sched_time().unwrap_or_default().wait_ns;
            let wait_before_ns = waited_ns();
            let begun_ns = precise_ns();
            let plan = ThreadPlan::begin(share, begun_ns, patience_ns);
            let report = run_worker(settings, LabDrive::new(plan, recorder, board));
            let wait_ns = waited_ns().saturating_sub(wait_before_ns);
            drop(ended);
            report.map(|report| ThreadOutcome { report, begun_ns, wait_ns })
        });
        threads.push(thread.map_err(BenchError::Thread)?);
    }
    drop(ended);
    // The channel carries nothing: it closes when the last thread has let go of it.
    while let Err(RecvTimeoutError::Timeout) = ending.recv_timeout(PROGRESS_INTERVAL) {
        progress.handle_live(phase, standing_of(&boards).as_ref());
    }
    let mut outcomes = Vec::new();
    for thread in threads {
        outcomes.push(thread.join().map_err(|_| BenchError::ThreadPanicked)?.map_err(BenchError::Thread)?);
    }
    sum_up(outcomes)
}

fn standing_of(boards: &[Board]) -> Option<Live> {
    let mut live: Option<Live> = None;
    for board in boards {
        let Some(standing) = board.lock().ok().and_then(|standing| standing.clone()) else { continue };
        let Standing { responses, failures, latency } = standing;
        live = Some(match live {
            None => Live { responses, failures, latency },
            Some(mut sum) => {
                let added = sum.latency.add(&latency);
                debug_assert!(added.is_ok(), "all recorders have the same bounds");
                Live { responses: sum.responses + responses, failures: sum.failures + failures, ..sum }
            }
        });
    }
    live
}

fn sum_up(outcomes: Vec<ThreadOutcome>) -> Result<Span, BenchError> {
    let mut recorder = Recorder::new().map_err(|_| BenchError::Recorder)?;
    let mut facts = RunFacts::default();
    let (mut first_ns, mut last_ns) = (u64::MAX, 0);
    for ThreadOutcome { report, begun_ns, wait_ns } in outcomes {
        let thread_ns = report.elapsed_ns.max(1) as f64;
        let (busy_share, wait_share) = (report.cpu_ns as f64 / thread_ns, wait_ns as f64 / thread_ns);
        if busy_share + wait_share > facts.client_busy_share + facts.client_wait_share {
            facts.client_busy_share = busy_share;
            facts.client_wait_share = wait_share;
        }
        (first_ns, last_ns) = (first_ns.min(begun_ns), last_ns.max(report.ended_ns));
        facts.client_cpu_ns += report.cpu_ns;
        facts.interrupted |= report.interrupted;
        recorder.merge(&report.drive.into_recorder());
    }
    facts.elapsed_ns = last_ns.saturating_sub(first_ns);
    Ok(Span { recorder, facts })
}
