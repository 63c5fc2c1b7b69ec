//! Tests every refusal of conflicting flags, and that valid combinations are accepted.

use crate::bench::{BenchArgs, plan};
use clap::Parser;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Parses a command line. Returns the number of levels, or the error.
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
        // Questions, combined with flags for what they decide themselves.
        ("--find-knee p99<9ms -n 5", "--find-knee needs a duration"),
        ("--overload -n 5", "--overload needs a duration"),
        ("--compare http://127.0.0.1:8/ -n 5", "--compare needs a duration"),
        ("--find-knee p99<9ms --precision 2", "remove --precision"),
        ("--overload --precision 2", "remove --precision"),
        ("--compare http://127.0.0.1:8/ --precision 2", "remove --precision"),
        ("--find-knee p99<9ms -c 1..9:1", "a single number of connections"),
        ("--overload -c 1..9:1", "a single number of connections"),
        ("--compare http://127.0.0.1:8/ -c 1..9:1", "a single number of connections"),
        ("--find-knee p99<9ms --rate 5..50:5", "without a step"),
        ("--overload --rate 5..50", "use --rate PEAK"),
        ("--overload --rate 5..50:5", "use --rate PEAK"),
        ("--compare http://127.0.0.1:8/ --rate 5..50:5", "at a single rate"),
        (&replayed("--find-knee p99<9ms"), "--find-knee sets the rate"),
        (&replayed("--overload"), "--overload sets the rate"),
        (&replayed("--compare http://127.0.0.1:8/"), "would restart at each change"),
        ("--compare http://127.0.0.1:8/ --arrivals steps:5@1s,9@1s", "would restart at each change"),
        ("--compare http://127.0.0.1:8/ --server-log x", "belong to one"),
        ("--compare http://127.0.0.1:8/ --server-metrics http://127.0.0.1:8/", "belong to one"),
        ("--find-knee p99<9ms --limit", "cannot be combined with"),
        ("--overload --limit", "cannot be combined with"),
        ("--compare http://127.0.0.1:8/ --limit", "cannot be combined with"),
        ("--find-knee p99<9ms --overload", "cannot be used with"),
        ("--find-knee p99<9ms --arrivals steps:5@1s", "its own rates"),
        ("--deadline 2s", "--overload"),
        ("--limit --agents 2 --listen 127.0.0.1:0 --certs x", "cannot be used with"),
        ("--overload --stop-when errors>5%", "remove --stop-when"),
        ("--overload --ramp 1s", "remove --ramp"),
        ("--compare http://127.0.0.1:8/ --ramp 1s", "remove --ramp"),
        ("--arrivals steps:5@1s,9@1s --ramp 1s", "begin with a step"),
        (&replayed("--ramp 1s"), "cannot be used with"),
        ("--ramp 0", "longer than 0"),
        // Numbers.
        ("-c 0", "--connections: "),
        ("-c x", "--connections: "),
        ("--rate abc", "--rate: "),
        ("--rate 0", "--rate: "),
        ("--find-knee p99<9ms --rate abc", "--rate: "),
        ("--find-knee p99", "--find-knee: "),
        ("--require p99", "--require: "),
        ("--rate 5 --arrivals sometimes", "--arrivals: "),
        ("--warm-up x", "--warm-up: "),
        ("--precision x", "--precision: "),
        ("--verify-digest x", "--verify-digest: "),
        ("--session-length x", "--session-length: "),
        ("--close --think-time x", "--think-time: "),
        ("-n 0", "--requests"),
        ("--burst 0", "--burst"),
        ("--calls 0", "--calls"),
        ("--threads 0", "--threads"),
        ("--source-addresses 0", "--source-addresses"),
        ("--stop-when p99>5ms", "write it as errors>5%"),
        ("--body - --urls -", "both be read from standard input"),
        ("--fill -H X:{seq} --verify-digest 1%", "--fill makes each request different"),
        ("--body - --bundle x", "which --bundle cannot store"),
        ("--body x --body-text y", "cannot be used with"),
        ("--body - --agents 2 --listen 127.0.0.1:0 --certs x", "use a file on each agent"),
        ("--sni x", "--sni needs TLS"),
        ("--resolve x:9:127.0.0.1", "--resolve x:9:127.0.0.1 does not apply to http://127.0.0.1:9/"),
        ("--connect-to x:9:127.0.0.1:8", "--connect-to x:9:127.0.0.1:8 does not apply to http://127.0.0.1:9/"),
        ("--resolve 127.0.0.1:9:127.0.0.2 --resolve x:9:127.0.0.1", "--resolve x:9:127.0.0.1 does not apply"),
        ("--resolve x:9", "HOST:PORT:ADDRESS"),
        ("--connect-to x:9", "HOST1:PORT1:HOST2:PORT2"),
        ("--unix-socket /nowhere/x.sock", "cannot use the Unix socket /nowhere/x.sock: No such file"),
        ("--unix-socket /dev/null", "/dev/null is not a Unix socket"),
        ("--unix-socket /dev/null --resolve 127.0.0.1:9:127.0.0.2", "cannot be used with"),
        ("--unix-socket /dev/null --source-addresses 2", "cannot be used with"),
        ("--unix-socket /dev/null --limit", "cannot be used with"),
        ("--unix-socket /dev/null --agents 2 --listen 127.0.0.1:0 --certs x", "cannot be used with"),
        ("--unix-socket /dev/null --share 0/2", "an agent does not connect to Unix sockets"),
        // The unit of arrivals.
        ("--arrival-unit request --calls 2", "--calls is only for"),
        ("--arrival-unit request --close", "--close is short"),
        ("--arrival-unit request --session-length 2", "--session-length is only for"),
        ("--arrival-unit connection --session-length 2", "--session-length is only for"),
        ("--arrival-unit session --calls 2", "--calls is only for"),
        ("--session-length 2 --calls 2", "--calls is only for"),
        ("--arrival-unit session --close", "--close is short"),
        ("--session-length 2 --close", "--close is short"),
        ("--close --calls 4", "use only one of the two"),
        ("--rate 5 --think-time 1s", "--think-time is between"),
        ("--rate 5 --arrival-unit connection --think-time 1s", "--think-time is between"),
        ("--rate 5 --close --think-time 1s", "--think-time is between"),
        ("--find-knee p99<9ms --think-time 1s", "--think-time is between"),
        (&replayed("--think-time 1s"), "--think-time is between"),
        ("--http 2 --streams 4 --close", "streams share"),
        ("--http 2 --streams 4 --calls 3", "streams share"),
        ("--http 2 --streams 4 --arrival-unit connection", "streams share"),
        ("--http 2 --streams 4 --arrival-unit session", "streams share"),
        ("--http 2 --streams 4 --session-length 3", "streams share"),
        ("--http 3 --streams 4 --close", "streams share"),
        ("--http 3", "HTTP/3 needs TLS"),
        ("--http 3 --insecure", "needs TLS"),
        ("--streams 4", "use --http 2"),
        ("--http 1.0 --streams 4", "use --http 2"),
        ("-n 10 --burst 4", "not a multiple of --burst"),
        ("-n 10 -d 1s", "cannot be used with"),
        ("-n 10 --precision 2", "cannot be used with"),
        ("--arrivals steps:5@1s,9@1s --precision 2", "needs a steady mean"),
        ("--arrivals steps:5@1s --rate 9", "its own rates"),
        ("--arrivals exp", "need a rate"),
        ("-c 1..200:1 --rate 1..9:1", "1800 combinations"),
        // Replays.
        (&replayed("--precision 2"), "needs a steady mean"),
        (&replayed("-c 1..9:1"), "a replay works with a single"),
        (&replayed("--calls 3"), "request in its log once"),
        (&replayed("--burst 3"), "request in its log once"),
        (&replayed("--arrival-unit session"), "request in its log once"),
        (&replayed("--session-length 3"), "request in its log once"),
        (&replayed("--http 2 --streams 4"), "a replay uses separate connections"),
        (&replayed("--rate 5"), "cannot be used with"),
        (&replayed("--arrivals exp"), "cannot be used with"),
        (&replayed("--urls x"), "cannot be used with"),
        // Requests.
        ("--insecure", "use https://"),
        ("--cacert x", "use https://"),
        ("--tls-resume", "use https://"),
        ("--no-tls-resume", "use https://"),
        ("--compare https://127.0.0.1:8/ --insecure --cacert x", "use only one of the two"),
        ("--method HEAD --verify-digest 1%", "has no content"),
        // Outputs.
        ("--json - --view wrk", "remove --view"),
        ("--json - --html -", "both write to -"),
        ("--json x --html x", "both write to x"),
        ("--prometheus x --hlog x", "both write to x"),
        // Agents.
        ("--precision 2 --agents 2 --listen 127.0.0.1:0 --certs x", "at a different time"),
        ("--tui --agents 2 --listen 127.0.0.1:0 --certs x", "cannot be used with"),
        ("--compare http://127.0.0.1:8/ --agents 2 --listen 127.0.0.1:0 --certs x", "cannot be used with"),
        ("--listen 127.0.0.1:0", "--agents"),
        ("--server-log x --server-metrics http://127.0.0.1:8/", "cannot be used with"),
    ] {
        let said = asked(&format!("{URL} {flags}")).expect_err(flags);
        assert!(said.contains(words), "{flags}: {said}");
    }
    let said = asked("https://127.0.0.1:9/ --http 3 --unix-socket /dev/null").unwrap_err();
    assert!(said.contains("HTTP/3 needs UDP"), "{said}");
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
        ("--ramp 2s --rate 5..50:5 --limit", 10),
        ("--ramp 2s --warm-up 3s -c 1..4:1", 4),
    ] {
        assert_eq!(asked(&format!("{URL} {flags}")), Ok(levels), "{flags}");
    }
    assert_eq!(asked("https://127.0.0.1:9/ --cacert x --no-tls-resume"), Ok(1));
}

#[test]
fn placeholders_are_checked_before_a_run() {
    let checked = |words: &[&str]| {
        let line = CommandLine::try_parse_from(["bench"].iter().chain(words)).unwrap();
        plan::check(&line.bench)
    };
    let url = "http://127.0.0.1:9/{seq}?{random:1-9}";
    assert_eq!(checked(&[url, "--fill", "-H", "X: {uuid}", "--body-text", "{\"a\":{}}"]), Ok(()));
    assert!(checked(&[url]).unwrap_err().contains("percent-encode it"));
    for words in [
        &["http://127.0.0.1:9/{random:9-1}", "--fill"][..],
        &[url, "--fill", "-H", "X: {random:9-1}"],
        &[url, "--fill", "--body-text", "{random:9-1}"],
        &[url, "--fill", "--compare", "http://127.0.0.1:9/{random:9-1}"],
    ] {
        assert!(checked(words).unwrap_err().contains("{random:9-1} ends before it begins"), "{words:?}");
    }
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
