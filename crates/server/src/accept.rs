//! Accepts connections from listeners. The first turn of a connection runs before its socket is registered with the
//! runtime: if a client sends its request together with the connection and expects one response, serving it costs the
//! system calls accept, receive, send, shutdown and close.

use super::worker::{Listener, Phase, Protocol, Worker};
use crate::counters::Counters;
use crate::deadline::{Call, INCOMPLETE_GRACE_MS};
use crate::http1::connection::{Next, ServerConnection};
use crate::http1::exchanges::Peer;
use crate::http1::task::ServerTask;
use crate::http2::task::Http2Task;
use crate::http3::listen::QuicListeners;
use crate::limits::ConnectionPermits;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_net::tls::TlsFailure;
use flatout_os::registered::Registered;
use flatout_os::socket::{accept_queue, is_unix, set_backlog, set_tcp_quickack};
use flatout_overload::{QueueBound, QueueSettings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SocketFlags, acceptfrom_with};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, spawn_local, yield_now};

/// Number of connections that are asked to close at a time when file descriptors have run out.
const GIVE_WAY_COUNT: usize = 32;

/// Target for the time that a connection waits in a saturated accept queue, in milliseconds. Far below a second, after
/// which users notice a delay, and far above the time between two turns of a worker.
const ACCEPT_DELAY_TARGET_MS: u64 = 100;

/// Minimum length of the accept queue. The kernel also counts connections whose request has not arrived, and responds
/// with SYN cookies when the queue is full, which may reset a client that sends its request in several packets.
const ACCEPT_QUEUE_MIN: u32 = 64;

flatout_reason::reasons! {
    /// The reason flatout accepts no connection, or cannot accept all that clients begin.
    pub enum AcceptProblem { name, text, }
    QueueFull: overload, "accept_queue_full", "flatout accepted a connection from a listen backlog that was full. Meanwhile, the kernel may have ignored further attempts to connect, which clients repeat.";
    ConnectionsTotal: overload, "accept_connections_total", "All clients together have as many connections as `limit-connections` allows, and more clients connect.";
    QuicHandshakes: overload, "accept_quic_handshakes", "A worker has too many QUIC handshakes in progress, and refused another.";
    DescriptorShare: resources, "accept_descriptor_share", "A worker has as many connections as its share of the process's file descriptors allows, and more clients connect.";
    ProcessDescriptors: resources, "accept_process_descriptors", "The process has as many open files as it may have (EMFILE), and connections wait.";
    SystemDescriptors: resources, "accept_system_descriptors", "The system has as many open files as it may have (ENFILE), and connections wait.";
    KernelMemory: resources, "accept_kernel_memory", "The kernel has no memory for another connection (ENOBUFS or ENOMEM), and connections wait.";
}

impl AcceptProblem {
    /// Returns the limit that allows no further connection, if there is one.
    pub(crate) fn of_limits<H: Handler>(worker: &Worker<H>) -> Option<Self> {
        if worker.open.get() >= worker.settings.connections_max {
            Some(Self::DescriptorShare)
        } else {
            worker.held.connections.is_full().then_some(Self::ConnectionsTotal)
        }
    }
}

/// The accept queue of one listener. While more clients connect than the worker can serve, the queue is shortened so
/// that no connection waits longer than the target. The kernel then ignores further connection attempts, which costs
/// the worker nothing; clients retry them after a second.
struct AcceptQueue {
    control: QueueBound,
    /// The backlog that was last set.
    backlog: u32,
    /// The backlog that the system allows.
    backlog_max: u32,
}

impl AcceptQueue {
    fn new(listener: BorrowedFd<'_>, backlog: u32) -> Self {
        let settings = QueueSettings {
            delay_target_ms: ACCEPT_DELAY_TARGET_MS,
            entries_min: ACCEPT_QUEUE_MIN.min(backlog),
            entries_max: backlog,
        };
        // A listener inherited from another process may still have a shortened queue.
        let _ = set_backlog(listener, backlog);
        let backlog_max = accept_queue(listener).map_or(backlog, |queue| queue.length_max);
        Self { control: QueueBound::new(settings), backlog, backlog_max }
    }

    /// Returns the number of connections to accept at a time, at most `batch`. A full queue is still half full after it.
    fn batch(&self, batch: usize) -> usize {
        batch.min(self.backlog_max as usize / 2).max(1)
    }

    /// Handles a batch of `count` accepted connections. `is_empty` is true if the queue was empty after it.
    fn handle_batch(&mut self, listener: BorrowedFd<'_>, count: u32, is_empty: bool, now_ms: u64, counters: &Counters) {
        let was_limiting = self.control.is_limiting();
        if is_empty {
            self.control.handle_empty(now_ms);
        } else {
            let queue = accept_queue(listener).ok();
            // The kernel queues one connection more than the backlog.
            if queue.is_some_and(|queue| queue.length.saturating_add(count) > queue.length_max) {
                counters.accept_problems[AcceptProblem::QueueFull as usize].add(count.into());
            }
            self.control.handle_saturated(count, now_ms, || queue.map(|queue| queue.length));
        }
        let bound = self.control.bound();
        // Small changes are not worth the system call.
        if bound.abs_diff(self.backlog) > self.backlog / 8 {
            // Fails only for a socket that does not listen.
            let _ = set_backlog(listener, bound);
            self.backlog = bound;
        }
        counters.accept_queue_limited.add(u64::from(!was_limiting && self.control.is_limiting()));
    }
}

/// The reason a batch of accepts ended.
enum Accepted {
    /// The queue is empty.
    All,
    /// The batch is complete, and there may be more connections.
    Batch,
    /// A limit is reached, or no file descriptor or memory is left.
    Nothing,
}

/// The listeners of a worker, with one task for each.
pub(crate) struct Acceptors<H: Handler> {
    worker: Rc<Worker<H>>,
    phases: watch::Receiver<Phase>,
    tasks: RefCell<Vec<Acceptor>>,
    quic: Rc<QuicListeners<H>>,
}

struct Acceptor {
    id: u32,
    /// Sent or dropped when this listener must be closed.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl<H: Handler> Acceptors<H> {
    pub(crate) fn new(worker: Rc<Worker<H>>, phases: watch::Receiver<Phase>, quic: &Rc<QuicListeners<H>>) -> Rc<Self> {
        Rc::new(Self { worker, phases, tasks: RefCell::default(), quic: Rc::clone(quic) })
    }

    /// Starts accepting from `listener`.
    pub(crate) fn add(&self, listener: Listener) -> io::Result<()> {
        if listener.protocol == Protocol::Quic {
            return self.quic.add(listener);
        }
        let (stop, stopped) = oneshot::channel();
        let id = listener.id;
        let accepting = accept_connections(Rc::clone(&self.worker), listener, self.phases.clone(), stopped)?;
        let task = spawn_local(accepting);
        self.tasks.borrow_mut().push(Acceptor { id, stop, task });
        Ok(())
    }

    /// Closes the listeners with the number `id`.
    pub(crate) fn remove(&self, id: u32) {
        self.quic.remove(id);
        for acceptor in self.tasks.borrow_mut().extract_if(.., |acceptor| acceptor.id == id) {
            // The task may have finished already.
            let _ = acceptor.stop.send(());
        }
    }

    /// Waits until all listeners have drained their queues.
    pub(crate) async fn finish(&self) {
        let tasks = self.tasks.take();
        for acceptor in tasks {
            let _ = acceptor.task.await;
        }
    }
}

/// Accepts connections until the phase leaves `Serve` or the listener is removed. Then accepts the queued connections,
/// unless another process will, and closes the listener.
fn accept_connections<H: Handler>(
    worker: Rc<Worker<H>>,
    listener: Listener,
    mut phases: watch::Receiver<Phase>,
    mut removed: oneshot::Receiver<()>,
) -> io::Result<impl Future<Output = ()>> {
    let Listener { fd, id, protocol, proxy_protocol } = listener;
    let listener = Registered::new(fd)?;
    let unix = is_unix(listener.fd());
    let arrival = ListenerProperties { id, protocol, proxy_protocol, unix };
    let mut usual = 1;
    // Clients of a Unix socket do not retry, so its queue keeps its length.
    let mut queue = (!unix).then(|| AcceptQueue::new(listener.fd(), worker.settings.backlog.max(1)));
    let batch = worker.settings.accept_batch.max(1);
    let batch = queue.as_ref().map_or(batch, |queue| queue.batch(batch));
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
                Some(Ok(mut guard)) => {
                    let (count, accepted) = accept_batch(&worker, listener.fd(), arrival, batch, &mut usual);
                    let is_empty = matches!(accepted, Accepted::All);
                    let now_ms = worker.clock.latest().monotonic_ms;
                    if let Some(queue) = &mut queue {
                        queue.handle_batch(listener.fd(), count, is_empty, now_ms, &worker.counters);
                    }
                    match accepted {
                        Accepted::All => guard.clear_ready(),
                        Accepted::Batch => yield_now().await,
                        Accepted::Nothing => make_room(&worker).await,
                    }
                }
                // The listener failed, was removed, or the server is stopping.
                Some(Err(_)) | None => break,
            }
        }
        // Accept no more connections than can have been queued: clients that keep connecting must not prevent the
        // server from stopping.
        for _ in 0..=worker.settings.backlog as usize / batch {
            let leave = matches!(*phase.borrow(), Phase::Abandon | Phase::HandOver);
            if leave
                || !matches!(accept_batch(&worker, listener.fd(), arrival, batch, &mut usual), (_, Accepted::Batch))
            {
                break;
            }
            yield_now().await;
        }
    })
}

/// Properties of a connection that its listener determines.
#[derive(Clone, Copy)]
struct ListenerProperties {
    id: u32,
    protocol: Protocol,
    /// True if each connection must begin with a PROXY header.
    proxy_protocol: bool,
    /// True for a Unix socket.
    unix: bool,
}

/// Accepts until the queue is empty or a batch of `batch` connections is complete, and returns their number. `usual` is
/// the number of connections in the previous batch. Beyond that number, polls the listener before each accept, because an
/// accept call without a connection allocates a socket and a file for nothing.
fn accept_batch<H: Handler>(
    worker: &Rc<Worker<H>>,
    listener: BorrowedFd<'_>,
    arrival: ListenerProperties,
    batch: usize,
    usual: &mut usize,
) -> (u32, Accepted) {
    for count in 0..batch {
        let limit = AcceptProblem::of_limits(worker);
        let is_empty = (limit.is_some() || count >= *usual) && !is_ready(listener);
        if limit.is_some() && !is_empty {
            worker.counters.count_accept_problem(limit);
            return (count as u32, Accepted::Nothing);
        }
        match if is_empty { Err(Errno::AGAIN) } else { accept(worker, listener, arrival) } {
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                *usual = count.max(1);
                return (count as u32, Accepted::All);
            }
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                worker.counters.count_accept_problem(Some(match error {
                    Errno::MFILE => AcceptProblem::ProcessDescriptors,
                    Errno::NFILE => AcceptProblem::SystemDescriptors,
                    _ => AcceptProblem::KernelMemory,
                }));
                return (count as u32, Accepted::Nothing);
            }
            // The client has disconnected already (ECONNABORTED and the network errors of accept(2)), and the next
            // client may be waiting.
            Err(_) => worker.counters.accepts_failed.add(1),
        }
    }
    *usual = batch;
    (batch as u32, Accepted::Batch)
}

/// Returns whether a connection is queued. Returns true if that is unknown.
fn is_ready(listener: BorrowedFd<'_>) -> bool {
    let mut looked = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    !matches!(poll(&mut looked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

fn accept<H: Handler>(
    worker: &Rc<Worker<H>>,
    listener: BorrowedFd<'_>,
    arrival: ListenerProperties,
) -> Result<(), Errno> {
    const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
    let (socket, client) = acceptfrom_with(listener, FLAGS)?;
    let client = client.and_then(|client| SocketAddr::try_from(client).ok());
    // A socket for both families names IPv4 addresses as IPv6 addresses. Rules and logs must not depend on that.
    let client = client.map(|client| SocketAddr::new(client.ip().to_canonical(), client.port()));
    if worker.settings.quickack && !arrival.unix {
        // Only a hint, so failure has no consequence.
        let _ = set_tcp_quickack(socket.as_fd());
    }
    worker.counters.connections_accepted.add(1);
    let secure = arrival.protocol == Protocol::Tls;
    let admitted = if arrival.proxy_protocol {
        // The client is not known before its PROXY header, so its own limits cannot apply yet.
        if worker.handler.may_name_client(arrival.id, client) {
            worker.held.admit(None, true)
        } else {
            Err(CloseReason::ProxyHeaderUntrusted)
        }
    } else {
        worker.held.admit(client, secure)
    };
    match admitted {
        Ok(permits) => {
            let peer = Peer { client, unix: arrival.unix, listener: arrival.id, secure };
            begin(worker, socket, (peer, permits), arrival);
        }
        Err(reason) => {
            // A reset costs less than a handshake and leaves no state behind. Failure has no consequence.
            let _ = set_socket_linger(&socket, Some(Duration::ZERO));
            worker.counters.closes[reason as usize].add(1);
        }
    }
    Ok(())
}

/// Runs the first turn of a connection, and registers its socket only if the connection continues.
fn begin<H: Handler>(
    worker: &Rc<Worker<H>>,
    socket: OwnedFd,
    (origin, permits): (Peer, ConnectionPermits),
    arrival: ListenerProperties,
) {
    let Some(mut connection) =
        ServerConnection::new(worker, (origin, permits), arrival.protocol, arrival.proxy_protocol)
    else {
        worker.counters.tls_failures[TlsFailure::Internal as usize].add(1);
        worker.counters.closes[CloseReason::TlsFailed as usize].add(1);
        return;
    };
    match connection.turn(worker, socket.as_fd()) {
        Next::Close(reason) => connection.handle_close(worker, reason),
        next => {
            worker.counters.descriptor_max.raise_to(socket.as_raw_fd().cast_unsigned().into());
            match Registered::new(socket) {
                Ok(socket) if next == Next::Http2 => Http2Task::spawn(worker, socket, &mut connection),
                Ok(socket) if next == Next::Tunnel => connection.begin_tunnel(worker, socket),
                Ok(socket) => {
                    spawn_local(Box::pin(ServerTask::new(Rc::clone(worker), socket, connection, next)));
                }
                Err(_) => connection.handle_close(worker, CloseReason::SocketFailed),
            }
        }
    }
}

/// Asks connections to close: those whose request head or handshake has been incomplete longest, or idle
/// connections if none has been incomplete for at least [`INCOMPLETE_GRACE_MS`].
fn give_way<H: Handler>(worker: &Worker<H>) {
    let until_ms = worker.clock.read().monotonic_ms.saturating_sub(INCOMPLETE_GRACE_MS);
    let mut deadlines = worker.deadlines.borrow_mut();
    if deadlines.call_oldest(Call::GiveWay, GIVE_WAY_COUNT, until_ms, None) == 0 {
        deadlines.call_some(Call::GiveWay, GIVE_WAY_COUNT);
    }
}

/// Asks other connections to close, and waits until one has closed or until the next sweep.
async fn make_room<H: Handler>(worker: &Worker<H>) {
    // Connections that were just accepted must run their first turn before they can be asked.
    yield_now().await;
    give_way(worker);
    // Other workers may hold all descriptors, so the sweep must run even if this worker has no connections.
    worker.starved.set(true);
    worker.changed.notify_waiters();
    worker.changed.notified().await;
    worker.starved.set(false);
}

#[cfg(test)]
mod tests {
    use super::{ACCEPT_QUEUE_MIN, AcceptProblem, AcceptQueue};
    use crate::counters::Counters;
    use crate::tests::wait_until;
    use flatout_os::socket::{BACKLOG, ListenOptions, accept_queue, bind_listener};
    use rustix::net::{SocketFlags, acceptfrom_with};
    use std::io::Write as _;
    use std::net::TcpStream;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_saturated_queue_is_shortened_and_recovers() {
        let (listener, address) = bind_listener(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let counters = Counters::default();
        let mut queue = AcceptQueue::new(listener.as_fd(), BACKLOG as u32);
        // Batches are saturated, but the queue is empty: there is no overload.
        for now_ms in (0..1_000).step_by(4) {
            queue.handle_batch(listener.as_fd(), 8, false, now_ms, &counters);
        }
        assert_eq!((queue.backlog, counters.accept_queue_limited.get()), (BACKLOG as u32, 0));
        // Connections wait in the queue, and one is accepted every 20 ms.
        let clients: Vec<_> = (0..ACCEPT_QUEUE_MIN * 2).map(|_| TcpStream::connect(address).unwrap()).collect();
        for mut client in &clients {
            client.write_all(b"G").unwrap();
        }
        wait_until("the queue", || accept_queue(listener.as_fd()).unwrap().length == ACCEPT_QUEUE_MIN * 2);
        for now_ms in (1_000..3_000).step_by(20) {
            queue.handle_batch(listener.as_fd(), 1, false, now_ms, &counters);
        }
        assert!((ACCEPT_QUEUE_MIN..ACCEPT_QUEUE_MIN * 2).contains(&queue.backlog), "{}", queue.backlog);
        for now_ms in (3_000..4_000).step_by(4) {
            queue.handle_batch(listener.as_fd(), 1, true, now_ms, &counters);
        }
        assert_eq!((queue.backlog, counters.accept_queue_limited.get()), (BACKLOG as u32, 1));
        assert!(counters.accept_problems[AcceptProblem::QueueFull as usize].get() > 0);
    }

    /// Even if it is too short to be shortened, or full only for a moment.
    #[test]
    fn connections_from_a_full_queue_are_counted() {
        let options = ListenOptions { backlog: 4, ..ListenOptions::DEFAULT };
        let (listener, address) = bind_listener(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let counters = Counters::default();
        let full = || counters.accept_problems[AcceptProblem::QueueFull as usize].get();
        let length = || accept_queue(listener.as_fd()).unwrap().length;
        let connect = |count: u32| {
            let expected = length() + count;
            for _ in 0..count {
                TcpStream::connect(address).unwrap().write_all(b"G").unwrap();
            }
            wait_until("the queue", || length() == expected);
        };
        let mut queue = AcceptQueue::new(listener.as_fd(), 4);
        assert_eq!((queue.batch(64), queue.batch(1)), (2, 1));
        let mut accept = |count: u32, now_ms: u64| {
            for _ in 0..count {
                acceptfrom_with(&listener, SocketFlags::CLOEXEC).unwrap();
            }
            queue.handle_batch(listener.as_fd(), count, length() == 0, now_ms, &counters);
        };
        for (connections, expected) in [(4, 0), (5, 2)] {
            connect(connections);
            for now_ms in 0..connections / 2 {
                accept(2, now_ms.into());
            }
            assert_eq!(full(), expected, "{connections}");
            while length() > 0 {
                accept(1, 5);
            }
        }
        // One client after the other, while others wait.
        connect(3);
        for now_ms in 10..30 {
            connect(1);
            accept(1, now_ms);
        }
        assert_eq!(full(), 2);
    }
}
