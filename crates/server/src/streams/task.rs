//! The task of a connection with streams: its turns, its close, and its entry in the worker's table of deadlines.

use super::{StreamTransport, Streams};
use crate::acknowledged::AcknowledgedSamples;
use crate::deadline::Call;
use crate::http1::connection::Wait;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::spawn_local;

/// A connection with streams.
pub(crate) trait StreamConnection: 'static {
    /// Handles everything that can be handled now. Returns `Ready` when the connection is finished.
    fn take_turn(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Handles the close of the connection.
    fn handle_close(&mut self);
}

/// Serves a connection until it closes.
pub(crate) fn spawn(connection: impl StreamConnection + Unpin) {
    // Boxed, because the runtime reserves more memory for a task than its size.
    spawn_local(Box::pin(Turns(connection)));
}

/// Runs the turns of a connection. An async block would be larger than the connection.
struct Turns<C>(C);

impl<C: StreamConnection + Unpin> Future for Turns<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.0.take_turn(context));
        self.0.handle_close();
        Poll::Ready(())
    }
}

impl<H: Handler, T: StreamTransport> Streams<H, T> {
    /// Takes the worker's call for this connection, if there is one. The first turn adds the connection to the table.
    pub(crate) fn take_call(&mut self, context: &Context<'_>) -> Option<Call> {
        let mut deadlines = self.worker.deadlines.borrow_mut();
        let slot = *self.slot.get_or_insert_with(|| deadlines.insert(context.waker().clone()));
        if !deadlines.has_calls() {
            return None;
        }
        let call = deadlines.take_call(slot)?;
        // The call may have replaced an expired deadline, so the entry in the table is unknown.
        self.armed_ms = u64::MAX;
        Some(call)
    }

    /// Sets the deadline of the connection if it is earlier than the one in the table.
    pub(crate) fn arm(&mut self, deadline_ms: u64) {
        if let Some(slot) = self.slot
            && deadline_ms < self.armed_ms
        {
            self.armed_ms = deadline_ms;
            self.worker.deadlines.borrow_mut().set(slot, deadline_ms);
        }
    }

    /// Returns the deadline of a wait that began at `since_ms`, and the reason to close the connection when it passes.
    pub(crate) fn deadline(&self, since_ms: u64, wait: Wait) -> (u64, CloseReason) {
        let drains = self.draining && !self.worker.handing_over.get();
        let (timeout_ms, reason) = wait.limit(&self.worker.settings.timeouts, drains);
        (since_ms.saturating_add(timeout_ms), reason)
    }

    /// Returns the earliest deadline of an open connection. `own` is a deadline that only its HTTP version has.
    /// `is_blocked` is true if the client has not accepted bytes that precede any content, and `is_busy` if any stream
    /// is in progress. If there are `samples`, the deadline of a write is when to take the next one. `head_since_ms` is
    /// when the oldest incomplete head began to arrive, or `u64::MAX` if there is none.
    pub(crate) fn open_deadline(
        &self,
        own: (u64, CloseReason),
        (is_blocked, samples): (bool, Option<AcknowledgedSamples>),
        is_busy: bool,
        head_since_ms: u64,
    ) -> (u64, CloseReason) {
        let progress = if is_blocked || self.is_sending() {
            let (deadline_ms, reason) = self.deadline(self.taken_ms, Wait::Write);
            let timeout_ms = self.worker.settings.timeouts.write_timeout_ms;
            (samples.map_or(deadline_ms, |samples| samples.deadline_ms(self.taken_ms, timeout_ms)), reason)
        } else {
            self.deadline(if is_busy { u64::MAX } else { self.since_ms }, Wait::Idle)
        };
        let head = self.deadline(head_since_ms, Wait::Head);
        let content = (self.content_deadline_ms(), CloseReason::BodyTimeout);
        let earlier =
            |first: (u64, CloseReason), other: (u64, CloseReason)| if other.0 < first.0 { other } else { first };
        [progress, head, content].into_iter().fold(own, earlier)
    }

    /// Updates since when the client has accepted nothing, and since when the connection has been idle. A connection
    /// that `is_busy` is not idle. `blocked_sent_bytes` is the number of bytes that the socket accepted in this turn,
    /// if it was blocked; otherwise only content counts as progress, so that pings do not. Returns whether the client
    /// has made progress, or a wait for it begins.
    pub(crate) fn note_progress(&mut self, blocked_sent_bytes: Option<u64>, is_busy: bool) -> bool {
        let now_ms = self.now_ms();
        // Only requests keep a connection open; pings do not.
        if is_busy {
            self.since_ms = now_ms;
        }
        let is_waiting = blocked_sent_bytes.is_some() || self.is_sending();
        let was_waiting = std::mem::replace(&mut self.is_waiting, is_waiting);
        let has_sent = blocked_sent_bytes.is_some_and(|bytes| bytes > 0);
        let has_progressed = !(was_waiting && is_waiting) || has_sent || self.content_bytes != self.taken_bytes;
        if has_progressed {
            (self.taken_ms, self.taken_bytes) = (now_ms, self.content_bytes);
        }
        has_progressed
    }

    /// Updates the worker's count of streams in progress with the `count` of this connection.
    pub(crate) fn count_streams(&mut self, count: usize) {
        let streams = &self.worker.streams;
        streams.set((streams.get() + count).saturating_sub(self.counted));
        self.counted = count;
    }

    /// Handles the close of the connection: aborts all streams and counts the reason.
    pub(crate) fn close(&mut self) {
        let reason = *self.closing.get_or_insert(CloseReason::ClientClosed);
        self.cut();
        self.worker.counters.closes[reason as usize].add(1);
    }
}

impl<H: Handler, T> Drop for Streams<H, T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.worker.deadlines.borrow_mut().remove(slot);
        }
        let streams = &self.worker.streams;
        streams.set(streams.get().saturating_sub(self.counted));
        self.worker.open.set(self.worker.open.get().saturating_sub(1));
        self.worker.changed.notify_waiters();
    }
}
