//! What a site is to this crate: something that turns a request into a response.

use crate::clock::Now;
use crate::content::Offers;
use crate::response::Response;
use flatout_http::request::RequestHead;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A request, as far as a handler needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its head.
    pub head: &'a RequestHead<'a>,
    /// Who asks; `None` when the kernel would not say.
    pub client: Option<SocketAddr>,
    /// Whether it came over TLS.
    pub secure: bool,
    /// The listener it came by, as numbered in `WorkerParts::listeners`.
    pub listener: u32,
    /// Its content and the way back for interim answers, for whoever wants them.
    pub offers: &'a Offers,
}

/// A response that is being made, with what the log needs should the client not wait for it.
pub struct LaterResponse {
    future: Pin<Box<dyn Future<Output = Response>>>,
    source: LogSource,
}

impl LaterResponse {
    /// The response that `future` gives.
    pub fn new(future: impl Future<Output = Response> + 'static) -> Self {
        Self { future: Box::pin(future), source: LogSource::default() }
    }

    /// The same response, from a site whose access log has this index.
    #[must_use]
    pub fn of_site(mut self, log: u8, site: Option<Rc<str>>) -> Self {
        self.source = LogSource { log, site };
        self
    }

    pub(crate) fn log_source(&self) -> LogSource {
        self.source.clone()
    }
}

impl Future for LaterResponse {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        self.get_mut().future.as_mut().poll(context)
    }
}

/// The access log of a request and the site it reached, where they are known before its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogSource {
    pub(crate) log: u8,
    pub(crate) site: Option<Rc<str>>,
}

impl LogSource {
    pub(crate) fn of(response: &Response) -> Self {
        Self { log: response.log, site: response.site.clone() }
    }
}

/// What a handler has to say at once.
pub enum Reply {
    /// The answer.
    Now(Response),
    /// The answer comes when this future is ready. Its maker bounds how long that may take. Of an HTTP/1.1 connection,
    /// only content that was taken is read meanwhile; when the connection is reset or ends, the future is dropped.
    Later(LaterResponse),
}

impl Reply {
    /// A reply that comes later.
    pub fn later(future: impl Future<Output = Response> + 'static) -> Self {
        Self::Later(LaterResponse::new(future))
    }

    /// What the log says of the site if this response is never sent.
    pub(crate) fn log_source(&self) -> LogSource {
        match self {
            Self::Now(response) => LogSource::of(response),
            Self::Later(response) => response.log_source(),
        }
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Self {
        Self::Now(response)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(response) => formatter.debug_tuple("Now").field(response).finish(),
            Self::Later(_) => formatter.write_str("Later"),
        }
    }
}

/// Answers requests. One lives on each worker and is never shared between threads.
pub trait Handler: 'static {
    /// The names of all outcomes an answer may have, at most `counters::OUTCOMES_MAX`; `Response::outcome` is an index
    /// into it.
    const OUTCOMES: &'static [&'static str];

    /// Called once, within the worker's runtime, before the first request: the moment for tasks of its own.
    fn begin(&self) {}

    /// Answers `request`. It must not block for longer than a file look-up takes: every connection of the worker waits
    /// meanwhile. What takes longer is a [`Reply::Later`].
    fn handle(&self, request: &Request<'_>, now: Now) -> Reply;

    /// The answer to a request that was refused, or whose sender was too slow, with `status` and one sentence.
    fn handle_error(&self, status: u16, text: &'static str) -> Response {
        crate::page::error_response(status, text)
    }
}
