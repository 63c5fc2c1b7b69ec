//! An origin that hangs, and stored responses that may be served stale instead of errors: clients do not wait for the
//! head timeout one after another.

use super::super::harness::{Folder, Server, flatout, read_response, wait_until};
use super::super::timeouts::reset;
use super::origin::{Origin, Then, response};
use super::{Answer, ask, configuration, get};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

const STALE: &str = "stale-if-error \"1d\"";

/// What the origin does.
const RESPONDS: u8 = 0;
const HANGS: u8 = 1;
const FAILS: u8 = 2;
const HAS_CHANGED: u8 = 3;
/// Until the test changes the state.
const WAITS: u8 = 4;

/// An origin whose responses have this Cache-Control, and what it does.
fn start(control: &'static str) -> (Origin, Arc<AtomicU8>) {
    let state = Arc::new(AtomicU8::new(RESPONDS));
    let current = Arc::clone(&state);
    let origin = Origin::start(move |_, stream| {
        let fields = format!("Cache-Control: {control}\r\nETag: \"a\"\r\n");
        while current.load(Ordering::SeqCst) == WAITS {
            thread::sleep(Duration::from_millis(1));
        }
        let bytes = match current.load(Ordering::SeqCst) {
            HANGS => {
                // Until flatout closes the connection.
                let _ = stream.read(&mut [0]);
                return Then::Close;
            }
            FAILS => response("503 Service Unavailable", "", b"failure"),
            HAS_CHANGED => response("200 OK", "Cache-Control: max-age=60\r\n", b"new"),
            _ => response("200 OK", &fields, b"old"),
        };
        let _ = stream.write_all(&bytes);
        Then::Keep
    });
    (origin, state)
}

/// Starts flatout in front of `origin`, with a stored response that a soft purge has made stale.
fn begin(folder: &Folder, origin: &Origin, cache: &str, head_timeout: &str) -> Server {
    let proxy = format!("retries 0\npassive off=#true\ntimeouts {{ head \"{head_timeout}\" }}");
    let text = configuration(folder, &origin.url(), cache, &proxy);
    let admin = format!("admin \"{}\"", folder.path().join("admin").display());
    let server = Server::run(folder, &text.replace("admin off=#true", &admin));
    assert_eq!(get(&server, "/").text(), "old");
    purge(folder, &["--soft"]);
    server
}

fn purge(folder: &Folder, options: &[&str]) {
    let mut command = flatout();
    command.arg("purge").args(options).args(["http://test/", "--admin"]).arg(folder.path().join("admin"));
    assert!(command.output().unwrap().status.success());
}

/// Sends the request of the first client, and waits until the origin has it.
fn send_first(server: &Server, origin: &Origin) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    wait_until("the request of the first client", || origin.count("/") == 2);
    stream
}

/// Asserts that `answer` is the stored response. Returns the detail in its Cache-Status.
fn detail(answer: &Answer) -> String {
    assert_eq!((answer.status, answer.text().as_str()), (200, "old"), "{answer:?}");
    let status = answer.field("cache-status").unwrap();
    status.split("detail=").nth(1).unwrap().to_owned()
}

#[test]
fn only_the_first_client_waits_and_one_request_asks_again() {
    let ((origin, state), folder) = (start("max-age=60"), Folder::new());
    let server = begin(&folder, &origin, STALE, "1s");
    state.store(HANGS, Ordering::SeqCst);
    assert_eq!(detail(&get(&server, "/")), "hit_if_error");
    for _ in 0..20 {
        assert_eq!(detail(&get(&server, "/")), "hit_if_unreachable");
    }
    let mut explain = flatout();
    let output =
        explain.args(["explain", "http://test/", "--admin"]).arg(folder.path().join("admin")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("[hit_if_unreachable]"), "{output:?}");
    wait_until("the attempt in the background", || origin.count("/") == 3);
    assert_eq!(detail(&get(&server, "/")), "hit_if_unreachable");
    assert_eq!(origin.count("/"), 3, "the first response, the first client, and one attempt in the background");
}

#[test]
fn clients_who_wait_with_the_first_one_wait_for_half_of_the_timeout() {
    let ((origin, state), folder) = (start("max-age=60"), Folder::new());
    let server = begin(&folder, &origin, STALE, "2s");
    state.store(HANGS, Ordering::SeqCst);
    let mut details: Vec<String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| detail(&get(&server, "/")))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    details.sort_unstable();
    assert_eq!(details[0], "hit_if_error");
    assert!(details[1..].iter().all(|detail| detail == "hit_if_unreachable"), "{details:?}");
}

#[test]
fn attempts_that_all_clients_leave_are_a_hang_together() {
    let ((origin, state), folder) = (start("max-age=60"), Folder::new());
    let server = begin(&folder, &origin, STALE, "2s");
    state.store(HANGS, Ordering::SeqCst);
    let stale = (0..50).find_map(|_| {
        let mut client = server.connect();
        client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let answers = client.peek(&mut [0]).is_ok();
        if !answers {
            reset(client);
            return None;
        }
        Some(read_response(&mut client))
    });
    let stale = stale.expect("a response to a client that waits for a tenth of the timeout");
    let shows = |(name, value): &(String, String)| {
        name.eq_ignore_ascii_case("cache-status") && value.contains("hit_if_unreachable")
    };
    assert!(stale.fields.iter().any(shows), "{stale:?}");
    assert!(origin.count("/") >= 3, "{}", origin.count("/"));
}

#[test]
fn late_errors_do_not_end_a_hang() {
    let ((origin, state), folder) = (start("max-age=60"), Folder::new());
    let server = begin(&folder, &origin, STALE, "4s");
    state.store(WAITS, Ordering::SeqCst);
    let mut first = send_first(&server, &origin);
    assert_eq!(detail(&get(&server, "/")), "hit_if_unreachable");
    state.store(FAILS, Ordering::SeqCst);
    assert_eq!(read_response(&mut first).body, b"old");
    assert_eq!(detail(&get(&server, "/")), "hit_if_unreachable");
}

#[test]
fn the_attempt_in_the_background_finds_that_the_origin_responds() {
    let ((origin, state), folder) = (start("max-age=60"), Folder::new());
    let server = begin(&folder, &origin, STALE, "1s");
    state.store(HANGS, Ordering::SeqCst);
    assert_eq!(detail(&get(&server, "/")), "hit_if_error");
    state.store(HAS_CHANGED, Ordering::SeqCst);
    assert_eq!(detail(&get(&server, "/")), "hit_if_unreachable");
    wait_until("the new response", || get(&server, "/").text() == "new");
    assert_eq!(origin.count("/"), 3);
}

#[test]
fn an_origin_that_responds_with_errors_no_longer_hangs() {
    let ((origin, state), folder) = (start("max-age=60"), Folder::new());
    let server = begin(&folder, &origin, STALE, "1s");
    state.store(HANGS, Ordering::SeqCst);
    assert_eq!(detail(&get(&server, "/")), "hit_if_error");
    state.store(FAILS, Ordering::SeqCst);
    assert_eq!(detail(&get(&server, "/")), "hit_if_unreachable");
    wait_until("a client whose request reaches the origin", || detail(&get(&server, "/")) == "hit_if_error");
}

#[test]
fn a_hang_does_not_concern_requests_that_demand_validation_nor_purged_responses() {
    let ((origin, state), folder) = (start("max-age=60"), Folder::new());
    let server = begin(&folder, &origin, STALE, "1s");
    state.store(HANGS, Ordering::SeqCst);
    assert_eq!(detail(&get(&server, "/")), "hit_if_error");
    wait_until("the attempt in the background", || {
        assert_eq!(detail(&get(&server, "/")), "hit_if_unreachable");
        origin.count("/") == 3
    });
    let validated = ask(&server, "GET", "/", "Cache-Control: no-cache\r\n");
    assert_eq!((detail(&validated).as_str(), origin.count("/")), ("hit_if_error", 4));
    purge(&folder, &[]);
    assert_eq!((get(&server, "/").status, origin.count("/")), (504, 5));
}

#[test]
fn stale_responses_are_served_only_if_that_is_allowed() {
    let without = (start("max-age=60"), "");
    let strict = (start("max-age=60, must-revalidate"), STALE);
    let validated = (start("public, no-cache"), STALE);
    for ((origin, state), cache) in [without, strict, validated] {
        let folder = Folder::new();
        let server = begin(&folder, &origin, cache, "500ms");
        state.store(HANGS, Ordering::SeqCst);
        for count in 2..=3 {
            assert_eq!(get(&server, "/").status, 504);
            assert_eq!(origin.count("/"), count);
        }
    }
}
