//! PURGE requests, and invalidation by unsafe methods.

use super::fetch::with_response;
use crate::accelerator::url_purges;
use crate::outcome::{ForwardOutcome, only_if_cached};
use crate::query::{FETCH_KEY_END, Query};
use crate::worker::ProxyWorker;
use flatout_cache::invalidate::decide_invalidation;
use flatout_cache::reason::Lookup;
use flatout_cache::search::search_prefix;
use flatout_cache::tags::{parse_tags, write_group_tag};
use flatout_handler::response::{Body, Head, Response};
use flatout_handler::routed::Refusal;
use flatout_handler::shared::SharedBytes;
use flatout_store::Purge;
use flatout_store::key::locator;
use flatout_upstream::origin::Incoming;
use std::rc::Rc;
use std::sync::Arc;

/// The invalidations that a request itself has made. They must not apply to the response to the same request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnInvalidation {
    /// Number of invalidations of the request's own key.
    pub(super) keys: usize,
    /// Number of purges.
    purges: u64,
}

impl OwnInvalidation {
    /// Returns the store generation for the response to the request, given the generations before the request was sent
    /// and after the invalidation. If there were other purges, all apply, because their order is unknown.
    pub(super) const fn generation(self, before: u64, after: u64) -> u64 {
        if after == before.saturating_add(self.purges) { after } else { before }
    }
}

/// Applies the invalidations that the response to an unsafe method causes (RFC 9111 §4.4).
pub(super) async fn invalidate(
    worker: &ProxyWorker,
    query: &Query,
    incoming: &Incoming,
    times: (i64, i64),
) -> OwnInvalidation {
    let mut own = OwnInvalidation::default();
    let Some(store) = worker.store() else { return own };
    let invalidation = with_response(incoming, times, |response| {
        query.with(|request| decide_invalidation(request, response.status, &response.fields, &query.cache.rules))
    });
    for key in &invalidation.keys {
        let key = query.in_realm(key);
        let hash = store.hash(&key);
        let mut fetched = key.clone();
        fetched.push(FETCH_KEY_END);
        own.keys += usize::from(fetched == query.fetch_prefix());
        worker.accelerator().fills.invalidate_and_remove(&fetched, || store.remove(hash, &key));
    }
    let mut purges: Vec<Purge> = query.with(|request| {
        let tag = |group: &[u8]| {
            let mut tag = Vec::new();
            write_group_tag(request, group, &mut tag);
            Purge::Tag(tag)
        };
        invalidation.groups.iter().map(tag).collect()
    });
    let prefixes = invalidation.path_keys.iter().map(|key| query.in_realm(key));
    let prefixes: Vec<_> = prefixes
        .filter(|key| worker.accelerator().searches.find(|| key.clone()).is_some())
        .map(|key| Purge::Prefix(search_prefix(&key[locator(&key)])))
        .collect();
    if !prefixes.is_empty() {
        // The fetches in flight have other keys than their responses, which therefore must be purged too.
        purges.extend(invalidation.keys.iter().map(|key| Purge::Key(query.in_realm(key))));
        purges.extend(prefixes);
    }
    own.purges = purges.len() as u64;
    if !purges.is_empty() {
        let store = Arc::clone(store);
        // Searching the index would block the event loop. The response waits for it, so that a client that has received
        // the response is never served an invalidated one.
        let purging = tokio::task::spawn_blocking(move || {
            for purge in &purges {
                let _ = store.purge(purge, false, false);
            }
        });
        // Joining fails only when the runtime shuts down.
        let _ = purging.await;
    }
    own
}

/// Handles PURGE of a URL, or of tags if the request has any.
pub(super) async fn purge(worker: Rc<ProxyWorker>, query: Rc<Query>) -> Result<Response, Refusal> {
    let Some(store) = worker.store().cloned() else { return Err(only_if_cached(Lookup::BypassOff)) };
    let soft =
        query.with(|request| request.field("flatout-purge").is_some_and(|value| value.eq_ignore_ascii_case(b"soft")));
    // Tags have the same fields and limits as in responses.
    let tags = query.with(|request| parse_tags(&request.fields, &query.cache.rules.tag_fields));
    let Some(tags) = tags else { return Err(Refusal::from(ForwardOutcome::PurgeDenied)) };
    let mut purges: Vec<Purge> = tags.iter().map(|tag| Purge::Tag(tag.to_vec())).collect();
    if purges.is_empty() {
        let key = query.plain_key();
        purges = url_purges([key[locator(&key)].to_vec()]);
    }
    let purge = move || purges.iter().map(|purge| store.purge(purge, soft, false).matched).sum::<u64>();
    let matched: u64 = tokio::task::spawn_blocking(purge).await.unwrap_or(0);
    let text = format!("{{\"objects\":{matched},\"soft\":{soft}}}\n");
    let length = text.len().to_string();
    let head = Head::new(200, &[("Content-Type", "application/json"), ("Content-Length", &length)]);
    let body = Body::Bytes(SharedBytes::from(text.into_bytes()));
    Ok(Response::new(200, head, body, ForwardOutcome::Purged))
}

#[cfg(test)]
mod tests {
    use super::OwnInvalidation;

    #[test]
    fn purges_of_others_apply_to_the_response_and_its_own_do_not() {
        let own = OwnInvalidation { keys: 1, purges: 2 };
        assert_eq!(own.generation(5, 7), 7);
        assert_eq!(own.generation(5, 8), 5);
        assert_eq!(OwnInvalidation::default().generation(5, 6), 5);
        assert_eq!(OwnInvalidation::default().generation(5, 5), 5);
    }
}
