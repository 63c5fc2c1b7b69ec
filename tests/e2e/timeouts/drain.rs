//! The server is told to stop while requests are in progress.

use super::super::harness::{Response, Server, read_response, read_to_end, wait_until};
use super::{
    LARGE_BYTES, connect_with_small_buffer, expect_closed, get, large, read_until_closed, site, start_logged,
    wait_until_stuck,
};
use flatout_handler::ending::CloseReason;
use std::fs;
use std::io::Write;
use std::net::TcpStream;

#[test]
fn a_download_in_progress_at_sigterm_is_finished() {
    let folder = site();
    let (mut server, log) = start_logged(&folder, &["--drain-timeout", "1440m"]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_until_stuck(&stream);
    let mut idle = server.connect();
    idle.write_all(get("/").as_bytes()).unwrap();
    assert_eq!(read_response(&mut idle).status, 200);
    let mut asking = server.connect();
    asking.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
    assert_eq!(server.get("/").status, 200);
    server.signal("TERM");
    // Idle connections are closed immediately, while the download continues.
    assert_eq!(read_to_end(&mut idle), b"");
    // A request that has started gets a response, with an announcement that it is the last.
    asking.write_all(b"st: test\r\n\r\n").unwrap();
    let response = read_response(&mut asking);
    assert_eq!((response.status, response.field("connection")), (200, Some("close")));
    assert_eq!(read_to_end(&mut asking), b"");
    drop(asking);
    wait_until("new connections are refused", || TcpStream::connect(server.address).is_err());
    let response = Response::parse(&read_to_end(&mut stream));
    assert!(response.body == large(), "{} bytes came", response.body.len());
    drop(stream);
    let (status, counters) = server.wait();
    assert_eq!(status.code(), Some(0), "{counters}");
    expect_closed(&counters, CloseReason::Draining, 3);
    assert!(fs::read_to_string(log).unwrap().lines().all(|line| line.contains(" sent ")));
}

#[test]
fn a_download_that_outlasts_the_drain_timeout_is_truncated_and_reported() {
    let folder = site();
    let (mut server, log) = start_logged(&folder, &["--drain-timeout", "100ms"]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_until_stuck(&stream);
    server.signal("TERM");
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("stopped and closed 1 connections: the drain timeout expired"), "{said}");
    expect_closed(&said, CloseReason::DrainDeadline, 1);
    assert!(fs::read_to_string(log).unwrap().contains(" drain_deadline "));
    assert!(read_until_closed(&mut stream).len() < LARGE_BYTES);
}

#[test]
fn a_second_signal_stops_the_server_immediately() {
    let folder = site();
    let mut server = Server::start(folder.path(), &["--drain-timeout", "1440m"]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_until_stuck(&stream);
    server.signal("INT");
    wait_until("the first signal has arrived", || TcpStream::connect(server.address).is_err());
    server.signal("TERM");
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    expect_closed(&said, CloseReason::DrainDeadline, 1);
}
