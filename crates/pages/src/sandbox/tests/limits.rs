//! Tests of the accounting of a run's time and memory.

use super::*;
use flatout_os::clock::SettableClock;

/// In a slice as long as the limit, time during which the page did not run is not charged to it.
#[test]
fn what_a_busy_machine_takes_is_not_charged() {
    let clock = SettableClock::new();
    let _entered = clock.enter();
    let sandbox = Sandbox::new().unwrap();
    // As if the machine had been busy with something else for so long.
    let stall = sandbox.function(move |_, _, ()| {
        clock.advance(Duration::from_millis(120));
        Ok(())
    });
    sandbox.global("stall", stall.unwrap()).unwrap();
    sandbox.seal().unwrap();
    let code = sandbox.load("page", "stall() for i = 1, 1000 do end __w('done')").unwrap();
    let limits = Limits { slice: Duration::from_millis(100), cpu: Duration::from_millis(100), ..Limits::default() };
    let ended = run_code(&sandbox, &code, limits);
    assert_eq!((ended.failure, ended.output.as_str()), (None, "done"));
}

/// A page whose values fill its memory may continue, and its garbage does not cause a full collection at every step.
#[test]
fn near_its_limit_a_page_is_collected_seldom() {
    let sandbox = sandbox();
    let source = "local kept = buffer.create(15.5 * 1024 * 1024)
        for i = 1, 200 do local garbage = buffer.create(200000 + i) end
        __w(buffer.len(kept))";
    let code = sandbox.load("page", source).unwrap();
    let limits = unhurried();
    let before = sandbox.inner.hub.meter.collections();
    let ended = run_code(&sandbox, &code, limits);
    assert_eq!((ended.failure, ended.output.as_str()), (None, "16252928"));
    let count = sandbox.inner.hub.meter.collections() - before;
    // 40 MB of garbage, and 2 MiB of it between two collections.
    assert!((1..=25).contains(&count), "{count}");
    // What is no garbage ends it, an eighth later at most.
    let source = "local kept = {} while true do kept[#kept + 1] = buffer.create(100000) __r('.') end";
    let ended = run_code(&sandbox, &sandbox.load("page", source).unwrap(), limits);
    assert_eq!(kind(&ended), Some(FailureKind::MemoryLimit));
    assert!((100..=190).contains(&ended.output.len()), "{}", ended.output.len());
}

/// The space reserved for a text is what its escaping may need, and no more.
#[test]
fn long_texts_have_the_room_that_they_need() {
    let sandbox = sandbox();
    for (source, length) in [
        ("__r(('x'):rep(6 * 1024 * 1024))", 6 << 20),
        ("__w(('x'):rep(2 * 1024 * 1024))", 2 << 20),
        ("__j(('x'):rep(2 * 1024 * 1024))", (2 << 20) + 2),
        ("__u(('x'):rep(1024 * 1024))", 1 << 20),
    ] {
        assert_eq!(output(&sandbox, source).len(), length, "{source}");
    }
    for source in ["__r(('x'):rep(9 * 1024 * 1024))", "__w(('\"'):rep(3 * 1024 * 1024))"] {
        assert_eq!(kind(&run(&sandbox, source)), Some(FailureKind::MemoryLimit), "{source}");
    }
}

/// The error of an impossible wait names the page's line.
#[test]
fn a_wait_in_a_metamethod_names_its_line() {
    let sandbox = sandbox();
    let source = "local t = setmetatable({}, { __index = function()\nreturn later('x') end })\nreturn t.x";
    let failure = run(&sandbox, source).failure.unwrap();
    assert_eq!((failure.kind, failure.line), (FailureKind::ScriptError, Some(2)), "{failure:?}");
    assert_eq!(failure.message, "cannot yield inside a metamethod or a callback of a built-in function");
}

/// A run that is terminated from outside reports where it was.
#[test]
fn a_run_that_expires_says_where_it_waited() {
    let sandbox = sandbox();
    let code = sandbox.load("page", "local a = 1\nlater('x')\n__w('never')").unwrap();
    let mut run = sandbox.start(&code, Box::default(), unhurried());
    assert!(matches!(run.resume(), ResumeResult::Wants(_)));
    let failure = run.end(FailureKind::RunLimit);
    assert_eq!((failure.kind, failure.line), (FailureKind::RunLimit, Some(2)), "{failure:?}");
    assert!(matches!(run.resume(), ResumeResult::Done));
    assert_eq!(text(&run.finish()), "");
}
