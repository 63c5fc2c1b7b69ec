//! Responding to the requests of one connection.

use super::body::SendBody;
use super::exchange::{describe_refused, early_head_of, head_of, is_head, with_head};
use super::intake::{Intake, IntakeTimeouts};
use super::stream::{Awaiting, Http2Exchange, Receiving, ServerStream, StreamProgress, StreamSending};
use super::streaming::Streaming;
use super::task::{Http2Task, STREAM_RESET};
use crate::access::{Logged, LoggedPeer, LoggedResponse};
use crate::content::{Interims, Offers};
use crate::handler::{Handler, LogSource, Reply, Request};
use crate::response::{Body, Response, Segment};
use crate::server::exchanges::{Peer, count_answer};
use crate::server::streaming::Outlined;
use crate::server::tunnel::refuse_tunnel;
use crate::stream::Stream as Source;
use crate::windows::WindowReader;
use flatout_http::framing::Framing;
use flatout_http::media::is_grpc;
use flatout_http::refusal::Refusal;
use flatout_http::request::Method;
use flatout_http::status::has_content;
use h2::RecvStream;
use h2::server::SendResponse;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Context;

impl<H: Handler> Http2Task<H> {
    /// Responds to a request, or stores it until its response is ready.
    pub(super) fn handle_request(
        &mut self,
        request: http::Request<RecvStream>,
        mut respond: SendResponse<SendBody>,
        context: &mut Context<'_>,
    ) {
        let worker = Rc::clone(&self.worker);
        let (parts, content) = request.into_parts();
        let whole = content.is_end_stream();
        let (now, started_ns) = (worker.clock.latest(), worker.logged_ns());
        self.since_ms = now.monotonic_ms;
        let Some(windows) = self.windows.clone() else { return };
        let Peer { client, listener, secure } = self.origin;
        let peer = self.peer();
        with_head(&parts, whole, &worker.settings.limits, |head| {
            let head = match head {
                Ok(head) => head,
                Err(refusal) => {
                    let to_head = parts.method == http::Method::HEAD;
                    let source = LogSource::default();
                    let exchange = Http2Exchange { to_head, started_ns, description: None, source };
                    let raw = describe_refused(&parts);
                    self.refuse(respond, refusal, &exchange, Some(&raw), Some(content));
                    return;
                }
            };
            let offers = match head.framing {
                // The stream may have been reset already.
                _ if whole => Offers::new().behind(),
                Framing::Length(length) => Offers::with_content(Some(length)),
                _ => Offers::with_content(None),
            };
            let reply = worker.handler.handle(&Request { head, client, secure, listener, offers: &offers }, now);
            let logged = Logged::Head(head);
            let source = LogSource::default();
            let mut exchange = Http2Exchange { to_head: is_head(head), started_ns, description: None, source };
            let (reply, intake) = match (reply, offers.writer()) {
                (Reply::Later(later), Some(writer)) => {
                    let may_rest = head.fields.first("content-type").is_some_and(is_grpc);
                    let intake = Intake::new(content, writer, windows.reader(), may_rest);
                    (Reply::Later(later), Some(Box::new(intake)))
                }
                (Reply::Now(response), _) if whole && !matches!(response.body, Body::Stream(_) | Body::Tunnel(_)) => {
                    worker.stage(peer, logged, || log_answer(&response, &exchange));
                    self.answer(respond, response, exchange.to_head, None, context);
                    return;
                }
                (reply, _) => {
                    exchange.description = worker.describe(peer, logged);
                    exchange.source = reply.log_source();
                    let large = worker.settings.limits.body_bytes_max;
                    let is_large = !whole && matches!(head.framing, Framing::Length(length) if length > large);
                    let reply = match reply {
                        // RFC 9110 §9.3.6: CONNECT has no content, so its end is not awaited. And a client that may
                        // not use CONNECT gets that reason, rather than that its content is too large.
                        Reply::Now(response)
                            if !whole
                                && (head.method == Method::Connect
                                    || is_large && matches!(response.status, 401 | 403)) =>
                        {
                            let rest = Some(UnreadContent::Unwanted(content));
                            self.answer_described(respond, response, exchange, rest, context);
                            return;
                        }
                        reply => reply,
                    };
                    if is_large {
                        self.refuse(respond, Refusal::BodyTooLarge, &exchange, None, Some(content));
                        return;
                    }
                    let expects_continue = head.expects_continue && !whole;
                    self.wait(
                        respond,
                        (content, windows.reader()),
                        (reply, offers.taken_interims()),
                        exchange,
                        (whole, expects_continue),
                        context,
                    );
                    return;
                }
            };
            let Reply::Later(response) = reply else { return };
            exchange.source = response.log_source();
            exchange.description = worker.describe(peer, logged);
            if head.expects_continue {
                send_continue(&mut respond);
            }
            let interims = offers.taken_interims();
            self.streams.push(ServerStream::Awaiting(Box::new(Awaiting {
                respond,
                response,
                exchange,
                interims,
                intake,
            })));
        });
    }

    /// Stores a request whose content or response is pending.
    fn wait(
        &mut self,
        mut respond: SendResponse<SendBody>,
        (content, windows): (RecvStream, WindowReader),
        (reply, interims): (Reply, Option<Interims>),
        exchange: Http2Exchange,
        (whole, expects_continue): (bool, bool),
        context: &mut Context<'_>,
    ) {
        if expects_continue {
            match reply {
                Reply::Now(response) if response.status >= 400 => {
                    // RFC 9110 §10.1.1: the final status makes the client not send the content at all.
                    self.answer_described(respond, response, exchange, Some(UnreadContent::Unwanted(content)), context);
                    return;
                }
                _ => send_continue(&mut respond),
            }
        }
        let stream = match reply {
            Reply::Now(response) if whole => {
                self.answer_described(respond, response, exchange, None, context);
                return;
            }
            Reply::Later(response) if whole => {
                ServerStream::Awaiting(Box::new(Awaiting { respond, response, exchange, interims, intake: None }))
            }
            reply => {
                let deadline_ms = self.now_ms().saturating_add(self.worker.settings.timeouts.body_timeout_ms);
                let received_bytes = 0;
                ServerStream::Receiving(Box::new(Receiving {
                    content,
                    windows,
                    respond,
                    reply,
                    interims,
                    exchange,
                    received_bytes,
                    deadline_ms,
                }))
            }
        };
        self.streams.push(stream);
    }

    fn peer(&self) -> LoggedPeer {
        LoggedPeer { client: self.origin.client, secure: self.origin.secure }
    }

    /// Responds to a request with a stored log description. The rest of its content is not read, unless the response
    /// is streamed.
    pub(super) fn answer_described(
        &mut self,
        respond: SendResponse<SendBody>,
        mut response: Response,
        exchange: Http2Exchange,
        rest: Option<UnreadContent>,
        context: &mut Context<'_>,
    ) {
        match std::mem::replace(&mut response.body, Body::Empty) {
            // The source is dropped unpolled (RFC 9110 §9.3.2, §6.4.1).
            Body::Stream(_) if exchange.to_head || !has_content(response.status) => {}
            Body::Stream(source) => return self.begin_stream(respond, &response, source, exchange, rest, context),
            Body::Tunnel(_) => response = refuse_tunnel(&self.worker.handler, &response),
            body => response.body = body,
        }
        self.worker.stage_described(exchange.description.as_ref(), || log_answer(&response, &exchange));
        self.answer(respond, response, exchange.to_head, rest.map(UnreadContent::into_content), context);
    }

    /// Starts a streamed response.
    fn begin_stream(
        &mut self,
        mut respond: SendResponse<SendBody>,
        response: &Response,
        source: Source,
        exchange: Http2Exchange,
        rest: Option<UnreadContent>,
        context: &mut Context<'_>,
    ) {
        let worker = Rc::clone(&self.worker);
        count_answer(&worker, response);
        let outlined = Outlined::new(response);
        let Ok(stream) = respond.send_response(head_of(response, worker.http2_date()), false) else {
            worker.counters.http2_streams_cut.add(1);
            worker.stage_described(exchange.description.as_ref(), || outlined.answer(0, exchange.started_ns));
            worker.commit(STREAM_RESET);
            return;
        };
        let intake = match rest {
            Some(UnreadContent::Intake(intake)) => Some(intake),
            Some(UnreadContent::Unwanted(content)) => {
                self.linger(content);
                None
            }
            None => None,
        };
        let streaming = Streaming::new(stream, source, exchange, outlined, &self.endings, intake);
        let timeouts = IntakeTimeouts::new(self.now_ms(), &worker.settings.timeouts);
        // Immediately, so that the head shares a packet with the first content.
        match Box::new(streaming).go_on(timeouts, context) {
            StreamProgress::Wait(stream) | StreamProgress::Sent(stream) => self.streams.push(stream),
            StreamProgress::Ended(streaming, ended) => self.end_streaming(streaming, ended),
            _ => {}
        }
    }

    /// Sends `response`, whose log line is staged.
    fn answer(
        &mut self,
        respond: SendResponse<SendBody>,
        response: Response,
        to_head: bool,
        rest: Option<RecvStream>,
        context: &mut Context<'_>,
    ) {
        let worker = Rc::clone(&self.worker);
        count_answer(&worker, &response);
        self.send(respond, response, to_head, rest, context);
    }

    fn send(
        &mut self,
        mut respond: SendResponse<SendBody>,
        response: Response,
        to_head: bool,
        rest: Option<RecvStream>,
        context: &mut Context<'_>,
    ) {
        let worker = Rc::clone(&self.worker);
        if let Some(early) = early_head_of(&response) {
            // Fails if the stream is gone, which the next call reports.
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
            self.linger_over(rest);
            return;
        }
        let staged = worker.take_staged(0);
        let segments: VecDeque<Segment> = match response.body {
            // A body in memory is handed to the protocol machine whatever its size: it is not copied.
            Body::Bytes(bytes) => {
                // Fails if the stream is gone; the dropped piece then reports it.
                let _ = stream.send_data(SendBody::shared(bytes, &self.endings).last(staged).holding(rest), true);
                return;
            }
            Body::File(file) => [Segment::File(file)].into(),
            Body::Segments(segments) => segments.into(),
            Body::Empty | Body::Stream(_) | Body::Tunnel(_) => return,
        };
        let remaining_bytes = segments.iter().map(Segment::len).sum();
        let endings = Rc::clone(&self.endings);
        let sending =
            ServerStream::Sending(Box::new(StreamSending { stream, segments, remaining_bytes, staged, rest, endings }));
        // Immediately, so that the head shares a packet with the first content.
        let timeouts = IntakeTimeouts::new(self.now_ms(), &worker.settings.timeouts);
        match sending.go_on(&worker.settings.limits, timeouts, context) {
            StreamProgress::Wait(stream) | StreamProgress::Sent(stream) => self.streams.push(stream),
            _ => {}
        }
    }

    /// Responds to a refused request; only its stream ends. `raw` is logged for one without a head.
    pub(super) fn refuse(
        &mut self,
        respond: SendResponse<SendBody>,
        refusal: Refusal,
        exchange: &Http2Exchange,
        raw: Option<&[u8]>,
        rest: Option<RecvStream>,
    ) {
        self.worker.counters.refusals[refusal as usize].add(1);
        self.answer_error(respond, (refusal.status(), refusal.text(), refusal.name()), exchange, raw, rest);
    }

    pub(super) fn answer_error(
        &mut self,
        mut respond: SendResponse<SendBody>,
        (status, text, name): (u16, &'static str, &'static str),
        exchange: &Http2Exchange,
        raw: Option<&[u8]>,
        rest: Option<RecvStream>,
    ) {
        let worker = Rc::clone(&self.worker);
        let response = worker.handler.handle_error(status, text);
        let body_bytes = if exchange.to_head { 0 } else { response.body.len() };
        let answer =
            || LoggedResponse::refused(0, status, name, body_bytes, exchange.started_ns).with_source(&exchange.source);
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
            Ok(mut stream) => {
                if let Some(bytes) = bytes {
                    let last = SendBody::shared(bytes, &self.endings).last(worker.take_staged(0)).holding(rest);
                    let _ = stream.send_data(last, true);
                } else {
                    worker.commit("sent");
                    self.linger_over(rest);
                }
            }
            Err(_) => worker.commit(STREAM_RESET),
        }
    }
}

/// The rest of a request's content when its response starts.
pub(super) enum UnreadContent {
    /// Read by its handler.
    Intake(Box<Intake>),
    /// Not read.
    Unwanted(RecvStream),
}

impl UnreadContent {
    fn into_content(self) -> RecvStream {
        match self {
            Self::Intake(intake) => intake.into_rest(),
            Self::Unwanted(content) => content,
        }
    }
}

/// Sends 100 (Continue), so that the client sends the content it has withheld.
fn send_continue(respond: &mut SendResponse<SendBody>) {
    let mut head = http::Response::new(());
    *head.status_mut() = http::StatusCode::CONTINUE;
    // Fails if the stream is gone, which the next poll of it reports.
    let _ = respond.send_informational(head);
}

/// The logged data of `response`.
fn log_answer<'a>(response: &'a Response, exchange: &Http2Exchange) -> LoggedResponse<'a> {
    LoggedResponse {
        log: response.log,
        status: response.status,
        body_bytes: if exchange.to_head { 0 } else { response.body.len() },
        outcome: response.outcome.name(),
        started_ns: exchange.started_ns,
        user: response.user.as_deref(),
        site: response.site.as_deref(),
        cache: response.cache,
    }
}
