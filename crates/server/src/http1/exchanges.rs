//! The exchanges of one connection, which turn received bytes into output with the handler. Nothing here touches the
//! socket; [`super::connection`] moves the bytes.

use super::receiving::{DecodedIntake, Receiving};
use super::streaming::Streaming;
use crate::exchange::pace::Pace;
use crate::exchange::pending::PendingResponse;
use crate::exchange::record::{Exchange, ExchangeRecord};
use crate::http1::tunnel::{Tunnelled, refuse_tunnel};
use crate::sending::Tail;
use crate::worker::Worker;
use flatout_access_log::{Logged, LoggedPeer};
use flatout_handler::content::Offers;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Body, LogFacts, Response};
use flatout_handler::{Handler, Reply, Request};
use flatout_http::body::BodyDecoder;
use flatout_http::connection::{Connection, ConnectionEvent, ConnectionState};
use flatout_http::framing::{Framing, Version};
use flatout_http::head::FieldStorage;
use flatout_http::request::{Method, RequestHead, parse_request_head};
use flatout_http::status::has_content;
use flatout_os::clock::Now;
use std::net::SocketAddr;

/// Maximum size of a body that is copied after its head, so that both are sent from one buffer. Larger bodies are sent
/// from their own memory. Copying 16 KiB takes about a microsecond, less than the kernel needs for a second slice.
pub(super) const COPY_BYTES_MAX: usize = 16 * 1024;

pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The client of a connection, and how it connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) client: Option<SocketAddr>,
    /// True if the connection arrived at a Unix socket, so that there is no address.
    pub(crate) unix: bool,
    /// The number of the listener that accepted the connection.
    pub(crate) listener: u32,
    pub secure: bool,
}

/// The state of a connection's exchanges.
#[derive(Debug)]
pub(crate) struct Exchanges {
    pub(super) machine: Connection,
    origin: Peer,
    /// Set while request content is received and discarded.
    pub(super) receiving: Option<Box<Receiving>>,
    /// Set while request content is delivered to the handler.
    pub(super) intake: Option<Box<DecodedIntake>>,
    /// Set while a response is pending.
    pub(super) awaiting: Option<Box<PendingResponse>>,
    /// Set while a response is streamed.
    pub(super) streaming: Option<Box<Streaming>>,
    /// The tunnel that takes over the connection after the output so far has been sent.
    pub(super) tunnel: Option<Box<Tunnelled>>,
    /// Set if the connection closes after the output so far has been sent.
    pub(super) closing: Option<CloseReason>,
    /// True if the client may still be sending. Its bytes must be received before closing, or else a reset would
    /// destroy the last response (RFC 9112 §9.6).
    pub(super) linger: bool,
    /// Number of requests whose head was complete.
    requests: u32,
    /// When the first bytes of the incomplete head arrived, on the precise clock. 0 if none have arrived.
    began_ns: u64,
}

/// The input and output of one pass over received bytes.
pub(crate) struct Turn<'a, H: Handler> {
    pub(crate) worker: &'a Worker<H>,
    pub(crate) now: Now,
    /// When the bytes were received, on the precise clock. 0 if nothing is logged.
    pub(crate) started_ns: u64,
    pub(crate) output: &'a mut Vec<u8>,
    /// The body that follows the output. No more requests are handled before it is sent.
    pub(crate) tail: Tail,
    /// The transition of the state machine after the tail has been sent.
    pub(crate) ends: Option<ConnectionEvent>,
    /// Offset in the output of the head of a response whose content is still to come.
    pub(crate) head_at: Option<usize>,
}

impl<'a, H: Handler> Turn<'a, H> {
    pub(crate) fn new(worker: &'a Worker<H>, output: &'a mut Vec<u8>) -> Self {
        let (now, started_ns) = (worker.clock.latest(), worker.logged_ns());
        Self { worker, now, started_ns, output, tail: Tail::None, ends: None, head_at: None }
    }
}

impl Exchanges {
    pub(crate) const fn new(origin: Peer) -> Self {
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

    /// Returns whether a response is pending or streamed. Further requests wait for it.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.awaiting.is_some() || self.streaming.is_some()
    }

    pub(crate) const fn origin(&self) -> Peer {
        self.origin
    }

    /// Sets the client, as named or hidden by the peer of the connection.
    pub(super) const fn set_client(&mut self, client: Option<SocketAddr>) {
        // A hidden client is not the peer of the Unix socket.
        (self.origin.client, self.origin.unix) = (client, false);
    }

    /// Records that bytes of a request have begun to arrive.
    pub(crate) fn handle_beginning(&mut self) {
        self.machine.advance(ConnectionEvent::RequestBegins);
    }

    pub(crate) const fn state(&self) -> ConnectionState {
        self.machine.state()
    }

    pub(crate) const fn requests(&self) -> u32 {
        self.requests
    }

    /// Returns the reason the connection closes after the output so far has been sent, or `None` if it stays open.
    pub(crate) const fn closing(&self) -> Option<CloseReason> {
        self.closing
    }

    /// Returns whether further bytes from the client must be received before closing.
    pub(crate) const fn lingers(&self) -> bool {
        self.linger
    }

    /// Called when the kernel has accepted the whole response. `ends` is the transition at its end.
    pub(crate) fn handle_sent<H: Handler>(&mut self, worker: &Worker<H>, ends: Option<ConnectionEvent>) {
        if let Some(ends) = ends {
            self.machine.advance(ends);
            if self.streaming.is_some() {
                self.end_stream(worker);
            }
        }
    }

    /// Handles as much of `input` as one send call can respond to. Returns the number of bytes used.
    pub(crate) fn handle_input<H: Handler>(&mut self, turn: &mut Turn<'_, H>, input: &[u8]) -> usize {
        let limits = &turn.worker.settings.limits;
        let (mut used, mut answered) = (0, 0);
        let has_room = |output: &Vec<u8>| output.len() < limits.output_bytes_max;
        while used < input.len() && self.closing.is_none() && answered < limits.pipelined_max && has_room(turn.output) {
            if self.intake.is_some() {
                // Fails only if a response has begun, before which nothing else was received.
                used += self.give_content(turn, &input[used..]).unwrap_or_default();
            } else if self.is_under_way() || self.tunnel.is_some() {
                break;
            } else if self.receiving.is_some() {
                used += self.discard(turn, &input[used..]);
            } else {
                let mut storage = FieldStorage::new();
                match parse_request_head(&input[used..], limits, &mut storage) {
                    // RFC 9110 §7.4: https targets are refused on unencrypted connections.
                    Ok(Some(head)) if !self.origin.secure && head.has_https_target() => {
                        self.refuse(turn, flatout_http::refusal::Refusal::TargetScheme, &input[used..]);
                    }
                    Ok(Some(head)) => {
                        used += head.head_bytes;
                        self.handle_head(turn, &head, used < input.len());
                    }
                    Ok(None) => {
                        self.machine.advance(ConnectionEvent::RequestBegins);
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
            self.machine.advance(ConnectionEvent::RequestWithoutBody);
            let offers = if turn.output.is_empty() { Offers::new() } else { Offers::new().behind() };
            match turn.worker.handler.handle(&self.request(head, &offers), turn.now) {
                Reply::Now(response) => self.answer_head(turn, head, response, exchange, None),
                Reply::Later(response) => {
                    let request = self.describe(turn.worker, head, exchange, response.log_facts());
                    self.wait(response, request, offers.taken_interims());
                }
            }
            return;
        }
        self.machine.advance(if head.expects_continue {
            ConnectionEvent::RequestExpectsContinue
        } else {
            ConnectionEvent::RequestWithBody
        });
        let offers = Offers::with_content(match head.framing {
            Framing::Length(length) => Some(length),
            _ => None,
        })
        .expecting_continue(head.expects_continue);
        let reply = turn.worker.handler.handle(&self.request(head, &offers), turn.now);
        let awaits_continue = head.expects_continue && !more_follows;
        let pace = Pace::new(&turn.worker.settings);
        let reply = match (reply, offers.writer()) {
            (Reply::Later(response), Some(writer)) => {
                if let Some(decoder) = BodyDecoder::new(head.framing, limits) {
                    self.intake = Some(Box::new(DecodedIntake::new(decoder, writer, pace, awaits_continue)));
                }
                let request = self.describe(turn.worker, head, exchange, response.log_facts());
                self.wait(response, request, offers.taken_interims());
                return;
            }
            (reply, _) => reply,
        };
        if matches!(head.framing, Framing::Length(length) if length > limits.body_bytes_max) {
            self.refuse_large(turn, head, exchange, &reply.log_facts());
            return;
        }
        let reply = match reply {
            Reply::Now(response) if awaits_continue && response.status >= 400 => {
                // RFC 9110 §10.1.1: after a final error response, the client does not send the content at all.
                self.answer_head(turn, head, response, exchange, Some(CloseReason::RefusedBody));
                return;
            }
            reply => reply,
        };
        if awaits_continue {
            turn.output.extend_from_slice(CONTINUE);
            self.machine.advance(ConnectionEvent::Interim);
        }
        let Some(decoder) = BodyDecoder::new(head.framing, limits) else { return };
        let request = self.describe(turn.worker, head, exchange, reply.log_facts());
        let interims = offers.taken_interims();
        self.receiving = Some(Box::new(Receiving { decoder, body_bytes: 0, pace, reply, request, interims }));
    }

    fn describe<H: Handler>(
        &self,
        worker: &Worker<H>,
        head: &RequestHead<'_>,
        exchange: Exchange,
        facts: LogFacts,
    ) -> ExchangeRecord {
        ExchangeRecord { exchange, description: worker.describe(self.peer(), Logged::Head(head)), facts }
    }

    /// Returns when the current request began: when the first bytes of its head arrived, or at `received_ns` if they
    /// arrived with the current input.
    pub(super) const fn take_started_ns(&mut self, received_ns: u64) -> u64 {
        match std::mem::replace(&mut self.began_ns, 0) {
            0 => received_ns,
            began_ns => began_ns,
        }
    }

    pub(super) const fn peer(&self) -> LoggedPeer {
        LoggedPeer { client: self.origin.client, secure: self.origin.secure }
    }

    const fn request<'a>(&self, head: &'a RequestHead<'a>, offers: &'a Offers) -> Request<'a> {
        let Peer { client, unix, listener, secure } = self.origin;
        Request { head, client, unix, secure, listener, offers }
    }

    /// Responds to a request whose head is still available.
    fn answer_head<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        head: &RequestHead<'_>,
        response: Response,
        exchange: Exchange,
        close: Option<CloseReason>,
    ) {
        if matches!(response.body, Body::Stream(_) | Body::Tunnel(_)) {
            let request = self.describe(turn.worker, head, exchange, response.logged.clone());
            self.answer_described(turn, response, request, close);
            return;
        }
        turn.worker.stage(self.peer(), Logged::Head(head), || exchange.logged(&response));
        self.answer(turn, response, exchange, close);
    }

    /// Responds to a request with a stored description for the log.
    pub(super) fn answer_described<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        mut response: Response,
        request: ExchangeRecord,
        close: Option<CloseReason>,
    ) {
        let exchange = request.exchange;
        match std::mem::replace(&mut response.body, Body::Empty) {
            // The source is dropped without being polled (RFC 9110 §9.3.2, §6.4.1).
            Body::Stream(_) if exchange.to_head || !has_content(response.status) => {}
            Body::Stream(source) => return self.begin_stream(turn, &response, source, request, close),
            Body::Tunnel(start) if self.may_tunnel(&response, exchange) => {
                return self.begin_tunnel(turn, &response, start, request);
            }
            Body::Tunnel(_) => response = refuse_tunnel(&turn.worker.handler, &response),
            body => response.body = body,
        }
        request.stage(turn.worker, &response);
        self.answer(turn, response, exchange, close);
    }

    /// Appends `response` to the output. It is the connection's last response if `close` is set or if either side
    /// cannot continue.
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

    /// Appends the head of `response` to the output, with the field line `framing`, and counts the response. Returns
    /// the transition at the end of the response.
    #[inline]
    pub(super) fn begin_answer<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        response: &Response,
        exchange: Exchange,
        close: Option<CloseReason>,
        framing: &'static [u8],
    ) -> ConnectionEvent {
        let worker = turn.worker;
        self.machine.advance(ConnectionEvent::ResponseBegins);
        let close = match close {
            Some(reason) => Some(reason),
            None if !exchange.persistent => Some(CloseReason::NotPersistent),
            None if worker.draining.get() => Some(CloseReason::Draining),
            None => None,
        };
        let option = match close {
            Some(_) => Some("close"),
            // RFC 9112 §9.3: an HTTP/1.0 client needs an explicit `keep-alive`.
            None if exchange.version == Version::Http10 => Some("keep-alive"),
            None => None,
        };
        response.head.append_framed_to(turn.output, &worker.clock.date(), response.extra_lines(), framing, option);
        if self.origin.secure {
            worker.announcements.insert_line(self.origin.listener, turn.output);
        }
        count_answer(worker, response);
        let Some(reason) = close else { return ConnectionEvent::ResponseEnds };
        self.closing = Some(reason);
        // A client that requested the close sends nothing more; any other client may be sending now.
        self.linger = reason != CloseReason::NotPersistent || exchange.persistent;
        ConnectionEvent::ResponseEndsLast
    }
}

#[inline]
pub(crate) fn count_answer<H: Handler>(worker: &Worker<H>, response: &Response) {
    worker.counters.requests.add(1);
    worker.counters.add_status(response.status);
    let index = response.outcome.index_in(H::OUTCOMES);
    if let Some(count) = index.and_then(|index| worker.counters.outcomes.get(index)) {
        count.add(1);
    }
}
