//! Tests of access rules, rate limits and CORS.

use super::*;

#[test]
fn addresses_are_let_in_or_not() {
    let cidr = |address: &str, bits| Network::Cidr(Cidr { address: address.parse().unwrap(), bits });
    let rules = vec![(false, cidr("192.0.2.13", 32)), (true, cidr("192.0.2.0", 24))];
    let mut tester = engine(vec![step(StepKind::Access(Access { rules })), respond(200, "in")]);
    assert_eq!(tester.get("/", &[]).said(), (200, "in"));
    tester.client = "[::ffff:192.0.2.8]:1".parse().unwrap();
    assert_eq!(tester.get("/", &[]).said(), (200, "in"));
    for denied in ["192.0.2.13:1", "198.51.100.1:1", "[::1]:1", "[::ffff:192.0.2.13]:1"] {
        tester.client = denied.parse().unwrap();
        let answer = tester.get("/", &[]);
        assert_eq!((answer.status, answer.outcome), (403, "access_denied"), "{denied}");
    }
}

#[test]
fn rates_are_limited_by_address_and_known_after_a_reload() {
    let limited = |burst| {
        let limit = RateLimit { requests: 60, period_ms: 60_000, burst };
        vec![route(vec![path(&["/a"])], vec![step(StepKind::RateLimit(limit)), respond(200, "in")])]
    };
    let before = config(vec![site(&["*"], limited(2))]);
    let spec = compile(&before);
    let mut tester = Tester::new(Arc::clone(&spec));
    assert_eq!(tester.get("/a", &[]).status, 200);
    assert_eq!(tester.get("/b", &[]).status, 404);
    assert_eq!(tester.get("/a", &[]).status, 200);
    let over = tester.get("/a", &[]);
    assert_eq!((over.status, over.outcome, over.field("retry-after")), (429, "rate_limited", Some("1")));
    let reload = |spec: &Spec, config: &Config| {
        let sources = Sources { previous: Some(spec), ..Sources::default() };
        Arc::new(Spec::compile(config, &sources).unwrap())
    };
    // Another step before it changes nothing.
    let mut same = before.clone();
    same.sites[0].block.insert(0, set("A", "b"));
    let same = reload(&spec, &same);
    tester.engine.swap(Arc::clone(&same));
    assert_eq!(tester.get("/a", &[]).status, 429);
    tester.engine.swap(reload(&same, &config(vec![site(&["*"], limited(3))])));
    assert_eq!(tester.get("/a", &[]).status, 200, "another limit counts separately");
    tester.client = "192.0.2.99:1".parse().unwrap();
    assert_eq!(tester.get("/a", &[]).status, 200);
}

fn cors(origins: &[&str], credentials: bool) -> Block {
    let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let cors = Cors {
        origins: own(origins),
        methods: own(&["GET", "PUT"]),
        headers: own(&["X-Token"]),
        expose: own(&["X-Count", "ETag"]),
        credentials,
        max_age_s: Some(600),
    };
    vec![step(StepKind::Cors(cors)), respond(200, "shared")]
}

#[test]
fn answers_to_other_origins_carry_their_leave() {
    let tester = engine(cors(&["https://a.example", "https://b.example"], true));
    for origin in ["https://a.example", "https://b.example"] {
        let answer = tester.get("/", &[&format!("Origin: {origin}")]);
        assert_eq!(answer.said(), (200, "shared"));
        assert_eq!(answer.all("access-control-allow-origin"), [origin]);
        assert_eq!(answer.field("access-control-allow-credentials"), Some("true"));
        assert_eq!(answer.field("access-control-expose-headers"), Some("X-Count, ETag"));
        assert_eq!(answer.all("vary"), ["Origin"]);
    }
    for fields in [&[][..], &["Origin: https://evil.example"], &["Origin: null"], &["Origin: https://A.example"]] {
        let answer = tester.get("/", fields);
        assert_eq!((answer.status, answer.field("access-control-allow-origin")), (200, None), "{fields:?}");
        assert_eq!(answer.field("vary"), Some("Origin"), "or a cache gives this answer to an origin that is allowed");
    }
    let any = engine(cors(&["*"], false)).get("/", &[]);
    assert_eq!((any.field("access-control-allow-origin"), any.field("vary")), (Some("*"), None));
}

#[test]
fn preflights_are_answered_here() {
    let tester = engine(cors(&["https://a.example"], false));
    let preflight = ["Origin: https://a.example", "Access-Control-Request-Method: PUT"];
    let answer = tester.ask("OPTIONS", "/", &preflight);
    assert_eq!((answer.status, answer.outcome), (204, "cors_preflight"));
    assert_eq!(answer.field("access-control-allow-origin"), Some("https://a.example"));
    assert_eq!(answer.field("access-control-allow-methods"), Some("GET, PUT"));
    assert_eq!(answer.field("access-control-allow-headers"), Some("X-Token"));
    assert_eq!(answer.field("access-control-max-age"), Some("600"));
    assert_eq!(answer.all("vary").join(", "), "Access-Control-Request-Method, Access-Control-Request-Headers, Origin");
    let denied = tester.ask("OPTIONS", "/", &["Origin: https://b.example", preflight[1]]);
    assert_eq!((denied.status, denied.field("access-control-allow-origin")), (204, None));
    assert_eq!(denied.field("access-control-allow-methods"), None);
    assert_eq!(tester.ask("OPTIONS", "/", &[]).outcome, "options");
}
