//! Requests and their responses.

use super::content::StreamIntake;
use super::state::{PendingStream, Receiving, Sending, ServerStream, Streaming};
use super::{StreamTransport, Streams};
use crate::exchange::pace::Pace;
use crate::exchange::pending::PendingResponse;
use crate::exchange::record::{Exchange, ExchangeRecord};
use crate::exchange::streamed::StreamedResponse;
use crate::http1::exchanges::{Peer, count_answer};
use crate::http1::tunnel::refuse_tunnel;
use flatout_access_log::{Logged, LoggedPeer, LoggedResponse};
use flatout_handler::content::{Interims, Offers};
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Body, LogFacts, Response, Segment};
use flatout_handler::stream::Stream as Source;
use flatout_handler::{Handler, LaterResponse, Reply, Request};
use flatout_http::framing::Framing;
use flatout_http::head::FieldStorage;
use flatout_http::http2::error::StreamError;
use flatout_http::http2::fields::FieldBlock;
use flatout_http::media::is_grpc;
use flatout_http::refusal::Refusal;
use flatout_http::request::{Method, RequestHead};
use flatout_http::status::has_content;
use std::collections::VecDeque;
use std::rc::Rc;

impl<H: Handler, T: StreamTransport> Streams<H, T> {
    /// Responds to a request, or stores it until its response is ready.
    pub(crate) fn handle_request(&mut self, id: u64, ends: bool, fields: &FieldBlock) {
        let worker = Rc::clone(&self.worker);
        let started_ns = worker.logged_ns();
        self.since_ms = self.now_ms();
        let mut storage = FieldStorage::new();
        match fields.request_head(ends, &worker.settings.limits, &mut storage) {
            Ok(head) if fields.protocol().is_some() => self.handle_connect(id, &head, started_ns),
            Ok(head) => self.handle_head(id, ends, &head, started_ns),
            Err(refusal) => {
                let exchange = Self::exchange(fields.is_head(), started_ns);
                let record = ExchangeRecord { exchange, description: None, facts: LogFacts::default() };
                worker.counters.refusals[refusal as usize].add(1);
                let error = (refusal.status(), refusal.text(), refusal.name());
                self.respond_with_error(id, error, &record, Some(&fields.request_line()));
            }
        }
    }

    fn handle_head(&mut self, id: u64, ends: bool, head: &RequestHead<'_>, started_ns: u64) {
        let worker = Rc::clone(&self.worker);
        let Peer { client, unix, listener, secure } = self.peer;
        let offers = match head.framing {
            // The client may have reset the stream already.
            _ if ends => Offers::new().behind(),
            Framing::Length(length) => Offers::with_content(Some(length)),
            _ => Offers::with_content(None),
        };
        let offers = offers.expecting_continue(head.expects_continue);
        let request = Request { head, client, unix, secure, listener, offers: &offers };
        let reply = worker.handler.handle(&request, worker.clock.latest());
        let (logged, exchange) = (Logged::Head(head), Self::exchange(head.method == Method::Head, started_ns));
        let reply = match reply {
            Reply::Now(response) if ends && !matches!(response.body, Body::Stream(_) | Body::Tunnel(_)) => {
                worker.stage(self.logged_peer(), logged, || exchange.logged(&response));
                self.send(id, response, exchange.to_head);
                return;
            }
            reply => reply,
        };
        let description = worker.describe(self.logged_peer(), logged);
        let record = ExchangeRecord { exchange, description, facts: reply.log_facts() };
        if ends {
            match reply {
                Reply::Now(response) => self.respond(id, response, record, None),
                Reply::Later(response) => self.wait(id, response, offers.taken_interims(), record, None),
            }
            return;
        }
        let pace = Pace::new(&worker.settings);
        let reply = match (reply, offers.writer()) {
            (Reply::Later(response), Some(writer)) => {
                let may_rest = head.fields.first("content-type").is_some_and(is_grpc);
                let intake = StreamIntake::new(writer, pace, may_rest, head.expects_continue);
                self.wait(id, response, offers.taken_interims(), record, Some(intake));
                return;
            }
            (reply, _) => reply,
        };
        let body_bytes_max = worker.settings.limits.body_bytes_max;
        let is_large = matches!(head.framing, Framing::Length(length) if length > body_bytes_max);
        let reply = match reply {
            // RFC 9110 §9.3.6: CONNECT has no content, so the end of the content is not awaited. A client that may not
            // use a resource gets that error instead of one about the size of its content. A final error response also makes a
            // client that waits for 100 (Continue) withhold its content (§10.1.1).
            Reply::Now(response)
                if head.method == Method::Connect
                    || is_large && matches!(response.status, 401 | 403)
                    || !is_large && head.expects_continue && response.status >= 400 =>
            {
                self.respond(id, response, record, None);
                return;
            }
            reply => reply,
        };
        if is_large {
            self.refuse(id, Refusal::BodyTooLarge, &record);
            return;
        }
        if head.expects_continue {
            self.send_interim(id, 100, b"");
        }
        let deadline_ms = self.now_ms().saturating_add(worker.settings.timeouts.body_timeout_ms);
        let interims = offers.taken_interims();
        let receiving = Receiving { reply, interims, record, received_bytes: 0, pace, deadline_ms };
        self.set(id, ServerStream::Receiving(Box::new(receiving)));
    }

    /// Stores a request whose response is pending.
    pub(super) fn wait(
        &mut self,
        id: u64,
        response: LaterResponse,
        interims: Option<Interims>,
        record: ExchangeRecord,
        intake: Option<StreamIntake>,
    ) {
        let response = PendingResponse::new(response, interims, record);
        self.set(id, ServerStream::Pending(Box::new(PendingStream { response, intake, tunnel: None })));
    }

    pub(super) const fn logged_peer(&self) -> LoggedPeer {
        LoggedPeer { client: self.peer.client, secure: self.peer.secure }
    }

    /// Responds to a request with a stored description for the log. The rest of its content is not read, unless the
    /// response is streamed and its handler reads from `intake`.
    pub(super) fn respond(
        &mut self,
        id: u64,
        mut response: Response,
        record: ExchangeRecord,
        intake: Option<StreamIntake>,
    ) {
        let is_stream = matches!(response.body, Body::Stream(_)) && !record.exchange.to_head;
        if is_stream && has_content(response.status) && intake.as_ref().is_some_and(StreamIntake::owes_continue) {
            // A final response would make the client withhold content that the handler may still read.
            self.send_interim(id, 100, b"");
        }
        match std::mem::replace(&mut response.body, Body::Empty) {
            // The source is dropped without being polled (RFC 9110 §9.3.2, §6.4.1).
            Body::Stream(_) if record.exchange.to_head || !has_content(response.status) => {}
            Body::Stream(source) => return self.begin_stream(id, &response, source, record, intake),
            Body::Tunnel(_) => response = refuse_tunnel(&self.worker.handler, &response),
            body => response.body = body,
        }
        record.stage(&self.worker, &response);
        self.send(id, response, record.exchange.to_head);
    }

    /// Starts a streamed response.
    fn begin_stream(
        &mut self,
        id: u64,
        response: &Response,
        source: Source,
        record: ExchangeRecord,
        intake: Option<StreamIntake>,
    ) {
        count_answer(&self.worker, response);
        self.send_head(id, response, false);
        let response = StreamedResponse::new(source, true, record, response);
        let streaming = Streaming { response, segment: None, ended: None, intake, moved_ms: self.now_ms() };
        self.set(id, ServerStream::Streaming(Box::new(streaming)));
    }

    /// Counts and sends `response`, whose log line is already staged.
    fn send(&mut self, id: u64, response: Response, to_head: bool) {
        count_answer(&self.worker, &response);
        self.send_counted(id, response, to_head);
    }

    fn send_counted(&mut self, id: u64, response: Response, to_head: bool) {
        if let Some(links) = response.early_links.as_ref().filter(|links| !links.is_empty()) {
            // RFC 8297.
            self.transport.send_fields(id, false, |output| {
                T::encode_status(103, output);
                for link in links.iter() {
                    T::encode_field(b"link", link.as_bytes(), output);
                }
            });
        }
        let is_empty = to_head || response.body.is_empty();
        if is_empty {
            self.send_head(id, &response, true);
            self.worker.commit("sent");
            self.finish(id);
            return;
        }
        self.send_head(id, &response, false);
        let segments: VecDeque<Segment> = match response.body {
            Body::Bytes(mut bytes) => {
                let sent = self.transport.send_bytes(id, &bytes, true);
                self.content_bytes += sent as u64;
                if sent == bytes.len() {
                    self.worker.commit("sent");
                    self.finish(id);
                    return;
                }
                bytes.advance(sent);
                [Segment::Bytes(bytes)].into()
            }
            Body::File(file) => [Segment::File(file)].into(),
            Body::Segments(segments) => segments.into(),
            Body::Empty | Body::Stream(_) | Body::Tunnel(_) => return,
        };
        let remaining_bytes = segments.iter().map(Segment::len).sum();
        let staged = self.worker.take_staged(0);
        let moved_ms = self.now_ms();
        self.set(id, ServerStream::Sending(Box::new(Sending { segments, remaining_bytes, staged, moved_ms })));
        self.send_frame(id);
    }

    /// Sends the head of `response`.
    pub(super) fn send_head(&mut self, id: u64, response: &Response, ends: bool) {
        let worker = &self.worker;
        let Peer { secure, listener, .. } = self.peer;
        self.transport.send_fields(id, ends, |output| {
            output.extend_from_slice(&T::head_block(&response.head));
            let has_own_date = response.head.has_own_date();
            if !has_own_date {
                T::append_date(worker, output);
            }
            if T::ANNOUNCES_HTTP3 && secure {
                worker.announcements.append_block(listener, output);
            }
            // A Date among the additional lines would be a second Date.
            T::encode_lines(response.extra_lines(), Some("date"), output);
        });
    }

    /// Sends an interim response.
    pub(super) fn send_interim(&mut self, id: u64, status: u16, lines: &[u8]) {
        self.transport.send_fields(id, false, |output| {
            T::encode_status(status, output);
            T::encode_lines(lines, None, output);
        });
    }

    /// Responds to a refused request. The connection continues.
    pub(super) fn refuse(&mut self, id: u64, refusal: Refusal, record: &ExchangeRecord) {
        self.worker.counters.refusals[refusal as usize].add(1);
        self.respond_with_error(id, (refusal.status(), refusal.text(), refusal.name()), record, None);
    }

    /// Responds with an error. `raw` is logged if the request has no valid head.
    pub(super) fn respond_with_error(
        &mut self,
        id: u64,
        (status, text, name): (u16, &'static str, &'static str),
        record: &ExchangeRecord,
        raw: Option<&[u8]>,
    ) {
        let worker = Rc::clone(&self.worker);
        let response = worker.handler.handle_error(status, text);
        let body_bytes = if record.exchange.to_head { 0 } else { response.body.len() };
        match raw {
            Some(raw) => worker.stage(self.logged_peer(), Logged::Raw(raw), || {
                LoggedResponse::refused(status, name, body_bytes, record.exchange.started_ns)
            }),
            None => record.stage_without_response(&worker, status, body_bytes, name),
        }
        worker.counters.requests.add(1);
        worker.counters.add_status(status);
        self.send_counted(id, response, record.exchange.to_head);
    }

    /// Counts and logs a request whose stream was reset because of an `error` of the client.
    pub(crate) fn handle_rejected(&self, error: StreamError, fields: &FieldBlock) {
        self.worker.counters.stream_errors[error as usize].add(1);
        T::streams_cut(&self.worker.counters).add(1);
        self.log_fault(&fields.request_line(), (error.name(), error.name()));
    }

    /// Logs the violation because of which the connection closes.
    pub(crate) fn log_violation(&self, name: &'static str, reason: CloseReason) {
        self.log_fault(b"", (name, reason.name()));
    }

    /// Logs an error of the client that gets no response.
    pub(super) fn log_fault(&self, raw: &[u8], (outcome, ending): (&'static str, &'static str)) {
        let started_ns = self.worker.logged_ns();
        self.worker.stage(self.logged_peer(), Logged::Raw(raw), || LoggedResponse::refused(0, outcome, 0, started_ns));
        self.worker.commit(ending);
    }

    /// Logs a request that got no response because its stream was reset or its connection closed.
    pub(super) fn log_unanswered(&self, record: &ExchangeRecord, name: &'static str) {
        record.stage_without_response(&self.worker, 0, 0, self.unanswered_outcome(name));
        T::streams_cut(&self.worker.counters).add(1);
        self.worker.commit(name);
    }

    /// Logs the request of a stream that was aborted.
    pub(crate) fn log_cut(&self, stream: ServerStream, name: &'static str) {
        match stream {
            ServerStream::Idle => {}
            ServerStream::Receiving(receiving) => self.log_unanswered(&receiving.record, name),
            ServerStream::Pending(pending) => self.log_unanswered(&pending.response.record, name),
            ServerStream::Sending(sending) => {
                T::streams_cut(&self.worker.counters).add(1);
                self.worker.commit_staged(&sending.staged, name);
            }
            ServerStream::Streaming(streaming) => {
                T::streams_cut(&self.worker.counters).add(1);
                self.log_streamed(&streaming.response, name);
            }
            ServerStream::Tunnel(tunnel) => {
                T::streams_cut(&self.worker.counters).add(1);
                tunnel.log(&self.worker, name);
            }
        }
    }

    /// Logs a streamed response that has ended.
    pub(super) fn log_streamed(&self, response: &StreamedResponse, name: &'static str) {
        response.stage(&self.worker, 0);
        self.worker.commit(name);
    }

    /// Returns the data of a request, whose connection persists after any response.
    pub(super) const fn exchange(to_head: bool, started_ns: u64) -> Exchange {
        Exchange { to_head, persistent: true, version: T::VERSION, started_ns }
    }
}
