//! One connection of the server: bytes in, requests through the handler, bytes out. Nothing here waits; each turn
//! says what the connection waits for next.

use super::sending::{Progress, Sending, Tail, write_out};
use super::worker::Worker;
use crate::access::{Answer, Description, Logged};
use crate::clock::Now;
use crate::ending::CloseReason;
use crate::handler::Handler;
use crate::response::{Body, Response};
use crate::socket::unacknowledged_bytes;
use flatout_http::body::BodyDecoder;
use flatout_http::connection::{Connection, Event, State};
use flatout_http::framing::{Framing, Version};
use flatout_http::head::FieldStorage;
use flatout_http::refusal::Refusal;
use flatout_http::request::{Method, RequestHead, parse_request_head};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Bodies up to this size are copied behind their head into one buffer and one send; larger ones are sent from where
/// they are. Copying 16 KiB costs about a microsecond, less than a second slice costs the kernel.
const COPY_BYTES_MAX: usize = 16 * 1024;

/// Receives in one turn before another connection has its own.
const RECEIVES_MAX: u32 = 8;

/// Bytes read and thrown away from a client that has been told that the connection ends.
const LINGER_BYTES_MAX: u64 = 4 * 1024 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What a connection does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait until bytes come; there are none now.
    Read,
    /// Wait until the socket takes bytes.
    Write,
    /// Go on after others have had their turn.
    Yield,
    /// Close.
    Close(CloseReason),
}

/// What the connection is waiting for, which decides how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Idle,
    Head,
    Body,
    Write,
    Linger,
}

/// A request whose body is still coming, with the answer it will get.
#[derive(Debug)]
struct Receiving {
    decoder: BodyDecoder,
    body_bytes: u64,
    response: Response,
    exchange: Exchange,
    description: Option<Description>,
}

/// What must be remembered of a request until its response has been made.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    to_head: bool,
    persistent: bool,
    version: Version,
    started_ns: u64,
}

impl Exchange {
    /// What the log says of `response` to this request.
    fn log_answer<H: Handler>(&self, response: &Response) -> Answer {
        Answer {
            status: response.status,
            body_bytes: if self.to_head { 0 } else { response.body.len() },
            outcome: H::OUTCOMES.get(usize::from(response.outcome)).copied().unwrap_or("-"),
            started_ns: self.started_ns,
        }
    }
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    machine: Connection,
    client: Option<SocketAddr>,
    /// Received and not used up: a part of a head, or requests beyond the pipelining bound. Empty on an idle
    /// connection, and then without capacity.
    stash: Vec<u8>,
    receiving: Option<Box<Receiving>>,
    sending: Option<Box<Sending>>,
    /// The connection ends with what is being sent.
    closing: Option<CloseReason>,
    /// The client may still be sending: read that before closing, or a reset would destroy the last response
    /// (RFC 9112 §9.6).
    linger: bool,
    lingering: bool,
    lingered_bytes: u64,
    /// What the kernel still held when the write timeout last passed; `None` since the socket has taken something.
    unacknowledged_bytes: Option<u32>,
    /// Requests whose head was complete.
    requests: u32,
    /// Steps that begin a new wait: requests begun, and writes of which the socket took something.
    steps: u32,
}

impl ServerConnection {
    pub(crate) const fn new(client: Option<SocketAddr>) -> Self {
        Self {
            machine: Connection::new(),
            client,
            stash: Vec::new(),
            receiving: None,
            sending: None,
            closing: None,
            linger: false,
            lingering: false,
            lingered_bytes: 0,
            unacknowledged_bytes: None,
            requests: 0,
            steps: 0,
        }
    }

    /// Tells one wait from the next: while it stays the same, the deadline does too, so a trickle extends nothing.
    pub(crate) fn wait_id(&self) -> (Wait, u32) {
        (self.wait(), self.steps)
    }

    /// What the connection waits for now.
    pub(crate) fn wait(&self) -> Wait {
        if self.sending.is_some() {
            return Wait::Write;
        }
        if self.lingering {
            return Wait::Linger;
        }
        match self.machine.state() {
            State::RequestHead => Wait::Head,
            State::RequestBody | State::AwaitContinue => Wait::Body,
            _ => Wait::Idle,
        }
    }

    /// Goes on as far as possible without waiting.
    pub(crate) fn turn<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Next {
        // Once a turn: what follows takes microseconds, and the clock is coarser than that.
        worker.clock.read();
        for _ in 0..RECEIVES_MAX {
            if let Some(next) = self.go_on_sending(worker, fd) {
                return next;
            }
            if !self.stash.is_empty() && self.may_have_request() {
                if let Some(next) = self.use_stash(worker, fd) {
                    return next;
                }
                continue;
            }
            if let Some(next) = self.close_or_linger(fd) {
                return next;
            }
            let mut input = worker.input.borrow_mut();
            match recv(fd, &mut **input, RecvFlags::empty()) {
                Ok((0, _)) => return Next::Close(self.handle_end()),
                Ok((count, _)) => {
                    worker.counters.bytes_received.add(count as u64);
                    let whole = count < input.len();
                    if let Some(next) = self.handle_received(worker, fd, &input[..count]) {
                        return next;
                    }
                    // A short receive emptied the socket: asking again would only be told so.
                    if whole && self.stash_is_waiting() && self.sending.is_none() && self.closing.is_none() {
                        return Next::Read;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // `requests > 0`: whoever has just connected is given a moment to ask.
                    let leave = worker.draining.get() && self.wait() == Wait::Idle && self.requests > 0;
                    return if leave { Next::Close(CloseReason::Draining) } else { Next::Read };
                }
                Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => return Next::Close(self.handle_reset()),
                Err(_) => return Next::Close(CloseReason::SocketFailed),
            }
        }
        Next::Yield
    }

    /// Whether what is stashed can only go on with more bytes.
    fn stash_is_waiting(&self) -> bool {
        self.stash.is_empty() || !self.may_have_request()
    }

    /// A part of a head is known to need more; anything else in the stash may hold a whole request.
    fn may_have_request(&self) -> bool {
        self.closing.is_none() && self.machine.state() != State::RequestHead
    }

    fn go_on_sending<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Option<Next> {
        let sending = self.sending.as_mut()?;
        let (count, progress) = sending.write(fd);
        worker.counters.bytes_sent.add(count);
        if count > 0 {
            self.steps = self.steps.wrapping_add(1);
            self.unacknowledged_bytes = None;
        }
        match progress {
            Progress::Done => {
                if let Some(ends) = sending.ends {
                    self.machine.advance(ends);
                }
                worker.commit_staged(&sending.staged, "sent");
                self.sending = None;
                None
            }
            Progress::Blocked => Some(Next::Write),
            Progress::Yield => Some(Next::Yield),
            Progress::Failed(reason) => Some(Next::Close(reason)),
        }
    }

    fn use_stash<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Option<Next> {
        let stash = std::mem::take(&mut self.stash);
        self.use_input(worker, fd, &stash, worker.clock.latest())
    }

    fn handle_received<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>, input: &[u8]) -> Option<Next> {
        if self.lingering {
            self.lingered_bytes += input.len() as u64;
            let too_many = self.lingered_bytes > LINGER_BYTES_MAX;
            return too_many.then(|| Next::Close(self.closing.unwrap_or(CloseReason::Refused)));
        }
        let now = worker.clock.latest();
        if self.stash.is_empty() {
            return self.use_input(worker, fd, input, now);
        }
        let mut stash = std::mem::take(&mut self.stash);
        stash.extend_from_slice(input);
        self.use_input(worker, fd, &stash, now)
    }

    /// Answers the requests in `input`, stashes what is left, and sends the answers in one call.
    fn use_input<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        fd: BorrowedFd<'_>,
        input: &[u8],
        now: Now,
    ) -> Option<Next> {
        let mut output = worker.output.borrow_mut();
        output.clear();
        let mut turn =
            Turn { worker, now, started_ns: worker.logged_ns(), output: &mut output, tail: Tail::None, ends: None };
        let used = self.handle_input(&mut turn, input);
        if used < input.len() && self.closing.is_none() {
            self.stash = input[used..].to_vec();
        }
        let Turn { mut tail, ends, .. } = turn;
        if output.is_empty() {
            return None;
        }
        let (sent, total, progress) = write_out(fd, &output, &mut tail);
        worker.counters.bytes_sent.add(total);
        match progress {
            Progress::Done => {
                if let Some(ends) = ends {
                    self.machine.advance(ends);
                }
                worker.commit("sent");
                None
            }
            Progress::Blocked | Progress::Yield => {
                let sending = Sending::new(&output[sent..], tail, ends, worker.take_staged());
                self.sending = Some(Box::new(sending));
                Some(if progress == Progress::Blocked { Next::Write } else { Next::Yield })
            }
            Progress::Failed(reason) => {
                worker.commit(reason.name());
                Some(Next::Close(reason))
            }
        }
    }

    /// Handles as much of `input` as one send can answer. Returns how much was used.
    fn handle_input<H: Handler>(&mut self, turn: &mut Turn<'_, H>, input: &[u8]) -> usize {
        let limits = &turn.worker.settings.limits;
        let (mut used, mut answered) = (0, 0);
        while used < input.len() && self.closing.is_none() && answered < limits.pipelined_max {
            if self.receiving.is_some() {
                used += self.handle_body(turn, &input[used..]);
            } else {
                let mut storage = FieldStorage::new();
                match parse_request_head(&input[used..], limits, &mut storage) {
                    Ok(Some(head)) => {
                        used += head.head_bytes;
                        self.handle_head(turn, &head, used < input.len());
                    }
                    Ok(None) => {
                        self.machine.advance(Event::RequestBegins);
                        break;
                    }
                    Err(refusal) => self.refuse(turn, refusal, &input[used..]),
                }
            }
            answered += 1;
            if !matches!(turn.tail, Tail::None) {
                break;
            }
        }
        used
    }

    fn handle_head<H: Handler>(&mut self, turn: &mut Turn<'_, H>, head: &RequestHead<'_>, more_follows: bool) {
        self.requests = self.requests.wrapping_add(1);
        self.steps = self.steps.wrapping_add(1);
        let limits = &turn.worker.settings.limits;
        let exchange = Exchange {
            to_head: head.method == Method::Head,
            persistent: head.persistent,
            version: head.version,
            started_ns: turn.started_ns,
        };
        if head.framing == Framing::None {
            self.machine.advance(Event::RequestWithoutBody);
            let response = turn.worker.handler.handle(head, turn.now);
            turn.worker.stage(self.client, turn.now, Logged::Head(head), || exchange.log_answer::<H>(&response));
            self.answer(turn, response, exchange, None);
            return;
        }
        self.machine.advance(if head.expects_continue {
            Event::RequestExpectsContinue
        } else {
            Event::RequestWithBody
        });
        if matches!(head.framing, Framing::Length(length) if length > limits.body_bytes_max) {
            let refusal = Refusal::BodyTooLarge;
            let fault = Fault::refused(refusal, exchange.to_head);
            let body_bytes = self.fail(turn.worker, turn.output, fault);
            turn.worker.counters.refusals[refusal as usize].add(1);
            let answer = || Answer::refused(refusal.status(), refusal.name(), body_bytes, turn.started_ns);
            turn.worker.stage(self.client, turn.now, Logged::Head(head), answer);
            return;
        }
        let response = turn.worker.handler.handle(head, turn.now);
        if head.expects_continue && !more_follows {
            if response.status >= 400 {
                // RFC 9110 §10.1.1: the final status tells the client not to send the content at all.
                turn.worker.stage(self.client, turn.now, Logged::Head(head), || exchange.log_answer::<H>(&response));
                self.answer(turn, response, exchange, Some(CloseReason::RefusedBody));
                return;
            }
            turn.output.extend_from_slice(CONTINUE);
            self.machine.advance(Event::Interim);
        }
        let Some(decoder) = BodyDecoder::new(head.framing, limits) else { return };
        let description = turn.worker.describe(self.client, turn.now, Logged::Head(head));
        self.receiving = Some(Box::new(Receiving { decoder, body_bytes: 0, response, exchange, description }));
    }

    /// Reads on in a body that nobody wants, to find its end and to refuse it if it is malformed.
    fn handle_body<H: Handler>(&mut self, turn: &mut Turn<'_, H>, input: &[u8]) -> usize {
        let Some(receiving) = self.receiving.as_mut() else { return 0 };
        let mut used = 0;
        while used < input.len() {
            match receiving.decoder.decode(&input[used..]) {
                Ok(step) => {
                    used += step.consumed;
                    receiving.body_bytes += step.data_bytes as u64;
                    if receiving.body_bytes > turn.worker.settings.limits.body_bytes_max {
                        self.refuse(turn, Refusal::BodyTooLarge, b"");
                        break;
                    }
                    if step.done {
                        self.end_body(turn);
                        break;
                    }
                }
                Err(refusal) => {
                    self.refuse(turn, refusal, b"");
                    break;
                }
            }
        }
        used
    }

    fn end_body<H: Handler>(&mut self, turn: &mut Turn<'_, H>) {
        let Some(receiving) = self.receiving.take() else { return };
        let Receiving { response, exchange, description, .. } = *receiving;
        self.machine.advance(Event::RequestEnds);
        turn.worker.stage_described(description.as_ref(), || exchange.log_answer::<H>(&response));
        self.answer(turn, response, exchange, None);
    }

    /// Puts `response` into the output. With `close`, or when either side wants no more, it is the last.
    fn answer<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        response: Response,
        exchange: Exchange,
        close: Option<CloseReason>,
    ) {
        let worker = turn.worker;
        self.machine.advance(Event::ResponseBegins);
        let close = match close {
            Some(reason) => Some(reason),
            None if !exchange.persistent => Some(CloseReason::NotPersistent),
            None if worker.draining.get() => Some(CloseReason::Draining),
            None => None,
        };
        let option = match close {
            Some(_) => Some("close"),
            // RFC 9112 §9.3: an HTTP/1.0 client needs to be told.
            None if exchange.version == Version::Http10 => Some("keep-alive"),
            None => None,
        };
        response.head.append_to(turn.output, &worker.clock.date(), option);
        worker.counters.requests.add(1);
        worker.counters.add_status(response.status);
        if let Some(outcome) = worker.counters.outcomes.get(usize::from(response.outcome)) {
            outcome.add(1);
        }
        if !exchange.to_head {
            match response.body {
                Body::Empty => {}
                Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => turn.output.extend_from_slice(&bytes),
                Body::Bytes(bytes) => turn.tail = Tail::Bytes(bytes),
                Body::File(file) => turn.tail = Tail::File(file),
            }
        }
        let ends = if close.is_some() { Event::ResponseEndsLast } else { Event::ResponseEnds };
        if matches!(turn.tail, Tail::None) {
            self.machine.advance(ends);
        } else {
            turn.ends = Some(ends);
        }
        if let Some(reason) = close {
            self.closing = Some(reason);
            // A client that asked for the end sends nothing more; one that did not may be sending now.
            self.linger = reason != CloseReason::NotPersistent;
        }
    }

    /// Refuses what was being received: `raw` when no head was understood, else the body of the request at hand.
    fn refuse<H: Handler>(&mut self, turn: &mut Turn<'_, H>, refusal: Refusal, raw: &[u8]) {
        let receiving = self.receiving.take();
        let fault = Fault::refused(refusal, asked_by_head(receiving.as_deref(), raw));
        let body_bytes = self.fail(turn.worker, turn.output, fault);
        turn.worker.counters.refusals[refusal as usize].add(1);
        let answer = || Answer::refused(refusal.status(), refusal.name(), body_bytes, turn.started_ns);
        match receiving {
            Some(receiving) => turn.worker.stage_described(receiving.description.as_ref(), answer),
            None => turn.worker.stage(self.client, turn.now, Logged::Raw(raw), answer),
        }
    }

    /// The one error response a connection may end with. Returns the bytes of its content.
    fn fail<H: Handler>(&mut self, worker: &Worker<H>, output: &mut Vec<u8>, fault: Fault) -> u64 {
        self.machine.advance(Event::Fault);
        let response = worker.handler.handle_error(fault.status, fault.text);
        response.head.append_to(output, &worker.clock.date(), Some("close"));
        worker.counters.requests.add(1);
        worker.counters.add_status(fault.status);
        self.receiving = None;
        self.stash = Vec::new();
        self.closing = Some(fault.reason);
        self.linger = true;
        match &response.body {
            Body::Bytes(bytes) if !fault.to_head => {
                output.extend_from_slice(bytes);
                bytes.len() as u64
            }
            _ => 0,
        }
    }

    /// Whether the client has taken nothing for a whole timeout. That the socket takes nothing does not say so: the
    /// kernel holds up to megabytes, and says that there is room when a third of that is gone.
    fn is_stuck(&mut self, fd: BorrowedFd<'_>) -> bool {
        let before = self.unacknowledged_bytes;
        self.unacknowledged_bytes = unacknowledged_bytes(fd).ok();
        match (before, self.unacknowledged_bytes) {
            // What was there when the wait began is not known; another timeout will tell.
            (None, now) => now.is_none(),
            (Some(before), now) => now.is_none_or(|now| now >= before),
        }
    }

    /// Patience ended. A slow request is answered 408; the rest is closed.
    pub(crate) fn handle_expired<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Next {
        let reason = match self.wait() {
            Wait::Idle => return Next::Close(CloseReason::IdleTimeout),
            Wait::Linger => return Next::Close(self.closing.unwrap_or(CloseReason::Refused)),
            Wait::Write if self.is_stuck(fd) => return Next::Close(CloseReason::WriteTimeout),
            Wait::Write => {
                worker.clock.read();
                return Next::Write;
            }
            Wait::Head => CloseReason::HeadTimeout,
            Wait::Body => CloseReason::BodyTimeout,
        };
        let now = worker.clock.read();
        let raw = std::mem::take(&mut self.stash);
        let receiving = self.receiving.take();
        let mut output = worker.output.borrow_mut();
        output.clear();
        let to_head = asked_by_head(receiving.as_deref(), &raw);
        let fault = Fault { status: 408, text: "The request was not complete in time.", reason, to_head };
        let body_bytes = self.fail(worker, &mut output, fault);
        let answer = || Answer::refused(408, reason.name(), body_bytes, worker.logged_ns());
        match receiving {
            Some(receiving) => worker.stage_described(receiving.description.as_ref(), answer),
            None => worker.stage(self.client, now, Logged::Raw(&raw), answer),
        }
        let (_, total, progress) = write_out(fd, &output, &mut Tail::None);
        worker.counters.bytes_sent.add(total);
        if progress != Progress::Done {
            worker.commit(reason.name());
            return Next::Close(reason);
        }
        worker.commit("sent");
        self.close_or_linger(fd).unwrap_or(Next::Read)
    }

    /// Ends the connection when its last response is sent: at once, or after the client has ended too.
    fn close_or_linger(&mut self, fd: BorrowedFd<'_>) -> Option<Next> {
        let reason = self.closing?;
        if self.lingering {
            return None;
        }
        if !self.linger {
            return Some(Next::Close(reason));
        }
        self.lingering = true;
        match shutdown(fd, Shutdown::Write) {
            Ok(()) => None,
            Err(_) => Some(Next::Close(reason)),
        }
    }

    /// The client closed its side.
    fn handle_end(&mut self) -> CloseReason {
        if let Some(reason) = self.closing {
            return reason;
        }
        match self.wait() {
            Wait::Head => CloseReason::ClientCutHead,
            Wait::Body => CloseReason::ClientCutBody,
            _ => CloseReason::ClientClosed,
        }
    }

    fn handle_reset(&mut self) -> CloseReason {
        self.closing.unwrap_or(CloseReason::ClientReset)
    }

    /// Logs what was still being sent when the connection ended for `reason`.
    pub(crate) fn handle_close<H: Handler>(&mut self, worker: &Worker<H>, reason: CloseReason) {
        if let Some(sending) = self.sending.take() {
            worker.commit_staged(&sending.staged, reason.name());
        }
        if let Some(receiving) = self.receiving.take() {
            let answer = || Answer::refused(0, "unanswered", 0, receiving.exchange.started_ns);
            worker.stage_described(receiving.description.as_ref(), answer);
            worker.commit(reason.name());
        }
        self.machine.advance(Event::Close);
        worker.counters.closes[reason as usize].add(1);
    }
}

/// Why a connection ends with an error response, and how.
#[derive(Clone, Copy, Debug)]
struct Fault {
    status: u16,
    text: &'static str,
    reason: CloseReason,
    /// Its request was a HEAD, so it has no content (RFC 9110 §9.3.2).
    to_head: bool,
}

impl Fault {
    const fn refused(refusal: Refusal, to_head: bool) -> Self {
        Self { status: refusal.status(), text: refusal.text(), reason: CloseReason::Refused, to_head }
    }
}

/// Whether the request at hand is a HEAD, as far as that can be known of one that was not understood.
fn asked_by_head(receiving: Option<&Receiving>, raw: &[u8]) -> bool {
    match receiving {
        Some(receiving) => receiving.exchange.to_head,
        None => raw.strip_prefix(b"\r\n").unwrap_or(raw).starts_with(b"HEAD "),
    }
}

/// What one pass over received bytes gathers.
struct Turn<'a, H: Handler> {
    worker: &'a Worker<H>,
    now: Now,
    started_ns: u64,
    output: &'a mut Vec<u8>,
    tail: Tail,
    ends: Option<Event>,
}
