//! Cache lookup, and fetching on a miss.

use crate::answer::{PrebuiltResponse, ResponseContent, answer_from, first_ranges_of};
use crate::exchange::Answered;
use crate::fetch::{Asked, Fetch, FetchConditions, FetchResult, write_range};
use crate::fill::{FetchJoin, FetchState, FillHead, Interest, Use};
use crate::hints::links_in;
use crate::lookup_result::{LookupResult, find, select, verdict_of};
use crate::meta::Meta;
use crate::meta::StoredResponse;
use crate::note::Note;
use crate::outcome::{not_held, only_if_cached};
use crate::parts::{PartSet, Stitching, Supply};
use crate::pass;
use crate::query::{Query, audience_hash};
use crate::store::{Purged, Store};
use crate::worker::ProxyWorker;
use flatout_cache::decision::{OriginFailureKind, Verdict, decide_failure, decide_miss, may_share, may_wait};
use flatout_cache::parts::Stretch;
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::request::CacheRequest;
use flatout_cache::rules::Rules;
use flatout_cache::stored::{Extent, Flags};
use flatout_cache::validate::{Conditions, make_conditions};
use flatout_cache::vary::{apply_cookie_rules, matches_variant, write_variant_key};
use flatout_http::lines::write_line;
use flatout_http::ranges::ByteRange;
use flatout_http::token::trim;
use flatout_net::clock::Now;
use flatout_net::content::InterimResponse;
use flatout_net::response::Response;
use flatout_net::routed::Refusal;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

/// Maximum restarts of a request because shared fetches yielded nothing usable.
const ROUNDS_MAX: u32 = 4;

/// Response to `query` from memory; `None` if waiting is required.
pub(crate) fn answer_at_once(worker: &Rc<ProxyWorker>, query: &Query, now: Now) -> Option<Response> {
    let store = worker.store()?;
    let bucket = store.find(query.key.hash(), query.key.as_bytes())?;
    let found = select(worker, query, Some(&bucket));
    let Verdict::Serve { reason, .. } = verdict_of(query, &found, now.unix_s) else { return None };
    if let LookupResult::Parts(set, _) = &found {
        let ranges = first_ranges_of(query, set, now.unix_s);
        let is_ready = ranges.iter().all(|(body, _)| body.is_verified());
        return is_ready.then(|| answer_from(query, found.content()?, &Note::hit(reason), now.unix_s)).flatten();
    }
    let LookupResult::Object(object, _) = found else { return None };
    if query.cache.esi && object.meta().stored.flags.any(Flags::ESI) {
        return None;
    }
    if !object.body().is_verified() {
        return None;
    }
    if reason == Lookup::HitFresh && object.meta().stored.extent == Extent::Whole {
        worker.make_ready(query, &object);
    }
    answer_from(query, ResponseContent::Kept(object), &Note::hit(reason), now.unix_s)
}

/// Prebuilds heads of `object` for later requests; `None` if its response needs more than a head and content.
pub(crate) fn ready_of(query: &Query, object: &Arc<StoredResponse>) -> Option<PrebuiltResponse> {
    let via = query.step.settings.via.as_deref();
    object.meta().trailers.is_empty().then(|| PrebuiltResponse::new(object, via, &query.changes, query.changes_id))
}

/// Results of the rounds of one request so far.
#[derive(Debug, Default)]
struct LookupProgress {
    /// It no longer waits for shared fetches.
    alone: bool,
    /// It no longer validates stored responses or fetches parts.
    whole: bool,
    /// Reason for forwarding after a shared fetch was released.
    released: Option<Lookup>,
    /// Note for stored parts that the origin has just validated.
    validated: Option<Note>,
}

impl LookupProgress {
    /// A shared fetch was unusable: the next round requests the whole response for this request only.
    fn ask_for_whole(&mut self) {
        (self.alone, self.whole) = (true, true);
    }
}

/// The required upstream request.
struct Need {
    /// Reason.
    reason: Lookup,
    question: FetchConditions,
    /// Conditions of requests for missing ranges, if this is one.
    completion: Option<Conditions>,
}

/// Result of a look at the store.
enum Look {
    /// A response from the store.
    Answered(Box<Response>),
    /// An upstream request is required.
    Lacking(Need),
}

/// Serves `query`.
pub(crate) async fn serve(worker: Rc<ProxyWorker>, query: Rc<Query>) -> Result<Response, Refusal> {
    let mut progress = LookupProgress::default();
    for round in 0.. {
        if let Some(answered) = serve_round(&worker, &query, round, &mut progress).await {
            return answered;
        }
        progress.alone |= round >= ROUNDS_MAX;
    }
    Err(not_held())
}

/// Serves `query` from the store, or fetches what is missing. `None`: a shared fetch yielded nothing usable, so the
/// lookup must restart.
async fn serve_round(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    round: u32,
    progress: &mut LookupProgress,
) -> Option<Result<Response, Refusal>> {
    let now = Now::read();
    query.range_fetch.take();
    let found = find(worker, query).await;
    let need = match look(worker, query, &found, progress, now) {
        Ok(Look::Answered(response)) => return Some(Ok(*response)),
        Ok(Look::Lacking(need)) => need,
        Err(refused) => return Some(Err(refused)),
    };
    let Need { reason, question, completion } = need;
    // The stored response is not for this visitor: it is neither validated nor used after a failure, and the response
    // to this request does not affect it.
    let is_refused = matches!(reason, Lookup::RequestAuthorized | Lookup::RequestCookie);
    let object = found.object().cloned().filter(|_| !is_refused);
    if reason == Lookup::RequestPrecondition || query.ask.request.method() != "GET" {
        return Some(pass::forward(worker, query, reason, object).await);
    }
    let is_known = object.is_some() || reason == Lookup::MissPurged;
    let waits = |request: &CacheRequest<'_>| may_wait(request, is_known, query.names_visitor, &query.cache.rules);
    progress.alone |= is_refused || !query.with(waits);
    let marked = worker.store().and_then(|store| store.marker(query.marker_hash(), now.monotonic_ms));
    if progress.alone || marked.is_some() {
        let is_unknown = marked.is_some() && !progress.alone && question.is_none();
        let reason = if is_unknown { Lookup::HitForMiss } else { progress.released.unwrap_or(reason) };
        // A response that could not be served is not validated again; and one of several parts is no response by
        // itself.
        let is_restarted = progress.whole || found.set().is_some();
        let (question, object) = if is_restarted { Default::default() } else { (question, object) };
        return Some(fetch_alone(worker, query, question, object, reason).await);
    }
    if let Some(stale) = &object {
        send_early_hints(query, stale);
    }
    let is_large = found.set().is_some_and(|set| set.total() > query.cache.range_fetch_bytes_max);
    if question.is_none() && !is_large {
        begin_range_fetch(worker, query, now);
    }
    let fills = &worker.accelerator().fills;
    let stretch = question.missing().zip(completion);
    let fill_key = match (found.set(), &stretch) {
        (Some(set), Some((missing, conditions))) => stretch_key(query, set, *missing, conditions),
        _ => fill_key(query, &found),
    };
    let begun = fills.begin(&fill_key);
    let (standing, note, interest) = match begin(worker, query, begun, question, object, reason).await {
        Joined::Answer(response) => return Some(response),
        Joined::Standing(standing, note, interest) => (standing, note, interest),
    };
    if note.collapsed && is_purged(worker, query, &standing) {
        // Its upstream request preceded the purge, and this request may have followed it.
        fills.close(&fill_key, &interest);
        return None;
    }
    match (standing, found.set(), stretch) {
        (FetchState::Streaming(head), Some(set), Some((missing, conditions))) if set.fits(&head, missing) => {
            let first = (missing, head, interest);
            let supply = Supply { worker: Rc::clone(worker), query: Rc::clone(query), conditions, first };
            let response = answer_supplied(set, supply, note);
            if response.is_none() {
                progress.ask_for_whole();
            }
            response.map(Ok)
        }
        (standing, ..) => answer_fetched(query, &found, (standing, note, interest), round, progress),
    }
}

/// Serves `query` from the lookup result, or returns the required upstream request.
fn look(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    found: &LookupResult,
    progress: &mut LookupProgress,
    now: Now,
) -> Result<Look, Refusal> {
    let verdict = verdict_of(query, found, now.unix_s);
    let (reason, question) = match verdict {
        Verdict::Serve { reason, .. } | Verdict::ServeStale { reason, .. } if found.object().is_some() => {
            if let Verdict::ServeStale { revalidate: true, .. } = verdict {
                revalidate_behind(worker, query, found);
            }
            let note = progress.validated.take().unwrap_or_else(|| Note::hit(reason));
            let response = found.content().and_then(|content| answer_from(query, content, &note, now.unix_s));
            if let Some(response) = response {
                return Ok(Look::Answered(Box::new(response)));
            }
            (Lookup::MissPart, FetchConditions::default())
        }
        Verdict::Validate { conditions, reason } => (reason, validation(query, found, conditions)),
        Verdict::Complete { stretches, conditions, reason } => {
            let stretch = found.set().zip(first_missing(&stretches));
            let completion = stretch.is_some().then(|| conditions.clone());
            let question =
                stretch.map(|(set, part)| FetchConditions::stretch(set, part, conditions)).unwrap_or_default();
            return Ok(Look::Lacking(Need { reason, question, completion }));
        }
        Verdict::Unsatisfiable { reason } => return Err(only_if_cached(reason)),
        Verdict::Forward { reason } | Verdict::Serve { reason, .. } | Verdict::ServeStale { reason, .. } => {
            (reason, FetchConditions::default())
        }
    };
    Ok(Look::Lacking(Need { reason, question, completion: None }))
}

/// Serves `query` from the result of a fetch; `None`: another round is required.
fn answer_fetched(
    query: &Query,
    found: &LookupResult,
    (standing, note, interest): (FetchState, Note, Interest),
    round: u32,
    progress: &mut LookupProgress,
) -> Option<Result<Response, Refusal>> {
    // RFC 9111 §4: a response fetched for another request is usable only if it may be reused without validation. All
    // requests that may not use it continue concurrently.
    let is_anothers = note.collapsed && !is_for(query, &standing);
    match standing {
        _ if is_anothers => {
            progress.alone = true;
            progress.released = Some(note.reason);
        }
        FetchState::Asking => {}
        FetchState::Failed(refused) => return Some(Err(refused)),
        FetchState::Released => {
            progress.alone = true;
            progress.released = Some(note.reason);
        }
        // This freshens all parts; the next round determines what is missing.
        FetchState::Use(_, Use::Validated) if found.set().is_some() && round < ROUNDS_MAX => {
            progress.validated = Some(note.of_use(Use::Validated));
        }
        FetchState::Use(object, how) => {
            let content = found.set().map(|_| found.content());
            let content = content.flatten().unwrap_or(ResponseContent::Kept(object));
            let response = answer_from(query, content, &note.of_use(how), Now::read().unix_s);
            if let Some(response) = response {
                return Some(Ok(response));
            }
            progress.ask_for_whole();
        }
        // The range is too far into a large response to wait for.
        FetchState::Streaming(head) if note.collapsed && !is_range_near(query, &head) => progress.ask_for_whole(),
        FetchState::Streaming(head) => {
            if query.with(|request| matches_variant(request, &head.meta.stored)) {
                let note = note.of_fill(&head);
                let response = answer_from(query, ResponseContent::Coming(head, interest), &note, Now::read().unix_s);
                if let Some(mut response) = response {
                    response.cache = Some(note.stored_as());
                    return Some(Ok(response));
                }
                progress.ask_for_whole();
            } else {
                // Another variant: its Vary names are now known.
                query.vary.replace(Some(head.meta.stored.vary.clone()));
            }
        }
    }
    None
}

/// Response from stored parts and a fetch of missing ones; `None`: that fetch belongs to another request only (RFC
/// 9111 §4).
fn answer_supplied(set: &Rc<PartSet>, supply: Supply, note: Note) -> Option<Response> {
    if note.collapsed && !supply.first.1.meta.stored.is_reusable() {
        return None;
    }
    let query = Rc::clone(&supply.query);
    let content = ResponseContent::Parts(Stitching { set: Rc::clone(set), supply: Some(supply) });
    let mut response = answer_from(&query, content, &Note { stored: true, ..note }, Now::read().unix_s)?;
    response.cache = Some("storing");
    Some(response)
}

/// Returns whether `query`, which waited for another request's fetch, may use the result.
fn is_for(query: &Query, standing: &FetchState) -> bool {
    let (rules, now_s) = (&query.cache.rules, Now::read().unix_s);
    let shares = |stored| query.with(|request| may_share(request, stored, rules, now_s));
    match standing {
        // Another variant is unusable, but reveals the Vary names.
        FetchState::Streaming(head) => {
            let stored = &head.meta.stored;
            shares(stored) || (stored.is_reusable() && query.with(|request| !matches_variant(request, stored)))
        }
        FetchState::Use(object, Use::Validated) => shares(&object.meta().stored),
        FetchState::Use(_, Use::ValidatedOnce) => false,
        FetchState::Use(object, Use::InsteadOfError) => {
            let stored = &object.meta().stored;
            let verdict =
                query.with(|request| decide_failure(request, stored, OriginFailureKind::Unreachable, rules, now_s));
            matches!(verdict, Verdict::ServeStale { .. })
        }
        FetchState::Asking | FetchState::Released | FetchState::Failed(_) => true,
    }
}

/// Returns whether a range is near enough to wait for in a response fetched from its beginning.
fn is_range_near(query: &Query, head: &FillHead) -> bool {
    let is_whole = head.meta.stored.extent == Extent::Whole;
    let is_small = head.length.is_some_and(|length| length <= query.cache.range_fetch_bytes_max);
    !is_whole || is_small || query.with(|request| request.field("range").is_none())
}

/// The first range that is not stored.
fn first_missing(stretches: &[Stretch]) -> Option<ByteRange> {
    stretches.iter().find_map(|stretch| match stretch {
        Stretch::Missing(part) => Some(*part),
        Stretch::Held { .. } => None,
    })
}

/// Validation of the lookup result. A range request for a large response must not make the origin send another version
/// in full.
fn validation(query: &Query, found: &LookupResult, conditions: Conditions) -> FetchConditions {
    let is_large = match found {
        LookupResult::Object(object, _) => object.body().len() > query.cache.range_fetch_bytes_max,
        LookupResult::Parts(..) => true,
        LookupResult::Nothing(..) => false,
    };
    let is_range = query.with(|request| request.field("range").is_some());
    FetchConditions::validation(conditions, found.set().cloned(), is_large && is_range && !query.cache.esi)
}

/// Returns whether a request is for a suffix. It arrives last in a fetch of the whole response, and its offset is
/// still unknown.
fn is_suffix(range: &[u8]) -> bool {
    range.split(|&byte| byte == b'=').nth(1).is_some_and(|ranges| trim(ranges).starts_with(b"-"))
}

/// Fetches the whole response for a range request, to store it for later ones, unless too many such fetches are in
/// progress or the response is known to be too large.
fn begin_range_fetch(worker: &ProxyWorker, query: &Query, now: Now) {
    let is_range =
        query.with(|request| request.method == "GET" && request.field("range").is_some_and(|range| !is_suffix(range)));
    if !is_range || query.cache.esi || query.cache.range_fetch_bytes_max == 0 {
        return;
    }
    let Some(store) = worker.store() else { return };
    if store.forwards_ranges(query.key.hash(), now.monotonic_ms) {
        return;
    }
    let client = query.ask.request.with(|request| request.client.map(|client| client.ip()));
    query.range_fetch.replace(worker.accelerator().range_fetches.begin(client, now.monotonic_ms));
}

/// Returns whether a purge matches a response from a shared fetch.
fn is_purged(worker: &ProxyWorker, query: &Query, standing: &FetchState) -> bool {
    let Some(store) = worker.store() else { return false };
    let purged = match standing {
        FetchState::Streaming(head) => store.check_coming(&query.key, &head.meta, head.generation),
        FetchState::Use(object, _) => store.check(object),
        FetchState::Asking | FetchState::Released | FetchState::Failed(_) => Purged::No,
    };
    purged != Purged::No
}

/// Key of a fetch: the cache key, whether the request identifies its visitor, the known variant, and Range.
fn fill_key(query: &Query, found: &LookupResult) -> Vec<u8> {
    let names = match found {
        LookupResult::Nothing(_, names) => query.vary.borrow().clone().or_else(|| names.clone()),
        found => found.object().map(|object| object.meta().stored.vary.clone()),
    };
    let names = names.unwrap_or_else(|| apply_cookie_rules("".into(), &query.cache.rules.cookies));
    let mut key = begin_fill_key(query, &names);
    query.with(|request| {
        // ESI always fetches the whole response.
        let takes_whole = query.cache.esi || query.fetches_whole();
        let ranges: &[&str] = if takes_whole { &[] } else { &["range", "if-range"] };
        for name in ranges {
            if let Some(value) = request.field(name) {
                key.push(0);
                key.extend_from_slice(value);
            }
        }
    });
    key
}

/// Key of a fetch of the range `missing`.
pub(crate) fn stretch_key(query: &Query, set: &PartSet, missing: ByteRange, conditions: &Conditions) -> Vec<u8> {
    let mut key = begin_fill_key(query, &set.whole().vary);
    // No client's Range and If-Range have this form.
    for line in [b"stretch", write_range(missing).as_bytes(), &conditions.0] {
        key.push(0);
        key.extend_from_slice(line);
    }
    key
}

fn begin_fill_key(query: &Query, names: &str) -> Vec<u8> {
    let mut key = query.fetch_prefix();
    // Anonymous requests do not wait for one that identifies its visitor, whose response is less often shareable.
    key.push(u8::from(query.names_visitor));
    query.with(|request| write_variant_key(names, request, &mut key));
    key
}

/// Result of joining or starting a fetch.
enum Joined {
    Answer(Result<Response, Refusal>),
    Standing(FetchState, Note, Interest),
}

async fn begin(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    begun: FetchJoin,
    question: FetchConditions,
    kept: Option<Arc<StoredResponse>>,
    reason: Lookup,
) -> Joined {
    let mut note = Note { reason, fwd: reason.fwd(), fwd_status: None, stored: false, collapsed: false, why: None };
    match begun {
        FetchJoin::Theirs(interest) => {
            note.collapsed = true;
            query.range_fetch.take();
            let standing = poll_fn(|context| interest.poll_standing(context)).await;
            Joined::Standing(standing, note, interest)
        }
        FetchJoin::Yours(writer) => {
            let interest = writer.join();
            let (direct, told) = oneshot::channel();
            let interims = query.ask.request.offers().interims();
            let fetch = Fetch { query: Rc::clone(query), kept: kept.clone(), question, interims: Some(interims) };
            spawn_local(fetch.run(Rc::clone(worker), writer, Some(direct)));
            match told.await {
                Ok(FetchResult::Own(answered, why)) => {
                    Joined::Answer(own_answer(query, *answered, why, note, kept.is_some()))
                }
                // If the task is gone, the fill reports it.
                Ok(FetchResult::Shared) | Err(_) => {
                    let standing = poll_fn(|context| match interest.poll_standing(context) {
                        Poll::Ready(standing) => Poll::Ready(standing),
                        Poll::Pending => Poll::Pending,
                    })
                    .await;
                    Joined::Standing(standing, note, interest)
                }
            }
        }
    }
}

/// The origin's response for the requesting client.
fn own_answer(
    query: &Query,
    answered: Answered,
    why: NoStore,
    mut note: Note,
    had_kept: bool,
) -> Result<Response, Refusal> {
    note.why = Some(why);
    if had_kept && answered.incoming.status >= 500 {
        note.reason = Lookup::ErrorPassed;
    }
    let mut response = pass::answer(query, answered, &note)?;
    response.cache = Some(why.name());
    Ok(response)
}

/// Reason to forward a miss for this client alone: a key marked as uncacheable, or a request with credentials. `None`:
/// the general path decides.
pub(crate) fn asks_alone(
    store: &Store<Meta>,
    request: &CacheRequest<'_>,
    names_visitor: bool,
    (hash, key): (u64, &[u8]),
    rules: &Rules,
    now: Now,
) -> Option<Lookup> {
    let has_credentials = request.field("authorization").is_some();
    let is_marked = store.marker(audience_hash(hash, names_visitor), now.monotonic_ms).is_some();
    if !(is_marked || has_credentials) || request.method != "GET" {
        return None;
    }
    if store.find(hash, key).is_some() || store.may_be_on_disk(key) {
        return None;
    }
    match decide_miss(request, Lookup::MissCold, rules) {
        Verdict::Forward { reason: Lookup::RequestPrecondition } => None,
        Verdict::Forward { .. } if is_marked && !has_credentials => Some(Lookup::HitForMiss),
        Verdict::Forward { reason } => Some(reason),
        _ => None,
    }
}

/// Fetches for one client only.
pub(crate) async fn fetch_alone(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    question: FetchConditions,
    kept: Option<Arc<StoredResponse>>,
    reason: Lookup,
) -> Result<Response, Refusal> {
    let invalidations = worker.accelerator().fills.invalidations();
    let interims = Some(query.ask.request.offers().interims());
    let had_kept = kept.is_some();
    let fetch = Fetch { query: Rc::clone(query), kept, question, interims };
    // Requested by this client itself: most such responses are not shareable, and need no task and no fill.
    let asked = fetch.ask(worker).await;
    answer_alone(worker, fetch, asked, invalidations, reason, had_kept)
}

/// Builds the response to a fetch for one client. `invalidations`: number of invalidations before it.
pub(crate) fn answer_alone(
    worker: &Rc<ProxyWorker>,
    fetch: Fetch,
    asked: Asked,
    invalidations: u64,
    reason: Lookup,
    had_kept: bool,
) -> Result<Response, Refusal> {
    let note = Note { reason, fwd: reason.fwd(), fwd_status: None, stored: false, collapsed: false, why: None };
    let query = &Rc::clone(&fetch.query);
    let fills = &worker.accelerator().fills;
    let missing = not_held;
    match asked {
        Asked::Unshared(answered, why) => own_answer(query, *answered, why, note, had_kept),
        Asked::Settled(FetchState::Failed(refused)) => Err(refused),
        Asked::Settled(FetchState::Use(object, how)) => {
            answer_from(query, ResponseContent::Kept(object), &note.of_use(how), Now::read().unix_s).ok_or_else(missing)
        }
        Asked::Settled(_) => Err(missing()),
        Asked::Shared(answered, stored, generation) => {
            let prefix = query.fetch_prefix();
            let writer = fills.begin_alone(&prefix);
            if fills.is_invalidated_since(invalidations, &prefix) {
                writer.invalidate();
            }
            let interest = writer.join();
            let head = Arc::new(fetch.fill_head(worker, &answered.incoming, &stored, generation));
            let pumping = Rc::clone(worker);
            spawn_local(async move { fetch.pump(&pumping, writer, *answered, *stored, generation, false).await });
            let note = note.of_fill(&head);
            let mut response = answer_from(query, ResponseContent::Coming(head, interest), &note, Now::read().unix_s)
                .ok_or_else(missing)?;
            response.cache = Some(note.stored_as());
            Ok(response)
        }
    }
}

/// Revalidates in the background while the stale response is served, unless a fetch is in progress.
fn revalidate_behind(worker: &Rc<ProxyWorker>, query: &Rc<Query>, found: &LookupResult) {
    let Some(object) = found.object() else { return };
    let FetchJoin::Yours(writer) = worker.accelerator().fills.begin(&fill_key(query, found)) else { return };
    let question = make_conditions(&object.meta().stored)
        .map(|conditions| validation(query, found, conditions))
        .unwrap_or_default();
    let fetch = Fetch { query: Rc::clone(query), kept: Some(Arc::clone(object)), question, interims: None };
    spawn_local(fetch.run(Rc::clone(worker), writer, None));
}

/// Sends a 103 with the links of `stale`, the stored response that `query` selects and that is about to be validated
/// or replaced. There is no other source of links: a response that is not stored, or not for this request, may be
/// private.
fn send_early_hints(query: &Query, stale: &StoredResponse) {
    let stored = &stale.meta().stored;
    // A response that always requires validation is not shared before the origin has validated it.
    if !query.cache.early_hints || !(200..300).contains(&stored.status) || !stored.is_reusable() {
        return;
    }
    // Old HTTP/1.1 clients mistake a 103 for the response; browsers use HTTP/2.
    if query.ask.request.with(|request| request.head.version != flatout_http::framing::Version::Http2) {
        return;
    }
    let mut lines = Vec::new();
    for link in links_in(&stored.lines) {
        write_line(b"Link", link.as_bytes(), &mut lines);
    }
    if !lines.is_empty() {
        query.ask.request.offers().interims().send(InterimResponse { status: 103, lines: lines.into() });
    }
}
