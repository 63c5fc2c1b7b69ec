use super::{Ending, OriginResponse, Storing, decide_response};
use crate::cookie::CookieRules;
use crate::lines::with_fields;
use crate::reason::NoStore;
use crate::request::CacheRequest;
use crate::rules::{Rules, SetCookie};
use crate::stored::{Extent, Flags, Stored};
use flatout_http::token::parse_decimal;

/// When the responses of the tests arrive: Sun, 06 Nov 1994 08:49:37 GMT. Their requests were sent a second earlier.
pub(crate) const RESPONSE_TIME_S: i64 = 784_111_777;

/// Decides on a response to a request for `http://a/p?q`. The length of its content is its Content-Length; without one,
/// the content is chunked.
pub(crate) fn decide(method: &str, request: &str, status: u16, response: &str, rules: &Rules) -> Storing {
    with_exchange(method, request, status, response, |request, response| decide_response(request, response, rules))
}

pub(crate) fn with_exchange<T>(
    method: &str,
    request: &str,
    status: u16,
    response: &str,
    check: impl FnOnce(&CacheRequest<'_>, &OriginResponse<'_>) -> T,
) -> T {
    with_fields(request.as_bytes(), |request_fields| {
        with_fields(response.as_bytes(), |fields| {
            let request = CacheRequest {
                method,
                secure: false,
                authority: b"a",
                path: b"/p",
                query: Some(b"q"),
                fields: *request_fields,
                has_content: method == "POST",
                forwarding: &crate::request::AsReceived,
            };
            let length = fields.first("content-length").and_then(parse_decimal);
            let response = OriginResponse {
                status,
                fields: *fields,
                request_time_s: RESPONSE_TIME_S - 1,
                response_time_s: RESPONSE_TIME_S,
                ending: length.map_or(Ending::Framed, Ending::Length),
                is_stretch: false,
            };
            check(&request, &response)
        })
    })
    .flatten()
    .expect("fields of a test that are fields")
}

/// The metadata of a stored response.
pub(crate) fn stored_with(request: &str, status: u16, response: &str, rules: &Rules) -> Stored {
    match decide("GET", request, status, response, rules) {
        Storing::Store(stored) => *stored,
        refused => panic!("not stored: {refused:?}"),
    }
}

fn refusal(storing: &Storing) -> Option<NoStore> {
    match storing {
        Storing::Store(_) => None,
        Storing::No(reason) | Storing::Remember(reason, _) => Some(*reason),
    }
}

fn refused(request: &str, status: u16, response: &str) -> Option<NoStore> {
    refusal(&decide("GET", request, status, response, &Rules::default()))
}

const MODIFIED: &str = "Last-Modified: Sat, 05 Nov 1994 08:49:37 GMT\r\n";

/// RFC 9111 §3, its conditions one by one.
#[test]
fn what_may_be_stored() {
    for (request, status, response, expected) in [
        ("", 200, "Cache-Control: max-age=60\r\n", None),
        ("", 200, "Expires: Sun, 06 Nov 1994 08:50:37 GMT\r\n", None),
        ("", 200, MODIFIED, None),
        ("", 200, "ETag: \"x\"\r\n", None),
        ("", 200, "Cache-Control: no-cache\r\nETag: \"x\"\r\n", None),
        ("", 200, "", Some(NoStore::NoFreshness)),
        ("", 200, "Cache-Control: public\r\n", Some(NoStore::NoFreshness)),
        ("", 200, "Cache-Control: max-age=0\r\n", Some(NoStore::AlreadyStale)),
        ("", 200, "Cache-Control: max-age=60\r\nAge: 60\r\n", Some(NoStore::AlreadyStale)),
        ("", 200, "Cache-Control: max-age=60\r\nAge: x\r\n", None),
        ("", 200, "Cache-Control: max-age=60\r\nAge: 60, 0\r\n", Some(NoStore::AlreadyStale)),
        ("", 200, "Cache-Control: max-age=x\r\n", Some(NoStore::MaxAgeInvalid)),
        ("", 200, "Expires: 0\r\n", Some(NoStore::ExpiresInvalid)),
        ("", 200, "Cache-Control: stale-while-revalidate=60\r\n", Some(NoStore::NoFreshness)),
        ("", 200, "Cache-Control: max-age=60\r\nContent-Type: Text/Event-Stream; x\r\n", Some(NoStore::EventStream)),
        ("", 200, "Cache-Control: no-cache, max-age=60\r\n", Some(NoStore::AlreadyStale)),
        ("", 200, "Cache-Control: max-age=0, stale-if-error=5\r\n", None),
        ("", 200, "Cache-Control: no-store, max-age=60\r\n", Some(NoStore::NoStoreDirective)),
        ("", 200, "Cache-Control: private, max-age=60\r\n", Some(NoStore::Private)),
        ("", 200, "Cache-Control: private=\"x\", max-age=60\r\n", None),
        ("", 200, "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n", Some(NoStore::SetCookie)),
        (
            "",
            200,
            "Cache-Control: max-age=60, no-cache=\"Set-Cookie\"\r\nSet-Cookie: a=b\r\n",
            Some(NoStore::SetCookie),
        ),
        ("", 200, "Cache-Control: public, max-age=60, no-cache=\"Set-Cookie\"\r\nSet-Cookie: a=b\r\n", None),
        ("", 200, "Cache-Control: s-maxage=60, private=\"Set-Cookie\"\r\nSet-Cookie: a=b\r\n", None),
        ("Cookie: sid=1\r\n", 200, "Cache-Control: max-age=0\r\nETag: \"a\"\r\n", Some(NoStore::Cookie)),
        ("Cookie: sid=1\r\n", 200, "Expires: 0\r\nETag: \"a\"\r\n", Some(NoStore::Cookie)),
        ("Cookie: sid=1\r\n", 200, "Cache-Control: max-age=60, private=\"x\"\r\n", Some(NoStore::Cookie)),
        ("Cookie: sid=1\r\n", 200, "Cache-Control: max-age=0, public\r\nETag: \"a\"\r\n", None),
        ("Cookie: sid=1\r\n", 200, "Cache-Control: max-age=0, stale-while-revalidate=9\r\n", None),
        ("", 200, "Cache-Control: max-age=60\r\nVary: *\r\n", Some(NoStore::VaryStar)),
        ("", 200, "Cache-Control: max-age=60\r\nVary: a b\r\n", Some(NoStore::VaryInvalid)),
        ("Cache-Control: no-store\r\n", 200, "Cache-Control: max-age=60\r\n", Some(NoStore::RequestNoStore)),
        ("", 302, "Cache-Control: max-age=60\r\n", None),
        ("", 302, MODIFIED, Some(NoStore::StatusNotCacheable)),
        ("", 404, MODIFIED, None),
        ("", 503, MODIFIED, Some(NoStore::StatusNotCacheable)),
        ("", 503, "Cache-Control: max-age=60\r\n", None),
        ("", 599, "Cache-Control: max-age=60\r\n", None),
        ("", 599, "Cache-Control: max-age=60, must-understand\r\n", Some(NoStore::StatusNotUnderstood)),
        ("", 200, "Cache-Control: max-age=60, must-understand, no-store\r\n", None),
        ("", 304, "Cache-Control: max-age=60\r\n", Some(NoStore::NotModifiedUnasked)),
        ("", 400, "Cache-Control: max-age=60\r\n", Some(NoStore::StatusOfRequest)),
        ("", 406, "Cache-Control: max-age=60\r\n", Some(NoStore::StatusOfRequest)),
        ("", 505, "Cache-Control: max-age=60\r\n", Some(NoStore::StatusOfRequest)),
        ("", 401, "Cache-Control: max-age=60\r\n", Some(NoStore::StatusOfRequest)),
        ("", 412, "Cache-Control: max-age=60\r\n", Some(NoStore::StatusOfRequest)),
        ("", 431, "Cache-Control: max-age=60\r\n", Some(NoStore::StatusOfRequest)),
        ("", 200, "CDN-Cache-Control: max-age=60\r\nCache-Control: no-store\r\n", None),
        ("", 200, "CDN-Cache-Control: no-store\r\nCache-Control: max-age=60\r\n", Some(NoStore::NoStoreDirective)),
    ] {
        assert_eq!(refused(request, status, response), expected, "{request}{status} {response}");
    }
}

/// RFC 9111 §3.5.
#[test]
fn answers_to_authorization() {
    for (directives, expected) in [
        ("max-age=60", Some(NoStore::Authorization)),
        ("max-age=60, proxy-revalidate", Some(NoStore::Authorization)),
        ("max-age=60, public", None),
        ("max-age=60, must-revalidate", None),
        ("must-revalidate", Some(NoStore::NoFreshness)),
        ("s-maxage=60", None),
    ] {
        let response = format!("Cache-Control: {directives}\r\n");
        assert_eq!(refused("Authorization: x\r\n", 200, &response), expected, "{directives}");
    }
}

/// A response that only a default or a heuristic makes cacheable may be private.
#[test]
fn requests_that_name_their_visitor() {
    let ttl = Rules { default_ttl_s: Some(60), ..Rules::default() };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let cookies = CookieRules { bypass: names(&["admin"]), ignore: names(&["_ga*"]), key: names(&["lang"]) };
    let named = Rules { cookies, ..ttl.clone() };
    let cookie = Some(NoStore::Cookie);
    for (rules, request, response, expected) in [
        (&ttl, "", "", None),
        (&ttl, "Cookie: a=b\r\n", "", cookie),
        (&ttl, "Cookie: a=b\r\n", "ETag: \"x\"\r\n", cookie),
        (&ttl, "Cookie: a=b\r\n", MODIFIED, cookie),
        (&ttl, "Cookie: a=b\r\n", "Cache-Control: no-cache\r\nETag: \"x\"\r\n", cookie),
        (&ttl, "Cookie: a=b\r\n", "Cache-Control: must-revalidate\r\n", cookie),
        (&ttl, "Cookie: a=b\r\n", "Cache-Control: public\r\n", None),
        (&ttl, "Cookie: a=b\r\n", "Cache-Control: max-age=60\r\n", None),
        (&ttl, "Cookie: a=b\r\n", "Cache-Control: s-maxage=60\r\n", None),
        (&ttl, "Cookie: a=b\r\n", "CDN-Cache-Control: max-age=60\r\n", None),
        (&ttl, "Cookie: a=b\r\n", "Expires: Sun, 06 Nov 1994 08:50:37 GMT\r\n", None),
        (&ttl, "Authorization: x\r\n", "Cache-Control: must-revalidate\r\n", Some(NoStore::Authorization)),
        (&named, "Cookie: _ga=b\r\n", "", None),
        (&named, "Cookie: _ga=b; lang=de\r\n", "", None),
        (&named, "Cookie: _ga=b; a=b\r\n", "", cookie),
        (&named, "Cookie: admin=1\r\n", "Cache-Control: public, max-age=60\r\n", Some(NoStore::Bypassed)),
    ] {
        assert_eq!(refusal(&decide("GET", request, 200, response, rules)), expected, "{request}{response}");
    }
    let stored = stored_with("Cookie: lang=de\r\n", 200, "Vary: Accept\r\n", &named);
    assert_eq!(&*stored.vary, "accept,cookie:lang");
    assert!(stored.variant_key.ends_with(b"\x02\0\0\0de"));
    assert!(!stored.flags.any(Flags::SHARED));
}

#[test]
fn methods() {
    let decide =
        |method, request: &str, response: &str| refusal(&decide(method, request, 200, response, &Rules::default()));
    let fresh = "Cache-Control: max-age=60\r\n";
    assert_eq!(decide("HEAD", "", fresh), Some(NoStore::HeadOnly));
    assert_eq!(decide("PUT", "", fresh), Some(NoStore::MethodNotCacheable));
    // RFC 9110 §9.3.3.
    assert_eq!(decide("POST", "", fresh), Some(NoStore::MethodNotCacheable));
    let own = "Content-Location: /p?q\r\n";
    assert_eq!(decide("POST", "", &format!("{fresh}{own}")), None);
    assert_eq!(decide("POST", "", &format!("{MODIFIED}{own}")), Some(NoStore::MethodNotCacheable));
    assert_eq!(decide("POST", "", &format!("{fresh}Content-Location: /p\r\n")), Some(NoStore::MethodNotCacheable));
    let off = Rules { enabled: false, ..Rules::default() };
    assert_eq!(refusal(&super::tests::decide("GET", "", 200, fresh, &off)), Some(NoStore::Off));
}

#[test]
fn uncacheable_keys_are_marked() {
    let decide = |status, response: &str| decide("GET", "", status, response, &Rules::default());
    assert_eq!(decide(200, "Cache-Control: private\r\n"), Storing::Remember(NoStore::Private, 60));
    assert_eq!(decide(200, ""), Storing::Remember(NoStore::NoFreshness, 60));
    assert_eq!(decide(503, ""), Storing::No(NoStore::StatusNotCacheable), "an error that may soon be over");
    let private = "Cache-Control: private\r\n";
    let rules = Rules::default();
    assert_eq!(super::tests::decide("POST", "", 200, private, &rules), Storing::No(NoStore::Private));
    let authorized = super::tests::decide("GET", "Authorization: x\r\n", 200, private, &rules);
    assert_eq!(authorized, Storing::No(NoStore::Private));
    let rules = Rules { hit_for_miss_s: 0, ..Rules::default() };
    assert_eq!(super::tests::decide("GET", "", 200, "", &rules), Storing::No(NoStore::NoFreshness));
}

/// RFC 9111 §3.1.
#[test]
fn lines_that_are_kept() {
    let response = "Connection: close, X-Hop\r\nKeep-Alive: 5\r\nX-Hop: 1\r\nDate: Sun, 06 Nov 1994 08:49:30 GMT\r\n\
        Cache-Control: max-age=60, no-cache=\"x-named\"\r\nX-Named: 2\r\nAge: 3\r\nContent-Length: 9\r\n\
        Warning: 110 - \"x\"\r\nX-Kept:  4 \r\nContent-Range: odd\r\nTransfer-Encoding: x\r\nUpgrade: y\r\n";
    let stored = stored_with("", 200, response, &Rules::default());
    let expected = "Date: Sun, 06 Nov 1994 08:49:30 GMT\r\nCache-Control: max-age=60, no-cache=\"x-named\"\r\n\
        X-Kept: 4\r\nContent-Range: odd\r\n";
    assert_eq!(String::from_utf8_lossy(&stored.lines), expected);
    assert_eq!((stored.age_field_s, stored.initial_age_s), (3, 7));
    // RFC 9110 §6.6.1: without a valid Date, when it came.
    let stored = stored_with("", 200, "Date: x\r\nCache-Control: max-age=60\r\n", &Rules::default());
    let expected = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=60\r\n";
    assert_eq!((String::from_utf8_lossy(&stored.lines).as_ref(), stored.date_s), (expected, RESPONSE_TIME_S));
}

#[test]
fn cookies_by_the_rules() {
    let response = "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n";
    let lines = |set_cookie| {
        let rules = Rules { set_cookie, ..Rules::default() };
        String::from_utf8(stored_with("", 200, response, &rules).lines.into()).unwrap()
    };
    assert!(!lines(SetCookie::Strip).contains("Set-Cookie"));
    assert!(lines(SetCookie::Store).contains("Set-Cookie: a=b\r\n"));
}

/// RFC 5861, RFC 9111 §5.2.2.
#[test]
fn stale_windows_and_flags() {
    let rules = Rules { stale_while_revalidate_s: 7, stale_if_error_s: 8, ..Rules::default() };
    for (directives, windows) in [
        ("max-age=60", (7, 8)),
        ("max-age=60, stale-while-revalidate=1, stale-if-error=2", (1, 2)),
        ("max-age=60, stale-if-error=0", (7, 0)),
        ("max-age=60, stale-if-error=x", (7, 0)),
        ("max-age=60, must-revalidate, stale-if-error=2", (0, 0)),
        ("max-age=60, proxy-revalidate", (0, 0)),
        ("s-maxage=60", (0, 0)),
        ("s-maxage=60, stale-while-revalidate=1", (1, 0)),
        ("public, max-age=0", (7, 8)),
        ("max-age=0, stale-while-revalidate=1, stale-if-error=2", (1, 2)),
    ] {
        let stored = stored_with("", 200, &format!("Cache-Control: {directives}\r\n"), &rules);
        assert_eq!((stored.stale_while_revalidate_s, stored.stale_if_error_s), windows, "{directives}");
        let strict = directives.contains("reval") && !directives.contains("while") || directives.contains("s-maxage");
        assert_eq!(stored.flags.any(Flags::MUST_REVALIDATE), strict, "{directives}");
    }
    // A response that was never fresh is not shared, unless the origin allows it.
    for fields in ["Cache-Control: max-age=0\r\n", "Cache-Control: stale-while-revalidate=9\r\n", "Expires: 0\r\n", ""]
    {
        let stored = stored_with("", 200, &format!("{fields}ETag: \"x\"\r\n"), &rules);
        assert_eq!((stored.stale_while_revalidate_s, stored.stale_if_error_s), (0, 0), "{fields}");
    }
    let strong =
        "Cache-Control: max-age=60, immutable\r\nETag: \"x\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let flags = stored_with("", 200, strong, &Rules::default()).flags;
    assert!(flags.any(Flags::STRONG_ETAG) && flags.any(Flags::IMMUTABLE) && !flags.any(Flags::STRONG_DATE));
    let weak = "Cache-Control: max-age=60\r\nETag: W/\"x\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:36 GMT\r\n";
    let flags = stored_with("", 200, weak, &Rules::default()).flags;
    assert!(!flags.any(Flags::STRONG_ETAG) && flags.any(Flags::STRONG_DATE));
    assert_eq!(stored_with("", 200, "Cache-Control: max-age=9\r\nETag: x\r\n", &rules).etag, None);
}

/// RFC 9111 §3.3, RFC 9110 §15.3.7.
#[test]
fn parts() {
    let decide = |request: &str, range: &str, length: &str, rules: &Rules| {
        let response = format!("Cache-Control: max-age=60\r\n{range}Content-Length: {length}\r\n");
        match decide("GET", request, 206, &response, rules) {
            Storing::Store(stored) => Ok((stored.status, stored.extent, stored.fresh_until_s != i64::MIN)),
            Storing::No(reason) | Storing::Remember(reason, _) => Err(reason),
        }
    };
    let rules = Rules::default();
    let asked = "Range: bytes=2-5\r\n";
    let part = |total| Ok((206, Extent::Part { first: 2, last: 5, total }, false));
    assert_eq!(decide(asked, "Content-Range: bytes 2-5/10\r\n", "4", &rules), part(Some(10)));
    assert_eq!(decide(asked, "Content-Range: BYTES 2-5/*\r\n", "4", &rules), part(None));
    assert_eq!(decide(asked, "Content-Range: bytes 0-9/10\r\n", "10", &rules), Ok((200, Extent::Whole, true)));
    let unusable = Err(NoStore::PartUnusable);
    for range in [
        "",
        "Content-Range: bytes 2-5/10\r\nContent-Range: bytes 2-5/10\r\n",
        "Content-Range: bytes 5-2/10\r\n",
        "Content-Range: bytes 2-5/5\r\n",
        "Content-Range: items 2-5/10\r\n",
        "Content-Range: bytes */10\r\n",
        "Content-Range: bytes 2-5\r\n",
        "Content-Type: multipart/byteranges; boundary=x\r\n",
    ] {
        assert_eq!(decide(asked, range, "4", &rules), unusable, "{range}");
    }
    assert_eq!(decide("", "Content-Range: bytes 2-5/10\r\n", "4", &rules), unusable, "not asked for");
    assert_eq!(decide(asked, "Content-Range: bytes 2-5/10\r\n", "3", &rules), unusable);
    let uneven = Rules { mismatched_ranges: true, ..Rules::default() };
    let kept = |last, total| Ok((206, Extent::Part { first: 2, last, total: Some(total) }, false));
    assert_eq!(decide(asked, "Content-Range: bytes 2-5/10\r\n", "3", &uneven), kept(4, 10));
    assert_eq!(decide(asked, "Content-Range: bytes 2-9/10\r\n", "7", &uneven), kept(8, 9));
    assert_eq!(decide(asked, "Content-Range: bytes 2-5/10\r\n", "5", &uneven), unusable);
}

#[test]
fn sizes() {
    let rules = Rules { object_bytes_max: 10, ..Rules::default() };
    let decide = |response: &str| refusal(&decide("GET", "", 200, response, &rules));
    assert_eq!(decide("Cache-Control: max-age=60\r\nContent-Length: 10\r\n"), None);
    assert_eq!(decide("Cache-Control: max-age=60\r\nContent-Length: 11\r\n"), Some(NoStore::TooLarge));
    let tags = format!("Cache-Control: max-age=60\r\nCache-Tag: {}\r\n", "x".repeat(1025));
    assert_eq!(decide(&tags), Some(NoStore::TagsTooMany));
    let long = format!("Cache-Control: max-age=60\r\n{}", format!("X: {}\r\n", "y".repeat(1000)).repeat(70));
    assert_eq!(decide(&long), Some(NoStore::FieldsTooLarge));
}
