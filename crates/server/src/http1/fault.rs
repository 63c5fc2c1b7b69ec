//! Requests without the handler's response: refused, too slow, or cut by the end of their connection.

use super::exchanges::{Exchanges, Turn};
use crate::exchange::record::{Exchange, ExchangeRecord};
use crate::worker::Worker;
use flatout_access_log::{Logged, LoggedResponse};
use flatout_handler::ending::CloseReason;
use flatout_handler::response::Body;
use flatout_handler::{Handler, LogSource};
use flatout_http::connection::ConnectionEvent;
use flatout_http::refusal::Refusal;
use flatout_http::request::RequestHead;

impl Exchanges {
    /// Refuses the request being received: `raw` if no head was parsed, else the body of the current request.
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

    /// Refuses a request to the site of `source`: its head announces more content than the server discards.
    pub(super) fn refuse_large<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        head: &RequestHead<'_>,
        at: Exchange,
        source: &LogSource,
    ) {
        let refusal = Refusal::BodyTooLarge;
        let failed = self.fail(turn.worker, turn.output, RequestFault::refused(refusal, at.to_head));
        turn.worker.counters.refusals[refusal as usize].add(1);
        let logged = || failed.logged(refusal.name(), at.started_ns).with_source(source);
        turn.worker.stage(self.peer(), Logged::Head(head), logged);
    }

    /// The request whose content or response was pending.
    fn take_unanswered(&mut self) -> Option<ExchangeRecord> {
        let receiving = self.receiving.take().map(|receiving| receiving.request);
        receiving.or_else(|| self.awaiting.take().map(|pending| pending.record))
    }

    /// Sends the one error response that may end a connection. Returns its logged data.
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
        Failed { log: response.log, status: fault.status, body_bytes }
    }

    /// Handles an incomplete head or body that timed out: 408 into `output`, for a connection that has sent `raw`.
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

    /// The connection is closed for `reason`, with `unsent_bytes` of output left: logs the request without complete
    /// response.
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

/// The error response that ended a connection.
#[derive(Clone, Copy, Debug)]
struct Failed {
    log: u8,
    status: u16,
    body_bytes: u64,
}

impl Failed {
    const fn logged(self, outcome: &'static str, started_ns: u64) -> LoggedResponse<'static> {
        LoggedResponse::refused(self.log, self.status, outcome, self.body_bytes, started_ns)
    }

    fn stage<H: Handler>(self, worker: &Worker<H>, request: &ExchangeRecord, outcome: &'static str) {
        request.stage_without_response(worker, self.status, self.body_bytes, outcome);
    }
}

/// Why and how a connection ends with an error response.
#[derive(Clone, Copy, Debug)]
struct RequestFault {
    status: u16,
    text: &'static str,
    reason: CloseReason,
    /// True for HEAD, whose response has no content (RFC 9110 §9.3.2).
    to_head: bool,
}

impl RequestFault {
    const fn refused(refusal: Refusal, to_head: bool) -> Self {
        Self { status: refusal.status(), text: refusal.text(), reason: CloseReason::Refused, to_head }
    }
}

/// Returns whether the current request is a HEAD, as far as that is known of an unparsed one.
fn asked_by_head(request: Option<&ExchangeRecord>, raw: &[u8]) -> bool {
    match request {
        Some(request) => request.exchange.to_head,
        None => raw.strip_prefix(b"\r\n").unwrap_or(raw).starts_with(b"HEAD "),
    }
}
