//! The logged data of an exchange, retained until it has ended.

use crate::worker::Worker;
use flatout_access_log::{Description, LoggedResponse};
use flatout_handler::response::Response;
use flatout_handler::{Handler, LogSource};
use flatout_http::framing::Version;
use std::rc::Rc;

/// The data of a request retained until its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) to_head: bool,
    pub(crate) persistent: bool,
    pub(crate) version: Version,
    pub(crate) started_ns: u64,
}

/// The same with the request's log description, for a response that is delayed, streamed, or not fully sent.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeRecord {
    pub(crate) exchange: Exchange,
    /// `None` if nothing is logged.
    pub(crate) description: Option<Description>,
    /// The log and site to record if the handler's response is never sent.
    pub(crate) source: LogSource,
}

impl Exchange {
    /// The logged data of `response` to this request.
    pub(crate) fn logged<'a>(&self, response: &'a Response) -> LoggedResponse<'a> {
        LoggedResponse {
            log: response.log,
            status: response.status,
            body_bytes: if self.to_head { 0 } else { response.body.len() },
            outcome: response.outcome.name(),
            started_ns: self.started_ns,
            user: response.user.as_deref(),
            site: response.site.as_deref(),
            cache: response.cache,
        }
    }
}

impl ExchangeRecord {
    /// Stages the log line of this request with `response`.
    pub(crate) fn stage<H: Handler>(&self, worker: &Worker<H>, response: &Response) {
        worker.stage_described(self.description.as_ref(), || self.exchange.logged(response));
    }

    /// Stages the line of this request with a response that is not the handler's; a `status` of 0 is none.
    pub(crate) fn stage_without_response<H: Handler>(
        &self,
        worker: &Worker<H>,
        status: u16,
        body_bytes: u64,
        outcome: &'static str,
    ) {
        worker.stage_described(self.description.as_ref(), || {
            LoggedResponse::refused(0, status, outcome, body_bytes, self.exchange.started_ns).with_source(&self.source)
        });
    }
}

/// The logged data of a response, retained until it has ended.
#[derive(Debug)]
pub(crate) struct ResponseOutline {
    log: u8,
    status: u16,
    outcome: &'static str,
    user: Option<Rc<str>>,
    site: Option<Rc<str>>,
    cache: Option<&'static str>,
}

impl ResponseOutline {
    pub(crate) fn new(response: &Response) -> Self {
        Self {
            log: response.log,
            status: response.status,
            outcome: response.outcome.name(),
            user: response.user.clone(),
            site: response.site.clone(),
            cache: response.cache,
        }
    }

    /// The log's view of the response, of which `body_bytes` were sent.
    pub(crate) fn logged(&self, body_bytes: u64, started_ns: u64) -> LoggedResponse<'_> {
        LoggedResponse {
            log: self.log,
            status: self.status,
            body_bytes,
            outcome: self.outcome,
            started_ns,
            user: self.user.as_deref(),
            site: self.site.as_deref(),
            cache: self.cache,
        }
    }
}
