//! The QUIC endpoints of a worker, and which connections they accept.

use super::receiving::reason_of_loss;
use super::relay::{MESSAGE_BYTES, RelayInbox, Route, decode, route};
use super::settings::{HANDSHAKES_MAX, HANDSHAKES_UNPROVEN_MAX, QuicIdentity, bounds};
use super::task::Http3Task;
use crate::accept::AcceptProblem;
use crate::worker::{Listener, Worker};
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_net::quic::endpoint::Divert;
use flatout_net::quic::ids::{Owner, destination_id};
use flatout_net::quic::settings::{endpoint_config, server_config};
use flatout_net::quic::{Datagram, QuicEndpoint};
use flatout_os::registered::Registered;
use quinn_proto::Incoming;
use rustix::io::Errno;
use rustix::net::{RecvFlags, getsockname, recv};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Poll, ready};
use tokio::io::Interest;
use tokio::task::spawn_local;

/// A UDP socket of this worker.
#[derive(Clone)]
struct QuicListener {
    /// The number of the listener.
    id: u32,
    bound: SocketAddr,
    /// The owner that the connection IDs of this socket contain.
    owner: Owner,
    endpoint: Rc<QuicEndpoint>,
}

/// The QUIC endpoints of a worker.
pub(crate) struct QuicListeners<H: Handler> {
    worker: Rc<Worker<H>>,
    all: RefCell<Vec<QuicListener>>,
    is_receiving: Cell<bool>,
}

impl<H: Handler> QuicListeners<H> {
    pub(crate) fn new(worker: Rc<Worker<H>>, is_receiving: bool) -> Rc<Self> {
        Rc::new(Self { worker, all: RefCell::default(), is_receiving: Cell::new(is_receiving) })
    }

    /// Serves HTTP/3 on the UDP socket of `listener`.
    pub(crate) fn add(self: &Rc<Self>, listener: Listener) -> io::Result<()> {
        let Listener { fd, id, .. } = listener;
        let worker = &self.worker;
        let missing = || io::Error::other("the system cannot provide random bytes");
        let identity = worker.quic.as_ref().ok_or_else(missing)?;
        let tls = worker.tls.as_ref().and_then(|tls| tls.quic()).ok_or_else(missing)?;
        let server = server_config(&tls, &identity.secrets, &bounds(&worker.settings.timeouts));
        let bound = SocketAddr::try_from(getsockname(&fd)?)?;
        // After an upgrade to fewer workers, a worker has several sockets with the same address.
        let sockets = self.all.borrow().iter().filter(|listener| listener.bound == bound).count();
        let owner = identity.hub.owner_of(identity.owner, sockets);
        let config = endpoint_config(&identity.secrets, &identity.cipher, owner);
        let endpoint = QuicEndpoint::new(fd, config, Some(server), Some(self.divert(identity, owner, bound)))?;
        endpoint.set_receiving(self.is_receiving.get());
        let listener = QuicListener { id, bound, owner, endpoint: Rc::clone(&endpoint) };
        worker.announcements.add(id, bound.port());
        self.all.borrow_mut().push(listener.clone());
        let worker = Rc::clone(worker);
        spawn_local(endpoint.drive(move |incoming| accept(&worker, &listener, incoming)));
        Ok(())
    }

    /// Returns a function that forwards datagrams to their owners.
    fn divert(&self, identity: &QuicIdentity, owner: Owner, bound: SocketAddr) -> Divert {
        let (identity, worker) = (identity.clone(), Rc::downgrade(&self.worker));
        Box::new(move |datagram| {
            let route = route(&identity.hub, &identity.cipher, owner, bound, datagram);
            if route == Route::Here {
                return false;
            }
            let Some(worker) = worker.upgrade() else { return true };
            worker.counters.quic_datagrams_relayed.add(u64::from(route == Route::PassedOn));
            // Connections of the successor process are unknown here and must not be reset.
            route != Route::Unknown || worker.handing_over.get()
        })
    }

    /// Closes the endpoints of the listener `id` as soon as their connections have closed.
    pub(crate) fn remove(&self, id: u32) {
        self.worker.announcements.remove(id);
        for listener in self.all.borrow_mut().extract_if(.., |listener| listener.id == id) {
            listener.endpoint.close();
        }
    }

    /// Starts or stops receiving from the sockets.
    pub(crate) fn set_receiving(&self, is_receiving: bool) {
        self.is_receiving.set(is_receiving);
        for listener in &*self.all.borrow() {
            listener.endpoint.set_receiving(is_receiving);
        }
    }

    /// Handles a datagram that another worker or process received at the socket `bound`.
    fn handle(&self, bound: SocketAddr, datagram: &Datagram<'_>) {
        let identity = self.worker.quic.as_ref();
        let owner = destination_id(datagram.bytes).and_then(|id| identity?.cipher.open(id));
        let all = self.all.borrow();
        let find =
            |is_it: &dyn Fn(&QuicListener) -> bool| all.iter().find(|on| on.bound == bound && is_it(on)).cloned();
        let listener = find(&|on| Some(on.owner) == owner).or_else(|| find(&|_| true));
        drop(all);
        if let Some(listener) = listener {
            listener.endpoint.handle(datagram, &mut |incoming| accept(&self.worker, &listener, incoming));
        }
    }

    /// Handles datagrams that other workers receive for this one. Runs until the channel closes.
    pub(crate) async fn receive_parcels(self: Rc<Self>, mut inbox: RelayInbox) {
        while let Some(parcel) = inbox.recv().await {
            self.handle(parcel.bound, &Datagram { arrival: parcel.arrival, bytes: &parcel.bytes });
        }
    }

    /// Handles datagrams that the successor of this process sends, until it closes the socket.
    pub(crate) async fn receive_messages(self: Rc<Self>, socket: OwnedFd) -> io::Result<()> {
        let socket = Registered::with_interest(Rc::new(socket), Interest::READABLE)?;
        let mut message = vec![0; MESSAGE_BYTES];
        poll_fn(|context| {
            loop {
                let mut guard = ready!(socket.poll_read_ready(context))?;
                match recv(socket.fd(), &mut message[..], RecvFlags::empty()) {
                    Ok((0, _)) => return Poll::Ready(Ok(())),
                    Ok((count, _)) => {
                        if let Some((bound, datagram)) = decode(&message[..count]) {
                            self.handle(bound, &datagram);
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => guard.clear_ready(),
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
        })
        .await
    }
}

/// Accepts, validates or refuses a new connection.
fn accept<H: Handler>(worker: &Rc<Worker<H>>, listener: &QuicListener, incoming: Incoming) {
    let QuicListener { id, endpoint, .. } = listener;
    let counters = &worker.counters;
    let handshakes = worker.handshakes.get();
    let is_leaving = endpoint.is_closing() || worker.draining.get() && !worker.handing_over.get();
    let problem = match AcceptProblem::of_limits(worker) {
        None if handshakes >= HANDSHAKES_MAX => Some(AcceptProblem::QuicHandshakes),
        problem => problem,
    };
    if is_leaving || problem.is_some() {
        counters.count_accept_problem(problem.filter(|_| !is_leaving));
        counters.quic_refused.add(1);
        return endpoint.refuse(incoming);
    }
    if handshakes >= HANDSHAKES_UNPROVEN_MAX && !incoming.remote_address_validated() {
        counters.quic_retries.add(1);
        return endpoint.retry(incoming);
    }
    let permits = if worker.held.handshakes.is_full() {
        Err(CloseReason::HandshakesTotal)
    } else {
        worker.held.admit(Some(incoming.remote_address()), true)
    };
    let permits = match permits {
        Ok(permits) => permits,
        Err(reason) => {
            counters.connections_accepted.add(1);
            counters.closes[reason as usize].add(1);
            counters.quic_refused.add(1);
            return endpoint.refuse(incoming);
        }
    };
    match endpoint.accept(incoming) {
        Ok(quic) => Http3Task::spawn(worker, (quic, permits), *id),
        // The first packet violated a rule, and quinn has already sent the error to the client.
        Err(cause) => {
            counters.connections_accepted.add(1);
            let reason = reason_of_loss(counters, false, &cause);
            counters.closes[reason as usize].add(1);
        }
    }
}
