//! Explanation of which responses are stored for a request and how it would be handled, for `flatout explain`.
//!
//! It uses the same functions as the lookup of a real request, but does not fetch, count or change anything. It reads
//! from disk, so it must not run on an event loop.

use crate::accelerator::Accelerator;
use crate::meta::StoredResponse;
use crate::parts::PartSet;
use crate::query::audience_hash;
use crate::rules::CacheStep;
use crate::searches::{SearchRule, is_allowed};
use crate::step::ProxyStep;
use flatout_cache::cookie::names_visitor;
use flatout_cache::decision::{
    Intake, OriginFailureKind, Verdict, decide_failure, decide_miss, decide_request, decide_stored, may_wait,
};
use flatout_cache::explain::Explanation;
use flatout_cache::key::write_key;
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::request::CacheRequest;
use flatout_cache::rules::Rules;
use flatout_cache::stored::Stored;
use flatout_cache::vary::{compare_variant, has_cookie_rules, matches_language, matches_variant};
use flatout_os::clock::Now;
use flatout_store::key::locator;
use flatout_store::{Purged, Store};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum length in bytes of a displayed field value.
const VALUE_BYTES_MAX: usize = 200;

/// Maximum number of variants displayed.
const VARIANTS_SHOWN_MAX: usize = 32;

/// A named reason with a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonTold {
    /// The stable name.
    pub name: String,
    /// The meaning of the reason.
    pub text: String,
    /// How to change the outcome.
    pub change: String,
}

/// A field listed in Vary whose value in this request differs from that in the request for the stored response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The field's name, in lower case.
    pub name: String,
    /// The normalised value in this request, or `None` if the field is absent.
    pub asked: Option<String>,
    /// The normalised value in the request for the stored response, or `None` if the field was absent.
    pub kept: Option<String>,
}

/// A response stored under the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariantTold {
    /// `memory`, or the directory of a volume.
    pub place: String,
    /// Status code of the response.
    pub status: u16,
    /// Length of the stored content in bytes.
    pub body_bytes: u64,
    /// Names in Vary, separated by commas. Empty if there are none.
    pub vary: String,
    /// Differences from the request. Empty if the request matches.
    pub differences: Vec<Difference>,
    /// `no`, `soft` (stale since the purge) or `hard` (never served again).
    pub purged: String,
    /// Freshness calculation (RFC 9111 §4.2), with a line for each step.
    pub freshness: Vec<String>,
}

/// A response that was not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKeptTold {
    /// The reason for not storing the response.
    pub reason: ReasonTold,
    /// Status code of the response.
    pub status: u16,
    /// Time since the response arrived, in seconds.
    pub ago_s: u64,
}

/// Hit-for-miss marker: responses for the key cannot be shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkerTold {
    /// The reason why responses cannot be shared.
    pub reason: ReasonTold,
    /// Remaining validity of the marker in milliseconds.
    pub left_ms: u64,
}

/// Stored responses for a request, and how it would be handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheExplanation {
    /// The cache key.
    pub key: String,
    /// The realm, which separates keys of other sites, and of other `proxy` and `cache` steps.
    pub realm: String,
    /// Result that a lookup would have now.
    pub lookup: ReasonTold,
    /// Sentence that describes how the request would be handled.
    pub action: String,
    /// Responses stored under the key.
    pub variants: Vec<VariantTold>,
    /// The hit-for-miss marker, if one is in force.
    pub marker: Option<MarkerTold>,
    /// The last response for the key that was not stored, unless a response has been stored since.
    pub not_kept: Option<NotKeptTold>,
}

/// A request as received by a `proxy` step.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// The request, with its path and query after rewriting.
    pub request: CacheRequest<'a>,
    /// The current time.
    pub now: Now,
}

impl Accelerator {
    /// Explains how `step` would handle a request under the rules of `cache`. Returns `None` if there is no store.
    pub fn explain(&self, step: &ProxyStep, cache: &CacheStep, sought: &Sought<'_>) -> Option<CacheExplanation> {
        let store = self.store()?;
        let Sought { request, now } = sought;
        let mut key = Vec::new();
        let rule = self.write_lookup_key(step, cache, request, &mut key);
        let hash = store.hash(&key);
        let mut objects = list(store, &key, rule.as_deref());
        if rule.is_some() && objects.is_empty() {
            // A response without No-Vary-Search is stored under the ordinary key.
            let mut plain = Vec::new();
            step.begin_key(cache, &mut plain);
            write_key(request, &cache.rules, &mut plain);
            objects = list(store, &plain, None);
        }
        let chosen = choose(store, cache, request, &objects);
        let audience = audience_hash(hash, names_visitor(request, &cache.rules.cookies));
        let marker = store.marker(audience, now.monotonic_ms);
        let set = match &chosen {
            Ok((newest, _)) if newest.is_part() && request.method == "GET" && !cache.esi => {
                PartSet::gather(store, newest, objects.iter().map(|(_, object)| object))
            }
            _ => None,
        };
        let (lookup, action) = decide(cache, request, (&chosen, set.as_ref()), marker.is_some(), *now);
        let kept_s = chosen.as_ref().ok().map(|(object, _)| object.meta().stored.response_time_s);
        let variants =
            objects.iter().take(VARIANTS_SHOWN_MAX).map(|(place, object)| tell(store, request, place, object, now));
        let unstored = self.unstored.find(hash).filter(|last| kept_s.is_none_or(|kept_s| last.unix_s >= kept_s));
        Some(CacheExplanation {
            key: printable(&key[locator_start(&key)..]),
            realm: step.realm_with(cache),
            lookup: of_lookup(lookup),
            action,
            variants: variants.collect(),
            marker: marker.and_then(|marker| {
                let reason = of_no_store(*NoStore::ALL.get(usize::from(marker.reason))?);
                Some(MarkerTold { reason, left_ms: marker.until_ms.saturating_sub(now.monotonic_ms) })
            }),
            not_kept: unstored.map(|last| NotKeptTold {
                reason: of_no_store(last.reason),
                status: last.status,
                ago_s: u64::try_from(now.unix_s.saturating_sub(last.unix_s)).unwrap_or(0),
            }),
        })
    }
}

/// Returns the offset of the locator's first line in a key, after the realm.
fn locator_start(key: &[u8]) -> usize {
    let locator = locator(key).start;
    key[..locator].iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1)
}

/// Returns the responses stored under `key`, which was written by `rule`, with their places.
fn list(store: &Store<crate::Meta>, key: &[u8], rule: Option<&SearchRule>) -> Vec<(String, Arc<StoredResponse>)> {
    let inspection = store.inspect(key);
    let in_memory = inspection.memory.iter().flat_map(|bucket| bucket.objects());
    let mut objects: Vec<_> = in_memory.map(|object| ("memory".to_owned(), Arc::clone(object))).collect();
    // List a response on disk only if memory has no copy of the same variant.
    for (folder, object) in inspection.disk {
        if !objects.iter().any(|(_, other)| other.variant() == object.variant()) {
            objects.push((folder.display().to_string(), object));
        }
    }
    objects.retain(|(_, object)| is_allowed(rule, &object.meta().stored));
    objects
}

/// The selected stored response and its purge state, or the reason for a miss.
type Chosen = Result<(Arc<StoredResponse>, Purged), Lookup>;

/// Selects a stored response in the same way as a lookup.
fn choose(
    store: &Store<crate::Meta>,
    cache: &CacheStep,
    request: &CacheRequest<'_>,
    objects: &[(String, Arc<StoredResponse>)],
) -> Chosen {
    let mut missed = if objects.is_empty() { Lookup::MissCold } else { Lookup::MissVary };
    let is_for =
        |stored: &Stored| has_cookie_rules(&stored.vary, &cache.rules.cookies) && matches_variant(request, stored);
    for (_, object) in objects.iter().filter(|(_, object)| is_for(&object.meta().stored)) {
        match store.check(object) {
            Purged::Hard => missed = Lookup::MissPurged,
            purged => return Ok((Arc::clone(object), purged)),
        }
    }
    let speaks = |object: &Arc<StoredResponse>| {
        store.check(object) == Purged::No && matches_language(request, &object.meta().stored)
    };
    if cache.rules.language_select
        && let Some((_, object)) = objects.iter().find(|(_, object)| speaks(object))
    {
        return Ok((Arc::clone(object), Purged::No));
    }
    Err(missed)
}

/// Decides how to handle the request. Returns the lookup result and a description of the action.
fn decide(
    cache: &CacheStep,
    request: &CacheRequest<'_>,
    (chosen, set): (&Chosen, Option<&PartSet>),
    is_marked: bool,
    now: Now,
) -> (Lookup, String) {
    let (rules, now_s) = (&cache.rules, now.unix_s);
    match decide_request(request, rules) {
        Intake::LookUp => {}
        Intake::Bypass(reason) => {
            return (reason, "The request bypasses the cache and is forwarded to an origin.".to_owned());
        }
        Intake::Unsafe(reason) => {
            return (
                reason,
                "The request is forwarded to an origin, and then invalidates the stored response for its URL."
                    .to_owned(),
            );
        }
    }
    let verdict = match (chosen, set) {
        (Err(missed), _) => decide_miss(request, *missed, rules),
        (Ok((_, purged)), Some(set)) => set.decide(request, *purged == Purged::Soft, rules, now_s),
        (Ok((object, Purged::Soft)), None) => {
            decide_stored(request, &object.meta().stored.expired(now_s), rules, now_s)
        }
        (Ok((object, _)), None) => decide_stored(request, &object.meta().stored, rules, now_s),
    };
    let verdict = match (verdict, chosen) {
        (verdict @ (Verdict::Validate { .. } | Verdict::Forward { .. }), Ok((object, purged)))
            if set.is_none() && !is_marked && object.hang().is_in_force(now.monotonic_ms) =>
        {
            decide_while_hanging(rules, request, (object, *purged), now_s).unwrap_or(verdict)
        }
        (verdict, _) => verdict,
    };
    match verdict {
        Verdict::Serve { age_s, reason } => (reason, format!("The stored response is served, with Age: {age_s}.")),
        Verdict::ServeStale { age_s, reason, revalidate } => {
            let meanwhile = if revalidate { ", while a new one is fetched" } else { "" };
            (reason, format!("The stored response is served stale, with Age: {age_s}{meanwhile}."))
        }
        Verdict::Validate { reason, .. } => (reason, "The stored response is validated with an origin.".to_owned()),
        Verdict::Complete { reason, .. } => (reason, "The missing parts are requested from an origin.".to_owned()),
        Verdict::Forward { .. } if is_marked => (
            Lookup::HitForMiss,
            "Each request is forwarded to an origin separately: requests are not collapsed.".to_owned(),
        ),
        Verdict::Forward { reason } => (reason, "The request is forwarded to an origin.".to_owned()),
        Verdict::Unsatisfiable { reason } => {
            (reason, "504: no response is stored, and the request accepts only a stored one.".to_owned())
        }
    }
}

/// Returns how the request is handled because the origin hangs; `None` if it waits for the origin nevertheless.
fn decide_while_hanging(
    rules: &Rules,
    request: &CacheRequest<'_>,
    (object, purged): (&StoredResponse, Purged),
    now_s: i64,
) -> Option<Verdict> {
    if request.method != "GET" || !may_wait(request, true, names_visitor(request, &rules.cookies), rules) {
        return None;
    }
    let stored = &object.meta().stored;
    let expired = (purged == Purged::Soft).then(|| stored.expired(now_s));
    let stored = expired.as_ref().unwrap_or(stored);
    let verdict = decide_failure(request, stored, OriginFailureKind::Unreachable, rules, now_s);
    matches!(verdict, Verdict::ServeStale { .. }).then_some(verdict)
}

fn tell(
    store: &Store<crate::Meta>,
    request: &CacheRequest<'_>,
    place: &str,
    object: &Arc<StoredResponse>,
    now: &Now,
) -> VariantTold {
    let stored = &object.meta().stored;
    let purged = store.check(object);
    let expired;
    let shown = if purged == Purged::Soft {
        expired = stored.expired(now.unix_s);
        &expired
    } else {
        stored
    };
    let mut differences = Vec::new();
    compare_variant(stored, request, |name, asked, kept| {
        let show = |value: Option<&[u8]>| value.map(printable);
        differences.push(Difference { name: name.to_owned(), asked: show(asked), kept: show(kept) });
    });
    let freshness = Explanation { stored: shown, now_s: now.unix_s }.to_string();
    VariantTold {
        place: place.to_owned(),
        status: stored.status,
        body_bytes: object.body().len(),
        vary: stored.vary.to_string(),
        differences,
        purged: match purged {
            Purged::No => "no",
            Purged::Soft => "soft",
            Purged::Hard => "hard",
        }
        .to_owned(),
        freshness: freshness.lines().map(str::to_owned).collect(),
    }
}

fn of_lookup(reason: Lookup) -> ReasonTold {
    told(reason.name(), reason.text(), reason.change())
}

fn of_no_store(reason: NoStore) -> ReasonTold {
    told(reason.name(), reason.text(), reason.change())
}

fn told(name: &str, text: &str, change: &str) -> ReasonTold {
    ReasonTold { name: name.to_owned(), text: text.to_owned(), change: change.to_owned() }
}

/// Returns bytes in displayable form: non-printable bytes are escaped, and long values are truncated.
fn printable(bytes: &[u8]) -> String {
    let (shown, more) = match bytes.split_at_checked(VALUE_BYTES_MAX) {
        Some((shown, rest)) if !rest.is_empty() => (shown, "…"),
        _ => (bytes, ""),
    };
    format!("{}{more}", shown.escape_ascii()).replace("\\\"", "\"").replace("\\'", "'")
}
