//! The pages that a site has for errors, also for those that come to light after the walk.

use crate::answer::{Failure, custom_error_page, error_page};
use crate::engine::Live;
use crate::spec::PageSpec;
use flatout_http::framing::{Framing, Version};
use flatout_http::head::Fields;
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::target::Target;
use flatout_net::clock::Now;
use flatout_net::content::Offers;
use flatout_net::handler::{Reply, Request};
use flatout_net::response::{Body, Response};
use flatout_serve::files::{FileLookup, HeaderPolicy, Location};
use std::rc::Rc;

/// The parts of a pending response that are needed if it fails.
pub(super) struct Pages {
    pub(super) live: Rc<Live>,
    pub(super) numbers: Vec<u32>,
    pub(super) policy: Rc<HeaderPolicy>,
    pub(super) now: Now,
}

impl Pages {
    /// The answer to what went wrong.
    pub(super) fn fail(&self, failure: &Failure) -> Response {
        answer_failure(&self.live, &self.numbers, &self.policy, failure, self.now).0
    }
}

/// The answer to `failure`: the last of `pages` for its status, whose number is told, or a plain one.
pub(super) fn answer_failure(
    live: &Live,
    pages: &[u32],
    policy: &HeaderPolicy,
    failure: &Failure,
    now: Now,
) -> (Response, Option<u32>) {
    for &number in pages.iter().rev() {
        let Some(page) = live.spec.pages.get(number as usize) else { continue };
        if page.statuses.contains(&failure.status)
            && let Some(content) = read_page(live, page, now)
        {
            return (custom_error_page(failure, &page.content_type, content, policy), Some(number));
        }
    }
    (error_page(failure, policy), None)
}

/// The content of `page`, as it is now; `None` when it cannot be read any more.
fn read_page(live: &Live, page: &PageSpec, now: Now) -> Option<Body> {
    let files = live.files.get(page.files as usize)?;
    let path = page.path.as_bytes();
    let head = RequestHead {
        method: Method::Get,
        target: Target::Resource { path, query: None, authority: None },
        target_text: path,
        version: Version::Http11,
        host: None,
        fields: Fields::EMPTY,
        framing: Framing::None,
        persistent: true,
        expects_continue: false,
        asked: Asked::default(),
        head_bytes: 0,
    };
    let request = Request { head: &head, client: None, secure: false, listener: 0, offers: &Offers::new() };
    let policy = HeaderPolicy::default().into();
    match files.handle(&request, Location { path, query: None, decoded: None }, &policy, now) {
        FileLookup::Reply(Reply::Now(response)) if response.status == 200 => Some(response.body),
        _ => None,
    }
}
