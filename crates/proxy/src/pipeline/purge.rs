//! PURGE, and invalidation by unsafe methods.

use super::fetch::with_response;
use crate::outcome::{ForwardOutcome, only_if_cached};
use crate::query::{FETCH_KEY_END, Query};
use crate::worker::ProxyWorker;
use flatout_cache::invalidate::decide_invalidation;
use flatout_cache::reason::Lookup;
use flatout_cache::tags::{parse_tags, write_group_tag};
use flatout_handler::response::{Body, Head, Response};
use flatout_handler::routed::Refusal;
use flatout_handler::shared::SharedBytes;
use flatout_store::Purge;
use flatout_store::key::locator;
use flatout_upstream::origin::Incoming;
use std::rc::Rc;
use std::sync::Arc;

/// Applies invalidations by the response to an unsafe method (RFC 9111 §4.4).
pub(super) async fn invalidate(worker: &ProxyWorker, query: &Query, incoming: &Incoming, times: (i64, i64)) {
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
    let mut purges: Vec<Purge> = query.with(|request| {
        let tag = |group: &[u8]| {
            let mut tag = Vec::new();
            write_group_tag(request, group, &mut tag);
            Purge::Tag(tag)
        };
        invalidation.groups.iter().map(tag).collect()
    });
    for key in &invalidation.path_keys {
        let key = query.in_realm(key);
        if worker.accelerator().search(|| key.clone()).is_some() {
            purges.push(Purge::Prefix(key[locator(&key)].to_vec()));
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
pub(super) async fn purge(worker: Rc<ProxyWorker>, query: Rc<Query>) -> Result<Response, Refusal> {
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
