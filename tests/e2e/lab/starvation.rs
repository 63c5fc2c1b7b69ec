//! Lack of CPU time: if the client is short of it, its figures are invalid; if the server is, they are valid.
//!
//! A cgroup with a quota of 5 % of a core slows down one of the two. A quota of nearly a whole core limits a client
//! that would otherwise busy-poll. If the user may not create cgroups, the tests are skipped.

use super::{Bench, bench_by};
use crate::e2e::cgroup::Cgroup;
use crate::e2e::harness::{Folder, Server, flatout};
use crate::e2e::skip::skip;
use crate::e2e::tool::tool;
use flatout_lab::cgroup;

fn site() -> Folder {
    Folder::with(&[("a.txt", &[b'a'; 1024])])
}

#[test]
fn a_starved_client_invalidates_its_run() {
    let Some(starved) = Cgroup::with_cpu_quota("client", 5) else { return };
    let site = site();
    let server = Server::start(site.path(), &[]);
    let bench = |load: &[&str]| {
        let command = starved.command(flatout().get_program());
        let fixed = [&server.url("/a.txt"), "-d", "3s", "--threads", "1", "--strict"];
        let run = bench_by(command, &[&fixed[..], load].concat());
        assert_eq!(run.exit, Some(5), "{load:?} {} {}", run.stdout, run.stderr);
        run
    };
    let check = |run: &Bench, reasons: &[&str]| {
        let found = run.invalid().into_iter().find(|reason| reasons.contains(reason));
        let found = found.unwrap_or_else(|| panic!("{:?} {}", run.invalid(), run.stdout));
        let said = [format!("  {found}: "), format!("(flatout help {found})")];
        assert!(said.iter().all(|said| run.stdout.contains(said)), "{}", run.stdout);
    };
    let closed = bench(&["-c", "16"]);
    check(&closed, &["client-saturated"]);
    check(&bench(&["--rate", "20000"]), &["client-saturated"]);
    // The rate that it reached in a closed loop. At a fixed rate, each request costs it no less, and it gets its CPU
    // time in bursts.
    let rate = closed.step()["responses_per_s"].as_f64().unwrap().round().max(1.0).to_string();
    check(&bench(&["--rate", &rate, "-c", "1000"]), &["client-saturated", "schedule-lag"]);
}

/// A rate at which a thread would busy-poll.
const FEW: [&str; 6] = ["--rate", "100", "-d", "1s", "--threads", "1"];

#[test]
fn a_client_with_a_quota_sleeps_until_something_is_due() {
    let Some(bounded) = Cgroup::with_cpu_quota("quota", 90) else { return };
    let site = site();
    let server = Server::start(site.path(), &[]);
    let run =
        bench_by(bounded.command(flatout().get_program()), &[&[server.url("/a.txt").as_str()][..], &FEW].concat());
    assert_eq!(run.code, Some(0), "{} {}", run.stdout, run.stderr);
    assert_eq!(run.step()["client"]["busy_wait_ns"], 0);
    assert!(!run.stdout.contains("awake"), "{}", run.stdout);
}

#[test]
fn busy_polling_time_is_reported_and_within_the_cpu_time() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    let mut command = tool("bash");
    command.arg("-c").arg("TIMEFORMAT='%U %S'; time \"$0\" \"$@\"").arg(flatout().get_program());
    let run = bench_by(command, &[&[server.url("/a.txt").as_str()][..], &FEW].concat());
    assert_eq!(run.code, Some(0), "{} {}", run.stdout, run.stderr);
    let client = &run.step()["client"];
    let of = |name: &str| client["cpu"][name].as_u64().unwrap();
    let (work_ns, awake_ns) = (of("user_ns") + of("system_ns"), client["busy_wait_ns"].as_u64().unwrap());
    // CPU time of the whole process as reported by the shell, to a millisecond.
    let used_s: f64 =
        run.stderr.lines().last().unwrap().split_whitespace().map(|number| number.parse::<f64>().unwrap()).sum();
    assert!(work_ns > 0 && ((work_ns + awake_ns) as f64) < used_s * 1e9 + 2e6, "{work_ns} {awake_ns} {used_s}");
    // On one core, or if the tests have a quota themselves, busy polling is off.
    let may = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) && !cgroup::has_quota();
    assert_eq!(awake_ns > 0, may, "{client}");
    assert_eq!(run.stdout.contains("per response of busy polling"), may, "{}", run.stdout);
}

#[test]
fn a_starved_server_leaves_the_run_valid() {
    let Some(starved) = Cgroup::with_cpu_quota("server", 5) else { return };
    let site = site();
    let server = Server::start(site.path(), &[]);
    starved.take(server.pid());
    // Other work on the machine takes time from both, and a run that it disturbs shows nothing about the server. At
    // least one of the other runs must be valid. The figure does not cover everything that disturbs a run.
    let mut undisturbed = Vec::new();
    for _ in 0..RUNS {
        let run = bench_by(flatout(), &[&server.url("/a.txt"), "-d", "2s", "--threads", "1", "-c", "16"]);
        assert!(run.code == Some(0) && run.number("responses") > 0, "{} {}", run.stdout, run.stderr);
        let others = run.step()["client"]["other_cpu_share"].as_f64().unwrap();
        if others > OTHERS_SHARE_MIN || run.invalid().contains(&"cpu-contention") {
            continue;
        }
        if run.exit == Some(0) && run.invalid().is_empty() {
            return;
        }
        undisturbed.push(format!("{} {}", run.stdout, run.stderr));
    }
    assert!(undisturbed.is_empty(), "only the server was short of CPU time: {undisturbed:#?}");
    skip(&format!("other processes used the machine in each of {RUNS} runs"));
}

/// Number of client runs against a starved server.
const RUNS: u32 = 6;

/// If other processes use this share of the machine's time, a run shows nothing about the server.
const OTHERS_SHARE_MIN: f64 = 0.05;
