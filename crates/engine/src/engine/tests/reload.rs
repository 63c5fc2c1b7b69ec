//! Tests that a reload keeps unchanged parts and leaks nothing.

use super::*;
use std::rc::Rc;

fn recompile(config: &Config, previous: &Spec) -> Arc<Spec> {
    let sources = Sources { previous: Some(previous), ..Sources::default() };
    Arc::new(Spec::compile(config, &sources).unwrap())
}

#[test]
fn files_that_have_not_changed_stay_warm() {
    let folder = Temporary::new("warm", &[("a", "A")]);
    let with = |value: &str| config(vec![site(&["*"], vec![set("X", value), files(folder.path())])]);
    let first = compile(&with("1"));
    let tester = Tester::new(Arc::clone(&first));
    assert_eq!(tester.get("/a", &[]).outcome, "loaded");
    let policy = |tester: &Tester| tester.engine.live().policies.borrow().bequeath().last().map(|policy| policy.id);
    let before = policy(&tester);
    let second = recompile(&with("1"), &first);
    tester.engine.swap(Arc::clone(&second));
    assert_eq!(tester.get("/a", &[]).outcome, "hit");
    assert_eq!(policy(&tester), before, "and so do the heads built under the same header steps");
    let mut hidden = with("1");
    if let StepKind::Handler(Handler::Files(files)) = &mut hidden.sites[0].block[1].kind {
        files.hidden = true;
    }
    let third = recompile(&hidden, &second);
    assert_ne!(third.files[0].id, second.files[0].id);
    tester.engine.swap(third);
    assert_eq!(tester.get("/a", &[]).outcome, "loaded");
}

#[test]
fn a_folder_that_was_replaced_is_reopened() {
    let folder = Temporary::new("replaced", &[("one/a", "1"), ("two/a", "2")]);
    let current = folder.path().join("current");
    std::os::unix::fs::symlink("one", &current).unwrap();
    let config = config(vec![site(&["*"], vec![files(&current)])]);
    let first = compile(&config);
    let tester = Tester::new(Arc::clone(&first));
    assert_eq!(tester.get("/a", &[]).body, "1");
    fs::remove_file(&current).unwrap();
    std::os::unix::fs::symlink("two", &current).unwrap();
    assert_eq!(tester.get("/a", &[]).body, "1", "what was opened stays until a reload");
    tester.engine.swap(recompile(&config, &first));
    assert_eq!(tester.get("/a", &[]).body, "2");
}

#[test]
fn two_hundred_reloads_leave_nothing_behind() {
    let folder = Temporary::new("leak", &[("a", "A"), ("404.html", "none")]);
    let hash = crate::auth::tests::bcrypt_hash("x");
    let with = |round: u32| {
        let limit = RateLimit { requests: 1 + round % 3, period_ms: 1000, burst: 9 };
        let auth = BasicAuth { realm: "r".into(), users: vec![("u".into(), hash.clone())] };
        let page = ErrorPage { statuses: vec![404], file: folder.path().join("404.html") };
        let strip = step(StepKind::Rewrite(Rewrite::StripPrefix("/files".into())));
        let block = vec![
            set("X", &round.to_string()),
            step(StepKind::ErrorPage(page)),
            route(vec![path(&["/auth"])], vec![step(StepKind::BasicAuth(auth))]),
            route(vec![path(&["/limit"])], vec![step(StepKind::RateLimit(limit)), respond(200, "r")]),
            route(vec![path(&["/files/*"])], vec![strip, files(folder.path())]),
        ];
        config(vec![site(&["*"], block)])
    };
    let mut spec = compile(&with(0));
    let tester = Tester::new(Arc::clone(&spec));
    let (root, verifier) = (Arc::clone(&spec.folders[0].root), Arc::clone(spec.verifier.as_ref().unwrap()));
    let mut watched: Vec<std::sync::Weak<Spec>> = Vec::new();
    let mut lives = Vec::new();
    for round in 1..=200 {
        for path in ["/limit", "/none", "/auth"] {
            let _ = tester.get(path, &[]);
        }
        let next = recompile(&with(round), &spec);
        watched.push(Arc::downgrade(&spec));
        lives.push(Rc::downgrade(&tester.engine.live()));
        tester.engine.swap(Arc::clone(&next));
        spec = next;
        assert_eq!(tester.get("/limit", &[]).field("x"), Some(round.to_string().as_str()));
    }
    assert!(watched.iter().all(|old| old.upgrade().is_none()), "old configurations are gone");
    assert!(lives.iter().all(|old| old.upgrade().is_none()));
    assert!(tester.engine.live().policies.borrow().bequeath().len() <= 4);
    assert_eq!(spec.rates.len(), 1);
    // One of the test, one for the folder, and one for each step of files in it, here and in the engine.
    assert!(Arc::strong_count(&root) <= 8, "{}", Arc::strong_count(&root));
    assert_eq!(Arc::strong_count(&verifier), 2);
}
