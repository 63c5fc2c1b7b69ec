use super::{
    RequestDirectives, ResponseDirectives, SECONDS_MAX, Seconds, parse_request_directives, parse_response_directives,
};
use crate::lines::with_fields;

fn response(lines: &[&str]) -> ResponseDirectives {
    let text: String = lines.iter().map(|line| format!("Cache-Control: {line}\r\n")).collect();
    with_fields(text.as_bytes(), parse_response_directives).unwrap()
}

fn request(lines: &[(&str, &str)]) -> RequestDirectives {
    let text: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    with_fields(text.as_bytes(), parse_request_directives).unwrap()
}

#[test]
fn numbers_as_rfc_9111_1_2_2_has_them() {
    for (value, expected) in [
        ("0", Seconds::Valid(0)),
        ("3600", Seconds::Valid(3600)),
        ("003600", Seconds::Valid(3600)),
        ("\"3600\"", Seconds::Valid(3600)),
        ("2147483647", Seconds::Valid(SECONDS_MAX - 1)),
        ("2147483648", Seconds::Valid(SECONDS_MAX)),
        ("2147483649", Seconds::Valid(SECONDS_MAX)),
        ("99999999999", Seconds::Valid(SECONDS_MAX)),
        ("99999999999999999999999999", Seconds::Valid(SECONDS_MAX)),
        ("-3600", Seconds::Invalid),
        ("'3600'", Seconds::Invalid),
        ("3600.0", Seconds::Invalid),
        ("a3600", Seconds::Invalid),
        ("3600a", Seconds::Invalid),
        ("", Seconds::Invalid),
        ("\"\"", Seconds::Invalid),
        (" 3600", Seconds::Invalid),
        ("3600 60", Seconds::Invalid),
        ("\"3600\"x", Seconds::Invalid),
        ("\"36", Seconds::Invalid),
    ] {
        assert_eq!(response(&[&format!("max-age={value}")]).max_age, expected, "{value}");
    }
    assert_eq!(response(&["max-age"]).max_age, Seconds::Invalid);
    assert_eq!(response(&["max-age =3600"]).max_age, Seconds::Invalid);
    assert_eq!(response(&["public"]).max_age, Seconds::Absent);
}

/// RFC 9111 §4.2.1 allows the first of several values, or none: the lesser value satisfies both.
#[test]
fn of_several_values_the_least_counts() {
    for lines in [&["max-age=3600, max-age=60"][..], &["max-age=60", "max-age=3600"], &["MAX-AGE=60,max-age=\"60\""]] {
        assert_eq!(response(lines).max_age, Seconds::Valid(60));
    }
    assert_eq!(response(&["max-age=60, max-age=x"]).max_age, Seconds::Invalid);
}

#[test]
fn quotes_hide_what_they_hold_and_nothing_else() {
    assert_eq!(response(&["extension=\"max-age=3600\", max-age=1"]).max_age, Seconds::Valid(1));
    assert_eq!(response(&["max-age=1, extension=\"max-age=0, no-store\""]).max_age, Seconds::Valid(1));
    assert_eq!(response(&["a=\"\\\", no-store\", max-age=5"]).max_age, Seconds::Valid(5));
    assert!(!response(&["a=\"\\\", no-store\", max-age=5"]).no_store);
    // A quote that is never closed hides nothing.
    assert!(response(&["a=\"x, no-store"]).no_store);
    assert!(response(&["a=\"x\\"]).named.is_empty());
}

#[test]
fn names_of_fields_limit_no_cache_and_private() {
    let named = |text: &str| text.split(' ').map(|name| name.as_bytes().into()).collect::<Vec<Box<[u8]>>>();
    let directives = response(&["no-cache=\"Set-Cookie, X-a\", private=foo"]);
    assert!(!directives.no_cache && !directives.private);
    assert_eq!(directives.named, named("set-cookie x-a foo"));
    for unlimited in ["no-cache=\"\"", "no-cache=\"a b\"", "no-cache", "no-cache=", "no-cache=\"a", "No-CaChE=\" , \""]
    {
        assert!(response(&[unlimited]).no_cache, "{unlimited}");
    }
    let both = response(&["private=\"a\"", "private"]);
    assert!(both.private && both.named == named("a"));
}

#[test]
fn prohibitions_count_with_any_argument_and_permissions_only_without() {
    let directives = response(&["no-store=1, must-revalidate=x, proxy-revalidate=y, public=1, immutable=z"]);
    assert!(directives.no_store && directives.must_revalidate && directives.proxy_revalidate);
    assert!(!directives.public && !directives.immutable);
    let directives = response(&["PUBLIC , Immutable,,no-transform , must-understand, foobar"]);
    assert!(directives.public && directives.immutable && directives.no_transform && directives.must_understand);
}

#[test]
fn requests_advise() {
    let directives = request(&[("Cache-Control", "max-age=0, max-stale, min-fresh=5, stale-if-error=9")]);
    let expected = RequestDirectives {
        max_age_s: Some(0),
        max_stale_s: Some(SECONDS_MAX),
        min_fresh_s: Some(5),
        stale_if_error_s: Some(9),
        ..RequestDirectives::default()
    };
    assert_eq!(directives, expected);
    assert_eq!(request(&[("Cache-Control", "max-age=x, max-stale=y")]), RequestDirectives::default());
    let directives = request(&[("cache-control", "no-store"), ("Cache-Control", "only-if-cached, no-transform")]);
    assert!(directives.no_store && directives.only_if_cached && directives.no_transform && !directives.no_cache);
}

/// RFC 9111 §5.4.
#[test]
fn pragma_counts_without_cache_control_only() {
    assert!(request(&[("Pragma", "foo, no-cache")]).no_cache);
    assert!(!request(&[("Pragma", "no-cache"), ("Cache-Control", "x")]).no_cache);
    assert!(!request(&[("Pragma", "foo")]).no_cache);
    assert!(with_fields(b"Pragma: no-cache\r\n", parse_response_directives).unwrap().no_cache);
    let both = with_fields(b"Pragma: no-cache\r\nCache-Control: max-age=1\r\n", parse_response_directives).unwrap();
    assert!(!both.no_cache);
}

/// A malformed directive forbids what its words forbid, and allows nothing.
#[test]
fn members_that_break_the_grammar() {
    let private = |lines: &[&str]| response(lines).private;
    for line in ["private; max-age=60", "max-age=60; private", "a=\"b\" private", "private no-cache", "a b; PRIVATE"] {
        assert!(private(&[line]) && response(&[line]).malformed, "{line}");
    }
    for line in ["x-private; a", "a=\"private\"", "private-ish b", "not_private c", "'private'"] {
        assert!(!private(&[line]), "{line}");
    }
    let directives = response(&["no-cache; no-store; must-revalidate"]);
    assert!(directives.no_cache && directives.no_store && directives.must_revalidate);
    let directives = response(&["must-understand; no-store; public; immutable"]);
    assert!(directives.no_store && !directives.must_understand && !directives.public && !directives.immutable);
    let directives = response(&["max-age=60, s-maxage=60; x"]);
    assert_eq!((directives.max_age, directives.s_maxage), (Seconds::Invalid, Seconds::Invalid));
    let directives = response(&["s-maxage: 0, max-age=60"]);
    assert_eq!((directives.max_age, directives.s_maxage), (Seconds::Invalid, Seconds::Absent));
    for line in ["private, max-age=60", "a=\"b; c\", max-age=1", "no-store ,max-age=0", "a"] {
        assert!(!response(&[line]).malformed, "{line}");
    }
    let advice = request(&[("Cache-Control", "no-store; max-age=0")]);
    assert!(advice.no_store && !advice.no_cache);
    assert!(request(&[("Cache-Control", "max-age=0; no-cache")]).no_cache);
    assert!(request(&[("Pragma", "no-cache; x")]).no_cache);
}
