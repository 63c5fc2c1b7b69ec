//! One client thread: its runtime, its connections, and the watch over both.

use super::connection::run_connection;
use super::connector::Connector;
use super::deadline::Slot;
use super::failure::Failure;
use super::reader::HeadMemo;
use super::{ClientSettings, Drive};
use crate::clock::precise_ns;
use crate::runtime::build_runtime;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// Room for one receive, shared by all connections of a worker. A guess between system calls and cache: large bodies need
/// few receives, and the whole of it stays in a common second-level cache.
const RECEIVE_BYTES: usize = 128 * 1024;

/// Longest time between two looks at the deadlines; a timeout is exact to this.
const WATCH_INTERVAL_NS_MAX: u64 = 50_000_000;

/// What a connection needs only while it reads, and never across a wait.
pub(super) struct Room {
    pub(super) buffer: Box<[u8]>,
    pub(super) memo: HeadMemo,
}

/// What the connections of one worker have in common.
pub(super) struct Shared<D> {
    pub(super) settings: ClientSettings,
    pub(super) connector: Connector,
    pub(super) drive: RefCell<D>,
    pub(super) room: RefCell<Room>,
    /// One for each connection.
    pub(super) slots: Vec<Slot>,
    interrupts: Cell<u32>,
}

impl<D: Drive> Shared<D> {
    /// What the run's end means to a connection that pauses: whether it was given up meanwhile.
    pub(super) fn is_abandoned(&self) -> bool {
        self.interrupts.get() > 1
    }

    fn handle_interrupt(&self) {
        self.interrupts.set(self.interrupts.get() + 1);
        self.drive.borrow_mut().handle_interrupt();
        if self.is_abandoned() {
            self.slots.iter().for_each(|slot| slot.cut_now(Failure::Abandoned));
        }
    }
}

/// What a worker did, besides what its drive was told.
#[derive(Debug)]
pub struct WorkerReport<D> {
    /// The drive, with all it was told.
    pub drive: D,
    /// On-CPU time of the thread while it ran, in nanoseconds.
    pub cpu_ns: u64,
    /// From before the first connection to after the last one, in nanoseconds.
    pub elapsed_ns: u64,
    /// When the last connection had ended, on the monotonic clock.
    pub ended_ns: u64,
    /// Whether somebody interrupted the run.
    pub interrupted: bool,
}

/// Runs a worker on the calling thread until its drive has nothing more to send and every answer has come.
pub fn run_worker<D: Drive + 'static>(settings: ClientSettings, drive: D) -> io::Result<WorkerReport<D>> {
    let runtime = build_runtime()?;
    let connections = settings.connections.max(1) as usize;
    let shared = Rc::new(Shared {
        connector: Connector::new(settings.address, settings.request.len()),
        drive: RefCell::new(drive),
        room: RefCell::new(Room { buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(), memo: HeadMemo::default() }),
        slots: (0..connections).map(|_| Slot::new()).collect(),
        interrupts: Cell::new(0),
        settings,
    });
    let (started_ns, cpu_before_ns) = (precise_ns(), thread_cpu_ns());
    runtime.block_on(async {
        let watch = tokio::task::spawn_local(watch(Rc::clone(&shared)));
        let interrupts =
            shared.settings.handle_interrupts.then(|| tokio::task::spawn_local(interrupts(Rc::clone(&shared))));
        let tasks: Vec<_> =
            (0..connections).map(|index| tokio::task::spawn_local(run_connection(Rc::clone(&shared), index))).collect();
        for task in tasks {
            task.await.map_err(io::Error::other)?;
        }
        watch.abort();
        if let Some(interrupts) = interrupts {
            interrupts.abort();
        }
        Ok::<(), io::Error>(())
    })?;
    let (ended_ns, cpu_ns) = (precise_ns(), thread_cpu_ns() - cpu_before_ns);
    let elapsed_ns = ended_ns - started_ns;
    // Tasks that were aborted above are dropped with the runtime, and with them their hold on what is shared.
    drop(runtime);
    let interrupted = shared.interrupts.get() > 0;
    let shared = Rc::into_inner(shared).ok_or_else(|| io::Error::other("a task outlived its runtime"))?;
    Ok(WorkerReport { drive: shared.drive.into_inner(), cpu_ns, elapsed_ns, ended_ns, interrupted })
}

async fn watch<D: Drive>(shared: Rc<Shared<D>>) {
    let interval_ns = (shared.settings.request_timeout_ns / 10).clamp(1_000_000, WATCH_INTERVAL_NS_MAX);
    loop {
        tokio::time::sleep(Duration::from_nanos(interval_ns)).await;
        let now_ns = precise_ns();
        shared.slots.iter().for_each(|slot| slot.cut_if_late(now_ns));
        shared.drive.borrow_mut().handle_tick(now_ns);
    }
}

async fn interrupts<D: Drive>(shared: Rc<Shared<D>>) {
    // An error means that signals cannot be watched; the run then ends as planned, or by a signal no one handles.
    while tokio::signal::ctrl_c().await.is_ok() {
        shared.handle_interrupt();
    }
}

/// On-CPU time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
