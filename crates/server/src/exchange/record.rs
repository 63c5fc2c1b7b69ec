//! Data of a request and its response, kept until the exchange ends and is logged.

use crate::worker::Worker;
use flatout_access_log::{Description, LoggedResponse};
use flatout_handler::Handler;
use flatout_handler::response::{LogFacts, Response};
use flatout_http::framing::Version;

/// Data of a request that the access log needs when the response is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) to_head: bool,
    pub(crate) persistent: bool,
    pub(crate) version: Version,
    pub(crate) started_ns: u64,
}

/// Data of a request together with its description for the log, for a response that is delayed, streamed, or not fully
/// sent.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeRecord {
    pub(crate) exchange: Exchange,
    /// `None` if the request is not logged.
    pub(crate) description: Option<Description>,
    /// The facts to log if the handler's response is never sent.
    pub(crate) facts: LogFacts,
}

impl Exchange {
    /// Returns the log data of `response` to this request.
    pub(crate) fn logged<'a>(&self, response: &'a Response) -> LoggedResponse<'a> {
        LoggedResponse {
            status: response.status,
            body_bytes: if self.to_head { 0 } else { response.body.len() },
            outcome: response.outcome.name(),
            started_ns: self.started_ns,
            facts: &response.logged,
        }
    }
}

impl ExchangeRecord {
    /// Stages the log line of this request and `response`.
    pub(crate) fn stage<H: Handler>(&self, worker: &Worker<H>, response: &Response) {
        worker.stage_described(self.description.as_ref(), || self.exchange.logged(response));
    }

    /// Stages the log line of this request and a response that did not come from the handler. A `status` of 0 means
    /// that there was no response.
    pub(crate) fn stage_without_response<H: Handler>(
        &self,
        worker: &Worker<H>,
        status: u16,
        body_bytes: u64,
        outcome: &'static str,
    ) {
        worker.stage_described(self.description.as_ref(), || {
            LoggedResponse::refused(status, outcome, body_bytes, self.exchange.started_ns).with_facts(&self.facts)
        });
    }
}

/// Data of a response that the access log needs when its content has been sent.
#[derive(Debug)]
pub(crate) struct ResponseOutline {
    status: u16,
    outcome: &'static str,
    facts: LogFacts,
}

impl ResponseOutline {
    pub(crate) fn new(response: &Response) -> Self {
        Self { status: response.status, outcome: response.outcome.name(), facts: response.logged.clone() }
    }

    /// Returns the log data of the response, of which `body_bytes` were sent.
    pub(crate) const fn logged(&self, body_bytes: u64, started_ns: u64) -> LoggedResponse<'_> {
        LoggedResponse { status: self.status, body_bytes, outcome: self.outcome, started_ns, facts: &self.facts }
    }
}
