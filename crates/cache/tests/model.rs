//! The decision on a stored answer beside a small model of it, written from RFC 9111 and RFC 5861 rule by rule, without
//! a look at the code that it checks: it collects what each rule says, and only then decides.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use flatout_cache::decision::{OriginFailureKind, Verdict, decide_failure, decide_stored};
use flatout_cache::lines::with_fields;
use flatout_cache::request::CacheRequest;
use flatout_cache::rules::Rules;
use flatout_cache::storable::{Ending, OriginResponse, Storing, decide_response};
use flatout_cache::stored::Stored;
use flatout_http::date::format_date;
use proptest::prelude::*;
use std::fmt::Write as _;

const CAME_S: i64 = 1_700_000_000;

#[derive(Clone, Debug)]
struct Answer {
    max_age: Option<i64>,
    s_maxage: Option<i64>,
    age: i64,
    /// How long ago the origin made it, and how long it took to come.
    made_s: i64,
    delay_s: i64,
    no_cache: bool,
    must_revalidate: bool,
    proxy_revalidate: bool,
    while_revalidate: Option<i64>,
    if_error: Option<i64>,
    tagged: bool,
}

#[derive(Clone, Debug)]
struct Asked {
    no_cache: bool,
    only_if_cached: bool,
    max_age: Option<i64>,
    max_stale: Option<i64>,
    min_fresh: Option<i64>,
    if_error: Option<i64>,
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Serve(i64),
    ServeAndRevalidate(i64),
    Validate,
    Forward,
    Unsatisfiable,
}

impl Answer {
    fn line(&self) -> String {
        let mut directives = Vec::new();
        let mut number =
            |name: &str, value: Option<i64>| directives.extend(value.map(|value| format!("{name}={value}")));
        number("max-age", self.max_age);
        number("s-maxage", self.s_maxage);
        number("stale-while-revalidate", self.while_revalidate);
        number("stale-if-error", self.if_error);
        for (said, name) in [
            (self.no_cache, "no-cache"),
            (self.must_revalidate, "must-revalidate"),
            (self.proxy_revalidate, "proxy-revalidate"),
        ] {
            directives.extend(said.then(|| name.to_owned()));
        }
        directives.join(", ")
    }

    fn lifetime(&self) -> i64 {
        self.s_maxage.or(self.max_age).unwrap_or(0)
    }

    /// Without a lifetime, the origin never allowed sharing, so nothing extends it. Only the origin itself can extend a
    /// lifetime of zero.
    fn has_lifetime(&self) -> bool {
        self.s_maxage.or(self.max_age).is_some()
    }

    fn age_at(&self, now_s: i64) -> i64 {
        self.made_s.max(self.age + self.delay_s) + (now_s - CAME_S)
    }

    fn forbids_stale(&self) -> bool {
        self.no_cache || self.must_revalidate || self.proxy_revalidate
    }

    /// How much too old it may be by its own word, or by the owner's where s-maxage does not stand against that.
    fn window(&self, own: Option<i64>, owners: i64) -> i64 {
        if self.forbids_stale() {
            0
        } else if self.s_maxage.is_some() {
            own.unwrap_or(0)
        } else {
            own.unwrap_or(if self.lifetime() > 0 { owners } else { 0 })
        }
    }

    fn stored(&self, rules: &Rules) -> Option<Stored> {
        let date = format_date(CAME_S - self.made_s);
        let mut lines = format!("Cache-Control: {}\r\nDate: {}\r\n", self.line(), String::from_utf8_lossy(&date));
        if self.age > 0 {
            let _ = write!(lines, "Age: {}\r\n", self.age);
        }
        if self.tagged {
            lines += "ETag: \"x\"\r\n";
        }
        let storing = with_request(&Asked::nothing(), |request| {
            with_fields(lines.as_bytes(), |fields| {
                let response = OriginResponse {
                    status: 200,
                    fields: *fields,
                    request_time_s: CAME_S - self.delay_s,
                    response_time_s: CAME_S,
                    ending: Ending::Framed,
                    is_stretch: false,
                };
                decide_response(request, &response, rules)
            })
            .unwrap()
        });
        match storing {
            Storing::Store(stored) => Some(*stored),
            _ => None,
        }
    }
}

impl Asked {
    const fn nothing() -> Self {
        Self { no_cache: false, only_if_cached: false, max_age: None, max_stale: None, min_fresh: None, if_error: None }
    }
}

fn with_request<T>(asked: &Asked, check: impl FnOnce(&CacheRequest<'_>) -> T) -> T {
    let mut directives = Vec::new();
    for (name, value) in [
        ("max-age", asked.max_age),
        ("max-stale", asked.max_stale),
        ("min-fresh", asked.min_fresh),
        ("stale-if-error", asked.if_error),
    ] {
        directives.extend(value.map(|value| format!("{name}={value}")));
    }
    directives.extend(asked.no_cache.then(|| "no-cache".to_owned()));
    directives.extend(asked.only_if_cached.then(|| "only-if-cached".to_owned()));
    let line = format!("Cache-Control: {}\r\n", directives.join(","));
    with_fields(line.as_bytes(), |fields| {
        let request = CacheRequest {
            method: "GET",
            secure: true,
            authority: b"example.com",
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

/// The behaviour that RFC 9111 §4 and RFC 5861 §3 require of a cache.
fn expected(answer: &Answer, asked: &Asked, rules: &Rules, now_s: i64) -> Expected {
    let age = answer.age_at(now_s);
    let excess = age - answer.lifetime();
    let fresh = excess < 0;
    let must_validate = [
        answer.no_cache,
        asked.no_cache,
        asked.max_age.is_some_and(|limit| limit == 0 || age > limit),
        asked.min_fresh.is_some_and(|wanted| age + wanted > answer.lifetime()),
        !fresh && asked.min_fresh.is_some(),
    ];
    let own_window = answer.while_revalidate.map(|window_s| if answer.has_lifetime() { window_s } else { 0 });
    let stale_for_revalidation = excess < answer.window(own_window, i64::from(rules.stale_while_revalidate_s));
    let stale_for_client = asked.max_stale.is_some_and(|limit| excess <= limit)
        && answer.lifetime() > 0
        && !answer.forbids_stale()
        && answer.s_maxage.is_none();
    let may_serve = !must_validate.contains(&true);
    if may_serve && !fresh && stale_for_revalidation {
        Expected::ServeAndRevalidate(age)
    } else if may_serve && (fresh || stale_for_client) {
        Expected::Serve(age)
    } else if asked.only_if_cached {
        Expected::Unsatisfiable
    } else if answer.tagged {
        Expected::Validate
    } else {
        Expected::Forward
    }
}

fn few() -> impl Strategy<Value = i64> {
    0_i64..40
}

fn answers() -> impl Strategy<Value = Answer> {
    let maybe = || prop::option::of(few());
    let rarely = || prop::bool::weighted(0.15);
    let times = (few(), few(), 0_i64..5);
    (maybe(), maybe(), times, (rarely(), rarely(), rarely()), maybe(), maybe(), any::<bool>()).prop_map(
        |(max_age, s_maxage, (age, made_s, delay_s), flags, while_revalidate, if_error, tagged)| Answer {
            max_age,
            s_maxage,
            age,
            made_s,
            delay_s,
            no_cache: flags.0,
            must_revalidate: flags.1,
            proxy_revalidate: flags.2,
            while_revalidate,
            if_error,
            tagged,
        },
    )
}

fn requests() -> impl Strategy<Value = Asked> {
    let maybe = || prop::option::weighted(0.3, few());
    (prop::bool::weighted(0.1), prop::bool::weighted(0.1), maybe(), maybe(), maybe(), maybe()).prop_map(
        |(no_cache, only_if_cached, max_age, max_stale, min_fresh, if_error)| Asked {
            no_cache,
            only_if_cached,
            max_age,
            max_stale,
            min_fresh,
            if_error,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_decision_is_the_models(
        answer in answers(),
        asked in requests(),
        while_revalidate in 0_u32..20,
        if_error in 0_u32..20,
        after_s in 0_i64..100,
    ) {
        let rules = Rules { stale_while_revalidate_s: while_revalidate, stale_if_error_s: if_error, ..Rules::default() };
        let now_s = CAME_S + after_s;
        let Some(stored) = answer.stored(&rules) else { return Ok(()) };
        let verdict = with_request(&asked, |request| decide_stored(request, &stored, &rules, now_s));
        let described = match verdict {
            Verdict::Serve { age_s, .. } | Verdict::ServeStale { age_s, revalidate: false, .. } => {
                Expected::Serve(age_s.into())
            }
            Verdict::ServeStale { age_s, .. } => Expected::ServeAndRevalidate(age_s.into()),
            Verdict::Validate { .. } => Expected::Validate,
            Verdict::Forward { .. } => Expected::Forward,
            Verdict::Unsatisfiable { .. } => Expected::Unsatisfiable,
            Verdict::Complete { .. } => panic!("nothing is stored in parts"),
        };
        prop_assert_eq!(described, expected(&answer, &asked, &rules, now_s));
        // The one comparison of the hot path.
        let fresh = !answer.no_cache && answer.age_at(now_s) < answer.lifetime();
        prop_assert_eq!(stored.is_fresh_for_plain_request(now_s), fresh);
    }

    /// RFC 5861 §4.
    #[test]
    fn a_failure_is_covered_as_the_model_says(
        answer in answers(),
        asked in requests(),
        if_error in 0_u32..20,
        after_s in 0_i64..100,
    ) {
        let rules = Rules { stale_if_error_s: if_error, ..Rules::default() };
        let now_s = CAME_S + after_s;
        let Some(stored) = answer.stored(&rules) else { return Ok(()) };
        let excess = answer.age_at(now_s) - answer.lifetime();
        let window = answer.window(answer.if_error, if_error.into());
        let window = if answer.forbids_stale() || answer.s_maxage.is_some() || answer.lifetime() == 0 {
            window
        } else {
            window.max(asked.if_error.unwrap_or(0))
        };
        let covered = !answer.no_cache && (excess < 0 || excess < window);
        for failure in [OriginFailureKind::Unreachable, OriginFailureKind::Status(503)] {
            let verdict = with_request(&asked, |request| decide_failure(request, &stored, failure, &rules, now_s));
            prop_assert_eq!(matches!(verdict, Verdict::ServeStale { .. }), covered);
        }
    }
}
