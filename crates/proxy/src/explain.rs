//! Explanation of what is stored for a request and how it would be handled, for `flatout explain`.
//!
//! It performs the lookup of a real request with the same functions, but changes, fetches and counts nothing. It reads
//! disks, so it must not run on an event loop.

use crate::accelerator::Accelerator;
use crate::meta::StoredResponse;
use crate::parts::PartSet;
use crate::query::audience_hash;
use crate::rules::CacheStep;
use crate::step::ProxyStep;
use flatout_cache::cookie::names_visitor;
use flatout_cache::decision::{Intake, Verdict, decide_miss, decide_request, decide_stored};
use flatout_cache::explain::Explanation;
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::request::CacheRequest;
use flatout_cache::stored::Stored;
use flatout_cache::vary::{compare_variant, has_cookie_rules, matches_language, matches_variant};
use flatout_os::clock::Now;
use flatout_store::key::locator;
use flatout_store::{Purged, Store};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum bytes of a displayed field value.
const VALUE_BYTES_MAX: usize = 200;

/// Maximum displayed variants.
const VARIANTS_SHOWN_MAX: usize = 32;

/// A named reason with a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonTold {
    /// The stable name.
    pub name: String,
    /// Its meaning.
    pub text: String,
    /// How to change the outcome.
    pub change: String,
}

/// A field in Vary whose value differs between this request and the stored one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The field's name, in lower case.
    pub name: String,
    /// The request's value, normalised; `None`: the field is absent.
    pub asked: Option<String>,
    /// The value in the request whose response is stored.
    pub kept: Option<String>,
}

/// A response stored under the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariantTold {
    /// `memory`, or the folder of a volume.
    pub place: String,
    /// Its status.
    pub status: u16,
    /// Bytes of content.
    pub body_bytes: u64,
    /// Names in its Vary, separated by commas; empty: none.
    pub vary: String,
    /// Differences from the request; empty: the request matches.
    pub differences: Vec<Difference>,
    /// `no`, `soft` (stale since) or `hard` (never served again).
    pub purged: String,
    /// Freshness calculation (RFC 9111 §4.2), a line for each step.
    pub freshness: Vec<String>,
}

/// A response that was not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKeptTold {
    /// The reason.
    pub reason: ReasonTold,
    /// Its status.
    pub status: u16,
    /// Its age in seconds.
    pub ago_s: u64,
}

/// Marker of a key whose responses cannot be shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkerTold {
    /// The reason.
    pub reason: ReasonTold,
    /// Remaining validity in milliseconds.
    pub left_ms: u64,
}

/// Stored responses for a request, and how it would be handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheExplanation {
    /// The lookup key.
    pub key: String,
    /// Distinguishes the key from the same one of another `proxy` step.
    pub realm: String,
    /// Result of a lookup now.
    pub lookup: ReasonTold,
    /// The resulting action, a sentence.
    pub action: String,
    /// Responses stored under the key.
    pub variants: Vec<VariantTold>,
    /// The marker in force.
    pub marker: Option<MarkerTold>,
    /// The last response for the key that was not stored, unless one was stored since.
    pub not_kept: Option<NotKeptTold>,
}

/// A request as received by a `proxy` step.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// The request: its path and query after rewriting.
    pub request: CacheRequest<'a>,
    /// The current time.
    pub now: Now,
}

impl Accelerator {
    /// Explains a request to `step` under the rules of `cache`; `None`: there is no store.
    pub fn explain(&self, step: &ProxyStep, cache: &CacheStep, sought: &Sought<'_>) -> Option<CacheExplanation> {
        let store = self.store()?;
        let Sought { request, now } = sought;
        let mut key = Vec::new();
        self.write_lookup_key(step, cache, request, &mut key);
        let hash = store.hash(&key);
        let inspection = store.inspect(&key);
        // A copy on disk duplicates the one in memory, unless memory has none.
        let mut objects: Vec<(String, Arc<StoredResponse>)> = Vec::new();
        let in_memory = inspection.memory.iter().flat_map(|bucket| bucket.objects());
        objects.extend(in_memory.map(|object| ("memory".to_owned(), Arc::clone(object))));
        for (folder, object) in inspection.disk {
            if !objects.iter().any(|(_, other)| other.variant() == object.variant()) {
                objects.push((folder.display().to_string(), object));
            }
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
        let (lookup, action) = decide(cache, request, (&chosen, set.as_ref()), marker.is_some(), now.unix_s);
        let kept_s = chosen.as_ref().ok().map(|(object, _)| object.meta().stored.response_time_s);
        let variants =
            objects.iter().take(VARIANTS_SHOWN_MAX).map(|(place, object)| tell(store, request, place, object, now));
        let unstored = self.unstored.find(hash).filter(|last| kept_s.is_none_or(|kept_s| last.unix_s >= kept_s));
        Some(CacheExplanation {
            key: printable(&key[locator_start(&key)..]),
            realm: step.realm().to_owned(),
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

/// Offset of the scheme in a key.
fn locator_start(key: &[u8]) -> usize {
    let locator = locator(key).start;
    key[..locator].iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1)
}

/// The selected object and its purge state, or the reason for a miss.
type Chosen = Result<(Arc<StoredResponse>, Purged), Lookup>;

/// Selects as a lookup does.
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

/// Decides how to handle the request, with a description.
fn decide(
    cache: &CacheStep,
    request: &CacheRequest<'_>,
    (chosen, set): (&Chosen, Option<&PartSet>),
    is_marked: bool,
    now_s: i64,
) -> (Lookup, String) {
    let rules = &cache.rules;
    match decide_request(request, rules) {
        Intake::LookUp => {}
        Intake::Bypass(reason) => {
            return (reason, "It is forwarded to an origin; the cache is not involved.".to_owned());
        }
        Intake::Unsafe(reason) => {
            return (
                reason,
                "It is forwarded to an origin; the stored response for its target is then invalidated.".to_owned(),
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
    match verdict {
        Verdict::Serve { age_s, reason } => (reason, format!("The stored response is served, with Age: {age_s}.")),
        Verdict::ServeStale { age_s, reason, revalidate } => {
            let meanwhile = if revalidate { ", and a new one is fetched meanwhile" } else { "" };
            (reason, format!("The stored response is served stale, with Age: {age_s}{meanwhile}."))
        }
        Verdict::Validate { reason, .. } => (reason, "The stored response is validated with an origin.".to_owned()),
        Verdict::Complete { reason, .. } => (reason, "The missing parts are requested from an origin.".to_owned()),
        Verdict::Forward { .. } if is_marked => {
            (Lookup::HitForMiss, "Each request goes to an origin separately: requests are not collapsed.".to_owned())
        }
        Verdict::Forward { reason } => (reason, "The request is forwarded to an origin.".to_owned()),
        Verdict::Unsatisfiable { reason } => {
            (reason, "504: no response is stored, and the request accepts nothing else.".to_owned())
        }
    }
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

/// Displayable form of bytes: non-printable bytes are escaped, long values are truncated.
fn printable(bytes: &[u8]) -> String {
    let (shown, more) = match bytes.split_at_checked(VALUE_BYTES_MAX) {
        Some((shown, rest)) if !rest.is_empty() => (shown, "…"),
        _ => (bytes, ""),
    };
    format!("{}{more}", shown.escape_ascii()).replace("\\\"", "\"").replace("\\'", "'")
}
