//! Responses from the store.

use super::deliver::stored::{PrebuiltResponse, ResponseContent, answer_from, first_ranges_of};
use super::fetch::{Fetch, FetchConditions};
use super::fetch_shared::fill_key;
use super::lookup::{LookupResult, is_superseded, select, validation, verdict_of};
use super::miss::Need;
use super::{Next, Pipeline, Step};
use crate::fill::FetchJoin;
use crate::meta::StoredResponse;
use crate::note::Note;
use crate::query::Query;
use crate::worker::ProxyWorker;
use flatout_cache::decision::Verdict;
use flatout_cache::reason::Lookup;
use flatout_cache::stored::{Extent, Flags};
use flatout_cache::validate::make_conditions;
use flatout_handler::response::Response;
use flatout_os::clock::Now;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::spawn_local;

impl Pipeline {
    /// Step Hit: responds from `found`. If some of its content is no longer available, continues with a miss.
    pub(super) fn hit(&mut self, found: LookupResult, reason: Lookup, revalidate: bool) -> Next {
        if revalidate {
            revalidate_behind(&self.worker, &self.query, &found, reason);
        }
        let note = self.validated.take().unwrap_or_else(|| Note::hit(reason));
        let now_s = Now::read().unix_s;
        match found.content().and_then(|content| answer_from(&self.query, content, &note, now_s)) {
            Some(response) => ControlFlow::Break(Ok(response)),
            None => ControlFlow::Continue(Step::Miss { found, need: Need::new(Lookup::MissPart) }),
        }
    }
}

/// Returns the response to `query` from memory, or `None` if there is none or it cannot be sent without waiting.
pub(super) fn answer_at_once(worker: &Rc<ProxyWorker>, query: &Query, now: Now) -> Option<Response> {
    let store = worker.store()?;
    let bucket = store.find(query.key.hash(), query.key.as_bytes())?;
    let found = select(worker, query, query.search.as_deref(), Some(&bucket));
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
        make_ready(worker, query, &object);
    }
    answer_from(query, ResponseContent::Kept(object), &Note::hit(reason), now.unix_s)
}

/// Prebuilds the response with `object` for later requests, unless it has trailers.
fn make_ready(worker: &ProxyWorker, query: &Query, object: &Arc<StoredResponse>) {
    if object.meta().trailers.is_empty() {
        let via = query.step.settings.via.as_deref();
        let ready = Rc::new(PrebuiltResponse::new(object, via, &query.policy));
        worker.worker_cache.borrow_mut().insert(query.key.hash(), query.key.as_bytes(), ready);
    }
}

/// Revalidates the stored response in the background while it is served stale because of `reason`, unless a fetch is in
/// progress or has just ended, or, if the origin hangs, unless this was done within the last 30 seconds.
fn revalidate_behind(worker: &Rc<ProxyWorker>, query: &Rc<Query>, found: &LookupResult, reason: Lookup) {
    let Some(object) = found.object() else { return };
    let now_ms = Now::read().monotonic_ms;
    let is_unneeded = || {
        is_superseded(worker, query, found)
            || reason == Lookup::HitIfUnreachable && !object.hang().claim_attempt(now_ms, query.step.hang_ms())
    };
    let join = worker.accelerator().fills.begin_unless(&fill_key(query, found), is_unneeded);
    let Some(FetchJoin::Yours(writer)) = join else { return };
    let question = make_conditions(&object.meta().stored)
        .map_or(FetchConditions::NONE, |conditions| validation(query, found, conditions));
    let fetch = Fetch { query: Rc::clone(query), kept: Some(Arc::clone(object)), question, interims: None };
    spawn_local(fetch.run(Rc::clone(worker), writer, None));
}
