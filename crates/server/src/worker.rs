//! State shared by the connections of one thread, and a worker's life: start, serve, drain.

use super::accept::Acceptors;
use super::settings::{RECEIVE_WINDOW_BYTES_MAX, SEND_BUFFER_BYTES_MAX, Settings};
use crate::counters::Counters;
use crate::date_clock::DateClock;
use crate::deadline::{Call, ConnectionDeadlines};
use crate::http3::announce::Announcements;
use crate::http3::listen::QuicListeners;
use crate::http3::relay::RelayInbox;
use crate::http3::{QuicIdentity, QuicParts};
use crate::limits::ConnectionCounters;
use flatout_access_log::{Description, LogSet, Logged, LoggedPeer, LoggedResponse, Staged, WorkerLog};
use flatout_handler::Handler;
use flatout_http::http2::fields::FieldBlock;
use flatout_http::http2::hpack::encode_field;
use flatout_http::http3::qpack;
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

/// Size of the receive buffer, in bytes. All connections of a worker share it, so an idle connection needs no buffer.
const INPUT_BYTES: usize = 32 * 1024;

/// Capacity to which the output buffer is shrunk after many pipelined requests, in bytes.
const OUTPUT_BYTES_KEPT: usize = 256 * 1024;

/// The phase of the whole server, which all workers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Accept connections and serve requests.
    Serve,
    /// Another process accepts connections from the same listeners. Accept no more connections, not even queued ones,
    /// finish exchanges in progress, and let each idle connection send one more request, whose response announces the
    /// close.
    HandOver,
    /// Accept no new connections, and finish exchanges in progress.
    Drain,
    /// Close all connections immediately.
    Abandon,
}

/// The result of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// Number of connections that were closed because the drain timeout expired or the server was stopped immediately.
    pub connections_cut: usize,
}

/// State shared by the connections of one thread.
pub(crate) struct Worker<H> {
    pub(crate) handler: H,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    /// Counts for each client and in total, shared by all workers.
    pub(crate) held: ConnectionCounters,
    pub(crate) clock: DateClock,
    /// The TLS configuration, if a listener uses TLS.
    pub(crate) tls: Option<Arc<TlsServer>>,
    /// The Date field as encoded for HTTP/2 and HTTP/3, and the second for which it was encoded.
    http2_date: RefCell<(i64, Vec<u8>)>,
    http3_date: RefCell<(i64, Vec<u8>)>,
    /// The QUIC keys, if a listener uses QUIC.
    pub(crate) quic: Option<QuicIdentity>,
    /// Listeners whose responses announce HTTP/3.
    pub(crate) announcements: Announcements,
    /// Number of QUIC handshakes in progress.
    pub(crate) handshakes: Cell<usize>,
    /// The field section of the HTTP/2 or HTTP/3 request that is being handled.
    pub(crate) fields: RefCell<FieldBlock>,
    pub(crate) input: RefCell<Box<[u8]>>,
    pub(crate) output: RefCell<Vec<u8>>,
    pub(crate) deadlines: RefCell<ConnectionDeadlines>,
    /// The budget for the growth of receive windows of HTTP/2 and HTTP/3 connections.
    pub(crate) windows: Rc<WindowBudget>,
    /// The budget for response content in the kernel (see [`send_room`](crate::send_room)) and in QUIC.
    pub(crate) send_room: Rc<WindowBudget>,
    pub(crate) draining: Cell<bool>,
    pub(crate) handing_over: Cell<bool>,
    /// True if a listener waits for a file descriptor.
    pub(crate) starved: Cell<bool>,
    /// Number of connections registered with the runtime.
    pub(crate) open: Cell<usize>,
    /// Number of HTTP/2 and HTTP/3 streams in progress.
    pub(crate) streams: Cell<usize>,
    /// Notified when a connection opens or closes and, while stopping, as time passes.
    pub(crate) changed: Notify,
    log: RefCell<WorkerLog>,
    /// True if there is any access log.
    logs: Cell<bool>,
}

impl<H: Handler> Worker<H> {
    /// Returns whether requests are logged. Only then does a connection need its client's address.
    pub(crate) const fn logs(&self) -> bool {
        self.logs.get()
    }

    /// Returns whether idle connections must close soon because the server is stopping.
    pub(crate) const fn drains_idle(&self) -> bool {
        self.draining.get() && !self.handing_over.get()
    }

    /// Reads the precise clock if there is an access log. Returns 0 otherwise.
    pub(crate) fn logged_ns(&self) -> u64 {
        if self.logs() { precise_ns() } else { 0 }
    }

    /// Stages the log line of a request and its response.
    pub(crate) fn stage<'a>(&self, peer: LoggedPeer, logged: Logged<'_>, answer: impl FnOnce() -> LoggedResponse<'a>) {
        if self.logs() {
            self.log.borrow_mut().stage(peer, unix_ms(), logged, &answer());
        }
    }

    /// Returns the data to log for a request whose response is not known yet.
    pub(crate) fn describe(&self, peer: LoggedPeer, logged: Logged<'_>) -> Option<Description> {
        self.logs().then(|| self.log.borrow().describe(peer, unix_ms(), logged))
    }

    /// Stages the log line of a request from its description.
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

    /// Commits the staged lines whose responses are within the first `taken` bytes, which were sent, and returns the
    /// others.
    pub(crate) fn take_staged(&self, taken: usize) -> Staged {
        if !self.log.borrow().has_staged() {
            return Staged::default();
        }
        let unsent = self.log.borrow_mut().take_staged(taken, precise_ns());
        self.await_sweep();
        unsent
    }

    /// Commits all staged lines with `ending`.
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

    /// Switches to the logs in `set`.
    pub(crate) fn adopt_logs(&self, set: &LogSet) {
        let mut log = self.log.borrow_mut();
        log.adopt(set);
        self.logs.set(log.is_on());
    }

    /// Wakes the sweep, which flushes the log lines. Without registered connections, the sweep is paused.
    fn await_sweep(&self) {
        if self.open.get() == 0 {
            self.changed.notify_waiters();
        }
    }

    /// Appends the Date field for HTTP/2, as of the last reading of the clock.
    pub(crate) fn append_http2_date(&self, output: &mut Vec<u8>) {
        self.append_encoded_date(&self.http2_date, encode_field, output);
    }

    /// Appends the Date field for HTTP/3, as of the last reading of the clock.
    pub(crate) fn append_http3_date(&self, output: &mut Vec<u8>) {
        self.append_encoded_date(&self.http3_date, qpack::encode_field, output);
    }

    fn append_encoded_date(
        &self,
        known: &RefCell<(i64, Vec<u8>)>,
        encode: impl FnOnce(&[u8], &[u8], &mut Vec<u8>),
        output: &mut Vec<u8>,
    ) {
        let unix_s = self.clock.latest().unix_s;
        let (date_s, field) = &mut *known.borrow_mut();
        if *date_s != unix_s {
            field.clear();
            encode(b"date", &self.clock.date(), field);
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
    /// HTTP/3, on a UDP socket.
    Quic,
}

/// One listener of one worker.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub fd: OwnedFd,
    /// The listener's number in handlers and commands, which is the same for the listeners of all workers for one
    /// address.
    pub id: u32,
    /// The listener's protocol.
    pub protocol: Protocol,
    /// True if each connection must begin with a PROXY header, which names its client.
    pub proxy_protocol: bool,
}

/// A command to a running worker.
pub enum Command<H> {
    /// Accept connections from this listener.
    AddListener(Listener),
    /// Accept the connections queued at the listeners of this number, and close the listeners. Open connections
    /// continue.
    RemoveListener(u32),
    /// Stop serving HTTP/3 at the listener of this number. Open connections continue.
    RemoveQuic(u32),
    /// Start or stop receiving from UDP sockets. Only one process at a time receives.
    ReceiveQuic(bool),
    /// Handle the datagrams that this process's successor sends through this socket.
    ReceiveRelayed(OwnedFd),
    /// Call this function with the handler. It runs between two turns, so it must not block.
    Handler(Box<dyn FnOnce(&H) + Send>),
    /// Switch to these logs, and at the same time call this function with the handler, because its responses contain
    /// indexes of logs.
    Logs(LogSet, Box<dyn FnOnce(&H) + Send>),
}

/// Creates a channel that carries the phase of the server.
pub fn phase_channel() -> (watch::Sender<Phase>, watch::Receiver<Phase>) {
    watch::channel(Phase::Serve)
}

/// Creates a channel for the commands of one worker.
pub fn command_channel<H>() -> (UnboundedSender<Command<H>>, UnboundedReceiver<Command<H>>) {
    unbounded_channel()
}

/// The sockets, settings and channels with which a worker starts.
pub struct WorkerParts<H> {
    /// The handler of requests.
    pub handler: H,
    /// Timeouts and limits.
    pub settings: Settings,
    /// Certificates and sessions, shared by all workers. Required if a listener uses TLS.
    pub tls: Option<Arc<TlsServer>>,
    /// QUIC keys and sockets. Required if a listener uses QUIC.
    pub quic: Option<QuicParts>,
    /// The listeners of this worker.
    pub listeners: Vec<Listener>,
    /// The commands to this worker.
    pub commands: UnboundedReceiver<Command<H>>,
    /// This worker's side of the access logs.
    pub log: WorkerLog,
    /// The counters of this worker, which only this worker writes.
    pub counters: Arc<Counters>,
    /// Counts for each client and in total, shared by all workers.
    pub held: ConnectionCounters,
    /// The phase of the whole server.
    pub phases: watch::Receiver<Phase>,
}

/// Runs one worker on the current thread, until the phase tells it to stop and its connections are closed. `companion`
/// runs alongside the worker and is dropped at the end.
pub fn run_worker<H: Handler>(
    parts: WorkerParts<H>,
    companion: impl Future<Output = ()> + 'static,
) -> io::Result<WorkerReport> {
    let runtime = build_server_runtime()?;
    let (quic, inbox, must_wait) = match parts.quic {
        Some(QuicParts { identity, inbox, must_wait }) => (Some(identity), Some(inbox), must_wait),
        None => (None, None, false),
    };
    let worker = Rc::new(Worker {
        handler: parts.handler,
        settings: parts.settings,
        windows: WindowBudget::shown_in(RECEIVE_WINDOW_BYTES_MAX, Arc::clone(&parts.counters.receive_window_bytes)),
        send_room: WindowBudget::shown_in(SEND_BUFFER_BYTES_MAX, Arc::clone(&parts.counters.send_buffer_bytes)),
        counters: parts.counters,
        held: parts.held,
        clock: DateClock::new(),
        tls: parts.tls,
        http2_date: RefCell::new((i64::MIN, Vec::new())),
        http3_date: RefCell::new((i64::MIN, Vec::new())),
        quic,
        announcements: Announcements::default(),
        handshakes: Cell::new(0),
        fields: RefCell::new(FieldBlock::new()),
        input: RefCell::new(vec![0; INPUT_BYTES].into_boxed_slice()),
        output: RefCell::new(Vec::new()),
        deadlines: RefCell::new(ConnectionDeadlines::default()),
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
        let quic = QuicListeners::new(Rc::clone(&worker), !must_wait);
        let report = serve(&worker, (parts.listeners, quic, inbox), parts.commands, parts.phases).await;
        companion.abort();
        report
    });
    worker.log.borrow_mut().finish();
    report
}

async fn serve<H: Handler>(
    worker: &Rc<Worker<H>>,
    (listeners, quic, inbox): (Vec<Listener>, Rc<QuicListeners<H>>, Option<RelayInbox>),
    commands: UnboundedReceiver<Command<H>>,
    mut phases: watch::Receiver<Phase>,
) -> io::Result<WorkerReport> {
    if let Some(inbox) = inbox {
        spawn_local(Rc::clone(&quic).receive_parcels(inbox));
    }
    let acceptors = Acceptors::new(Rc::clone(worker), phases.clone(), &quic);
    for listener in listeners {
        acceptors.add(listener)?;
    }
    let obedience = spawn_local(obey(Rc::clone(worker), Rc::clone(&acceptors), quic, commands));
    let timer = Timer::new()?;
    let sweeper = spawn_local(sweep_deadlines(Rc::clone(worker), timer));
    // An error means that the sender was dropped, so the server is exiting.
    let _ = phases.wait_for(|phase| *phase != Phase::Serve).await;
    worker.draining.set(true);
    // Each acceptor drains its kernel queue, so that no connected client is reset.
    acceptors.finish().await;
    if *phases.borrow() == Phase::HandOver {
        worker.handing_over.set(true);
        wait_until_gone(worker, phases.clone(), worker.settings.timeouts.hand_over_timeout_ms, |phase| {
            phase != Phase::HandOver
        })
        .await;
        worker.handing_over.set(false);
    }
    worker.deadlines.borrow_mut().call_all(Call::Drain);
    let drain_timeout_ms = worker.settings.timeouts.drain_timeout_ms;
    wait_until_gone(worker, phases, drain_timeout_ms, |phase| phase == Phase::Abandon).await;
    let connections_cut = worker.open.get();
    while worker.open.get() > 0 {
        // Repeated at each sweep, because a connection that has just been opened may not have had an entry in the
        // table.
        worker.deadlines.borrow_mut().call_all(Call::Abandon);
        worker.changed.notified().await;
    }
    sweeper.abort();
    obedience.abort();
    Ok(WorkerReport { connections_cut })
}

/// Executes commands in order until the channel closes.
async fn obey<H: Handler>(
    worker: Rc<Worker<H>>,
    acceptors: Rc<Acceptors<H>>,
    quic: Rc<QuicListeners<H>>,
    mut commands: UnboundedReceiver<Command<H>>,
) {
    while let Some(command) = commands.recv().await {
        match command {
            // A listener that cannot be registered is closed, and the kernel assigns its connections to the others.
            Command::AddListener(listener) => {
                let _ = acceptors.add(listener);
            }
            Command::RemoveListener(id) => acceptors.remove(id),
            Command::RemoveQuic(id) => quic.remove(id),
            Command::ReceiveQuic(is_receiving) => quic.set_receiving(is_receiving),
            Command::ReceiveRelayed(socket) => {
                let receiving = Rc::clone(&quic).receive_messages(socket);
                // If the socket fails, connections for which the successor receives datagrams will time out.
                spawn_local(async move { drop(receiving.await) });
            }
            Command::Handler(tell) => tell(&worker.handler),
            Command::Logs(set, tell) => {
                worker.adopt_logs(&set);
                tell(&worker.handler);
            }
        }
    }
}

/// Waits until no connection is left, `timeout_ms` have passed, or `leave` returns true for the current phase.
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

/// Scans the deadlines and flushes the logs periodically. Pauses while there are neither connections nor log lines.
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
            // An existing timerfd does not fail. If it did, connections would have no deadlines.
            return;
        }
        worker.log.borrow_mut().flush();
        worker.deadlines.borrow_mut().handle_time(Now::read().monotonic_ms);
        worker.give_back_output();
        // Tasks that wait for a file descriptor or for the end of the worker check again.
        worker.changed.notify_waiters();
    }
}
