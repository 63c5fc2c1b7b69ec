//! Networks of namespaces: they have the size and rate asked for, and they go away again, after a crash too.

use super::{FLATOUT, Given, Ran, assert_nothing_runs, kill_both, signal, worker_of};
use crate::e2e::harness::wait_until;
use crate::e2e::skip::skip;
use crate::e2e::tool::tool;
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

/// Our namespaces that belong to this process.
fn namespaces(pid: u32) -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("flatout-suite-{pid}-"))).collect()
}

/// Our shares of a core's time that belong to this process.
fn shares(pid: u32) -> Vec<String> {
    let name = format!("flatout-suite-{pid}-*");
    let output = Command::new("find").args(["/sys/fs/cgroup", "-maxdepth", "3", "-name", &name]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_link_has_its_rate_for_every_size_of_packet() {
    if !may_create_networks() {
        // Without root the next test says what is left out.
        return;
    }
    let given = Given::of(&[FLATOUT, WIRE]);
    let child = given.start();
    let pid = worker_of(child.id());
    let ran = Ran::of(&child.wait_with_output().unwrap());
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    let report = given.report();
    for cell in report["steps"][0]["cells"].as_array().unwrap() {
        let figure = |name: &str| {
            let figures = cell["figures"].as_array().unwrap();
            figures.iter().find(|figure| figure["measure"] == name).and_then(|figure| figure["median"].as_f64())
        };
        if cell["runs"][0]["invalid"].as_array().unwrap().is_empty() {
            let bytes = figure("bytes-per-s").unwrap();
            // What the link's bucket holds goes at once, and is much of so short a run; without a link it is a hundred times
            // as much.
            assert!(bytes < 2_500_000.0 && bytes > 200_000.0, "10 Mbit/s carry {bytes} bytes/s");
            assert!(figure("server-cpu-per-request").unwrap() > 0.0, "the suite reads what the client cannot");
        }
    }
    assert_eq!(namespaces(pid), Vec::<String>::new());
    assert_nothing_runs(&given);
}

/// A suite whose bench runs in a network, and the process that runs it.
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
fn a_suite_that_is_killed_leaves_no_network_and_no_share() {
    if !may_create_networks() {
        return;
    }
    for cpu in ["", "cpu 0.5;"] {
        let given =
            Given::of(&[FLATOUT, &WIRE.replace("\"1s\"", "\"60s\"").replace("hosts 2", &format!("{cpu} hosts 2"))]);
        let (child, pid) = started(&given);
        signal(pid, "KILL");
        let ran = Ran::of(&child.wait_with_output().unwrap());
        assert_eq!(ran.code, 137, "{}", ran.stderr);
        assert_eq!((namespaces(pid), shares(pid)), (Vec::new(), Vec::new()));
        assert_nothing_runs(&given);
    }
}

#[test]
fn networks_that_a_crash_left_behind_are_removed_by_the_next_run() {
    if !may_create_networks() {
        return;
    }
    let given = Given::of(&[FLATOUT, &WIRE.replace("\"1s\"", "\"60s\"")]);
    let (mut child, pid) = started(&given);
    kill_both(&mut child);
    let other = Given::of(&[FLATOUT, super::STEP]);
    let ran = other.run(&[]);
    // By this run, or by another test's that began meanwhile.
    assert_eq!(namespaces(pid), Vec::<String>::new(), "{}", ran.stderr);
    wait_until("the end of all that ran in it", || {
        super::processes_of(&format!("{}/", given.folder.path().display())).is_empty()
    });
}

#[test]
fn servers_have_the_share_of_a_core_that_they_are_given() {
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
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    let cell = &given.report()["steps"][0]["cells"][0];
    if cell["absent"].is_null() {
        // 50 ms of a second; it ends a little after the last answer, and twice as much leaves room for that.
        let cpu_ns = cell["runs"][0]["processes"][0]["cpu_ns"].as_u64().unwrap();
        assert!(cpu_ns > 5_000_000 && cpu_ns < 100_000_000, "a twentieth of a second is {cpu_ns} ns");
    } else {
        // A machine without quotas says so, and no more.
        assert_eq!(cell["absent"]["name"], "share-missing");
    }
    assert_eq!((namespaces(pid), shares(pid)), (Vec::new(), Vec::new()));
}

#[test]
fn without_root_the_steps_in_it_are_left_out_and_said_to_be() {
    let given = Given::of(&[FLATOUT, WIRE, super::STEP]);
    let mut command = given.command(&[]);
    if crate::e2e::process::is_root() {
        // Somebody who may write into the folder, and nothing else.
        let given_to = Command::new("chown").args(["-R", "65534:65534"]).arg(given.folder.path()).status().unwrap();
        assert!(given_to.success());
        let words: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
        let program = command.get_program().to_owned();
        command = tool("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program).args(words);
    }
    let ran = Ran::of(&command.output().unwrap());
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    assert!(
        ran.stderr.contains("the testbed wire is left out, and the steps in it: network namespaces need root"),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains("network namespaces need root"), "{}", ran.stdout);
    let report = given.report();
    assert_eq!(report["steps"][0]["absent"]["name"], "needs-root");
    assert_eq!(report["testbeds"][0]["absent"]["name"], "needs-root");
    assert_eq!(given.results().len(), 2, "the others ran");
}
