//! From a listener to a connection. The first turn is taken before the socket is registered with the runtime: a
//! client that sent its request with its connection, and wants one answer, costs accept, receive, send, shutdown and close.

use super::connection::{Next, ServerConnection};
use super::exchanges::Origin;
use super::task::ServerTask;
use super::worker::{Listener, Phase, Protocol, Worker};
use crate::deadline::Call;
use crate::ending::CloseReason;
use crate::handler::Handler;
use crate::http2::task::Http2Task;
use crate::registered::Registered;
use crate::socket::{BACKLOG, set_tcp_quickack};
use crate::tls::TlsFailure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, spawn_local, yield_now};

/// When descriptors have run out, so many connections are asked to leave if they are idle.
const GIVE_WAY_COUNT: usize = 32;

/// How a run of accepts ended.
enum Accepted {
    /// The queue is empty.
    All,
    /// There may be more.
    Batch,
    /// There is no descriptor, or no memory, for another.
    NoDescriptor,
}

/// The listeners of a worker, each with a task of its own.
pub(crate) struct Acceptors<H: Handler> {
    worker: Rc<Worker<H>>,
    phases: watch::Receiver<Phase>,
    tasks: RefCell<Vec<Acceptor>>,
}

struct Acceptor {
    id: u32,
    /// Sent, or dropped, when this listener is to go.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl<H: Handler> Acceptors<H> {
    pub(crate) fn new(worker: Rc<Worker<H>>, phases: watch::Receiver<Phase>) -> Rc<Self> {
        Rc::new(Self { worker, phases, tasks: RefCell::new(Vec::new()) })
    }

    /// Accepts from `listener` from now on.
    pub(crate) fn add(&self, listener: Listener) -> io::Result<()> {
        let (stop, stopped) = oneshot::channel();
        let id = listener.id;
        let accepting = accept_connections(Rc::clone(&self.worker), listener, self.phases.clone(), stopped)?;
        let task = spawn_local(accepting);
        self.tasks.borrow_mut().push(Acceptor { id, stop, task });
        Ok(())
    }

    /// Lets the listeners of this number go.
    pub(crate) fn remove(&self, id: u32) {
        for acceptor in self.tasks.borrow_mut().extract_if(.., |acceptor| acceptor.id == id) {
            // A task that has ended already needs no telling.
            let _ = acceptor.stop.send(());
        }
    }

    /// Waits until all have taken what they had to.
    pub(crate) async fn finish(&self) {
        let tasks = self.tasks.take();
        for acceptor in tasks {
            let _ = acceptor.task.await;
        }
    }
}

/// Accepts until the phase leaves `Serve` or the listener is told to go, then takes what is still queued, unless
/// another process will, and closes the listener.
fn accept_connections<H: Handler>(
    worker: Rc<Worker<H>>,
    listener: Listener,
    mut phases: watch::Receiver<Phase>,
    mut removed: oneshot::Receiver<()>,
) -> io::Result<impl Future<Output = ()>> {
    let Listener { fd, id, protocol } = listener;
    let listener = Registered::new(fd)?;
    let arrival = Arrival { id, protocol };
    let batch = worker.settings.accept_batch.max(1);
    let mut usual = 1;
    Ok(async move {
        let phase = phases.clone();
        let mut stopped = pin!(phases.wait_for(|phase| *phase != Phase::Serve));
        loop {
            let ready = poll_fn(|context| {
                if stopped.as_mut().poll(context).is_ready() || Pin::new(&mut removed).poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                listener.poll_read_ready(context).map(Some)
            })
            .await;
            match ready {
                Some(Ok(mut guard)) => match accept_batch(&worker, listener.fd(), arrival, &mut usual) {
                    Accepted::All => guard.clear_ready(),
                    Accepted::Batch => yield_now().await,
                    Accepted::NoDescriptor => make_room(&worker).await,
                },
                // The listener itself is broken, or we are stopping.
                Some(Err(_)) | None => break,
            }
        }
        // No more than can have been queued: whoever goes on connecting must not keep the server from stopping.
        for _ in 0..=BACKLOG as usize / batch {
            let leave = matches!(*phase.borrow(), Phase::Abandon | Phase::HandOver);
            if leave || !matches!(accept_batch(&worker, listener.fd(), arrival, &mut usual), Accepted::Batch) {
                break;
            }
            yield_now().await;
        }
    })
}

/// What is known of a connection by the listener it came by.
#[derive(Clone, Copy)]
struct Arrival {
    id: u32,
    protocol: Protocol,
}

/// Accepts until the queue is empty, or enough for one turn. As many as there were the last time, `usual`, are expected
/// again: only beyond those does it look first whether there is one, because an accept that finds nobody has made a
/// socket and a file for nothing.
fn accept_batch<H: Handler>(
    worker: &Rc<Worker<H>>,
    listener: BorrowedFd<'_>,
    arrival: Arrival,
    usual: &mut usize,
) -> Accepted {
    let batch = worker.settings.accept_batch.max(1);
    for count in 0..batch {
        if worker.open.get() >= worker.settings.connections_max {
            worker.counters.accepts_without_descriptor.add(1);
            return Accepted::NoDescriptor;
        }
        let is_empty = count >= *usual && !is_ready(listener);
        match if is_empty { Err(Errno::AGAIN) } else { accept(worker, listener, arrival) } {
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                *usual = count.max(1);
                return Accepted::All;
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                worker.counters.accepts_without_descriptor.add(1);
                return Accepted::NoDescriptor;
            }
            // The client is gone already (ECONNABORTED and the network errors of accept(2)); the next may be there.
            Err(_) => worker.counters.accepts_failed.add(1),
        }
    }
    *usual = batch;
    Accepted::Batch
}

/// Whether somebody waits to be accepted; where that cannot be known, an accept will tell.
fn is_ready(listener: BorrowedFd<'_>) -> bool {
    let mut looked = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    !matches!(poll(&mut looked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

fn accept<H: Handler>(worker: &Rc<Worker<H>>, listener: BorrowedFd<'_>, arrival: Arrival) -> Result<(), Errno> {
    const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
    let (socket, client) = acceptfrom_with(listener, FLAGS)?;
    let client = client.and_then(|client| SocketAddr::try_from(client).ok());
    if worker.settings.quickack {
        // A hint; a connection without it is as good.
        let _ = set_tcp_quickack(socket.as_fd());
    }
    let secure = arrival.protocol == Protocol::Tls;
    begin(worker, socket, Origin { client, listener: arrival.id, secure }, arrival.protocol);
    Ok(())
}

/// Takes the connection's first turn, and registers it only if it goes on.
fn begin<H: Handler>(worker: &Rc<Worker<H>>, socket: OwnedFd, origin: Origin, protocol: Protocol) {
    worker.counters.connections_accepted.add(1);
    let Some(mut connection) = ServerConnection::new(worker, origin, protocol) else {
        worker.counters.tls_failures[TlsFailure::Internal as usize].add(1);
        worker.counters.closes[CloseReason::TlsFailed as usize].add(1);
        return;
    };
    match connection.turn(worker, socket.as_fd()) {
        Next::Close(reason) => connection.handle_close(worker, reason),
        next => match Registered::new(socket) {
            Ok(socket) if next == Next::Http2 => Http2Task::spawn(worker, socket, &mut connection),
            Ok(socket) if next == Next::Tunnel => connection.begin_tunnel(worker, socket),
            Ok(socket) => {
                spawn_local(Box::pin(ServerTask::new(Rc::clone(worker), socket, connection, next)));
            }
            Err(_) => connection.handle_close(worker, CloseReason::SocketFailed),
        },
    }
}

/// Asks idle connections to leave, and waits until one has, or for the next sweep.
async fn make_room<H: Handler>(worker: &Worker<H>) {
    // Those accepted just now have their first turn, and then can be called.
    yield_now().await;
    worker.deadlines.borrow_mut().call_some(Call::GiveWay, GIVE_WAY_COUNT);
    // Another worker may hold all descriptors: the sweep must go on although this one has no connection.
    worker.starved.set(true);
    worker.changed.notify_waiters();
    worker.changed.notified().await;
    worker.starved.set(false);
}
