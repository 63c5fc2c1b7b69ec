//! The exchanges of one connection: from received bytes to output, through the handler. Nothing here touches the
//! socket; [`super::connection`] moves the bytes.

use super::awaiting::Awaiting;
use super::receiving::{Intake, Receiving};
use super::sending::Tail;
use super::streaming::Streaming;
use super::tunnel::{Tunnelled, refuse_tunnel};
use super::worker::Worker;
use crate::access::{Answer, Description, Logged, Peer};
use crate::clock::Now;
use crate::content::Offers;
use crate::ending::CloseReason;
use crate::handler::{Handler, LogSource, Reply, Request};
use crate::response::{Body, Response};
use flatout_http::body::BodyDecoder;
use flatout_http::connection::{Connection, Event, State};
use flatout_http::framing::{Framing, Version};
use flatout_http::head::FieldStorage;
use flatout_http::request::{Method, RequestHead, parse_request_head};
use flatout_http::status::has_content;
use std::net::SocketAddr;

/// Bodies up to this size are copied behind their head into one buffer and one send; larger ones are sent from where
/// they are. Copying 16 KiB costs about a microsecond, less than a second slice costs the kernel.
pub(super) const COPY_BYTES_MAX: usize = 16 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

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
pub(super) struct Exchange {
    pub(super) to_head: bool,
    pub(super) persistent: bool,
    pub(super) version: Version,
    pub(super) started_ns: u64,
}

/// The same with what the log says of the request, for an answer that does not come, or not whole, at once.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) exchange: Exchange,
    /// `None` when nothing is logged.
    pub(super) description: Option<Description>,
    /// The log and the site it names when the handler's response is never sent.
    pub(super) source: LogSource,
}

impl Described {
    /// Stages the line of this request with `answer`, which is not the handler's.
    pub(super) fn stage_without_response<H: Handler>(
        &self,
        worker: &Worker<H>,
        answer: impl FnOnce() -> Answer<'static>,
    ) {
        worker.stage_described(self.description.as_ref(), || answer().with_source(&self.source));
    }
}

impl Exchange {
    /// What the log says of `response` to this request.
    pub(super) fn log_answer<'a, H: Handler>(&self, response: &'a Response) -> Answer<'a> {
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
    pub(super) machine: Connection,
    origin: Origin,
    /// Content that nobody wants.
    pub(super) receiving: Option<Box<Receiving>>,
    /// Content that the handler wants.
    pub(super) intake: Option<Box<Intake>>,
    /// An answer that is being made.
    pub(super) awaiting: Option<Box<Awaiting>>,
    /// An answer that comes bit by bit.
    pub(super) streaming: Option<Box<Streaming>>,
    /// Another protocol goes on with the connection once the answers made so far are sent.
    pub(super) tunnel: Option<Box<Tunnelled>>,
    /// The connection ends with the answers made so far.
    pub(super) closing: Option<CloseReason>,
    /// The client may still be sending: read that before closing, or a reset would destroy the last response
    /// (RFC 9112 §9.6).
    pub(super) linger: bool,
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
    /// Where in the output the head of an answer begins whose content is yet to come.
    pub(crate) head_at: Option<usize>,
}

impl<'a, H: Handler> Turn<'a, H> {
    pub(crate) fn new(worker: &'a Worker<H>, output: &'a mut Vec<u8>) -> Self {
        let (now, started_ns) = (worker.clock.latest(), worker.logged_ns());
        Self { worker, now, started_ns, output, tail: Tail::None, ends: None, head_at: None }
    }
}

impl Exchanges {
    pub(crate) const fn new(origin: Origin) -> Self {
        Self {
            machine: Connection::new(),
            origin,
            receiving: None,
            intake: None,
            awaiting: None,
            streaming: None,
            tunnel: None,
            closing: None,
            linger: false,
            requests: 0,
            began_ns: 0,
        }
    }

    /// Whether an answer is being made or sent bit by bit, before which nothing more is answered.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.awaiting.is_some() || self.streaming.is_some()
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
    pub(crate) fn handle_sent<H: Handler>(&mut self, worker: &Worker<H>, ends: Option<Event>) {
        if let Some(ends) = ends {
            self.machine.advance(ends);
            if self.streaming.is_some() {
                self.end_stream(worker);
            }
        }
    }

    /// Handles as much of `input` as one send can answer. Returns how much was used.
    pub(crate) fn handle_input<H: Handler>(&mut self, turn: &mut Turn<'_, H>, input: &[u8]) -> usize {
        let limits = &turn.worker.settings.limits;
        let (mut used, mut answered) = (0, 0);
        let has_room = |output: &Vec<u8>| output.len() < limits.output_bytes_max;
        while used < input.len() && self.closing.is_none() && answered < limits.pipelined_max && has_room(turn.output) {
            if self.intake.is_some() {
                // It fails only when an answer has begun, before which nothing else was received.
                used += self.give_content(turn, &input[used..]).unwrap_or_default();
            } else if self.is_under_way() || self.tunnel.is_some() {
                break;
            } else if self.receiving.is_some() {
                used += self.discard(turn, &input[used..]);
            } else {
                let mut storage = FieldStorage::new();
                match parse_request_head(&input[used..], limits, &mut storage) {
                    // RFC 9110 §7.4: over clear text nothing of https is answered.
                    Ok(Some(head)) if !self.origin.secure && head.has_https_target() => {
                        self.refuse(turn, flatout_http::refusal::Refusal::TargetScheme, &input[used..]);
                    }
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
            let offers = if turn.output.is_empty() { Offers::new() } else { Offers::new().behind() };
            match turn.worker.handler.handle(&self.request(head, &offers), turn.now) {
                Reply::Now(response) => self.answer_head(turn, head, response, exchange, None),
                Reply::Later(response) => {
                    let request = self.describe(turn.worker, head, exchange, response.log_source());
                    self.wait(response, request, offers.taken_interims());
                }
            }
            return;
        }
        self.machine.advance(if head.expects_continue {
            Event::RequestExpectsContinue
        } else {
            Event::RequestWithBody
        });
        let offers = Offers::with_content(match head.framing {
            Framing::Length(length) => Some(length),
            _ => None,
        });
        let reply = turn.worker.handler.handle(&self.request(head, &offers), turn.now);
        let awaits_continue = head.expects_continue && !more_follows;
        let reply = match (reply, offers.writer()) {
            (Reply::Later(response), Some(writer)) => {
                if let Some(decoder) = BodyDecoder::new(head.framing, limits) {
                    self.intake = Some(Box::new(Intake::new(decoder, writer)));
                }
                let request = self.describe(turn.worker, head, exchange, response.log_source());
                self.wait(response, request, offers.taken_interims());
                if awaits_continue {
                    turn.output.extend_from_slice(CONTINUE);
                    self.machine.advance(Event::Interim);
                }
                return;
            }
            (reply, _) => reply,
        };
        if matches!(head.framing, Framing::Length(length) if length > limits.body_bytes_max) {
            self.refuse_large(turn, head, exchange, &reply.log_source());
            return;
        }
        let reply = match reply {
            Reply::Now(response) if awaits_continue && response.status >= 400 => {
                // RFC 9110 §10.1.1: the final status tells the client not to send the content at all.
                self.answer_head(turn, head, response, exchange, Some(CloseReason::RefusedBody));
                return;
            }
            reply => reply,
        };
        if awaits_continue {
            turn.output.extend_from_slice(CONTINUE);
            self.machine.advance(Event::Interim);
        }
        let Some(decoder) = BodyDecoder::new(head.framing, limits) else { return };
        let request = self.describe(turn.worker, head, exchange, reply.log_source());
        let interims = offers.taken_interims();
        self.receiving = Some(Box::new(Receiving { decoder, body_bytes: 0, reply, request, interims }));
    }

    fn describe<H: Handler>(
        &self,
        worker: &Worker<H>,
        head: &RequestHead<'_>,
        exchange: Exchange,
        source: LogSource,
    ) -> Described {
        Described { exchange, description: worker.describe(self.peer(), Logged::Head(head)), source }
    }

    /// When the request at hand began: with the first bytes of its head, which came at `received_ns` if not before.
    pub(super) const fn take_started_ns(&mut self, received_ns: u64) -> u64 {
        match std::mem::replace(&mut self.began_ns, 0) {
            0 => received_ns,
            began_ns => began_ns,
        }
    }

    pub(super) const fn peer(&self) -> Peer {
        Peer { client: self.origin.client, secure: self.origin.secure }
    }

    const fn request<'a>(&self, head: &'a RequestHead<'a>, offers: &'a Offers) -> Request<'a> {
        let Origin { client, listener, secure } = self.origin;
        Request { head, client, secure, listener, offers }
    }

    /// Answers a request whose head is at hand.
    fn answer_head<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        head: &RequestHead<'_>,
        response: Response,
        exchange: Exchange,
        close: Option<CloseReason>,
    ) {
        if matches!(response.body, Body::Stream(_) | Body::Tunnel(_)) {
            let request = self.describe(turn.worker, head, exchange, LogSource::of(&response));
            self.answer_described(turn, response, request, close);
            return;
        }
        turn.worker.stage(self.peer(), Logged::Head(head), || exchange.log_answer::<H>(&response));
        self.answer(turn, response, exchange, close);
    }

    /// Answers a request of which the log's part is kept.
    pub(super) fn answer_described<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        mut response: Response,
        request: Described,
        close: Option<CloseReason>,
    ) {
        let exchange = request.exchange;
        match std::mem::replace(&mut response.body, Body::Empty) {
            // The source is dropped without having been asked (RFC 9110 §9.3.2, §6.4.1).
            Body::Stream(_) if exchange.to_head || !has_content(response.status) => {}
            Body::Stream(source) => return self.begin_stream(turn, &response, source, request, close),
            Body::Tunnel(start) if self.may_tunnel(&response, exchange) => {
                return self.begin_tunnel(turn, &response, start, request);
            }
            Body::Tunnel(_) => response = refuse_tunnel(&turn.worker.handler, &response),
            body => response.body = body,
        }
        turn.worker.stage_described(request.description.as_ref(), || exchange.log_answer::<H>(&response));
        self.answer(turn, response, exchange, close);
    }

    /// Puts `response` into the output. With `close`, or when either side wants no more, it is the last.
    fn answer<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        response: Response,
        exchange: Exchange,
        close: Option<CloseReason>,
    ) {
        let ends = self.begin_answer(turn, &response, exchange, close, b"");
        if !exchange.to_head {
            match response.body {
                Body::Empty | Body::Stream(_) | Body::Tunnel(_) => {}
                Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => turn.output.extend_from_slice(&bytes),
                Body::Bytes(bytes) => turn.tail = Tail::Bytes(bytes),
                Body::File(file) if turn.worker.settings.sendfile => turn.tail = Tail::File(file),
                Body::File(file) => turn.tail = Tail::Copied(file),
                Body::Segments(segments) => turn.tail = Tail::Segments(segments.into()),
            }
        }
        if matches!(turn.tail, Tail::None) {
            self.machine.advance(ends);
        } else {
            turn.ends = Some(ends);
        }
    }

    /// Puts the head of `response` into the output, with the field line `framing`, and counts it. Returns the
    /// transition that its end will be.
    #[inline]
    pub(super) fn begin_answer<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        response: &Response,
        exchange: Exchange,
        close: Option<CloseReason>,
        framing: &'static [u8],
    ) -> Event {
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
        response.head.append_framed_to(turn.output, &worker.clock.date(), response.extra_lines(), framing, option);
        count_answer(worker, response);
        let Some(reason) = close else { return Event::ResponseEnds };
        self.closing = Some(reason);
        // A client that asked for the end sends nothing more; one that did not may be sending now.
        self.linger = reason != CloseReason::NotPersistent || exchange.persistent;
        Event::ResponseEndsLast
    }
}

#[inline]
pub(crate) fn count_answer<H: Handler>(worker: &Worker<H>, response: &Response) {
    worker.counters.requests.add(1);
    worker.counters.add_status(response.status);
    if let Some(outcome) = worker.counters.outcomes.get(usize::from(response.outcome)) {
        outcome.add(1);
    }
}
