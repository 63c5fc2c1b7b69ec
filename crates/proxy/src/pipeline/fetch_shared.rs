//! Fetches that other clients may join.

use super::fetch::{Fetch, FetchResult, may_stand_in, write_range};
use super::lookup::{LookupResult, is_superseded};
use super::miss::Need;
use super::{Next, Pipeline, StaleChance, Step};
use crate::fill::{FetchJoin, Interest};
use crate::hints::links_in;
use crate::meta::StoredResponse;
use crate::note::Note;
use crate::parts::PartSet;
use crate::query::Query;
use crate::worker::ProxyWorker;
use flatout_cache::decision::OriginFailureKind;
use flatout_cache::reason::Lookup;
use flatout_cache::validate::Conditions;
use flatout_cache::vary::{apply_cookie_rules, write_variant_key};
use flatout_handler::content::InterimResponse;
use flatout_http::lines::write_line;
use flatout_http::ranges::ByteRange;
use flatout_http::token::trim;
use flatout_os::clock::Now;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

/// A shared fetch that a request started or joined.
pub(crate) struct SharedFetch {
    pub(super) found: LookupResult,
    pub(super) key: Vec<u8>,
    /// If the fetch completes stored parts, the missing range that it fetches and the conditions of its request.
    pub(super) stretch: Option<(ByteRange, Conditions)>,
    pub(super) interest: Interest,
    pub(super) note: Note,
    /// Receiver of the result, or `None` if another client started the fetch.
    pub(super) own: Option<oneshot::Receiver<FetchResult>>,
    /// True if there is a stored response that may be used if the origin fails.
    pub(super) had_kept: bool,
}

impl Pipeline {
    /// Step FetchShared: joins a fetch in progress, or starts a fetch that others may join. If the origin hangs, continues
    /// with a stale response, if that is allowed.
    pub(super) fn fetch_shared(&mut self, found: LookupResult, need: Need, kept: Option<Arc<StoredResponse>>) -> Next {
        if self.serves_stale(&found) {
            let reason = Lookup::HitIfUnreachable;
            return ControlFlow::Continue(Step::Hit { found, reason, revalidate: true });
        }
        let (worker, query) = (&self.worker, &self.query);
        let Need { reason, question, completion } = need;
        if let Some(stale) = &kept {
            send_early_hints(query, stale);
        }
        let is_large = found.set().is_some_and(|set| set.total() > query.cache.range_fetch_bytes_max);
        if question.is_none() && !is_large {
            begin_range_fetch(worker, query, Now::read());
        }
        let stretch = question.missing().zip(completion);
        let key = match (found.set(), &stretch) {
            (Some(set), Some((missing, conditions))) => stretch_key(query, set, *missing, conditions),
            _ => fill_key(query, &found),
        };
        let note = Note::forwarded(reason);
        let had_kept = kept.is_some();
        let Some(join) = worker.accelerator().fills.begin_unless(&key, || is_superseded(worker, query, &found)) else {
            return ControlFlow::Continue(Step::Lookup);
        };
        ControlFlow::Continue(Step::Wait(match join {
            FetchJoin::Theirs(interest) => {
                query.range_fetch.take();
                let note = Note { collapsed: true, ..note };
                SharedFetch { found, key, stretch, interest, note, own: None, had_kept }
            }
            FetchJoin::Yours(writer) => {
                let interest = writer.join();
                let (direct, own) = oneshot::channel();
                let interims = Some(query.ask.request.offers().interims());
                let fetch = Fetch { query: Rc::clone(query), kept, question, interims };
                spawn_local(fetch.run(Rc::clone(worker), writer, Some(direct)));
                SharedFetch { found, key, stretch, interest, note, own: Some(own), had_kept }
            }
        }))
    }
}

impl Pipeline {
    /// Returns whether to serve `found` stale at once, because the last attempt to fetch a newer response has hung.
    fn serves_stale(&mut self, found: &LookupResult) -> bool {
        let LookupResult::Object(object, _) = found else { return false };
        if self.stale == StaleChance::Taken || !object.hang().is_in_force(Now::read().monotonic_ms) {
            return false;
        }
        self.stale = StaleChance::Taken;
        self.has_substitute(found)
    }

    /// Returns whether `found` may be served if the origin hangs.
    pub(super) fn has_substitute(&self, found: &LookupResult) -> bool {
        let LookupResult::Object(object, _) = found else { return false };
        may_stand_in(&self.query, object, &object.meta().stored, OriginFailureKind::Unreachable)
    }
}

/// Returns whether a value of Range requests a suffix, which would arrive last in a fetch of the whole response and
/// whose offset is not yet known.
fn is_suffix(range: &[u8]) -> bool {
    range.split(|&byte| byte == b'=').nth(1).is_some_and(|ranges| trim(ranges).starts_with(b"-"))
}

/// Makes a range request fetch the whole response, so that it can be stored for later requests, unless too many such
/// fetches are in progress or the response is known to be too large.
fn begin_range_fetch(worker: &ProxyWorker, query: &Query, now: Now) {
    let is_range =
        query.with(|request| request.method == "GET" && request.field("range").is_some_and(|range| !is_suffix(range)));
    if !is_range || query.cache.esi || query.cache.range_fetch_bytes_max == 0 {
        return;
    }
    let Some(store) = worker.store() else { return };
    if store.forwards_ranges(query.key.hash(), now.monotonic_ms) {
        return;
    }
    query.range_fetch.replace(worker.accelerator().range_fetches.begin(query.ask.client, now.monotonic_ms));
}

/// Returns the key of a fetch, which consists of the cache key, whether the request identifies its visitor, the variant
/// as far as known, and Range.
pub(super) fn fill_key(query: &Query, found: &LookupResult) -> Vec<u8> {
    let names = match found {
        LookupResult::Nothing(_, names) => query.vary.borrow().clone().or_else(|| names.clone()),
        found => found.object().map(|object| object.meta().stored.vary.clone()),
    };
    let names = names.unwrap_or_else(|| apply_cookie_rules("".into(), &query.cache.rules.cookies));
    let mut key = begin_fill_key(query, &names);
    query.with(|request| {
        // If ESI is enabled, the whole response is always fetched.
        let takes_whole = query.cache.esi || query.fetches_whole();
        let ranges: &[&str] = if takes_whole { &[] } else { &["range", "if-range"] };
        for name in ranges {
            if let Some(value) = request.field(name) {
                key.push(0);
                key.extend_from_slice(value);
            }
        }
    });
    key
}

/// Returns the key of a fetch of the range `missing`.
pub(crate) fn stretch_key(query: &Query, set: &PartSet, missing: ByteRange, conditions: &Conditions) -> Vec<u8> {
    let mut key = begin_fill_key(query, &set.whole().vary);
    // The values of Range and If-Range in a request never have this form.
    for line in [b"stretch", write_range(missing).as_bytes(), &conditions.0] {
        key.push(0);
        key.extend_from_slice(line);
    }
    key
}

fn begin_fill_key(query: &Query, names: &str) -> Vec<u8> {
    let mut key = query.fetch_prefix();
    // Anonymous requests do not wait for requests that identify a visitor, whose responses can less often be shared.
    key.push(u8::from(query.names_visitor));
    query.with(|request| write_variant_key(names, request, &mut key));
    key
}

/// Sends a 103 with the links of `stale`, the stored response that `query` selects and that is about to be validated or
/// replaced. There is no other source of links, because a response that is not stored or not for this request may be
/// private.
fn send_early_hints(query: &Query, stale: &StoredResponse) {
    let stored = &stale.meta().stored;
    // A response that always requires validation must not be shared, not even its links, before the origin has
    // validated it.
    if !query.cache.early_hints || !(200..300).contains(&stored.status) || !stored.is_reusable() {
        return;
    }
    // Some old HTTP/1.1 clients mistake a 103 for the final response. Browsers use HTTP/2 or HTTP/3.
    if query.ask.request.with(|request| !request.head.version.has_streams()) {
        return;
    }
    let mut lines = Vec::new();
    for link in links_in(&stored.lines) {
        write_line(b"Link", link.as_bytes(), &mut lines);
    }
    if !lines.is_empty() {
        query.ask.request.offers().interims().send(InterimResponse { status: 103, lines: lines.into() });
    }
}
