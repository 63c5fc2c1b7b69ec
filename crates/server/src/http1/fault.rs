//! Requests without a response from the handler: refused, too slow, or ended by the close of their connection.

use super::exchanges::{Exchanges, Turn};
use crate::exchange::record::{Exchange, ExchangeRecord};
use crate::worker::Worker;
use flatout_access_log::{Logged, LoggedResponse};
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Body, LogFacts};
use flatout_http::connection::ConnectionEvent;
use flatout_http::refusal::Refusal;
use flatout_http::request::RequestHead;

impl Exchanges {
    /// Refuses the request being received. `raw` is the received data if no head could be parsed, and empty if the
    /// content of the current request is refused.
    pub(crate) fn refuse<H: Handler>(&mut self, turn: &mut Turn<'_, H>, refusal: Refusal, raw: &[u8]) {
        let request = self.take_unanswered();
        let started_ns = match &request {
            Some(request) => request.exchange.started_ns,
            None => self.take_started_ns(turn.started_ns),
        };
        let fault = RequestFault::refused(refusal, asked_by_head(request.as_ref(), raw));
        let failed = self.fail(turn.worker, turn.output, fault);
        turn.worker.counters.refusals[refusal as usize].add(1);
        match request {
            Some(request) => failed.stage(turn.worker, &request, refusal.name()),
            None => turn.worker.stage(self.peer(), Logged::Raw(raw), || failed.logged(refusal.name(), started_ns)),
        }
    }

    /// Refuses a request whose head announces more content than the server discards. `facts` are facts for the log.
    pub(super) fn refuse_large<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        head: &RequestHead<'_>,
        at: Exchange,
        facts: &LogFacts,
    ) {
        let refusal = Refusal::BodyTooLarge;
        let failed = self.fail(turn.worker, turn.output, RequestFault::refused(refusal, at.to_head));
        turn.worker.counters.refusals[refusal as usize].add(1);
        let logged = || failed.logged(refusal.name(), at.started_ns).with_facts(facts);
        turn.worker.stage(self.peer(), Logged::Head(head), logged);
    }

    /// Takes the request whose content is being discarded or whose response is pending.
    fn take_unanswered(&mut self) -> Option<ExchangeRecord> {
        let receiving = self.receiving.take().map(|receiving| receiving.request);
        receiving.or_else(|| self.awaiting.take().map(|pending| pending.record))
    }

    /// Appends the error response after which the connection closes. Returns its log data.
    fn fail<H: Handler>(&mut self, worker: &Worker<H>, output: &mut Vec<u8>, fault: RequestFault) -> Failed {
        self.machine.advance(ConnectionEvent::Fault);
        let response = worker.handler.handle_error(fault.status, fault.text);
        response.head.append_to(output, &worker.clock.date(), response.extra_lines(), Some("close"));
        worker.counters.requests.add(1);
        worker.counters.add_status(fault.status);
        self.cut_content(fault.reason);
        self.closing = Some(fault.reason);
        self.linger = true;
        let body_bytes = match &response.body {
            Body::Bytes(bytes) if !fault.to_head => {
                output.extend_from_slice(bytes);
                bytes.len() as u64
            }
            _ => 0,
        };
        Failed { status: fault.status, body_bytes }
    }

    /// Appends a 408 response to `output` because a head or body was not complete in time. `raw` is the received part
    /// of the head.
    pub(crate) fn handle_slow<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        output: &mut Vec<u8>,
        raw: &[u8],
        reason: CloseReason,
    ) {
        let request = self.take_unanswered();
        let started_ns = match &request {
            Some(request) => request.exchange.started_ns,
            None => self.take_started_ns(worker.logged_ns()),
        };
        let to_head = asked_by_head(request.as_ref(), raw);
        let fault = RequestFault { status: 408, text: "The request was not complete in time.", reason, to_head };
        let failed = self.fail(worker, output, fault);
        match request {
            Some(request) => failed.stage(worker, &request, reason.name()),
            None => worker.stage(self.peer(), Logged::Raw(raw), || failed.logged(reason.name(), started_ns)),
        }
    }

    /// Handles the close of the connection for `reason`: logs the request that did not get a complete response.
    /// `unsent_bytes` is the number of output bytes that were not sent.
    pub(crate) fn handle_close<H: Handler>(&mut self, worker: &Worker<H>, reason: CloseReason, unsent_bytes: u64) {
        self.cut_content(reason);
        if let Some(streaming) = self.streaming.take() {
            streaming.response.stage(worker, unsent_bytes);
            worker.commit(reason.name());
        }
        let unanswered = self.take_unanswered().or_else(|| self.tunnel.take().map(|tunnel| tunnel.request));
        if let Some(request) = unanswered {
            request.stage_without_response(worker, 0, 0, reason.unanswered_outcome());
            worker.commit(reason.name());
        }
        self.machine.advance(ConnectionEvent::Close);
        worker.counters.closes[reason as usize].add(1);
    }
}

/// Log data of the error response after which a connection closes.
#[derive(Clone, Copy, Debug)]
struct Failed {
    status: u16,
    body_bytes: u64,
}

impl Failed {
    const fn logged(self, outcome: &'static str, started_ns: u64) -> LoggedResponse<'static> {
        LoggedResponse::refused(self.status, outcome, self.body_bytes, started_ns)
    }

    fn stage<H: Handler>(self, worker: &Worker<H>, request: &ExchangeRecord, outcome: &'static str) {
        request.stage_without_response(worker, self.status, self.body_bytes, outcome);
    }
}

/// The error response after which a connection closes, and the reason for closing it.
#[derive(Clone, Copy, Debug)]
struct RequestFault {
    status: u16,
    text: &'static str,
    reason: CloseReason,
    /// True if the request method is HEAD, whose response has no content (RFC 9110 §9.3.2).
    to_head: bool,
}

impl RequestFault {
    const fn refused(refusal: Refusal, to_head: bool) -> Self {
        Self { status: refusal.status(), text: refusal.text(), reason: CloseReason::Refused, to_head }
    }
}

/// Returns whether the method of the current request is HEAD, as far as that is known for an unparsed request.
fn asked_by_head(request: Option<&ExchangeRecord>, raw: &[u8]) -> bool {
    match request {
        Some(request) => request.exchange.to_head,
        None => raw.strip_prefix(b"\r\n").unwrap_or(raw).starts_with(b"HEAD "),
    }
}
