//! The turns and the close of one HTTP/3 connection.
//!
//! A turn handles what QUIC has received, polls responses in progress, sends content by priority, and sends all
//! datagrams at its end.

use super::transport::{Http3Transport, code};
use crate::http1::exchanges::Peer;
use crate::limits::ConnectionPermits;
use crate::streams::{StreamConnection, Streams, spawn};
use crate::worker::Worker;
use bytes::Bytes;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_http::http3::error::ErrorCode;
use flatout_net::quic::QuicConnection;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http3TaskState {
    /// Streams are processed.
    Open,
    /// The connection is closed, and QUIC repeats the close to a client that has not noticed it (RFC 9000 §10.2).
    Closing,
}

/// A connection that uses HTTP/3.
pub(crate) struct Http3Task<H: Handler> {
    pub(super) streams: Streams<H, Http3Transport>,
    pub(super) state: Http3TaskState,
    /// True once the handshake is complete or the connection has ended.
    pub(super) is_established: bool,
    /// Streams whose request head is incomplete, and since when, in milliseconds, oldest first.
    pub(super) heads: Vec<(u64, u64)>,
    /// Streams whose stashed bytes can now be handled.
    pub(super) unblocked: Vec<u64>,
    /// When to send the last GOAWAY, in milliseconds. `u64::MAX` if none is due.
    pub(super) goaway_ms: u64,
    /// Bytes received and sent that have been added to the worker's counters.
    counted: (u64, u64),
}

impl<H: Handler> Http3Task<H> {
    /// Serves the connection `quic`, which the listener number `listener` accepted.
    pub(super) fn spawn(worker: &Rc<Worker<H>>, (quic, permits): (QuicConnection, ConnectionPermits), listener: u32) {
        let peer = Peer { client: Some(quic.remote_address()), unix: false, listener, secure: true };
        worker.counters.connections_accepted.add(1);
        worker.handshakes.set(worker.handshakes.get() + 1);
        worker.clock.read();
        let transport = Http3Transport::new(worker, quic);
        spawn(Self {
            streams: Streams::new(worker, (peer, Some(permits)), transport),
            state: Http3TaskState::Open,
            is_established: false,
            heads: Vec::new(),
            unblocked: Vec::new(),
            goaway_ms: u64::MAX,
            counted: (0, 0),
        });
    }

    pub(super) fn handle_connected(&mut self) {
        self.end_handshake();
        let worker = &self.streams.worker;
        worker.counters.tls_handshakes.add(1);
        worker.counters.tls_resumptions.add(u64::from(self.streams.transport.quic.is_resumed()));
        worker.counters.http3_connections.add(1);
        self.streams.since_ms = self.streams.now_ms();
    }

    /// Handles the end of the handshake, whether it succeeded or not.
    fn end_handshake(&mut self) {
        if !std::mem::replace(&mut self.is_established, true) {
            let handshakes = &self.streams.worker.handshakes;
            handshakes.set(handshakes.get().saturating_sub(1));
        }
    }

    /// Handles everything that can be handled now.
    fn advance(&mut self, context: &mut Context<'_>) {
        loop {
            self.begin_draining();
            let received = match self.receive() {
                Ok(received) => received,
                Err(reason) => return self.begin_closing(reason),
            };
            let mut has_moved = self.streams.poll_streams(context);
            has_moved |= self.streams.send_content();
            // Closing would discard what the client has not acknowledged.
            if self.streams.transport.busy_streams() == 0 {
                if self.streams.transport.core.is_drained() {
                    return self.begin_closing(CloseReason::Draining);
                }
                if self.streams.transport.core.is_leaving() && !self.streams.draining {
                    return self.begin_closing(CloseReason::ClientClosed);
                }
            }
            let is_idle = !received && !has_moved && self.streams.transport.readable.is_empty();
            if is_idle || !self.streams.transport.may_send() {
                return;
            }
        }
    }

    /// Announces that the server is stopping: sends a first GOAWAY immediately, and the last one when requests that
    /// crossed it have had time to arrive (RFC 9114 §5.2).
    fn begin_draining(&mut self) {
        let now_ms = self.streams.now_ms();
        if self.is_established
            && self.streams.worker.draining.get()
            && !std::mem::replace(&mut self.streams.draining, true)
        {
            self.streams.transport.core.drain();
            let round_trip = self.streams.transport.quic.rtt();
            let wait_ms = u64::try_from(round_trip.as_millis()).unwrap_or(u64::MAX).saturating_mul(2);
            self.goaway_ms = now_ms.saturating_add(wait_ms).saturating_add(1);
        }
        if self.goaway_ms <= now_ms {
            self.goaway_ms = u64::MAX;
            self.streams.transport.core.finish_drain();
        }
    }

    /// Aborts all streams. The end of the turn closes the connection.
    pub(super) fn begin_closing(&mut self, reason: CloseReason) {
        if self.state == Http3TaskState::Open {
            self.streams.closing.get_or_insert(reason);
            self.state = Http3TaskState::Closing;
            self.streams.since_ms = self.streams.now_ms();
            if let Some(violation) = self.streams.transport.violation {
                self.streams.worker.counters.http3_violations[violation as usize].add(1);
                self.streams.log_violation(violation.name(), reason);
            }
            self.streams.cut();
        }
    }

    /// Sends what the turn produced, and then closes the connection if that has been decided.
    fn send(&mut self, now: Instant, context: &mut Context<'_>) {
        self.streams.transport.quic.end_turn(now, context);
        if self.state == Http3TaskState::Closing && !self.streams.transport.quic.is_closed() {
            let reason = self.streams.closing.unwrap_or(CloseReason::ClientClosed);
            let (error, text) = match self.streams.transport.violation {
                Some(violation) => (violation.code(), violation.name()),
                None => (ErrorCode::NoError, reason.name()),
            };
            self.streams.transport.quic.close(now, code(error), Bytes::from_static(text.as_bytes()));
            self.streams.transport.quic.end_turn(now, context);
        }
    }

    /// Adds the bytes received and sent since the last call to the worker's counters.
    fn count_bytes(&mut self) {
        let quic = &self.streams.transport.quic;
        let now = (quic.received_bytes(), quic.sent_bytes());
        let (received, sent) = std::mem::replace(&mut self.counted, now);
        self.streams.worker.counters.bytes_received.add(now.0.saturating_sub(received));
        self.streams.worker.counters.bytes_sent.add(now.1.saturating_sub(sent));
    }
}

impl<H: Handler> StreamConnection for Http3Task<H> {
    fn take_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let worker = Rc::clone(&self.streams.worker);
        worker.clock.read();
        let now = flatout_os::clock::now();
        self.streams.transport.quic.begin_turn(now, context);
        let mut must_leave = false;
        let call = self.streams.take_call(context);
        if let Some(reason) = call.and_then(|call| self.handle_call(call)) {
            self.begin_closing(reason);
            must_leave = true;
        }
        if self.state == Http3TaskState::Open {
            self.streams.peer.client = Some(self.streams.transport.quic.remote_address());
            let mut spare = worker.output.take();
            self.streams.transport.begin_turn(&mut spare);
            self.advance(context);
            if self.streams.transport.end_turn(&mut spare) {
                context.waker().wake_by_ref();
            }
            worker.output.replace(spare);
            let streams = self.streams.transport.busy_streams();
            self.streams.note_progress(None, streams > 0 && self.state == Http3TaskState::Open);
            self.streams.count_streams(streams);
            if let Err(reason) = self.streams.note_incomplete(self.incomplete(), false) {
                self.begin_closing(reason);
            }
        } else {
            while self.streams.transport.quic.poll().is_some() {}
        }
        self.send(now, context);
        self.count_bytes();
        if self.state == Http3TaskState::Open {
            self.streams.poll_ahead(context);
        }
        if must_leave || self.streams.transport.quic.is_drained() {
            return Poll::Ready(());
        }
        let (deadline_ms, _) = self.next_deadline();
        self.streams.arm(deadline_ms);
        Poll::Pending
    }

    fn handle_close(&mut self) {
        self.streams.close();
        let path = self.streams.transport.quic.stats().path;
        self.streams.worker.counters.quic_packets_lost.add(path.lost_packets);
    }
}

impl<H: Handler> Drop for Http3Task<H> {
    fn drop(&mut self) {
        self.end_handshake();
    }
}
