//! Tests of content on its way to a handler, and of interim responses on their way to the client.

use super::{Running, read_until, split, timeouts, wait_until};
use flatout_handler::ending::CloseReason;
use flatout_http::timeouts::Timeouts;
use flatout_os::testing::wait_until_read;
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn handlers_are_given_content_as_it_comes() {
    let server = Running::start();
    let answer = server.ask("POST /count HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(split(&answer).1, "5 of Some(5) []");
    let chunked = "POST /count HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n";
    assert_eq!(split(&server.ask(chunked)).1, "5 of None [X-Sum: 1;]");
    // The content arrives in pieces, and another request follows it.
    let mut stream = server.connect();
    for byte in
        format!("{}GET /now HTTP/1.1\r\nHost: test\r\n\r\n", chunked.replacen("\r\n", "\r\nHost: a\r\n", 1)).bytes()
    {
        stream.write_all(&[byte]).unwrap();
    }
    read_until(&mut stream, "5 of None [X-Sum: 1;]");
    read_until(&mut stream, "\r\n\r\nnow");
    // If a handler takes the content but responds immediately, the content is still received to its end.
    stream.write_all(b"POST /taken HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc").unwrap();
    read_until(&mut stream, "\r\n\r\ntaken");
    // The handler takes the content but does not read it.
    stream.write_all(b"POST /untouched HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nab").unwrap();
    wait_until_read(&stream);
    stream.write_all(b"cGET /now HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    assert!(!read_until(&mut stream, "untouched").contains("Connection"));
    read_until(&mut stream, "\r\n\r\nnow");
}

#[test]
fn content_beyond_the_bound_goes_to_its_reader() {
    const BYTES: usize = 20_000_000;
    let server = Running::start();
    let mut stream = server.connect();
    write!(stream, "POST /count HTTP/1.1\r\nHost: test\r\nContent-Length: {BYTES}\r\n\r\n").unwrap();
    stream.write_all(&vec![b'x'; BYTES]).unwrap();
    read_until(&mut stream, &format!("{BYTES} of Some({BYTES}) []"));
    // Only handlers that read content may receive this much.
    write!(stream, "POST /now HTTP/1.1\r\nHost: test\r\nContent-Length: {BYTES}\r\n\r\n").unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").starts_with("HTTP/1.1 413 "));
}

#[test]
fn a_slow_reader_holds_back_the_client() {
    let server = Running::start();
    let mut stream = server.connect();
    write!(stream, "POST /holding HTTP/1.1\r\nHost: test\r\nContent-Length: 999999999\r\n\r\n").unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let piece = vec![b'x'; 64 * 1024];
    let mut sent = 0;
    while let Ok(count) = stream.write(&piece) {
        sent += count;
        assert!(sent < 64 * 1024 * 1024, "nobody holds it back");
    }
    // The server has received no more than its buffers hold.
    assert!(server.counters.bytes_received.get() < 256 * 1024, "{}", server.counters.bytes_received.get());
}

#[test]
fn expectations_are_met_when_the_content_is_wanted() {
    let server = Running::start();
    let mut stream = server.connect();
    stream
        .write_all(b"POST /slow-count HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"four").unwrap();
    read_until(&mut stream, "4 of Some(4) []");
}

/// RFC 9110 §10.1.1: if a handler does not read the content, the client need not send it.
#[test]
fn expectations_are_not_met_for_content_that_nobody_wants() {
    let server = Running::start();
    let mut stream = server.connect();
    stream
        .write_all(b"POST /untouched HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .unwrap();
    let head = read_until(&mut stream, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("\r\nConnection: close\r\n"), "{head}");
    read_until(&mut stream, "untouched");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    // A client that does not wait is treated like any other.
    let mut stream = server.connect();
    let request = b"POST /untouched HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nfour";
    stream.write_all(request).unwrap();
    let head = read_until(&mut stream, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("close"), "{head}");
}

#[test]
fn a_client_that_waits_is_not_slow() {
    let timeouts = Timeouts { body_timeout_ms: 100, ..timeouts() };
    let server = Running::with(timeouts, None);
    let head = b"POST /slow-count HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    let mut stream = server.connect();
    stream.write_all(head).unwrap();
    // The handler polls the content only after the timeout.
    assert_eq!(read_until(&mut stream, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"four").unwrap();
    read_until(&mut stream, "4 of Some(4) []");
    // After 100 (Continue), the client must send its content.
    let mut stream = server.connect();
    stream.write_all(head).unwrap();
    read_until(&mut stream, "\r\n\r\n");
    assert!(read_until(&mut stream, "\r\n\r\n").starts_with("HTTP/1.1 408 "));
}

#[test]
fn an_early_answer_ends_the_connection() {
    let server = Running::start();
    let mut stream = server.connect();
    stream.write_all(b"POST /early HTTP/1.1\r\nHost: test\r\nContent-Length: 3000000\r\n\r\nbegin").unwrap();
    let head = read_until(&mut stream, "\r\n\r\n");
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    // Further data from the client does not destroy the response.
    stream.write_all(&vec![b'x'; 1_000_000]).unwrap();
    read_until(&mut stream, "early");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    drop(stream);
    wait_until("the end", || server.closed(CloseReason::RefusedBody) == 1);
}

#[test]
fn content_goes_both_ways_at_once() {
    let server = Running::start();
    let mut stream = server.connect();
    stream.write_all(b"POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").unwrap();
    let head = read_until(&mut stream, "\r\n\r\n");
    assert!(head.contains("Transfer-Encoding: chunked\r\nConnection: close\r\n"), "{head}");
    read_until(&mut stream, "3\r\none");
    stream.write_all(b"3\r\ntwo\r\n").unwrap();
    read_until(&mut stream, "\r\n3\r\ntwo");
    stream.write_all(b"0\r\nX-Last: yes\r\n\r\n").unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n"), "\r\n0\r\nX-Last: yes\r\n\r\n");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn broken_content_is_refused_or_cut() {
    let server = Running::start();
    let broken = "POST /slow-count HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n";
    assert!(server.ask(broken).starts_with("HTTP/1.1 400 "));
    // The response has begun, so it is truncated.
    let mut stream = server.connect();
    stream.write_all(b"POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").unwrap();
    read_until(&mut stream, "3\r\none");
    stream.write_all(b"none\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
    wait_until("both ends", || server.closed(CloseReason::Refused) == 2);
    // A client that disconnects in the middle of its content.
    let mut stream = server.connect();
    stream.write_all(b"POST /count HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
    drop(stream);
    wait_until("the end", || server.closed(CloseReason::ClientCutBody) == 1);
}

#[test]
fn slow_content_is_refused_and_slow_handlers_are_not() {
    let timeouts = Timeouts { body_timeout_ms: 100, ..timeouts() };
    let server = Running::with(timeouts, None);
    let mut stream = server.connect();
    stream.write_all(b"POST /count HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").starts_with("HTTP/1.1 408 "));
    wait_until("the end", || server.closed(CloseReason::BodyTimeout) == 1);
    // Here, the reader is slower than the timeout, and more content follows than the buffer holds.
    let mut stream = server.connect();
    stream.write_all(b"POST /slow-count HTTP/1.1\r\nHost: test\r\nContent-Length: 300000\r\n\r\n").unwrap();
    stream.write_all(&vec![b'x'; 300_000]).unwrap();
    read_until(&mut stream, "300000 of Some(300000) []");
}

#[test]
fn interim_answers_go_ahead_but_not_to_http_1_0() {
    let server = Running::start();
    let answer = server.get("/hints");
    let (early, rest) = split(&answer);
    assert_eq!(early, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload");
    let (processing, rest) = split(rest);
    assert_eq!(processing, "HTTP/1.1 102 Processing");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("\r\n\r\nhinted"), "{rest}");
    let answer = server.ask("GET /hints HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    // Content that no handler took is received before the response.
    let answer = server.ask("POST /hints HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
    assert!(answer.starts_with("HTTP/1.1 103 ") && answer.ends_with("hinted"), "{answer}");
}
