//! What the connections of one thread share, and a worker's life: start, serve, drain.

use super::accept::accept_connections;
use super::settings::Settings;
use crate::access::{AccessLog, Answer, Description, Logged, Staged};
use crate::clock::{DateClock, Now, precise_ns};
use crate::counters::Counters;
use crate::deadline::{Call, Deadlines};
use crate::handler::Handler;
use crate::memory::CrowdMemory;
use crate::runtime::build_server_runtime;
use crate::timer::Timer;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{Notify, watch};
use tokio::task::spawn_local;

/// One receive takes so much at the most. The buffer is shared by all connections of a worker: an idle one owns none.
const INPUT_BYTES: usize = 32 * 1024;

/// The output buffer is given back to this size when a crowd of pipelined requests has made it larger.
const OUTPUT_BYTES_KEPT: usize = 256 * 1024;

/// What the whole server is doing; workers follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Serve.
    Serve,
    /// Accept nothing new, finish what is under way.
    Drain,
    /// Leave at once.
    Abandon,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// Connections that had to be cut because the drain deadline passed or nobody wanted to wait.
    pub connections_cut: usize,
}

/// What the connections of one thread share.
pub(crate) struct Worker<H> {
    pub(crate) handler: H,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: DateClock,
    pub(crate) input: RefCell<Box<[u8]>>,
    pub(crate) output: RefCell<Vec<u8>>,
    pub(crate) deadlines: RefCell<Deadlines>,
    pub(crate) draining: Cell<bool>,
    /// A listener waits for a descriptor.
    pub(crate) starved: Cell<bool>,
    /// Connections registered with the runtime.
    pub(crate) open: Cell<usize>,
    /// A connection opened or closed, or, while stopping, time has passed.
    pub(crate) changed: Notify,
    access: Option<RefCell<AccessLog>>,
}

impl<H: Handler> Worker<H> {
    /// Whether requests are logged; only then does a connection need its client's address.
    pub(crate) const fn logs(&self) -> bool {
        self.access.is_some()
    }

    /// The precise clock, when there is a log to use it.
    pub(crate) fn logged_ns(&self) -> u64 {
        if self.access.is_some() { precise_ns() } else { 0 }
    }

    pub(crate) fn stage(
        &self,
        client: Option<SocketAddr>,
        now: Now,
        logged: Logged<'_>,
        answer: impl FnOnce() -> Answer,
    ) {
        if let Some(access) = &self.access {
            access.borrow_mut().stage(client, now.unix_s, logged, answer());
        }
    }

    pub(crate) fn describe(&self, client: Option<SocketAddr>, now: Now, logged: Logged<'_>) -> Option<Description> {
        self.access.as_ref().map(|access| access.borrow_mut().describe(client, now.unix_s, logged))
    }

    pub(crate) fn stage_described(&self, description: Option<&Description>, answer: impl FnOnce() -> Answer) {
        if let (Some(access), Some(description)) = (&self.access, description) {
            access.borrow_mut().stage_described(description, answer());
        }
    }

    pub(crate) fn take_staged(&self) -> Staged {
        self.access.as_ref().map(|access| access.borrow_mut().take_staged()).unwrap_or_default()
    }

    /// The staged lines' responses ended with `ending`.
    pub(crate) fn commit(&self, ending: &'static str) {
        if let Some(access) = &self.access {
            let mut access = access.borrow_mut();
            access.commit(ending, precise_ns());
            if access.is_full() {
                self.counters.log_lines_lost.add(access.flush());
            }
            self.await_sweep();
        }
    }

    pub(crate) fn commit_staged(&self, staged: &Staged, ending: &'static str) {
        if let Some(access) = &self.access {
            access.borrow_mut().commit_staged(staged, ending, precise_ns());
            self.await_sweep();
        }
    }

    /// Wakes the sweep, which writes the log: there may be no registered connection to keep it awake.
    fn await_sweep(&self) {
        if self.open.get() == 0 {
            self.changed.notify_waiters();
        }
    }

    fn has_unwritten_log(&self) -> bool {
        self.access.as_ref().is_some_and(|access| !access.borrow().is_empty())
    }

    fn flush_log(&self) {
        if let Some(access) = &self.access {
            self.counters.log_lines_lost.add(access.borrow_mut().flush());
        }
    }

    pub(crate) fn give_back_output(&self) {
        self.output.borrow_mut().shrink_to(OUTPUT_BYTES_KEPT);
    }
}

/// What a worker is made of.
pub struct WorkerParts<H> {
    /// Answers the requests.
    pub handler: H,
    /// Timeouts and limits.
    pub settings: Settings,
    /// This worker's own listeners.
    pub listeners: Vec<OwnedFd>,
    /// Where requests are logged, if they are.
    pub access_file: Option<Arc<File>>,
    /// Where this worker counts; nobody else may write there.
    pub counters: Arc<Counters>,
    /// What the whole server is doing.
    pub phases: watch::Receiver<Phase>,
}

/// Runs one worker on the current thread until its phase says to stop and its connections are gone. `companion` runs
/// beside it and is dropped at the end.
pub fn run_worker<H: Handler>(
    parts: WorkerParts<H>,
    companion: impl Future<Output = ()> + 'static,
) -> io::Result<WorkerReport> {
    let runtime = build_server_runtime()?;
    let worker = Rc::new(Worker {
        handler: parts.handler,
        settings: parts.settings,
        counters: parts.counters,
        clock: DateClock::new(),
        input: RefCell::new(vec![0; INPUT_BYTES].into_boxed_slice()),
        output: RefCell::new(Vec::new()),
        deadlines: RefCell::new(Deadlines::default()),
        draining: Cell::new(false),
        starved: Cell::new(false),
        open: Cell::new(0),
        changed: Notify::new(),
        access: parts.access_file.map(|file| RefCell::new(AccessLog::new(file))),
    });
    let report = runtime.block_on(async {
        let companion = spawn_local(companion);
        let report = serve(Rc::clone(&worker), parts.listeners, parts.phases).await;
        companion.abort();
        report
    });
    worker.flush_log();
    report
}

async fn serve<H: Handler>(
    worker: Rc<Worker<H>>,
    listeners: Vec<OwnedFd>,
    mut phases: watch::Receiver<Phase>,
) -> io::Result<WorkerReport> {
    let mut acceptors = Vec::new();
    for listener in listeners {
        acceptors.push(spawn_local(accept_connections(Rc::clone(&worker), listener, phases.clone())?));
    }
    let timer = Timer::new()?;
    let sweeper = spawn_local(sweep_deadlines(Rc::clone(&worker), timer));
    // An error means that the sender is gone, which can only mean that all is over.
    let _ = phases.wait_for(|phase| *phase != Phase::Serve).await;
    worker.draining.set(true);
    let deadline_ms = Now::read().monotonic_ms.saturating_add(worker.settings.timeouts.drain_timeout_ms);
    for acceptor in acceptors {
        // Each has taken what the kernel had queued, so that nobody who was connected is reset.
        let _ = acceptor.await;
    }
    worker.deadlines.borrow_mut().call_all(Call::Drain);
    drain(&worker, phases, deadline_ms).await;
    let connections_cut = worker.open.get();
    while worker.open.get() > 0 {
        // Again at each sweep: a connection opened just now may not have had a place in the table.
        worker.deadlines.borrow_mut().call_all(Call::Abandon);
        worker.changed.notified().await;
    }
    sweeper.abort();
    Ok(WorkerReport { connections_cut })
}

/// Waits until no connection is left, `deadline_ms` passes, or the phase says to leave.
async fn drain<H: Handler>(worker: &Worker<H>, mut phases: watch::Receiver<Phase>, deadline_ms: u64) {
    let mut abandoned = pin!(phases.wait_for(|phase| *phase == Phase::Abandon));
    loop {
        if worker.open.get() == 0 || Now::read().monotonic_ms >= deadline_ms {
            return;
        }
        let mut changed = pin!(worker.changed.notified());
        let abandon = poll_fn(|context| {
            if abandoned.as_mut().poll(context).is_ready() {
                return Poll::Ready(true);
            }
            changed.as_mut().poll(context).map(|()| false)
        })
        .await;
        if abandon {
            return;
        }
    }
}

/// Looks through the deadlines, and writes the log, while there are connections or lines; rests when there are none.
async fn sweep_deadlines<H: Handler>(worker: Rc<Worker<H>>, timer: Timer) {
    let interval_ms = worker.settings.timeouts.sweep_interval_ms();
    let memory = CrowdMemory::default();
    loop {
        memory.handle_count(worker.open.get());
        if worker.open.get() == 0 && !worker.starved.get() && !worker.has_unwritten_log() {
            let _ = timer.set_interval(0);
            worker.changed.notified().await;
            let _ = timer.set_interval(interval_ms);
            continue;
        }
        if timer.tick().await.is_err() {
            // A timerfd that was made does not fail; should it, connections live without deadlines.
            return;
        }
        worker.flush_log();
        worker.deadlines.borrow_mut().handle_time(Now::read().monotonic_ms);
        worker.give_back_output();
        // Whoever waits for a descriptor, or for the end, looks again.
        worker.changed.notify_waiters();
    }
}
