//! As many connections as this machine lets a process have.

use super::bench_by;
use crate::e2e::harness::{Folder, Server};
use crate::e2e::tool::tool;

/// Connections held open.
const CONNECTIONS: &str = "18000";

/// Descriptors that either side may have.
const DESCRIPTORS: u64 = 20_000;

#[test]
fn eighteen_thousand_connections_are_held_by_twenty_thousand_descriptors() {
    let site = Folder::with(&[("a.txt", &[b'a'; 64])]);
    let server = Server::start(site.path(), &[]);
    let mut command = tool("prlimit");
    command.arg(format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}"));
    command.arg(crate::e2e::harness::flatout().get_program());
    // Every connection asks once and waits for its second turn, until all of them stand.
    let run = bench_by(
        command,
        &[
            &server.url("/a.txt"),
            "-c",
            CONNECTIONS,
            "-n",
            "36000",
            "--think-time",
            "4s",
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
