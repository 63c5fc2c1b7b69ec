//! socket.io: long polling, and the upgrade to WebSocket next to it.

use super::origin::{Origin, node, node_packages};
use super::stage::{Stage, together};
use crate::harness::Server;
use crate::tool::run;

#[test]
fn socket_io_polls_upgrades_and_keeps_clients_apart() {
    let stage = Stage::new("socket.io");
    let script = || {
        let mut command = node("chat.mjs");
        command.arg(node_packages());
        command
    };
    let origin = Origin::script(script().arg("server"));
    let servers =
        [Server::accelerate(&origin.url(), &["--workers", "2"]), stage.serve(&origin.url(), "ttl \"60s\"", "")];
    for server in &servers {
        together(&["alice", "bob", "carol"], |name| {
            let seen = run(script().arg("client").arg(server.url("")).arg(name));
            assert!(seen.contains("all came back"), "{seen}");
        });
    }
}
