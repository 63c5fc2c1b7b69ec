//! Answering from what is kept, and having fetched what is not.

use crate::answer::{Content, Ready, answer_from, first_ranges_of};
use crate::exchange::Answered;
use crate::fetch::{Asked, Direct, Fetch, Question, write_range};
use crate::fill::{Begin, FillHead, Interest, Standing, Use};
use crate::found::{Found, find, select, verdict_of};
use crate::hints::links_in;
use crate::meta::Kept;
use crate::meta::Meta;
use crate::note::Note;
use crate::parts::{PartSet, Stitching, Supply};
use crate::pass;
use crate::query::{Query, audience_hash};
use crate::store::{Purged, Store};
use crate::worker::{ProxyWorker, Refused};
use flatout_cache::decision::{Failure, Verdict, decide_failure, decide_miss, may_share, may_wait};
use flatout_cache::parts::Stretch;
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::request::CacheRequest;
use flatout_cache::rules::Rules;
use flatout_cache::stored::{Extent, Flags};
use flatout_cache::validate::{Conditions, make_conditions};
use flatout_cache::vary::{apply_cookie_rules, matches_variant, write_variant_key};
use flatout_http::lines::write_line;
use flatout_http::ranges::Part;
use flatout_http::token::trim;
use flatout_net::clock::Now;
use flatout_net::content::InterimResponse;
use flatout_net::response::Response;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

/// How often one request may be sent back to the beginning because others' fetches came to nothing it can use.
const ROUNDS_MAX: u32 = 4;

/// The answer to `query` that memory has at once; `None` when something must be waited for.
pub(crate) fn answer_at_once(worker: &Rc<ProxyWorker>, query: &Query, now: Now) -> Option<Response> {
    let store = worker.store()?;
    let bucket = store.find(query.key.hash(), query.key.as_bytes())?;
    let found = select(worker, query, Some(&bucket));
    let Verdict::Serve { reason, .. } = verdict_of(query, &found, now.unix_s) else { return None };
    if let Found::Parts(set, _) = &found {
        let ranges = first_ranges_of(query, set, now.unix_s);
        let is_ready = ranges.iter().all(|(body, _)| body.is_verified());
        return is_ready.then(|| answer_from(query, found.content()?, &Note::hit(reason), now.unix_s)).flatten();
    }
    let Found::Object(object, _) = found else { return None };
    if query.cache.esi && object.meta().stored.flags.any(Flags::ESI) {
        return None;
    }
    if !object.body().is_verified() {
        return None;
    }
    if reason == Lookup::HitFresh && object.meta().stored.extent == Extent::Whole {
        worker.make_ready(query, &object);
    }
    answer_from(query, Content::Kept(object), &Note::hit(reason), now.unix_s)
}

/// Makes heads of `object` for the next who asks; `None` when its response is more than a head and content.
pub(crate) fn ready_of(query: &Query, object: &Arc<Kept>) -> Option<Ready> {
    let via = query.step.settings.via.as_deref();
    object.meta().trailers.is_empty().then(|| Ready::new(object, via, &query.changes, query.changes_id))
}

/// What the rounds of one request have come to.
#[derive(Debug, Default)]
struct Progress {
    /// It waits for nobody's fetch any more.
    alone: bool,
    /// Nor is the origin asked whether something stored still holds, or for a part of it.
    whole: bool,
    /// Why it was forwarded when others' fetch let it go.
    released: Option<Lookup>,
    /// What is said of stored parts that the origin has just confirmed.
    validated: Option<Note>,
}

impl Progress {
    /// What was fetched together does not answer it: the next round asks for all of it, for this request alone.
    fn ask_for_whole(&mut self) {
        (self.alone, self.whole) = (true, true);
    }
}

/// What the origin is asked for.
struct Need {
    /// Why.
    reason: Lookup,
    question: Question,
    /// What goes with requests for missing stretches, where the question is for one.
    completion: Option<Conditions>,
}

/// What became of a look at the store.
enum Look {
    /// What is stored answers.
    Answered(Box<Response>),
    /// The origin must be asked.
    Lacking(Need),
}

/// Answers `query`, whatever that takes.
pub(crate) async fn serve(worker: Rc<ProxyWorker>, query: Rc<Query>) -> Result<Response, Refused> {
    let mut progress = Progress::default();
    for round in 0.. {
        if let Some(answered) = serve_round(&worker, &query, round, &mut progress).await {
            return answered;
        }
        progress.alone |= round >= ROUNDS_MAX;
    }
    Err(Refused::not_held())
}

/// Answers `query` from the store, or has what is missing fetched. `None`: others' fetch came to nothing that it can use, and
/// it must look again.
async fn serve_round(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    round: u32,
    progress: &mut Progress,
) -> Option<Result<Response, Refused>> {
    let now = Now::read();
    query.range_fetch.take();
    let found = find(worker, query).await;
    let need = match look(worker, query, &found, progress, now) {
        Ok(Look::Answered(response)) => return Some(Ok(*response)),
        Ok(Look::Lacking(need)) => need,
        Err(refused) => return Some(Err(refused)),
    };
    let Need { reason, question, completion } = need;
    // What is stored is not for this visitor: neither to be asked about nor to stand in for a failure, and the
    // response to this request says nothing of it.
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
        // What could not be answered from what is kept is not asked about that again; and of several parts, none is
        // an answer by itself.
        let asks_anew = progress.whole || found.set().is_some();
        let (question, object) = if asks_anew { Default::default() } else { (question, object) };
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
        // Its origin was asked before the purge, and this may have begun after it.
        fills.close(&fill_key, &interest);
        return None;
    }
    match (standing, found.set(), stretch) {
        (Standing::Streaming(head), Some(set), Some((missing, conditions))) if set.fits(&head, missing) => {
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

/// Answers `query` from what was found, or says what the origin must be asked.
fn look(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    found: &Found,
    progress: &mut Progress,
    now: Now,
) -> Result<Look, Refused> {
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
            (Lookup::MissPart, Question::default())
        }
        Verdict::Validate { conditions, reason } => (reason, validation(query, found, conditions)),
        Verdict::Complete { stretches, conditions, reason } => {
            let stretch = found.set().zip(first_missing(&stretches));
            let completion = stretch.is_some().then(|| conditions.clone());
            let question = stretch.map(|(set, part)| Question::stretch(set, part, conditions)).unwrap_or_default();
            return Ok(Look::Lacking(Need { reason, question, completion }));
        }
        Verdict::Unsatisfiable { reason } => return Err(Refused::only_if_cached(reason)),
        Verdict::Forward { reason } | Verdict::Serve { reason, .. } | Verdict::ServeStale { reason, .. } => {
            (reason, Question::default())
        }
    };
    Ok(Look::Lacking(Need { reason, question, completion: None }))
}

/// Answers `query` from what its own fetch, or one that it has waited for, came to; `None`: by another round.
fn answer_fetched(
    query: &Query,
    found: &Found,
    (standing, note, interest): (Standing, Note, Interest),
    round: u32,
    progress: &mut Progress,
) -> Option<Result<Response, Refused>> {
    // RFC 9111 §4: what was fetched for another request is this one's only where it may be reused without
    // validation. All who may not have it go on at the same time.
    let is_anothers = note.collapsed && !is_for(query, &standing);
    match standing {
        _ if is_anothers => {
            progress.alone = true;
            progress.released = Some(note.reason);
        }
        Standing::Asking => {}
        Standing::Failed(refused) => return Some(Err(refused)),
        Standing::Released => {
            progress.alone = true;
            progress.released = Some(note.reason);
        }
        // All of them are fresh again by that; what is missing is known next time.
        Standing::Use(_, Use::Validated) if found.set().is_some() && round < ROUNDS_MAX => {
            progress.validated = Some(note.of_use(Use::Validated));
        }
        Standing::Use(object, how) => {
            let content = found.set().map(|_| found.content());
            let content = content.flatten().unwrap_or(Content::Kept(object));
            let response = answer_from(query, content, &note.of_use(how), Now::read().unix_s);
            if let Some(response) = response {
                return Some(Ok(response));
            }
            progress.ask_for_whole();
        }
        // It is in the middle of something too large to wait for.
        Standing::Streaming(head) if note.collapsed && !is_range_near(query, &head) => progress.ask_for_whole(),
        Standing::Streaming(head) => {
            if query.with(|request| matches_variant(request, &head.meta.stored)) {
                let note = note.of_fill(&head);
                let response = answer_from(query, Content::Coming(head, interest), &note, Now::read().unix_s);
                if let Some(mut response) = response {
                    response.cache = Some(note.stored_as());
                    return Some(Ok(response));
                }
                progress.ask_for_whole();
            } else {
                // Another variant: now it is known which fields tell them apart.
                query.vary.replace(Some(head.meta.stored.vary.clone()));
            }
        }
    }
    None
}

/// The answer from stored parts and what is coming of them; `None`: what is coming is another request's alone (RFC 9111 §4).
fn answer_supplied(set: &Rc<PartSet>, supply: Supply, note: Note) -> Option<Response> {
    if note.collapsed && !supply.first.1.meta.stored.is_reusable() {
        return None;
    }
    let query = Rc::clone(&supply.query);
    let content = Content::Parts(Stitching { set: Rc::clone(set), supply: Some(supply) });
    let mut response = answer_from(&query, content, &Note { stored: true, ..note }, Now::read().unix_s)?;
    response.cache = Some("storing");
    Some(response)
}

/// Whether `query`, which waited for another request's fetch, may have what came of it.
fn is_for(query: &Query, standing: &Standing) -> bool {
    let (rules, now_s) = (&query.cache.rules, Now::read().unix_s);
    let shares = |stored| query.with(|request| may_share(request, stored, rules, now_s));
    match standing {
        // Another variant is nothing to share, but tells which fields the response depends on.
        Standing::Streaming(head) => {
            let stored = &head.meta.stored;
            shares(stored) || (stored.is_reusable() && query.with(|request| !matches_variant(request, stored)))
        }
        Standing::Use(object, Use::Validated) => shares(&object.meta().stored),
        Standing::Use(_, Use::ValidatedOnce) => false,
        Standing::Use(object, Use::InsteadOfError) => {
            let stored = &object.meta().stored;
            let verdict = query.with(|request| decide_failure(request, stored, Failure::Unreachable, rules, now_s));
            matches!(verdict, Verdict::ServeStale { .. })
        }
        Standing::Asking | Standing::Released | Standing::Failed(_) => true,
    }
}

/// Whether a range is worth waiting for in a response that is being fetched from its beginning.
fn is_range_near(query: &Query, head: &FillHead) -> bool {
    let is_whole = head.meta.stored.extent == Extent::Whole;
    let is_small = head.length.is_some_and(|length| length <= query.cache.range_fetch_bytes_max);
    !is_whole || is_small || query.with(|request| request.field("range").is_none())
}

/// The first stretch that is not stored.
fn first_missing(stretches: &[Stretch]) -> Option<Part> {
    stretches.iter().find_map(|stretch| match stretch {
        Stretch::Missing(part) => Some(*part),
        Stretch::Held { .. } => None,
    })
}

/// The question whether what was found still holds. A range of something large must not make the origin send all of
/// another version.
fn validation(query: &Query, found: &Found, conditions: Conditions) -> Question {
    let is_large = match found {
        Found::Object(object, _) => object.body().len() > query.cache.range_fetch_bytes_max,
        Found::Parts(..) => true,
        Found::Nothing(..) => false,
    };
    let is_range = query.with(|request| request.field("range").is_some());
    Question::validation(conditions, found.set().cloned(), is_large && is_range && !query.cache.esi)
}

/// Whether a request is for the last bytes alone. They are there last when the whole is fetched from its beginning, and
/// where they lie nobody knows yet.
fn is_suffix(range: &[u8]) -> bool {
    range.split(|&byte| byte == b'=').nth(1).is_some_and(|ranges| trim(ranges).starts_with(b"-"))
}

/// Has the whole response fetched for a request for a range, so that it can be stored and answers the next one: unless too
/// much is fetched so already, or the response is known to be too large.
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

/// Whether a purge names what others have had fetched.
fn is_purged(worker: &ProxyWorker, query: &Query, standing: &Standing) -> bool {
    let Some(store) = worker.store() else { return false };
    let purged = match standing {
        Standing::Streaming(head) => store.check_coming(&query.key, &head.meta, head.generation),
        Standing::Use(object, _) => store.check(object),
        Standing::Asking | Standing::Released | Standing::Failed(_) => Purged::No,
    };
    purged != Purged::No
}

/// What tells one fetch from another: the key, whether the request names its visitor, what is known of the variant, and
/// a Range.
fn fill_key(query: &Query, found: &Found) -> Vec<u8> {
    let names = match found {
        Found::Nothing(_, names) => query.vary.borrow().clone().or_else(|| names.clone()),
        found => found.object().map(|object| object.meta().stored.vary.clone()),
    };
    let names = names.unwrap_or_else(|| apply_cookie_rules("".into(), &query.cache.rules.cookies));
    let mut key = begin_fill_key(query, &names);
    query.with(|request| {
        // Under ESI it is always the whole that is fetched.
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

/// The same of a fetch of what is `missing` of several parts.
pub(crate) fn stretch_key(query: &Query, set: &PartSet, missing: Part, conditions: &Conditions) -> Vec<u8> {
    let mut key = begin_fill_key(query, &set.whole().vary);
    // No client's Range and If-Range read so.
    for line in [b"stretch", write_range(missing).as_bytes(), &conditions.0] {
        key.push(0);
        key.extend_from_slice(line);
    }
    key
}

fn begin_fill_key(query: &Query, names: &str) -> Vec<u8> {
    let mut key = query.fetch_prefix();
    // Nobody who names no visitor waits for one who does, whose response is for others less often.
    key.push(u8::from(query.names_visitor));
    query.with(|request| write_variant_key(names, request, &mut key));
    key
}

/// What became of joining or beginning a fetch.
enum Joined {
    Answer(Result<Response, Refused>),
    Standing(Standing, Note, Interest),
}

async fn begin(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    begun: Begin,
    question: Question,
    kept: Option<Arc<Kept>>,
    reason: Lookup,
) -> Joined {
    let mut note = Note { reason, fwd: reason.fwd(), fwd_status: None, stored: false, collapsed: false, why: None };
    match begun {
        Begin::Theirs(interest) => {
            note.collapsed = true;
            query.range_fetch.take();
            let standing = poll_fn(|context| interest.poll_standing(context)).await;
            Joined::Standing(standing, note, interest)
        }
        Begin::Yours(writer) => {
            let interest = writer.join();
            let (direct, told) = oneshot::channel();
            let interims = query.ask.request.offers().interims();
            let fetch = Fetch { query: Rc::clone(query), kept: kept.clone(), question, interims: Some(interims) };
            spawn_local(fetch.run(Rc::clone(worker), writer, Some(direct)));
            match told.await {
                Ok(Direct::Own(answered, why)) => {
                    Joined::Answer(own_answer(query, *answered, why, note, kept.is_some()))
                }
                // Should the task be gone, the fill says so.
                Ok(Direct::Shared) | Err(_) => {
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

/// The origin's answer for the one who asked.
fn own_answer(
    query: &Query,
    answered: Answered,
    why: NoStore,
    mut note: Note,
    had_kept: bool,
) -> Result<Response, Refused> {
    note.why = Some(why);
    if had_kept && answered.incoming.status >= 500 {
        note.reason = Lookup::ErrorPassed;
    }
    let mut response = pass::answer(query, answered, &note)?;
    response.cache = Some(why.name());
    Ok(response)
}

/// Why the origin is asked at once by this client alone, about a request with this key for which nothing is kept; `None`:
/// there is more to look at. Known are keys whose answers were not for all, and requests with credentials.
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

/// Fetches for nobody else.
pub(crate) async fn fetch_alone(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    question: Question,
    kept: Option<Arc<Kept>>,
    reason: Lookup,
) -> Result<Response, Refused> {
    let dooms = worker.accelerator().fills.dooms();
    let interims = Some(query.ask.request.offers().interims());
    let had_kept = kept.is_some();
    let fetch = Fetch { query: Rc::clone(query), kept, question, interims };
    // Asked by this very client: most such answers are for nobody else, and need no task and no fill.
    let asked = fetch.ask(worker).await;
    answer_alone(worker, fetch, asked, dooms, reason, had_kept)
}

/// What was asked for nobody else, as the answer to its client. `dooms` as they were before.
pub(crate) fn answer_alone(
    worker: &Rc<ProxyWorker>,
    fetch: Fetch,
    asked: Asked,
    dooms: u64,
    reason: Lookup,
    had_kept: bool,
) -> Result<Response, Refused> {
    let note = Note { reason, fwd: reason.fwd(), fwd_status: None, stored: false, collapsed: false, why: None };
    let query = &Rc::clone(&fetch.query);
    let fills = &worker.accelerator().fills;
    let missing = || Refused::not_held();
    match asked {
        Asked::Unshared(answered, why) => own_answer(query, *answered, why, note, had_kept),
        Asked::Settled(Standing::Failed(refused)) => Err(refused),
        Asked::Settled(Standing::Use(object, how)) => {
            answer_from(query, Content::Kept(object), &note.of_use(how), Now::read().unix_s).ok_or_else(missing)
        }
        Asked::Settled(_) => Err(missing()),
        Asked::Shared(answered, stored, generation) => {
            let prefix = query.fetch_prefix();
            let writer = fills.begin_alone(&prefix);
            if fills.is_doomed_since(dooms, &prefix) {
                writer.doom();
            }
            let interest = writer.join();
            let head = Arc::new(fetch.fill_head(worker, &answered.incoming, &stored, generation));
            let pumping = Rc::clone(worker);
            spawn_local(async move { fetch.pump(&pumping, writer, *answered, *stored, generation, false).await });
            let note = note.of_fill(&head);
            let mut response =
                answer_from(query, Content::Coming(head, interest), &note, Now::read().unix_s).ok_or_else(missing)?;
            response.cache = Some(note.stored_as());
            Ok(response)
        }
    }
}

/// Has a new answer fetched while the old one is served, unless somebody does so already.
fn revalidate_behind(worker: &Rc<ProxyWorker>, query: &Rc<Query>, found: &Found) {
    let Some(object) = found.object() else { return };
    let Begin::Yours(writer) = worker.accelerator().fills.begin(&fill_key(query, found)) else { return };
    let question = make_conditions(&object.meta().stored)
        .map(|conditions| validation(query, found, conditions))
        .unwrap_or_default();
    let fetch = Fetch { query: Rc::clone(query), kept: Some(Arc::clone(object)), question, interims: None };
    spawn_local(fetch.run(Rc::clone(worker), writer, None));
}

/// Sends a 103 with the links of `stale`, the stored response that `query` selects and that is about to be validated or
/// replaced. There is no other source: what is not stored, or not for this request, belongs to another visitor.
fn send_early_hints(query: &Query, stale: &Kept) {
    let stored = &stale.meta().stored;
    // A response that is never served without validation is shared with nobody before the origin has validated it.
    if !query.cache.early_hints || !(200..300).contains(&stored.status) || !stored.is_reusable() {
        return;
    }
    // Old clients of HTTP/1.1 take a 103 for the response; browsers send requests by HTTP/2.
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
