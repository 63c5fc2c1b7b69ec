//! Responses in progress, and what is added to them when they are ready.

use crate::response::{Body, LogFacts, Response};
use crate::routed::{HeaderPolicy, PendingResponse, Refusal};
use flatout_os::clock::Now;
use flatout_overload::ClientPermit;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Builds responses to refusals with a site's error pages.
pub trait ErrorPages {
    /// Builds the response to `refusal` with the last of `pages` that matches its status, or with the built-in page.
    fn respond(&self, refusal: &Refusal, pages: &[u32], policy: &HeaderPolicy, now: Now) -> Response;
}

/// The error pages that apply to a request.
pub struct PagesInForce {
    /// The site, which builds the pages.
    pub site: Rc<dyn ErrorPages>,
    /// Numbers of the error pages, for [`ErrorPages::respond`].
    pub numbers: Vec<u32>,
    /// The header operations that apply to the response.
    pub policy: Rc<HeaderPolicy>,
    /// The time at which the request was handled.
    pub now: Now,
}

/// Additions to a response that depend on the whole request.
#[derive(Debug, Default)]
pub struct Seal {
    /// Facts for the access log. The cache result comes from the response instead.
    pub facts: LogFacts,
    /// Values of Link for a 103 (Early Hints) before the response.
    pub links: Option<Rc<Vec<String>>>,
    /// Additional field lines, each with CR LF.
    pub lines: Vec<u8>,
}

impl Seal {
    /// Applies all additions to `response`.
    pub fn put_on(self, response: &mut Response) {
        response.logged = LogFacts { cache: response.logged.cache.take(), ..self.facts };
        if !self.lines.is_empty() {
            response.extra = Some([response.extra_lines(), &self.lines].concat().into());
        }
        // Only successful responses make the client load further resources.
        if (200..300).contains(&response.status) {
            response.early_links = self.links;
        }
    }

    /// Applies all additions, except that the user and the links of `response` take precedence, as routes that ran
    /// later may have set them.
    fn put_on_later(mut self, response: &mut Response) {
        self.facts.user = response.logged.user.take().or(self.facts.user);
        self.links = response.early_links.take().or(self.links);
        self.put_on(response);
    }
}

/// Makes `response` hold `permit` until its content has been sent, if its content is still arriving.
pub fn hold(response: &mut Response, permit: Option<ClientPermit>) {
    let Some(permit) = permit else { return };
    match &mut response.body {
        Body::Stream(stream) => stream.hold(permit),
        Body::Tunnel(tunnel) => tunnel.hold(permit),
        Body::Empty | Body::Bytes(_) | Body::File(_) | Body::Segments(_) => {}
    }
}

/// A response in progress, with the facts to log if the client disconnects before it is ready.
pub struct LaterResponse {
    pending: PendingResponse,
    /// The error pages. If `None`, the built-in pages are used.
    pages: Option<PagesInForce>,
    /// Applied to the response when it is ready.
    seal: Option<Seal>,
    /// Held until the response has been sent.
    permit: Option<ClientPermit>,
}

impl LaterResponse {
    /// Creates a response that is the result of `future`.
    pub fn new(future: impl Future<Output = Response> + 'static) -> Self {
        let pending: PendingResponse = Box::pin(async move { Ok(future.await) });
        Self { pending, pages: None, seal: None, permit: None }
    }

    /// Creates a response from the result of a handler. If the result is a refusal, `pages` build the response.
    /// `permit` is held until the response has been sent.
    pub const fn of_handler(pending: PendingResponse, pages: PagesInForce, permit: Option<ClientPermit>) -> Self {
        Self { pending, pages: Some(pages), seal: None, permit }
    }

    /// Sets the additions to apply to the response.
    #[must_use]
    pub fn with_seal(mut self, seal: Seal) -> Self {
        self.seal = Some(seal);
        self
    }

    /// Returns the facts for the access log in case the response is never sent.
    pub fn log_facts(&self) -> LogFacts {
        self.seal.as_ref().map(|seal| seal.facts.clone()).unwrap_or_default()
    }
}

impl Future for LaterResponse {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let later = self.get_mut();
        let mut response = match (ready!(later.pending.as_mut().poll(context)), &later.pages) {
            (Ok(response), _) => response,
            (Err(refusal), Some(pages)) => pages.site.respond(&refusal, &pages.numbers, &pages.policy, pages.now),
            (Err(refusal), None) => refusal.respond(None, &HeaderPolicy::default()),
        };
        if let Some(seal) = later.seal.take() {
            seal.put_on_later(&mut response);
        }
        hold(&mut response, later.permit.take());
        Poll::Ready(response)
    }
}
