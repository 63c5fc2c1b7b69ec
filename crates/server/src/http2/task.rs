//! One HTTP/2 connection: its turns and its end.
//!
//! A turn receives, responds to every request, polls responses in progress, sends content by priority, and writes all
//! output in one call.

use super::link::Http2Link;
use super::settings::{STREAMS_PER_CONNECTION, WINDOWS, config};
use super::stream::ServerStream;
use crate::deadline::SlotId;
use crate::http1::connection::ServerConnection;
use crate::http1::exchanges::Peer;
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::{CLIENT_CLOSED, CloseReason};
use flatout_handler::response::trailer_lines;
use flatout_http::http2::connection::{Connection, ConnectionError, Event, Offence, Role};
use flatout_http::http2::flood::Flood;
use flatout_http::http2::frame::ErrorCode;
use flatout_net::windows::AdaptiveWindows;
use flatout_os::registered::Registered;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::task::spawn_local;

/// Bytes read and discarded after GOAWAY.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The logged ending of a response whose stream the client has reset.
pub(super) const STREAM_RESET: &str = "stream_reset";

/// Payload of the PING that measures a round trip.
const PROBE_PING: u64 = u64::from_be_bytes(*b"measures");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http2TaskState {
    /// Streams are processed.
    Open,
    /// The last output is being sent.
    Closing,
    /// The sending side is closed, and received bytes are discarded: a reset would destroy the GOAWAY.
    Lingering,
}

/// Minimum delay of the reset after an early response, in milliseconds: longer than a client needs to read the
/// response from its socket. A client that receives both at once may mistake the reset for the response's end, as
/// libcurl 7.88 does. A guess.
const LINGERING_MS: u64 = 500;

/// Requests at once with complete responses whose content may still be arriving: this many streams leave room in the
/// connection's window.
const LINGERING_MAX: usize = 3;

/// A connection that speaks HTTP/2.
pub(crate) struct Http2Task<H: Handler> {
    pub(super) worker: Rc<Worker<H>>,
    pub(super) peer: Peer,
    pub(super) link: Http2Link,
    pub(super) core: Connection<ServerStream>,
    pub(super) state: Http2TaskState,
    /// Received bytes that are less than a frame, or wait for room in the output.
    stash: Vec<u8>,
    /// The stash waits for room.
    has_unhandled: bool,
    /// Streams counted in the worker.
    streams_counted: usize,
    pub(super) windows: AdaptiveWindows,
    /// A PING that measures a round trip is to be sent.
    must_probe: bool,
    /// A round trip has ended; handlers first take what has arrived before it.
    is_measured: bool,
    /// Streams with complete responses whose content may still be arriving, and when they are reset; oldest first.
    pub(super) lingering: Vec<(u32, u64)>,
    /// Why the connection closes, once decided.
    pub(super) closing: Option<CloseReason>,
    pub(super) draining: bool,
    lingered_bytes: usize,
    pub(super) slot: Option<SlotId>,
    /// The deadline in the worker's table.
    pub(super) armed_ms: u64,
    /// Start of the current state: no preface, no stream, lingering.
    pub(super) since_ms: u64,
    /// When the current fields started to arrive; `u64::MAX` if none are arriving.
    pub(super) fields_since_ms: u64,
    /// Bytes of content put into the output.
    pub(super) content_bytes: u64,
    /// When the client last took bytes of a response, and how many in total by then.
    pub(super) taken_ms: u64,
    pub(super) taken_bytes: u64,
    /// Unacknowledged bytes when the write timeout last passed.
    pub(super) unacknowledged_bytes: Option<u32>,
}

impl<H: Handler> Http2Task<H> {
    /// Continues with HTTP/2 on `socket` after `connection` detected it.
    pub(crate) fn spawn(worker: &Rc<Worker<H>>, socket: Registered, connection: &mut ServerConnection) {
        let (tls, stash) = connection.take_over();
        let mut link = Http2Link::new(socket, tls);
        let core = Connection::new(Role::Server, config(&worker.settings.limits), &mut link.output);
        worker.counters.http2_connections.add(1);
        worker.open.set(worker.open.get() + 1);
        worker.changed.notify_waiters();
        let now_ms = worker.clock.latest().monotonic_ms;
        let task = Self {
            worker: Rc::clone(worker),
            peer: connection.origin(),
            link,
            core,
            state: Http2TaskState::Open,
            has_unhandled: !stash.is_empty(),
            stash,
            streams_counted: 0,
            windows: AdaptiveWindows::new(WINDOWS, STREAMS_PER_CONNECTION, &worker.windows),
            must_probe: false,
            is_measured: false,
            lingering: Vec::new(),
            closing: None,
            draining: false,
            lingered_bytes: 0,
            slot: None,
            armed_ms: u64::MAX,
            since_ms: now_ms,
            fields_since_ms: u64::MAX,
            content_bytes: 0,
            taken_ms: now_ms,
            taken_bytes: 0,
            unacknowledged_bytes: None,
        };
        spawn_local(Box::pin(task));
    }

    /// Takes the state of a stream, which is then idle.
    pub(super) fn take(&mut self, id: u32) -> ServerStream {
        self.core.get_mut(id).map(std::mem::take).unwrap_or_default()
    }

    /// Sets the state of a stream. Dropped if the stream is closed.
    pub(super) fn set(&mut self, id: u32, state: ServerStream) {
        if let Some(stream) = self.core.get_mut(id) {
            *stream = state;
        }
    }

    pub(super) const fn probe_if(&mut self, probes: bool) {
        self.must_probe |= probes;
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.worker.clock.latest().monotonic_ms
    }

    /// Handles that a response is complete. If the client may still send, its stream is reset some time later (RFC 9113
    /// §8.1).
    pub(super) fn finish(&mut self, id: u32) {
        if !self.core.is_receiving(id) {
            return;
        }
        self.core.discard(id);
        self.set(id, ServerStream::Idle);
        self.lingering.push((id, self.now_ms().saturating_add(LINGERING_MS)));
        if self.lingering.len() > LINGERING_MAX {
            let (oldest, _) = self.lingering.remove(0);
            self.reset_lingering(oldest);
        }
    }

    fn reset_lingering(&mut self, id: u32) {
        if self.core.is_open(id) {
            self.core.reset(id, ErrorCode::NoError, &mut self.link.output);
        }
    }

    /// Resets streams whose response is old enough, and forgets those that have ended.
    pub(super) fn let_go(&mut self) {
        let now_ms = self.now_ms();
        for (id, until_ms) in std::mem::take(&mut self.lingering) {
            if until_ms <= now_ms {
                self.reset_lingering(id);
            } else if self.core.is_open(id) {
                self.lingering.push((id, until_ms));
            }
        }
    }

    /// Number of streams in progress.
    pub(super) fn busy_streams(&self) -> usize {
        self.core.stream_count().saturating_sub(self.lingering.len())
    }

    /// Advances everything as far as possible. Ready when the connection is finished.
    fn go_on(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.state {
                Http2TaskState::Open => {
                    if !self.advance(context) {
                        return Poll::Pending;
                    }
                }
                Http2TaskState::Closing => {
                    match self.link.poll_flush(context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Err(_)) => return Poll::Ready(()),
                        Poll::Ready(Ok(())) => {}
                    }
                    if self.link.failed().is_some() || !self.link.close_write() || self.link.has_ended() {
                        return Poll::Ready(());
                    }
                    self.state = Http2TaskState::Lingering;
                }
                Http2TaskState::Lingering => {
                    match self.link.poll_discard(context) {
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

    /// Receives, or else polls streams and sends. Returns whether there may be more to do now.
    fn advance(&mut self, context: &mut Context<'_>) -> bool {
        if self.worker.draining.get() && !std::mem::replace(&mut self.draining, true) {
            self.core.drain(&mut self.link.output);
        }
        let received = match self.receive(context) {
            Ok(received) => received,
            Err(reason) => {
                self.begin_closing(reason);
                return true;
            }
        };
        if received && self.link.room() > 0 {
            return true;
        }
        let mut moved = self.poll_streams(context);
        moved |= self.send_content();
        self.update_windows();
        if self.core.is_drained() {
            self.begin_closing(CloseReason::Draining);
            return true;
        }
        if self.core.is_leaving() && !self.draining && self.core.stream_count() == 0 {
            self.begin_closing(CloseReason::ClientClosed);
            return true;
        }
        if self.link.room() == 0 {
            return matches!(self.link.poll_flush(context), Poll::Ready(Ok(())));
        }
        // The end of the turn writes.
        moved || received || self.has_unhandled
    }

    /// Receives once, and handles what has arrived. Returns whether anything was handled.
    fn receive(&mut self, context: &mut Context<'_>) -> Result<bool, CloseReason> {
        if self.link.room() == 0 {
            return Ok(false);
        }
        let worker = Rc::clone(&self.worker);
        if std::mem::take(&mut self.has_unhandled) {
            let stash = std::mem::take(&mut self.stash);
            self.handle_input(&stash)?;
            return Ok(true);
        }
        let mut input = worker.input.borrow_mut();
        match self.link.poll_receive(context, &mut input) {
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
                let (reason, failure) = self.link.failed().unwrap_or((CloseReason::ClientReset, None));
                if let Some(failure) = failure {
                    worker.counters.tls_failures[failure as usize].add(1);
                }
                Err(reason)
            }
        }
    }

    /// Handles `input` while there is room for responses, and stashes the rest.
    fn handle_input(&mut self, mut input: &[u8]) -> Result<(), CloseReason> {
        let worker = Rc::clone(&self.worker);
        let mut fields = worker.fields.borrow_mut();
        let now_ms = self.now_ms();
        loop {
            if self.link.room() == 0 {
                self.has_unhandled = true;
                break;
            }
            let event = self.core.handle(now_ms, &mut input, &mut fields, &mut self.link.output).map_err(reason_of)?;
            match event {
                None => break,
                Some(Event::Request { stream, ends }) => self.handle_request(stream, ends, &fields),
                Some(Event::Data { stream, bytes, ends }) => {
                    self.handle_content(stream, bytes, ends).map_err(reason_of)?;
                }
                Some(Event::Trailers { stream }) => self.handle_trailers(stream, trailer_lines(fields.iter())),
                Some(Event::Reset { data, .. }) => self.handle_reset(data),
                Some(Event::Malformed { .. }) => worker.counters.http2_streams_cut.add(1),
                Some(Event::Acknowledged(PROBE_PING)) => self.is_measured = true,
                Some(Event::Acknowledged(payload)) => {
                    self.core.handle_drained(payload, &mut self.link.output);
                }
                Some(Event::GoAway { code: ErrorCode::NoError, .. } | Event::Response { .. }) => {}
                Some(Event::GoAway { .. }) => return Err(CloseReason::H2ClientError),
            }
        }
        self.stash = input.to_vec();
        Ok(())
    }

    /// Polls streams in progress. Returns whether any made progress.
    fn poll_streams(&mut self, context: &mut Context<'_>) -> bool {
        let (mut moved, mut index) = (false, 0);
        while let Some(id) = self.core.id_at(index) {
            moved |= self.poll_stream(id, context);
            index += usize::from(self.core.id_at(index) == Some(id));
        }
        moved
    }

    /// Announces windows that have grown, and measures the next round trip.
    fn update_windows(&mut self) {
        if std::mem::take(&mut self.is_measured) {
            self.windows.handle_acknowledged();
        }
        let streams = self.busy_streams();
        if let Some(windows) = self.windows.wanted(streams)
            && self.core.is_acknowledged()
        {
            self.core.set_windows(windows, &mut self.link.output);
            self.windows.handle_announced(windows);
        }
        if std::mem::take(&mut self.must_probe) {
            self.core.ping(PROBE_PING, &mut self.link.output);
        }
    }

    /// Stops all streams and sends the last output.
    pub(super) fn begin_closing(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
        self.state = Http2TaskState::Closing;
        self.since_ms = self.now_ms();
        self.cut_streams();
    }

    fn cut_streams(&mut self) {
        self.lingering.clear();
        let name = self.closing.unwrap_or(CloseReason::ClientClosed).name();
        let streams: Vec<_> = self.core.iter_mut().map(|(_, stream)| std::mem::take(stream)).collect();
        for stream in streams {
            self.log_cut(stream, name);
        }
    }

    pub(super) fn unanswered_outcome(&self) -> &'static str {
        self.closing.map_or(CLIENT_CLOSED, CloseReason::unanswered_outcome)
    }

    fn take_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let worker = Rc::clone(&self.worker);
        worker.clock.read();
        let slot = *self.slot.get_or_insert_with(|| worker.deadlines.borrow_mut().insert(context.waker().clone()));
        if worker.deadlines.borrow().has_calls() {
            let call = worker.deadlines.borrow_mut().take_call(slot);
            if let Some(reason) = call.and_then(|call| self.handle_call(call)) {
                self.closing.get_or_insert(reason);
                return Poll::Ready(());
            }
        }
        let mut spare = worker.output.take();
        self.link.begin_turn(&mut spare);
        let over = self.go_on(context);
        let flushed = self.link.end_turn(&mut spare, context);
        worker.output.replace(spare);
        if let Poll::Ready(Err(_)) = flushed {
            let reason = self.link.failed().map_or(CloseReason::ClientReset, |(reason, _)| reason);
            self.closing.get_or_insert(reason);
            return Poll::Ready(());
        }
        self.note_progress();
        self.lingering.retain(|(id, _)| self.core.is_open(*id));
        self.count_streams(self.busy_streams());
        self.arm(slot);
        over
    }

    /// Reports the number of streams in progress to the worker.
    fn count_streams(&mut self, count: usize) {
        let streams = &self.worker.streams;
        streams.set((streams.get() + count).saturating_sub(self.streams_counted));
        self.streams_counted = count;
    }

    /// Handles the end of the connection.
    fn handle_close(&mut self) {
        let reason = *self.closing.get_or_insert(CloseReason::ClientClosed);
        self.cut_streams();
        let (received, sent) = self.link.take_counts();
        self.worker.counters.bytes_received.add(received);
        self.worker.counters.bytes_sent.add(sent);
        self.worker.counters.closes[reason as usize].add(1);
    }
}

impl<H: Handler> Future for Http2Task<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = self.get_mut();
        match task.take_turn(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                task.handle_close();
                Poll::Ready(())
            }
        }
    }
}

impl<H: Handler> Drop for Http2Task<H> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.worker.deadlines.borrow_mut().remove(slot);
        }
        self.count_streams(0);
        self.worker.open.set(self.worker.open.get().saturating_sub(1));
        self.worker.changed.notify_waiters();
    }
}

const fn reason_of(error: ConnectionError) -> CloseReason {
    match error.offence {
        Offence::Protocol => CloseReason::H2Protocol,
        Offence::Excess => CloseReason::H2Excess,
        Offence::Flood(flood) => match flood {
            Flood::RapidReset => CloseReason::H2RapidReset,
            Flood::MadeYouReset => CloseReason::H2MadeYouReset,
            Flood::Ping => CloseReason::H2PingFlood,
            Flood::Settings => CloseReason::H2SettingsFlood,
            Flood::Continuation => CloseReason::H2ContinuationFlood,
            Flood::EmptyData => CloseReason::H2EmptyDataFlood,
            Flood::WindowUpdate => CloseReason::H2WindowUpdateFlood,
            Flood::TableSize => CloseReason::H2TableSizeFlood,
            Flood::Other => CloseReason::H2FrameFlood,
        },
    }
}
