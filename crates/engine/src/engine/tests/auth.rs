//! Tests of names and passwords, which are verified outside the walk.

use super::*;
use crate::auth::tests::{argon2_hash, bcrypt_hash};
use flatout_http::base64;

const ADA: &str = "Authorization: Basic YWRhOnNlY3JldA=="; // ada:secret
const BOB: &str = "Authorization: Basic Ym9iOnNlY3JldA=="; // bob:secret
const WRONG: &str = "Authorization: Basic YWRhOndyb25n"; // ada:wrong
const EVE: &str = "Authorization: Basic ZXZlOnNlY3JldA=="; // eve:secret

fn basic(users: &[(&str, &str)]) -> Step {
    let users = users.iter().map(|&(name, hash)| (name.to_owned(), hash.to_owned())).collect();
    step(StepKind::BasicAuth(BasicAuth { realm: "here".into(), users }))
}

fn is_later(reply: &Reply) -> bool {
    matches!(reply, Reply::Later(_))
}

#[test]
fn passwords_are_verified_once_and_then_believed() {
    let (ada, bob) = (argon2_hash("secret"), bcrypt_hash("secret"));
    let mut tester = engine(vec![set("X-A", "1"), basic(&[("ada", &ada), ("bob", &bob)]), respond(200, "in")]);
    let request = |field: &str| format!("GET / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n");
    let none = tester.get("/", &[]);
    assert_eq!((none.status, none.outcome, none.field("x-a")), (401, "unauthorized", Some("1")));
    assert_eq!(none.field("www-authenticate"), Some("Basic realm=\"here\", charset=\"UTF-8\""));
    assert_eq!(none.response.logged.user, None);
    for (field, user) in [(ADA, "ada"), (BOB, "bob")] {
        let reply = tester.reply(&request(field), 0);
        assert!(is_later(&reply));
        let answer = Answer::of(wait(reply));
        assert_eq!((answer.said(), answer.response.logged.user.as_deref()), ((200, "in"), Some(user)));
        assert_eq!((answer.response.logged.log, answer.field("x-a")), (3, Some("1")));
    }
    for field in [WRONG, EVE] {
        for _ in 0..2 {
            let reply = tester.reply(&request(field), 0);
            assert!(is_later(&reply), "what is wrong is never remembered as anything");
            let answer = Answer::of(wait(reply));
            assert_eq!((answer.status, answer.outcome, answer.response.logged.user), (401, "unauthorized", None));
        }
    }
    for malformed in ["Authorization: Basic !", "Authorization: Bearer YWRhOnNlY3JldA=="] {
        let reply = tester.reply(&request(malformed), 0);
        assert!(!is_later(&reply));
        assert_eq!(wait(reply).status, 401);
    }
    // The future read the real clock; it is believed from there.
    tester.now = Now::read();
    let reply = tester.reply(&request(ADA), 0);
    assert!(!is_later(&reply), "a browsing user costs nothing");
    let answer = Answer::of(wait(reply));
    assert_eq!((answer.said(), answer.response.logged.user.as_deref()), ((200, "in"), Some("ada")));
    tester.now.monotonic_ms += 2 * crate::credentials::BELIEVED_MS;
    assert!(is_later(&tester.reply(&request(ADA), 0)), "but not for ever");
}

#[test]
fn a_walk_that_waited_goes_on_where_it_was() {
    let hash = argon2_hash("secret");
    let limit = |burst| step(StepKind::RateLimit(RateLimit { requests: 1, period_ms: 600_000, burst }));
    let inner = vec![
        basic(&[("ada", &hash)]),
        limit(2),
        step(StepKind::Rewrite(Rewrite::To(text("/{rest}")))),
        route(vec![path(&["/x"])], vec![respond(200, "through")]),
    ];
    let mut tester = engine(vec![
        limit(3),
        basic(&[("ada", &hash), ("bob", &hash)]),
        route(vec![path(&["/in/*"])], inner),
        respond(200, "outside"),
    ]);
    // Each limit counts each request once, however often the walk began. What waited reads the clock again.
    let mut ask = || {
        tester.now = Now::read();
        tester.get("/in/x", &[ADA])
    };
    assert_eq!(ask().said(), (200, "through"));
    assert_eq!(ask().said(), (200, "through"));
    let inner = ask();
    assert_eq!((inner.outcome, inner.response.logged.user.as_deref()), ("rate_limited", Some("ada")), "after two");
    let outer = ask();
    assert_eq!((outer.outcome, outer.response.logged.user.as_deref()), ("rate_limited", None), "after three");
    let tester = engine(vec![
        basic(&[("ada", &hash), ("bob", &hash)]),
        route(vec![path(&["/in"])], vec![basic(&[("ada", &hash)]), respond(200, "inner")]),
        respond(200, "outer"),
    ]);
    assert_eq!(tester.get("/in", &[BOB]).status, 401, "bob may come as far as the first");
    assert_eq!(tester.get("/out", &[BOB]).said(), (200, "outer"));
    assert_eq!(tester.get("/in", &[ADA]).said(), (200, "inner"));
}

#[test]
fn a_password_in_flight_survives_a_reload() {
    let hash = argon2_hash("secret");
    let old = compile(&config(vec![site(&["*"], vec![basic(&[("ada", &hash)]), respond(200, "old")])]));
    let tester = Tester::new(Arc::clone(&old));
    let reply = tester.reply(&format!("GET / HTTP/1.1\r\nHost: h\r\n{ADA}\r\n\r\n"), 0);
    let sources = Sources { previous: Some(&old), ..Sources::default() };
    let new = config(vec![site(&["*"], vec![basic(&[("ada", &bcrypt_hash("other"))]), respond(200, "new")])]);
    tester.engine.swap(Arc::new(Spec::compile(&new, &sources).unwrap()));
    assert_eq!(Answer::of(wait(reply)).said(), (200, "old"), "it is answered by what it came to");
    assert_eq!(tester.get("/", &[ADA]).status, 401, "and the changed password holds from the next request on");
}

#[test]
fn a_full_verification_queue_leads_to_a_503() {
    let slow = bcrypt::hash("secret", 9).unwrap();
    let tester = engine(vec![basic(&[("ada", &slow)]), respond(200, "in")]);
    let replies: Vec<Reply> = (0..200)
        .map(|index| {
            let credentials = base64::BASE64.encode(format!("ada:wrong {index}").as_bytes());
            tester.reply(&format!("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic {credentials}\r\n\r\n"), 0)
        })
        .collect();
    let busy = replies.into_iter().find(|reply| !is_later(reply)).expect("a bound");
    let busy = Answer::of(wait(busy));
    assert_eq!((busy.status, busy.outcome, busy.field("retry-after")), (503, "auth_busy", Some("2")));
}
