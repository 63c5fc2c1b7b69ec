//! Faults of every kind, hidden among many requests: each must be counted in its class, and none may be lost.
//!
//! `FLATOUT_LAB_REQUESTS=1000000` runs a million requests. The default is a tenth of that.

use super::bench;
use super::responder::{Answer, ok, respond};
use crate::e2e::harness::Folder;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// One in this many requests meets a fault.
const FAULT_EVERY: u64 = 100;

/// The faults in the lab's terms, used in turn.
const FAULTS: [&str; 7] =
    ["connreset", "closed-early", "short-body", "bad-response", "wrong-body", "status-5xx", "client-timo"];

/// A request that never gets a response occupies a connection for the full timeout, so only a few have this fault.
const TIMEOUTS_MAX: u64 = 16;

static REQUESTS: LazyLock<u64> = LazyLock::new(|| {
    std::env::var("FLATOUT_LAB_REQUESTS").map_or(100_000, |text| text.parse().expect("a number of requests"))
});

fn answer_for(fault: &str) -> Answer {
    match fault {
        "connreset" => Answer::Reset,
        "closed-early" => Answer::Last(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()),
        "short-body" => Answer::Last(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\nshort".to_vec()),
        "bad-response" => Answer::Last(b"220 mail.example ESMTP\r\n".to_vec()),
        "wrong-body" => Answer::At(0, ok(63)),
        "status-5xx" => {
            Answer::At(0, b"HTTP/1.1 503 U\r\nContent-Length: 64\r\n\r\n".iter().copied().chain([b'y'; 64]).collect())
        }
        "client-timo" => Answer::Never,
        _ => unreachable!(),
    }
}

#[test]
fn every_fault_is_counted_in_its_class() {
    let requests = *REQUESTS;
    let injected: Arc<[AtomicU64; FAULTS.len()]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    let served = Arc::new(AtomicU64::new(0));
    let (count_injected, count_served) = (Arc::clone(&injected), Arc::clone(&served));
    let address = respond(move |_, _| {
        let number = count_served.fetch_add(1, Ordering::Relaxed) + 1;
        if number % FAULT_EVERY != 0 {
            return Answer::At(0, ok(64));
        }
        let mut kind = (number / FAULT_EVERY) as usize % FAULTS.len();
        if FAULTS[kind] == "client-timo" && count_injected[kind].load(Ordering::Relaxed) >= TIMEOUTS_MAX {
            kind = 0;
        }
        count_injected[kind].fetch_add(1, Ordering::Relaxed);
        answer_for(FAULTS[kind])
    });
    let folder = Folder::with(&[("filelist", b"/x 1 #64\n")]);
    let list = folder.path().join("filelist");
    let run = bench(&[
        &format!("http://{address}/"),
        "-n",
        &requests.to_string(),
        "-c",
        "16",
        "--threads",
        "1",
        "--filelist",
        list.to_str().unwrap(),
        // Far longer than any response takes on a busy machine, because a late response would count as another fault.
        "--timeout",
        "10s",
    ]);
    let injected: Vec<u64> = injected.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let said = format!("{injected:?} injected, {:#} counted", run.json["errors"]);
    assert_eq!(run.code, Some(1), "{}", run.stdout);
    assert_eq!(injected.iter().sum::<u64>(), requests / FAULT_EVERY);
    let mut failed = 0;
    for (fault, injected) in FAULTS.iter().zip(&injected) {
        if *fault == "status-5xx" {
            assert_eq!(run.json["status_classes"]["5xx"], *injected, "{said}");
        } else {
            assert_eq!(run.failures(fault), *injected, "{fault}: {said}");
            failed += injected;
        }
    }
    // Every request that was started either got a response or failed, and the server saw all of them.
    assert_eq!(served.load(Ordering::Relaxed), requests);
    assert_eq!((run.number("responses"), run.number("requests_sent")), (requests - failed, requests), "{said}");
    assert_eq!(run.json["errors"]["total"], failed);
    let unexpected = run.json["requests"]["unexpected"].as_u64().unwrap();
    assert_eq!(run.json["latency"]["count"], requests - failed - unexpected);
    assert_eq!(run.json["unexpected"]["count"], unexpected);
    let by_class: u64 = ["2xx", "5xx"].map(|class| run.json["status_classes"][class].as_u64().unwrap()).iter().sum();
    assert_eq!(by_class, requests - failed);
}
