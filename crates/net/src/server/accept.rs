//! From a listener to a connection. The first turn is taken before the socket is registered with the runtime: a
//! client that sent its request with its connection, and wants one answer, costs accept, receive, send and close.

use super::connection::{Next, ServerConnection};
use super::task::ServerTask;
use super::worker::{Phase, Worker};
use crate::deadline::Call;
use crate::handler::Handler;
use crate::registered::Registered;
use crate::socket::BACKLOG;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, acceptfrom_with};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tokio::sync::watch;
use tokio::task::{spawn_local, yield_now};

/// Connections accepted before those that are open have their turn.
const BATCH: usize = 64;

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

/// Accepts until the phase leaves `Serve`, then takes what is still queued and closes the listener.
pub(crate) fn accept_connections<H: Handler>(
    worker: Rc<Worker<H>>,
    listener: OwnedFd,
    mut phases: watch::Receiver<Phase>,
) -> io::Result<impl Future<Output = ()>> {
    let listener = Registered::new(listener)?;
    Ok(async move {
        let phase = phases.clone();
        let mut stopped = pin!(phases.wait_for(|phase| *phase != Phase::Serve));
        loop {
            let ready = poll_fn(|context| {
                if stopped.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                listener.poll_read_ready(context).map(Some)
            })
            .await;
            match ready {
                Some(Ok(mut guard)) => match accept_batch(&worker, listener.fd()) {
                    Accepted::All => guard.clear_ready(),
                    Accepted::Batch => yield_now().await,
                    Accepted::NoDescriptor => make_room(&worker).await,
                },
                // The listener itself is broken, or we are stopping.
                Some(Err(_)) | None => break,
            }
        }
        // No more than can have been queued: whoever goes on connecting must not keep the server from stopping.
        for _ in 0..=BACKLOG as usize / BATCH {
            let abandoned = *phase.borrow() == Phase::Abandon;
            if abandoned || !matches!(accept_batch(&worker, listener.fd()), Accepted::Batch) {
                break;
            }
            yield_now().await;
        }
    })
}

fn accept_batch<H: Handler>(worker: &Rc<Worker<H>>, listener: BorrowedFd<'_>) -> Accepted {
    const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
    for _ in 0..BATCH {
        if worker.open.get() >= worker.settings.connections_max {
            worker.counters.accepts_without_descriptor.add(1);
            return Accepted::NoDescriptor;
        }
        let accepted = if worker.logs() {
            acceptfrom_with(listener, FLAGS)
                .map(|(socket, client)| (socket, client.and_then(|client| SocketAddr::try_from(client).ok())))
        } else {
            accept_with(listener, FLAGS).map(|socket| (socket, None))
        };
        match accepted {
            Ok((socket, client)) => begin(worker, socket, client),
            Err(Errno::AGAIN) => return Accepted::All,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                worker.counters.accepts_without_descriptor.add(1);
                return Accepted::NoDescriptor;
            }
            // The client is gone already (ECONNABORTED and the network errors of accept(2)); the next may be there.
            Err(_) => worker.counters.accepts_failed.add(1),
        }
    }
    Accepted::Batch
}

/// Takes the connection's first turn, and registers it only if it goes on.
fn begin<H: Handler>(worker: &Rc<Worker<H>>, socket: OwnedFd, client: Option<SocketAddr>) {
    worker.counters.connections_accepted.add(1);
    let mut connection = ServerConnection::new(client);
    match connection.turn(worker, socket.as_fd()) {
        Next::Close(reason) => connection.handle_close(worker, reason),
        next => match Registered::new(socket) {
            Ok(socket) => {
                spawn_local(Box::pin(ServerTask::new(Rc::clone(worker), socket, connection, next)));
            }
            Err(_) => connection.handle_close(worker, crate::ending::CloseReason::SocketFailed),
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
