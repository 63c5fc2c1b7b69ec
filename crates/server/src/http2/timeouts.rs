//! Deadlines of one connection, and calls from its worker.

use super::stream::{PendingStream, ServerStream};
use super::task::{Http2Task, Http2TaskState};
use crate::deadline::{Call, SlotId};
use crate::http1::task::DRAIN_IDLE_MS;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_http::http2::frame::ErrorCode;
use flatout_os::socket::unacknowledged_bytes;

impl<H: Handler> Http2Task<H> {
    /// Updates the time since which the client has made no progress.
    pub(super) fn note_progress(&mut self) {
        let now_ms = self.now_ms();
        let (received, sent) = self.link.take_counts();
        self.worker.counters.bytes_received.add(received);
        self.worker.counters.bytes_sent.add(sent);
        let is_blocked = self.link.is_blocked();
        // While a response is blocked, bytes taken by the kernel count; otherwise only content does, or pings would.
        let is_idle = !is_blocked && !self.is_sending();
        if is_idle || self.content_bytes != self.taken_bytes || is_blocked && sent > 0 {
            (self.taken_ms, self.taken_bytes) = (now_ms, self.content_bytes);
            self.unacknowledged_bytes = None;
        }
        self.fields_since_ms = if self.core.is_within_fields() { self.fields_since_ms.min(now_ms) } else { u64::MAX };
        // Only requests keep a connection open: pings do not.
        if self.busy_streams() > 0 && self.state == Http2TaskState::Open {
            self.since_ms = now_ms;
        }
    }

    fn is_sending(&self) -> bool {
        self.core.iter().any(|(_, stream)| stream.is_sending())
    }

    /// The earliest deadline, and the close reason if it passes.
    fn next_deadline(&self) -> (u64, CloseReason) {
        let timeouts = &self.worker.settings.timeouts;
        let write = (self.taken_ms.saturating_add(timeouts.write_timeout_ms), CloseReason::WriteTimeout);
        let closing = self.closing.unwrap_or(CloseReason::ClientClosed);
        match self.state {
            Http2TaskState::Closing | Http2TaskState::Lingering => {
                return (self.since_ms.saturating_add(timeouts.linger_timeout_ms), closing);
            }
            // The preface includes the client's SETTINGS (RFC 9113 §3.4).
            Http2TaskState::Open if !self.core.has_begun() => {
                return (self.since_ms.saturating_add(timeouts.handshake_timeout_ms), CloseReason::PrefaceTimeout);
            }
            Http2TaskState::Open => {}
        }
        let mut earliest = (u64::MAX, closing);
        let mut consider = |deadline: (u64, CloseReason)| {
            if deadline.0 < earliest.0 {
                earliest = deadline;
            }
        };
        if self.link.is_blocked() || self.is_sending() {
            consider(write);
        } else if self.busy_streams() == 0 {
            let drains = self.draining && !self.worker.handing_over.get();
            let (timeout_ms, reason) = if drains {
                (DRAIN_IDLE_MS, CloseReason::Draining)
            } else {
                (timeouts.idle_timeout_ms, CloseReason::IdleTimeout)
            };
            consider((self.since_ms.saturating_add(timeout_ms), reason));
        }
        if self.fields_since_ms < u64::MAX {
            consider((self.fields_since_ms.saturating_add(timeouts.head_timeout_ms), CloseReason::HeadTimeout));
        }
        if let Some((_, until_ms)) = self.lingering.first() {
            consider((*until_ms, CloseReason::RefusedBody));
        }
        for (_, stream) in self.core.iter() {
            consider((stream.content_deadline_ms(), CloseReason::BodyTimeout));
        }
        earliest
    }

    pub(super) fn arm(&mut self, slot: SlotId) {
        let (deadline_ms, _) = self.next_deadline();
        if deadline_ms < self.armed_ms {
            self.armed_ms = deadline_ms;
            self.worker.deadlines.borrow_mut().set(slot, deadline_ms);
        }
    }

    /// Handles a call from the sweep, the drain, or a connection that needs a descriptor. Returns the reason if the
    /// connection is to be cut immediately.
    pub(super) fn handle_call(&mut self, call: Call) -> Option<CloseReason> {
        // The call may have replaced an expired deadline, so the table's entry is unknown.
        self.armed_ms = u64::MAX;
        match call {
            Call::Abandon => Some(CloseReason::DrainDeadline),
            // The following turn announces it to the client. An idle client has one second to notice.
            Call::Drain => {
                self.since_ms = self.now_ms();
                None
            }
            Call::GiveWay if self.busy_streams() == 0 => {
                self.shut(CloseReason::DescriptorPressure);
                None
            }
            Call::GiveWay => None,
            Call::Expired => self.handle_expired(),
        }
    }

    fn handle_expired(&mut self) -> Option<CloseReason> {
        self.let_go();
        let (deadline_ms, reason) = self.next_deadline();
        if deadline_ms > self.now_ms() {
            return None;
        }
        match reason {
            CloseReason::WriteTimeout if !self.is_stuck() => {
                self.taken_ms = self.now_ms();
                None
            }
            CloseReason::BodyTimeout => {
                self.refuse_slow_bodies();
                None
            }
            CloseReason::IdleTimeout | CloseReason::Draining | CloseReason::HeadTimeout
                if self.state == Http2TaskState::Open =>
            {
                self.shut(reason);
                None
            }
            // Streams that were let go have been reset.
            CloseReason::RefusedBody => None,
            reason => Some(reason),
        }
    }

    /// Tells the client that the connection closes now.
    fn shut(&mut self, reason: CloseReason) {
        if self.state == Http2TaskState::Open {
            self.core.shut(ErrorCode::NoError, &mut self.link.output);
            self.begin_closing(reason);
        }
    }

    /// Returns whether the client has taken nothing for a whole timeout; see `ServerConnection::is_stuck`.
    fn is_stuck(&mut self) -> bool {
        let before = self.unacknowledged_bytes;
        self.unacknowledged_bytes = unacknowledged_bytes(self.link.socket().fd()).ok();
        match (before, self.unacknowledged_bytes) {
            (None, now) => now.is_none(),
            (Some(before), now) => now.is_none_or(|now| now >= before),
        }
    }

    /// Sends 408 for every request whose content is late.
    fn refuse_slow_bodies(&mut self) {
        let now_ms = self.now_ms();
        let is_slow = |(id, stream): (u32, &ServerStream)| (stream.content_deadline_ms() <= now_ms).then_some(id);
        let slow: Vec<u32> = self.core.iter().filter_map(is_slow).collect();
        for id in slow {
            let record = match self.take(id) {
                ServerStream::Receiving(receiving) => receiving.record,
                ServerStream::Pending(pending) => {
                    let PendingStream { response, intake } = *pending;
                    if let Some(mut intake) = intake {
                        intake.cut(CloseReason::BodyTimeout);
                    }
                    response.record
                }
                ServerStream::Idle | ServerStream::Sending(_) | ServerStream::Streaming(_) => continue,
            };
            let error = (408, "The request was not complete in time.", CloseReason::BodyTimeout.name());
            self.respond_with_error(id, error, &record, None);
        }
    }
}
