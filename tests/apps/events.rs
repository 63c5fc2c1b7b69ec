//! Server-sent events that are silent for longer than the body timeout of an ordinary response.

use super::origin::{Origin, node};
use super::stage::{Stage, together};
use crate::tool::run;

#[test]
fn silent_event_streams_stay_open_and_are_never_shared_between_visitors() {
    let stage = Stage::new("Server-sent events");
    let origin = Origin::script(node("events.mjs").arg("server"));
    // An ordinary response times out after a second of silence. This stream is silent for three seconds.
    let server = stage.serve(&origin.url(), "ttl \"60s\"", "timeouts { body \"1s\"; }");
    for _ in 0..2 {
        together(&["alice", "bob", "carol"], |name| {
            let seen = run(node("events.mjs").arg("client").arg(server.url("/events?silence=3000")).arg(name));
            assert_eq!(seen.trim(), format!("data: first of {name}|data: last of {name}"));
        });
        // Clients without a cookie all get the same events.
        together(&["one", "two"], |_| {
            let seen = run(node("events.mjs").arg("client").arg(server.url("/events?silence=100")));
            assert_eq!(seen.trim(), "data: first of nobody|data: last of nobody");
        });
    }
}
