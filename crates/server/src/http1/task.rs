//! Waits for readiness and deadlines of one registered connection.

use super::connection::{Next, ServerConnection, Wait};
use crate::deadline::{Call, INCOMPLETE_GRACE_MS};
use crate::http2::task::Http2Task;
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_net::deadlines::DeadlineId;
use flatout_os::registered::Registered;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The reason a task ended.
enum TaskEnd {
    /// The connection must be closed.
    Closed(CloseReason),
    /// The connection continues with HTTP/2, in another task.
    Http2,
    /// The connection continues with the handler's tunnel, in another task.
    Tunnel,
}

/// A connection registered with the runtime.
pub(crate) struct ServerTask<H: Handler> {
    worker: Rc<Worker<H>>,
    /// `None` while it is being polled, and after another task has taken it over.
    socket: Option<Registered>,
    connection: ServerConnection,
    slot: Option<DeadlineId>,
    wait_id: Option<(Wait, u32)>,
    /// When the current wait began and when it ends, in milliseconds on the monotonic clock.
    began_ms: u64,
    deadline_ms: u64,
    /// The deadline in the worker's table, which is this deadline or an earlier one.
    armed_ms: u64,
    next: Next,
}

impl<H: Handler> ServerTask<H> {
    pub(crate) fn new(worker: Rc<Worker<H>>, socket: Registered, connection: ServerConnection, next: Next) -> Self {
        worker.open.set(worker.open.get() + 1);
        worker.changed.notify_waiters();
        let socket = Some(socket);
        let (began_ms, deadline_ms) = (worker.clock.latest().monotonic_ms, u64::MAX);
        Self { worker, socket, connection, slot: None, wait_id: None, began_ms, deadline_ms, armed_ms: u64::MAX, next }
    }

    /// Sets the deadline if a new wait has begun.
    ///
    /// # Errors
    /// The reason to close this connection, if the client has too many connections in this kind of wait.
    fn set_deadline(&mut self, slot: DeadlineId) -> Result<(), CloseReason> {
        let wait_id = self.connection.wait_id();
        if self.wait_id == Some(wait_id) {
            return Ok(());
        }
        self.wait_id = Some(wait_id);
        let (timeout_ms, _) = wait_id.0.limit(&self.worker.settings.timeouts, self.worker.drains_idle());
        // A wait begins with the turn that led to it, which read the clock.
        self.began_ms = self.worker.clock.latest().monotonic_ms;
        self.deadline_ms = self.connection.deadline_ms(self.began_ms, timeout_ms);
        if self.deadline_ms < self.armed_ms {
            self.arm(slot);
        }
        self.connection.note_incomplete(&self.worker, slot, self.began_ms)
    }

    fn arm(&mut self, slot: DeadlineId) {
        self.armed_ms = self.deadline_ms;
        self.worker.deadlines.borrow_mut().set(slot, self.deadline_ms);
    }

    /// Handles a call from the sweep, from the drain, or from a connection that needs a file descriptor.
    fn handle_call(&mut self, socket: &Registered, slot: DeadlineId, call: Call) {
        let idle = self.connection.wait() == Wait::Idle;
        // The call may have replaced an expired deadline, so the entry in the table is unknown.
        self.armed_ms = u64::MAX;
        if call == Call::Expired && self.deadline_ms > self.worker.clock.read().monotonic_ms {
            // The expired deadline belonged to an earlier wait; the current one is later.
            self.arm(slot);
            return;
        }
        self.next = match call {
            Call::Expired => self.connection.handle_expired(&self.worker, socket.fd()),
            Call::Abandon => Next::Close(CloseReason::DrainDeadline),
            // A request may have arrived with the call, so run one more turn.
            Call::Drain if idle => self.connection.turn(&self.worker, socket.fd()),
            Call::GiveWay if idle => {
                let before = self.connection.wait_id();
                match self.connection.turn(&self.worker, socket.fd()) {
                    Next::Read if self.connection.wait_id() == before => Next::Close(CloseReason::DescriptorPressure),
                    next => next,
                }
            }
            Call::GiveWay if self.is_slow_to_begin() => {
                self.connection.give_way(&self.worker, socket.fd(), CloseReason::DescriptorPressure)
            }
            Call::Displace(kind) if self.connection.is_incomplete(kind) => {
                self.connection.give_way(&self.worker, socket.fd(), self.worker.held.of(kind).1)
            }
            Call::GiveWay | Call::Displace(_) | Call::Drain => {
                self.arm(slot);
                return;
            }
        };
        // A new wait begins, even if it is of the same kind.
        self.wait_id = None;
    }

    /// Returns whether the client has had more than enough time for its request head or TLS handshake.
    fn is_slow_to_begin(&self) -> bool {
        let waited_ms = self.worker.clock.read().monotonic_ms.saturating_sub(self.began_ms);
        matches!(self.connection.wait(), Wait::ProxyHeader | Wait::Handshake | Wait::Head)
            && waited_ms >= INCOMPLETE_GRACE_MS
    }

    fn poll_connection(&mut self, socket: &Registered, context: &mut Context<'_>) -> Poll<TaskEnd> {
        let slot = *self.slot.get_or_insert_with(|| self.worker.deadlines.borrow_mut().insert(context.waker().clone()));
        if self.worker.deadlines.borrow().has_calls() {
            let call = self.worker.deadlines.borrow_mut().take_call(slot);
            if let Some(call) = call {
                self.handle_call(socket, slot, call);
            }
        }
        if self.next == Next::Answer {
            self.worker.clock.read();
        }
        loop {
            match self.next {
                Next::Close(reason) => return Poll::Ready(TaskEnd::Closed(reason)),
                Next::Http2 => return Poll::Ready(TaskEnd::Http2),
                Next::Tunnel => return Poll::Ready(TaskEnd::Tunnel),
                Next::Yield => {
                    self.next = self.connection.turn(&self.worker, socket.fd());
                    if self.next == Next::Yield {
                        if let Err(reason) = self.set_deadline(slot) {
                            return Poll::Ready(TaskEnd::Closed(reason));
                        }
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Next::Answer => {
                    let Poll::Ready(next) = self.connection.poll_answer(&self.worker, socket, context) else {
                        // Cannot fail: no head is incomplete while a response is pending.
                        let _ = self.set_deadline(slot);
                        return Poll::Pending;
                    };
                    self.next = next;
                }
                Next::Read | Next::Write => {
                    if let Err(reason) = self.set_deadline(slot) {
                        return Poll::Ready(TaskEnd::Closed(reason));
                    }
                    let polled = match self.next {
                        Next::Write => socket.poll_write_ready(context),
                        _ => socket.poll_read_ready(context),
                    };
                    if self.next == Next::Write && polled.is_pending() {
                        self.connection.poll_ahead(context);
                    }
                    let Ok(mut guard) = ready!(polled) else {
                        return Poll::Ready(TaskEnd::Closed(CloseReason::SocketFailed));
                    };
                    let next = self.connection.turn(&self.worker, socket.fd());
                    // The turn consumed the readiness, and newer data causes a new notification. There is also nothing
                    // more to read if the last receive call emptied the socket.
                    let emptied = self.next == Next::Read && next == Next::Answer && !self.connection.undrained;
                    if next == self.next || emptied {
                        guard.clear_ready();
                    }
                    self.next = next;
                }
            }
        }
    }
}

impl<H: Handler> Future for ServerTask<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = self.get_mut();
        let Some(socket) = task.socket.take() else { return Poll::Ready(()) };
        match task.poll_connection(&socket, context) {
            Poll::Pending => {
                task.socket = Some(socket);
                return Poll::Pending;
            }
            Poll::Ready(TaskEnd::Http2) => Http2Task::spawn(&task.worker, socket, &mut task.connection),
            Poll::Ready(TaskEnd::Tunnel) => task.connection.begin_tunnel(&task.worker, socket),
            Poll::Ready(TaskEnd::Closed(reason)) => {
                task.connection.end(socket.fd());
                task.connection.handle_close(&task.worker, reason);
            }
        }
        Poll::Ready(())
    }
}

impl<H: Handler> Drop for ServerTask<H> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.worker.deadlines.borrow_mut().remove(slot);
        }
        self.worker.open.set(self.worker.open.get().saturating_sub(1));
        self.worker.changed.notify_waiters();
    }
}
