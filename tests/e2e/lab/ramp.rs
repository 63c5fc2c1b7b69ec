//! A load that rises before it is measured: `--ramp`.

use super::bench;
use super::responder::{Answer, ok, respond};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn the_load_rises_before_it_is_measured() {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let address = respond(move |_, arrived_ns| {
        counter.fetch_add(1, Ordering::Relaxed);
        Answer::At(arrived_ns, ok(1))
    });
    let url = format!("http://{address}/");
    // At the end of the ramp, the rate has risen from 0 to 200/s, so 50 requests precede the 20 that count.
    let run = bench(&[&url, "--rate", "200", "--ramp", "500ms", "-n", "20"]);
    assert_eq!((run.code, run.number("responses")), (Some(0), 20), "{run:#?}");
    assert_eq!(count.swap(0, Ordering::Relaxed), 70);
    assert_eq!(run.step()["warm_up"]["elapsed_ns"], 500_000_000);
    assert_eq!(run.step()["warm_up"]["samples"], 50);
    assert_eq!(run.step()["plan"]["ramp_ns"], 500_000_000);
    // Closed loops measure after the ramp and the warm-up.
    let run = bench(&[&url, "-c", "4", "--ramp", "200ms", "--warm-up", "100ms", "-n", "40"]);
    assert_eq!((run.code, run.number("responses")), (Some(0), 40), "{run:#?}");
    assert_eq!(run.step()["warm_up"]["elapsed_ns"], 300_000_000);
    let samples = run.step()["warm_up"]["samples"].as_u64().unwrap();
    assert!(samples > 0 && count.load(Ordering::Relaxed) == 40 + samples, "{run:#?}");
}
