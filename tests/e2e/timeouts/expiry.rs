//! The timeouts of the server, and how each wait ends.

use super::super::harness::{Response, Server, read_response, read_to_end, uninterrupted};
use super::{
    LARGE_BYTES, connect_with_small_buffer, expect_closed, get, large, logged_write_timeout_ms, read_until_closed,
    site, start_logged, stop, trickle, wait_for_line, wait_until_idle,
};
use flatout_handler::ending::CloseReason;
use std::io::Read;
use std::io::Write;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;
use std::time::Instant;

#[test]
fn a_trickled_head_gets_408() {
    let folder = site();
    let (server, log) = start_logged(&folder, &["--head-timeout", "200ms"]);
    let response = trickle(&server, b"GET / HTTP/1.1\r\nHost: test\r\nA: ", b"b");
    assert_eq!((response.status, response.field("connection")), (408, Some("close")));
    assert!(String::from_utf8_lossy(&response.body).contains("not complete in time"));
    let response = trickle(&server, b"HEAD / HTTP/1.1\r\nA: ", b"b");
    assert_eq!((response.status, response.body.len()), (408, 0), "no content for HEAD");
    // A head after a completed request has its own timeout.
    let response = trickle(&server, format!("{}GET / HTTP/1.1\r\nA: ", get("/none")).as_bytes(), b"b");
    let page = String::from_utf8_lossy(&response.body);
    assert_eq!((response.status, page.contains("HTTP/1.1 408 ")), (404, true), "{page}");
    wait_for_line(&log, 408, "head_timeout sent");
    expect_closed(&stop(server), CloseReason::HeadTimeout, 3);
}

#[test]
fn a_trickled_body_gets_408_if_a_rate_is_demanded() {
    let folder = site();
    let log = folder.path().join("access.log");
    let server = Server::run(
        &folder,
        &format!(
            "workers 1\nadmin off=#true\ntimeouts {{ body \"200ms\" }}\nrequest-body rate=\"1MiB\"\nlog {:?}\n\
             site \"*\" {{\n    listen \"127.0.0.1:0\"\n    files {:?}\n}}\n",
            log.to_str().unwrap(),
            folder.path().to_str().unwrap()
        ),
    );
    for (beginning, piece) in [
        ("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n", "b"),
        ("GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nb\r\n"),
        ("GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ", "b"),
    ] {
        let response = trickle(&server, beginning.as_bytes(), piece.as_bytes());
        assert_eq!((response.status, response.field("connection")), (408, Some("close")), "{beginning}");
    }
    let response = trickle(&server, b"HEAD / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n", b"b");
    assert_eq!((response.status, response.body.len()), (408, 0), "no content for HEAD");
    // The client sends nothing after the server has asked for the content.
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).status, 100);
    assert_eq!(read_response(&mut stream).status, 408);
    drop(stream);
    wait_for_line(&log, 408, "body_timeout sent");
    expect_closed(&stop(server), CloseReason::BodyTimeout, 5);
}

#[test]
fn an_idle_connection_is_closed_silently() {
    let folder = site();
    let server = Server::start(folder.path(), &["--idle-timeout", "200ms"]);
    // The kernel holds back a silent client's connection for a second or more before it hands it over.
    let mut silent = server.connect();
    let mut served = server.connect();
    served.write_all(get("/").as_bytes()).unwrap();
    assert_eq!(read_response(&mut served).status, 200);
    assert_eq!(read_to_end(&mut served), b"");
    assert_eq!(read_to_end(&mut silent), b"");
    drop((served, silent));
    expect_closed(&stop(server), CloseReason::IdleTimeout, 2);
}

#[test]
fn a_client_that_never_reads_times_out() {
    let folder = site();
    let (server, log) = start_logged(&folder, &["--write-timeout", "200ms"]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_for_line(&log, 200, "write_timeout");
    let bytes = read_to_end(&mut stream);
    assert!(bytes.len() < LARGE_BYTES, "{} bytes", bytes.len());
    // The same for responses from memory.
    let mut stream = connect_with_small_buffer(&server);
    let mut writer = stream.try_clone().unwrap();
    let flood = thread::spawn(move || while writer.write_all(get("/").repeat(100).as_bytes()).is_ok() {});
    flood.join().unwrap();
    read_until_closed(&mut stream);
    drop(stream);
    expect_closed(&stop(server), CloseReason::WriteTimeout, 2);
}

/// Only an attempt in which the machine was not busy shows the exact time, but in no attempt may it be too short.
#[test]
fn the_write_timeout_lasts_as_long_as_it_is_set() {
    const TIMEOUT_MS: u64 = 2_000;
    let folder = site();
    let (server, log) = start_logged(&folder, &["--write-timeout", "2s"]);
    for attempt in 1..=5 {
        let mut stream = connect_with_small_buffer(&server);
        stream.write_all(get("/large.bin").as_bytes()).unwrap();
        let took_ms = logged_write_timeout_ms(&log, attempt);
        // The client accepts bytes only at the beginning. Clocks differ by a few milliseconds.
        assert!(took_ms >= TIMEOUT_MS - 50, "{took_ms} ms");
        if took_ms < TIMEOUT_MS + 1_000 {
            return;
        }
        println!("{took_ms} ms");
    }
    panic!("the write timeout took too long in every attempt");
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    // The client also half-closes the connection, which must not stop the response.
    stream.shutdown(Shutdown::Write).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 20_000]);
    loop {
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..count]);
        if bytes.len() % 7 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let response = Response::parse(&bytes);
    assert_eq!(response.status, 200);
    assert!(response.body == large(), "{} bytes differ from the file", response.body.len());
    wait_for_line(&log, 200, "sent");
    expect_closed(&stop(server), CloseReason::ClientClosed, 1);
}

#[test]
fn a_reader_slower_than_the_write_timeout_is_served_while_it_reads() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let folder = site();
    let server = Server::start(folder.path(), &["--write-timeout", "1s"]);
    // The kernel reports free space only after megabytes were read, which takes this reader many timeouts. Only an
    // attempt in which the reader itself was never delayed for long proves anything.
    for _ in 0..20 {
        let mut stream = connect_with_small_buffer(&server);
        stream.write_all(get("/large.bin").as_bytes()).unwrap();
        let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1000]);
        while bytes.len() < LARGE_BYTES {
            let count = uninterrupted(|| stream.read(&mut buffer)).unwrap_or(0);
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&buffer[..count]);
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if start.elapsed() < 4 * TIMEOUT {
                thread::sleep(Duration::from_millis(5));
            } else {
                buffer.resize(65_536, 0);
            }
        }
        if longest < TIMEOUT / 4 {
            assert!(bytes.len() >= LARGE_BYTES, "cut after {} bytes and {:?}", bytes.len(), start.elapsed());
            return;
        }
    }
    panic!("the machine was too busy for the test");
}

#[test]
fn waiting_uses_no_cpu_time() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let mut waiting = Vec::new();
    for (request, half_closed) in [
        (get("/"), false),
        ("GET / HTTP/1.1\r\nHo".to_owned(), false),
        ("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nab".to_owned(), false),
        ("GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n".to_owned(), false),
        (get("/large.bin"), false),
        (get("/large.bin"), true),
        (get("/large.bin").repeat(3) + "GET", true),
        (get("/large.bin") + &get("/").repeat(5000), false),
    ] {
        let mut stream = connect_with_small_buffer(&server);
        // The first request is handled before the connection is registered with the runtime, the second through the
        // runtime.
        stream.write_all(get("/").as_bytes()).unwrap();
        assert_eq!(read_response(&mut stream).status, 200);
        stream.set_nonblocking(true).unwrap();
        let _ = stream.write(request.as_bytes()).unwrap();
        stream.set_nonblocking(false).unwrap();
        if half_closed {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        waiting.push(stream);
    }
    wait_until_idle(&server);
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn a_line_is_logged_without_another_request() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    // The response is sent before the connection is registered with the runtime.
    assert_eq!(server.get("/").status, 200);
    wait_for_line(&log, 200, "sent");
    stop(server);
}
