//! The reports of other tools for servers with a known schedule, compared with the truth and with our results: the table
//! in docs/lab-method.md.
//!
//! By default, each tool measures two periods of the stalling server, which shows that every tool still prints the
//! figures that the table needs. `FLATOUT_LAB_TOOLS=whole` measures the complete table in a few minutes and prints it:
//! `FLATOUT_LAB_TOOLS=whole cargo test --release --test e2e -- --nocapture lab::beside`.

use super::responder::{Answer, raise_priority, respond_at_high_priority};
use super::{bench, lock_high_priority};
use crate::e2e::harness::Folder;
use crate::e2e::skip::skip;
use crate::e2e::tool::tool;
use flatout_os::clock::precise_ns;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

const MS: u64 = 1_000_000;

/// Seconds per run: two or four complete periods of the stalling server.
static SECONDS: LazyLock<u64> = LazyLock::new(|| if is_whole() { 12 } else { 6 });

/// Requests per second, for tools with a rate option.
const RATE: u64 = 100;

/// Concurrent connections, for tools with such an option.
const CONNECTIONS: u64 = 4;

/// p50, p90, p99 and p99.9 in milliseconds, if the tool reports them.
type Told = [Option<f64>; 4];

fn is_whole() -> bool {
    std::env::var_os("FLATOUT_LAB_TOOLS").is_some_and(|which| which == "whole")
}

struct Schedule {
    name: &'static str,
    truth: Told,
    respond: fn() -> SocketAddr,
}

const SCHEDULES: [Schedule; 3] = [
    Schedule { name: "always 10 ms", truth: [Some(10.0); 4], respond: constant_delay },
    Schedule {
        name: "6 ms, every fifth 60 ms",
        truth: [Some(6.0), Some(60.0), Some(60.0), Some(60.0)],
        respond: bimodal_delay,
    },
    Schedule {
        name: "5 ms, stalls 1 s in every 3",
        truth: [Some(5.0), Some(705.0), Some(975.0), Some(1_002.0)],
        respond: stalling_server,
    },
];

/// ab uses HTTP/1.0 and needs an explicit keep-alive.
fn response() -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 100\r\n\r\n".to_vec();
    answer.resize(answer.len() + 100, b'x');
    answer
}

fn constant_delay() -> SocketAddr {
    respond_at_high_priority(|_, arrived_ns| Answer::At(arrived_ns + 10 * MS, response()))
}

fn bimodal_delay() -> SocketAddr {
    let number = AtomicU64::new(0);
    respond_at_high_priority(move |_, arrived_ns| {
        let is_slow = number.fetch_add(1, Ordering::Relaxed) % 5 == 4;
        Answer::At(arrived_ns + if is_slow { 60 * MS } else { 6 * MS }, response())
    })
}

fn stalling_server() -> SocketAddr {
    let begun_ns = precise_ns();
    respond_at_high_priority(move |_, arrived_ns| {
        let phase_ns = arrived_ns.saturating_sub(begun_ns) % (3_000 * MS);
        let stall_ns = if phase_ns < 2_000 * MS { 0 } else { 3_000 * MS - phase_ns };
        Answer::At(arrived_ns + 5 * MS + stall_ns, response())
    })
}

fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The number after `name` at the beginning of a line, converted with its unit.
fn figure(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
    let word = rest.trim_start_matches([' ', ':']).trim_start_matches("in ").split_ascii_whitespace().next()?;
    let digits = word.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let scale = match &word[digits.len()..] {
        "us" => 0.001,
        "s" => 1_000.0,
        _ if rest.trim_end().ends_with("secs") || rest.trim_end().ends_with("sec") => 1_000.0,
        _ => 1.0,
    };
    Some(digits.parse::<f64>().ok()? * scale)
}

/// A constant rate, with times measured from when each request was due.
fn flatout_at_fixed_rate(url: &str, connections: &str) -> Option<Told> {
    let (rate, requests) = (RATE.to_string(), (RATE * *SECONDS).to_string());
    let run = bench(&[url, "--rate", &rate, "-n", &requests, "-c", connections, "--threads", "1"]);
    let at = |name: &str| Some(run.json["latency"][name].as_u64()? as f64 / MS as f64);
    let told = [at("p50_ns"), at("p90_ns"), at("p99_ns"), at("p99_9_ns")];
    (run.number("responses") == RATE * *SECONDS).then_some(told)
}

fn wrk(url: &str) -> Option<Told> {
    let text = said(tool("wrk").args(["-t1", "-c4", "-d", &format!("{}s", *SECONDS), "--latency", url]))?;
    Some([figure(&text, "50%"), figure(&text, "90%"), figure(&text, "99%"), None])
}

fn ab(url: &str) -> Option<Told> {
    let requests = (RATE * *SECONDS).to_string();
    let text = said(tool("ab").args(["-q", "-k", "-c", "4", "-n", &requests, url]))?;
    Some([figure(&text, "50%"), figure(&text, "90%"), figure(&text, "99%"), None])
}

fn hey(url: &str) -> Option<Told> {
    let each = (RATE / CONNECTIONS).to_string();
    let text = said(tool("hey").args(["-z", &format!("{}s", *SECONDS), "-c", "4", "-q", &each, url]))?;
    Some([figure(&text, "50%"), figure(&text, "90%"), figure(&text, "99%"), None])
}

/// h2load reports no percentiles, but logs each measurement.
fn h2load(url: &str) -> Option<Told> {
    let folder = Folder::new();
    let log = folder.path().join("log");
    let each = (RATE / CONNECTIONS).to_string();
    let mut command = tool("h2load");
    command.args(["--h1", "-c", "4", "-t", "1", "-D", &SECONDS.to_string(), "--rps", &each]);
    said(command.arg(format!("--log-file={}", log.display())).arg(url))?;
    let text = fs::read_to_string(log).ok()?;
    let mut times: Vec<f64> =
        text.lines().filter_map(|line| Some(line.split('\t').nth(2)?.parse::<f64>().ok()? / 1e3)).collect();
    times.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| times.get(((share * times.len() as f64).ceil() as usize).max(1) - 1).copied();
    Some([at(0.5), at(0.9), at(0.99), at(0.999)])
}

/// httperf reports only a median.
fn httperf(url: &str) -> Option<Told> {
    let port = url.trim_end_matches('/').rsplit(':').next()?;
    let (rate, count) = (RATE.to_string(), (RATE * *SECONDS).to_string());
    let mut command = tool("httperf");
    command.args(["--server", "127.0.0.1", "--port", port, "--uri", "/", "--rate", &rate, "--num-conns", &count]);
    let text = said(&mut command)?;
    let line = text.lines().find(|line| line.starts_with("Connection time [ms]: min"))?;
    let median = line.split_ascii_whitespace().skip_while(|word| *word != "median").nth(1)?.parse().ok();
    Some([median, None, None, None])
}

fn oha(url: &str) -> Option<Told> {
    let rate = RATE.to_string();
    let mut command = Command::new("oha");
    command.args(["--no-tui", "-z", &format!("{}s", *SECONDS), "-c", "4", "-q", &rate, "--latency-correction", url]);
    let text = said(&mut command)?;
    Some([figure(&text, "50.00%"), figure(&text, "90.00%"), figure(&text, "99.00%"), figure(&text, "99.90%")])
}

#[test]
fn other_tools_are_compared_with_the_truth() {
    let _alone = lock_high_priority();
    raise_priority();
    let has_oha = Command::new("oha").arg("--version").output().is_ok_and(|output| output.status.success());
    type Run = fn(&str) -> Option<Told>;
    let tools: [(&str, Run); 8] = [
        ("flatout bench --rate 100 -c 300", |url| flatout_at_fixed_rate(url, "300")),
        ("flatout bench --rate 100 -c 4, which is wrk2's method", |url| flatout_at_fixed_rate(url, "4")),
        ("wrk -c 4", wrk),
        ("ab -k -c 4", ab),
        ("hey -c 4 -q 25", hey),
        ("h2load --h1 -c 4 --rps 25", h2load),
        ("httperf --rate 100", httperf),
        ("oha -c 4 -q 100 --latency-correction", oha),
    ];
    let shown =
        |told: Told| told.map(|figure| figure.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"))).join(" / ");
    let [.., stalls] = &SCHEDULES;
    let schedules = if is_whole() { &SCHEDULES[..] } else { std::slice::from_ref(stalls) };
    let mut table = String::from("| tool |");
    for schedule in schedules {
        let _ = write!(table, " {} |", schedule.name);
    }
    let _ = write!(table, "\n|---|{}\n| truth |", "---|".repeat(schedules.len()));
    for schedule in schedules {
        let _ = write!(table, " {} |", shown(schedule.truth));
    }
    table.push('\n');
    for (name, run) in tools {
        let _ = write!(table, "| `{name}` |");
        for schedule in schedules {
            let told = run(&format!("http://{}/", (schedule.respond)()));
            // Every installed tool must print the figures that the table needs.
            let is_absent = name.starts_with("oha") && !has_oha;
            assert!(told.is_some_and(|told| told[0].is_some()) || is_absent, "{name} said nothing:\n{table}");
            if name.starts_with("flatout") && schedule.name == stalls.name {
                let p90 = told.and_then(|told| told[1]);
                assert!(p90 > Some(500.0), "requests during a stall are delayed, but {name} reports {p90:?}");
            }
            let _ = write!(table, " {} |", told.map_or_else(|| "not here".to_owned(), shown));
        }
        table.push('\n');
    }
    println!("{table}");
    if !has_oha {
        skip("oha is not installed, and no package of Debian has it, so its row is empty");
    }
}
