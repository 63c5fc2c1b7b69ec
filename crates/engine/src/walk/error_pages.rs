//! Error pages, including those for failures that are detected after all steps have been executed.

use crate::engine::Live;
use crate::spec::PageSpec;
use flatout_handler::Request;
use flatout_handler::content::Offers;
use flatout_handler::later::ErrorPages;
use flatout_handler::response::Response;
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

impl ErrorPages for Live {
    fn respond(&self, refusal: &Refusal, pages: &[u32], policy: &HeaderPolicy, now: Now) -> Response {
        answer_failure(self, pages, policy, refusal, now).0
    }
}

/// Builds the response to `refusal`, with the last of `pages` for its status, or a built-in page if there is none. Also
/// returns the error page used.
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
            && let Some(file) = read_page(live, page, now)
        {
            // The type depends on the encoding that the page declares.
            let mut fields = file.head.fields();
            let content_type = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"content-type"));
            let content_type = String::from_utf8_lossy(content_type.map_or(b"".as_slice(), |(_, value)| value));
            return (refusal.respond(Some((&content_type, file.body)), policy), Some(page));
        }
    }
    (refusal.respond(None, policy), None)
}

/// Returns the response with the current content of `page`, or `None` if it can no longer be read.
fn read_page(live: &Live, page: &PageSpec, now: Now) -> Option<Response> {
    let files = live.files.get(page.files as usize)?;
    let path = page.path.as_bytes();
    let head = RequestHead {
        method: Method::Get,
        target: Target::Resource { path, query: None },
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
    let request =
        Request { head: &head, client: None, unix: false, secure: false, listener: 0, offers: &Offers::new() };
    match read_file(files, &request, path, now) {
        Handling::Now(Ok(response)) if response.status == 200 => Some(response),
        _ => None,
    }
}

/// Reads the file of `files` at the encoded `path`. Ranges and conditions are those of `request`, and no header
/// operations apply.
pub(super) fn read_file(files: &Files, request: &Request<'_>, path: &[u8], now: Now) -> Handling {
    let mut decoded = Vec::new();
    let Ok(facts) = decode_path(path, &mut decoded) else { return Refusal::from(FileOutcome::NotFound).into() };
    files.handle(&RoutedRequest {
        request,
        path,
        decoded: &decoded,
        facts,
        is_bare: false,
        removed: b"",
        is_merged: false,
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
