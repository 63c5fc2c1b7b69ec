//! The turns and the close of one HTTP/2 connection.
//!
//! A turn receives, responds to every request, polls responses in progress, sends content by priority, and writes all
//! output in one call.

use super::link::Http2Link;
use super::transport::{Http2Stream, Http2Transport};
use crate::acknowledged::AcknowledgedSamples;
use crate::http1::connection::{ServerConnection, TakenConnection};
use crate::streams::{StreamConnection, Streams, spawn};
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::trailer_lines;
use flatout_http::http2::connection::Event;
use flatout_http::http2::frame::ErrorCode;
use flatout_os::registered::Registered;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Maximum bytes received and discarded after GOAWAY.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Payload of the PING that measures a round trip.
const PROBE_PING: u64 = u64::from_be_bytes(*b"measures");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http2TaskState {
    /// Streams are processed.
    Open,
    /// The last output is being sent.
    Closing,
    /// The sending side is closed and received bytes are discarded, because a reset would destroy the GOAWAY.
    Lingering,
}

/// A connection that uses HTTP/2.
pub(crate) struct Http2Task<H: Handler> {
    pub(super) streams: Streams<H, Http2Transport>,
    pub(super) state: Http2TaskState,
    /// Received bytes that are less than a frame or wait for room in the output.
    stash: Vec<u8>,
    /// True if the stash waits for room in the output.
    has_unhandled: bool,
    /// True if a round trip has ended. Handlers first consume what arrived before its end.
    is_measured: bool,
    lingered_bytes: usize,
    /// When the current field section began to arrive. `u64::MAX` if none is arriving.
    pub(super) fields_since_ms: u64,
    /// Samples of unacknowledged bytes while a response waits for the client.
    pub(super) samples: AcknowledgedSamples,
}

impl<H: Handler> Http2Task<H> {
    /// Continues a connection with HTTP/2 on `socket`, after `connection` has detected it.
    pub(crate) fn spawn(worker: &Rc<Worker<H>>, socket: Registered, connection: &mut ServerConnection) {
        let TakenConnection { tls, stash, permits } = connection.take_over();
        let transport = Http2Transport::new(worker, Http2Link::new(socket, tls, Rc::clone(&worker.send_room)));
        worker.counters.http2_connections.add(1);
        spawn(Self {
            streams: Streams::new(worker, (connection.origin(), permits), transport),
            state: Http2TaskState::Open,
            has_unhandled: !stash.is_empty(),
            stash,
            is_measured: false,
            lingered_bytes: 0,
            fields_since_ms: u64::MAX,
            samples: AcknowledgedSamples::default(),
        });
    }

    /// Advances the connection as far as possible. Returns `Ready` when it is finished.
    fn go_on(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.state {
                Http2TaskState::Open => {
                    if !self.advance(context) {
                        return Poll::Pending;
                    }
                }
                Http2TaskState::Closing => {
                    match self.streams.transport.link.poll_flush(context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Err(_)) => return Poll::Ready(()),
                        Poll::Ready(Ok(())) => {}
                    }
                    if self.streams.transport.link.failed().is_some()
                        || !self.streams.transport.link.close_write()
                        || self.streams.transport.link.has_ended()
                    {
                        return Poll::Ready(());
                    }
                    self.state = Http2TaskState::Lingering;
                }
                Http2TaskState::Lingering => {
                    match self.streams.transport.link.poll_discard(context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Ok(count @ 1..)) => self.lingered_bytes += count,
                        Poll::Ready(_) => return Poll::Ready(()),
                    }
                    if self.lingered_bytes > LINGER_BYTES_MAX {
                        return Poll::Ready(());
                    }
                }
            }
        }
    }

    /// Receives, or polls streams and sends if nothing was received. Returns whether there may be more to do now.
    fn advance(&mut self, context: &mut Context<'_>) -> bool {
        if self.streams.worker.draining.get() && !std::mem::replace(&mut self.streams.draining, true) {
            self.streams.transport.core.drain(&mut self.streams.transport.link.output);
        }
        let received = match self.receive(context) {
            Ok(received) => received,
            Err(reason) => {
                self.begin_closing(reason);
                return true;
            }
        };
        if received && self.streams.transport.link.room() > 0 {
            return true;
        }
        let mut moved = self.streams.poll_streams(context);
        moved |= self.streams.send_content();
        self.update_windows();
        if self.streams.transport.core.is_drained() {
            self.begin_closing(CloseReason::Draining);
            return true;
        }
        if self.streams.transport.core.is_leaving()
            && !self.streams.draining
            && self.streams.transport.core.stream_count() == 0
        {
            self.begin_closing(CloseReason::ClientClosed);
            return true;
        }
        if self.streams.transport.link.room() == 0 {
            return matches!(self.streams.transport.link.poll_flush(context), Poll::Ready(Ok(())));
        }
        // The output is written at the end of the turn.
        moved || received || self.has_unhandled
    }

    /// Receives once and handles what has arrived. Returns whether anything was handled.
    fn receive(&mut self, context: &mut Context<'_>) -> Result<bool, CloseReason> {
        if self.streams.transport.link.room() == 0 {
            return Ok(false);
        }
        let worker = Rc::clone(&self.streams.worker);
        if std::mem::take(&mut self.has_unhandled) {
            let stash = std::mem::take(&mut self.stash);
            self.handle_input(&stash)?;
            return Ok(true);
        }
        let mut input = worker.input.borrow_mut();
        match self.streams.transport.link.poll_receive(context, &mut input) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => Err(CloseReason::ClientClosed),
            Poll::Ready(Ok(count)) => {
                if self.stash.is_empty() {
                    self.handle_input(&input[..count])?;
                } else {
                    let mut stash = std::mem::take(&mut self.stash);
                    stash.extend_from_slice(&input[..count]);
                    self.handle_input(&stash)?;
                }
                Ok(true)
            }
            Poll::Ready(Err(_)) => {
                let (reason, failure) =
                    self.streams.transport.link.failed().unwrap_or((CloseReason::ClientReset, None));
                if let Some(failure) = failure {
                    worker.counters.tls_failures[failure as usize].add(1);
                }
                Err(reason)
            }
        }
    }

    /// Handles `input` while there is room for responses, and stashes the rest.
    fn handle_input(&mut self, mut input: &[u8]) -> Result<(), CloseReason> {
        let worker = Rc::clone(&self.streams.worker);
        let mut fields = worker.fields.borrow_mut();
        let now_ms = self.streams.now_ms();
        loop {
            if self.streams.transport.link.room() == 0 {
                self.has_unhandled = true;
                break;
            }
            let event = self
                .streams
                .transport
                .core
                .handle(now_ms, &mut input, &mut fields, &mut self.streams.transport.link.output)
                .map_err(|error| self.streams.transport.note(error))?;
            match event {
                None => break,
                Some(Event::Request { stream, ends }) => self.streams.handle_request(u64::from(stream), ends, &fields),
                Some(Event::Data { stream, bytes, ends }) => {
                    self.streams.handle_content(u64::from(stream), bytes, ends)?;
                }
                Some(Event::Trailers { stream }) => {
                    self.streams.handle_trailers(u64::from(stream), trailer_lines(fields.iter()));
                }
                Some(Event::Reset { data, error, .. }) => {
                    self.streams.handle_reset(Http2Stream::into_state(data), error);
                }
                Some(Event::Rejected { error, .. }) => self.streams.handle_rejected(error, &fields),
                Some(Event::Acknowledged(PROBE_PING)) => self.is_measured = true,
                Some(Event::Acknowledged(payload)) => {
                    let transport = &mut self.streams.transport;
                    if !transport.core.handle_drained(payload, &mut transport.link.output) {
                        transport.handle_read(payload);
                    }
                }
                Some(Event::GoAway { code: ErrorCode::NoError, .. } | Event::Response { .. }) => {}
                Some(Event::GoAway { .. }) => return Err(CloseReason::H2ClientError),
            }
        }
        self.stash = input.to_vec();
        Ok(())
    }

    /// Announces windows that have grown, and starts to measure the next round trip.
    fn update_windows(&mut self) {
        if std::mem::take(&mut self.is_measured) {
            self.streams.transport.windows.handle_acknowledged();
        }
        let streams = self.streams.transport.busy_streams();
        if let Some(windows) = self.streams.transport.windows.wanted(streams)
            && self.streams.transport.core.is_acknowledged()
        {
            self.streams.transport.core.set_windows(windows, &mut self.streams.transport.link.output);
            self.streams.transport.windows.handle_announced(windows);
        }
        if std::mem::take(&mut self.streams.transport.must_probe) {
            self.streams.transport.core.ping(PROBE_PING, &mut self.streams.transport.link.output);
        }
    }

    /// Aborts all streams and starts to send the last output.
    pub(super) fn begin_closing(&mut self, reason: CloseReason) {
        self.streams.closing.get_or_insert(reason);
        self.state = Http2TaskState::Closing;
        self.streams.since_ms = self.streams.now_ms();
        if let Some(violation) = self.streams.transport.violation {
            self.streams.worker.counters.http2_violations[violation as usize].add(1);
            self.streams.log_violation(violation.name(), reason);
        }
        self.cut_streams();
    }

    fn cut_streams(&mut self) {
        self.streams.transport.lingering.clear();
        self.streams.cut();
    }
}

impl<H: Handler> StreamConnection for Http2Task<H> {
    fn take_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let worker = Rc::clone(&self.streams.worker);
        worker.clock.read();
        let call = self.streams.take_call(context);
        if let Some(reason) = call.and_then(|call| self.handle_call(call)) {
            self.streams.closing.get_or_insert(reason);
            return Poll::Ready(());
        }
        let mut spare = worker.output.take();
        self.streams.transport.link.begin_turn(&mut spare);
        let over = self.go_on(context);
        let flushed = self.streams.transport.link.end_turn(&mut spare, context);
        worker.output.replace(spare);
        if let Poll::Ready(Err(_)) = flushed {
            let reason = self.streams.transport.link.failed().map_or(CloseReason::ClientReset, |(reason, _)| reason);
            self.streams.closing.get_or_insert(reason);
            return Poll::Ready(());
        }
        if over.is_pending() {
            self.streams.poll_ahead(context);
        }
        self.note_progress();
        let link = &mut self.streams.transport.link;
        if link.has_send_room() && !link.is_blocked() && !self.streams.is_sending() {
            self.streams.transport.link.lower_send_room();
        }
        self.streams.transport.lingering.retain(|stream| self.streams.transport.core.is_open(stream.id));
        self.streams.count_streams(self.streams.transport.busy_streams());
        let (deadline_ms, _) = self.next_deadline();
        self.streams.arm(deadline_ms);
        if let Err(reason) = self.streams.note_incomplete(self.incomplete(), true) {
            self.streams.closing.get_or_insert(reason);
            return Poll::Ready(());
        }
        over
    }

    fn handle_close(&mut self) {
        self.streams.transport.lingering.clear();
        self.streams.close();
        let (received, sent) = self.streams.transport.link.take_counts();
        self.streams.worker.counters.bytes_received.add(received);
        self.streams.worker.counters.bytes_sent.add(sent);
    }
}
