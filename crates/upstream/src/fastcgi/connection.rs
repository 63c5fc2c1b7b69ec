//! Connection to an application server: bytes in both directions, and timeouts.

use super::client::FastcgiShared;
use flatout_net::task_deadlines::DeadlineTimer;
use flatout_net::transport::Socket;
use std::fmt;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A connection that carries one request at a time. Dropping this closes the connection.
pub struct FastcgiConnection {
    pub(super) socket: Socket,
    pub(super) shared: Rc<FastcgiShared>,
    timer: DeadlineTimer,
    reused: bool,
}

impl FastcgiConnection {
    pub(super) fn new(socket: Socket, shared: &Rc<FastcgiShared>, reused: bool) -> Self {
        Self { socket, timer: shared.timing.timer(), shared: Rc::clone(shared), reused }
    }

    /// Returns whether the connection has carried an earlier request.
    pub const fn is_reused(&self) -> bool {
        self.reused
    }

    /// Sends as much of `slices` as the socket accepts. Returns the number of bytes sent.
    pub fn poll_send(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.socket.poll_send(context, slices)
    }

    /// Receives up to 64 KiB and calls `look` with the bytes, which are discarded afterwards. They are empty when the
    /// server has closed the connection.
    pub fn poll_receive<T>(&mut self, context: &mut Context<'_>, look: impl FnOnce(&[u8]) -> T) -> Poll<io::Result<T>> {
        let mut input = self.shared.input.borrow_mut();
        let count = ready!(self.socket.poll_receive(context, &mut input))?;
        Poll::Ready(Ok(look(&input[..count])))
    }

    /// Returns the timer of the connection.
    pub const fn timer(&mut self) -> &mut DeadlineTimer {
        &mut self.timer
    }

    /// Sends `bytes` if the socket accepts them immediately. For optional messages.
    pub fn send_at_once(&mut self, bytes: &[u8]) {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let _ = self.socket.poll_send(&mut context, &[IoSlice::new(bytes)]);
    }

    /// Pools the connection for another request, or closes it if the pool is full or the server is saturated.
    pub fn give_back(self) {
        let Self { socket, shared, .. } = self;
        shared.keep(socket);
    }
}

impl fmt::Debug for FastcgiConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").field("reused", &self.reused).finish_non_exhaustive()
    }
}
