//! Networks of namespaces: they have the requested size and rate, and they are removed, even after a crash.

use super::{FLATOUT, Given, Ran, assert_nothing_runs, kill_both, signal, worker_of};
use crate::e2e::harness::wait_until;
use crate::e2e::skip::skip;
use crate::e2e::tool::tool;
use flatout_suite::document::Cell;
use serde_json::Value;
use std::process::Command;

const WIRE: &str = r#"
    let "mtu" 576 9000
    testbed "wire" { about "An office's Ethernet."; mtu "{mtu}"; rate "10mbit"; hosts 2 }
    step "wire" { servers "flatout"; path "/big.bin"; bench "-c" 2 "-d" "1s"; testbed "wire"; repetitions 1 }
"#;

fn may_create_networks() -> bool {
    let is_root = crate::e2e::process::is_root();
    if !is_root {
        skip("only root may create network namespaces and cgroups");
    }
    is_root
}

/// flatout's namespaces that belong to this process.
fn namespaces(pid: u32) -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("flatout-suite-{pid}-"))).collect()
}

/// flatout's cgroups for CPU shares that belong to this process.
fn shares(pid: u32) -> Vec<String> {
    let name = format!("flatout-suite-{pid}-*");
    let output = Command::new("find").args(["/sys/fs/cgroup", "-maxdepth", "3", "-name", &name]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Runs a suite with a network, asserts that it leaves nothing behind, and returns its report.
fn run_in_network(given: &Given) -> Value {
    let child = given.start();
    let pid = worker_of(child.id());
    let ran = Ran::of(&child.wait_with_output().unwrap());
    let report = given.report();
    assert_eq!(ran.code, code_of(&report), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(namespaces(pid), Vec::<String>::new());
    assert_nothing_runs(given);
    report
}

#[test]
fn a_link_has_its_rate_for_every_packet_size() {
    if !may_create_networks() {
        // Without root, the next test checks what is skipped.
        return;
    }
    let given = Given::of(&[FLATOUT, WIRE]);
    let report = run_in_network(&given);
    let cells = report["steps"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "one for each packet size");
    for cell in cells {
        // The result records the bytes, whether or not it is valid as a figure.
        let run = &cell["runs"][0];
        let bench = given.result(run["path"].as_str().unwrap());
        let bytes = bench["counts"]["body_bytes_in"].as_f64().unwrap();
        let elapsed_s = bench["steps"][0]["elapsed_ns"].as_f64().unwrap() / 1e9;
        // The content of the link's token bucket is sent immediately, which is a large part of so short a run. Without
        // the limit, it would be a hundred times as much.
        assert!(bytes / elapsed_s < 2_500_000.0, "10 Mbit/s carry {bytes} bytes in {elapsed_s} s");
        let figure = |name: &str| {
            let figures = cell["figures"].as_array().unwrap();
            figures.iter().find(|figure| figure["measure"] == name).and_then(|figure| figure["median"].as_f64())
        };
        let invalid = run["invalid"].as_array().unwrap();
        if !invalid.is_empty() {
            skip(&format!("on this machine the run was not valid, so its figures were not compared: {invalid:?}"));
            continue;
        }
        let bytes = figure("bytes-per-s").unwrap();
        assert!(bytes < 2_500_000.0 && bytes > 200_000.0, "10 Mbit/s carry {bytes} bytes/s");
        assert!(figure("server-cpu-per-request").unwrap() > 0.0, "the suite reads what the client cannot");
    }
}

/// Returns whether this machine has TUN devices, which carry the packets of a link with a delay.
fn has_tun() -> bool {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    if opened.is_err() {
        skip("this machine has no TUN devices");
    }
    opened.is_ok()
}

#[test]
fn a_link_has_its_delay_in_both_directions() {
    if !may_create_networks() || !has_tun() {
        return;
    }
    let wire = r#"
        testbed "far" { delay "40ms"; rate "100mbit"; hosts 2 }
        step "far" { servers "flatout"; path "/big.bin"; bench "-c" 1 "-n" 5; testbed "far"; repetitions 1 }
    "#;
    let given = Given::of(&[FLATOUT, wire]);
    let report = run_in_network(&given);
    let bench = given.result(report["steps"][0]["cells"][0]["runs"][0]["path"].as_str().unwrap());
    let answered = bench["counts"]["responses"].as_u64();
    let least_ns = bench["service"]["min_ns"].as_u64();
    assert_eq!(answered, Some(5), "{bench:#}");
    assert!(least_ns >= Some(80_000_000), "{least_ns:?}");
}

/// The exit code that a report's runs lead to: 5 if no figure of a run is valid, as with a client that the machine
/// starved.
fn code_of(report: &Value) -> i32 {
    let cells = report["steps"].as_array().unwrap().iter().flat_map(|step| step["cells"].as_array().unwrap());
    let mut cells = cells.map(|cell| serde_json::from_value::<Cell>(cell.clone()).unwrap());
    if cells.any(|cell| cell.has_worthless()) { 5 } else { 0 }
}

/// Starts a suite whose bench runs in a network, and returns it with the process that runs it.
fn started(given: &Given) -> (std::process::Child, u32) {
    let child = given.start();
    let pid = worker_of(child.id());
    wait_until("the bench in the namespace", || {
        let in_namespace = |name: &String| {
            let pids = Command::new("ip").args(["netns", "pids", name]).output().unwrap();
            !pids.stdout.is_empty()
        };
        namespaces(pid).iter().filter(|name| in_namespace(name)).count() == 2
    });
    (child, pid)
}

#[test]
fn a_killed_suite_leaves_no_networks_and_no_cpu_shares() {
    if !may_create_networks() {
        return;
    }
    for lines in ["", "cpu 0.5;", "delay \"1ms\"; sysctl \"net.ipv4.tcp_sack=0\";"] {
        if lines.contains("delay") && !has_tun() {
            continue;
        }
        let given =
            Given::of(&[FLATOUT, &WIRE.replace("\"1s\"", "\"60s\"").replace("hosts 2", &format!("{lines} hosts 2"))]);
        let (child, pid) = started(&given);
        for name in namespaces(pid) {
            let read = ["netns", "exec", &name, "cat", "/proc/sys/net/ipv4/tcp_sack"];
            let read = Command::new("ip").args(read).output().unwrap();
            assert_eq!(read.stdout == b"0\n", lines.contains("tcp_sack"), "{name}");
        }
        signal(pid, "KILL");
        let ran = Ran::of(&child.wait_with_output().unwrap());
        assert_eq!(ran.code, 137, "{}", ran.stderr);
        assert_eq!((namespaces(pid), shares(pid)), (Vec::new(), Vec::new()));
        assert_nothing_runs(&given);
    }
}

#[test]
fn networks_left_behind_by_a_crash_are_removed_by_the_next_run() {
    if !may_create_networks() {
        return;
    }
    let given = Given::of(&[FLATOUT, &WIRE.replace("\"1s\"", "\"60s\"")]);
    let (mut child, pid) = started(&given);
    kill_both(&mut child);
    let other = Given::of(&[FLATOUT, super::STEP]);
    let ran = other.run(&[]);
    // Removed by this run, or by another test's run that started in the meantime.
    assert_eq!(namespaces(pid), Vec::<String>::new(), "{}", ran.stderr);
    wait_until("the end of all processes in the namespace", || {
        super::processes_of(&format!("{}/", given.folder.path().display())).is_empty()
    });
}

#[test]
fn servers_are_limited_to_their_share_of_a_core() {
    if !may_create_networks() {
        return;
    }
    let small = r#"
        testbed "small" { cpu 0.05; hosts 1 }
        step "small" { servers "flatout"; path "/index.html"; bench "-c" 8 "-d" "1s" "--close"; testbed "small"; repetitions 1 }
    "#;
    let given = Given::of(&[FLATOUT, small]);
    let child = given.start();
    let pid = worker_of(child.id());
    let ran = Ran::of(&child.wait_with_output().unwrap());
    let report = given.report();
    assert_eq!(ran.code, code_of(&report), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!((namespaces(pid), shares(pid)), (Vec::new(), Vec::new()));
    let cell = &report["steps"][0]["cells"][0];
    if !cell["absent"].is_null() {
        assert_eq!(cell["absent"]["name"], "share-missing");
        return skip("this machine has no CPU quotas, and the suite says so");
    }
    // 50 ms of a second. It ends after the last response, on a busy machine much later. Without a share, it would be
    // most of the second.
    let cpu_ns = cell["runs"][0]["processes"][0]["cpu_ns"].as_u64().unwrap();
    assert!(cpu_ns > 5_000_000 && cpu_ns < 250_000_000, "a twentieth of a second is {cpu_ns} ns");
}

#[test]
fn without_root_network_steps_are_skipped_and_reported() {
    let given = Given::of(&[FLATOUT, WIRE, super::STEP]);
    let mut command = given.command(&[]);
    if crate::e2e::process::is_root() {
        // An unprivileged user who may write into the folder, which also has the binary: they may not reach the other
        // one in root's home.
        let binary = given.folder.path().join("flatout");
        std::fs::copy(command.get_program(), &binary).unwrap();
        let given_to = Command::new("chown").args(["-R", "65534:65534"]).arg(given.folder.path()).status().unwrap();
        assert!(given_to.success());
        let words: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
        command = tool("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(binary).args(words);
    }
    let ran = Ran::of(&command.output().unwrap());
    assert_eq!(ran.code, code_of(&given.report()), "{}\n{}", ran.stdout, ran.stderr);
    assert!(
        ran.stderr.contains("the testbed wire and its steps are left out: network namespaces require root"),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains("network namespaces require root"), "{}", ran.stdout);
    let report = given.report();
    assert_eq!(report["steps"][0]["absent"]["name"], "needs-root");
    assert_eq!(report["testbeds"][0]["absent"]["name"], "needs-root");
    assert_eq!(given.results().len(), 2, "the others ran");
}
