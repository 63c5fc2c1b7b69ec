//! A UDP socket and its connections: one task receives, passes datagrams to the tasks of the connections, and runs
//! their timers.

use super::connection::{Inbox, QuicConnection};
use super::socket::{Arrival, QuicSocket};
use super::timers::QuicTimers;
use crate::waker::WakerCell;
use quinn_proto::{
    ClientConfig, ConnectError, ConnectionError, ConnectionEvent, ConnectionHandle, DatagramEvent, Endpoint,
    EndpointConfig, EndpointEvent, Incoming, ServerConfig, Transmit,
};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Maximum receive calls before the task yields to others. Each call receives up to 512 datagrams.
const RECEIVES_MAX: usize = 4;

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The peer's address, and how the datagram arrived.
    pub arrival: Arrival,
    /// The UDP payload.
    pub bytes: &'a [u8],
}

/// Forwards a datagram that belongs to another owner. Returns `false` if the datagram belongs to this endpoint.
pub type Divert = Box<dyn Fn(&Datagram<'_>) -> bool>;

/// A UDP socket with its QUIC connections.
pub struct QuicEndpoint {
    socket: QuicSocket,
    core: RefCell<Endpoint>,
    inboxes: RefCell<Vec<Option<Rc<Inbox>>>>,
    timers: QuicTimers,
    /// Reusable buffer for the output of one connection's turn.
    output: RefCell<Vec<u8>>,
    divert: Option<Divert>,
    is_receiving: Cell<bool>,
    is_closing: Cell<bool>,
    driver: WakerCell,
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
    /// Number of receive errors that do not concern single peers.
    failures: Cell<u64>,
}

impl QuicEndpoint {
    /// Registers `socket`. Without `server`, the endpoint accepts no connections. Must be called within a worker's
    /// runtime.
    pub fn new(
        socket: OwnedFd,
        config: Arc<EndpointConfig>,
        server: Option<Arc<ServerConfig>>,
        divert: Option<Divert>,
    ) -> io::Result<Rc<Self>> {
        let socket = QuicSocket::new(socket)?;
        let core = Endpoint::new(config, server, socket.may_discover_mtu(), None);
        Ok(Rc::new(Self {
            socket,
            core: RefCell::new(core),
            inboxes: RefCell::default(),
            timers: QuicTimers::new()?,
            output: RefCell::default(),
            divert,
            is_receiving: Cell::new(true),
            is_closing: Cell::new(false),
            driver: WakerCell::default(),
            received_bytes: Cell::new(0),
            sent_bytes: Cell::new(0),
            failures: Cell::new(0),
        }))
    }

    /// Starts a connection to `remote`, whose certificate must be valid for `name`. The caller must drive the
    /// connection.
    pub fn connect(
        self: &Rc<Self>,
        config: ClientConfig,
        remote: SocketAddr,
        name: &str,
    ) -> Result<QuicConnection, ConnectError> {
        let (handle, connection) = self.core.borrow_mut().connect(flatout_os::clock::now(), config, remote, name)?;
        Ok(QuicConnection::new(self, handle, connection))
    }

    /// Accepts a client's connection. The caller must drive the connection.
    pub fn accept(self: &Rc<Self>, incoming: Incoming) -> Result<QuicConnection, ConnectionError> {
        let mut output = self.output.take();
        output.clear();
        let accepted = self.core.borrow_mut().accept(incoming, flatout_os::clock::now(), &mut output, None);
        let accepted = match accepted {
            Ok((handle, connection)) => Ok(QuicConnection::new(self, handle, connection)),
            Err(error) => {
                if let Some(response) = error.response {
                    self.respond(&response, &output);
                }
                Err(error.cause)
            }
        };
        self.output.replace(output);
        accepted
    }

    /// Requires a client to prove its address first (RFC 9000 §8.1.2). Refuses the connection if it has already done
    /// so.
    pub fn retry(&self, incoming: Incoming) {
        self.answer(|core, output| match core.retry(incoming, output) {
            Ok(response) => Some(response),
            Err(error) => Some(core.refuse(error.into_incoming(), output)),
        });
    }

    /// Refuses a connection with CONNECTION_REFUSED.
    pub fn refuse(&self, incoming: Incoming) {
        self.answer(|core, output| Some(core.refuse(incoming, output)));
    }

    /// Drops a new connection without a response.
    pub fn ignore(&self, incoming: Incoming) {
        self.core.borrow_mut().ignore(incoming);
    }

    fn answer(&self, respond: impl FnOnce(&mut Endpoint, &mut Vec<u8>) -> Option<Transmit>) {
        let mut output = self.output.take();
        output.clear();
        let response = respond(&mut self.core.borrow_mut(), &mut output);
        if let Some(response) = response {
            self.respond(&response, &output);
        }
        self.output.replace(output);
    }

    /// Sends a response that belongs to no connection. Drops the response if the socket's buffer is full.
    fn respond(&self, response: &Transmit, output: &[u8]) {
        self.socket.send(response, &output[..response.size.min(output.len())], &mut Context::from_waker(Waker::noop()));
    }

    /// Receives datagrams and runs the timers, until [`Self::close`] has been called and all connections have closed.
    /// `accept` is called with each new connection, and accepts or refuses it.
    pub async fn drive(self: Rc<Self>, mut accept: impl FnMut(Incoming)) {
        poll_fn(|context| {
            self.poll(context, &mut accept);
            if self.is_closing.get() && self.core.borrow().open_connections() == 0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Makes [`Self::drive`] complete when no connection is left.
    pub fn close(&self) {
        self.is_closing.set(true);
        self.driver.wake();
    }

    /// Returns whether [`Self::close`] was called, so that the endpoint should accept no more connections.
    pub const fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    fn poll(&self, context: &mut Context<'_>, accept: &mut impl FnMut(Incoming)) {
        self.driver.register(context);
        let mut due = Vec::new();
        if self.timers.poll_due(context, &mut due).is_err() {
            self.failures.set(self.failures.get() + 1);
        }
        for connection in due {
            self.with_inbox(connection, Inbox::handle_time);
        }
        if self.socket.is_blocked() {
            self.socket.poll_writable(context);
        }
        for _ in 0..RECEIVES_MAX {
            if !self.is_receiving.get() {
                return;
            }
            let received = self.socket.poll_receive(context, |arrival, bytes| {
                let datagram = Datagram { arrival, bytes };
                if !self.divert.as_ref().is_some_and(|divert| divert(&datagram)) {
                    self.handle(&datagram, accept);
                }
            });
            match received {
                Poll::Pending => return,
                Poll::Ready(Ok(bytes)) => self.received_bytes.set(self.received_bytes.get() + bytes as u64),
                Poll::Ready(Err(_)) => self.failures.set(self.failures.get() + 1),
            }
        }
        context.waker().wake_by_ref();
    }

    /// Handles a datagram, which another owner may have received. `accept` is called with a new connection, and accepts
    /// or refuses it.
    pub fn handle(&self, datagram: &Datagram<'_>, accept: &mut impl FnMut(Incoming)) {
        let Arrival { remote, local_ip, ecn } = datagram.arrival;
        let mut output = self.output.take();
        output.clear();
        let event = self.core.borrow_mut().handle(
            flatout_os::clock::now(),
            remote,
            local_ip,
            ecn,
            datagram.bytes.into(),
            &mut output,
        );
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                self.with_inbox(handle.0, |inbox| inbox.add(event, datagram.bytes.len()));
            }
            Some(DatagramEvent::Response(response)) => self.respond(&response, &output),
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.output.replace(output);
                return accept(incoming);
            }
            None => {}
        }
        self.output.replace(output);
    }

    /// Stops or resumes receiving. Connections continue with datagrams passed to [`Self::handle`].
    pub fn set_receiving(&self, is_receiving: bool) {
        self.is_receiving.set(is_receiving);
        self.driver.wake();
    }

    /// Returns the number of bytes received and sent since the last call.
    pub fn take_counts(&self) -> (u64, u64) {
        (self.received_bytes.take(), self.sent_bytes.take())
    }

    fn with_inbox(&self, connection: usize, handle: impl FnOnce(&Inbox)) {
        let inbox = self.inboxes.borrow().get(connection).and_then(Clone::clone);
        if let Some(inbox) = inbox {
            handle(&inbox);
        }
    }

    pub(super) fn open_inbox(&self, handle: ConnectionHandle) -> Rc<Inbox> {
        let inbox = Rc::new(Inbox::default());
        let mut inboxes = self.inboxes.borrow_mut();
        if inboxes.len() <= handle.0 {
            inboxes.resize(handle.0 + 1, None);
        }
        inboxes[handle.0] = Some(Rc::clone(&inbox));
        inbox
    }

    /// Handles an event that a connection has for its endpoint. Returns the endpoint's event for the connection, if
    /// any.
    pub(super) fn handle_event(&self, handle: ConnectionHandle, event: EndpointEvent) -> Option<ConnectionEvent> {
        if event.is_drained()
            && let Some(inbox) = self.inboxes.borrow_mut().get_mut(handle.0)
        {
            *inbox = None;
            if self.is_closing.get() {
                self.driver.wake();
            }
        }
        self.core.borrow_mut().handle_event(handle, event)
    }

    pub(super) const fn timers(&self) -> &QuicTimers {
        &self.timers
    }

    pub(super) fn segments_max(&self) -> usize {
        self.socket.segments_max()
    }

    /// Returns the empty buffer for the output of one connection.
    pub(super) fn take_output(&self) -> Vec<u8> {
        let mut output = self.output.take();
        output.clear();
        output
    }

    pub(super) fn return_output(&self, output: Vec<u8>) {
        self.output.replace(output);
    }

    /// Sends datagrams. Returns `false` if the task of `context` must wait for room in the socket's buffer.
    pub(super) fn send(&self, transmit: &Transmit, output: &[u8], context: &mut Context<'_>) -> bool {
        let was_blocked = self.socket.is_blocked();
        let is_sent = self.socket.send(transmit, output, context);
        if is_sent {
            self.sent_bytes.set(self.sent_bytes.get() + output.len() as u64);
        } else if !was_blocked {
            self.driver.wake();
        }
        is_sent
    }
}

impl std::fmt::Debug for QuicEndpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("QuicEndpoint").field("socket", &self.socket).finish_non_exhaustive()
    }
}
