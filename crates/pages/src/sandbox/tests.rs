//! Tests of the sandbox with real chunks.

mod apart;
mod hostile;
mod library;
mod limits;
mod waiting;

use super::{Code, FailureKind, Limits, ResumeResult, Run, RunFailure, Sandbox, wanted};
use crate::exchange::Exchange;
use crate::exchange::output::OutputPiece;
use std::fmt::Write as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A virtual machine with functions that wait.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new().unwrap();
    let later = sandbox
        .waiting(|_, _, value: Option<String>| {
            Ok(wanted(async move {
                tokio::task::yield_now().await;
                match value {
                    Some(text) if text == "fail" => Err("it failed".into()),
                    other => Ok(other),
                }
            }))
        })
        .unwrap();
    sandbox.global("later", later).unwrap();
    let fail = sandbox.function(|_, _, ()| Err::<(), _>("a native failed".into())).unwrap();
    sandbox.global("fail", fail).unwrap();
    let leave = sandbox
        .ending(|_, exchange, ()| {
            exchange.draft.status = 302;
            Ok(())
        })
        .unwrap();
    sandbox.global("leave", leave).unwrap();
    let table = sandbox.lua().create_table().unwrap();
    let inner = sandbox.lua().create_table().unwrap();
    inner.set("value", 1).unwrap();
    table.set("inner", inner).unwrap();
    sandbox.global("api", table).unwrap();
    sandbox.seal().unwrap();
    sandbox
}

/// How a run ended, and the resources that it used.
struct Ended {
    failure: Option<RunFailure>,
    output: String,
    status: u16,
    printed: String,
    preempted: usize,
    waits: usize,
    flushes: usize,
}

fn wait(run: &mut Run, mut future: super::Wanted) {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(answer) = Pin::new(&mut future).poll(&mut context) {
            return run.answer(answer);
        }
    }
}

fn text(exchange: &Exchange) -> String {
    let mut text = String::new();
    for piece in exchange.output.pieces() {
        match (piece, piece.range()) {
            (OutputPiece::Static(index), _) => drop(write!(text, "[{index}]")),
            (_, Some(range)) => text.push_str(&String::from_utf8_lossy(&exchange.output.dynamic()[range])),
            _ => {}
        }
    }
    text
}

fn run_code(sandbox: &Sandbox, code: &Rc<Code>, limits: Limits) -> Ended {
    let mut run = sandbox.start(code, Box::default(), limits);
    let (mut preempted, mut waits, mut flushes) = (0, 0, 0);
    let failure = loop {
        match run.resume() {
            ResumeResult::Done => break None,
            ResumeResult::Failed(failure) => break Some(*failure),
            ResumeResult::Preempted => preempted += 1,
            ResumeResult::Flush => flushes += 1,
            ResumeResult::Wants(future) => {
                waits += 1;
                wait(&mut run, future);
            }
        }
        assert!(preempted < 1_000_000, "a run does not end");
    };
    let exchange = run.finish();
    Ended {
        failure,
        output: text(&exchange),
        status: exchange.draft.status,
        printed: String::from_utf8_lossy(exchange.printed()).into_owned(),
        preempted,
        waits,
        flushes,
    }
}

fn run(sandbox: &Sandbox, source: &str) -> Ended {
    let code = sandbox.load("page.lhtml", source).unwrap();
    run_code(sandbox, &code, unhurried())
}

/// The default limits, with CPU time that a debug build on a busy machine does not use up.
fn unhurried() -> Limits {
    Limits { cpu: Duration::from_secs(5), ..Limits::default() }
}

/// The output of a page that must not fail.
fn output(sandbox: &Sandbox, source: &str) -> String {
    let ended = run(sandbox, source);
    assert_eq!(ended.failure, None, "{source}");
    ended.output
}

fn kind(ended: &Ended) -> Option<FailureKind> {
    ended.failure.as_ref().map(|failure| failure.kind)
}

#[test]
fn writes_segments_and_values_each_in_its_way() {
    let sandbox = sandbox();
    let source = "__s(0) __w('<b>') __s(1) __w(1.5) __w(7) __w(nil) __w(true) __r('<i>') __u('a b') __j({1, 'x'}) \
        __w(setmetatable({}, { __tostring = function() return 'T&' end }))";
    assert_eq!(output(&sandbox, source), "[0]&lt;b&gt;[1]1.57true<i>a%20b[1,\"x\"]T&amp;");
    let ended = run(&sandbox, "\n__w({})");
    let failure = ended.failure.unwrap();
    assert_eq!((failure.chunk.as_str(), failure.line), ("page.lhtml", Some(2)));
    assert_eq!(failure.message, "a table cannot be inserted: convert it to a string");
}

#[test]
fn says_where_a_page_failed() {
    let sandbox = sandbox();
    for (source, message, line) in [
        ("local x\nx.y = 1", "attempt to index nil with 'y'", 2),
        ("\n\nerror('wrong')", "wrong", 3),
        ("\nfail()", "a native failed", 2),
        ("local function f()\nfail()\nend\nf()", "a native failed", 2),
        ("coroutine.wrap(function()\nfail()\nend)()", "a native failed", 2),
        ("\nlater('fail')", "it failed", 2),
        ("\nstring.find('a', '[')", "malformed pattern (missing ']')", 2),
    ] {
        let failure = run(&sandbox, source).failure.unwrap();
        assert_eq!(failure.kind, FailureKind::ScriptError, "{source}");
        assert_eq!((failure.message.as_str(), failure.line), (message, Some(line)), "{source}: {failure:?}");
        assert_eq!(failure.chunk, "page.lhtml", "{source}");
    }
    for source in
        ["\nlocal s = 'x' while true do s = s .. s end", "\nlocal s = ('x'):rep(1e9)", "\nreturn table.create(1e7)"]
    {
        let failure = run(&sandbox, source).failure.unwrap();
        assert_eq!((failure.kind, failure.line), (FailureKind::MemoryLimit, Some(2)), "{source}: {failure:?}");
        assert_eq!(failure.chunk, "page.lhtml", "{source}");
    }
    let failure = sandbox.load("page.lhtml", "\nlocal = 1").unwrap_err();
    assert_eq!((failure.line, failure.chunk.as_str()), (Some(2), "page.lhtml"), "{failure:?}");
}

#[test]
fn an_error_that_is_caught_is_a_text_with_its_place() {
    let sandbox = sandbox();
    assert_eq!(
        output(&sandbox, "local ok, why = pcall(fail) __w(type(why)) __w(why)"),
        "stringpage.lhtml:1: a native failed"
    );
    let source = "local ok, why = xpcall(fail, function(why) return 'seen ' .. why end) __w(why)";
    assert_eq!(output(&sandbox, source), "seen page.lhtml:1: a native failed");
    let source = "local ok, why = pcall(error, { code = 5 }) __w(why.code)";
    assert_eq!(output(&sandbox, source), "5");
    // Raised again as it is, it has one place; raised as another error, that one's as well.
    for (level, expected) in [("0", "page.lhtml:2: wrong"), ("1", "page.lhtml:3: page.lhtml:2: wrong")] {
        let source = format!(
            "local function f()\nerror('wrong') end local ok, why = pcall(f)\n\
             ok, why = pcall(function() error(why, {level}) end) __w(why)"
        );
        assert_eq!(output(&sandbox, &source), expected);
    }
    // What a page writes itself is no place.
    let failure = run(&sandbox, "\nerror('other.lhtml:7: made up', 0)").failure.unwrap();
    assert_eq!((failure.message.as_str(), failure.line), ("other.lhtml:7: made up", Some(2)));
    let source = "__w(select(2, pcall(error, 'other.lhtml:7: made up', 0)))";
    assert_eq!(output(&sandbox, source), "other.lhtml:7: made up");
    let source = "local co = coroutine.create(function() error('wrong') end) __w(select(2, coroutine.resume(co)))";
    assert_eq!(output(&sandbox, source), "page.lhtml:1: wrong");
}

#[test]
fn ends_where_the_page_says_so() {
    let sandbox = sandbox();
    assert_eq!(output(&sandbox, "__w('a') pcall(exit) __w('b')"), "a");
    let ended = run(&sandbox, "pcall(leave) while true do end");
    assert_eq!((ended.failure, ended.status), (None, 302));
    let ended = run(&sandbox, "table.foreach = nil");
    assert_eq!(kind(&ended), Some(FailureKind::ScriptError));
}

#[test]
fn prints_for_the_log() {
    let sandbox = sandbox();
    assert_eq!(run(&sandbox, "print('a', 1, nil) print(true)").printed, "a\t1\tnil\ntrue\n");
    let printed = run(&sandbox, "for i = 1, 100 do print(string.rep('x', 1000)) end").printed;
    assert!(printed.len() <= crate::exchange::PRINTED_BYTES_MAX);
}

#[test]
fn an_endless_loop_is_preempted_and_ends() {
    let sandbox = sandbox();
    for source in
        ["while true do end", "local function f() return f() end while true do pcall(f) end", "repeat until false"]
    {
        let code = sandbox.load("page.lhtml", source).unwrap();
        let ended = run_code(&sandbox, &code, Limits::default());
        assert_eq!(kind(&ended), Some(FailureKind::CpuLimit), "{source}");
        assert!(ended.preempted > 20, "{source}: {} slices", ended.preempted);
        assert_eq!(ended.failure.unwrap().line, Some(1), "{source}");
    }
}
