//! Completion of a response: its log, its site, its user, its links, and the fields that depend on the request.

use super::pages::Pages;
use flatout_handler::response::Response;
use flatout_handler::routed::PendingResponse;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Additions to a response that concern the whole request.
#[derive(Debug, Default)]
pub(super) struct Seal {
    pub(super) log: u8,
    pub(super) site: Option<Rc<str>>,
    pub(super) user: Option<Rc<str>>,
    pub(super) links: Option<Rc<Vec<String>>>,
    /// Field lines, each with CR LF.
    pub(super) lines: Vec<u8>,
}

impl Seal {
    pub(super) fn put_on(self, mut response: Response) -> Response {
        response.log = self.log;
        response.site = self.site;
        response.user = self.user;
        if !self.lines.is_empty() {
            response.extra = Some([response.extra_lines(), &self.lines].concat().into());
        }
        // Only successful responses load further resources.
        if (200..300).contains(&response.status) {
            response.early_links = self.links;
        }
        response
    }

    /// The same, after a later walk may have determined the user and the page's resources.
    pub(super) fn put_on_later(mut self, response: Response) -> Response {
        self.user = response.user.clone().or(self.user);
        self.links = response.early_links.clone().or(self.links);
        self.put_on(response)
    }
}

/// A handler's response in progress, and the additions to it.
pub(super) struct SealedResponse {
    pub(super) pending: PendingResponse,
    pub(super) pages: Pages,
    pub(super) seal: Seal,
}

impl Future for SealedResponse {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let sealed = self.get_mut();
        let response = match ready!(sealed.pending.as_mut().poll(context)) {
            Ok(response) => response,
            Err(refusal) => sealed.pages.fail(&refusal),
        };
        Poll::Ready(std::mem::take(&mut sealed.seal).put_on_later(response))
    }
}
