//! One connection of HTTP/2: its turns, its deadlines and its end.
//!
//! A turn lets the protocol machine read, answers every request that is there, lets responses under way go on, and
//! writes all of it in one call.

use super::body::{Endings, SendBody};
use super::exchange::{describe_refused, early_head_of, head_of, is_head, with_head};
use super::link::{Io, Link};
use super::settings;
use super::stream::{Awaiting, Exchange, Receiving, Sending, Step, Stream};
use crate::access::{Answer, Logged, Peer};
use crate::deadline::{Call, SlotId};
use crate::ending::CloseReason;
use crate::handler::{Handler, Reply, Request};
use crate::registered::Registered;
use crate::response::{Body, Response, Segment};
use crate::server::connection::ServerConnection;
use crate::server::exchanges::Origin;
use crate::server::task::DRAIN_IDLE_MS;
use crate::server::worker::Worker;
use crate::socket::unacknowledged_bytes;
use flatout_http::http2::flood::Flood;
use flatout_http::refusal::Refusal;
use h2::server::{Connection, Handshake, SendResponse};
use h2::{Error, Reason, RecvStream};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::task::spawn_local;

/// Bytes read and thrown away from a client that has been told that the connection ends.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// GOAWAY with PROTOCOL_ERROR for a client that sent no preface: the protocol machine sends none then.
const GOAWAY_NO_PREFACE: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// What a log says of a response whose stream the client has reset.
const STREAM_RESET: &str = "stream_reset";

enum State {
    /// The preface has not come.
    Preface(Box<Handshake<Io, SendBody>>),
    /// Streams come and go.
    Open(Box<Connection<Io, SendBody>>),
    /// What was gathered last goes out.
    Closing,
    /// Our side is closed, and what the client still sends is thrown away: a reset would destroy the GOAWAY.
    Lingering,
}

/// A connection that speaks HTTP/2.
pub(crate) struct Http2Task<H: Handler> {
    worker: Rc<Worker<H>>,
    origin: Origin,
    link: Rc<RefCell<Link>>,
    state: State,
    streams: Vec<Stream>,
    endings: Rc<Endings>,
    /// Why the connection ends, once that is known.
    closing: Option<CloseReason>,
    /// The client has been told to open no more streams.
    draining: bool,
    lingered_bytes: usize,
    slot: Option<SlotId>,
    /// The deadline that stands in the worker's table.
    armed_ms: u64,
    /// Since when the state at hand lasts: no preface, no stream, lingering.
    since_ms: u64,
    /// Since when fields have been coming; `u64::MAX` when none are.
    fields_since_ms: u64,
    /// When the client last took something of a response, and how much it had taken by then.
    taken_ms: u64,
    taken_bytes: u64,
    /// What the kernel held when the write timeout last passed.
    unacknowledged_bytes: Option<u32>,
}

impl<H: Handler> Http2Task<H> {
    /// Goes on with HTTP/2 on `socket`, where `connection` has come to know that the client speaks it.
    pub(crate) fn spawn(worker: &Rc<Worker<H>>, socket: Registered, connection: &mut ServerConnection) {
        let (tls, received) = connection.take_over();
        let link = Rc::new(RefCell::new(Link::new(socket, tls, received)));
        let handshake = settings::handshake(Io(Rc::clone(&link)), &worker.settings.limits);
        worker.counters.http2_connections.add(1);
        worker.open.set(worker.open.get() + 1);
        worker.changed.notify_waiters();
        let now_ms = worker.clock.latest().monotonic_ms;
        let task = Self {
            worker: Rc::clone(worker),
            origin: connection.origin(),
            link,
            state: State::Preface(Box::new(handshake)),
            streams: Vec::new(),
            endings: Rc::default(),
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

    /// Lets everything go on as far as it can. Ready when the connection is over.
    fn go_on(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.state {
                State::Preface(handshake) => match Pin::new(handshake.as_mut()).poll(context) {
                    Poll::Ready(Ok(connection)) => {
                        self.since_ms = self.now_ms();
                        self.state = State::Open(Box::new(connection));
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
                State::Open(connection) => {
                    if self.worker.draining.get() && !self.draining {
                        self.draining = true;
                        connection.graceful_shutdown();
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
                            let flood = self.link.borrow().flood();
                            if let (Some(flood), None) = (flood, self.closing) {
                                connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                                self.closing = Some(reason_of_flood(flood));
                                continue;
                            }
                            if !self.go_on_streams(context) {
                                return Poll::Pending;
                            }
                        }
                    }
                }
                State::Closing => {
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
                    self.state = State::Lingering;
                }
                State::Lingering => {
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

    fn now_ms(&self) -> u64 {
        self.worker.clock.latest().monotonic_ms
    }

    /// No stream goes on; the last bytes go out.
    fn begin_closing(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
        self.state = State::Closing;
        self.since_ms = self.now_ms();
        // The protocol machine is gone, and with it what it had not sent.
        self.cut_streams();
    }

    fn cut_streams(&mut self) {
        for stream in std::mem::take(&mut self.streams) {
            match stream {
                Stream::Receiving(receiving) => self.log_unanswered(&receiving.exchange),
                Stream::Awaiting(awaiting) => self.log_unanswered(&awaiting.exchange),
                Stream::Sending(mut sending) => self.endings.add(std::mem::take(&mut sending.staged), false),
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

    /// Answers a request, or keeps what is needed to do so later.
    fn handle_request(
        &mut self,
        request: http::Request<RecvStream>,
        respond: SendResponse<SendBody>,
        context: &mut Context<'_>,
    ) {
        let worker = Rc::clone(&self.worker);
        let (parts, content) = request.into_parts();
        let whole = content.is_end_stream();
        let (now, started_ns) = (worker.clock.latest(), worker.logged_ns());
        let Origin { client, listener, secure } = self.origin;
        let peer = self.peer();
        with_head(&parts, whole, &worker.settings.limits, |head| {
            let head = match head {
                Ok(head) => head,
                Err(refusal) => {
                    let to_head = parts.method == http::Method::HEAD;
                    let exchange = Exchange { to_head, started_ns, description: None };
                    let raw = describe_refused(&parts);
                    self.refuse(respond, refusal, &exchange, Some(&raw));
                    return;
                }
            };
            let reply = worker.handler.handle(&Request { head, client, secure, listener }, now);
            let logged = Logged::Head(head);
            let mut exchange = Exchange { to_head: is_head(head), started_ns, description: None };
            match reply {
                Reply::Now(response) if whole => {
                    worker.stage(peer, logged, || log_answer::<H>(&response, &exchange));
                    self.answer(respond, response, exchange.to_head, context);
                }
                reply => {
                    exchange.description = worker.describe(peer, logged);
                    let expects_continue = head.expects_continue && !whole;
                    self.wait(respond, content, reply, exchange, (whole, expects_continue), context);
                }
            }
        });
    }

    /// A request whose content, or whose answer, is not here yet.
    fn wait(
        &mut self,
        mut respond: SendResponse<SendBody>,
        content: RecvStream,
        reply: Reply,
        exchange: Exchange,
        (whole, expects_continue): (bool, bool),
        context: &mut Context<'_>,
    ) {
        if expects_continue {
            match reply {
                Reply::Now(response) if response.status >= 400 => {
                    // RFC 9110 §10.1.1: the final status tells the client not to send the content at all.
                    self.answer_described(respond, response, &exchange, context);
                    return;
                }
                _ => {}
            }
            let mut head = http::Response::new(());
            *head.status_mut() = http::StatusCode::CONTINUE;
            // It fails when the stream is gone, which the next look at it says.
            let _ = respond.send_informational(head);
        }
        let stream = match reply {
            Reply::Later(response) if whole => Stream::Awaiting(Box::new(Awaiting { respond, response, exchange })),
            reply => {
                let deadline_ms = self.now_ms().saturating_add(self.worker.settings.timeouts.body_timeout_ms);
                let received_bytes = 0;
                Stream::Receiving(Box::new(Receiving {
                    content,
                    respond,
                    reply,
                    exchange,
                    received_bytes,
                    deadline_ms,
                }))
            }
        };
        self.streams.push(stream);
    }

    /// Lets streams that are under way go on. Returns whether the protocol machine has got something of them.
    fn go_on_streams(&mut self, context: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.streams.len() {
            let stream = self.streams.swap_remove(index);
            let limits = &self.worker.settings.limits;
            match stream.go_on(limits, context) {
                Step::Wait(stream) => {
                    self.put_back(index, stream);
                    index += 1;
                    continue;
                }
                Step::Sent(stream) => {
                    self.put_back(index, stream);
                    index += 1;
                }
                Step::Answer(respond, response, exchange) => {
                    self.answer_described(respond, *response, &exchange, context);
                }
                Step::TooLarge(respond, exchange) => self.refuse(respond, Refusal::BodyTooLarge, &exchange, None),
                Step::Cut(exchange) => {
                    self.log_unanswered(&exchange);
                    self.worker.commit(STREAM_RESET);
                }
                Step::Over => {}
            }
            moved = true;
        }
        moved
    }

    /// Puts a stream where it was taken from.
    fn put_back(&mut self, index: usize, stream: Stream) {
        self.streams.push(stream);
        let last = self.streams.len() - 1;
        self.streams.swap(index, last);
    }

    fn peer(&self) -> Peer {
        Peer { client: self.origin.client, secure: self.origin.secure }
    }

    fn log_unanswered(&self, exchange: &Exchange) {
        let answer = || Answer::refused(0, 0, "unanswered", 0, exchange.started_ns);
        self.worker.stage_described(exchange.description.as_ref(), answer);
        self.worker.counters.http2_streams_cut.add(1);
        if let Some(reason) = self.closing {
            self.worker.commit(reason.name());
        }
    }

    fn answer_described(
        &mut self,
        respond: SendResponse<SendBody>,
        response: Response,
        exchange: &Exchange,
        context: &mut Context<'_>,
    ) {
        self.worker.stage_described(exchange.description.as_ref(), || log_answer::<H>(&response, exchange));
        self.answer(respond, response, exchange.to_head, context);
    }

    /// Sends `response`, whose log line is staged.
    fn answer(
        &mut self,
        respond: SendResponse<SendBody>,
        response: Response,
        to_head: bool,
        context: &mut Context<'_>,
    ) {
        let worker = Rc::clone(&self.worker);
        worker.counters.requests.add(1);
        worker.counters.add_status(response.status);
        if let Some(outcome) = worker.counters.outcomes.get(usize::from(response.outcome)) {
            outcome.add(1);
        }
        self.send(respond, response, to_head, context);
    }

    fn send(
        &mut self,
        mut respond: SendResponse<SendBody>,
        response: Response,
        to_head: bool,
        context: &mut Context<'_>,
    ) {
        let worker = Rc::clone(&self.worker);
        if let Some(early) = early_head_of(&response) {
            // It fails when the stream is gone, which the next call says.
            let _ = respond.send_informational(early);
        }
        let empty = to_head || response.body.is_empty();
        let Ok(mut stream) = respond.send_response(head_of(&response, worker.http2_date()), empty) else {
            worker.counters.http2_streams_cut.add(1);
            worker.commit(STREAM_RESET);
            return;
        };
        if empty {
            worker.commit("sent");
            return;
        }
        let staged = worker.take_staged(0);
        let segments: VecDeque<Segment> = match response.body {
            // One that is in memory is the protocol machine's to send, whatever its size: it is not copied.
            Body::Bytes(bytes) => {
                // It fails when the stream is gone; the piece is dropped then, which says so.
                let _ = stream.send_data(SendBody::shared(bytes, &self.endings).last(staged), true);
                return;
            }
            Body::File(file) => [Segment::File(file)].into(),
            Body::Segments(segments) => segments.into(),
            Body::Empty => return,
        };
        let remaining_bytes = segments.iter().map(Segment::len).sum();
        let endings = Rc::clone(&self.endings);
        let sending = Stream::Sending(Box::new(Sending { stream, segments, remaining_bytes, staged, endings }));
        // At once, so that the head shares a packet with the beginning.
        match sending.go_on(&worker.settings.limits, context) {
            Step::Wait(stream) | Step::Sent(stream) => self.streams.push(stream),
            _ => {}
        }
    }

    /// Answers a request that was refused; the stream alone ends. `raw` is what the log shows of one without a head.
    fn refuse(&mut self, respond: SendResponse<SendBody>, refusal: Refusal, exchange: &Exchange, raw: Option<&[u8]>) {
        self.worker.counters.refusals[refusal as usize].add(1);
        self.answer_error(respond, (refusal.status(), refusal.text(), refusal.name()), exchange, raw);
    }

    fn answer_error(
        &mut self,
        mut respond: SendResponse<SendBody>,
        (status, text, name): (u16, &'static str, &'static str),
        exchange: &Exchange,
        raw: Option<&[u8]>,
    ) {
        let worker = Rc::clone(&self.worker);
        let response = worker.handler.handle_error(status, text);
        let body_bytes = if exchange.to_head { 0 } else { response.body.len() };
        let log = response.log;
        let answer = || Answer::refused(log, status, name, body_bytes, exchange.started_ns);
        match raw {
            Some(raw) => worker.stage(self.peer(), Logged::Raw(raw), answer),
            None => worker.stage_described(exchange.description.as_ref(), answer),
        }
        worker.counters.requests.add(1);
        worker.counters.add_status(status);
        let bytes = match response.body {
            Body::Bytes(ref bytes) if !exchange.to_head => Some(bytes.clone()),
            _ => None,
        };
        match respond.send_response(head_of(&response, worker.http2_date()), bytes.is_none()) {
            Ok(mut stream) => match bytes {
                Some(bytes) => {
                    let last = SendBody::shared(bytes, &self.endings).last(worker.take_staged(0));
                    let _ = stream.send_data(last, true);
                }
                None => worker.commit("sent"),
            },
            Err(_) => worker.commit(STREAM_RESET),
        }
    }

    /// Log lines of responses that ended in this turn.
    fn commit_ended(&self) {
        self.worker.counters.http2_streams_cut.add(self.endings.take_cut());
        for (staged, whole) in self.endings.take_ended() {
            let cut = || self.closing.map_or(STREAM_RESET, CloseReason::name);
            self.worker.commit_staged(&staged, if whole { "sent" } else { cut() });
        }
    }

    /// Brings up to date since when the client has been doing nothing of what it should.
    fn note_progress(&mut self) {
        let now_ms = self.now_ms();
        let (received, sent) = self.link.borrow_mut().take_counts();
        self.worker.counters.bytes_received.add(received);
        self.worker.counters.bytes_sent.add(sent);
        let link = self.link.borrow();
        // What the kernel takes counts while it holds the rest up; else only content does, or pings would.
        let content_bytes = self.endings.sent_bytes();
        let idle = !link.is_blocked() && !self.is_sending();
        if idle || content_bytes != self.taken_bytes || link.is_blocked() && sent > 0 {
            (self.taken_ms, self.taken_bytes) = (now_ms, content_bytes);
            self.unacknowledged_bytes = None;
        }
        self.fields_since_ms = match link.is_within_fields() {
            true => self.fields_since_ms.min(now_ms),
            false => u64::MAX,
        };
        if self.is_busy() && matches!(self.state, State::Open(_)) || received > 0 && self.closing.is_none() {
            self.since_ms = now_ms;
        }
    }

    fn is_sending(&self) -> bool {
        self.endings.unsent() > 0 || self.streams.iter().any(|stream| matches!(stream, Stream::Sending(_)))
    }

    fn is_busy(&self) -> bool {
        self.endings.unsent() > 0 || !self.streams.is_empty()
    }

    /// When the earliest wait ends, and what it is then.
    fn next_deadline(&self) -> (u64, CloseReason) {
        let timeouts = &self.worker.settings.timeouts;
        let write = (self.taken_ms.saturating_add(timeouts.write_timeout_ms), CloseReason::WriteTimeout);
        let closing = self.closing.unwrap_or(CloseReason::ClientClosed);
        match self.state {
            State::Preface(_) => {
                return (self.since_ms.saturating_add(timeouts.handshake_timeout_ms), CloseReason::PrefaceTimeout);
            }
            State::Closing | State::Lingering => {
                return (self.since_ms.saturating_add(timeouts.linger_timeout_ms), closing);
            }
            State::Open(_) => {}
        }
        if self.closing.is_some() {
            // A GOAWAY that nobody takes.
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
            consider(match drains {
                true => (self.since_ms.saturating_add(DRAIN_IDLE_MS), CloseReason::Draining),
                false => (self.since_ms.saturating_add(timeouts.idle_timeout_ms), CloseReason::IdleTimeout),
            });
        }
        if self.fields_since_ms < u64::MAX {
            consider((self.fields_since_ms.saturating_add(timeouts.head_timeout_ms), CloseReason::HeadTimeout));
        }
        for stream in &self.streams {
            if let Stream::Receiving(receiving) = stream {
                consider((receiving.deadline_ms, CloseReason::BodyTimeout));
            }
        }
        earliest
    }

    fn arm(&mut self, slot: SlotId) {
        let (deadline_ms, _) = self.next_deadline();
        if deadline_ms < self.armed_ms {
            self.armed_ms = deadline_ms;
            self.worker.deadlines.borrow_mut().set(slot, deadline_ms);
        }
    }

    /// Answers the call of the sweep, of the drain, or of another connection that needs a descriptor. Returns the
    /// reason when the connection is to be cut at once.
    fn handle_call(&mut self, call: Call) -> Option<CloseReason> {
        // The call may have taken an expired deadline's place, so what stands in the table is not known.
        self.armed_ms = u64::MAX;
        match call {
            Call::Abandon => Some(CloseReason::DrainDeadline),
            // The turn that follows says so to the client. Whoever is idle has a second to hear of it.
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
                if matches!(self.state, State::Open(_)) && self.closing.is_none() =>
            {
                self.shut(Reason::NO_ERROR, reason);
                None
            }
            reason => Some(reason),
        }
    }

    /// Tells the client that the connection ends now.
    fn shut(&mut self, why: Reason, reason: CloseReason) {
        if let State::Open(connection) = &mut self.state {
            connection.abrupt_shutdown(why);
            self.taken_ms = self.worker.clock.latest().monotonic_ms;
            self.closing.get_or_insert(reason);
        }
    }

    /// Whether the client has taken nothing for a whole timeout; see `ServerConnection::is_stuck`.
    fn is_stuck(&mut self) -> bool {
        let before = self.unacknowledged_bytes;
        self.unacknowledged_bytes = unacknowledged_bytes(self.link.borrow().socket().fd()).ok();
        match (before, self.unacknowledged_bytes) {
            (None, now) => now.is_none(),
            (Some(before), now) => now.is_none_or(|now| now >= before),
        }
    }

    /// 408 for every request whose content did not come in time.
    fn refuse_slow_bodies(&mut self) {
        let now_ms = self.now_ms();
        let is_slow = |stream: &mut Stream| matches!(stream, Stream::Receiving(it) if it.deadline_ms <= now_ms);
        let slow: Vec<_> = self.streams.extract_if(.., is_slow).collect();
        for stream in slow {
            if let Stream::Receiving(receiving) = stream {
                let Receiving { respond, exchange, .. } = *receiving;
                let error = (408, "The request was not complete in time.", CloseReason::BodyTimeout.name());
                self.answer_error(respond, error, &exchange, None);
            }
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
        self.arm(slot);
        over
    }

    /// The connection is over.
    fn handle_close(&mut self) {
        let reason = *self.closing.get_or_insert(CloseReason::ClientClosed);
        self.cut_streams();
        // Its unsent responses go with it.
        self.state = State::Closing;
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
        self.worker.open.set(self.worker.open.get().saturating_sub(1));
        self.worker.changed.notify_waiters();
    }
}

/// What the log says of `response`.
fn log_answer<'a, H: Handler>(response: &'a Response, exchange: &Exchange) -> Answer<'a> {
    Answer {
        log: response.log,
        status: response.status,
        body_bytes: if exchange.to_head { 0 } else { response.body.len() },
        outcome: H::OUTCOMES.get(usize::from(response.outcome)).copied().unwrap_or("-"),
        started_ns: exchange.started_ns,
        user: response.user.as_deref(),
        site: None,
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
        Flood::Other => CloseReason::H2FrameFlood,
    }
}
