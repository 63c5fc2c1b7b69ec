//! Tests of waiting, flushing, and the page's own coroutines in between.

use super::*;

#[test]
fn waits_at_any_depth_of_coroutines() {
    let sandbox = sandbox();
    for (source, expected, waits) in [
        ("__w(later('a')) __w(later('b'))", "ab", 2),
        ("__w(pcall(later, 'fail') and 'y' or 'n')", "n", 1),
        (
            "local co = coroutine.wrap(function() __w(later('a')) coroutine.yield() __w(later('b')) end) co() __w('-') co()",
            "a-b",
            2,
        ),
        (
            "local function deep(n) if n == 0 then return later('x') end return coroutine.wrap(function() return deep(n - 1) end)() end __w(deep(20))",
            "x",
            1,
        ),
        (
            "local co = coroutine.create(function() return later('x'), 2 end) local ok, a, b = coroutine.resume(co) __w(a) __w(b) __w(coroutine.status(co))",
            "x2dead",
            1,
        ),
        (
            "for a in coroutine.wrap(function() for i = 1, 3 do coroutine.yield(later(tostring(i))) end end) do __w(a) end",
            "123",
            3,
        ),
        ("__w((string.gsub('abc', '%w', function(c) return later(c .. c) end)))", "aabbcc", 3),
        (
            "local t = { 'b', 'a', 'c' } table.sort(t, function(x, y) later('') return x < y end) __w(table.concat(t))",
            "abc",
            2,
        ),
        (
            "local ok, why = pcall(function() return setmetatable({}, { __index = function() return later('x') end }).a end) __w(ok) __w(string.find(why, 'cannot yield') ~= nil)",
            "falsetrue",
            0,
        ),
        (
            "local ok, why = pcall(function() return setmetatable({}, { __index = function() return coroutine.wrap(function() return later('x') end)() end }).a end) __w(ok) __w(string.find(why, 'cannot yield') ~= nil)",
            "falsetrue",
            0,
        ),
    ] {
        let ended = run(&sandbox, source);
        assert_eq!(ended.failure, None, "{source}");
        assert_eq!((ended.output.as_str(), ended.waits), (expected, waits), "{source}");
    }
}

#[test]
fn an_answer_is_kept_for_a_run_that_is_preempted_on_the_way_to_it() {
    let sandbox = sandbox();
    let source = "local function deep(n) if n == 0 then return later('x') end \
        return coroutine.wrap(function() return deep(n - 1) end)() end __w(deep(20)) __w(deep(9))";
    let code = sandbox.load("page.lhtml", source).unwrap();
    let mut run = sandbox.start(&code, Box::default(), unhurried());
    let go_on = |run: &mut Run| {
        run.set_slice(Duration::from_secs(1));
        (0..100).map(|_| run.resume()).find(|step| !matches!(step, ResumeResult::Preempted)).unwrap()
    };
    for _ in 0..2 {
        match go_on(&mut run) {
            ResumeResult::Wants(future) => wait(&mut run, future),
            step => panic!("{step:?}"),
        }
        // Used up before it is where it waited, so many coroutines down.
        run.set_slice(Duration::ZERO);
        assert!(matches!(run.resume(), ResumeResult::Preempted));
    }
    assert!(matches!(go_on(&mut run), ResumeResult::Done));
    assert_eq!(text(&run.finish()), "xx");
}

#[test]
fn flushes_at_any_depth() {
    let sandbox = sandbox();
    let ended = run(&sandbox, "__w('a') flush() coroutine.wrap(function() __w('b') flush() end)() __w('c')");
    assert_eq!((ended.output.as_str(), ended.flushes, ended.failure), ("abc", 2, None));
}

#[test]
fn coroutines_are_preempted_and_go_on() {
    let sandbox = sandbox();
    let source = "local sum = 0
        local co = coroutine.wrap(function() for i = 1, 40 do for j = 1, 10000 do sum += 1 end coroutine.yield(i) end return 'end' end)
        local last repeat local v = co() last = v until v == 'end' __w(sum)";
    let ended = run(&sandbox, source);
    assert_eq!((ended.output.as_str(), ended.failure), ("400000", None));
    assert!(ended.preempted > 2, "{}", ended.preempted);
}

#[test]
fn coroutines_keep_their_meaning() {
    let sandbox = sandbox();
    for (source, expected) in [
        (
            "local co = coroutine.create(function(a, b) local c = coroutine.yield(a + b) return c, nil, 3 end) __w(select('#', coroutine.resume(co, 1, 2))) __w(select(2, coroutine.resume(co, 9))) __w(coroutine.status(co)) __w(coroutine.resume(co) and 1 or 0)",
            "29dead0",
        ),
        ("__w(select('#', coroutine.resume(coroutine.create(function() end))))", "1"),
        ("__w(select('#', coroutine.resume(coroutine.create(function() coroutine.yield() end))))", "1"),
        ("__w(coroutine.isyieldable()) coroutine.wrap(function() __w(coroutine.isyieldable()) end)()", "falsetrue"),
        (
            "local co = coroutine.create(function() coroutine.yield() end) coroutine.resume(co) __w(coroutine.close(co)) __w(coroutine.status(co))",
            "truedead",
        ),
        (
            "local co = coroutine.create(function() error('x', 0) end) coroutine.resume(co) local ok, why = coroutine.close(co) __w(ok) __w(why)",
            "falsex",
        ),
        ("local co co = coroutine.create(function() __w(coroutine.status(co)) end) coroutine.resume(co)", "running"),
        ("local ok, why = pcall(coroutine.wrap(function() error('mine', 0) end)) __w(why)", "mine"),
        ("local ok, why = pcall(coroutine.resume, 1) __w(ok)", "false"),
        ("local w = coroutine.wrap(function() return 1, 2, 3 end) __w(select('#', w()))", "3"),
    ] {
        assert_eq!(output(&sandbox, source), expected, "{source}");
    }
}

#[test]
fn a_yield_outside_of_coroutines_ends_the_run() {
    let sandbox = sandbox();
    for source in ["coroutine.yield(1)", "coroutine.yield()", "pcall(coroutine.yield) while true do end"] {
        assert_eq!(kind(&run(&sandbox, source)), Some(FailureKind::Stray), "{source}");
    }
}

#[test]
fn runs_in_turns_do_not_meet() {
    let sandbox = sandbox();
    let code = sandbox.load("page", "x = (x or 0) + 1 local mine = {} for i = 1, 3 do x += 1 later('') mine[i] = x end __w(table.concat(mine, ','))").unwrap();
    let mut runs: Vec<_> = (0..10).map(|_| sandbox.start(&code, Box::default(), unhurried())).collect();
    let mut left = 10;
    while left > 0 {
        for run in &mut runs {
            match run.resume() {
                ResumeResult::Wants(future) => wait(run, future),
                ResumeResult::Preempted => {}
                ResumeResult::Done => left -= 1,
                other => panic!("{other:?}"),
            }
            if left == 0 {
                break;
            }
        }
    }
    for run in runs {
        assert_eq!(text(&run.finish()), "2,3,4");
    }
}

#[test]
fn a_run_that_is_dropped_leaves_nothing() {
    let sandbox = sandbox();
    let code = sandbox.load("page", "big = {} for i = 1, 1000 do big[i] = i end later('') __w(#big)").unwrap();
    for _ in 0..50 {
        let mut run = sandbox.start(&code, Box::default(), unhurried());
        loop {
            match run.resume() {
                ResumeResult::Wants(_) => break,
                // On a busy machine, a slice may end anywhere.
                ResumeResult::Preempted => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(output(&sandbox, "__w(big == nil)"), "true");
    assert_eq!(run_code(&sandbox, &code, unhurried()).output, "1000");
}
