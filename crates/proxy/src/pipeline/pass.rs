//! Requests forwarded without the cache.

use super::Pipeline;
use super::buffer::buffered;
use super::deliver::{
    self,
    stored::{ResponseContent, answer_from, whole_answer},
};
use super::fetch::{Fetch, FetchConditions, is_revoked, may_stand_in, with_response};
use super::purge::{OwnInvalidation, invalidate};
use crate::exchange::{Answered, Manner, SendMark, UpstreamRequest, ask_origin};
use crate::fill::Use;
use crate::forward::{Strip, forwarded_trailers};
use crate::meta::StoredResponse;
use crate::note::Note;
use crate::outcome::{ForwardOutcome, not_held, origin_failed};
use crate::query::Query;
use crate::step::ProxyStep;
use crate::worker::ProxyWorker;
use flatout_cache::decision::OriginFailureKind;
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::storable::{Storing, decide_response};
use flatout_cache::stored::Stored;
use flatout_cache::validate::{HeadEffect, decide_head};
use flatout_handler::response::Response;
use flatout_handler::routed::{HeaderPolicy, Refusal};
use flatout_os::clock::Now;
use flatout_upstream::origin::{Incoming, OriginFailure, OutgoingContent};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Forwards a request for which no cache is configured.
pub(super) async fn plain(
    worker: Rc<ProxyWorker>,
    step: Arc<ProxyStep>,
    ask: UpstreamRequest,
    policy: Rc<HeaderPolicy>,
) -> Result<Response, Refusal> {
    let answered = ask_as_is(&worker, &step, &ask, Manner::default()).await?;
    let outcome = if answered.again { ForwardOutcome::ForwardedAgain } else { ForwardOutcome::Forwarded };
    deliver::respond(&step, &ask, &policy.fields, answered, None, outcome.into()).map(|(response, _)| response)
}

impl Pipeline {
    /// Step Pass: forwards a request that bypasses the cache, and applies the invalidations that its response causes.
    pub(super) async fn pass(&self, reason: Lookup, kept: Option<Arc<StoredResponse>>) -> Result<Response, Refusal> {
        let (worker, query) = (&self.worker, &self.query);
        let mark = SendMark::read(worker, Now::read().unix_s);
        // Modify the request in the same way as for fetches, so that the origin does not distinguish the two.
        let mut capability = Vec::new();
        query.cache.write_capability(&mut capability);
        let strip = if query.cache.esi { Strip::RANGE.and(Strip::ENCODING) } else { Strip::default() };
        let manner = Manner { strip, extra: &capability, method: None };
        let asked = ask_as_is(worker, &query.step, &query.ask, manner).await;
        if let Some(response) = kept.as_ref().and_then(|kept| self.serve_instead(kept, &asked, mark, reason)) {
            return Ok(response);
        }
        let answered = asked?;
        let times = (mark.unix_s, Now::read().unix_s);
        let method = query.ask.request.method();
        let mut why = reason_of(reason, method);
        if reason == Lookup::UnsafeMethod {
            let own = invalidate(worker, query, &answered.incoming, times).await;
            // RFC 9110 §9.3.3: a response to POST may state that it equals a response to GET.
            let storing = with_response(&answered.incoming, times, |response| {
                query.with(|request| decide_response(request, response, &query.cache.rules))
            });
            match storing {
                Storing::Store(stored) => return keep_beside(worker, query, answered, *stored, (mark, own), reason),
                Storing::No(not_stored) | Storing::Remember(not_stored, _) => why = not_stored,
            }
        } else if let Some(kept) = kept.filter(|_| method == "HEAD") {
            update_by_head(worker, query, &kept, &answered.incoming, mark);
        }
        worker.note_not_kept(query, why, answered.incoming.status);
        // In other cases, the lookup reason is more specific.
        let told = (reason == Lookup::UnsafeMethod || why == NoStore::HeadOnly).then_some(why);
        let note = Note { why: told, ..Note::forwarded(reason) };
        let mut response = deliver::respond_to(query, answered, &note)?;
        response.logged.cache = Some(note.detail().into());
        Ok(response)
    }

    /// Responds to HEAD with the stored response `kept` instead of an error, if that is allowed. `mark` is the state before
    /// the request was sent.
    fn serve_instead(
        &self,
        kept: &Arc<StoredResponse>,
        asked: &Result<Answered, Refusal>,
        mark: SendMark,
        reason: Lookup,
    ) -> Option<Response> {
        let (worker, query) = (&self.worker, &self.query);
        let failure = match asked {
            Ok(answered) if answered.incoming.status < 500 => return None,
            Ok(answered) => OriginFailureKind::Status(answered.incoming.status),
            Err(_) => OriginFailureKind::Unreachable,
        };
        let is_allowed = query.ask.request.method() == "HEAD"
            && may_stand_in(query, kept, &kept.meta().stored, failure)
            && !is_revoked(worker, query, kept, mark.invalidations);
        let note = Note::forwarded(reason).of_use(Use::InsteadOfError);
        let content = is_allowed.then(|| ResponseContent::Kept(Arc::clone(kept)))?;
        answer_from(query, content, &note, Now::read().unix_s)
    }
}

/// Returns the reason for not storing the response to a request forwarded because of `reason`.
fn reason_of(reason: Lookup, method: &str) -> NoStore {
    match reason {
        Lookup::BypassOff => NoStore::Off,
        Lookup::BypassNoStore => NoStore::RequestNoStore,
        Lookup::BypassContent => NoStore::RequestContent,
        Lookup::BypassMethod | Lookup::UnsafeMethod => NoStore::MethodNotCacheable,
        Lookup::BypassCookie | Lookup::BypassOverride | Lookup::BypassUpgrade | Lookup::RequestPrecondition => {
            NoStore::Bypassed
        }
        _ if method == "HEAD" => NoStore::HeadOnly,
        _ => NoStore::Bypassed,
    }
}

/// Stores a response while it is forwarded. `own` is what the request has invalidated, and `mark` the state before it
/// was sent.
fn keep_beside(
    worker: &Rc<ProxyWorker>,
    query: &Rc<Query>,
    answered: Answered,
    stored: Stored,
    (mark, own): (SendMark, OwnInvalidation),
    reason: Lookup,
) -> Result<Response, Refusal> {
    let fetch = Fetch { query: Rc::clone(query), kept: None, question: FetchConditions::NONE, interims: None };
    let generation = own.generation(mark.generation, worker.store().map_or(0, |store| store.generation()));
    let (head, interest) = fetch.stream(worker, answered, stored, generation, (mark.invalidations, own.keys));
    let (note, storage) = (Note::forwarded(reason).of_fill(&head), head.storage.logged.clone());
    let content = ResponseContent::Coming(head, interest);
    let mut response = whole_answer(query, content, &note, Now::read().unix_s).ok_or_else(not_held)?;
    response.logged.cache = Some(storage);
    Ok(response)
}

/// Sends the client's request to an origin, with its content.
async fn ask_as_is(
    worker: &Rc<ProxyWorker>,
    step: &Arc<ProxyStep>,
    ask: &UpstreamRequest,
    manner: Manner<'_>,
) -> Result<Answered, Refusal> {
    let offers = ask.request.offers();
    let taken = offers.take_content_up_to(step.settings.content_bytes_max);
    let mut buffer_failed: Option<Rc<Cell<bool>>> = None;
    let content = match taken.map_err(|_| origin_failed(OriginFailure::ContentTooLarge))? {
        Some(content) => {
            let has_failed = buffer_failed.insert(Rc::default());
            let selection = (&**step, ask.preference);
            let content = if ask.upgrade.is_none() { buffered(selection, content, has_failed).await? } else { content };
            let step = Arc::clone(step);
            let filter = move |lines: &[u8]| forwarded_trailers(lines, &step.settings.request_fields);
            OutgoingContent::Content(content.with_trailer_filter(filter))
        }
        // RFC 9110 §8.6: send Content-Length: 0 if the method defines a meaning for content.
        None if matches!(ask.request.method(), "POST" | "PUT" | "PATCH") => OutgoingContent::Bytes(Vec::new().into()),
        None => OutgoingContent::None,
    };
    let interims = offers.interims();
    let asked = ask_origin(worker, step, ask, content, manner, Some(&interims)).await;
    // To the upload, it looks as if the client had not sent all of the content.
    let has_failed = buffer_failed.is_some_and(|has_failed| has_failed.get());
    asked.map_err(|refusal| if has_failed { ForwardOutcome::BufferFailed.into() } else { refusal })
}

/// Updates or drops the stored response to GET according to a response to HEAD (RFC 9111 §4.3.5). Does nothing if the
/// stored response has been replaced or invalidated since `mark` was read, before the request was sent.
fn update_by_head(
    worker: &ProxyWorker,
    query: &Query,
    kept: &Arc<StoredResponse>,
    incoming: &Incoming,
    mark: SendMark,
) {
    let Some(store) = worker.store() else { return };
    let prefix = query.fetch_prefix();
    let is_invalidated = || worker.accelerator().fills.is_invalidated_since(mark.invalidations, &prefix);
    if kept.is_replaced() || is_invalidated() {
        return;
    }
    let times = (mark.unix_s, Now::read().unix_s);
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
            let (object, _) = store.insert(object, query.cache.rules.variants_max as usize);
            // The response may have been invalidated between the check above and the insertion.
            if is_invalidated() {
                store.remove_object(&object);
            }
        }
    }
}
