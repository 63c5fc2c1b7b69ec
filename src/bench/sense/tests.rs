//! Every refusal of flags that make no sense together, and that what makes sense is taken.

use crate::bench::{BenchArgs, plan};
use clap::Parser;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    bench: BenchArgs,
}

/// The result of a command line: levels, or the error.
fn asked(words: &str) -> Result<usize, String> {
    let words = ["bench"].into_iter().chain(words.split_ascii_whitespace());
    let line = CommandLine::try_parse_from(words).map_err(|error| error.to_string())?;
    plan::plan(line.bench).map(|run| run.ask.plans.len())
}

const URL: &str = "http://127.0.0.1:9/";

#[test]
fn flags_that_would_be_ignored_are_refused() {
    let log = std::env::temp_dir().join(format!("flatout-sense-{}.log", std::process::id()));
    std::fs::write(&log, "127.0.0.9 - - [10/Oct/2000:13:55:30 -0700] \"GET /a HTTP/1.0\" 200 3\n").unwrap();
    let replay = format!("--replay {}", log.display());
    let replayed = |rest: &str| format!("{replay} {rest}");
    for (flags, words) in [
        // A question, and what it decides by itself.
        ("--find-knee p99<9ms -n 5", "--find-knee needs a duration"),
        ("--overload -n 5", "--overload needs a duration"),
        ("--compare http://127.0.0.1:8/ -n 5", "--compare needs a duration"),
        ("--find-knee p99<9ms --precision 2", "leave out --precision"),
        ("--overload --precision 2", "leave out --precision"),
        ("--compare http://127.0.0.1:8/ --precision 2", "leave out --precision"),
        ("--find-knee p99<9ms -c 1..9:1", "one number of connections"),
        ("--overload -c 1..9:1", "one number of connections"),
        ("--compare http://127.0.0.1:8/ -c 1..9:1", "one number of connections"),
        ("--find-knee p99<9ms --rate 5..50:5", "without a step"),
        ("--overload --rate 5..50", "give --rate PEAK"),
        ("--overload --rate 5..50:5", "give --rate PEAK"),
        ("--compare http://127.0.0.1:8/ --rate 5..50:5", "at one rate"),
        (&replayed("--find-knee p99<9ms"), "--find-knee sets the rate"),
        (&replayed("--overload"), "--overload sets the rate"),
        (&replayed("--compare http://127.0.0.1:8/"), "would restart each time"),
        ("--compare http://127.0.0.1:8/ --arrivals steps:5@1s,9@1s", "would restart each time"),
        ("--compare http://127.0.0.1:8/ --server-log x", "belong to one"),
        ("--compare http://127.0.0.1:8/ --server-metrics http://127.0.0.1:8/", "belong to one"),
        ("--find-knee p99<9ms --limit", "needs a plain run"),
        ("--overload --limit", "needs a plain run"),
        ("--compare http://127.0.0.1:8/ --limit", "needs a plain run"),
        ("--find-knee p99<9ms --overload", "cannot be used with"),
        ("--find-knee p99<9ms --arrivals steps:5@1s", "its own rates"),
        ("--deadline 2s", "--overload"),
        ("--limit --agents 2 --listen 127.0.0.1:0 --certs x", "cannot be used with"),
        // What a visit is.
        ("--arrival-unit request --calls 2", "--calls is for"),
        ("--arrival-unit request --close", "--close is short"),
        ("--arrival-unit request --session-length 2", "--session-length is for"),
        ("--arrival-unit connection --session-length 2", "--session-length is for"),
        ("--arrival-unit session --calls 2", "--calls is for"),
        ("--session-length 2 --calls 2", "--calls is for"),
        ("--arrival-unit session --close", "--close is short"),
        ("--session-length 2 --close", "--close is short"),
        ("--close --calls 4", "give one of them"),
        ("--rate 5 --think-time 1s", "--think-time is between"),
        ("--rate 5 --arrival-unit connection --think-time 1s", "--think-time is between"),
        ("--rate 5 --close --think-time 1s", "--think-time is between"),
        ("--find-knee p99<9ms --think-time 1s", "--think-time is between"),
        (&replayed("--think-time 1s"), "--think-time is between"),
        ("--http 2 --streams 4 --close", "--streams share"),
        ("--http 2 --streams 4 --calls 3", "--streams share"),
        ("--http 2 --streams 4 --arrival-unit connection", "--streams share"),
        ("--http 2 --streams 4 --arrival-unit session", "--streams share"),
        ("--http 2 --streams 4 --session-length 3", "--streams share"),
        ("--streams 4", "give --http 2"),
        ("--http 1.0 --streams 4", "give --http 2"),
        ("-n 10 --burst 4", "not a whole number of bursts"),
        ("-n 10 -d 1s", "cannot be used with"),
        ("-n 10 --precision 2", "cannot be used with"),
        ("--arrivals steps:5@1s,9@1s --precision 2", "waits for one mean"),
        ("--arrivals steps:5@1s --rate 9", "its own rates"),
        ("--arrivals exp", "need a rate"),
        ("-c 1..200:1 --rate 1..9:1", "1800 levels together"),
        // Replays.
        (&replayed("--precision 2"), "waits for one mean"),
        (&replayed("-c 1..9:1"), "a replay is one level"),
        (&replayed("--calls 3"), "line of its log once"),
        (&replayed("--burst 3"), "line of its log once"),
        (&replayed("--arrival-unit session"), "line of its log once"),
        (&replayed("--session-length 3"), "line of its log once"),
        (&replayed("--http 2 --streams 4"), "a replay has connections"),
        (&replayed("--rate 5"), "cannot be used with"),
        (&replayed("--arrivals exp"), "cannot be used with"),
        (&replayed("--urls x"), "cannot be used with"),
        // Requests.
        ("--insecure", "give https://"),
        ("--cacert x", "give https://"),
        ("--tls-resume", "give https://"),
        ("--no-tls-resume", "give https://"),
        ("--compare https://127.0.0.1:8/ --insecure --cacert x", "give one of the two"),
        ("--method HEAD --verify-digest 1%", "has no content"),
        // Outputs.
        ("--json - --view wrk", "leave out --view"),
        ("--json - --html -", "both go to -"),
        ("--json x --html x", "both go to x"),
        ("--prometheus x --hlog x", "both go to x"),
        // Agents.
        ("--precision 2 --agents 2 --listen 127.0.0.1:0 --certs x", "its own end"),
        ("--tui --agents 2 --listen 127.0.0.1:0 --certs x", "cannot be used with"),
        ("--compare http://127.0.0.1:8/ --agents 2 --listen 127.0.0.1:0 --certs x", "cannot be used with"),
        ("--listen 127.0.0.1:0", "--agents"),
        ("--server-log x --server-metrics http://127.0.0.1:8/", "cannot be used with"),
    ] {
        let said = asked(&format!("{URL} {flags}")).expect_err(flags);
        assert!(said.contains(words), "{flags}: {said}");
    }
    for (flags, levels) in [(&*replay, 1), (&replayed("--close -n 1"), 1), (&replayed("-d 1s --http 2"), 1)] {
        assert_eq!(asked(&format!("{URL} {flags}")), Ok(levels), "{flags}");
    }
    std::fs::remove_file(&log).unwrap();
}

#[test]
fn what_makes_sense_is_taken() {
    for (flags, levels) in [
        ("", 1),
        ("-n 12 --burst 4", 1),
        ("-n 10 --burst 4 --rate 5", 1),
        ("--think-time 1s", 1),
        ("--think-time 1s --close", 1),
        ("--rate 5 --calls 3 --think-time 1s", 1),
        ("--rate 5 --arrival-unit session --think-time 1s", 1),
        ("--rate 5..50:5 -c 1..4:x2 --limit", 30),
        ("-c 1..4:1 --arrivals steps:5@1s,9@1s --limit", 4),
        ("--arrivals steps:5@1s,9@1s --limit", 1),
        ("--find-knee p99<9ms --rate 5..50 -d 1s -c 9 --arrivals exp --calls 4", 1),
        ("--overload --rate 50 --deadline 2s --calls 4", 1),
        ("--compare http://127.0.0.1:8/ --rate 50 -d 1s", 1),
        ("--compare https://127.0.0.1:8/ --insecure", 1),
        ("--http 2 --streams 4 --burst 3", 1),
        ("--http 2 --close", 1),
        ("--json - --html x", 1),
        ("--json /dev/null --html /dev/null", 1),
        ("--precision 2 --warm-up auto --limit", 1),
    ] {
        assert_eq!(asked(&format!("{URL} {flags}")), Ok(levels), "{flags}");
    }
    assert_eq!(asked("https://127.0.0.1:9/ --cacert x --no-tls-resume"), Ok(1));
}

#[test]
fn steps_last_as_long_as_they_are() {
    let stop = |flags: &str| {
        let words = ["bench", URL].into_iter().chain(flags.split_ascii_whitespace());
        let run = plan::plan(CommandLine::try_parse_from(words).unwrap().bench).unwrap();
        serde_json::to_value(run.ask.plans[0].stop).unwrap()
    };
    let after = |seconds: u64| serde_json::json!({ "after": { "duration_ns": seconds * 1_000_000_000 } });
    assert_eq!(stop("--arrivals steps:5@20s,9@15s"), after(35));
    assert_eq!(stop("--arrivals steps:5@20s,9@15s -d 3s"), after(3));
    assert_eq!(stop("--arrivals exp --rate 5"), after(10));
    assert_eq!(stop("-n 12 --burst 4"), serde_json::json!({ "count": 3 }));
    assert_eq!(stop("-n 12 --burst 4 --rate 5"), serde_json::json!({ "count": 12 }));
}
