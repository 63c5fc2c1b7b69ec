//! One QUIC connection, driven by a task of its owner.
//!
//! A turn of the task begins with [`QuicConnection::begin_turn`], which handles what has arrived, and ends with
//! [`QuicConnection::end_turn`], which sends everything that the turn produced. In between, the owner uses the
//! connection through its `Deref` to [`quinn_proto::Connection`].

use super::endpoint::QuicEndpoint;
use super::handshake::HandshakeData;
use crate::waker::WakerCell;
use quinn_proto::{Connection, ConnectionEvent, ConnectionHandle, EndpointEvent, Transmit};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::Context;
use std::time::Instant;

/// Maximum send calls in one turn before the connection yields to others, each of up to 64 KiB.
const SENDS_MAX: usize = 16;

/// Received datagrams of a connection that its task has not handled, and the waker of the task.
#[derive(Default)]
pub(crate) struct Inbox {
    events: RefCell<VecDeque<ConnectionEvent>>,
    received_bytes: Cell<u64>,
    /// True if the deadline in the endpoint's table has passed and was removed.
    is_due: Cell<bool>,
    waker: WakerCell,
}

impl Inbox {
    pub(super) fn add(&self, event: ConnectionEvent, bytes: usize) {
        self.received_bytes.set(self.received_bytes.get() + bytes as u64);
        self.events.borrow_mut().push_back(event);
        self.wake();
    }

    pub(super) fn handle_time(&self) {
        self.is_due.set(true);
        self.wake();
    }

    fn wake(&self) {
        self.waker.wake();
    }
}

/// One connection on an endpoint. Dropping it discards the connection without notifying the peer.
pub struct QuicConnection {
    endpoint: Rc<QuicEndpoint>,
    handle: ConnectionHandle,
    core: Connection,
    inbox: Rc<Inbox>,
    /// The deadline in the endpoint's table, which is the next deadline or an earlier one.
    armed: Option<Instant>,
    /// Datagrams that the socket did not accept.
    unsent: Option<Box<(Transmit, Vec<u8>)>>,
    is_forgotten: bool,
    sent_bytes: u64,
    received: u64,
}

impl QuicConnection {
    pub(super) fn new(endpoint: &Rc<QuicEndpoint>, handle: ConnectionHandle, core: Connection) -> Self {
        Self {
            endpoint: Rc::clone(endpoint),
            handle,
            core,
            inbox: endpoint.open_inbox(handle),
            armed: None,
            unsent: None,
            is_forgotten: false,
            sent_bytes: 0,
            received: 0,
        }
    }

    /// Handles the datagrams that arrived since the last turn, and the passage of time. The task of `context` is woken
    /// for the next turn.
    pub fn begin_turn(&mut self, now: Instant, context: &Context<'_>) {
        self.inbox.waker.register(context);
        // Taken as a whole, so that an idle connection owns no buffer.
        for event in self.inbox.events.take() {
            self.received += 1;
            self.core.handle_event(event);
        }
        if self.inbox.is_due.take() {
            self.armed = None;
        }
        if self.core.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.core.handle_timeout(now);
        }
    }

    /// Sends what the turn produced and stores the next deadline.
    pub fn end_turn(&mut self, now: Instant, context: &mut Context<'_>) {
        let mut sends_left = SENDS_MAX;
        loop {
            let mut has_events = false;
            while let Some(event) = self.core.poll_endpoint_events() {
                has_events = true;
                self.is_forgotten |= event.is_drained();
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.core.handle_event(event);
                }
            }
            let has_sent = self.send(now, &mut sends_left, context);
            if !has_events && !has_sent || sends_left == 0 {
                break;
            }
        }
        if sends_left == 0 {
            context.waker().wake_by_ref();
        }
        self.arm();
    }

    /// Sends datagrams as far as the socket accepts them. Returns whether anything was sent.
    fn send(&mut self, now: Instant, sends_left: &mut usize, context: &mut Context<'_>) -> bool {
        let mut has_sent = false;
        if let Some(unsent) = self.unsent.take() {
            let (transmit, output) = &*unsent;
            if !self.endpoint.send(transmit, output, context) {
                self.unsent = Some(unsent);
                return false;
            }
            has_sent = true;
        }
        let mut output = self.endpoint.take_output();
        while *sends_left > 0
            && let Some(transmit) = self.core.poll_transmit(now, self.endpoint.segments_max(), &mut output)
        {
            *sends_left -= 1;
            let contents = &output[..transmit.size.min(output.len())];
            self.sent_bytes += contents.len() as u64;
            if !self.endpoint.send(&transmit, contents, context) {
                self.unsent = Some(Box::new((transmit, contents.to_vec())));
                break;
            }
            has_sent = true;
            output.clear();
        }
        self.endpoint.return_output(output);
        has_sent
    }

    fn arm(&mut self) {
        let wanted = if self.is_forgotten { None } else { self.core.poll_timeout() };
        // A later deadline replaces an earlier one only when the earlier one has passed, because most deadlines are
        // moved before they pass.
        let must_set = match (self.armed, wanted) {
            (None, None) => false,
            (Some(armed), Some(wanted)) => wanted < armed,
            _ => true,
        };
        if must_set {
            self.endpoint.timers().set(self.handle.0, self.armed, wanted);
            self.armed = wanted;
        }
    }

    /// Returns whether output is waiting for the socket.
    pub const fn is_blocked(&self) -> bool {
        self.unsent.is_some()
    }

    /// Returns whether the client has resumed a TLS session with this server; known when the handshake is complete.
    pub fn is_resumed(&self) -> bool {
        let data = self.core.crypto_session().handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
        data.is_some_and(|data| data.is_resumed)
    }

    /// Bytes sent, with the overhead of QUIC.
    pub const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Returns the number of bytes received, including the overhead of QUIC.
    pub fn received_bytes(&self) -> u64 {
        self.inbox.received_bytes.get()
    }

    /// Returns the number of datagrams received.
    pub const fn received(&self) -> u64 {
        self.received
    }
}

impl Deref for QuicConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.core
    }
}

impl DerefMut for QuicConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.core
    }
}

impl Drop for QuicConnection {
    fn drop(&mut self) {
        self.endpoint.timers().set(self.handle.0, self.armed, None);
        if !self.is_forgotten {
            self.endpoint.handle_event(self.handle, EndpointEvent::drained());
        }
    }
}

impl std::fmt::Debug for QuicConnection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("QuicConnection").field("handle", &self.handle).finish_non_exhaustive()
    }
}
