use super::{
    Intake, OriginFailureKind, Verdict, decide_failure, decide_miss, decide_parts, decide_request, decide_stored,
};
use crate::lines::with_fields;
use crate::parts::{Stretch, whole_of};
use crate::reason::Lookup;
use crate::request::CacheRequest;
use crate::rules::Rules;
use crate::storable::tests::{RESPONSE_TIME_S, stored_with};
use crate::stored::Stored;
use flatout_http::ranges::ByteRange;

fn with_request<T>(method: &str, lines: &str, check: impl FnOnce(&CacheRequest<'_>) -> T) -> T {
    with_fields(lines.as_bytes(), |fields| {
        let request = CacheRequest {
            method,
            secure: false,
            authority: b"a",
            path: b"/p",
            query: Some(b"q"),
            fields: *fields,
            has_content: false,
            forwarding: &crate::request::AsReceived,
        };
        check(&request)
    })
    .unwrap()
}

/// The verdict's kind and reason, and the upstream request that it requires.
fn describe(verdict: &Verdict) -> (&'static str, Lookup) {
    match verdict {
        Verdict::Serve { reason, .. } => ("serve", *reason),
        Verdict::ServeStale { reason, revalidate: true, .. } => ("serve and revalidate", *reason),
        Verdict::ServeStale { reason, .. } => ("serve stale", *reason),
        Verdict::Validate { reason, .. } => ("validate", *reason),
        Verdict::Complete { reason, .. } => ("complete", *reason),
        Verdict::Forward { reason } => ("forward", *reason),
        Verdict::Unsatisfiable { reason } => ("504", *reason),
    }
}

/// Decides `after_s` after the response arrived; it is a second old then.
fn decide(stored: &Stored, method: &str, request: &str, after_s: i64) -> (&'static str, Lookup) {
    let rules = Rules::default();
    describe(&with_request(method, request, |request| {
        decide_stored(request, stored, &rules, RESPONSE_TIME_S + after_s)
    }))
}

fn stored(lines: &str) -> Stored {
    stored_with("", 200, lines, &Rules::default())
}

#[test]
fn requests_are_classified() {
    let rules = Rules::default();
    for (method, lines, expected) in [
        ("GET", "", Intake::LookUp),
        ("HEAD", "Cache-Control: no-cache\r\n", Intake::LookUp),
        ("GET", "Range: bytes=0-1\r\nAuthorization: x\r\n", Intake::LookUp),
        ("GET", "Cache-Control: no-store\r\n", Intake::Bypass(Lookup::BypassNoStore)),
        ("GET", "Cache-Control: no-store, only-if-cached\r\n", Intake::LookUp),
        ("GET", "Upgrade: h2c\r\n", Intake::LookUp),
        ("GET", "Upgrade: websocket\r\n", Intake::Bypass(Lookup::BypassUpgrade)),
        ("GET", "X-HTTP-Method-Override: DELETE\r\n", Intake::Bypass(Lookup::BypassOverride)),
        ("OPTIONS", "", Intake::Bypass(Lookup::BypassMethod)),
        ("POST", "", Intake::Unsafe(Lookup::UnsafeMethod)),
        ("M-SEARCH", "", Intake::Unsafe(Lookup::UnsafeMethod)),
    ] {
        assert_eq!(
            with_request(method, lines, |request| decide_request(request, &rules)),
            expected,
            "{method} {lines}"
        );
    }
    let fat =
        with_request("GET", "", |request| decide_request(&CacheRequest { has_content: true, ..*request }, &rules));
    assert_eq!(fat, Intake::Bypass(Lookup::BypassContent));
    let off = Rules { enabled: false, ..Rules::default() };
    assert_eq!(with_request("GET", "", |request| decide_request(request, &off)), Intake::Bypass(Lookup::BypassOff));
    let deaf = Rules { request_directives: false, ..Rules::default() };
    let intake = with_request("GET", "Cache-Control: no-store\r\n", |request| decide_request(request, &deaf));
    assert_eq!(intake, Intake::LookUp);
}

/// RFC 9111 §4, §5.2.1, §5.2.2.
#[test]
fn reuse_and_its_refusals() {
    use Lookup::{
        HitFresh, HitMaxStale, HitWhileRevalidate, RequestMaxAge, RequestMinFresh, RequestNoCache, StaleExpired,
        StoredNoCache,
    };
    let tagged = |directives: &str| format!("Cache-Control: {directives}\r\nETag: \"x\"\r\n");
    for (directives, request, after_s, expected) in [
        ("max-age=60", "", 58, ("serve", HitFresh)),
        ("max-age=60", "", 59, ("validate", StaleExpired)),
        ("max-age=60, must-revalidate", "", 58, ("serve", HitFresh)),
        ("max-age=60, no-cache", "", 0, ("validate", StoredNoCache)),
        ("max-age=60", "no-cache", 0, ("validate", RequestNoCache)),
        ("max-age=60, immutable", "no-cache", 0, ("validate", RequestNoCache)),
        ("max-age=60", "max-age=0", 0, ("validate", RequestMaxAge)),
        ("max-age=60, immutable", "max-age=0", 0, ("serve", HitFresh)),
        ("max-age=60", "max-age=10", 9, ("serve", HitFresh)),
        ("max-age=60", "max-age=10", 10, ("validate", RequestMaxAge)),
        ("max-age=60", "min-fresh=10", 49, ("serve", HitFresh)),
        ("max-age=60", "min-fresh=10", 50, ("validate", RequestMinFresh)),
        ("max-age=60", "max-stale=5", 64, ("serve stale", HitMaxStale)),
        ("max-age=60", "max-stale=5", 65, ("validate", StaleExpired)),
        ("max-age=60", "max-stale", 1_000_000, ("serve stale", HitMaxStale)),
        ("max-age=60", "max-stale, max-age=60", 60, ("validate", StaleExpired)),
        ("max-age=60, must-revalidate", "max-stale", 59, ("validate", StaleExpired)),
        ("max-age=60, proxy-revalidate", "max-stale", 59, ("validate", StaleExpired)),
        ("s-maxage=60", "max-stale", 59, ("validate", StaleExpired)),
        ("max-age=60, stale-while-revalidate=5", "", 63, ("serve and revalidate", HitWhileRevalidate)),
        ("max-age=60, stale-while-revalidate=5", "", 64, ("validate", StaleExpired)),
        ("max-age=60, stale-while-revalidate=5", "max-age=60", 60, ("validate", StaleExpired)),
        ("max-age=60, stale-while-revalidate=5", "min-fresh=0", 60, ("validate", StaleExpired)),
        ("max-age=60, stale-while-revalidate=5", "no-cache", 60, ("validate", RequestNoCache)),
        ("max-age=60, stale-while-revalidate=5, must-revalidate", "", 60, ("validate", StaleExpired)),
        ("s-maxage=60, stale-while-revalidate=5", "", 60, ("serve and revalidate", HitWhileRevalidate)),
        ("max-age=60", "only-if-cached", 58, ("serve", HitFresh)),
        ("max-age=60", "only-if-cached", 59, ("504", Lookup::OnlyIfCached)),
        ("max-age=60", "only-if-cached, max-stale", 59, ("serve stale", HitMaxStale)),
    ] {
        let line = if request.is_empty() { String::new() } else { format!("Cache-Control: {request}\r\n") };
        for method in ["GET", "HEAD"] {
            let verdict = decide(&stored(&tagged(directives)), method, &line, after_s);
            assert_eq!(verdict, expected, "{directives} for {request} after {after_s} s");
        }
    }
    let pragma = decide(&stored(&tagged("max-age=60")), "GET", "Pragma: no-cache\r\n", 0);
    assert_eq!(pragma, ("validate", RequestNoCache));
}

/// The single comparison of the hot path agrees with the complete decision.
#[test]
fn plain_requests_need_one_comparison() {
    for lines in [
        "Cache-Control: max-age=60\r\nETag: \"x\"\r\n",
        "Cache-Control: max-age=60, no-cache\r\nETag: \"x\"\r\n",
        "Cache-Control: max-age=0\r\nETag: \"x\"\r\n",
        "Cache-Control: max-age=60\r\nAge: 30\r\n",
        "Cache-Control: max-age=60\r\nDate: Sun, 06 Nov 1994 08:49:07 GMT\r\n",
        "Last-Modified: Sun, 06 Nov 1994 08:48:37 GMT\r\n",
    ] {
        let stored = stored(lines);
        for after_s in -100..100 {
            let plain = stored.is_fresh_for_plain_request(RESPONSE_TIME_S + after_s);
            assert_eq!(plain, decide(&stored, "GET", "", after_s).0 == "serve", "{lines} after {after_s} s");
        }
        let expired = stored.expired(RESPONSE_TIME_S + 5);
        assert!(!expired.is_fresh_for_plain_request(RESPONSE_TIME_S + 5));
    }
}

#[test]
fn without_a_validator_nothing_is_validated() {
    let verdict = decide(&stored("Cache-Control: max-age=60\r\n"), "GET", "", 100);
    assert_eq!(verdict, ("forward", Lookup::StaleExpired));
    let found = stored_with("", 302, "Cache-Control: max-age=60\r\nETag: \"x\"\r\n", &Rules::default());
    assert_eq!(decide(&found, "GET", "", 100), ("forward", Lookup::StaleExpired));
}

#[test]
fn preconditions_and_authorization_are_left_to_the_origin() {
    let plain = stored("Cache-Control: max-age=60\r\n");
    for line in ["If-Match: \"x\"\r\n", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"] {
        assert_eq!(decide(&plain, "GET", line, 0), ("forward", Lookup::RequestPrecondition));
    }
    let authorized = "Authorization: x\r\n";
    assert_eq!(decide(&plain, "GET", authorized, 0), ("forward", Lookup::RequestAuthorized));
    let public = stored("Cache-Control: max-age=60, public\r\n");
    assert_eq!(decide(&public, "GET", authorized, 0), ("serve", Lookup::HitFresh));
}

#[test]
fn misses() {
    let miss = |line: &str| {
        describe(&with_request("GET", line, |request| decide_miss(request, Lookup::MissVary, &Rules::default())))
    };
    assert_eq!(miss(""), ("forward", Lookup::MissVary));
    assert_eq!(miss("Cache-Control: only-if-cached\r\n"), ("504", Lookup::OnlyIfCached));
}

/// RFC 5861 §4, RFC 9111 §4.2.4.
#[test]
fn failures() {
    use Lookup::{ErrorPassed, HitIfError, HitIfUnreachable};
    let rules = Rules { stale_if_error_s: 5, ..Rules::default() };
    let pass = ("forward", ErrorPassed);
    for (directives, request, failure, after_s, expected) in [
        ("max-age=60", "", OriginFailureKind::Unreachable, 63, ("serve stale", HitIfUnreachable)),
        ("max-age=60", "", OriginFailureKind::Status(503), 63, ("serve stale", HitIfError)),
        ("max-age=60", "", OriginFailureKind::Status(503), 64, pass),
        ("max-age=60", "", OriginFailureKind::Status(501), 63, pass),
        ("max-age=60, stale-if-error=100", "", OriginFailureKind::Status(500), 158, ("serve stale", HitIfError)),
        ("max-age=60, stale-if-error=0", "", OriginFailureKind::Status(500), 60, pass),
        ("max-age=60, must-revalidate", "", OriginFailureKind::Unreachable, 60, pass),
        ("max-age=60, proxy-revalidate", "", OriginFailureKind::Unreachable, 60, pass),
        ("max-age=60, no-cache", "", OriginFailureKind::Unreachable, 0, pass),
        ("s-maxage=60", "", OriginFailureKind::Unreachable, 60, pass),
        (
            "max-age=60",
            "Cache-Control: stale-if-error=50\r\n",
            OriginFailureKind::Unreachable,
            100,
            ("serve stale", HitIfUnreachable),
        ),
        (
            "max-age=60, must-revalidate",
            "Cache-Control: stale-if-error=50\r\n",
            OriginFailureKind::Unreachable,
            60,
            pass,
        ),
        (
            "max-age=60",
            "Cache-Control: no-cache\r\n",
            OriginFailureKind::Unreachable,
            10,
            ("serve stale", HitIfUnreachable),
        ),
        ("max-age=60", "If-Match: \"x\"\r\n", OriginFailureKind::Unreachable, 60, pass),
        ("max-age=60", "Authorization: x\r\n", OriginFailureKind::Unreachable, 60, pass),
    ] {
        let stored = stored_with("", 200, &format!("Cache-Control: {directives}\r\nETag: \"x\"\r\n"), &rules);
        let now_s = RESPONSE_TIME_S + after_s;
        let verdict = with_request("GET", request, |request| decide_failure(request, &stored, failure, &rules, now_s));
        assert_eq!(describe(&verdict), expected, "{directives} {request} {failure:?} after {after_s} s");
    }
}

/// RFC 9111 §3.3.
#[test]
fn parts_answer_what_they_hold() {
    let part = |first, last, validator: &str| {
        let lines = format!(
            "Cache-Control: max-age=60\r\nContent-Range: bytes {first}-{last}/1000\r\n{validator}Content-Length: {}\r\n",
            last - first + 1
        );
        stored_with("Range: bytes=0-\r\n", 206, &lines, &Rules::default())
    };
    let strong = part(0, 499, "ETag: \"x\"\r\n");
    for (method, request, after_s, expected) in [
        ("GET", "Range: bytes=0-9\r\n", 0, ("serve", Lookup::HitFresh)),
        ("GET", "Range: bytes=0-9\r\n", 60, ("validate", Lookup::StaleExpired)),
        ("GET", "Range: bytes=0-9\r\nIf-Range: \"x\"\r\n", 0, ("serve", Lookup::HitFresh)),
        ("GET", "Range: bytes=0-9\r\nIf-Range: \"y\"\r\n", 0, ("forward", Lookup::MissPart)),
        ("GET", "Range: bytes=400-600\r\n", 0, ("forward", Lookup::MissPart)),
        ("GET", "Range: bytes=-5\r\n", 0, ("forward", Lookup::MissPart)),
        ("GET", "", 0, ("forward", Lookup::MissPart)),
        ("GET", "", 60, ("forward", Lookup::MissPart)),
        ("HEAD", "", 0, ("forward", Lookup::MissPart)),
        ("GET", "Cache-Control: only-if-cached\r\n", 0, ("504", Lookup::OnlyIfCached)),
    ] {
        assert_eq!(decide(&strong, method, request, after_s), expected, "{method} {request} after {after_s} s");
    }
    let rules = Rules { stale_if_error_s: 60, ..Rules::default() };
    let failed = |line: &str| {
        let sie = Stored { stale_if_error_s: 60, ..strong.clone() };
        describe(&with_request("GET", line, |request| {
            decide_failure(request, &sie, OriginFailureKind::Unreachable, &rules, RESPONSE_TIME_S + 60)
        }))
    };
    assert_eq!(failed("Range: bytes=0-9\r\n"), ("serve stale", Lookup::HitIfUnreachable));
    assert_eq!(failed(""), ("forward", Lookup::ErrorPassed));
}

/// Parts are evaluated as the whole representation: missing ranges are requested, and a possibly different version is
/// accepted only if the client wants all of it.
#[test]
fn parts_answer_together() {
    let lines =
        "Cache-Control: max-age=60\r\nContent-Range: bytes 0-499/1000\r\nContent-Length: 500\r\nETag: \"x\"\r\n";
    let newest = stored_with("Range: bytes=0-\r\n", 206, lines, &Rules::default());
    let (whole, total) = whole_of(&newest).unwrap();
    let part = |first, last| ByteRange { first, last };
    let parts = [part(0, 499), part(600, 999)];
    let decide = |request: &str, after_s: i64| {
        with_request("GET", request, |request| {
            decide_parts(request, (&whole, total), &parts, &Rules::default(), RESPONSE_TIME_S + after_s)
        })
    };
    for (request, after_s, expected) in [
        ("Range: bytes=0-9\r\n", 0, ("serve", Lookup::HitFresh)),
        ("Range: bytes=-5\r\n", 0, ("serve", Lookup::HitFresh)),
        ("Range: bytes=2000-\r\n", 0, ("serve", Lookup::HitFresh)),
        ("Range: bytes=0-9,700-709\r\n", 0, ("serve", Lookup::HitFresh)),
        ("Range: bytes=0-9,510-599\r\n", 0, ("forward", Lookup::MissPart)),
        ("Range: bytes=510-589\r\n", 0, ("forward", Lookup::MissPart)),
        ("Range: bytes=0-9\r\n", 60, ("validate", Lookup::StaleExpired)),
        ("Range: bytes=400-600\r\n", 60, ("complete", Lookup::MissPart)),
        ("If-None-Match: \"x\"\r\n", 0, ("serve", Lookup::HitFresh)),
        ("Range: bytes=0-9\r\nIf-Range: \"y\"\r\n", 0, ("complete", Lookup::MissPart)),
        ("Range: bytes=400-600\r\nCache-Control: only-if-cached\r\n", 0, ("504", Lookup::OnlyIfCached)),
        ("Range: bytes=400-600\r\nIf-Match: \"x\"\r\n", 0, ("forward", Lookup::RequestPrecondition)),
    ] {
        assert_eq!(describe(&decide(request, after_s)), expected, "{request} after {after_s} s");
    }
    let Verdict::Complete { stretches, conditions, .. } = decide("Range: bytes=400-609\r\n", 0) else { panic!() };
    let held = |index, part| Stretch::Held { index, part };
    let missing = Stretch::Missing(part(500, 599));
    assert_eq!(stretches, [held(0, part(400, 499)), missing, held(1, part(600, 609))]);
    assert!(conditions.0.is_empty());
    let Verdict::Complete { stretches, conditions, .. } = decide("", 0) else { panic!() };
    assert_eq!(stretches, [held(0, part(0, 499)), missing, held(1, part(600, 999))]);
    assert_eq!(conditions.0, b"If-Range: \"x\"\r\n");
}
