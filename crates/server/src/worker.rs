//! State shared by the connections of one thread, and a worker's life: start, serve, drain.

use super::accept::Acceptors;
use super::settings::Settings;
use crate::counters::Counters;
use crate::date_clock::DateClock;
use crate::deadline::{Call, Deadlines};
use crate::http2::settings::WINDOW_GROWTH_BYTES_MAX;
use flatout_access_log::{Description, LogSet, Logged, LoggedPeer, LoggedResponse, Staged, WorkerLog};
use flatout_handler::Handler;
use flatout_http::http2::fields::FieldBlock;
use flatout_http::http2::hpack::encode_field;
use flatout_net::tls::TlsServer;
use flatout_net::windows::WindowBudget;
use flatout_os::clock::{Now, precise_ns, unix_ms};
use flatout_os::memory::CrowdMemory;
use flatout_os::runtime::build_server_runtime;
use flatout_os::timer::Timer;
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

/// Upper bound of one receive, in bytes. The buffer is shared by all connections of a worker: an idle one owns none.
const INPUT_BYTES: usize = 32 * 1024;

/// Capacity to which the output buffer is shrunk after many pipelined requests, in bytes.
const OUTPUT_BYTES_KEPT: usize = 256 * 1024;

/// The phase of the whole server, which all workers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Serve.
    Serve,
    /// Another process accepts from the same listeners: accept nothing more, including queued connections, finish
    /// exchanges in progress, and let each idle connection send one more request, whose response announces the close.
    HandOver,
    /// Accept nothing new, finish exchanges in progress.
    Drain,
    /// Close everything immediately.
    Abandon,
}

/// The result of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// Connections that were cut because the drain deadline passed or the server was stopped immediately.
    pub connections_cut: usize,
}

/// State shared by the connections of one thread.
pub(crate) struct Worker<H> {
    pub(crate) handler: H,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: DateClock,
    /// For listeners that use TLS.
    pub(crate) tls: Option<Arc<TlsServer>>,
    /// The field Date in HTTP/2 form, and its second.
    http2_date: RefCell<(i64, Vec<u8>)>,
    /// The field section of the HTTP/2 request being handled.
    pub(crate) fields: RefCell<FieldBlock>,
    pub(crate) input: RefCell<Box<[u8]>>,
    pub(crate) output: RefCell<Vec<u8>>,
    pub(crate) deadlines: RefCell<Deadlines>,
    /// The budget for HTTP/2 window growth.
    pub(crate) windows: Rc<WindowBudget>,
    pub(crate) draining: Cell<bool>,
    pub(crate) handing_over: Cell<bool>,
    /// A listener waits for a descriptor.
    pub(crate) starved: Cell<bool>,
    /// Connections registered with the runtime.
    pub(crate) open: Cell<usize>,
    /// HTTP/2 streams in progress.
    pub(crate) streams: Cell<usize>,
    /// Notified when a connection opens or closes and, while stopping, as time passes.
    pub(crate) changed: Notify,
    log: RefCell<WorkerLog>,
    /// True if there is any log.
    logs: Cell<bool>,
}

impl<H: Handler> Worker<H> {
    /// Returns whether requests are logged; only then does a connection need its client's address.
    pub(crate) const fn logs(&self) -> bool {
        self.logs.get()
    }

    /// The precise clock if there is a log, else 0.
    pub(crate) fn logged_ns(&self) -> u64 {
        if self.logs() { precise_ns() } else { 0 }
    }

    /// Stages the line of a request with its response.
    pub(crate) fn stage<'a>(&self, peer: LoggedPeer, logged: Logged<'_>, answer: impl FnOnce() -> LoggedResponse<'a>) {
        if self.logs() {
            self.log.borrow_mut().stage(peer, unix_ms(), logged, &answer());
        }
    }

    /// The data to log of a request whose response is not known yet.
    pub(crate) fn describe(&self, peer: LoggedPeer, logged: Logged<'_>) -> Option<Description> {
        self.logs().then(|| self.log.borrow().describe(peer, unix_ms(), logged))
    }

    /// Stages the line of a request from its description.
    pub(crate) fn stage_described<'a>(
        &self,
        description: Option<&Description>,
        answer: impl FnOnce() -> LoggedResponse<'a>,
    ) {
        if let Some(description) = description {
            self.log.borrow_mut().stage_described(description, &answer());
        }
    }

    /// Records that the last staged response ends with the output, which has `output_bytes`.
    pub(crate) fn mark_staged(&self, output_bytes: usize) {
        if self.logs() {
            self.log.borrow_mut().mark(output_bytes);
        }
    }

    /// Commits the staged lines whose responses lie within the `taken` bytes sent, and returns the others.
    pub(crate) fn take_staged(&self, taken: usize) -> Staged {
        if !self.log.borrow().has_staged() {
            return Staged::default();
        }
        let unsent = self.log.borrow_mut().take_staged(taken, precise_ns());
        self.await_sweep();
        unsent
    }

    /// Commits the staged lines with `ending`.
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

    /// Switches to these logs.
    pub(crate) fn adopt_logs(&self, set: &LogSet) {
        let mut log = self.log.borrow_mut();
        log.adopt(set);
        self.logs.set(log.is_on());
    }

    /// Wakes the sweep, which flushes the lines: there may be no registered connection that keeps it running.
    fn await_sweep(&self) {
        if self.open.get() == 0 {
            self.changed.notify_waiters();
        }
    }

    /// Appends the field Date for HTTP/2, as of the clock's last reading.
    pub(crate) fn append_http2_date(&self, output: &mut Vec<u8>) {
        let unix_s = self.clock.latest().unix_s;
        let (date_s, field) = &mut *self.http2_date.borrow_mut();
        if *date_s != unix_s {
            field.clear();
            encode_field(b"date", &self.clock.date(), field);
            *date_s = unix_s;
        }
        output.extend_from_slice(field);
    }

    pub(crate) fn give_back_output(&self) {
        self.output.borrow_mut().shrink_to(OUTPUT_BYTES_KEPT);
    }
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 without TLS.
    Plain {
        /// True if HTTP/2 with prior knowledge is accepted (RFC 9113 §3.3).
        http2: bool,
    },
    /// TLS, with the protocol that ALPN negotiates.
    Tls,
}

/// One listener of one worker.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub fd: OwnedFd,
    /// Its identifier in handlers and commands; the same for all workers' listeners of one address.
    pub id: u32,
    /// Its protocol.
    pub protocol: Protocol,
}

/// A command to a running worker.
pub enum Command<H> {
    /// Accept from this listener.
    AddListener(Listener),
    /// Accept the connections queued at the listeners of this number, and close them. Connections continue.
    RemoveListener(u32),
    /// Call this with the handler. It runs between two turns, so it must not block.
    Handler(Box<dyn FnOnce(&H) + Send>),
    /// Switch to these logs, and call this with the handler in the same moment, as its responses contain their
    /// indexes.
    Logs(LogSet, Box<dyn FnOnce(&H) + Send>),
}

/// A channel that carries the phase of the server.
pub fn phase_channel() -> (watch::Sender<Phase>, watch::Receiver<Phase>) {
    watch::channel(Phase::Serve)
}

/// A channel for one worker's commands.
pub fn command_channel<H>() -> (UnboundedSender<Command<H>>, UnboundedReceiver<Command<H>>) {
    unbounded_channel()
}

/// The parts of a worker.
pub struct WorkerParts<H> {
    /// Handles the requests.
    pub handler: H,
    /// Timeouts and limits.
    pub settings: Settings,
    /// Certificates and sessions, shared by all workers; required if a listener uses TLS.
    pub tls: Option<Arc<TlsServer>>,
    /// This worker's own listeners.
    pub listeners: Vec<Listener>,
    /// Its command channel.
    pub commands: UnboundedReceiver<Command<H>>,
    /// This worker's side of the access logs.
    pub log: WorkerLog,
    /// This worker's counters; only it writes them.
    pub counters: Arc<Counters>,
    /// The phase of the whole server.
    pub phases: watch::Receiver<Phase>,
}

/// Runs one worker on the current thread until its phase says to stop and its connections are closed. `companion`
/// runs beside it and is dropped at the end.
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
        http2_date: RefCell::new((i64::MIN, Vec::new())),
        fields: RefCell::new(FieldBlock::new()),
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
    // An error means that the sender is gone, so the server is ending.
    let _ = phases.wait_for(|phase| *phase != Phase::Serve).await;
    worker.draining.set(true);
    // Each drains its kernel queue, so that no connected client is reset.
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
        // Repeated at each sweep: a connection opened just now may not have had an entry in the table.
        worker.deadlines.borrow_mut().call_all(Call::Abandon);
        worker.changed.notified().await;
    }
    sweeper.abort();
    obedience.abort();
    Ok(WorkerReport { connections_cut })
}

/// Executes commands in order, until the channel closes.
async fn obey<H: Handler>(
    worker: Rc<Worker<H>>,
    acceptors: Rc<Acceptors<H>>,
    mut commands: UnboundedReceiver<Command<H>>,
) {
    while let Some(command) = commands.recv().await {
        match command {
            // A listener that cannot be registered is closed; the kernel hands its connections to the others.
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

/// Scans the deadlines, and flushes the logs, while there are connections or lines; pauses otherwise.
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
            // An existing timerfd does not fail; if it does, connections have no deadlines.
            return;
        }
        worker.log.borrow_mut().flush();
        worker.deadlines.borrow_mut().handle_time(Now::read().monotonic_ms);
        worker.give_back_output();
        // Tasks that wait for a descriptor, or for the end, check again.
        worker.changed.notify_waiters();
    }
}
