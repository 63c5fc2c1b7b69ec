//! slowhttptest, which is not ours, in its three modes at once; an honest client is served meanwhile.

use super::super::harness::{Folder, Server, flatout};
use super::super::memory::allow_descriptors;
use super::super::tool::{run, said, tool};
use super::{count, large, stop};
use serde_json::Value;
use std::process::{Command, id};
use std::thread;

/// Connections of each mode.
const CONNECTIONS: u64 = 1500;

/// How long slowhttptest runs. It reports every five seconds, and a last time when it ends.
const SECONDS: &str = "10";

/// The modes with their options, what each requests, and the counters of its connections: those that slowhttptest
/// closes when it exits, and those that the server closes first.
const MODES: [(&str, &[&str], &str, &[&str]); 3] = [
    ("slow headers", &["-H"], "/", &["closed_client_cut_head", "closed_head_timeout"]),
    ("slow body", &["-B"], "/", &["closed_client_cut_body", "closed_body_timeout"]),
    (
        "slow read",
        &["-X", "-w", "16", "-y", "64", "-n", "1", "-z", "8"],
        "/large.bin",
        &["closed_client_reset", "closed_write_timeout"],
    ),
];

fn slowhttptest(server: &Server, options: &[&str], path: &str) -> Command {
    let connections = CONNECTIONS.to_string();
    let mut command = tool("slowhttptest");
    // It opens all connections within two seconds. A probe that gets no response within 30 s makes the service
    // unavailable.
    command.args(options).args(["-c", &connections, "-r", "750", "-i", "1", "-l", SECONDS, "-p", "30", "-v", "1"]);
    command.args(["-u", &server.url(path)]);
    command
}

/// The values of `name` in the reports, without the terminal's colours.
fn reported<'l>(output: &'l str, name: &str) -> Vec<&'l str> {
    let word = |rest: &'l str| rest.split(|byte: char| !byte.is_ascii_alphanumeric()).find(|word| !word.is_empty());
    output.split(name).skip(1).map(uncoloured).filter_map(word).collect()
}

/// The rest of `text` after the colours at its beginning.
fn uncoloured(text: &str) -> &str {
    let mut text = text.trim_start();
    while let Some((_, rest)) = text.strip_prefix("\x1b[").and_then(|colour| colour.split_once('m')) {
        text = rest.trim_start();
    }
    text
}

#[test]
fn the_service_stays_available() {
    let folder = Folder::with(&[("index.html", b"welcome"), ("large.bin", &large())]);
    let config = "workers 1\nadmin off=#true\nsite \"*\" { listen \"127.0.0.1:0\"; files \".\"; }\n";
    let server = Server::run(&folder, config);
    for process in [id(), server.worker()] {
        allow_descriptors(process, CONNECTIONS * MODES.len() as u64 + 2000);
    }
    let mut bench = flatout();
    bench.args(["bench", &server.url("/"), "--rate", "100", "--duration", "10s", "--connections", "4"]);
    bench.args(["--timeout", "30s", "--json", "-"]);
    let (outputs, honest) = thread::scope(|scope| {
        let start = |(_, options, path, _)| {
            let mut command = slowhttptest(&server, options, path);
            scope.spawn(move || run(&mut command))
        };
        let attacks = MODES.map(start);
        let honest = bench.output().unwrap();
        (attacks.map(|attack| attack.join().unwrap()), honest)
    });
    for ((mode, ..), output) in MODES.iter().zip(&outputs) {
        let available = reported(output, "service available:");
        assert!(available.len() > 1 && available.iter().all(|word| *word == "YES"), "{mode}: {available:?}\n{output}");
    }
    let report: Value = serde_json::from_slice(&honest.stdout).unwrap_or_else(|_| panic!("{}", said(&honest)));
    let counts = &report["steps"][0]["record"]["counts"];
    assert_eq!(counts["requests_begun"], 1000, "{counts}");
    assert_eq!(counts["status_classes"], serde_json::json!([0, 1000, 0, 0, 0]), "{counts}");
    let counters = stop(server);
    for (mode, _, _, names) in MODES {
        let held: u64 = names.iter().map(|name| count(&counters, name)).sum();
        println!("{mode}: {held} connections");
        assert!(held > CONNECTIONS / 2, "{mode}: {counters}");
    }
}
