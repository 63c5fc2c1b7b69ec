//! What a site is to this crate: something that turns a request into a response.

use crate::clock::Now;
use crate::content::Offers;
use crate::response::Response;
use flatout_http::request::RequestHead;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;

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

/// A response that is being made.
pub type LaterResponse = Pin<Box<dyn Future<Output = Response>>>;

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
        Self::Later(Box::pin(future))
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
