//! Deadlines of one HTTP/2 connection, and calls from its worker.

use super::task::{Http2Task, Http2TaskState};
use crate::deadline::{Call, INCOMPLETE_GRACE_MS, Incomplete};
use crate::http1::connection::Wait;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_http::http2::frame::ErrorCode;
use flatout_os::socket::unacknowledged_bytes;

impl<H: Handler> Http2Task<H> {
    /// Updates the times since which the client has made no progress.
    pub(super) fn note_progress(&mut self) {
        let (received, sent) = self.streams.transport.link.take_counts();
        self.streams.worker.counters.bytes_received.add(received);
        self.streams.worker.counters.bytes_sent.add(sent);
        let is_busy = self.streams.transport.busy_streams() > 0 && self.state == Http2TaskState::Open;
        let blocked_sent_bytes = self.streams.transport.link.is_blocked().then_some(sent);
        if self.streams.note_progress(blocked_sent_bytes, is_busy) {
            self.samples.clear();
        }
        let is_within_fields = self.streams.transport.core.is_within_fields();
        let now_ms = self.streams.now_ms();
        self.fields_since_ms = if is_within_fields { self.fields_since_ms.min(now_ms) } else { u64::MAX };
    }

    /// Returns the earliest deadline, and the reason to close the connection when it passes.
    pub(super) fn next_deadline(&self) -> (u64, CloseReason) {
        let streams = &self.streams;
        match self.state {
            Http2TaskState::Closing | Http2TaskState::Lingering => {
                let closing = streams.closing.unwrap_or(CloseReason::ClientClosed);
                (streams.deadline(streams.since_ms, Wait::Linger).0, closing)
            }
            // The preface includes the client's SETTINGS (RFC 9113 §3.4).
            Http2TaskState::Open if !streams.transport.core.has_begun() => {
                streams.deadline(streams.since_ms, Wait::Preface)
            }
            Http2TaskState::Open => {
                let lingering = streams.transport.lingering.iter().map(|stream| stream.until_ms).min();
                let is_busy = streams.transport.busy_streams() > 0;
                let is_blocked = streams.transport.link.is_blocked();
                let lingering = (lingering.unwrap_or(u64::MAX), CloseReason::RefusedBody);
                streams.open_deadline(lingering, (is_blocked, Some(self.samples)), is_busy, self.fields_since_ms)
            }
        }
    }

    /// Returns what the client has not completed, and since when, in milliseconds.
    pub(super) fn incomplete(&self) -> Option<(Incomplete, u64)> {
        match self.state {
            Http2TaskState::Open if !self.streams.transport.core.has_begun() => {
                Some((Incomplete::Handshake, self.streams.since_ms))
            }
            Http2TaskState::Open if self.fields_since_ms < u64::MAX => Some((Incomplete::Head, self.fields_since_ms)),
            Http2TaskState::Open | Http2TaskState::Closing | Http2TaskState::Lingering => None,
        }
    }

    /// Returns whether the connection should close in favour of another because it is idle or has been incomplete for
    /// long. Responses in progress are never aborted for an incomplete head.
    fn may_give_way(&self) -> bool {
        let is_long = |since_ms| self.streams.now_ms().saturating_sub(since_ms) >= INCOMPLETE_GRACE_MS;
        self.streams.transport.busy_streams() == 0 && self.incomplete().is_none_or(|(_, since_ms)| is_long(since_ms))
    }

    /// Handles a call from the sweep, from the drain, or from a connection that needs a file descriptor. Returns the
    /// reason if the connection must be closed immediately.
    pub(super) fn handle_call(&mut self, call: Call) -> Option<CloseReason> {
        match call {
            Call::Abandon => Some(CloseReason::DrainDeadline),
            // The following turn sends GOAWAY. An idle client has one second to react.
            Call::Drain => {
                self.streams.since_ms = self.streams.now_ms();
                None
            }
            Call::GiveWay if self.may_give_way() => {
                self.shut(CloseReason::DescriptorPressure);
                None
            }
            Call::Displace(kind)
                if self.streams.transport.busy_streams() == 0
                    && self.incomplete().is_some_and(|(own, _)| own == kind) =>
            {
                self.shut(self.streams.worker.held.of(kind).1);
                None
            }
            Call::GiveWay | Call::Displace(_) => None,
            Call::Expired => self.handle_expired(),
        }
    }

    fn handle_expired(&mut self) -> Option<CloseReason> {
        let now_ms = self.streams.now_ms();
        self.streams.transport.reset_expired(now_ms);
        let (deadline_ms, reason) = self.next_deadline();
        if deadline_ms > self.streams.now_ms() {
            return None;
        }
        match reason {
            CloseReason::WriteTimeout if !self.is_stuck() => None,
            // The socket accepts bytes, so only the windows of streams are closed.
            CloseReason::WriteTimeout if !self.streams.transport.link.is_blocked() => {
                self.streams.reset_stalled();
                None
            }
            CloseReason::BodyTimeout => {
                self.streams.refuse_slow_bodies();
                None
            }
            CloseReason::IdleTimeout | CloseReason::Draining | CloseReason::HeadTimeout
                if self.state == Http2TaskState::Open =>
            {
                self.shut(reason);
                None
            }
            // Streams whose delay had expired have been reset.
            CloseReason::RefusedBody => None,
            reason => Some(reason),
        }
    }

    /// Closes the connection and sends GOAWAY, without waiting for streams.
    fn shut(&mut self, reason: CloseReason) {
        if self.state == Http2TaskState::Open {
            self.streams.transport.core.shut(ErrorCode::NoError, &mut self.streams.transport.link.output);
            self.begin_closing(reason);
        }
    }

    /// Returns whether the client has accepted nothing for the write timeout.
    fn is_stuck(&mut self) -> bool {
        let bytes = unacknowledged_bytes(self.streams.transport.link.socket().fd()).ok();
        let (now_ms, timeout_ms) = (self.streams.now_ms(), self.streams.worker.settings.timeouts.write_timeout_ms);
        self.samples.is_stuck(now_ms, timeout_ms, &mut self.streams.taken_ms, bytes)
    }
}
