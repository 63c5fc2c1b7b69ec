//! Deadlines of one connection, and calls from its worker.

use super::stream::ServerStream;
use super::task::{Http2Task, Http2TaskState};
use crate::deadline::{Call, SlotId};
use crate::ending::CloseReason;
use crate::handler::Handler;
use crate::server::task::DRAIN_IDLE_MS;
use crate::socket::unacknowledged_bytes;
use h2::Reason;

impl<H: Handler> Http2Task<H> {
    /// Updates the time since which the client has made no progress.
    pub(super) fn note_progress(&mut self) {
        let now_ms = self.now_ms();
        let (received, sent) = self.link.borrow_mut().take_counts();
        self.worker.counters.bytes_received.add(received);
        self.worker.counters.bytes_sent.add(sent);
        let link = self.link.borrow();
        // While a response is blocked, bytes taken by the kernel count; otherwise only content does, or pings would.
        let content_bytes = self.endings.sent_bytes();
        let idle = !link.is_blocked() && !self.is_sending();
        if idle || content_bytes != self.taken_bytes || link.is_blocked() && sent > 0 {
            (self.taken_ms, self.taken_bytes) = (now_ms, content_bytes);
            self.unacknowledged_bytes = None;
        }
        self.fields_since_ms = if link.is_within_fields() { self.fields_since_ms.min(now_ms) } else { u64::MAX };
        // Only requests keep a connection open: pings do not.
        if self.is_busy() && matches!(self.state, Http2TaskState::Open(_)) {
            self.since_ms = now_ms;
        }
    }

    fn is_sending(&self) -> bool {
        self.endings.unsent() > 0
            || self.streams.iter().any(|stream| match stream {
                ServerStream::Sending(_) => true,
                // A slow source is not the client's fault.
                ServerStream::Streaming(streaming) => streaming.is_blocked(),
                ServerStream::Receiving(_) | ServerStream::Awaiting(_) => false,
            })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.endings.unsent() > 0 || !self.streams.is_empty()
    }

    /// The earliest deadline, and the close reason if it passes.
    fn next_deadline(&self) -> (u64, CloseReason) {
        let timeouts = &self.worker.settings.timeouts;
        let write = (self.taken_ms.saturating_add(timeouts.write_timeout_ms), CloseReason::WriteTimeout);
        let closing = self.closing.unwrap_or(CloseReason::ClientClosed);
        match self.state {
            Http2TaskState::Preface(_) => {
                return (self.since_ms.saturating_add(timeouts.handshake_timeout_ms), CloseReason::PrefaceTimeout);
            }
            Http2TaskState::Closing | Http2TaskState::Lingering => {
                return (self.since_ms.saturating_add(timeouts.linger_timeout_ms), closing);
            }
            // The preface includes the client's SETTINGS (RFC 9113 §3.4).
            Http2TaskState::Open(_) if self.closing.is_none() && !self.link.borrow().has_begun() => {
                return (self.since_ms.saturating_add(timeouts.handshake_timeout_ms), CloseReason::PrefaceTimeout);
            }
            Http2TaskState::Open(_) => {}
        }
        if self.closing.is_some() {
            // A GOAWAY that the client does not read.
            return (self.taken_ms.saturating_add(timeouts.linger_timeout_ms), closing);
        }
        let mut earliest = (u64::MAX, closing);
        let mut consider = |deadline: (u64, CloseReason)| {
            if deadline.0 < earliest.0 {
                earliest = deadline;
            }
        };
        if self.link.borrow().is_blocked() || self.is_sending() {
            consider(write);
        } else if self.streams.is_empty() {
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
        if let Some(lingering) = self.lingering.first() {
            consider((lingering.until_ms, CloseReason::RefusedBody));
        }
        for stream in &self.streams {
            consider((content_deadline_ms(stream), CloseReason::BodyTimeout));
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
            Call::GiveWay if !self.is_busy() => {
                self.shut(Reason::NO_ERROR, CloseReason::DescriptorPressure);
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
                if matches!(self.state, Http2TaskState::Open(_)) && self.closing.is_none() =>
            {
                self.shut(Reason::NO_ERROR, reason);
                None
            }
            reason => Some(reason),
        }
    }

    /// Tells the client that the connection closes now.
    fn shut(&mut self, why: Reason, reason: CloseReason) {
        if let Http2TaskState::Open(connection) = &mut self.state {
            connection.abrupt_shutdown(why);
            self.taken_ms = self.worker.clock.latest().monotonic_ms;
            self.closing.get_or_insert(reason);
        }
    }

    /// Returns whether the client has taken nothing for a whole timeout; see `ServerConnection::is_stuck`.
    fn is_stuck(&mut self) -> bool {
        let before = self.unacknowledged_bytes;
        self.unacknowledged_bytes = unacknowledged_bytes(self.link.borrow().socket().fd()).ok();
        match (before, self.unacknowledged_bytes) {
            (None, now) => now.is_none(),
            (Some(before), now) => now.is_none_or(|now| now >= before),
        }
    }

    /// Sends 408 for every request whose content is late.
    fn refuse_slow_bodies(&mut self) {
        let now_ms = self.now_ms();
        let is_slow = |stream: &mut ServerStream| content_deadline_ms(stream) <= now_ms;
        let slow: Vec<_> = self.streams.extract_if(.., is_slow).collect();
        for stream in slow {
            let (respond, exchange, rest) = match stream {
                ServerStream::Receiving(receiving) => (receiving.respond, receiving.exchange, Some(receiving.content)),
                ServerStream::Awaiting(awaiting) => {
                    let rest = awaiting.intake.map(|intake| intake.cut(CloseReason::BodyTimeout));
                    (awaiting.respond, awaiting.exchange, rest)
                }
                // After the response has started, its handler and the client decide how long the rest takes.
                ServerStream::Sending(_) | ServerStream::Streaming(_) => continue,
            };
            let error = (408, "The request was not complete in time.", CloseReason::BodyTimeout.name());
            self.answer_error(respond, error, &exchange, None, rest);
        }
    }
}

/// When the client must have sent more of this stream's content; `u64::MAX` if none is awaited.
fn content_deadline_ms(stream: &ServerStream) -> u64 {
    match stream {
        ServerStream::Receiving(receiving) => receiving.deadline_ms,
        ServerStream::Awaiting(awaiting) => awaiting.intake.as_ref().map_or(u64::MAX, |intake| intake.deadline_ms()),
        ServerStream::Sending(_) | ServerStream::Streaming(_) => u64::MAX,
    }
}
