//! Lookup of stored responses, first in memory, then on disk.

use super::deliver::stored::{ResponseContent, first_ranges, first_ranges_of};
use super::fetch::FetchConditions;
use super::miss::Need;
use super::{LOOKUPS_MAX, Next, Pipeline, Step};
use crate::meta::{Meta, StoredResponse};
use crate::outcome::only_if_cached;
use crate::parts::{PartSet, Stitching};
use crate::query::Query;
use crate::searches::{SearchRule, is_allowed};
use crate::worker::ProxyWorker;
use flatout_cache::decision::{Verdict, decide_miss, decide_stored};
use flatout_cache::parts::Stretch;
use flatout_cache::reason::Lookup;
use flatout_cache::validate::Conditions;
use flatout_cache::vary::{has_cookie_rules, matches_language, write_variant_key};
use flatout_http::ranges::ByteRange;
use flatout_os::clock::Now;
use flatout_store::{Bucket, Purged, Store};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

/// Result of a lookup.
pub(crate) enum LookupResult {
    /// The stored response of the matching variant, and its purge state.
    Object(Arc<StoredResponse>, Purged),
    /// Parts of the matching variant, and their purge state.
    Parts(Rc<PartSet>, Purged),
    /// A miss: its reason, and the names in Vary of a stored variant.
    Nothing(Lookup, Option<Box<str>>),
}

/// Selects the variant in `bucket` that matches `query`. `rule` is the rule by which the bucket's key was written.
pub(crate) fn select(
    worker: &ProxyWorker,
    query: &Query,
    rule: Option<&SearchRule>,
    bucket: Option<&Bucket<Meta>>,
) -> LookupResult {
    let (Some(bucket), Some(store)) = (bucket, worker.store()) else {
        return LookupResult::Nothing(Lookup::MissCold, None);
    };
    let mut missed = Lookup::MissVary;
    let mut variant = Vec::new();
    let mut names: Option<&str> = None;
    let cookies = &query.cache.rules.cookies;
    // Skip responses stored under other cookie rules: a response stored before a cookie became part of the variant key
    // may depend on any value of the cookie.
    let allowed = || bucket.objects().iter().filter(|object| is_allowed(rule, &object.meta().stored));
    for object in allowed().filter(|object| has_cookie_rules(&object.meta().stored.vary, cookies)) {
        let stored = &object.meta().stored;
        if names != Some(&stored.vary) {
            variant.clear();
            query.with(|request| write_variant_key(&stored.vary, request, &mut variant));
            names = Some(&stored.vary);
        }
        if *stored.variant_key != *variant {
            continue;
        }
        match store.check(object) {
            Purged::Hard => missed = Lookup::MissPurged,
            purged => {
                object.touch();
                return match gather(store, query, object, allowed()) {
                    Some(set) => LookupResult::Parts(Rc::new(set), purged),
                    None => LookupResult::Object(Arc::clone(object), purged),
                };
            }
        }
    }
    if query.cache.rules.language_select {
        let speaks = |object: &&Arc<StoredResponse>| {
            store.check(object) == Purged::No && query.with(|request| matches_language(request, &object.meta().stored))
        };
        if let Some(object) = allowed().find(speaks) {
            return LookupResult::Object(Arc::clone(object), Purged::No);
        }
    }
    LookupResult::Nothing(missed, allowed().next().map(|object| object.meta().stored.vary.clone()))
}

/// Collects the parts among `others` that can be combined with `newest`, the newest part of the variant. Returns `None` if
/// `newest` is not a part or cannot be combined.
fn gather<'a>(
    store: &Store<Meta>,
    query: &Query,
    newest: &Arc<StoredResponse>,
    others: impl Iterator<Item = &'a Arc<StoredResponse>>,
) -> Option<PartSet> {
    // Templates are always stored whole.
    if !newest.is_part() || query.cache.esi || query.ask.request.method() != "GET" {
        return None;
    }
    PartSet::gather(store, newest, others)
}

/// Decides how to handle `query`, given a lookup result.
pub(crate) fn verdict_of(query: &Query, found: &LookupResult, now_s: i64) -> Verdict {
    let rules = &query.cache.rules;
    match found {
        LookupResult::Nothing(reason, _) => query.with(|request| decide_miss(request, *reason, rules)),
        LookupResult::Object(object, Purged::Soft) => {
            let stored = object.meta().stored.expired(now_s);
            query.with(|request| decide_stored(request, &stored, rules, now_s))
        }
        LookupResult::Object(object, _) => {
            query.with(|request| decide_stored(request, &object.meta().stored, rules, now_s))
        }
        LookupResult::Parts(set, purged) => {
            query.with(|request| set.decide(request, *purged == Purged::Soft, rules, now_s))
        }
    }
}

impl LookupResult {
    /// Returns the stored response whose metadata applies.
    pub(crate) fn object(&self) -> Option<&Arc<StoredResponse>> {
        match self {
            Self::Object(object, _) => Some(object),
            Self::Parts(set, _) => Some(set.newest()),
            Self::Nothing(..) => None,
        }
    }

    /// Returns the combinable parts, if the result consists of parts.
    pub(crate) fn set(&self) -> Option<&Rc<PartSet>> {
        match self {
            Self::Parts(set, _) => Some(set),
            Self::Object(..) | Self::Nothing(..) => None,
        }
    }

    /// Returns the stored content.
    pub(crate) fn content(&self) -> Option<ResponseContent> {
        match self {
            Self::Object(object, _) => Some(ResponseContent::Kept(Arc::clone(object))),
            Self::Parts(set, _) => Some(ResponseContent::Parts(Stitching { set: Rc::clone(set), supply: None })),
            Self::Nothing(..) => None,
        }
    }
}

impl Pipeline {
    /// Step Lookup: continues with a hit, or with a miss and the upstream request that it needs.
    pub(super) async fn look_up(&mut self) -> Next {
        self.alone |= self.lookups >= LOOKUPS_MAX;
        self.lookups = self.lookups.saturating_add(1);
        let now_s = Now::read().unix_s;
        let query = &self.query;
        query.range_fetch.take();
        let found = find(&self.worker, query).await;
        let mut completion = None;
        let (reason, question) = match verdict_of(query, &found, now_s) {
            Verdict::Serve { reason, .. } if found.object().is_some() => {
                return ControlFlow::Continue(Step::Hit { found, reason, revalidate: false });
            }
            Verdict::ServeStale { reason, revalidate, .. } if found.object().is_some() => {
                return ControlFlow::Continue(Step::Hit { found, reason, revalidate });
            }
            Verdict::Validate { conditions, reason } => (reason, validation(query, &found, conditions)),
            Verdict::Complete { stretches, conditions, reason } => match found.set().zip(first_missing(&stretches)) {
                Some((set, part)) => {
                    completion = Some(conditions.clone());
                    (reason, FetchConditions::stretch(set, part, conditions))
                }
                None => (reason, FetchConditions::NONE),
            },
            Verdict::Unsatisfiable { reason } => return ControlFlow::Break(Err(only_if_cached(reason))),
            Verdict::Forward { reason } | Verdict::Serve { reason, .. } | Verdict::ServeStale { reason, .. } => {
                (reason, FetchConditions::NONE)
            }
        };
        ControlFlow::Continue(Step::Miss { found, need: Need { reason, question, completion } })
    }
}

/// Returns the first missing range.
fn first_missing(stretches: &[Stretch]) -> Option<ByteRange> {
    stretches.iter().find_map(|stretch| match stretch {
        Stretch::Missing(part) => Some(*part),
        Stretch::Held { .. } => None,
    })
}

/// Returns the conditions that validate the lookup result. A range request for a large response includes its Range, so
/// that the origin does not send all of a new version.
pub(super) fn validation(query: &Query, found: &LookupResult, conditions: Conditions) -> FetchConditions {
    let is_large = match found {
        LookupResult::Object(object, _) => object.body().len() > query.cache.range_fetch_bytes_max,
        LookupResult::Parts(..) => true,
        LookupResult::Nothing(..) => false,
    };
    let is_range = query.with(|request| request.field("range").is_some());
    FetchConditions::validation(conditions, found.set().cloned(), is_large && is_range && !query.cache.esi)
}

/// Looks up the stored response for `query` in memory, then on disk.
async fn find(worker: &Rc<ProxyWorker>, query: &Query) -> LookupResult {
    let Some(store) = worker.store() else { return LookupResult::Nothing(Lookup::MissCold, None) };
    let rule = query.search.as_deref();
    let found = find_under(worker, query, (query.key.hash(), query.key.as_bytes(), rule)).await;
    if rule.is_none() || found.object().is_some() {
        return found;
    }
    // A response without No-Vary-Search is stored under the ordinary key.
    let key = query.plain_key();
    match Box::pin(find_under(worker, query, (store.hash(&key), &key, None))).await {
        LookupResult::Nothing(..) => found,
        plain => plain,
    }
}

/// Looks up the stored response for `query` under a key, which was written by `rule`.
async fn find_under(
    worker: &Rc<ProxyWorker>,
    query: &Query,
    (hash, key, rule): (u64, &[u8], Option<&SearchRule>),
) -> LookupResult {
    let Some(store) = worker.store() else { return LookupResult::Nothing(Lookup::MissCold, None) };
    let bucket = store.find(hash, key);
    let found = select(worker, query, rule, bucket.as_deref());
    let asks_disk = match (&found, &bucket) {
        (LookupResult::Object(..), _) | (LookupResult::Parts(..), None) => false,
        (LookupResult::Parts(set, _), Some(bucket)) => bucket.is_partial() && !is_enough(query, set),
        (LookupResult::Nothing(..), Some(bucket)) => bucket.is_partial(),
        (LookupResult::Nothing(..), None) => true,
    };
    if asks_disk && let Some(lookup) = store.find_on_disk(hash, key) {
        let bucket = lookup.await;
        return verified(query, select(worker, query, rule, bucket.as_deref())).await;
    }
    verified(query, found).await
}

/// Returns whether the parts in memory suffice for `query`.
fn is_enough(query: &Query, set: &PartSet) -> bool {
    let verdict = query.with(|request| set.decide(request, false, &query.cache.rules, Now::read().unix_s));
    !matches!(verdict, Verdict::Complete { .. } | Verdict::Forward { reason: Lookup::MissPart })
}

/// Returns whether memory holds another response for `query` than `found`, the result of its lookup: another request may
/// have stored it since.
pub(super) fn is_superseded(worker: &ProxyWorker, query: &Query, found: &LookupResult) -> bool {
    // Parts are combined with those on disk by every lookup. Damaged content is what memory still holds.
    if matches!(found, LookupResult::Parts(..) | LookupResult::Nothing(Lookup::MissCorrupt, _)) {
        return false;
    }
    let Some(store) = worker.store() else { return false };
    let bucket = store.find(query.key.hash(), query.key.as_bytes());
    match select(worker, query, query.search.as_deref(), bucket.as_deref()) {
        LookupResult::Object(object, _) => found.object().is_none_or(|old| !Arc::ptr_eq(old, &object)),
        LookupResult::Parts(..) | LookupResult::Nothing(..) => false,
    }
}

/// Verifies the content of a lookup result that has not been verified since it was read from disk. Returns the result
/// if the content is intact, otherwise a miss.
async fn verified(query: &Query, found: LookupResult) -> LookupResult {
    let now_s = Now::read().unix_s;
    let is_intact = match &found {
        LookupResult::Object(object, _) if !object.body().is_verified() => {
            object.body().verify(first_ranges(query, object, now_s)).await
        }
        LookupResult::Parts(set, _) => {
            let mut is_intact = true;
            for (body, range) in first_ranges_of(query, set, now_s) {
                is_intact &= body.verify([range]).await;
            }
            is_intact
        }
        LookupResult::Object(..) | LookupResult::Nothing(..) => true,
    };
    if is_intact { found } else { LookupResult::Nothing(Lookup::MissCorrupt, None) }
}
