//! One client thread, with its runtime, its slots and their deadlines.

use super::busy_poll::{self, BusyPolling};
use super::connector::Connector;
use super::content::Sampling;
use super::cookies::Cookies;
use super::deadline::SlotDeadlines;
use super::failure::RequestFailure;
use super::http3::{QuicSockets, yield_to_tasks};
use super::pacer::Pacer;
use super::reader::HeadMemo;
use super::slot::ClientSlot;
use super::streams::SharedConnection;
use super::template::FillBuffers;
use super::{ClientSettings, Drive, StreamVersion};
use flatout_load::record::{ConnectionEnd, CookieCounts};
use flatout_net::waker::WakerCell;
use flatout_os::clock::precise_ns;
use flatout_os::runtime::build_runtime;
use flatout_os::timer::Timer;
use rustix::time::{ClockId, clock_gettime};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Length of the receive buffer that all connections of a worker share, in bytes. A compromise between system calls and
/// cache: large bodies need few receives, and the buffer fits in a common second-level cache.
const RECEIVE_BYTES: usize = 128 * 1024;

/// Longest interval between two scans of the deadlines, in milliseconds. A deadline between two scans has its own
/// timer.
const WATCH_INTERVAL_MS_MAX: u64 = 50;

/// Maximum number of stored heads; a short table has one for each request. A guess: 256 heads of 300 bytes stay in a
/// cache.
const MEMOS_MAX: usize = 256;

/// Buffers that a connection needs only while it reads, and never across a wait.
pub(super) struct Room {
    pub(super) buffer: Box<[u8]>,
    memos: Box<[HeadMemo]>,
    /// Number of times that the buffers were used.
    pub(super) uses: u64,
}

impl Room {
    /// Returns the buffer, and the stored head of responses to a request.
    pub(super) fn parts(&mut self, request: u32) -> (&mut [u8], &mut HeadMemo) {
        self.uses += 1;
        let index = request as usize % self.memos.len();
        (&mut self.buffer, &mut self.memos[index])
    }
}

/// State that all slots of a worker share.
pub(super) struct ClientShared<D> {
    pub(super) settings: ClientSettings,
    pub(super) connector: Connector,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(super) drive: RefCell<D>,
    pub(super) room: RefCell<Room>,
    pub(super) fill_buffers: RefCell<FillBuffers>,
    pub(super) cookies: RefCell<Cookies>,
    pub(super) sampling: Sampling,
    pub(super) slots: Vec<Rc<ClientSlot>>,
    deadlines: SlotDeadlines,
    /// Connections that groups of slots share, over HTTP/2 and HTTP/3.
    pub(super) groups: Vec<Rc<SharedConnection>>,
    /// The sockets for HTTP/3.
    pub(super) quic: Option<QuicSockets>,
    pub(super) pacer: Pacer,
    pub(super) busy_polling: BusyPolling,
    /// Number of open connections.
    pub(super) connections: Cell<u32>,
    /// True if no more bursts will start.
    pub(super) done: Cell<bool>,
    /// Number of bursts that were started and have not ended.
    pub(super) under_way: Cell<u64>,
    /// The error that aborted the run, if any.
    pub(super) broken: Cell<Option<io::Error>>,
    pub(super) interrupts: Cell<u32>,
    /// CPU time used before the first counted burst.
    uncounted: Cell<Option<WorkerCpu>>,
    pub(super) main: WakerCell,
}

impl<D: Drive> ClientShared<D> {
    /// Returns whether the run was aborted.
    pub(super) fn is_abandoned(&self) -> bool {
        self.interrupts.get() > 1
    }

    /// Returns the deadline of an attempt to connect, or of an exchange, that started at `begun_ns`.
    pub(super) fn due_ns(&self, begun_ns: u64) -> u64 {
        begun_ns.saturating_add(self.settings.request_timeout_ns)
    }

    /// Records the start of a burst.
    pub(super) fn begun(&self) {
        self.under_way.set(self.under_way.get() + 1);
        self.busy_polling.wake();
    }

    /// Records the end of a burst.
    pub(super) fn ended(&self) {
        let left = self.under_way.get().saturating_sub(1);
        self.under_way.set(left);
        if left == 0 && self.done.get() {
            self.main.wake();
        }
    }

    /// Notes that a burst is counted. From the first such burst on, CPU time is counted.
    pub(super) fn count_from_now(&self) {
        if self.uncounted.get().is_none() {
            self.uncounted.set(Some(self.cpu()));
        }
    }

    /// Returns the CPU time of the thread since its start.
    fn cpu(&self) -> WorkerCpu {
        let awake_ns = self.busy_polling.awake_ns();
        WorkerCpu { work_ns: thread_cpu_ns().saturating_sub(awake_ns), awake_ns }
    }

    /// Aborts the exchanges whose deadlines are at or before `now_ns`. Returns the earliest of the other deadlines.
    pub(super) fn cut_due(&self, now_ns: u64, why: RequestFailure) -> Option<u64> {
        self.deadlines.borrow_mut().handle_time(now_ns, |slot| {
            self.slots[*slot as usize].cut(why);
            true
        })
    }

    pub(super) fn break_off(&self, error: io::Error) {
        self.broken.set(Some(error));
        self.main.wake();
    }
}

/// Aborts the run if a task panics, because the bursts that the task had started would never end.
pub(super) struct Alarm<D: Drive>(pub(super) Rc<ClientShared<D>>);

impl<D: Drive> Drop for Alarm<D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.break_off(io::Error::other("a task of the client panicked"));
        }
    }
}

/// CPU time of a worker thread, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCpu {
    /// CPU time spent on work.
    pub work_ns: u64,
    /// CPU time spent only on polling; see [`ClientSettings::stays_awake`].
    pub awake_ns: u64,
}

impl WorkerCpu {
    /// Returns the difference from `before`.
    fn since(self, before: Self) -> Self {
        Self {
            work_ns: self.work_ns.saturating_sub(before.work_ns),
            awake_ns: self.awake_ns.saturating_sub(before.awake_ns),
        }
    }
}

/// The result of a worker.
#[derive(Debug)]
pub struct WorkerReport<D> {
    /// The drive, which contains the records.
    pub drive: D,
    /// CPU time of the thread during the whole run.
    pub cpu: WorkerCpu,
    /// CPU time of the thread from the first counted burst on.
    pub counted: WorkerCpu,
    /// Time from before the first connection until after the last one, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time at which the last response ended, in nanoseconds on the monotonic clock.
    pub ended_ns: u64,
    /// True if the run was interrupted.
    pub interrupted: bool,
    /// The addresses of the server to which connections were started.
    pub addresses_used: Vec<SocketAddr>,
    /// Counts of cookies.
    pub cookies: CookieCounts,
}

/// Runs a worker on the calling thread until its drive has nothing more to start and every request has ended.
pub fn run_worker<D: Drive + 'static>(settings: ClientSettings, drive: D) -> io::Result<WorkerReport<D>> {
    if settings.requests.is_empty() || settings.addresses.is_empty() && settings.unix_socket.is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no request to send, or no server"));
    }
    let runtime = build_runtime()?;
    let early_ns = if settings.stays_awake { busy_poll::EARLY_NS } else { 0 };
    let pacer = runtime.block_on(async { Pacer::new(early_ns) })?;
    let shared = Rc::new(build_shared(settings, drive, pacer));
    let (started_ns, cpu_before) = (precise_ns(), shared.cpu());
    runtime.block_on(async {
        let watch = tokio::task::spawn_local(watch(Rc::clone(&shared)));
        let interrupts =
            shared.settings.handle_interrupts.then(|| tokio::task::spawn_local(interrupts(Rc::clone(&shared))));
        let busy_polling =
            shared.settings.stays_awake.then(|| tokio::task::spawn_local(busy_poll::keep(Rc::clone(&shared))));
        shared.dispatch(precise_ns(), None);
        let run = poll_fn(|context| shared.poll_run(context)).await;
        watch.abort();
        for task in [interrupts, busy_polling].into_iter().flatten() {
            task.abort();
        }
        run
    })?;
    let (ended_ns, cpu_after) = (precise_ns(), shared.cpu());
    let cpu = cpu_after.since(cpu_before);
    let counted = shared.uncounted.get().map(|before| cpu_after.since(before)).unwrap_or_default();
    let elapsed_ns = ended_ns - started_ns;
    // The kernel closes TCP connections when the process exits. QUIC connections must be closed explicitly.
    runtime.block_on(async {
        shared.groups.iter().for_each(|group| group.close());
        yield_to_tasks().await;
    });
    // The remaining tasks are dropped with the runtime. With them, their references to the shared state are dropped.
    drop(runtime);
    let interrupted = shared.interrupts.get() > 0;
    let used = shared.quic.as_ref().map_or_else(|| shared.connector.addresses_used(), QuicSockets::addresses_used);
    let addresses_used = used.to_vec();
    let shared = Rc::into_inner(shared).ok_or_else(|| io::Error::other("a task outlived its runtime"))?;
    Ok(WorkerReport {
        drive: shared.drive.into_inner(),
        cpu,
        counted,
        elapsed_ns,
        ended_ns,
        interrupted,
        addresses_used,
        cookies: shared.cookies.into_inner().counts,
    })
}

pub(super) fn build_shared<D: Drive>(settings: ClientSettings, drive: D, pacer: Pacer) -> ClientShared<D> {
    let slots = settings.slots.max(1);
    let deadlines = SlotDeadlines::default();
    let memos = settings.requests.len().min(MEMOS_MAX);
    let streams = settings.streams.map(|streams| streams.per_connection.max(1));
    let tls = settings.tls.as_ref().map(super::ClientTls::for_worker);
    let is_http3 = settings.streams.is_some_and(|streams| streams.version == StreamVersion::Http3);
    let quic = tls.as_ref().filter(|_| is_http3 && !settings.addresses.is_empty());
    let quic = quic.and_then(|tls| QuicSockets::new(Arc::clone(&settings.addresses), settings.sources, tls));
    ClientShared {
        connector: Connector::new(&settings),
        tls,
        quic,
        drive: RefCell::new(drive),
        room: RefCell::new(Room {
            buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            memos: (0..memos.max(1)).map(|_| HeadMemo::default()).collect(),
            uses: 0,
        }),
        fill_buffers: RefCell::default(),
        cookies: RefCell::default(),
        sampling: Sampling::new(settings.digest_every),
        slots: (0..slots).map(|index| Rc::new(ClientSlot::new(index, &deadlines))).collect(),
        deadlines,
        groups: streams.map_or(Vec::new(), |streams| (0..slots.div_ceil(streams)).map(|_| Rc::default()).collect()),
        pacer,
        busy_polling: BusyPolling::default(),
        connections: Cell::new(0),
        done: Cell::new(false),
        under_way: Cell::new(0),
        broken: Cell::new(None),
        interrupts: Cell::new(0),
        uncounted: Cell::new(None),
        main: WakerCell::default(),
        settings,
    }
}

/// Scans the deadlines repeatedly. Reports to the drive how late the event loop is.
async fn watch<D: Drive + 'static>(shared: Rc<ClientShared<D>>) {
    // Scans must be frequent enough that a deadline set between two scans is due after the second: no timeout is
    // shorter than ten intervals, unless the interval is the shortest possible.
    let interval_ms = (shared.settings.request_timeout_ns / 10_000_000).clamp(1, WATCH_INTERVAL_MS_MAX);
    let interval_ns = interval_ms * 1_000_000;
    let timer = Timer::new().and_then(|timer| timer.set_interval(interval_ms).map(|()| timer));
    let (timer, alarm) = match timer.and_then(|timer| Ok((timer, Pacer::new(0)?))) {
        Ok(both) => both,
        // No descriptor is left. Without the scans, no request would ever time out.
        Err(error) => return shared.break_off(error),
    };
    let mut due_ns = precise_ns() + interval_ns;
    loop {
        let mut tick = pin!(timer.tick());
        let is_tick = poll_fn(|context| match tick.as_mut().poll(context) {
            Poll::Ready(tick) => Poll::Ready(tick.map(|()| true)),
            Poll::Pending => alarm.poll_ring(context).map_ok(|()| false),
        });
        let is_tick = match is_tick.await {
            Ok(is_tick) => is_tick,
            Err(error) => return shared.break_off(error),
        };
        let now_ns = precise_ns();
        alarm.take_due(now_ns);
        let next_ns = shared.cut_due(now_ns, RequestFailure::TimedOut);
        if let Some(next_ns) = next_ns.filter(|next_ns| *next_ns < now_ns + interval_ns)
            && let Err(error) = alarm.set(next_ns)
        {
            return shared.break_off(error);
        }
        if !is_tick {
            continue;
        }
        let late_ns = now_ns.saturating_sub(due_ns);
        due_ns += interval_ns * (1 + late_ns / interval_ns);
        shared.drive.borrow_mut().handle_tick(now_ns, late_ns, shared.connections.get());
        // Events that the drive has handled in the meantime may have changed what is due.
        let own = shared.dispatch(now_ns, None);
        debug_assert!(own.is_none());
    }
}

async fn interrupts<D: Drive + 'static>(shared: Rc<ClientShared<D>>) {
    // An error means that signals cannot be watched. The run then ends as planned, or an unhandled signal ends it.
    while tokio::signal::ctrl_c().await.is_ok() {
        shared.handle_interrupt();
    }
}

/// Returns the CPU time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Represents an open connection. Dropping it reports the end of the connection, also at the end of the run.
pub(super) struct OpenGuard<D: Drive> {
    shared: Rc<ClientShared<D>>,
    begun_ns: u64,
    /// Number of complete responses on the connection.
    pub(super) replies: Rc<Cell<u64>>,
    /// True if the server closed the connection although it was reusable.
    pub(super) by_server: Cell<bool>,
}

impl<D: Drive> OpenGuard<D> {
    /// Creates the guard of a connection that was started at `begun_ns`.
    pub(super) fn new(shared: &Rc<ClientShared<D>>, begun_ns: u64) -> Self {
        shared.connections.set(shared.connections.get() + 1);
        Self { shared: Rc::clone(shared), begun_ns, replies: Rc::default(), by_server: Cell::new(false) }
    }
}

impl<D: Drive> Drop for OpenGuard<D> {
    fn drop(&mut self) {
        self.shared.connections.set(self.shared.connections.get().saturating_sub(1));
        // If a call of the drive panicked, the drive is still borrowed, and is not notified.
        if let Ok(mut drive) = self.shared.drive.try_borrow_mut() {
            drive.handle_connection_end(&ConnectionEnd {
                begun_ns: self.begun_ns,
                ended_ns: precise_ns(),
                replies: self.replies.get(),
                by_server: self.by_server.get(),
            });
        }
    }
}

/// Returns the effective reason that a burst failed.
pub(super) fn failure_of(slot: &ClientSlot, failure: RequestFailure) -> RequestFailure {
    // After an abort, the socket's own error is arbitrary, so the reason for the abort takes precedence.
    slot.deadline.cut().unwrap_or(failure)
}
