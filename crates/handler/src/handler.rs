//! The interface of a site: a handler turns a request into a response.

use crate::content::Offers;
use crate::response::Response;
use crate::routed::{HeaderPolicy, Refusal};
use flatout_http::request::RequestHead;
use flatout_os::clock::Now;
use flatout_reason::{Outcome, Table};
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Upper bound of the number of outcomes; see [`Handler::OUTCOMES`].
pub const OUTCOMES_MAX: usize = 192;

/// A request as a handler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its head.
    pub head: &'a RequestHead<'a>,
    /// The client's address; `None` if the kernel does not report it.
    pub client: Option<SocketAddr>,
    /// True if it came over TLS.
    pub secure: bool,
    /// The listener that accepted it, as numbered in `WorkerParts::listeners`.
    pub listener: u32,
    /// Its content and the channel for interim responses, for handlers that use them.
    pub offers: &'a Offers,
}

/// A response in progress, with the data that the log needs if the client leaves before it is ready.
pub struct LaterResponse {
    future: Pin<Box<dyn Future<Output = Response>>>,
    source: LogSource,
}

impl LaterResponse {
    /// The response that `future` yields.
    pub fn new(future: impl Future<Output = Response> + 'static) -> Self {
        Self { future: Box::pin(future), source: LogSource::default() }
    }

    /// The same response, with the index of its site's access log.
    #[must_use]
    pub fn of_site(mut self, log: u8, site: Option<Rc<str>>) -> Self {
        self.source = LogSource { log, site };
        self
    }

    /// The access log and the site to record if the response is never sent.
    pub fn log_source(&self) -> LogSource {
        self.source.clone()
    }
}

impl Future for LaterResponse {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        self.get_mut().future.as_mut().poll(context)
    }
}

/// The access log and the site of a request, if known before its response.
#[derive(Clone, Debug, Default)]
pub struct LogSource {
    /// Index of the access log.
    pub log: u8,
    /// Name of the site.
    pub site: Option<Rc<str>>,
}

impl LogSource {
    /// Those of a response.
    pub fn of(response: &Response) -> Self {
        Self { log: response.log, site: response.site.clone() }
    }
}

/// The immediate result of a handler.
pub enum Reply {
    /// The response.
    Now(Response),
    /// The response is ready when this future is; the handler bounds its duration. Meanwhile an HTTP/1.1 connection
    /// reads only content that was taken. If the connection is reset or closed, the future is dropped.
    Later(LaterResponse),
}

impl Reply {
    /// A reply that comes later.
    pub fn later(future: impl Future<Output = Response> + 'static) -> Self {
        Self::Later(LaterResponse::new(future))
    }

    /// The log and site to record if this response is never sent.
    /// The access log and the site to record if the response is never sent.
    pub fn log_source(&self) -> LogSource {
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

/// Handles requests. Each worker has its own handler; handlers are never shared between threads.
pub trait Handler: 'static {
    /// The tables with all outcomes of responses: at most [`OUTCOMES_MAX`] rows. Only these are counted.
    const OUTCOMES: &'static [&'static Table];

    /// Called once, within the worker's runtime, before the first request. The handler may spawn its tasks here.
    fn begin(&self) {}

    /// Handles `request`. It must not block for longer than a file lookup takes, as every connection of the worker
    /// waits meanwhile. Slower work returns a [`Reply::Later`].
    fn handle(&self, request: &Request<'_>, now: Now) -> Reply;

    /// The response to a request that was refused or timed out, with `status` and one sentence.
    fn handle_error(&self, status: u16, text: &'static str) -> Response {
        Refusal::new(status, text, Outcome::NONE).respond(None, &HeaderPolicy::default())
    }
}
