//! The exchanges of one connection: from received bytes to output, through the handler. Nothing here touches the
//! socket; [`super::connection`] moves the bytes.

use super::sending::Tail;
use super::worker::Worker;
use crate::access::{Answer, Description, Logged, Peer};
use crate::clock::Now;
use crate::content::Offers;
use crate::ending::CloseReason;
use crate::handler::{Handler, LaterResponse, Reply, Request};
use crate::response::{Body, Response};
use flatout_http::body::BodyDecoder;
use flatout_http::connection::{Connection, Event, State};
use flatout_http::framing::{Framing, Version};
use flatout_http::head::FieldStorage;
use flatout_http::refusal::Refusal;
use flatout_http::request::{Method, RequestHead, parse_request_head};
use std::fmt;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// Bodies up to this size are copied behind their head into one buffer and one send; larger ones are sent from where
/// they are. Copying 16 KiB costs about a microsecond, less than a second slice costs the kernel.
const COPY_BYTES_MAX: usize = 16 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A request whose body is still coming, with the answer it will get.
#[derive(Debug)]
struct Receiving {
    decoder: BodyDecoder,
    body_bytes: u64,
    reply: Reply,
    exchange: Exchange,
    description: Option<Description>,
}

/// A request whose answer is being made.
struct Awaiting {
    response: LaterResponse,
    exchange: Exchange,
    description: Option<Description>,
}

impl fmt::Debug for Awaiting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Awaiting").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}

/// Where a connection came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) client: Option<SocketAddr>,
    /// The listener, by the number that it was given with.
    pub(crate) listener: u32,
    pub(crate) secure: bool,
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
    fn log_answer<'a, H: Handler>(&self, response: &'a Response) -> Answer<'a> {
        Answer {
            log: response.log,
            status: response.status,
            body_bytes: if self.to_head { 0 } else { response.body.len() },
            outcome: H::OUTCOMES.get(usize::from(response.outcome)).copied().unwrap_or("-"),
            started_ns: self.started_ns,
            user: response.user.as_deref(),
            site: response.site.as_deref(),
            cache: response.cache,
        }
    }
}

/// Where a connection's exchanges are.
#[derive(Debug)]
pub(crate) struct Exchanges {
    machine: Connection,
    origin: Origin,
    receiving: Option<Box<Receiving>>,
    awaiting: Option<Box<Awaiting>>,
    /// The connection ends with the answers made so far.
    closing: Option<CloseReason>,
    /// The client may still be sending: read that before closing, or a reset would destroy the last response
    /// (RFC 9112 §9.6).
    linger: bool,
    /// Requests whose head was complete.
    requests: u32,
    /// When the first bytes of a head that is not complete yet came, on the precise clock; 0 when there are none.
    began_ns: u64,
}

/// What one pass over received bytes gathers.
pub(crate) struct Turn<'a, H: Handler> {
    pub(crate) worker: &'a Worker<H>,
    pub(crate) now: Now,
    /// When the bytes were received, on the precise clock; 0 when nothing is logged.
    pub(crate) started_ns: u64,
    pub(crate) output: &'a mut Vec<u8>,
    /// What follows the output; nothing more is answered before it is sent.
    pub(crate) tail: Tail,
    /// The transition that the end of the tail is.
    pub(crate) ends: Option<Event>,
}

impl Exchanges {
    pub(crate) const fn new(origin: Origin) -> Self {
        Self {
            machine: Connection::new(),
            origin,
            receiving: None,
            awaiting: None,
            closing: None,
            linger: false,
            requests: 0,
            began_ns: 0,
        }
    }

    /// Whether an answer is being made, before which nothing more is read.
    pub(crate) const fn is_awaiting(&self) -> bool {
        self.awaiting.is_some()
    }

    /// Asks for the answer that is being made, and puts it into the output when it is there.
    pub(crate) fn poll_answer<H: Handler>(&mut self, turn: &mut Turn<'_, H>, context: &mut Context<'_>) -> Poll<()> {
        let Some(awaiting) = self.awaiting.as_mut() else { return Poll::Ready(()) };
        let Poll::Ready(response) = awaiting.response.as_mut().poll(context) else { return Poll::Pending };
        let Some(awaiting) = self.awaiting.take() else { return Poll::Ready(()) };
        let Awaiting { exchange, description, .. } = *awaiting;
        turn.worker.stage_described(description.as_ref(), || exchange.log_answer::<H>(&response));
        self.answer(turn, response, exchange, None);
        Poll::Ready(())
    }

    pub(crate) const fn origin(&self) -> Origin {
        self.origin
    }

    /// Bytes have come that may yet become a request.
    pub(crate) fn handle_beginning(&mut self) {
        self.machine.advance(Event::RequestBegins);
    }

    pub(crate) const fn state(&self) -> State {
        self.machine.state()
    }

    pub(crate) const fn requests(&self) -> u32 {
        self.requests
    }

    /// Why the connection ends with what has been answered, if it does.
    pub(crate) const fn closing(&self) -> Option<CloseReason> {
        self.closing
    }

    /// Whether what the client still sends must be read before closing.
    pub(crate) const fn lingers(&self) -> bool {
        self.linger
    }

    /// The response that `ends` stands for is with the kernel.
    pub(crate) fn handle_sent(&mut self, ends: Option<Event>) {
        if let Some(ends) = ends {
            self.machine.advance(ends);
        }
    }

    /// Handles as much of `input` as one send can answer. Returns how much was used.
    pub(crate) fn handle_input<H: Handler>(&mut self, turn: &mut Turn<'_, H>, input: &[u8]) -> usize {
        let limits = &turn.worker.settings.limits;
        let (mut used, mut answered) = (0, 0);
        let has_room = |output: &Vec<u8>| output.len() < limits.output_bytes_max;
        while used < input.len() && self.closing.is_none() && answered < limits.pipelined_max && has_room(turn.output) {
            if self.awaiting.is_some() {
                break;
            }
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
                        if self.began_ns == 0 {
                            self.began_ns = turn.started_ns;
                        }
                        break;
                    }
                    Err(refusal) => self.refuse(turn, refusal, &input[used..]),
                }
            }
            answered += 1;
            if !matches!(turn.tail, Tail::None) {
                break;
            }
            turn.worker.mark_staged(turn.output.len());
        }
        used
    }

    fn handle_head<H: Handler>(&mut self, turn: &mut Turn<'_, H>, head: &RequestHead<'_>, more_follows: bool) {
        self.requests = self.requests.wrapping_add(1);
        let limits = &turn.worker.settings.limits;
        let exchange = Exchange {
            to_head: head.method == Method::Head,
            persistent: head.persistent,
            version: head.version,
            started_ns: self.take_started_ns(turn.started_ns),
        };
        if head.framing == Framing::None {
            self.machine.advance(Event::RequestWithoutBody);
            match turn.worker.handler.handle(&self.request(head, &Offers::new()), turn.now) {
                Reply::Now(response) => {
                    let logged = Logged::Head(head);
                    turn.worker.stage(self.peer(), logged, || exchange.log_answer::<H>(&response));
                    self.answer(turn, response, exchange, None);
                }
                Reply::Later(response) => {
                    let description = turn.worker.describe(self.peer(), Logged::Head(head));
                    self.awaiting = Some(Box::new(Awaiting { response, exchange, description }));
                }
            }
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
            let failed = self.fail(turn.worker, turn.output, fault);
            turn.worker.counters.refusals[refusal as usize].add(1);
            let answer = || failed.log_answer(refusal.name(), exchange.started_ns);
            turn.worker.stage(self.peer(), Logged::Head(head), answer);
            return;
        }
        let mut reply = turn.worker.handler.handle(&self.request(head, &Offers::new()), turn.now);
        if head.expects_continue && !more_follows {
            reply = match reply {
                Reply::Now(response) if response.status >= 400 => {
                    // RFC 9110 §10.1.1: the final status tells the client not to send the content at all.
                    let logged = Logged::Head(head);
                    turn.worker.stage(self.peer(), logged, || exchange.log_answer::<H>(&response));
                    self.answer(turn, response, exchange, Some(CloseReason::RefusedBody));
                    return;
                }
                other => other,
            };
            turn.output.extend_from_slice(CONTINUE);
            self.machine.advance(Event::Interim);
        }
        let Some(decoder) = BodyDecoder::new(head.framing, limits) else { return };
        let description = turn.worker.describe(self.peer(), Logged::Head(head));
        self.receiving = Some(Box::new(Receiving { decoder, body_bytes: 0, reply, exchange, description }));
    }

    /// When the request at hand began: with the first bytes of its head, which came at `received_ns` if not before.
    const fn take_started_ns(&mut self, received_ns: u64) -> u64 {
        match std::mem::replace(&mut self.began_ns, 0) {
            0 => received_ns,
            began_ns => began_ns,
        }
    }

    const fn peer(&self) -> Peer {
        Peer { client: self.origin.client, secure: self.origin.secure }
    }

    const fn request<'a>(&self, head: &'a RequestHead<'a>, offers: &'a Offers) -> Request<'a> {
        let Origin { client, listener, secure } = self.origin;
        Request { head, client, secure, listener, offers }
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
        let Receiving { reply, exchange, description, .. } = *receiving;
        self.machine.advance(Event::RequestEnds);
        match reply {
            Reply::Now(response) => {
                turn.worker.stage_described(description.as_ref(), || exchange.log_answer::<H>(&response));
                self.answer(turn, response, exchange, None);
            }
            Reply::Later(response) => {
                self.awaiting = Some(Box::new(Awaiting { response, exchange, description }));
            }
        }
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
        response.head.append_to(turn.output, &worker.clock.date(), response.extra_lines(), option);
        worker.counters.requests.add(1);
        worker.counters.add_status(response.status);
        if let Some(outcome) = worker.counters.outcomes.get(usize::from(response.outcome)) {
            outcome.add(1);
        }
        if !exchange.to_head {
            match response.body {
                Body::Empty | Body::Stream(_) | Body::Tunnel(_) => {}
                Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => turn.output.extend_from_slice(&bytes),
                Body::Bytes(bytes) => turn.tail = Tail::Bytes(bytes),
                Body::File(file) => turn.tail = Tail::File(file),
                Body::Segments(segments) => turn.tail = Tail::Segments(segments.into()),
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
    pub(crate) fn refuse<H: Handler>(&mut self, turn: &mut Turn<'_, H>, refusal: Refusal, raw: &[u8]) {
        let receiving = self.receiving.take();
        let started_ns = match &receiving {
            Some(receiving) => receiving.exchange.started_ns,
            None => self.take_started_ns(turn.started_ns),
        };
        let fault = Fault::refused(refusal, asked_by_head(receiving.as_deref(), raw));
        let failed = self.fail(turn.worker, turn.output, fault);
        turn.worker.counters.refusals[refusal as usize].add(1);
        let answer = || failed.log_answer(refusal.name(), started_ns);
        match receiving {
            Some(receiving) => turn.worker.stage_described(receiving.description.as_ref(), answer),
            None => turn.worker.stage(self.peer(), Logged::Raw(raw), answer),
        }
    }

    /// The one error response a connection may end with. Returns what the log says of it.
    fn fail<H: Handler>(&mut self, worker: &Worker<H>, output: &mut Vec<u8>, fault: Fault) -> Failed {
        self.machine.advance(Event::Fault);
        let response = worker.handler.handle_error(fault.status, fault.text);
        response.head.append_to(output, &worker.clock.date(), response.extra_lines(), Some("close"));
        worker.counters.requests.add(1);
        worker.counters.add_status(fault.status);
        self.receiving = None;
        self.closing = Some(fault.reason);
        self.linger = true;
        let body_bytes = match &response.body {
            Body::Bytes(bytes) if !fault.to_head => {
                output.extend_from_slice(bytes);
                bytes.len() as u64
            }
            _ => 0,
        };
        Failed { log: response.log, status: fault.status, body_bytes }
    }

    /// The head or body at hand was not complete in time: 408 into `output`, for a connection that has sent `raw`.
    pub(crate) fn handle_slow<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        output: &mut Vec<u8>,
        raw: &[u8],
        reason: CloseReason,
    ) {
        let receiving = self.receiving.take();
        let started_ns = match &receiving {
            Some(receiving) => receiving.exchange.started_ns,
            None => self.take_started_ns(worker.logged_ns()),
        };
        let to_head = asked_by_head(receiving.as_deref(), raw);
        let fault = Fault { status: 408, text: "The request was not complete in time.", reason, to_head };
        let failed = self.fail(worker, output, fault);
        let answer = || failed.log_answer(reason.name(), started_ns);
        match receiving {
            Some(receiving) => worker.stage_described(receiving.description.as_ref(), answer),
            None => worker.stage(self.peer(), Logged::Raw(raw), answer),
        }
    }

    /// The connection is closed for `reason`: logs the request that got no answer.
    pub(crate) fn handle_close<H: Handler>(&mut self, worker: &Worker<H>, reason: CloseReason) {
        if let Some(receiving) = self.receiving.take() {
            let log = match &receiving.reply {
                Reply::Now(response) => response.log,
                Reply::Later(_) => 0,
            };
            let answer = || Answer::refused(log, 0, "unanswered", 0, receiving.exchange.started_ns);
            worker.stage_described(receiving.description.as_ref(), answer);
            worker.commit(reason.name());
        }
        if let Some(awaiting) = self.awaiting.take() {
            let answer = || Answer::refused(0, 0, "unanswered", 0, awaiting.exchange.started_ns);
            worker.stage_described(awaiting.description.as_ref(), answer);
            worker.commit(reason.name());
        }
        self.machine.advance(Event::Close);
        worker.counters.closes[reason as usize].add(1);
    }
}

/// The error response that a connection ended with.
#[derive(Clone, Copy, Debug)]
struct Failed {
    log: u8,
    status: u16,
    body_bytes: u64,
}

impl Failed {
    const fn log_answer(self, outcome: &'static str, started_ns: u64) -> Answer<'static> {
        Answer::refused(self.log, self.status, outcome, self.body_bytes, started_ns)
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
