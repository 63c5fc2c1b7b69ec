//! ESI composition: templates are stored as received and composed for each request.
//!
//! A part is looked up like any response, with the realm, `proxy` step and `cache` step of its page, and may itself be
//! a template. A part is the same for all clients: client-specific fields are not forwarded (see `part`).
//!
//! | file | contents |
//! |---|---|
//! | this file | rounds of fetching parts, and the response |
//! | `part` | the request for a part |
//! | `content` | reading the content of a page or a part |
//!
//! **Bounds.** A response has at most [`EsiLimits::includes_max`] parts over all levels, so that a page that includes
//! itself twice does not grow exponentially. The nesting depth is bounded by [`EsiLimits::nesting_max`], and the total
//! size by [`BYTES_MAX`]. A part that exceeds a bound is treated as failed.

mod content;
mod part;

use crate::esi::compose::ComposedPiece;
use crate::esi::{Composition, EsiLimits, parse};
use crate::outcome::ForwardOutcome;
use crate::pipeline;
use crate::query::{EsiSource, Query};
use crate::sticky::is_for_everyone;
use crate::worker::ProxyWorker;
use content::{Had, has_all, read_page};
use flatout_cache::decision::Intake;
use flatout_handler::response::{Body, Head, Response, Segment};
use flatout_handler::routed::Refusal;
use flatout_handler::shared::SharedBytes;
use flatout_http::lines::{each_line, write_changed, write_line};
use flatout_upstream::origin::OriginFailure;
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use tokio::task::JoinSet;

const LIMITS: EsiLimits = EsiLimits::DEFAULT;

/// Maximum total size in bytes of the pages and parts in one response: four pages of maximum size (an estimate).
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Maximum number of parts of a page that are fetched in parallel. Keeps one request from filling an origin's queue.
const PARALLEL_MAX: usize = 16;

/// Fields of a template that are omitted from the composed response because they describe the template without its
/// parts, control caching, or are meant for this cache.
const DROPPED: [&str; 15] = [
    "accept-ranges",
    "cache-control",
    "cdn-cache-control",
    "content-digest",
    "content-length",
    "content-md5",
    "digest",
    "etag",
    "expires",
    "flatout-cache-control",
    "last-modified",
    "pragma",
    "repr-digest",
    "surrogate-control",
    "trailer",
];

/// Totals for a composed response, over all its pages and parts.
#[derive(Debug, Default)]
struct Tally {
    parts: Cell<usize>,
    bytes: Cell<u64>,
    /// True if any page or part has `no-store`.
    no_store: Cell<bool>,
    missing: Cell<bool>,
    malformed: Cell<bool>,
}

impl Tally {
    /// Adds `bytes` to the total size. Returns false if the total exceeds [`BYTES_MAX`].
    fn take(&self, bytes: u64) -> bool {
        let bytes = self.bytes.get().saturating_add(bytes);
        self.bytes.set(bytes);
        bytes <= BYTES_MAX
    }

    fn outcome(&self) -> ForwardOutcome {
        match (self.malformed.get(), self.missing.get()) {
            (true, _) => ForwardOutcome::EsiMalformed,
            (false, true) => ForwardOutcome::EsiIncomplete,
            (false, false) => ForwardOutcome::EsiComposed,
        }
    }
}

/// Future that resolves to a response.
type Answering = Pin<Box<dyn Future<Output = Result<Response, Refusal>>>>;

/// Serves `query`. If the response is a template, composes the page.
pub(crate) fn serve(worker: Rc<ProxyWorker>, query: Rc<Query>, intake: Intake) -> Answering {
    answer(worker, query, intake, Rc::default(), 0)
}

/// Serves a page or part at the nesting depth `level`.
fn answer(worker: Rc<ProxyWorker>, query: Rc<Query>, intake: Intake, tally: Rc<Tally>, level: usize) -> Answering {
    Box::pin(async move {
        let mut response = pipeline::run(Rc::clone(&worker), Rc::clone(&query), intake.into()).await?;
        match query.template.take() {
            None => Ok(response),
            Some(EsiSource::Encoded) => {
                response.outcome = ForwardOutcome::EsiEncoded.into();
                Ok(response)
            }
            Some(EsiSource::Page(lines)) => {
                // Log the cache result of the page itself.
                let outcome = response.outcome.name();
                response.logged.cache.get_or_insert_with(|| outcome.into());
                put_together(&worker, &query, &lines, response, (&tally, level)).await
            }
        }
    })
}

/// Composes the template in `response`.
async fn put_together(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    lines: &[u8],
    mut response: Response,
    (tally, level): (&Rc<Tally>, usize),
) -> Result<Response, Refusal> {
    if says_no_store(each_line(lines).filter(|(name, _)| name.eq_ignore_ascii_case(b"cache-control"))) {
        tally.no_store.set(true);
    }
    let body = std::mem::replace(&mut response.body, Body::Empty);
    if query.ask.request.method() == "HEAD" && body.is_empty() {
        // In a response to HEAD, the length of the composed page is unknown.
        return Ok(with_head(query, lines, response, None, tally));
    }
    let page = match read_page(body, LIMITS.page_bytes_max).await {
        Ok(Had::Whole(page)) => page,
        Ok(Had::TooMuch(body)) => {
            tally.malformed.set(true);
            let length = match &body {
                Body::Stream(stream) => stream.length(),
                body => Some(body.len()),
            };
            response.body = body;
            return Ok(with_head(query, lines, response, length, tally));
        }
        Err(_) => {
            let outcome = OriginFailure::CutBody.into();
            return Err(Refusal { outcome, ..Refusal::from(ForwardOutcome::EsiFragmentFailed) });
        }
    };
    if !tally.take(page.len() as u64) {
        return Err(Refusal::from(ForwardOutcome::EsiFragmentFailed));
    }
    let parsed = parse(&page, &LIMITS);
    if parsed.error.is_some() {
        tally.malformed.set(true);
    }
    let mut composition = Composition::new(&parsed);
    loop {
        let wanted = composition.wanted();
        if wanted.is_empty() {
            break;
        }
        let mut wanted = wanted.into_iter();
        let mut fetching = JoinSet::new();
        loop {
            while fetching.len() < PARALLEL_MAX
                && let Some(wanted) = wanted.next()
            {
                let part = fetch(Rc::clone(worker), Rc::clone(query), wanted.src.into(), Rc::clone(tally), level + 1);
                fetching.spawn_local(async move { (wanted.slot, part.await) });
            }
            match fetching.join_next().await {
                None => break,
                Some(Ok((slot, part))) => composition.provide(slot, part),
                // A task failed unexpectedly, so the state of the round is unknown.
                Some(Err(_)) => return Err(Refusal::from(ForwardOutcome::EsiFragmentFailed)),
            }
        }
    }
    let Some(composed) = composition.finish() else { return Err(Refusal::from(ForwardOutcome::EsiFragmentFailed)) };
    if composed.missing > 0 {
        tally.missing.set(true);
    }
    let page = SharedBytes::from(page);
    let mut segments = Vec::with_capacity(composed.pieces.len());
    for piece in composed.pieces {
        match piece {
            ComposedPiece::Literal(range) => segments.push(Segment::Bytes(page.slice(range))),
            ComposedPiece::Part(part) => segments.extend(part),
        }
    }
    segments.retain(|segment| !segment.is_empty());
    let length = segments.iter().map(Segment::len).sum();
    response.body = content::join(segments);
    Ok(with_head(query, lines, response, Some(length), tally))
}

/// Fetches the content of a part. Returns `None` if it is unavailable or exceeds a bound.
async fn fetch(
    worker: Rc<ProxyWorker>,
    page: Rc<Query>,
    src: String,
    tally: Rc<Tally>,
    level: usize,
) -> Option<Vec<Segment>> {
    tally.parts.set(tally.parts.get().saturating_add(1));
    if level > LIMITS.nesting_max || tally.parts.get() > LIMITS.includes_max {
        return None;
    }
    let (query, intake) = part::make_query(&worker, &page, &src)?;
    let query = Rc::new(query);
    let response = answer(worker, query, intake, Rc::clone(&tally), level).await.ok()?;
    let has = |wanted: &'static str| {
        let is_wanted = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(wanted.as_bytes());
        response.head.fields().filter(is_wanted)
    };
    // An encoded part cannot be inserted into an unencoded page.
    if response.status != 200 || has("content-encoding").next().is_some() {
        return None;
    }
    if says_no_store(has("cache-control")) {
        tally.no_store.set(true);
    }
    let segments = has_all(response.body, LIMITS.page_bytes_max as u64).await?;
    let bytes = segments.iter().map(Segment::len).sum();
    tally.take(bytes).then_some(segments)
}

/// Returns whether any of these lines contains `no-store`.
fn says_no_store<'a>(mut lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> bool {
    lines.any(|(_, line)| line.windows(8).any(|window| window.eq_ignore_ascii_case(b"no-store")))
}

/// Replaces the head of `response` with that of the composed page.
fn with_head(query: &Query, lines: &[u8], response: Response, length: Option<u64>, tally: &Tally) -> Response {
    let mut kept = Vec::with_capacity(lines.len() + 64);
    // The cookie for session affinity, which the configuration does not change, but whose response it may.
    let mut session = Vec::new();
    for (name, line) in each_line(lines) {
        if query.step.sticky.as_ref().is_some_and(|cookie| cookie.is_set_by(name, line)) {
            session.extend_from_slice(line);
        } else if !DROPPED.iter().any(|dropped| name.eq_ignore_ascii_case(dropped.as_bytes())) {
            kept.extend_from_slice(line);
        }
    }
    // Parts change independently, so the composed page has no validator and must not be cached.
    let control: &[u8] = if tally.no_store.get() { b"private, no-cache, no-store" } else { b"private, no-cache" };
    write_line(b"Cache-Control", control, &mut kept);
    let mut changed = Vec::with_capacity(kept.len() + 64);
    write_changed(response.status, &kept, &query.policy.fields, &mut changed);
    if !session.is_empty() && !is_for_everyone(&changed) {
        changed.extend_from_slice(&session);
    }
    if let Some(length) = length {
        write_line(b"Content-Length", length.to_string().as_bytes(), &mut changed);
    }
    let outcome = tally.outcome().into();
    Response { head: Head::from_lines(response.status, &changed), outcome, ..response }
}
