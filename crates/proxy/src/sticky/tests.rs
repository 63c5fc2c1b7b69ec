use super::{Affinity, StickyCookie, is_for_everyone, is_secure, write_set_cookie};
use crate::exchange::UpstreamRequest;
use crate::step::ProxyStep;
use flatout_config::model::{Cidr, Origin, Proxy, SameSite, Sticky};
use flatout_handler::Request;
use flatout_handler::content::Offers;
use flatout_handler::routed::RoutedRequest;
use flatout_http::base64::{BASE64URL_NOPAD, decode};
use flatout_http::head::{FieldStorage, Fields};
use flatout_http::limits::Limits;
use flatout_http::path::PathFacts;
use flatout_http::request::parse_request_head;
use flatout_os::clock::Now;
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, prop_assume, proptest};
use proptest::sample::Index;
use std::rc::Rc;

const OLD: &str = "0123456789abcdef0123456789abcdef-old";
const NEW: &str = "0123456789abcdef0123456789abcdef-new";
const NOW_S: i64 = 1_800_000_000;
const DAY_S: i64 = 86_400;

fn settings(hosts: &[&str], secret: &str, max_age_s: Option<u64>) -> Proxy {
    let origin = |host: &&str| Origin { secure: false, host: (*host).to_owned(), port: 80, weight: 1, backup: false };
    let sticky = Sticky { cookie: "at".to_owned(), secret: secret.to_owned(), max_age_s, ..Sticky::default() };
    Proxy { origins: hosts.iter().map(origin).collect(), sticky: Some(sticky), ..Proxy::default() }
}

fn step(hosts: &[&str], secret: &str, max_age_s: Option<u64>) -> ProxyStep {
    ProxyStep::new("a.example#2", "a", &settings(hosts, secret, max_age_s)).unwrap()
}

fn cookie(step: &ProxyStep) -> &StickyCookie {
    step.sticky.as_ref().unwrap()
}

/// Calls `handle` with a request that has these field lines.
fn with_request<T>(lines: &str, client: &str, secure: bool, handle: impl FnOnce(&Request<'_>) -> T) -> T {
    let text = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{lines}X-Last: yes\r\n\r\n");
    let mut storage = FieldStorage::new();
    let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
    let offers = Offers::new();
    handle(&Request { head: &head, client: client.parse().ok(), unix: false, secure, listener: 0, offers: &offers })
}

/// The Cookie lines that remain of `lines`, and the affinity.
fn take(step: &ProxyStep, lines: &str) -> (Vec<String>, Affinity) {
    with_request(lines, "192.0.2.1:1", false, |request| take_of(step, request))
}

fn take_of(step: &ProxyStep, request: &Request<'_>) -> (Vec<String>, Affinity) {
    let policy = Rc::default();
    let routed = RoutedRequest {
        request,
        path: b"/",
        decoded: b"",
        facts: PathFacts::default(),
        is_bare: false,
        removed: b"",
        is_merged: false,
        query: None,
        policy: &policy,
        user: None,
        site: None,
        server: None,
        host: None,
        port: None,
        now: Now { unix_s: NOW_S, ..Now::read() },
    };
    let show = |fields: Fields<'_>| {
        assert_eq!(fields.first("x-last"), Some(&b"yes"[..]));
        assert_eq!(fields.first("host"), Some(&b"a.example"[..]));
        fields.all("cookie").map(|line| String::from_utf8(line.to_vec()).unwrap()).collect::<Vec<_>>()
    };
    let (lines, affinity) = cookie(step).take(&routed, |routed, affinity| (show(routed.request.head.fields), affinity));
    // `explain` shows the same.
    assert_eq!(step.without_sticky(request.head.fields, show), lines);
    (lines, affinity)
}

/// The Set-Cookie line appended to these field lines of a response from the origin with the index `served`.
fn set_cookie(step: &ProxyStep, affinity: Option<Affinity>, (status, served): (u16, usize), lines: &str) -> String {
    set_cookie_by("192.0.2.1:1", step, affinity, (status, served), lines)
}

fn set_cookie_by(
    client: &str,
    step: &ProxyStep,
    affinity: Option<Affinity>,
    served: (u16, usize),
    lines: &str,
) -> String {
    let (first, is_secure) = ("HTTP/1.1 200 OK\r\n", client.ends_with(":443"));
    let mut out = format!("{first}{lines}").into_bytes();
    with_request("", client, is_secure, |request| {
        let ask = UpstreamRequest::new(step, None, request, (b"/", None), (None, affinity));
        write_set_cookie(step, &ask, served, first.len(), &mut out);
    });
    String::from_utf8(out.split_off(first.len() + lines.len())).unwrap()
}

const NONE: Affinity = Affinity { origin: None, is_due: false };

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
        let (lines_left, affinity) = take(&step, &lines);
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
    let set = |affinity| set_cookie(&step, affinity, (200, 1), "");
    assert_eq!(set(Some(NONE)), line);
    assert_eq!(set(Some(named(0))), line);
    assert_eq!(set(Some(named(1))), "");
    assert_eq!(set(Some(Affinity { is_due: true, ..named(1) })), line);
    assert_eq!(set(None), "");
    let secure = set_cookie_by("192.0.2.1:443", &step, Some(NONE), (200, 1), "");
    assert_eq!(secure, line.replace("\r\n", "; Secure\r\n"));
    let lasting = super::tests::step(&["one"], NEW, Some(60));
    assert!(set_cookie(&lasting, Some(NONE), (200, 0), "").contains("; SameSite=Lax; Max-Age=60\r\n"));
}

#[test]
fn the_cookie_is_for_the_configured_sites() {
    for (same_site, expected) in [
        (SameSite::Lax, "; SameSite=Lax\r\n"),
        (SameSite::Strict, "; SameSite=Strict\r\n"),
        // Browsers ignore it without Secure.
        (SameSite::None, "; SameSite=None; Secure\r\n"),
    ] {
        let mut settings = settings(&["one"], NEW, None);
        settings.sticky.as_mut().unwrap().same_site = same_site;
        let step = ProxyStep::new("a.example", "a", &settings).unwrap();
        let line = set_cookie(&step, Some(NONE), (200, 0), "");
        assert!(line.ends_with(expected), "{line}");
    }
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
        ("Cache-Control: max-age=0, stale-while-revalidate=60\r\n", false),
        ("Cache-Control: max-age=0, stale-if-error=60\r\n", false),
        // Directives for certain caches.
        ("CDN-Cache-Control: max-age=60\r\nCache-Control: no-store\r\n", false),
        ("Cache-Control: private\r\nakamai-cache-control: public\r\n", false),
        ("Cache-Control: private\r\nSurrogate-Control: content=\"ESI/1.0\", max-age=60+10;other\r\n", false),
        ("CDN-Cache-Control: no-store\r\nA-Cache-Control: s-maxage=60\r\n", false),
        ("CDN-Cache-Control: max-age=0, stale-while-revalidate=9\r\n", false),
        ("Surrogate-Control: no-store;other, max-age=60\r\n", false),
        // They permit others nothing, and revoke nothing.
        ("CDN-Cache-Control: no-store\r\nCache-Control: max-age=60\r\n", false),
        ("CDN-Cache-Control: max-age=60, private\r\n", true),
        ("CDN-Cache-Control: max-age=0\r\n", true),
        ("Surrogate-Control: content=\"ESI/1.0\"\r\n", true),
        ("X-Cache-Controls: max-age=60\r\n", true),
    ] {
        assert_eq!(!set_cookie(&step, Some(NONE), (200, 0), lines).is_empty(), is_set, "{lines}");
        // The fields of a 304 replace those of a stored response.
        assert_eq!(set_cookie(&step, Some(NONE), (304, 0), lines), "", "{lines}");
    }
}

#[test]
fn https_is_that_of_the_connection_or_of_a_trusted_proxy() {
    let mut settings = settings(&["one"], NEW, None);
    settings.trusted = vec![Cidr { address: "127.0.0.1".parse().unwrap(), bits: 32 }.into()];
    let step = ProxyStep::new("a.example", "a", &settings).unwrap();
    let https = "X-Forwarded-Proto: https\r\n";
    for (lines, client, secure, expected) in [
        ("", "192.0.2.1:1", true, true),
        ("", "192.0.2.1:1", false, false),
        (https, "192.0.2.1:1", false, false),
        (https, "127.0.0.1:1", false, true),
        ("", "127.0.0.1:1", false, false),
    ] {
        let is = with_request(lines, client, secure, |request| is_secure(&step.settings, request));
        assert_eq!(is, expected, "{lines} {client} {secure}");
    }
}

#[test]
fn lines_that_nobody_understands_are_for_everyone() {
    assert!(is_for_everyone(b"no colon\r\n"));
}

/// The Set-Cookie lines of a composed page, whose other fields the configuration changes after the cookie was added.
#[test]
fn the_lines_that_set_the_cookie_are_known() {
    let step = step(&["one"], NEW, None);
    for (line, expected) in [
        ("Set-Cookie: at=x; Path=/\r\n", true),
        ("set-cookie:at =x\r\n", true),
        ("Set-Cookie: att=x\r\n", false),
        ("Set-Cookie: a=at\r\n", false),
        ("X-Cookie: at=x\r\n", false),
    ] {
        let name = line.split(':').next().unwrap();
        assert_eq!(cookie(&step).is_set_by(name.as_bytes(), line.as_bytes()), expected, "{line}");
    }
}

proptest! {
    #[test]
    fn no_invented_value_names_an_origin(value in any::<Vec<u8>>()) {
        let step = step(&["one"], NEW, Some(60));
        prop_assert_eq!(cookie(&step).open(&value, NOW_S), None);
    }

    /// Changes to the bytes of a valid value, before they are encoded, so that all of them are parsed.
    #[test]
    fn no_changed_value_names_an_origin(
        changes in vec((any::<Index>(), 1..=u8::MAX), 1..4),
        left in any::<Index>(),
        added in vec(any::<u8>(), 0..4),
        lasts in any::<bool>(),
    ) {
        let step = step(&["one", "two"], NEW, lasts.then_some(60));
        let value = cookie(&step).seal(1, NOW_S).unwrap();
        let sealed = decode(value.as_bytes(), &BASE64URL_NOPAD).unwrap();
        let open = |bytes: &[u8]| cookie(&step).open(BASE64URL_NOPAD.encode(bytes).as_bytes(), NOW_S);
        prop_assert_eq!(open(&sealed), Some((1, false)));
        let mut changed = sealed.clone();
        for (at, bits) in changes {
            changed[at.index(sealed.len())] ^= bits;
        }
        prop_assume!(changed != sealed);
        prop_assert_eq!(open(&changed), None);
        // Without the time, the value names the same origin, and is to be replaced.
        let cut = open(&sealed[..left.index(sealed.len())]);
        prop_assert!(cut.is_none() || (lasts && cut == Some((1, true))), "{:?}", cut);
        prop_assume!(!added.is_empty());
        prop_assert_eq!(open(&[&sealed[..], &added].concat()), None);
    }
}
