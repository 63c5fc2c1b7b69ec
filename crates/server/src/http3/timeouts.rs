//! Deadlines of one HTTP/3 connection, and calls from its worker.

use super::task::{Http3Task, Http3TaskState};
use crate::deadline::{Call, Incomplete};
use crate::http1::connection::Wait;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;

impl<H: Handler> Http3Task<H> {
    /// Returns the earliest deadline, and the reason to close the connection when it passes.
    pub(super) fn next_deadline(&mut self) -> (u64, CloseReason) {
        let is_busy = self.streams.transport.busy_streams() > 0;
        let streams = &self.streams;
        if self.state == Http3TaskState::Closing {
            let closing = streams.closing.unwrap_or(CloseReason::ClientClosed);
            return (streams.deadline(streams.since_ms, Wait::Linger).0, closing);
        }
        if !self.is_established {
            return streams.deadline(streams.since_ms, Wait::Handshake);
        }
        // The client's first frame is SETTINGS (RFC 9114 §6.2.1).
        if !streams.transport.core.has_begun() {
            return streams.deadline(streams.since_ms, Wait::Preface);
        }
        let head_since_ms = self.heads.first().map_or(u64::MAX, |(_, since_ms)| *since_ms);
        // QUIC accepts content as the client acknowledges it and opens its windows, so nothing else can block.
        let goaway = (self.goaway_ms, CloseReason::Draining);
        let abort = (streams.transport.abort_ms(), CloseReason::RefusedBody);
        let earliest = if abort.0 < goaway.0 { abort } else { goaway };
        streams.open_deadline(earliest, (false, None), is_busy, head_since_ms)
    }

    /// Returns what the client has not completed, and since when, in milliseconds.
    pub(super) fn incomplete(&self) -> Option<(Incomplete, u64)> {
        match self.heads.first() {
            _ if self.state == Http3TaskState::Closing => None,
            _ if !self.is_established => Some((Incomplete::Handshake, self.streams.since_ms)),
            head => head.map(|(_, since_ms)| (Incomplete::Head, *since_ms)),
        }
    }

    /// Handles a call from the sweep, from the drain, or from a connection that needs a file descriptor. Returns the
    /// reason if the connection must be dropped after this turn.
    pub(super) fn handle_call(&mut self, call: Call) -> Option<CloseReason> {
        match call {
            Call::Abandon => Some(CloseReason::DrainDeadline),
            // The client has not requested anything yet.
            Call::Drain if !self.is_established => Some(CloseReason::Draining),
            // The following turn sends GOAWAY. An idle client has one second to react.
            Call::Drain => {
                if self.state == Http3TaskState::Open {
                    self.streams.since_ms = self.streams.now_ms();
                }
                None
            }
            // QUIC connections share one file descriptor, so closing one frees none.
            Call::GiveWay | Call::Displace(_) => None,
            Call::Expired => self.handle_expired(),
        }
    }

    fn handle_expired(&mut self) -> Option<CloseReason> {
        let now_ms = self.streams.now_ms();
        self.streams.transport.reset_expired(now_ms);
        let (deadline_ms, reason) = self.next_deadline();
        if deadline_ms > now_ms {
            return None;
        }
        if self.state == Http3TaskState::Closing {
            return Some(reason);
        }
        match reason {
            CloseReason::BodyTimeout => self.streams.refuse_slow_bodies(),
            CloseReason::WriteTimeout => self.streams.reset_stalled(),
            // The turn sends the last GOAWAY.
            CloseReason::Draining if self.goaway_ms <= self.streams.now_ms() => {}
            reason => self.begin_closing(reason),
        }
        None
    }
}
