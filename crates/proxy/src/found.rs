//! What is stored for a request: in memory, then on disks.

use crate::answer::{Content, first_ranges, first_ranges_of};
use crate::meta::{Kept, Meta};
use crate::parts::{PartSet, Stitching};
use crate::query::Query;
use crate::store::{Bucket, Purged, Store};
use crate::worker::ProxyWorker;
use flatout_cache::decision::{Verdict, decide_miss, decide_stored};
use flatout_cache::reason::Lookup;
use flatout_cache::vary::{has_cookie_rules, matches_language, write_variant_key};
use flatout_net::clock::Now;
use std::rc::Rc;
use std::sync::Arc;

/// What a look-up found.
pub(crate) enum Found {
    /// This variant, and whether it is stale only because of a purge.
    Object(Arc<Kept>, Purged),
    /// Parts of this variant, and whether they are stale only because of a purge.
    Parts(Rc<PartSet>, Purged),
    /// Nothing, why, and what the variants that are there say in Vary.
    Nothing(Lookup, Option<Box<str>>),
}

/// The variant of `bucket` that is for `query`.
pub(crate) fn select(worker: &ProxyWorker, query: &Query, bucket: Option<&Bucket<Meta>>) -> Found {
    let (Some(bucket), Some(store)) = (bucket, worker.store()) else { return Found::Nothing(Lookup::MissCold, None) };
    let mut missed = Lookup::MissVary;
    let mut variant = Vec::new();
    let mut names: Option<&str> = None;
    let cookies = &query.cache.rules.cookies;
    // What was stored before a cookie became part of the variant key may be for any value of it.
    for object in bucket.objects().iter().filter(|object| has_cookie_rules(&object.meta().stored.vary, cookies)) {
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
                return match gather(store, query, object, bucket) {
                    Some(set) => Found::Parts(Rc::new(set), purged),
                    None => Found::Object(Arc::clone(object), purged),
                };
            }
        }
    }
    if query.cache.rules.language_select {
        let speaks = |object: &&Arc<Kept>| {
            store.check(object) == Purged::No && query.with(|request| matches_language(request, &object.meta().stored))
        };
        if let Some(object) = bucket.objects().iter().find(speaks) {
            return Found::Object(Arc::clone(object), Purged::No);
        }
    }
    Found::Nothing(missed, bucket.objects().first().map(|object| object.meta().stored.vary.clone()))
}

/// The parts that `newest`, the first of its variant, can be combined with; `None` when it stands alone.
fn gather(store: &Store<Meta>, query: &Query, newest: &Arc<Kept>, bucket: &Bucket<Meta>) -> Option<PartSet> {
    // A page that is put together is never a part.
    if !newest.is_part() || query.cache.esi || query.ask.request.method() != "GET" {
        return None;
    }
    PartSet::gather(store, newest, bucket.objects().iter())
}

/// What the cache core says of what was found.
pub(crate) fn verdict_of(query: &Query, found: &Found, now_s: i64) -> Verdict {
    let rules = &query.cache.rules;
    match found {
        Found::Nothing(reason, _) => query.with(|request| decide_miss(request, *reason, rules)),
        Found::Object(object, Purged::Soft) => {
            let stored = object.meta().stored.expired(now_s);
            query.with(|request| decide_stored(request, &stored, rules, now_s))
        }
        Found::Object(object, _) => query.with(|request| decide_stored(request, &object.meta().stored, rules, now_s)),
        Found::Parts(set, purged) => query.with(|request| set.decide(request, *purged == Purged::Soft, rules, now_s)),
    }
}

impl Found {
    /// The stored response whose metadata counts.
    pub(crate) fn object(&self) -> Option<&Arc<Kept>> {
        match self {
            Self::Object(object, _) => Some(object),
            Self::Parts(set, _) => Some(set.newest()),
            Self::Nothing(..) => None,
        }
    }

    /// The parts, where there may be several.
    pub(crate) fn set(&self) -> Option<&Rc<PartSet>> {
        match self {
            Self::Parts(set, _) => Some(set),
            Self::Object(..) | Self::Nothing(..) => None,
        }
    }

    /// The content that is stored.
    pub(crate) fn content(&self) -> Option<Content> {
        match self {
            Self::Object(object, _) => Some(Content::Kept(Arc::clone(object))),
            Self::Parts(set, _) => Some(Content::Parts(Stitching { set: Rc::clone(set), supply: None })),
            Self::Nothing(..) => None,
        }
    }
}

/// Looks in memory, then on disks.
pub(crate) async fn find(worker: &Rc<ProxyWorker>, query: &Query) -> Found {
    let Some(store) = worker.store() else { return Found::Nothing(Lookup::MissCold, None) };
    let (hash, key) = (query.key.hash(), query.key.as_bytes());
    let bucket = store.find(hash, key);
    let found = select(worker, query, bucket.as_deref());
    let asks_disk = match (&found, &bucket) {
        (Found::Object(..), _) | (Found::Parts(..), None) => false,
        (Found::Parts(set, _), Some(bucket)) => bucket.is_partial() && !is_enough(query, set),
        (Found::Nothing(..), Some(bucket)) => bucket.is_partial(),
        (Found::Nothing(..), None) => true,
    };
    if asks_disk && let Some(lookup) = store.find_on_disk(hash, key) {
        let bucket = lookup.await;
        return verified(query, select(worker, query, bucket.as_deref().or(None))).await;
    }
    verified(query, found).await
}

/// Whether the parts in memory hold what `query` wants.
fn is_enough(query: &Query, set: &PartSet) -> bool {
    let verdict = query.with(|request| set.decide(request, false, &query.cache.rules, Now::read().unix_s));
    !matches!(verdict, Verdict::Complete { .. } | Verdict::Forward { reason: Lookup::MissPart })
}

/// What was found, if its content is what was stored. Content that comes from a disk is compared before its first use.
async fn verified(query: &Query, found: Found) -> Found {
    let now_s = Now::read().unix_s;
    let is_intact = match &found {
        Found::Object(object, _) if !object.body().is_verified() => {
            object.body().verify(first_ranges(query, object, now_s)).await
        }
        Found::Parts(set, _) => {
            let mut is_intact = true;
            for (body, range) in first_ranges_of(query, set, now_s) {
                is_intact &= body.verify([range]).await;
            }
            is_intact
        }
        Found::Object(..) | Found::Nothing(..) => true,
    };
    if is_intact { found } else { Found::Nothing(Lookup::MissCorrupt, None) }
}
