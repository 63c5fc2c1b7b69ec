//! What the connections of one thread share, and a worker's life: start, serve, drain.

use super::accept::Acceptors;
use super::settings::Settings;
use crate::access::{Answer, Description, LogSet, Logged, Peer, Staged, WorkerLog};
use crate::clock::{DateClock, Now, precise_ns, unix_ms};
use crate::counters::Counters;
use crate::deadline::{Call, Deadlines};
use crate::handler::Handler;
use crate::http2::settings::WINDOW_GROWTH_BYTES_MAX;
use crate::memory::CrowdMemory;
use crate::runtime::build_server_runtime;
use crate::timer::Timer;
use crate::tls::TlsServer;
use crate::windows::WindowBudget;
use http::HeaderValue;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
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
    /// Another process accepts from the same listeners: accept nothing more, not even what is queued, finish what is
    /// under way, and let each idle connection ask once more, to be told that it ends.
    HandOver,
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
    /// For listeners that speak TLS.
    pub(crate) tls: Option<Arc<TlsServer>>,
    /// The Date as HTTP/2 has it, and the second it is of.
    pub(crate) http2_date: RefCell<(i64, HeaderValue)>,
    pub(crate) input: RefCell<Box<[u8]>>,
    pub(crate) output: RefCell<Vec<u8>>,
    pub(crate) deadlines: RefCell<Deadlines>,
    /// What windows of HTTP/2 may grow by.
    pub(crate) windows: Rc<WindowBudget>,
    pub(crate) draining: Cell<bool>,
    pub(crate) handing_over: Cell<bool>,
    /// A listener waits for a descriptor.
    pub(crate) starved: Cell<bool>,
    /// Connections registered with the runtime.
    pub(crate) open: Cell<usize>,
    /// Streams of HTTP/2 that are under way.
    pub(crate) streams: Cell<usize>,
    /// A connection opened or closed, or, while stopping, time has passed.
    pub(crate) changed: Notify,
    log: RefCell<WorkerLog>,
    /// Whether there is any log.
    logs: Cell<bool>,
}

impl<H: Handler> Worker<H> {
    /// Whether requests are logged; only then does a connection need its client's address.
    pub(crate) const fn logs(&self) -> bool {
        self.logs.get()
    }

    /// The precise clock, when there is a log to use it.
    pub(crate) fn logged_ns(&self) -> u64 {
        if self.logs() { precise_ns() } else { 0 }
    }

    /// Stages the line of a request that has its answer.
    pub(crate) fn stage<'a>(&self, peer: Peer, logged: Logged<'_>, answer: impl FnOnce() -> Answer<'a>) {
        if self.logs() {
            self.log.borrow_mut().stage(peer, unix_ms(), logged, &answer());
        }
    }

    /// What will be logged of a request whose answer is not known yet.
    pub(crate) fn describe(&self, peer: Peer, logged: Logged<'_>) -> Option<Description> {
        self.logs().then(|| self.log.borrow().describe(peer, unix_ms(), logged))
    }

    /// Stages the line of a request described before.
    pub(crate) fn stage_described<'a>(&self, description: Option<&Description>, answer: impl FnOnce() -> Answer<'a>) {
        if let Some(description) = description {
            self.log.borrow_mut().stage_described(description, &answer());
        }
    }

    /// The response staged last ends with the output, which has `output_bytes`.
    pub(crate) fn mark_staged(&self, output_bytes: usize) {
        if self.logs() {
            self.log.borrow_mut().mark(output_bytes);
        }
    }

    /// Commits the staged lines whose responses lie within the `taken` bytes of output that the kernel has taken, and
    /// takes the others away.
    pub(crate) fn take_staged(&self, taken: usize) -> Staged {
        if !self.log.borrow().has_staged() {
            return Staged::default();
        }
        let unsent = self.log.borrow_mut().take_staged(taken, precise_ns());
        self.await_sweep();
        unsent
    }

    /// The staged lines' responses ended with `ending`.
    pub(crate) fn commit(&self, ending: &'static str) {
        if self.log.borrow().has_staged() {
            self.log.borrow_mut().commit(ending, precise_ns());
            self.await_sweep();
        }
    }

    pub(crate) fn commit_staged(&self, staged: &Staged, ending: &'static str) {
        if !staged.is_empty() {
            self.log.borrow_mut().commit_staged(staged, ending, precise_ns());
            self.await_sweep();
        }
    }

    /// From now on the logs are these.
    pub(crate) fn adopt_logs(&self, set: &LogSet) {
        let mut log = self.log.borrow_mut();
        log.adopt(set);
        self.logs.set(log.is_on());
    }

    /// Wakes the sweep, which hands the lines to the writer: there may be no registered connection to keep it awake.
    fn await_sweep(&self) {
        if self.open.get() == 0 {
            self.changed.notify_waiters();
        }
    }

    /// The Date's value for HTTP/2, as of the clock's last reading.
    pub(crate) fn http2_date(&self) -> HeaderValue {
        let unix_s = self.clock.latest().unix_s;
        let mut date = self.http2_date.borrow_mut();
        if date.0 != unix_s {
            // A date is made of letters, digits, commas and colons.
            if let Ok(value) = HeaderValue::from_bytes(&self.clock.date()) {
                *date = (unix_s, value);
            }
        }
        date.1.clone()
    }

    pub(crate) fn give_back_output(&self) {
        self.output.borrow_mut().shrink_to(OUTPUT_BYTES_KEPT);
    }
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 without TLS.
    Plain {
        /// HTTP/2 with prior knowledge too (RFC 9113 §3.3).
        http2: bool,
    },
    /// TLS, and what ALPN agrees on.
    Tls,
}

/// One listener of one worker.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub fd: OwnedFd,
    /// What handlers and commands know it by; the same for all workers' listeners of one address.
    pub id: u32,
    /// What is spoken there.
    pub protocol: Protocol,
}

/// What a worker is told while it runs.
pub enum Command<H> {
    /// Accept from this listener too.
    AddListener(Listener),
    /// Take what is queued at the listeners of this number, and close them. Connections go on.
    RemoveListener(u32),
    /// Tell the handler something. It runs between two turns, so it must not block.
    Handler(Box<dyn FnOnce(&H) + Send>),
    /// From now on the logs are these; and tell the handler, whose answers mean their indexes, in the same moment.
    Logs(LogSet, Box<dyn FnOnce(&H) + Send>),
}

/// Where one worker's commands are given and taken.
pub fn command_channel<H>() -> (UnboundedSender<Command<H>>, UnboundedReceiver<Command<H>>) {
    unbounded_channel()
}

/// What a worker is made of.
pub struct WorkerParts<H> {
    /// Answers the requests.
    pub handler: H,
    /// Timeouts and limits.
    pub settings: Settings,
    /// Certificates and sessions, shared by all workers; needed when a listener speaks TLS.
    pub tls: Option<Arc<TlsServer>>,
    /// This worker's own listeners.
    pub listeners: Vec<Listener>,
    /// What it is told while it runs.
    pub commands: UnboundedReceiver<Command<H>>,
    /// Where requests are logged, if they are: this worker's side of the logs.
    pub log: WorkerLog,
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
        tls: parts.tls,
        http2_date: RefCell::new((i64::MIN, HeaderValue::from_static(""))),
        input: RefCell::new(vec![0; INPUT_BYTES].into_boxed_slice()),
        output: RefCell::new(Vec::new()),
        deadlines: RefCell::new(Deadlines::default()),
        windows: WindowBudget::new(WINDOW_GROWTH_BYTES_MAX),
        draining: Cell::new(false),
        handing_over: Cell::new(false),
        starved: Cell::new(false),
        open: Cell::new(0),
        streams: Cell::new(0),
        changed: Notify::new(),
        logs: Cell::new(parts.log.is_on()),
        log: RefCell::new(parts.log),
    });
    let report = runtime.block_on(async {
        worker.handler.begin();
        let companion = spawn_local(companion);
        let report = serve(Rc::clone(&worker), parts.listeners, parts.commands, parts.phases).await;
        companion.abort();
        report
    });
    worker.log.borrow_mut().finish();
    report
}

async fn serve<H: Handler>(
    worker: Rc<Worker<H>>,
    listeners: Vec<Listener>,
    commands: UnboundedReceiver<Command<H>>,
    mut phases: watch::Receiver<Phase>,
) -> io::Result<WorkerReport> {
    let acceptors = Acceptors::new(Rc::clone(&worker), phases.clone());
    for listener in listeners {
        acceptors.add(listener)?;
    }
    let obedience = spawn_local(obey(Rc::clone(&worker), Rc::clone(&acceptors), commands));
    let timer = Timer::new()?;
    let sweeper = spawn_local(sweep_deadlines(Rc::clone(&worker), timer));
    // An error means that the sender is gone, which can only mean that all is over.
    let _ = phases.wait_for(|phase| *phase != Phase::Serve).await;
    worker.draining.set(true);
    // Each takes what the kernel has queued, so that nobody who is connected is reset.
    acceptors.finish().await;
    if *phases.borrow() == Phase::HandOver {
        worker.handing_over.set(true);
        wait_until_gone(&worker, phases.clone(), worker.settings.timeouts.hand_over_timeout_ms, |phase| {
            phase != Phase::HandOver
        })
        .await;
        worker.handing_over.set(false);
    }
    worker.deadlines.borrow_mut().call_all(Call::Drain);
    let drain_timeout_ms = worker.settings.timeouts.drain_timeout_ms;
    wait_until_gone(&worker, phases, drain_timeout_ms, |phase| phase == Phase::Abandon).await;
    let connections_cut = worker.open.get();
    while worker.open.get() > 0 {
        // Again at each sweep: a connection opened just now may not have had a place in the table.
        worker.deadlines.borrow_mut().call_all(Call::Abandon);
        worker.changed.notified().await;
    }
    sweeper.abort();
    obedience.abort();
    Ok(WorkerReport { connections_cut })
}

/// Does what it is told, one command after the other, until nobody is left to tell.
async fn obey<H: Handler>(
    worker: Rc<Worker<H>>,
    acceptors: Rc<Acceptors<H>>,
    mut commands: UnboundedReceiver<Command<H>>,
) {
    while let Some(command) = commands.recv().await {
        match command {
            // A listener that the runtime does not take is closed; the kernel gives its connections to the others.
            Command::AddListener(listener) => {
                let _ = acceptors.add(listener);
            }
            Command::RemoveListener(id) => acceptors.remove(id),
            Command::Handler(tell) => tell(&worker.handler),
            Command::Logs(set, tell) => {
                worker.adopt_logs(&set);
                tell(&worker.handler);
            }
        }
    }
}

/// Waits until no connection is left, `timeout_ms` have passed, or the phase is one to `leave` in.
async fn wait_until_gone<H: Handler>(
    worker: &Worker<H>,
    mut phases: watch::Receiver<Phase>,
    timeout_ms: u64,
    leave: impl Fn(Phase) -> bool,
) {
    let deadline_ms = Now::read().monotonic_ms.saturating_add(timeout_ms);
    let mut abandoned = pin!(phases.wait_for(|phase| leave(*phase)));
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
        memory.handle_count(worker.open.get() + worker.streams.get(), Now::read().monotonic_ms);
        let is_idle = worker.open.get() == 0 && !worker.starved.get() && worker.log.borrow().is_empty();
        if is_idle && !memory.is_due() {
            let _ = timer.set_interval(0);
            worker.changed.notified().await;
            let _ = timer.set_interval(interval_ms);
            continue;
        }
        if timer.tick().await.is_err() {
            // A timerfd that was made does not fail; should it, connections live without deadlines.
            return;
        }
        worker.log.borrow_mut().flush();
        worker.deadlines.borrow_mut().handle_time(Now::read().monotonic_ms);
        worker.give_back_output();
        // Whoever waits for a descriptor, or for the end, looks again.
        worker.changed.notify_waiters();
    }
}
