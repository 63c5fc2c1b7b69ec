//! Fetches on behalf of a single client.

use super::Pipeline;
use super::deliver::{
    self,
    stored::{ResponseContent, answer_from},
};
use super::fetch::{Asked, Fetch, FetchConditions};
use crate::exchange::Answered;
use crate::fill::FetchState;
use crate::meta::{Meta, StoredResponse};
use crate::note::Note;
use crate::outcome::not_held;
use crate::query::{Query, audience_hash};
use crate::worker::ProxyWorker;
use flatout_cache::decision::{Verdict, decide_miss};
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::request::CacheRequest;
use flatout_cache::rules::Rules;
use flatout_handler::response::Response;
use flatout_handler::routed::Refusal;
use flatout_os::clock::Now;
use flatout_store::Store;
use std::rc::Rc;
use std::sync::Arc;

/// Returns the reason to fetch a miss for this client alone, because its key is marked as hit-for-miss or the request
/// has credentials. Returns `None` if the pipeline must decide.
pub(super) fn asks_alone(
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

impl Pipeline {
    /// Step FetchAlone: fetches within the request's own task. Most responses to such requests cannot be shared, so
    /// they need no separate task and no fill.
    pub(super) async fn fetch_alone(
        &self,
        reason: Lookup,
        question: FetchConditions,
        kept: Option<Arc<StoredResponse>>,
    ) -> Result<Response, Refusal> {
        let fills = &self.worker.accelerator().fills;
        let invalidations = self.query.ask.mark.get().map_or_else(|| fills.invalidations(), |mark| mark.invalidations);
        let interims = Some(self.query.ask.request.offers().interims());
        let fetch = Fetch { query: Rc::clone(&self.query), kept, question, interims };
        let asked = fetch.ask(&self.worker).await;
        respond(&self.worker, fetch, asked, invalidations, reason)
    }
}

/// Builds the response from the result of a fetch for one client. `invalidations` is the number of invalidations before
/// the request was sent.
fn respond(
    worker: &Rc<ProxyWorker>,
    fetch: Fetch,
    asked: Asked,
    invalidations: u64,
    reason: Lookup,
) -> Result<Response, Refusal> {
    let note = Note::forwarded(reason);
    let query = &Rc::clone(&fetch.query);
    match asked {
        Asked::Unshared(answered, why) => respond_unstored(query, *answered, why, note, fetch.kept.is_some()),
        Asked::Settled(FetchState::Failed(refused)) => Err(refused),
        Asked::Settled(FetchState::Use(object, how)) => {
            answer_from(query, ResponseContent::Kept(object), &note.of_use(how), Now::read().unix_s)
                .ok_or_else(not_held)
        }
        Asked::Settled(_) => Err(not_held()),
        Asked::Shared(answered, stored, generation) => {
            let (head, interest) = fetch.stream(worker, *answered, *stored, generation, (invalidations, 0));
            let (note, storage) = (note.of_fill(&head), head.storage.logged.clone());
            let mut response = answer_from(query, ResponseContent::Coming(head, interest), &note, Now::read().unix_s)
                .ok_or_else(not_held)?;
            response.logged.cache = Some(storage);
            Ok(response)
        }
    }
}

/// Builds the client's response from the origin's response, which is not stored because of `why`.
pub(super) fn respond_unstored(
    query: &Query,
    answered: Answered,
    why: NoStore,
    note: Note,
    had_kept: bool,
) -> Result<Response, Refusal> {
    let is_error = had_kept && answered.incoming.status >= 500;
    let reason = if is_error { Lookup::ErrorPassed } else { note.reason };
    let mut response = deliver::respond_to(query, answered, &Note { reason, why: Some(why), ..note })?;
    response.logged.cache = Some(why.name().into());
    Ok(response)
}
