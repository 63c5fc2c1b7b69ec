//! The handler interface: a handler turns a request into a response.

use crate::content::Offers;
use crate::later::LaterResponse;
use crate::response::{LogFacts, Response};
use crate::routed::{HeaderPolicy, Refusal};
use flatout_http::forwarded::Sender;
use flatout_http::request::RequestHead;
use flatout_os::clock::Now;
use flatout_reason::{Outcome, Table};
use std::net::SocketAddr;

/// Maximum number of outcomes; see [`Handler::OUTCOMES`].
pub const OUTCOMES_MAX: usize = 208;

/// A request as a handler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The request head.
    pub head: &'a RequestHead<'a>,
    /// The client's address, or `None` if the kernel does not report it.
    pub client: Option<SocketAddr>,
    /// True if `client` is the peer of a connection to a Unix socket, which has no address.
    pub unix: bool,
    /// True if the request arrived over TLS.
    pub secure: bool,
    /// The listener that accepted the connection, as numbered in `WorkerParts::listeners`.
    pub listener: u32,
    /// The request's content, and the channel for interim responses, for handlers that use them.
    pub offers: &'a Offers,
}

impl Request<'_> {
    /// Returns the sender, as `trusted-proxies` can name it.
    pub fn sender(&self) -> Sender {
        match self.client {
            Some(client) => Sender::Ip(client.ip()),
            None if self.unix => Sender::Unix,
            None => Sender::Unknown,
        }
    }
}

/// The immediate result of a handler.
#[derive(derive_more::Debug, derive_more::From)]
pub enum Reply {
    /// The response.
    #[from]
    Now(Response),
    /// The response is ready when this future completes. The handler limits how long that takes. In the meantime, an
    /// HTTP/1.1 connection reads only content that was taken. If the connection is reset or closed, the future is
    /// dropped.
    #[debug("Later")]
    Later(LaterResponse),
}

impl Reply {
    /// Creates a reply whose response is the result of `future`.
    pub fn later(future: impl Future<Output = Response> + 'static) -> Self {
        Self::Later(LaterResponse::new(future))
    }

    /// Returns the facts for the access log in case this response is never sent.
    pub fn log_facts(&self) -> LogFacts {
        match self {
            Self::Now(response) => response.logged.clone(),
            Self::Later(response) => response.log_facts(),
        }
    }
}

/// Handles requests. Each worker has its own handler; handlers are never shared between threads.
pub trait Handler: 'static {
    /// The tables of all outcomes that responses may have, with at most [`OUTCOMES_MAX`] rows. Only these outcomes are
    /// counted.
    const OUTCOMES: &'static [&'static Table];

    /// Prepares the handler. Called once, within the worker's runtime, before the first request. The handler may spawn
    /// tasks here.
    fn begin(&self) {}

    /// Handles `request`. Must not block for longer than a file lookup takes, because all other connections of the
    /// worker wait until it returns. For slower work, return a [`Reply::Later`].
    fn handle(&self, request: &Request<'_>, now: Now) -> Reply;

    /// Returns whether `peer` may name the client of its connection to `listener` in a PROXY header. Called only for
    /// listeners that require such a header.
    fn may_name_client(&self, _listener: u32, _peer: Option<SocketAddr>) -> bool {
        false
    }

    /// Returns the response to a request that was refused or timed out, with `status` and the sentence `text`.
    fn handle_error(&self, status: u16, text: &'static str) -> Response {
        Refusal::new(status, text, Outcome::NONE).respond(None, &HeaderPolicy::default())
    }
}
