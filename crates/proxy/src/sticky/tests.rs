use super::{Affinity, StickyCookie, write_set_cookie};
use crate::step::ProxyStep;
use flatout_config::model::{Cidr, Origin, Proxy, Sticky};
use flatout_handler::Request;
use flatout_handler::content::Offers;
use flatout_handler::routed::RoutedRequest;
use flatout_http::head::{FieldStorage, parse_fields};
use flatout_http::limits::Limits;
use flatout_http::path::PathFacts;
use flatout_http::request::parse_request_head;
use flatout_os::clock::Now;
use proptest::prelude::{any, prop_assert_eq, proptest};
use std::rc::Rc;

const OLD: &str = "0123456789abcdef0123456789abcdef-old";
const NEW: &str = "0123456789abcdef0123456789abcdef-new";
const NOW_S: i64 = 1_800_000_000;
const DAY_S: i64 = 86_400;

fn settings(hosts: &[&str], secret: &str, max_age_s: Option<u64>) -> Proxy {
    let origin = |host: &&str| Origin { secure: false, host: (*host).to_owned(), port: 80, weight: 1, backup: false };
    let sticky = Sticky { cookie: "at".to_owned(), secret: secret.to_owned(), max_age_s };
    Proxy { origins: hosts.iter().map(origin).collect(), sticky: Some(sticky), ..Proxy::default() }
}

fn step(hosts: &[&str], secret: &str, max_age_s: Option<u64>) -> ProxyStep {
    ProxyStep::new("a.example#2", "a", &settings(hosts, secret, max_age_s)).unwrap()
}

fn cookie(step: &ProxyStep) -> &StickyCookie {
    step.sticky.as_ref().unwrap()
}

/// The Cookie lines that remain of `lines`, and the affinity.
fn take(step: &ProxyStep, lines: &str, client: &str, secure: bool) -> (Vec<String>, Affinity) {
    let text = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{lines}X-Last: yes\r\n\r\n");
    let mut storage = FieldStorage::new();
    let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
    let (offers, policy) = (Offers::new(), Rc::default());
    let request = Request { head: &head, client: client.parse().ok(), secure, listener: 0, offers: &offers };
    let routed = RoutedRequest {
        request: &request,
        path: b"/",
        decoded: b"",
        facts: PathFacts::default(),
        is_bare: false,
        query: None,
        policy: &policy,
        user: None,
        site: None,
        server: None,
        host: None,
        port: None,
        now: Now { unix_s: NOW_S, ..Now::read() },
    };
    cookie(step).take(&step.settings, &routed, |routed, affinity| {
        let fields = routed.request.head.fields;
        assert_eq!(fields.first("x-last"), Some(&b"yes"[..]));
        assert_eq!(fields.first("host"), Some(&b"a.example"[..]));
        let lines = fields.all("cookie").map(|line| String::from_utf8(line.to_vec()).unwrap());
        (lines.collect(), affinity)
    })
}

/// The Set-Cookie line in the response of the origin with the index `served`, which has these field lines.
fn set_cookie(step: &ProxyStep, affinity: Option<Affinity>, served: usize, lines: &str) -> String {
    let section = format!("{lines}\r\n");
    let mut storage = FieldStorage::new();
    let fields = parse_fields(section.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap();
    let mut out = Vec::new();
    write_set_cookie(step, affinity, served, fields, || NOW_S, &mut out);
    String::from_utf8(out).unwrap()
}

const NONE: Affinity = Affinity { origin: None, is_due: false, is_secure: false };

#[test]
fn the_cookie_is_removed_from_requests_and_names_an_origin() {
    let step = step(&["one", "two"], NEW, None);
    let value = cookie(&step).seal(1, NOW_S).unwrap();
    let named = Affinity { origin: Some(1), ..NONE };
    for (lines, left, expected) in [
        (String::new(), &[][..], NONE),
        ("Cookie: a=1; atx=2\r\n".to_owned(), &["a=1; atx=2"], NONE),
        (format!("Cookie: at={value}\r\n"), &[], named),
        (format!("Cookie: a=1; at={value}; b=2\r\n"), &["a=1; b=2"], named),
        (format!("Cookie: at={value}; b=2\r\n"), &["b=2"], named),
        (format!("Cookie: a=1; at = {value}\r\nCookie: b=\"2\"\r\n"), &["a=1", "b=\"2\""], named),
        // The browser has a second cookie of this name, from a path or a domain.
        (format!("Cookie: at=x; at={value}; c\r\n"), &["c"], named),
        ("Cookie: a=1; at=x\r\n".to_owned(), &["a=1"], NONE),
        ("Cookie: a=1; at\r\n".to_owned(), &["a=1; at"], NONE),
        (format!("Cookie: a=1; AT={value}\r\n"), &[&format!("a=1; AT={value}")], NONE),
    ] {
        let (lines_left, affinity) = take(&step, &lines, "192.0.2.1:1", false);
        assert_eq!(
            (&lines_left[..], affinity),
            (&left.iter().map(|left| (*left).to_owned()).collect::<Vec<_>>()[..], expected),
            "{lines}"
        );
    }
}

#[test]
fn forged_cookies_are_none() {
    let origins = &["one", "two"];
    for max_age_s in [None, Some(60)] {
        let step = step(origins, NEW, max_age_s);
        let value = cookie(&step).seal(1, NOW_S).unwrap();
        assert_eq!(cookie(&step).open(value.as_bytes(), NOW_S), Some((1, false)));
        assert!(!value.contains("two") && !value.contains("80"));
        for at in 0..value.len() {
            let mut forged = value.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(cookie(&step).open(&forged, NOW_S), None, "{at}");
            // A client that cuts the time off has the same origin, and gets a new cookie.
            let cut = cookie(&step).open(&value.as_bytes()[..at], NOW_S);
            assert!(cut.is_none() || (max_age_s, cut) == (Some(60), Some((1, true))), "{at}: {cut:?}");
        }
        assert_eq!(cookie(&step).open(format!("{value}A").as_bytes(), NOW_S), None);
        // Neither another key nor another site says the same.
        let others = [
            ProxyStep::new("a.example", "a", &settings(origins, OLD, max_age_s)).unwrap(),
            ProxyStep::new("b.example", "a", &settings(origins, NEW, max_age_s)).unwrap(),
        ];
        for other in others {
            assert_eq!(cookie(&other).open(value.as_bytes(), NOW_S), None);
        }
    }
}

/// As after a restart, a reload, or on another machine.
#[test]
fn origins_keep_their_cookies_when_others_come_and_go() {
    let before = step(&["one", "two"], NEW, None);
    let value = cookie(&before).seal(1, NOW_S).unwrap();
    let after = step(&["three", "two", "four"], NEW, None);
    assert_eq!(cookie(&after).seal(1, NOW_S).unwrap(), value);
    assert_eq!(cookie(&step(&["two", "one"], NEW, None)).open(value.as_bytes(), NOW_S), Some((0, false)));
    assert_eq!(cookie(&step(&["one", "three"], NEW, None)).open(value.as_bytes(), NOW_S), None);
}

#[test]
fn keys_change_one_after_the_other() {
    for max_age_s in [None, Some(60)] {
        let old = cookie(&step(&["one"], OLD, max_age_s)).seal(0, NOW_S).unwrap();
        let both = step(&["one"], &format!("# new\n{NEW}\n\n{OLD}\n"), max_age_s);
        assert_eq!(cookie(&both).open(old.as_bytes(), NOW_S), Some((0, true)));
        let new = cookie(&both).seal(0, NOW_S).unwrap();
        assert_eq!(cookie(&both).open(new.as_bytes(), NOW_S), Some((0, false)));
        assert_eq!(cookie(&step(&["one"], NEW, max_age_s)).open(new.as_bytes(), NOW_S), Some((0, false)));
    }
}

#[test]
fn cookies_with_a_lifetime_expire_and_are_renewed() {
    let step_of = |max_age_s| step(&["one"], NEW, max_age_s);
    let step = step_of(Some(2 * DAY_S as u64));
    let value = cookie(&step).seal(0, NOW_S).unwrap();
    for (age_s, expected) in [
        (-301, None),
        (-300, Some((0, false))),
        (DAY_S, Some((0, false))),
        (DAY_S + 1, Some((0, true))),
        (2 * DAY_S, Some((0, true))),
        (2 * DAY_S + 1, None),
    ] {
        assert_eq!(cookie(&step).open(value.as_bytes(), NOW_S + age_s), expected, "{age_s}");
    }
    // After a change of the setting, the session stays, and the cookie is replaced.
    let session = step_of(None);
    assert_eq!(cookie(&session).open(value.as_bytes(), NOW_S + 9 * DAY_S), Some((0, true)));
    let value = cookie(&session).seal(0, NOW_S).unwrap();
    assert_eq!(cookie(&step).open(value.as_bytes(), NOW_S), Some((0, true)));
}

#[test]
fn responses_set_the_cookie_if_the_origin_is_another_one() {
    let step = step(&["one", "two"], NEW, None);
    let value = cookie(&step).seal(1, NOW_S).unwrap();
    let line = format!("Set-Cookie: at={value}; Path=/; HttpOnly; SameSite=Lax\r\n");
    let named = |index| Affinity { origin: Some(index), ..NONE };
    assert_eq!(set_cookie(&step, Some(NONE), 1, ""), line);
    assert_eq!(set_cookie(&step, Some(named(0)), 1, ""), line);
    assert_eq!(set_cookie(&step, Some(named(1)), 1, ""), "");
    assert_eq!(set_cookie(&step, Some(Affinity { is_due: true, ..named(1) }), 1, ""), line);
    assert_eq!(set_cookie(&step, None, 1, ""), "");
    let secure = set_cookie(&step, Some(Affinity { is_secure: true, ..NONE }), 1, "");
    assert_eq!(secure, line.replace("\r\n", "; Secure\r\n"));
    let lasting = super::tests::step(&["one"], NEW, Some(60));
    assert!(set_cookie(&lasting, Some(NONE), 0, "").contains("; SameSite=Lax; Max-Age=60\r\n"));
}

/// Caches between flatout and the client do not know that the cookie is for one client.
#[test]
fn responses_for_everyone_set_no_cookie() {
    let step = step(&["one"], NEW, None);
    for (lines, is_set) in [
        ("", true),
        ("Cache-Control: public\r\n", false),
        ("Cache-Control: max-age=60\r\n", false),
        ("Cache-Control: s-maxage=60, max-age=0\r\n", false),
        ("Expires: Thu, 01 Jan 2037 00:00:00 GMT\r\n", false),
        ("Cache-Control: private, max-age=60\r\n", true),
        ("Cache-Control: no-store, max-age=60\r\n", true),
        ("Cache-Control: max-age=0\r\nExpires: Thu, 01 Jan 2037 00:00:00 GMT\r\n", true),
        ("Cache-Control: no-cache\r\nExpires: 0\r\n", true),
        ("Cache-Control: public, max-age=60\r\nSet-Cookie: session=1\r\n", true),
    ] {
        assert_eq!(!set_cookie(&step, Some(NONE), 0, lines).is_empty(), is_set, "{lines}");
    }
}

#[test]
fn https_is_that_of_the_connection_or_of_a_trusted_proxy() {
    let mut settings = settings(&["one"], NEW, None);
    settings.trusted = vec![Cidr { address: "127.0.0.1".parse().unwrap(), bits: 32 }];
    let step = ProxyStep::new("a.example", "a", &settings).unwrap();
    let https = "X-Forwarded-Proto: https\r\n";
    for (lines, client, secure, expected) in [
        ("", "192.0.2.1:1", true, true),
        ("", "192.0.2.1:1", false, false),
        (https, "192.0.2.1:1", false, false),
        (https, "127.0.0.1:1", false, true),
        ("", "127.0.0.1:1", false, false),
    ] {
        assert_eq!(take(&step, lines, client, secure).1.is_secure, expected, "{lines} {client} {secure}");
    }
}

proptest! {
    #[test]
    fn no_invented_value_names_an_origin(value in any::<Vec<u8>>()) {
        let step = step(&["one"], NEW, Some(60));
        prop_assert_eq!(cookie(&step).open(&value, NOW_S), None);
    }
}
