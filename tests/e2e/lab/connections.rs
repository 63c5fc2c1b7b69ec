//! As many connections as this machine allows one process.

use super::bench_by;
use crate::e2e::harness::{Folder, Server};
use crate::e2e::tool::tool;

/// Number of connections held open.
const CONNECTIONS: &str = "18000";

/// Maximum number of descriptors on each side.
const DESCRIPTORS: u64 = 20_000;

#[test]
fn eighteen_thousand_connections_fit_into_twenty_thousand_descriptors() {
    let site = Folder::with(&[("a.txt", &[b'a'; 64])]);
    let server = Server::start(site.path(), &[]);
    let mut command = tool("prlimit");
    command.arg(format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}"));
    command.arg(crate::e2e::harness::flatout().get_program());
    // Every connection sends one request, and sends its second only after all connections are open.
    let run = bench_by(
        command,
        &[
            &server.url("/a.txt"),
            "-c",
            CONNECTIONS,
            "-n",
            "36000",
            "--think-time",
            "10s",
            "--timeout",
            "60s",
            "--threads",
            "1",
        ],
    );
    assert_eq!(run.code, Some(0), "{} {}", run.stdout, run.stderr);
    assert_eq!((run.number("responses"), run.number("connections")), (36_000, 18_000));
    assert_eq!(run.step()["record"]["connections"]["peak"], 18_000);
    assert_eq!(run.json["errors"]["total"], 0);
}
