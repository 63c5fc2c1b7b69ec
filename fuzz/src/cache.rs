//! The cache's decisions: whatever fields come, nothing panics, and what may not be served is not.

use flatout_cache::age::parse_age;
use flatout_cache::codec::{decode, encode};
use flatout_cache::condition::{SelectedForm, decide_conditions};
use flatout_cache::decision::{Intake, OriginFailureKind, Verdict, decide_failure, decide_request, decide_stored};
use flatout_cache::directive::{SECONDS_MAX, Seconds, parse_request_directives};
use flatout_cache::explain::Explanation;
use flatout_cache::invalidate::decide_invalidation;
use flatout_cache::lines::with_fields;
use flatout_cache::parts::{Held, PlacedContent, are_combinable, cut_short, decide_placing, make_if_range, whole_of};
use flatout_cache::request::CacheRequest;
use flatout_cache::rules::Rules;
use flatout_cache::search::parse_search;
use flatout_cache::storable::{Ending, OriginResponse, Storing, decide_response};
use flatout_cache::stored::{Extent, Flags, Stored};
use flatout_cache::tags::{GROUPS_MAX, parse_groups};
use flatout_cache::targeted::choose_directives;
use flatout_cache::validate::{Freshening, HeadEffect, decide_head, freshen, make_conditions};
use flatout_cache::vary::{matches_language, matches_variant};
use flatout_http::feed::assert_three_ways;
use flatout_http::head::Fields;

pub(crate) const FIELD_SEEDS: &[&[u8]] = &[
    b"Cache-Control: max-age=\"60\", no-cache=\"a, b\", s-maxage=1, x=\"\\\"\", no-store\r\nPragma: no-cache\r\nAge: 0, 1\r\n",
    b"CDN-Cache-Control: max-age=60, no-store=?0\r\nVary: a, *\r\nCache-Groups: \"a\", \"b c\"\r\n",
    b"No-Vary-Search: key-order, params=(\"a\" \"b\"), except=(\"c\")\r\nSurrogate-Key: a b\r\n",
];

pub(crate) const EXCHANGE_SEEDS: &[&[u8]] = &[
    b"Foo: 1\r\n\nCache-Control: max-age=60, stale-while-revalidate=9\r\nVary: Foo\r\nETag: \"x\"\r\nAge: 3\r\n",
    b"Range: bytes=0-4\r\nIf-Range: \"x\"\r\n\nContent-Range: bytes 0-4/10\r\nETag: \"x\"\r\nCache-Control: s-maxage=9\r\n",
    b"Cache-Control: max-stale=5, min-fresh=1\r\nIf-None-Match: \"x\"\r\n\nExpires: 0\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    b"Authorization: x\r\nAccept-Language: de;q=0.5, en\r\n\nCache-Control: public, max-age=9\r\nVary: Accept-Language\r\nContent-Language: en\r\nLocation: /../a?b\r\n",
];

/// An encoded 404 with an ETag, a Vary and a tag.
pub(crate) const STORED_SEEDS: &[&[u8]] = &[
    b"\x01\xbf\0\0\0\x94\x01\xa0\x98\xbc.\0\0\0\0\xa1\x98\xbc.\0\0\0\0\xa1\x98\xbc.\0\0\0\0\0\0\0\0\x01\0\0\0<\0\0\0\0\0\0\0\0\0\0\0\x02 \0\0\0\x01\x03\0\0\0\"x\"\x03\0\0\0foo\x05\0\0\0\x01\0\0\0a\x03\0\0\0\x01\0t\0\0\0\0d\0\0\0Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=60\r\nETag: \"x\"\r\nVary: foo\r\nCache-Tag: t\r\n\0",
];

const NOW_S: i64 = 784_111_777;

/// Every reader of a field.
pub(crate) fn check_fields(bytes: &[u8]) {
    let rules = Rules::default();
    let _ = with_fields(bytes, |fields| {
        let within = |seconds: Option<u32>| assert!(seconds.is_none_or(|seconds| seconds <= SECONDS_MAX));
        let request = parse_request_directives(fields);
        [request.max_age_s, request.max_stale_s, request.min_fresh_s, request.stale_if_error_s]
            .into_iter()
            .for_each(within);
        let chosen = choose_directives(fields, &rules);
        let response = chosen.directives;
        [response.max_age, response.s_maxage, response.stale_if_error].map(Seconds::valid).into_iter().for_each(within);
        assert!(response.named.iter().all(|name| !name.is_empty() && name.is_ascii()));
        // What must not be overlooked: a lone word is seen wherever it stands.
        let lone = fields.all("cache-control").any(|line| line.eq_ignore_ascii_case(b"no-store"));
        assert!(!lone || chosen.field.is_some() || response.no_store);
        assert!(parse_age(fields).is_none() || fields.first("age").is_some());
        assert!(parse_groups(fields, "cache-groups").iter().count() <= GROUPS_MAX);
        let _ = parse_search(fields);
    });
}

/// A decoded value means the same as its bytes.
pub(crate) fn check_stored(bytes: &[u8]) {
    assert_three_ways(bytes, |bytes| decode(bytes).transpose());
    if let Ok(Some((stored, used))) = decode(bytes) {
        let mut again = Vec::new();
        encode(&stored, &mut again);
        assert_eq!(again, &bytes[..used]);
        let _ = Explanation { stored: &stored, now_s: NOW_S }.to_string();
        let _ = (make_conditions(&stored), make_if_range(&stored), stored.useful_until_s(u32::MAX));
        let _ = (whole_of(&stored), cut_short(&stored, Some(u64::MAX), u64::MAX));
    }
}

/// A request's fields, a line feed, and its answer's.
pub(crate) fn check_decisions(bytes: &[u8]) {
    let Some(at) = bytes.windows(2).position(|pair| pair == b"\n\n") else { return };
    let (request_lines, response_lines) = (&bytes[..=at], &bytes[at + 2..]);
    let status = [200, 206, 304, 404, 503][bytes.len() % 5];
    let method = ["GET", "HEAD", "POST"][bytes.len() % 3];
    let _ = with_fields(request_lines, |request_fields| {
        with_fields(response_lines, |fields| {
            for method in ["GET", method] {
                check_exchange(&request(method, *request_fields), *fields, status);
            }
        })
    });
}

fn request<'a>(method: &'a str, fields: Fields<'a>) -> CacheRequest<'a> {
    CacheRequest {
        method,
        secure: false,
        authority: b"A:80",
        path: b"/p/",
        query: Some(b"q"),
        fields,
        has_content: false,
        forwarding: &flatout_cache::request::AsReceived,
    }
}

fn check_exchange(request: &CacheRequest<'_>, fields: Fields<'_>, status: u16) {
    let rules = Rules { stale_if_error_s: 9, mismatched_ranges: status == 206, ..Rules::default() };
    let (request_time_s, ending) = (NOW_S - 1, Ending::Length(5));
    let response =
        OriginResponse { status, fields, request_time_s, response_time_s: NOW_S, ending, is_stretch: status == 206 };
    let intake = decide_request(request, &rules);
    assert_eq!(matches!(intake, Intake::Unsafe(_)), request.method == "POST");
    let invalidation = decide_invalidation(request, status, &fields, &rules);
    assert!(invalidation.keys.len() <= 3 && invalidation.keys.iter().all(|key| key.starts_with(b"http://a/")));
    let Storing::Store(stored) = decide_response(request, &response, &rules) else { return };
    assert_ne!(request.method, "HEAD");
    assert!(matches_variant(request, &stored));
    let _ = matches_language(request, &stored);
    let mut bytes = Vec::new();
    encode(&stored, &mut bytes);
    assert_eq!(decode(&bytes), Ok(Some(((*stored).clone(), bytes.len()))));
    for after_s in [-5, 0, 1, 50, 70, 100_000, i64::MAX - NOW_S] {
        check_reuse(request, &stored, &rules, NOW_S + after_s);
    }
    // Whatever it says of itself: a 304 with the same fields leaves it what it was, or drops it.
    let now = OriginResponse { status: 304, ..response };
    if let Freshening::Fresh(fresh) = freshen(request, &stored, &now, &rules) {
        assert_eq!((fresh.status, fresh.extent, &fresh.etag), (stored.status, stored.extent, &stored.etag));
        assert_eq!(fresh.lifetime_s, stored.lifetime_s);
    }
    if let HeadEffect::Update(updated) = decide_head(request, &stored, 5, &response, &rules) {
        assert_eq!(updated.extent, stored.extent);
    }
    let held = Held { stored: &stored, is_inline: true };
    let placed = decide_placing(&[held], (*stored).clone(), true);
    assert_eq!(placed.content == PlacedContent::Held(0), are_combinable(&stored, &stored));
}

fn check_reuse(request: &CacheRequest<'_>, stored: &Stored, rules: &Rules, now_s: i64) {
    let verdict = decide_stored(request, stored, rules, now_s);
    let fresh = stored.current_age_s(now_s) < stored.lifetime_s;
    let no_cache = stored.flags.any(Flags::NO_CACHE);
    match &verdict {
        Verdict::Serve { age_s, .. } => {
            assert!(fresh && !no_cache && *age_s == stored.current_age_s(now_s));
            let answer = decide_conditions(request, stored, Some(5), now_s);
            assert!(answer != SelectedForm::NotHeld || stored.extent != Extent::Whole);
            if let (SelectedForm::Part(part), Extent::Part { first, last, .. }) = (answer, stored.extent) {
                assert!(first <= part.first && part.last <= last);
            }
        }
        Verdict::ServeStale { .. } => assert!(!fresh && !no_cache),
        _ => {}
    }
    if request.is_plain() && stored.is_fresh_for_plain_request(now_s) {
        assert!(matches!(verdict, Verdict::Serve { .. }));
    }
    if no_cache {
        assert!(matches!(
            decide_failure(request, stored, OriginFailureKind::Unreachable, rules, now_s),
            Verdict::Forward { .. }
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::{EXCHANGE_SEEDS, STORED_SEEDS, check_decisions, decode};

    /// Seeds that are refused at once would start nothing.
    #[test]
    fn seeds_are_what_they_stand_for() {
        for seed in STORED_SEEDS {
            assert!(matches!(decode(seed), Ok(Some((_, used))) if used == seed.len()), "{:?}", decode(seed));
        }
        for seed in EXCHANGE_SEEDS {
            check_decisions(seed);
        }
    }
}
