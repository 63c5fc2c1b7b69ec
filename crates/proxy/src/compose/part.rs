//! Request for a part: the page's request with a different target and without client-specific fields.

use crate::esi::{Base, resolve};
use crate::exchange::UpstreamRequest;
use crate::query::Query;
use crate::worker::ProxyWorker;
use flatout_cache::decision::{Intake, decide_request};
use flatout_handler::Request;
use flatout_handler::content::Offers;
use flatout_http::framing::Framing;
use flatout_http::head::{Fields, Header};
use flatout_http::lines::is_of_a_connection;
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::target::Target;
use flatout_store::ObjectKey;
use flatout_store::key::locator;
use std::rc::Rc;

/// Client fields omitted from requests for parts, in addition to those of a connection: fields that identify the client,
/// since parts are shared; fields that apply only to the page; and fields that describe request content.
const LEFT_OUT: [&str; 12] = [
    "accept-encoding",
    "authorization",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
];

/// Creates the query for the part `src` of `page`. Returns `None` if the reference is invalid.
pub(super) fn make_query(worker: &ProxyWorker, page: &Query, src: &str) -> Option<(Query, Intake)> {
    let target = page.with(|request| {
        let base =
            Base { secure: request.secure, authority: request.authority, path: request.path, query: request.query };
        resolve(src, &base).ok()
    })?;
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path.as_bytes(), Some(query.as_bytes())),
        None => (target.as_bytes(), None),
    };
    let ask = page.ask.request.with(|request| {
        let is_kept = |name: &str| {
            let is_left_out = LEFT_OUT.iter().any(|left_out| name.eq_ignore_ascii_case(left_out));
            // Connection remains until the request is forwarded, because the fields that it names are not forwarded.
            let is_connection = name.eq_ignore_ascii_case("connection");
            !is_left_out && (is_connection || !is_of_a_connection(name.as_bytes()))
        };
        let fields: Vec<Header<'_>> = request
            .head
            .fields
            .iter()
            .filter(|(name, _)| is_kept(name))
            .map(|(name, value)| Header { name, value })
            .collect();
        let head = RequestHead {
            method: Method::Get,
            target: Target::Resource { path, query },
            target_text: target.as_bytes(),
            fields: Fields::from_lines(&fields),
            framing: Framing::None,
            expects_continue: false,
            asked: Asked::default(),
            ..*request.head
        };
        let offers = Offers::new();
        let request = Request { head: &head, offers: &offers, ..*request };
        UpstreamRequest::new(&page.step, Some(&page.cache), &request, (path, query), (page.ask.client, None))
    });
    let mut part = Query::new(ask, &page.step, &page.cache, (page.key.clone(), None), &Rc::default());
    let mut key = Vec::new();
    let (search, intake) = part.with(|request| {
        let search = worker.accelerator().write_lookup_key(&part.step, &part.cache, request, &mut key);
        (search, decide_request(request, &part.cache.rules))
    });
    part.search = search;
    let hash = worker.store()?.hash(&key);
    part.key = ObjectKey::new(&key, locator(&key), hash);
    Some((part, intake))
}
