//! Tests of responses that arrive in pieces, over HTTP/1.1 and HTTP/1.0.

use super::{Running, read_until, split, timeouts, wait_until};
use flatout_handler::ending::CloseReason;
use flatout_http::timeouts::Timeouts;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::Instant;

#[test]
fn unknown_lengths_are_chunked_and_known_ones_sent_as_they_are() {
    let server = Running::start();
    for path in ["/chunked", "/later/chunked"] {
        let answer = server.get(path);
        let (head, content) = split(&answer);
        assert!(head.contains("\r\nTransfer-Encoding: chunked\r\nConnection: close"), "{head}");
        // Each piece is one chunk, even with a pause between the pieces.
        assert_eq!(content, "4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n");
    }
    let answer = server.get("/trailers");
    assert_eq!(split(&answer).1, "4\r\nbody\r\n0\r\nX-Sum: 4\r\nX-More: yes\r\n\r\n");
    for path in ["/known", "/later/known"] {
        let answer = server.get(path);
        let (head, content) = split(&answer);
        assert!(head.contains("Content-Length: 8") && !head.contains("Transfer-Encoding"), "{head}");
        assert_eq!(content, "fourmore");
    }
    assert_eq!(split(&server.get("/endless-end")).1, "four");
    assert_eq!(split(&server.get("/nothing")).1, "0\r\n\r\n");
    assert_eq!(split(&server.get("/empty")).1, "");
    wait_until("the end of all sources", || server.seen.dropped.load(Ordering::Relaxed) == 8);
    assert_eq!(server.counters.requests.get(), 8);
    assert_eq!(server.stop(), 0);
}

#[test]
fn files_stand_between_bytes() {
    let server = Running::start();
    let answer = server.get("/files");
    let content = split(&answer).1;
    let expected = format!(
        "1\r\n<\r\n186a0\r\n{}\r\n1\r\n|\r\n11170\r\n{}\r\n1\r\n>\r\n0\r\n\r\n",
        "f".repeat(100_000),
        "f".repeat(70_000)
    );
    assert!(content == expected, "{} bytes for {}", content.len(), expected.len());
    assert_eq!(split(&server.get("/own")).1.len(), 49_990);
    let big = server.get("/later/big");
    assert_eq!(split(&big).1.len(), 3_000_000);
}

#[test]
fn a_connection_goes_on_after_a_stream() {
    let server = Running::start();
    let mut stream = server.connect();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    let paths = ["/now", "/chunked", "/now", "/known", "/later/trailers", "/now"];
    stream.write_all(paths.map(get).concat().as_bytes()).unwrap();
    for (path, end) in paths.iter().zip(["now", "0\r\n\r\n", "now", "fourmore", "X-More: yes\r\n\r\n", "now"]) {
        let head = read_until(&mut stream, "\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && !head.contains("Connection"), "{path}: {head}");
        read_until(&mut stream, end);
    }
    stream.write_all(get("/later/one-send").as_bytes()).unwrap();
    // Head and content are sent in one call, so they are received in one call.
    let mut buffer = [0; 4096];
    let count = stream.read(&mut buffer).unwrap();
    assert!(count > 1024 && buffer[..count].ends_with(&[b'x'; 1024]), "{count}");
    stream.write_all(get("/now").as_bytes()).unwrap();
    read_until(&mut stream, "\r\n\r\nnow");
    drop(stream);
    wait_until("the end", || server.closed(CloseReason::ClientClosed) == 1);
}

#[test]
fn clients_of_http_1_0_are_told_the_end_by_the_connection() {
    let server = Running::start();
    let mut stream = server.connect();
    stream.write_all(b"GET /chunked HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, content) = split(&answer);
    assert!(head.ends_with("\r\nConnection: close") && !head.contains("Transfer-Encoding"), "{head}");
    assert_eq!(content, "one two three");
    // With a known length, the connection can persist.
    let mut stream = server.connect();
    let request = b"GET /known HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(request).unwrap();
        assert!(read_until(&mut stream, "\r\n\r\nfourmore").contains("\r\nConnection: keep-alive\r\n"));
    }
    // A failed response must not look complete, so the connection is reset.
    let mut stream = server.connect();
    stream.write_all(b"GET /failing HTTP/1.0\r\n\r\n").unwrap();
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    wait_until("the end", || server.closed(CloseReason::OriginTruncated) == 1);
}

#[test]
fn answers_to_head_are_heads_and_ask_for_nothing() {
    let server = Running::start();
    for (path, field) in [("/chunked", ""), ("/known", "Content-Length: 8\r\n"), ("/later/failing", "")] {
        let answer = server.ask(&format!("HEAD {path} HTTP/1.1\r\n\r\n"));
        let (head, content) = split(&answer);
        assert!(head.contains(field) && head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(content, "");
    }
    assert_eq!(server.seen.polls.load(Ordering::Relaxed), 0);
    assert_eq!(server.seen.dropped.load(Ordering::Relaxed), 3);
}

#[test]
fn what_is_not_whole_does_not_look_whole() {
    let server = Running::start();
    let failing = server.get("/failing");
    assert_eq!(split(&failing).1, "4\r\nfour");
    for path in ["/later/short", "/short"] {
        let short = server.get(path);
        assert_eq!(split(&short).1, "fourmor");
    }
    // The piece that exceeds the declared length is dropped.
    let long = server.get("/long");
    assert_eq!(split(&long).1, "four");
    wait_until("the ends", || server.closed(CloseReason::LengthBroken) == 3);
    assert_eq!(server.closed(CloseReason::OriginTruncated), 1);
    assert_eq!(server.seen.dropped.load(Ordering::Relaxed), 4);
}

#[test]
fn a_client_that_leaves_ends_its_source() {
    let server = Running::start();
    let mut stream = server.connect();
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    read_until(&mut stream, "begun");
    assert_eq!(server.seen.dropped.load(Ordering::Relaxed), 0);
    drop(stream);
    wait_until("the end of the source", || server.seen.dropped.load(Ordering::Relaxed) == 1);
    let left = || server.closed(CloseReason::ClientAborted) + server.closed(CloseReason::ClientReset);
    wait_until("the end of the connection", || left() == 1);
}

#[test]
fn a_client_that_leaves_ends_a_pending_handler() {
    let server = Running::start();
    let mut stream = server.connect();
    stream.write_all(b"GET /never HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let begun = Instant::now();
    wait_until("the end of the grace", || begun.elapsed().as_millis() > 200);
    assert_eq!(server.seen.dropped.load(Ordering::Relaxed), 0);
    drop(stream);
    wait_until("the end of the handler", || server.seen.dropped.load(Ordering::Relaxed) == 1);
    wait_until("the end of the connection", || server.closed(CloseReason::ClientAborted) == 1);
}

#[test]
fn a_client_that_has_said_all_may_still_read() {
    let server = Running::start();
    for path in ["/later/chunked", "/later/now", "/hints"] {
        let mut stream = server.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let whole = ["0\r\n\r\n", "now", "hinted"].iter().any(|end| answer.ends_with(end));
        assert!(whole, "{answer}");
    }
}

#[test]
fn a_client_that_does_not_read_holds_back_its_source() {
    let server = Running::start();
    let mut stream = server.connect();
    stream.write_all(b"GET /flood HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let given = || server.seen.bytes.load(Ordering::Relaxed);
    wait_until("the first bytes", || given() > 0);
    let mut before = 0;
    // The source yields what the kernel buffers and no more, even while other connections have many turns.
    while before != given() {
        before = given();
        for _ in 0..100 {
            server.get("/now");
        }
    }
    assert!(before < 32 * 1024 * 1024, "{before}");
    let mut buffer = vec![0; 1024 * 1024];
    let mut read = 0;
    while read < 64 * 1024 * 1024 {
        read += stream.read(&mut buffer).unwrap();
    }
    assert!(given() > before);
    drop(stream);
    wait_until("the end of the source", || server.seen.dropped.load(Ordering::Relaxed) == 1);
}

#[test]
fn a_slow_source_is_waited_for_and_a_stuck_client_is_not() {
    let timeouts = Timeouts { write_timeout_ms: 100, idle_timeout_ms: 100, ..timeouts() };
    let server = Running::with(timeouts, None);
    let mut slow = server.connect();
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let mut stuck = server.connect();
    stuck.write_all(b"GET /flood HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    wait_until("the end of the stuck one", || server.closed(CloseReason::WriteTimeout) == 1);
    assert_eq!(server.seen.dropped.load(Ordering::Relaxed), 1);
    // A connection that is idle from now on reaches its timeout, while the slow source is still awaited.
    let idle = server.connect();
    wait_until("the end of the idle one", || server.closed(CloseReason::IdleTimeout) == 1);
    drop(idle);
    slow.set_nonblocking(true).unwrap();
    let mut all = Vec::new();
    assert_eq!(slow.read_to_end(&mut all).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(all.ends_with(b"5\r\nbegun"), "still there");
}
