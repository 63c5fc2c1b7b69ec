use super::{
    NAMES_MAX, Vary, apply_cookie_rules, has_cookie_rules, matches_language, names_unkeyed, parse_vary,
    write_variant_key,
};
use crate::cookie::CookieRules;
use crate::lines::with_fields;
use crate::request::{CacheRequest, FieldSource, Forwarding};
use crate::rules::Rules;
use crate::storable::tests::stored_with;

fn vary(lines: &str) -> Vary {
    with_fields(lines.as_bytes(), parse_vary).unwrap()
}

fn with_request<T>(lines: &str, check: impl FnOnce(&CacheRequest<'_>) -> T) -> T {
    with_fields(lines.as_bytes(), |fields| {
        let request = CacheRequest {
            method: "GET",
            secure: false,
            authority: b"a",
            path: b"/",
            query: None,
            fields: *fields,
            has_content: false,
            forwarding: &crate::request::AsReceived,
        };
        check(&request)
    })
    .unwrap()
}

fn key(names: &str, lines: &str) -> Vec<u8> {
    with_request(lines, |request| {
        let mut output = Vec::new();
        write_variant_key(names, request, &mut output);
        output
    })
}

/// RFC 9110 §12.5.5.
#[test]
fn vary_fields() {
    assert_eq!(vary(""), Vary::Names("".into()));
    assert_eq!(vary("Vary: \r\n"), Vary::Names("".into()));
    assert_eq!(vary("Vary: Foo, bar,,FOO\r\nvary: Accept\r\n"), Vary::Names("accept,bar,foo".into()));
    for star in ["Vary: *\r\n", "Vary: , *\r\n", "Vary: *, Foo\r\n", "Vary: a b, *\r\n", "Vary: \r\nVary: *\r\n"] {
        assert_eq!(vary(star), Vary::Star, "{star}");
    }
    for invalid in ["Vary: a b\r\n", "Vary: a;b\r\n", "Vary: \u{e9}\r\n"] {
        assert_eq!(vary(invalid), Vary::Invalid, "{invalid}");
    }
    let many: String = (0..=NAMES_MAX).map(|number| format!("Vary: x{number}\r\n")).collect();
    assert_eq!(vary(&many), Vary::Invalid);
}

/// RFC 9111 §4.1: what may be normalised.
#[test]
fn requests_that_match() {
    for (names, one, other) in [
        ("foo", "Foo: 1\r\n", "foo:  1 \r\n"),
        ("foo", "Foo: 1, 2\r\n", "Foo: 1\r\nFOO: 2\r\n"),
        ("foo", "Foo: 1,2\r\n", "Foo: 1 ,  2\r\n"),
        ("foo", "Bar: 1\r\n", "Baz: 1\r\n"),
        ("", "Foo: 1\r\n", "Foo: 2\r\n"),
        ("accept-language", "Accept-Language: en, de\r\n", "Accept-Language: De,eN\r\n"),
        ("accept-language", "Accept-Language: en;q=1.0, de;q=0.50\r\n", "Accept-Language: de; Q=0.5 , en\r\n"),
        ("accept-encoding", "Accept-Encoding: gzip, br\r\n", "Accept-Encoding: BR, x-gzip\r\n"),
        ("accept-encoding", "Accept-Encoding: gzip, gzip\r\n", "Accept-Encoding: gzip\r\n"),
        ("cookie", "Cookie: a=b; c=d\r\n", "Cookie: a=b\r\nCookie: c=d\r\n"),
    ] {
        assert_eq!(key(names, one), key(names, other), "{names}: {one} and {other}");
    }
}

#[test]
fn requests_that_do_not() {
    for (names, one, other) in [
        ("foo", "Foo: 1\r\n", "Foo: 2\r\n"),
        ("foo", "Foo: a\r\n", "Foo: A\r\n"),
        ("foo", "Foo: 1\r\n", ""),
        ("foo", "Foo:\r\n", ""),
        ("foo", "Foo: 1, 2\r\n", "Foo: 2, 1\r\n"),
        ("foo", "Foo: \"1, 2\"\r\n", "Foo: \"1,2\"\r\n"),
        ("bar,foo", "Foo: 1\r\n", "Bar: 1\r\n"),
        ("bar,foo", "Bar: 1\r\nFoo: 23\r\n", "Bar: 12\r\nFoo: 3\r\n"),
        ("bar,foo", "Bar: 1\r\nFoo: 2\r\n", "Bar: 1\r\n"),
        ("user-agent", "User-Agent: a, b\r\n", "User-Agent: a,b\r\n"),
        ("accept-language", "Accept-Language: en, de;q=0.5\r\n", "Accept-Language: en, de\r\n"),
        ("accept-encoding", "Accept-Encoding: gzip\r\n", "Accept-Encoding: gzip;q=0\r\n"),
        ("accept-encoding", "Accept-Encoding: gzip\r\n", "Accept-Encoding: gzip, xz\r\n"),
        ("accept-encoding", "Accept-Encoding:\r\n", ""),
        ("accept-encoding", "Accept-Encoding: gzip;q=2\r\n", "Accept-Encoding: gzip\r\n"),
    ] {
        assert_ne!(key(names, one), key(names, other), "{names}: {one} and {other}");
    }
}

#[test]
fn a_language_is_selected_by_its_weight() {
    let rules = Rules::default();
    let answer = "Cache-Control: max-age=60\r\nVary: Accept-Language, Foo\r\nContent-Language: de\r\n";
    let stored = stored_with("Accept-Language: en, de\r\nFoo: 1\r\n", 200, answer, &rules);
    for (lines, expected) in [
        ("Accept-Language: fr;q=0.5, de;q=1.0\r\nFoo: 1\r\n", true),
        ("Accept-Language: DE\r\nFoo: 1\r\n", true),
        ("Accept-Language: DE\r\nFoo: 2\r\n", false),
        ("Accept-Language: de, fr\r\nFoo: 1\r\n", false),
        ("Accept-Language: fr, de;q=0.9\r\nFoo: 1\r\n", false),
        ("Accept-Language: *\r\nFoo: 1\r\n", false),
        ("Accept-Language: de;q=0\r\nFoo: 1\r\n", false),
        ("Foo: 1\r\n", false),
    ] {
        assert_eq!(with_request(lines, |request| matches_language(request, &stored)), expected, "{lines}");
    }
    let stored =
        stored_with("Accept-Language: en\r\n", 200, "Cache-Control: max-age=60\r\nContent-Language: de\r\n", &rules);
    assert!(!with_request("Accept-Language: de\r\n", |request| matches_language(request, &stored)));
}

/// RFC 9111 §4.1: the origin's request counts.
#[test]
fn the_upstream_request_counts() {
    #[derive(Clone, Copy, Debug)]
    struct Source(FieldSource);
    impl Forwarding for Source {
        fn source(&self, name: &str) -> FieldSource {
            if name == "x" { self.0 } else { FieldSource::Client }
        }
    }
    let key_by = |source, lines: &str| {
        with_request(lines, |request| {
            let forwarding = Source(source);
            let request = CacheRequest { forwarding: &forwarding, ..*request };
            let mut output = Vec::new();
            write_variant_key("a,x", &request, &mut output);
            (output, names_unkeyed("a,x", &request))
        })
    };
    let (trusted, untrusted) = (FieldSource::Trust(true), FieldSource::Trust(false));
    let lines = "A: 1\r\nX: 2\r\n";
    assert_eq!(key_by(untrusted, lines), (key("a,x", lines), false));
    assert_ne!(key_by(untrusted, lines), key_by(trusted, lines));
    assert_eq!(key_by(untrusted, "A: 1\r\n"), key_by(trusted, "A: 1\r\n"), "there is nothing to take away");
    let (by_request, unkeyed) = key_by(FieldSource::Request, lines);
    assert!(unkeyed && by_request != key("a,x", lines) && by_request != key("a,x", "A: 1\r\n"));
    let named = "A: 1\r\nX: 2\r\nConnection: close, x\r\n";
    assert_ne!(key("a,x", named), key("a,x", lines));
    assert_eq!(key("a", named), key("a", lines));
}

#[test]
fn vary_on_cookie_leaves_out_the_cookies_that_the_rules_name() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let rules = CookieRules { ignore: names(&["_ga", "_ga_*"]), key: names(&["lang"]), ..CookieRules::default() };
    let vary = apply_cookie_rules("accept,cookie".into(), &rules);
    assert_eq!(&*vary, "accept,cookie:lang,cookies-but:_ga;_ga_*;lang");
    assert_eq!(&*apply_cookie_rules("accept,cookie".into(), &CookieRules::default()), "accept,cookie");
    let same = |one: &str, other: &str| key(&vary, one) == key(&vary, other);
    assert!(same("", "Cookie: _ga=1\r\n"));
    assert!(same("Cookie: _ga=1; sid=2; _ga_X=3\r\n", "Cookie: _ga=4\r\nCookie: sid=2\r\n"));
    for (one, other) in [
        ("", "Cookie: sid=2\r\n"),
        ("Cookie: sid=1\r\n", "Cookie: sid=2\r\n"),
        ("Cookie: _gab=1\r\n", "Cookie: _gab=2\r\n"),
        ("Cookie: lang=de\r\n", "Cookie: lang=fr\r\n"),
        ("Cookie: sid=1\r\n", "Cookie: sid=1; x=2\r\n"),
        ("Cookie: nameless\r\n", "\r\n"),
    ] {
        assert!(!same(one, other), "{one} {other}");
    }
    // Cookies that other rules leave out still count here.
    assert!(has_cookie_rules(&vary, &rules));
    assert!(!has_cookie_rules(&vary, &CookieRules { ignore: names(&["_ga"]), ..rules.clone() }));
    assert!(!has_cookie_rules(&vary, &CookieRules::default()));
    assert!(has_cookie_rules("accept,cookie", &CookieRules::default()));
}
