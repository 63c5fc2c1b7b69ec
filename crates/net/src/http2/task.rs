//! One HTTP/2 connection: its turns, its deadlines and its end.
//!
//! A turn lets the protocol machine read, responds to every received request, polls responses in progress, and writes
//! all output in one call.

use super::answers::UnreadContent;
use super::body::{Endings, ResponseEnd, SendBody};
use super::intake::IntakeTimeouts;
use super::link::{Http2Link, Io};
use super::settings::{self, WINDOWS};
use super::stream::{Http2Exchange, ServerStream, StreamProgress};
use super::streaming::Streaming;
use crate::access::LoggedResponse;
use crate::deadline::SlotId;
use crate::ending::{CLIENT_CLOSED, CloseReason};
use crate::handler::Handler;
use crate::registered::Registered;
use crate::server::connection::ServerConnection;
use crate::server::exchanges::Peer;
use crate::server::worker::Worker;
use crate::windows::ConnectionWindows;
use flatout_http::http2::flood::{Flood, Offence};
use flatout_http::refusal::Refusal;
use h2::server::{Connection, Handshake};
use h2::{Error, Reason, RecvStream};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::task::spawn_local;

/// Bytes read and discarded after GOAWAY.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// GOAWAY with PROTOCOL_ERROR for a client without a preface: the protocol machine sends none in that case.
const GOAWAY_NO_PREFACE: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// The logged ending of a response whose stream the client has reset.
pub(super) const STREAM_RESET: &str = "stream_reset";

pub(super) enum Http2TaskState {
    /// Waiting for the preface.
    Preface(Box<Handshake<Io, SendBody>>),
    /// Streams are processed.
    Open(Box<Connection<Io, SendBody>>),
    /// The last output is being sent.
    Closing,
    /// The sending side is closed, and received bytes are discarded: a reset would destroy the GOAWAY.
    Lingering,
}

/// Minimum delay of the reset after an early response, in milliseconds: longer than a client needs to read the
/// response from its socket. A guess.
const LINGERING_MS: u64 = 500;

/// Lingering requests at once: this many streams leave room in the connection's window.
const LINGERING_MAX: usize = 3;

/// A request with a complete response whose content may still be arriving.
pub(super) struct Lingering {
    /// Dropping it makes the protocol machine reset the stream with NO_ERROR (RFC 9113 §8.1).
    _content: RecvStream,
    pub(super) until_ms: u64,
}

/// A connection that speaks HTTP/2.
pub(crate) struct Http2Task<H: Handler> {
    pub(super) worker: Rc<Worker<H>>,
    pub(super) origin: Peer,
    pub(super) link: Rc<RefCell<Http2Link>>,
    pub(super) state: Http2TaskState,
    pub(super) streams: Vec<ServerStream>,
    /// Streams counted in the worker.
    streams_counted: usize,
    pub(super) endings: Rc<Endings>,
    /// `None` until the preface has arrived.
    pub(super) windows: Option<Rc<ConnectionWindows>>,
    /// Requests with complete responses whose content may still be arriving, oldest first.
    pub(super) lingering: Vec<Lingering>,
    /// Why the connection closes, once decided.
    pub(super) closing: Option<CloseReason>,
    /// A GOAWAY has been sent: the client may open no more streams.
    pub(super) draining: bool,
    pub(super) lingered_bytes: usize,
    pub(super) slot: Option<SlotId>,
    /// The deadline in the worker's table.
    pub(super) armed_ms: u64,
    /// Start of the current state: no preface, no stream, lingering.
    pub(super) since_ms: u64,
    /// When the current fields started to arrive; `u64::MAX` if none are arriving.
    pub(super) fields_since_ms: u64,
    /// When the client last took bytes of a response, and how many in total by then.
    pub(super) taken_ms: u64,
    pub(super) taken_bytes: u64,
    /// Unacknowledged bytes when the write timeout last passed.
    pub(super) unacknowledged_bytes: Option<u32>,
}

impl<H: Handler> Http2Task<H> {
    /// Continues with HTTP/2 on `socket` after `connection` detected it.
    pub(crate) fn spawn(worker: &Rc<Worker<H>>, socket: Registered, connection: &mut ServerConnection) {
        let (tls, received) = connection.take_over();
        let link = Rc::new(RefCell::new(Http2Link::new(socket, tls, received)));
        let handshake = settings::handshake(Io(Rc::clone(&link)), &worker.settings.limits);
        worker.counters.http2_connections.add(1);
        worker.open.set(worker.open.get() + 1);
        worker.changed.notify_waiters();
        let now_ms = worker.clock.latest().monotonic_ms;
        let task = Self {
            worker: Rc::clone(worker),
            origin: connection.origin(),
            link,
            state: Http2TaskState::Preface(Box::new(handshake)),
            streams: Vec::new(),
            streams_counted: 0,
            endings: Rc::default(),
            windows: None,
            lingering: Vec::new(),
            closing: None,
            draining: false,
            lingered_bytes: 0,
            slot: None,
            armed_ms: u64::MAX,
            since_ms: now_ms,
            fields_since_ms: u64::MAX,
            taken_ms: now_ms,
            taken_bytes: 0,
            unacknowledged_bytes: None,
        };
        spawn_local(Box::pin(task));
    }

    /// Advances everything as far as possible. Ready when the connection is finished.
    fn go_on(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.state {
                Http2TaskState::Preface(handshake) => match Pin::new(handshake.as_mut()).poll(context) {
                    Poll::Ready(Ok(mut connection)) => {
                        self.since_ms = self.now_ms();
                        let windows = |pings| ConnectionWindows::new(pings, WINDOWS, 1, &self.worker.windows);
                        self.windows = connection.ping_pong().map(windows).map(Rc::new);
                        self.state = Http2TaskState::Open(Box::new(connection));
                    }
                    Poll::Ready(Err(error)) => {
                        if error.is_go_away() {
                            self.link.borrow_mut().append(&GOAWAY_NO_PREFACE);
                        }
                        let reason = self.reason_of(&error);
                        self.begin_closing(reason);
                    }
                    Poll::Pending => return Poll::Pending,
                },
                Http2TaskState::Open(connection) => {
                    if self.worker.draining.get() && !self.draining {
                        self.draining = true;
                        connection.graceful_shutdown();
                    }
                    if let Some(adapting) = &self.windows
                        && let Some(windows) = adapting.poll(self.streams.len(), context)
                    {
                        connection.set_target_window_size(windows.connection);
                        // Fails until the previous settings are acknowledged.
                        if connection.set_initial_window_size(windows.stream).is_ok() {
                            adapting.handle_told(windows);
                        }
                    }
                    match connection.poll_accept(context) {
                        Poll::Ready(Some(Ok((request, respond)))) => self.handle_request(request, respond, context),
                        Poll::Ready(Some(Err(error))) => {
                            let reason = self.reason_of(&error);
                            self.begin_closing(reason);
                        }
                        Poll::Ready(None) => {
                            let reason = if self.draining { CloseReason::Draining } else { CloseReason::ClientClosed };
                            self.begin_closing(reason);
                        }
                        Poll::Pending => {
                            let offence = self.link.borrow().offence();
                            if let (Some(offence), None) = (offence, self.closing) {
                                let (code, reason) = match offence {
                                    Offence::Flood(flood) => (Reason::ENHANCE_YOUR_CALM, reason_of_flood(flood)),
                                    Offence::FrameSize => (Reason::FRAME_SIZE_ERROR, CloseReason::H2Protocol),
                                    Offence::NoSettings => (Reason::PROTOCOL_ERROR, CloseReason::H2Protocol),
                                };
                                connection.abrupt_shutdown(code);
                                self.closing = Some(reason);
                                continue;
                            }
                            if !self.go_on_streams(context) {
                                return Poll::Pending;
                            }
                        }
                    }
                }
                Http2TaskState::Closing => {
                    let mut link = self.link.borrow_mut();
                    match link.poll_flush(context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Err(_)) => return Poll::Ready(()),
                        Poll::Ready(Ok(())) => {}
                    }
                    if link.failed().is_some() || !link.close_write() || link.has_ended() {
                        return Poll::Ready(());
                    }
                    drop(link);
                    self.state = Http2TaskState::Lingering;
                }
                Http2TaskState::Lingering => {
                    let polled = self.link.borrow_mut().poll_discard(context);
                    match polled {
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

    pub(super) fn now_ms(&self) -> u64 {
        self.worker.clock.latest().monotonic_ms
    }

    /// Stops all streams and sends the last output.
    fn begin_closing(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
        self.state = Http2TaskState::Closing;
        self.since_ms = self.now_ms();
        // The protocol machine is gone, including its unsent data.
        self.cut_streams();
    }

    /// Retains the rest of a request's content for a while after its response, so that the reset that ends the stream
    /// comes in a separate packet. A client that receives both at once may mistake the reset for the response's end,
    /// as libcurl 7.88 does.
    pub(super) fn linger(&mut self, content: RecvStream) {
        if content.is_end_stream() {
            return;
        }
        if self.lingering.len() >= LINGERING_MAX {
            self.lingering.remove(0);
        }
        let until_ms = self.now_ms().saturating_add(LINGERING_MS);
        self.lingering.push(Lingering { _content: content, until_ms });
    }

    pub(super) fn linger_over(&mut self, rest: Option<RecvStream>) {
        if let Some(content) = rest {
            self.linger(content);
        }
    }

    /// Drops requests whose response is old enough: the protocol machine resets their streams.
    pub(super) fn let_go(&mut self) {
        let now_ms = self.now_ms();
        self.lingering.retain(|lingering| lingering.until_ms > now_ms);
    }

    /// Finishes a streamed response.
    pub(super) fn end_streaming(&mut self, mut streaming: Box<Streaming>, ended: ResponseEnd) {
        self.log_ended(&streaming, ended);
        if ended == ResponseEnd::Sent {
            self.linger_over(streaming.take_rest());
        }
    }

    fn cut_streams(&mut self) {
        self.lingering.clear();
        for stream in std::mem::take(&mut self.streams) {
            match stream {
                ServerStream::Receiving(receiving) => self.log_unanswered(&receiving.exchange),
                ServerStream::Awaiting(awaiting) => self.log_unanswered(&awaiting.exchange),
                ServerStream::Sending(mut sending) => {
                    sending.end(ResponseEnd::Cut);
                }
                ServerStream::Streaming(streaming) => self.log_ended(&streaming, ResponseEnd::Cut),
            }
        }
    }

    fn reason_of(&self, error: &Error) -> CloseReason {
        let link = self.link.borrow();
        if let Some((reason, failure)) = link.failed() {
            if let Some(failure) = failure {
                self.worker.counters.tls_failures[failure as usize].add(1);
            }
            return reason;
        }
        match error.reason() {
            _ if error.is_io() => CloseReason::ClientClosed,
            Some(Reason::NO_ERROR) if error.is_remote() => CloseReason::ClientClosed,
            _ if error.is_remote() => CloseReason::H2ClientError,
            Some(Reason::ENHANCE_YOUR_CALM) => CloseReason::H2Excess,
            _ => CloseReason::H2Protocol,
        }
    }

    /// Polls streams in progress. Returns whether the protocol machine received data from them.
    fn go_on_streams(&mut self, context: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.streams.len() {
            let stream = self.streams.swap_remove(index);
            let settings = &self.worker.settings;
            match stream.go_on(&settings.limits, IntakeTimeouts::new(self.now_ms(), &settings.timeouts), context) {
                StreamProgress::Wait(stream) => {
                    self.put_back(index, stream);
                    index += 1;
                    continue;
                }
                StreamProgress::Sent(stream) => {
                    self.put_back(index, stream);
                    index += 1;
                }
                StreamProgress::Answer(respond, response, exchange, intake) => {
                    self.answer_described(respond, *response, exchange, intake.map(UnreadContent::Intake), context);
                }
                StreamProgress::Ended(streaming, ended) => self.end_streaming(streaming, ended),
                StreamProgress::TooLarge(respond, exchange, rest) => {
                    self.refuse(respond, Refusal::BodyTooLarge, &exchange, None, Some(rest));
                }
                StreamProgress::Cut(exchange) => {
                    self.log_unanswered(&exchange);
                    self.worker.commit(STREAM_RESET);
                }
                StreamProgress::Over => {}
            }
            moved = true;
        }
        moved
    }

    /// Puts a stream back at its index.
    fn put_back(&mut self, index: usize, stream: ServerStream) {
        self.streams.push(stream);
        let last = self.streams.len() - 1;
        self.streams.swap(index, last);
    }

    /// Logs a request without response: the client reset its stream, or the connection closes.
    fn log_unanswered(&self, exchange: &Http2Exchange) {
        let outcome = self.closing.map_or(CLIENT_CLOSED, CloseReason::unanswered_outcome);
        let answer = || LoggedResponse::refused(0, 0, outcome, 0, exchange.started_ns).with_source(&exchange.source);
        self.worker.stage_described(exchange.description.as_ref(), answer);
        self.worker.counters.http2_streams_cut.add(1);
        if let Some(reason) = self.closing {
            self.worker.commit(reason.name());
        }
    }

    /// Logs the end of a streamed response.
    pub(super) fn log_ended(&self, streaming: &Streaming, ended: ResponseEnd) {
        self.worker.stage_described(streaming.exchange.description.as_ref(), || streaming.answer());
        if ended != ResponseEnd::Sent {
            self.worker.counters.http2_streams_cut.add(1);
        }
        self.worker.commit(self.name_of(ended));
    }

    /// The logged name of an ending.
    fn name_of(&self, ended: ResponseEnd) -> &'static str {
        match ended {
            ResponseEnd::Sent => "sent",
            ResponseEnd::Cut => self.closing.map_or(STREAM_RESET, CloseReason::name),
            ResponseEnd::Failed(reason) => reason.name(),
        }
    }

    /// Commits log lines of responses that ended in this turn.
    fn commit_ended(&mut self) {
        for rest in self.endings.take_rests() {
            self.linger(rest);
        }
        self.worker.counters.http2_streams_cut.add(self.endings.take_cut());
        for (staged, ended) in self.endings.take_ended() {
            self.worker.commit_staged(&staged, self.name_of(ended));
        }
    }

    fn take_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let worker = Rc::clone(&self.worker);
        let now = worker.clock.read();
        let slot = *self.slot.get_or_insert_with(|| worker.deadlines.borrow_mut().insert(context.waker().clone()));
        if worker.deadlines.borrow().has_calls() {
            let call = worker.deadlines.borrow_mut().take_call(slot);
            if let Some(reason) = call.and_then(|call| self.handle_call(call)) {
                self.closing.get_or_insert(reason);
                return Poll::Ready(());
            }
        }
        let mut spare = worker.output.take();
        self.link.borrow_mut().begin_turn(now.monotonic_ms, &mut spare);
        let over = self.go_on(context);
        let flushed = self.link.borrow_mut().end_turn(&mut spare, context);
        worker.output.replace(spare);
        if let Poll::Ready(Err(_)) = flushed {
            let reason = self.link.borrow().failed().map_or(CloseReason::ClientReset, |(reason, _)| reason);
            self.closing.get_or_insert(reason);
            return Poll::Ready(());
        }
        self.note_progress();
        self.commit_ended();
        self.count_streams(self.streams.len());
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
        drop(self.endings.take_rests());
        // Unsent responses are dropped with it.
        self.state = Http2TaskState::Closing;
        self.commit_ended();
        let (received, sent) = self.link.borrow_mut().take_counts();
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

const fn reason_of_flood(flood: Flood) -> CloseReason {
    match flood {
        Flood::RapidReset => CloseReason::H2RapidReset,
        Flood::MadeYouReset => CloseReason::H2MadeYouReset,
        Flood::Ping => CloseReason::H2PingFlood,
        Flood::Settings => CloseReason::H2SettingsFlood,
        Flood::Continuation => CloseReason::H2ContinuationFlood,
        Flood::EmptyData => CloseReason::H2EmptyDataFlood,
        Flood::WindowUpdate => CloseReason::H2WindowUpdateFlood,
        Flood::TableSize => CloseReason::H2TableSizeFlood,
        Flood::Other => CloseReason::H2FrameFlood,
    }
}
