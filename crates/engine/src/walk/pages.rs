//! The pages that a site has for errors, also for those that come to light after the walk.

use crate::engine::Live;
use crate::spec::PageSpec;
use flatout_handler::Request;
use flatout_handler::content::Offers;
use flatout_handler::response::{Body, Response};
use flatout_handler::routed::{Handling, HeaderPolicy, Refusal, RoutedRequest};
use flatout_http::framing::{Framing, Version};
use flatout_http::head::Fields;
use flatout_http::path::decode_path;
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::target::Target;
use flatout_os::clock::Now;
use flatout_serve::files::Files;
use flatout_serve::outcome::FileOutcome;
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
    pub(super) fn fail(&self, refusal: &Refusal) -> Response {
        answer_failure(&self.live, &self.numbers, &self.policy, refusal, self.now).0
    }
}

/// The response to `refusal`, with the last of `pages` for its status, which is returned as well, or a plain page.
pub(super) fn answer_failure<'l>(
    live: &'l Live,
    pages: &[u32],
    policy: &HeaderPolicy,
    refusal: &Refusal,
    now: Now,
) -> (Response, Option<&'l PageSpec>) {
    for &number in pages.iter().rev() {
        let Some(page) = live.spec.pages.get(number as usize) else { continue };
        if page.statuses.contains(&refusal.status)
            && let Some(content) = read_page(live, page, now)
        {
            return (refusal.respond(Some((&page.content_type, content)), policy), Some(page));
        }
    }
    (refusal.respond(None, policy), None)
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
    match read_file(files, &request, path, now) {
        Handling::Now(Ok(response)) if response.status == 200 => Some(response.body),
        _ => None,
    }
}

/// The file of `files` at `path`, encoded, without header operations. `request` decides on ranges and conditions.
pub(super) fn read_file(files: &Files, request: &Request<'_>, path: &[u8], now: Now) -> Handling {
    let mut decoded = Vec::new();
    let Ok(facts) = decode_path(path, &mut decoded) else { return Refusal::from(FileOutcome::NotFound).into() };
    files.handle(&RoutedRequest {
        request,
        path,
        decoded: &decoded,
        facts,
        query: None,
        policy: &Rc::default(),
        user: None,
        site: None,
        server: None,
        host: None,
        port: None,
        now,
    })
}
