//! A connection to an application server: bytes both ways, and when patience with them ends.

use super::client::Shared;
use crate::origin::transport::Socket;
use crate::origin::waits::Patience;
use std::fmt;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A connection that carries one request at a time. Dropping it closes it.
pub struct Connection {
    pub(super) socket: Socket,
    pub(super) shared: Rc<Shared>,
    patience: Patience,
    reused: bool,
}

impl Connection {
    pub(super) fn new(socket: Socket, shared: &Rc<Shared>, reused: bool) -> Self {
        Self { socket, patience: shared.timing.patience(), shared: Rc::clone(shared), reused }
    }

    /// Whether it has carried another request before.
    pub const fn is_reused(&self) -> bool {
        self.reused
    }

    /// Sends of `slices` what the socket takes.
    pub fn poll_send(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.socket.poll_send(context, slices)
    }

    /// Shows `look` what has come, of 64 KiB at the most; nothing is the end. The bytes are gone afterwards.
    pub fn poll_receive<T>(&mut self, context: &mut Context<'_>, look: impl FnOnce(&[u8]) -> T) -> Poll<io::Result<T>> {
        let mut input = self.shared.input.borrow_mut();
        let count = ready!(self.socket.poll_receive(context, &mut input))?;
        Poll::Ready(Ok(look(&input[..count])))
    }

    /// A wait begins, of `timeout_ms` at the most.
    pub fn begin_wait(&mut self, timeout_ms: u64) {
        self.patience.begin(timeout_ms);
    }

    /// Nobody is waited for, or for whom the wait has no end.
    pub fn end_wait(&mut self) {
        self.patience.clear();
    }

    /// Whether a wait has begun.
    pub const fn is_waiting(&self) -> bool {
        self.patience.is_waiting()
    }

    /// Ready when the wait has lasted too long. To be asked last, when all else is pending.
    pub fn poll_expired(&mut self, context: &Context<'_>) -> Poll<()> {
        self.patience.poll_expired(context)
    }

    /// Sends `bytes` if the socket takes them at once, for what nobody waits for.
    pub fn send_at_once(&mut self, bytes: &[u8]) {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let _ = self.socket.poll_send(&mut context, &[IoSlice::new(bytes)]);
    }

    /// Keeps the connection for another request, or closes it when there are enough, or more would do harm.
    pub fn give_back(self) {
        let Self { socket, shared, .. } = self;
        shared.keep(socket);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").field("reused", &self.reused).finish_non_exhaustive()
    }
}
