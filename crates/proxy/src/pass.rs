//! Forwarding a request and its response without the cache.

use crate::answer::{ResponseContent, whole_answer};
use crate::exchange::{Answered, Hold, Manner, Through, UpstreamRequest, ask_origin};
use crate::fetch::{Fetch, FetchConditions, with_response};
use crate::forward::{Return, Strip, upgrade, write_response_lines};
use crate::meta::StoredResponse;
use crate::note::Note;
use crate::outcome::ForwardOutcome;
use crate::outcome::{not_held, only_if_cached};
use crate::query::{EsiSource, FETCH_KEY_END, Query};
use crate::step::ProxyStep;
use crate::store::Purge;
use crate::worker::ProxyWorker;
use flatout_cache::invalidate::decide_invalidation;
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::storable::{Storing, decide_response};
use flatout_cache::stored::Stored;
use flatout_cache::tags::{parse_tags, write_group_tag};
use flatout_cache::validate::{HeadEffect, decide_head};
use flatout_config::model::FieldOp;
use flatout_http::head::{FieldStorage, Fields};
use flatout_http::lines::{write_changed, write_line};
use flatout_http::status::has_content;
use flatout_net::clock::Now;
use flatout_net::ending::CloseReason;
use flatout_net::origin::{Incoming, OutgoingContent};
use flatout_net::response::{Body, Head, Response};
use flatout_net::routed::Refusal;
use flatout_net::shared::SharedBytes;
use flatout_net::stream::{Duplex, Stream, TunnelStart};
use flatout_reason::Outcome;
use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Forwards a request that bypasses the cache, or whose route has none.
pub(crate) async fn plain(
    worker: Rc<ProxyWorker>,
    step: Arc<ProxyStep>,
    ask: UpstreamRequest,
    changes: Rc<[FieldOp]>,
) -> Result<Response, Refusal> {
    let answered = ask_as_is(&worker, &step, &ask, Manner::default()).await?;
    let outcome = if answered.again { ForwardOutcome::ForwardedAgain } else { ForwardOutcome::Forwarded };
    respond(&step, &ask, &changes, answered, None, outcome.into()).map(|(response, _)| response)
}

/// Forwards a request that the cache classified as uncacheable; applies invalidations by its response.
pub(crate) async fn forward(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    reason: Lookup,
    kept: Option<Arc<StoredResponse>>,
) -> Result<Response, Refusal> {
    let request_time_s = Now::read().unix_s;
    // The same as for fetches: an origin must not see two kinds of requests.
    let mut capability = Vec::new();
    query.cache.write_capability(&mut capability);
    let strip = if query.cache.esi { Strip::RANGE.and(Strip::ENCODING) } else { Strip::default() };
    let manner = Manner { strip, extra: &capability, method: None };
    let answered = ask_as_is(worker, &query.step, &query.ask, manner).await?;
    let times = (request_time_s, Now::read().unix_s);
    let method = query.ask.request.method();
    let mut why = reason_of(reason, method);
    if reason == Lookup::UnsafeMethod {
        let generation = worker.store().map_or(0, |store| store.generation());
        invalidate(worker, query, &answered.incoming, times).await;
        // RFC 9110 §9.3.3: a response to POST may state that it equals a response to GET.
        let storing = with_response(&answered.incoming, times, |response| {
            query.with(|request| decide_response(request, response, &query.cache.rules))
        });
        match storing {
            Storing::Store(stored) => return keep_beside(worker, query, answered, *stored, generation, reason),
            Storing::No(not_stored) | Storing::Remember(not_stored, _) => why = not_stored,
        }
    } else if let Some(kept) = kept.filter(|_| method == "HEAD") {
        update_by_head(worker, query, &kept, &answered.incoming, times);
    }
    worker.note_not_kept(query, why, answered.incoming.status);
    // If the request alone is the reason, its name is more specific.
    let told = (reason == Lookup::UnsafeMethod || why == NoStore::HeadOnly).then_some(why);
    let note = Note { reason, fwd: reason.fwd(), fwd_status: None, stored: false, collapsed: false, why: told };
    let mut response = answer(query, answered, &note)?;
    response.cache = Some(note.detail());
    Ok(response)
}

/// Reason for not storing the response to a request forwarded for `reason`.
fn reason_of(reason: Lookup, method: &str) -> NoStore {
    match reason {
        Lookup::BypassOff => NoStore::Off,
        Lookup::BypassNoStore => NoStore::RequestNoStore,
        Lookup::BypassContent => NoStore::RequestContent,
        Lookup::BypassMethod | Lookup::UnsafeMethod => NoStore::MethodNotCacheable,
        Lookup::BypassCookie | Lookup::BypassMethodOverride | Lookup::BypassUpgrade | Lookup::RequestPrecondition => {
            NoStore::Bypassed
        }
        _ if method == "HEAD" => NoStore::HeadOnly,
        _ => NoStore::Bypassed,
    }
}

/// Stores a response while it is forwarded.
fn keep_beside(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    answered: Answered,
    stored: Stored,
    generation: u64,
    reason: Lookup,
) -> Result<Response, Refusal> {
    let writer = worker.accelerator().fills.begin_alone(&query.fetch_prefix());
    let interest = writer.join();
    let fetch = Fetch { query: Rc::clone(query), kept: None, question: FetchConditions::default(), interims: None };
    let head = Arc::new(fetch.fill_head(worker, &answered.incoming, &stored, generation));
    let note = Note { reason, fwd: reason.fwd(), fwd_status: None, stored: true, collapsed: false, why: None };
    let note = note.of_fill(&head);
    let content = ResponseContent::Coming(head, interest);
    let mut response = whole_answer(query, content, &note, Now::read().unix_s).ok_or_else(not_held)?;
    response.cache = Some(note.stored_as());
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move { fetch.pump(&worker, writer, answered, stored, generation, false).await });
    Ok(response)
}

/// Builds the response to `query` from the origin's.
pub(crate) fn answer(query: &Query, answered: Answered, note: &Note) -> Result<Response, Refusal> {
    let extra = note.lines(None, None, query.shows_status);
    let extra = (!extra.is_empty()).then_some(extra);
    let is_template = query.is_template_here(&answered.incoming);
    // The fields of a template are modified after composition.
    let changes = if is_template { &[][..] } else { &query.changes };
    let outcome = note.reason.into();
    let (response, lines) = respond(&query.step, &query.ask, changes, answered, extra, outcome)?;
    if is_template {
        query.template.replace(Some(EsiSource::Page(lines)));
    }
    Ok(response)
}

/// Sends the client's request with its content.
async fn ask_as_is(
    worker: &Rc<ProxyWorker>,
    step: &Arc<ProxyStep>,
    ask: &UpstreamRequest,
    manner: Manner<'_>,
) -> Result<Answered, Refusal> {
    let offers = ask.request.offers();
    let content = match offers.take_content() {
        Some(content) => OutgoingContent::Content(content),
        // RFC 9110 §8.6: a method that defines a meaning for content sends Content-Length: 0.
        None if matches!(ask.request.method(), "POST" | "PUT" | "PATCH") => OutgoingContent::Bytes(Vec::new().into()),
        None => OutgoingContent::None,
    };
    let interims = offers.interims();
    ask_origin(worker, step, ask, content, manner, Some(&interims)).await
}

/// Builds a client's response, with its field lines, from the origin's.
pub(crate) fn respond(
    step: &Arc<ProxyStep>,
    ask: &UpstreamRequest,
    changes: &[FieldOp],
    answered: Answered,
    extra: Option<Rc<[u8]>>,
    outcome: Outcome,
) -> Result<(Response, Vec<u8>), Refusal> {
    let Answered { mut incoming, hold, .. } = answered;
    let status = incoming.status;
    let is_upgrade = status == 101;
    let to_head = ask.request.method() == "HEAD";
    let mut lines = Vec::with_capacity(incoming.lines().len() + 256);
    {
        let mut storage = FieldStorage::new();
        let fields = incoming.fields(&mut storage);
        if is_upgrade && !agrees(ask, &fields) {
            return Err(Refusal::from(ForwardOutcome::UpgradeInvalid));
        }
        let keep_length = incoming.content_length.is_some() && !is_upgrade && status != 204;
        let keep_upgrade = is_upgrade || status == 426;
        let back = Return { version: incoming.version, keep_length, keep_upgrade, date: None };
        write_lines(step, changes, fields, &back, &mut lines);
    }
    let (body, outcome) = if let Some(origin) = incoming.upgraded.take() {
        let idle_ms = step.settings.timeouts.stream_timeout_ms;
        let start = TunnelStart::new(move |client| Box::pin(tunnel(client, origin, hold, idle_ms)));
        (Body::Tunnel(start), ForwardOutcome::Upgraded.into())
    } else if to_head || !has_content(status) {
        (Body::Empty, outcome)
    } else {
        let declared = incoming.content_length;
        let whole = match incoming.body.whole() {
            Some((whole, None)) => Some(whole.clone()),
            _ => None,
        };
        let body = match whole {
            Some(whole) => {
                if declared.is_none() {
                    write_line(b"Content-Length", whole.len().to_string().as_bytes(), &mut lines);
                }
                if whole.is_empty() { Body::Empty } else { Body::Bytes(whole) }
            }
            None => Body::Stream(Stream::new(Through::new(incoming.body, hold), declared)),
        };
        (body, outcome)
    };
    let mut response = Response::new(status, Head::from_lines(status, &lines), body, outcome);
    response.extra = extra;
    Ok((response, lines))
}

/// Appends the field lines for the client.
pub(crate) fn write_lines(
    step: &ProxyStep,
    changes: &[FieldOp],
    fields: Fields<'_>,
    back: &Return<'_>,
    lines: &mut Vec<u8>,
) {
    // RFC 9110 §6.6.1: a recipient adds Date if it is missing.
    let date = fields.first("date").is_none().then(|| flatout_http::date::format_date(Now::read().unix_s));
    let back = Return { date: date.as_ref(), ..*back };
    if changes.is_empty() {
        write_response_lines(fields, &step.settings, &back, lines);
    } else {
        let mut unchanged = Vec::with_capacity(1024);
        write_response_lines(fields, &step.settings, &back, &mut unchanged);
        write_changed(&unchanged, changes, lines);
    }
}

/// Returns whether a 101 accepts the requested upgrade.
fn agrees(ask: &UpstreamRequest, fields: &Fields<'_>) -> bool {
    let Some(asked) = &ask.upgrade else { return false };
    upgrade::agrees(asked, *fields)
}

/// Relays bytes in both directions until either side closes, or both are idle for `idle_ms`.
async fn tunnel(mut client: Box<dyn Duplex>, origin: Box<dyn Duplex>, mut hold: Hold, idle_ms: u64) -> CloseReason {
    /// Idle checks per timeout.
    const LOOKS: u32 = 8;
    let passed = Rc::new(Cell::new(0_u64));
    let mut origin = Counted { inner: origin, passed: Rc::clone(&passed) };
    let timer = hold.take_client();
    let mut carried = pin!(tokio::io::copy_bidirectional(&mut client, &mut origin));
    let (mut before, mut silent) = (0, 0);
    loop {
        let carried = match &timer {
            Some(timer) => timer.within((idle_ms / u64::from(LOOKS)).max(1), carried.as_mut()).await,
            None => Some(carried.as_mut().await),
        };
        match carried {
            Some(Ok(_)) => return CloseReason::TunnelEnded,
            Some(Err(_)) => return CloseReason::ClientReset,
            None if passed.get() != before => silent = 0,
            None => silent += 1,
        }
        before = passed.get();
        if silent >= LOOKS {
            return CloseReason::TunnelIdle;
        }
    }
}

/// The origin's side of a tunnel, which counts bytes.
struct Counted {
    inner: Box<dyn Duplex>,
    passed: Rc<Cell<u64>>,
}

impl Counted {
    fn count(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = polled {
            self.passed.set(self.passed.get() + *bytes as u64);
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.count(&Poll::Ready(Ok(buffer.filled().len() - before)));
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.count(&polled);
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// Applies the response to a HEAD to the stored response to GET (RFC 9111 §4.3.5).
fn update_by_head(
    worker: &ProxyWorker,
    query: &Query,
    kept: &Arc<StoredResponse>,
    incoming: &Incoming,
    times: (i64, i64),
) {
    let Some(store) = worker.store() else { return };
    let effect = with_response(incoming, times, |response| {
        query.with(|request| decide_head(request, &kept.meta().stored, kept.body().len(), response, &query.cache.rules))
    });
    match effect {
        HeadEffect::Nothing => {}
        HeadEffect::Drop => {
            store.remove_object(kept);
        }
        HeadEffect::Update(stored) => {
            let meta = kept.meta().freshened(*stored);
            let (body, generation) = (kept.body().clone(), kept.generation());
            let lines = Arc::clone(kept.lines());
            let object = StoredResponse::new(kept.key().clone(), kept.variant(), meta, lines, body, generation);
            let _ = store.insert(object, query.cache.rules.variants_max as usize);
        }
    }
}

/// Applies invalidations by the response to an unsafe method (RFC 9111 §4.4).
async fn invalidate(worker: &Rc<ProxyWorker>, query: &Rc<Query>, incoming: &Incoming, times: (i64, i64)) {
    let Some(store) = worker.store() else { return };
    let invalidation = with_response(incoming, times, |response| {
        query.with(|request| decide_invalidation(request, response.status, &response.fields, &query.cache.rules))
    });
    for key in &invalidation.keys {
        let key = query.in_realm(key);
        store.remove(store.hash(&key), &key);
        let mut fetched = key;
        fetched.push(FETCH_KEY_END);
        worker.accelerator().fills.invalidate(&fetched);
    }
    let groups: Vec<Purge> = query.with(|request| {
        let tag = |group: &[u8]| {
            let mut tag = Vec::new();
            write_group_tag(request, group, &mut tag);
            Purge::Tag(tag)
        };
        invalidation.groups.iter().map(tag).collect()
    });
    let mut purges = groups;
    for key in &invalidation.path_keys {
        let key = query.in_realm(key);
        if worker.accelerator().search(|| key.clone()).is_some() {
            purges.push(Purge::Prefix(key[crate::query::locator(&key)].to_vec()));
        }
    }
    if !purges.is_empty() {
        let store = Arc::clone(store);
        // It searches an index, which must not block the event loop. The response waits, so that its recipient never
        // receives an invalidated response.
        let purging = tokio::task::spawn_blocking(move || {
            for purge in &purges {
                let _ = store.purge(purge, false, false);
            }
        });
        // It fails only at the end of the runtime.
        let _ = purging.await;
    }
}

/// Handles PURGE of a URL, or of tags if the request has any.
pub(crate) async fn purge(worker: Rc<ProxyWorker>, query: Query) -> Result<Response, Refusal> {
    let Some(store) = worker.store().cloned() else { return Err(only_if_cached(Lookup::BypassOff)) };
    let soft =
        query.with(|request| request.field("flatout-purge").is_some_and(|value| value.eq_ignore_ascii_case(b"soft")));
    // Tags are named as in responses; more than a response may have count as none.
    let tags = query.with(|request| parse_tags(&request.fields, &query.cache.rules.tag_fields));
    let Some(tags) = tags else { return Err(Refusal::from(ForwardOutcome::PurgeDenied)) };
    let mut purges: Vec<Purge> = tags.iter().map(|tag| Purge::Tag(tag.to_vec())).collect();
    if purges.is_empty() {
        purges.push(Purge::Url(query.key.locator().to_vec()));
    }
    let purge = move || purges.iter().map(|purge| store.purge(purge, soft, false).matched).sum::<u64>();
    let matched: u64 = tokio::task::spawn_blocking(purge).await.unwrap_or(0);
    let text = format!("{{\"objects\":{matched},\"soft\":{soft}}}\n");
    let length = text.len().to_string();
    let head = Head::new(200, &[("Content-Type", "application/json"), ("Content-Length", &length)]);
    let body = Body::Bytes(SharedBytes::from(text.into_bytes()));
    Ok(Response::new(200, head, body, ForwardOutcome::Purged))
}
