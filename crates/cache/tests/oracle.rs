//! The decisions beside those of http-cache-semantics, where that claims to cover what RFC 9111 says.
//!
//! Where the two differ on purpose, the inputs leave it out, and it is listed here:
//!
//! - http-cache-semantics calls an answer with `proxy-revalidate` stale from the beginning, a shared one with Set-Cookie
//!   as well, gives `immutable` a day, and knows the statuses of its table alone.
//! - It takes the first of several `max-age` and adds `must-revalidate`; here the least counts.
//! - Its age leaves out Date and the origin's delay.
//! - It stores a response to Authorization that says must-revalidate and nothing of a lifetime.
//! - Its guesses have no upper bound and are made for every status; here as RFC 9111 §4.2.2 has it.
//! - It keeps what can never be used again, and its ages have no upper bound.
//! - `max-age=0` in a request matches an answer of age 0 there; `max-stale` ends a second sooner; s-maxage does not
//!   stand against it; `min-fresh=0` matches what is stale.
//! - Its Vary compares byte for byte, and looks at the first line of a field alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use flatout_cache::decision::{Verdict, decide_stored};
use flatout_cache::freshness::LifetimeSource;
use flatout_cache::lines::with_fields;
use flatout_cache::reason::NoStore;
use flatout_cache::request::CacheRequest;
use flatout_cache::rules::Rules;
use flatout_cache::storable::{Ending, OriginResponse, Storing, decide_response};
use flatout_cache::stored::Stored;
use flatout_cache::vary::matches_variant;
use flatout_http::date::format_date;
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use proptest::prelude::*;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NOW_S: i64 = 1_700_000_000;

type Lines = Vec<(&'static str, String)>;

fn at(unix_s: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(unix_s).unwrap())
}

fn date(unix_s: i64) -> String {
    String::from_utf8(format_date(unix_s).to_vec()).unwrap()
}

fn text(lines: &Lines) -> String {
    lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

fn request_of(lines: &Lines) -> http::Request<()> {
    let mut request = http::Request::builder().uri("http://a/");
    for (name, value) in lines {
        request = request.header(*name, value);
    }
    request.body(()).unwrap()
}

fn oracle(request: &Lines, status: u16, response: &Lines) -> CachePolicy {
    let mut builder = http::Response::builder().status(status);
    for (name, value) in response {
        builder = builder.header(*name, value);
    }
    let response = builder.body(()).unwrap();
    CachePolicy::new_options(&request_of(request), &response, at(NOW_S), CacheOptions::default())
}

fn with_request<T>(lines: &Lines, check: impl FnOnce(&CacheRequest<'_>) -> T) -> T {
    with_fields(text(lines).as_bytes(), |fields| {
        let request = CacheRequest {
            method: "GET",
            secure: false,
            authority: b"a",
            path: b"/",
            query: None,
            fields: *fields,
            has_content: false,
            forwarding: &flatout_cache::request::AsReceived,
        };
        check(&request)
    })
    .unwrap()
}

fn rules() -> Rules {
    Rules { heuristic_max_s: u32::MAX, ..Rules::default() }
}

fn ours(request: &Lines, status: u16, response: &Lines) -> Result<Stored, NoStore> {
    with_request(request, |request| {
        with_fields(text(response).as_bytes(), |fields| {
            let response = OriginResponse {
                status,
                fields: *fields,
                request_time_s: NOW_S,
                response_time_s: NOW_S,
                ending: Ending::Length(1),
                is_stretch: false,
            };
            match decide_response(request, &response, &rules()) {
                Storing::Store(stored) => Ok(*stored),
                Storing::No(reason) | Storing::Remember(reason, _) => Err(reason),
            }
        })
        .unwrap()
    })
}

fn seconds() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..200, Just(3600), Just(86_400), Just(2_147_483_647)]
}

fn numbered(name: &'static str) -> impl Strategy<Value = String> {
    (seconds(), any::<bool>()).prop_map(move |(seconds, quoted)| {
        if quoted { format!("{name}=\"{seconds}\"") } else { format!("{name}={seconds}") }
    })
}

fn maybe<T: std::fmt::Debug + Clone + 'static>(
    strategy: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    prop::option::of(strategy)
}

/// Fields of an answer. Each directive comes once at most.
fn response_lines() -> impl Strategy<Value = Lines> {
    let flags = prop::sample::subsequence(
        vec!["no-store", "no-cache", "private", "public", "must-revalidate", "no-transform", "foo"],
        0..3,
    );
    let directives = (maybe(numbered("max-age")), maybe(numbered("s-maxage")), flags);
    let expires = maybe(prop_oneof![(-300_i64..300).prop_map(|delta| date(NOW_S + delta)), Just("0".to_owned())]);
    let modified = maybe((0_i64..1_000_000).prop_map(|delta| date(NOW_S - delta)));
    let etag = maybe(prop_oneof![Just("\"x\"".to_owned()), Just("W/\"y\"".to_owned())]);
    (directives, expires, modified, etag, maybe(seconds())).prop_map(
        |((max_age, s_maxage, flags), expires, modified, etag, age)| {
            let directives: Vec<_> =
                max_age.into_iter().chain(s_maxage).chain(flags.into_iter().map(str::to_owned)).collect();
            let mut lines = vec![("date", date(NOW_S))];
            if !directives.is_empty() {
                lines.push(("cache-control", directives.join(", ")));
            }
            lines.extend(expires.map(|expires| ("expires", expires)));
            lines.extend(modified.map(|modified| ("last-modified", modified)));
            lines.extend(etag.map(|etag| ("etag", etag)));
            lines.extend(age.map(|age| ("age", age.to_string())));
            lines
        },
    )
}

fn status() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 501])
}

fn says(lines: &Lines, directive: &str) -> bool {
    lines.iter().any(|(name, value)| {
        *name == "cache-control" && value.split(", ").any(|one| one.split('=').next() == Some(directive))
    })
}

fn has(lines: &Lines, field: &str) -> bool {
    lines.iter().any(|(name, _)| *name == field)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_global_rejects: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// RFC 9111 §3, §3.5.
    #[test]
    fn what_may_be_stored(
        status in status(),
        response in response_lines(),
        no_store in any::<bool>(),
        authorized in any::<bool>(),
    ) {
        let mut request = Lines::new();
        if no_store {
            request.push(("cache-control", "no-store".to_owned()));
        }
        if authorized {
            request.push(("authorization", "x".to_owned()));
        }
        let kept = match ours(&request, status, &response) {
            // It may be kept, and is of no use.
            Ok(_)
            | Err(NoStore::NoFreshness | NoStore::AlreadyStale | NoStore::MaxAgeInvalid | NoStore::ExpiresInvalid) => true,
            Err(NoStore::Authorization) if says(&response, "must-revalidate") => true,
            Err(_) => false,
        };
        prop_assert_eq!(kept, oracle(&request, status, &response).is_storable());
    }

    /// RFC 9111 §4.2.1, §4.2.2.
    #[test]
    fn lifetimes(status in status(), response in response_lines()) {
        let response: Lines = response.into_iter().filter(|(name, _)| *name != "age").collect();
        let stored = ours(&Lines::new(), status, &response);
        let policy = oracle(&Lines::new(), status, &response);
        let heuristic = !says(&response, "max-age") && !says(&response, "s-maxage") && !has(&response, "expires");
        if let Ok(stored) = stored {
            prop_assume!(!says(&response, "no-cache"));
            // Theirs keeps errors as long as files.
            prop_assume!(stored.lifetime_source != LifetimeSource::ErrorLimit);
            let theirs = policy.time_to_live(at(NOW_S)).as_secs();
            let ours = u64::from(stored.lifetime_s);
            // A tenth is not a number that theirs, a float of 32 bits, can be.
            let near = ours.abs_diff(theirs) <= u64::from(heuristic);
            prop_assert!(near, "{} here, {} there", ours, theirs);
        }
    }

    /// RFC 9111 §4.2.3, with the origin's clock as ours and no delay.
    #[test]
    fn ages(response in response_lines(), after_s in 0_i64..100_000) {
        if let Ok(stored) = ours(&Lines::new(), 200, &response) {
            let theirs = oracle(&Lines::new(), 200, &response).age(at(NOW_S + after_s)).as_secs();
            let limit = u64::from(flatout_cache::directive::SECONDS_MAX);
            prop_assert_eq!(u64::from(stored.current_age_s(NOW_S + after_s)), theirs.min(limit));
        }
    }

    /// RFC 9111 §4, §5.2.1.
    #[test]
    fn reuse(
        response in response_lines(),
        after_s in 0_i64..400,
        no_cache in prop::bool::weighted(0.1),
        pragma in prop::bool::weighted(0.1),
        max_age in maybe(1_u32..300),
        min_fresh in maybe(1_u32..300),
        max_stale in maybe(prop::option::of(0_u32..300)),
    ) {
        let mut directives = Vec::new();
        directives.extend(no_cache.then(|| "no-cache".to_owned()));
        directives.extend(max_age.map(|seconds| format!("max-age={seconds}")));
        directives.extend(min_fresh.map(|seconds| format!("min-fresh={seconds}")));
        directives.extend(max_stale.map(|seconds| seconds.map_or("max-stale".to_owned(), |s| format!("max-stale={s}"))));
        let mut request = Lines::new();
        if !directives.is_empty() {
            request.push(("cache-control", directives.join(", ")));
        } else if pragma {
            request.push(("pragma", "no-cache".to_owned()));
        }
        let stored = ours(&Lines::new(), 200, &response);
        prop_assume!(stored.is_ok());
        let stored = stored.unwrap();
        // What no-cache says is told by the lifetime there, which max-stale then exceeds.
        prop_assume!(max_stale.is_none() || !(says(&response, "s-maxage") || says(&response, "no-cache")));
        // A response that was never fresh is not served stale, whatever the request accepts.
        prop_assume!(max_stale.is_none() || stored.lifetime_s > 0);
        let now_s = NOW_S + after_s;
        // Ages end at 2^31 here (RFC 9111 §1.2.2).
        prop_assume!(stored.current_age_s(now_s) < flatout_cache::directive::SECONDS_MAX);
        let stale_s = i64::from(stored.current_age_s(now_s)) - i64::from(stored.lifetime_s);
        prop_assume!(max_stale.flatten().is_none_or(|seconds| i64::from(seconds) != stale_s));
        // Off by one where theirs rounds a guess.
        let explicit = says(&response, "max-age") || says(&response, "s-maxage") || has(&response, "expires");
        prop_assume!(explicit);
        let policy = oracle(&Lines::new(), 200, &response);
        let theirs = matches!(policy.before_request(&request_of(&request), at(now_s)), BeforeRequest::Fresh(_));
        let verdict = with_request(&request, |request| decide_stored(request, &stored, &rules(), now_s));
        let served = matches!(verdict, Verdict::Serve { .. } | Verdict::ServeStale { .. });
        prop_assert_eq!(served, theirs, "{:?}", verdict);
        if let (Verdict::Validate { conditions, .. }, BeforeRequest::Stale { request: sent, .. }) =
            (&verdict, policy.before_request(&request_of(&request), at(now_s)))
        {
            let line = |name: &str| with_fields(&conditions.0, |fields| {
                fields.iter().find(|(line, _)| line.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_vec())
            }).unwrap();
            for name in ["if-none-match", "if-modified-since"] {
                prop_assert_eq!(line(name), sent.headers.get(name).map(|value| value.as_bytes().to_vec()), "{}", name);
            }
        }
    }

    /// RFC 9111 §4.1: what matches byte for byte matches here, and simple values match only so.
    #[test]
    fn variants(
        first in prop::collection::vec(("x-[ab]", "[ab]{0,2}"), 0..3),
        second in prop::collection::vec(("x-[ab]", "[ab]{0,2}"), 0..3),
        vary in prop::sample::select(vec!["x-a", "X-B", "x-a, X-B", "x-b,, x-a", "x-c"]),
    ) {
        let lines = |pairs: &[(String, String)]| {
            let value = |name: &str| pairs.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
            ["x-a", "x-b"].into_iter().filter_map(|name| Some((name, value(name)?))).collect::<Lines>()
        };
        let (first, second) = (lines(&first), lines(&second));
        let response = vec![("cache-control", "max-age=60".to_owned()), ("vary", vary.replace(",,", ","))];
        let ours = ours(&first, 200, &response).unwrap();
        let policy = oracle(&first, 200, &response);
        let theirs = matches!(policy.before_request(&request_of(&second), at(NOW_S)), BeforeRequest::Fresh(_));
        prop_assert_eq!(with_request(&second, |request| matches_variant(request, &ours)), theirs);
    }
}
