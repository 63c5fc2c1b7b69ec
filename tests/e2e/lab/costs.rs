//! The CPU time of the client itself covers the same period as the other figures.

use super::bench;
use crate::e2e::harness::{Folder, Server};

#[test]
fn cpu_time_covers_only_the_measured_part() {
    let site = Folder::with(&[("a.txt", &[b'a'; 64])]);
    let server = Server::start(site.path(), &[]);
    let url = server.url("/a.txt");
    // A warm-up that lasts many times longer than the measurement and keeps a thread just as busy.
    let arguments = [&url, "-c", "8", "--threads", "1", "--warm-up", "4s", "-d", "400ms", "--view", "httperf"];
    let run = bench(&arguments);
    assert_eq!(run.code, Some(0), "{} {}", run.stdout, run.stderr);
    let (step, client) = (run.step(), &run.step()["client"]);
    let used_ns = client["cpu"]["user_ns"].as_u64().unwrap() + client["cpu"]["system_ns"].as_u64().unwrap();
    let elapsed_ns = step["elapsed_ns"].as_u64().unwrap();
    // One thread cannot use more than the elapsed time.
    assert!(used_ns > 0 && used_ns <= elapsed_ns + elapsed_ns / 10, "{used_ns} of {elapsed_ns}");
    let each_ns = client["cpu_ns_per_response"].as_f64().unwrap();
    assert!((each_ns * run.number("responses") as f64 / used_ns as f64 - 1.0).abs() < 1e-6, "{client}");
    let line = run.stdout.lines().find(|line| line.starts_with("CPU time [s]: ")).unwrap();
    let total: f64 = line.rsplit("total ").next().unwrap().trim_end_matches("%)").parse().unwrap();
    assert!(total > 0.0 && total <= 110.0, "{line}");
}
