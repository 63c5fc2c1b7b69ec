//! The index finds the same steps as a walk over all of them, whatever the routes and the path, and unrelated routes
//! cost nothing.

use super::*;
use crate::walk::{Recorder, answer};
use proptest::prelude::*;

fn naive(tester: &Tester, path: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut storage = FieldStorage::new();
    let head = parse_request_head(request.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
    let request = Request {
        head: &head,
        client: Some(tester.client),
        unix: false,
        secure: false,
        listener: 0,
        offers: &Offers::new(),
    };
    // A recorded request examines all steps one by one.
    let mut recorder = Recorder::default();
    Answer::of(wait(answer(&tester.engine.live(), &request, tester.now, Some(&mut recorder), None)))
}

/// A block of routes, some of which change fields or the path, respond, or contain further blocks.
fn blocks(depth: u32) -> BoxedStrategy<Block> {
    let pattern =
        "(/|\\*)[ab/*]{0,6}".prop_filter("merged before", |pattern| !pattern.contains("//") && !pattern.contains("**"));
    let inner = if depth == 0 { Just(Vec::new()).boxed() } else { blocks(depth - 1) };
    let leaf = prop_oneof![
        (0..100_u32).prop_map(|n| step(StepKind::Header(vec![FieldOp::add("X".into(), n.to_string())]))),
        "(/[ab]){1,3}/?".prop_map(|to| step(StepKind::Rewrite(Rewrite::To(text(&format!("{to}?{{rest}}")))))),
        "/[ab]".prop_map(|prefix| step(StepKind::Rewrite(Rewrite::StripPrefix(prefix)))),
        (0..100_u32).prop_map(|n| redirect(302, text(&format!("/{n}/{{rest}}")))),
    ];
    let route = (prop::collection::vec(pattern, 0..3), prop::collection::vec(leaf, 0..2), inner).prop_map(
        |(patterns, leaves, inner)| {
            let matchers = if patterns.is_empty() { Vec::new() } else { vec![Matcher::Path(patterns)] };
            route(matchers, leaves.into_iter().chain(inner).collect())
        },
    );
    prop::collection::vec(route, 0..8).boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_index_is_the_naive_walk(block in blocks(2), paths in prop::collection::vec("(/[ab]{1,2}){0,4}/?", 1..6)) {
        let tester = engine(block);
        for path in paths.iter().map(|path| if path.is_empty() { "/" } else { path }) {
            let (indexed, naive) = (tester.get(path, &[]), naive(&tester, path));
            prop_assert_eq!(&indexed.head, &naive.head, "{}", path);
            prop_assert_eq!(indexed.body, naive.body);
        }
    }
}

#[test]
fn a_thousand_routes_leave_few_candidates() {
    let exact = (0..1000).map(|n| route(vec![path(&[&format!("/old/page-{n}.html")])], vec![respond(200, "x")]));
    let below = (0..1000).map(|n| route(vec![path(&[&format!("/section-{n}/*")])], vec![respond(200, "y")]));
    let deep = (0..1000).map(|n| route(vec![path(&[&format!("/api/v1/thing-{n}/*")])], vec![respond(200, "z")]));
    let spec = compile(&config(vec![site(&["*"], exact.chain(below).chain(deep).collect())]));
    let count = |path: &str| spec.sites[0].block.index.candidates(path.as_bytes(), 0).count();
    for path in ["old/page-7.html", "section-999/x", "api/v1/thing-500/y/z"] {
        assert_eq!(count(path), 1, "{path}");
    }
    assert_eq!(count("elsewhere"), 0);
}
