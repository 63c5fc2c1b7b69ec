use super::{Freshening, HeadEffect, decide_head, freshen, make_conditions};
use crate::reason::NoStore;
use crate::rules::{Rules, SetCookie};
use crate::storable::tests::{RESPONSE_TIME_S, stored_with, with_exchange};
use crate::stored::{Flags, Stored};

const MODIFIED: &str = "Last-Modified: Sun, 06 Nov 1994 07:49:37 GMT\r\n";

fn stored(lines: &str) -> Stored {
    stored_with("", 200, lines, &Rules::default())
}

/// A 304 that arrives 100 s after the stored response.
fn validated(stored: &Stored, response: &str, rules: &Rules) -> Freshening {
    with_exchange("GET", "", 304, response, |request, response| {
        let mut response = *response;
        response.request_time_s += 100;
        response.response_time_s += 100;
        freshen(request, stored, &response, rules)
    })
}

fn text(stored: &Stored) -> String {
    String::from_utf8(stored.lines.to_vec()).unwrap()
}

/// RFC 9111 §4.3.1.
#[test]
fn conditions_for_the_origin() {
    let conditions = |lines: &str| make_conditions(&stored(lines)).map(|lines| String::from_utf8(lines.0).unwrap());
    let fresh = "Cache-Control: max-age=60\r\n";
    assert_eq!(conditions(fresh), None);
    assert_eq!(conditions(&format!("{fresh}ETag: W/\"x\"\r\n")).unwrap(), "If-None-Match: W/\"x\"\r\n");
    let both = "If-None-Match: \"x\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 07:49:37 GMT\r\n";
    assert_eq!(conditions(&format!("{fresh}ETag: \"x\"\r\n{MODIFIED}")).unwrap(), both);
    let found = stored_with("", 404, &format!("{fresh}ETag: \"x\"\r\n"), &Rules::default());
    assert_eq!(make_conditions(&found), None, "a 304 stands for a 200");
}

/// RFC 9111 §3.2, §4.3.4.
#[test]
fn a_304_updates_fields_and_freshness() {
    let old = stored(
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=60\r\nETag: \"x\"\r\nX-Stays: 1\r\n\
         X-Changes: 2\r\nContent-Encoding: br\r\nContent-Type: a/b\r\nx-changes: 3\r\n",
    );
    let new = "Date: Sun, 06 Nov 1994 08:51:17 GMT\r\nCache-Control: max-age=90\r\nETag: \"x\"\r\nX-Changes: 4\r\n\
        Content-Encoding: gzip\r\nContent-Length: 77\r\nContent-Type: c/d\r\nConnection: X-Hop\r\nX-Hop: 5\r\n\
        Set-Cookie2: y\r\n";
    let Freshening::Fresh(fresh) = validated(&old, new, &Rules::default()) else { panic!("not fresh") };
    let expected = "ETag: \"x\"\r\nX-Stays: 1\r\nContent-Encoding: br\r\nDate: Sun, 06 Nov 1994 08:51:17 GMT\r\n\
        Cache-Control: max-age=90\r\nX-Changes: 4\r\nContent-Type: c/d\r\nSet-Cookie2: y\r\n";
    assert_eq!(text(&fresh), expected);
    assert_eq!((fresh.lifetime_s, fresh.response_time_s, fresh.initial_age_s), (90, RESPONSE_TIME_S + 100, 1));
    assert!(fresh.is_fresh_for_plain_request(RESPONSE_TIME_S + 188));
    assert!(!fresh.is_fresh_for_plain_request(RESPONSE_TIME_S + 189));
}

/// RFC 9110 §6.6.1: a 304 without a Date counts as dated on arrival; the stored Date would make it stale at once.
#[test]
fn a_304_without_date_is_new() {
    let old = stored("Cache-Control: max-age=60\r\nETag: \"x\"\r\n");
    for date in ["", "Date: x\r\n"] {
        let Freshening::Fresh(fresh) = validated(&old, date, &Rules::default()) else { panic!("not fresh") };
        assert_eq!((fresh.date_s, fresh.initial_age_s), (RESPONSE_TIME_S + 100, 1));
        assert_eq!(text(&fresh).matches("Date: ").count(), 1);
        assert!(text(&fresh).contains("Date: Sun, 06 Nov 1994 08:51:17 GMT\r\n"));
    }
}

#[test]
fn validators_of_a_304() {
    let tagged = stored(&format!("Cache-Control: max-age=60\r\nETag: \"x\"\r\n{MODIFIED}"));
    for response in ["", "ETag: \"x\"\r\n", "ETag: W/\"x\"\r\n", "ETag: \"y\"\r\n"] {
        let Freshening::Fresh(fresh) = validated(&tagged, response, &Rules::default()) else { panic!("{response}") };
        assert_eq!(fresh.etag.as_deref(), Some(&b"\"x\""[..]), "{response}");
        assert!(fresh.flags.any(Flags::STRONG_ETAG));
    }
    let dated = stored(&format!("Cache-Control: max-age=60\r\n{MODIFIED}"));
    let other = "Last-Modified: Sun, 06 Nov 1994 07:49:38 GMT\r\n";
    assert!(matches!(validated(&dated, MODIFIED, &Rules::default()), Freshening::Fresh(_)));
    assert!(matches!(validated(&dated, "", &Rules::default()), Freshening::Fresh(_)));
    assert!(matches!(validated(&dated, other, &Rules::default()), Freshening::Mismatch(_)));
}

#[test]
fn a_304_that_forbids_keeping() {
    let old = stored("Cache-Control: max-age=60\r\nETag: \"x\"\r\n");
    for (response, expected) in [
        ("Cache-Control: private\r\n", NoStore::Private),
        ("Cache-Control: no-store\r\n", NoStore::NoStoreDirective),
        ("Set-Cookie: a=b\r\n", NoStore::SetCookie),
        ("Vary: *\r\n", NoStore::VaryStar),
    ] {
        match validated(&old, response, &Rules::default()) {
            Freshening::FreshOnce(_, reason) => assert_eq!(reason, expected, "{response}"),
            other => panic!("{response}: {other:?}"),
        }
    }
    let strip = Rules { set_cookie: SetCookie::Strip, ..Rules::default() };
    let Freshening::Fresh(fresh) = validated(&old, "Set-Cookie: a=b\r\n", &strip) else { panic!("not fresh") };
    assert!(!text(&fresh).contains("Set-Cookie"));
    // A field that the stored answer names is not kept from a 304 either.
    let naming = stored("Cache-Control: max-age=60, no-cache=\"x-named\"\r\nETag: \"x\"\r\n");
    let Freshening::Fresh(fresh) = validated(&naming, "X-Named: 1\r\n", &Rules::default()) else { panic!("not fresh") };
    assert!(!text(&fresh).contains("X-Named"));
}

/// RFC 9111 §4.3.5.
#[test]
fn head_updates_or_drops() {
    let old = stored(&format!("Cache-Control: max-age=60\r\nETag: \"x\"\r\n{MODIFIED}X: 1\r\n"));
    let head = |status, response: &str| {
        with_exchange("HEAD", "", status, response, |request, response| {
            decide_head(request, &old, 10, response, &Rules::default())
        })
    };
    let same = "Cache-Control: max-age=1000\r\nETag: \"x\"\r\nContent-Length: 10\r\nX: 2\r\n";
    let HeadEffect::Update(updated) = head(200, same) else { panic!("not updated") };
    assert!(updated.lifetime_s == 1000 && text(&updated).contains("X: 2\r\n"));
    for other in [
        "ETag: \"y\"\r\n",
        "Last-Modified: Sun, 06 Nov 1994 07:49:38 GMT\r\n",
        "Content-Length: 11\r\n",
        "ETag: \"x\"\r\nContent-Length: 11\r\n",
        "ETag: \"x\"\r\nCache-Control: private\r\n",
    ] {
        assert_eq!(head(200, other), HeadEffect::Drop, "{other}");
    }
    for silent in ["Cache-Control: max-age=1000\r\n", "Cache-Control: max-age=1000\r\nContent-Length: 10\r\n"] {
        assert_eq!(head(200, silent), HeadEffect::Nothing, "changed content may have the same length");
    }
    assert_eq!(head(404, ""), HeadEffect::Drop);
    assert_eq!(head(500, "ETag: \"y\"\r\n"), HeadEffect::Nothing);
}
