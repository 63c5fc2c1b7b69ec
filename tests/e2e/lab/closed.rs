//! Connections that the server closes: before a response, so that the request is sent again, and within a body.

use super::responder::{Answer, ok, respond};
use super::{Bench, bench};
use crate::e2e::harness::{Folder, Server};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Length of the client's connection preface over HTTP/2, in bytes (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;

/// Length of the header of an HTTP/2 frame, and the type of HEADERS (RFC 9113 §4.1, §6.2).
const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;

/// Arguments for requests that come half a second apart, one after another: between them, the connection is idle.
const APART: [&str; 6] = ["--rate", "2", "--arrivals", "fixed", "--threads", "1"];

/// Returns the number of requests that were sent again after an idle close.
fn sent_again(run: &Bench) -> u64 {
    run.step()["record"]["counts"]["sent_again_idle"].as_u64().unwrap()
}

fn errors(run: &Bench) -> Option<u64> {
    run.json["errors"]["total"].as_u64()
}

/// Returns the names of the reasons for which the run failed.
fn failing(run: &Bench) -> Vec<&str> {
    let failing = run.step()["failing"].as_array().unwrap();
    failing.iter().map(|reason| reason["name"].as_str().unwrap()).collect()
}

/// Returns the URL of a server that closes the connection without a response to a request if `closes` is true for its
/// number, from 0.
fn closing(closes: fn(u64) -> bool) -> String {
    let number = AtomicU64::new(0);
    let address = respond(move |_, _| {
        let is_closed = closes(number.fetch_add(1, Ordering::Relaxed));
        if is_closed { Answer::Last(Vec::new()) } else { Answer::At(0, ok(64)) }
    });
    format!("http://{address}/")
}

/// A server that drops requests under load is not excused by idle connections.
#[test]
fn a_busy_connection_that_the_server_closes_is_a_failure() {
    let url = closing(|number| number % 5 == 4);
    let run = bench(&[&url, "-n", "30", "-c", "1", "--threads", "1"]);
    assert_eq!((run.code, run.failures("closed-early"), errors(&run)), (Some(1), 6, Some(6)), "{run:#?}");
    assert_eq!(
        (sent_again(&run), run.number("connections"), failing(&run)),
        (0, 6, vec!["requests-failed"]),
        "{run:#?}"
    );
}

/// The server closes the connection when the next request arrives, as if it had closed it as idle just before.
#[test]
fn a_request_on_an_idle_connection_that_the_server_closes_is_sent_again() {
    let url = closing(|number| number == 1);
    let run = bench(&[&[url.as_str(), "-n", "3"], &APART[..]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 3, 2), "{run:#?}");
    assert_eq!((errors(&run), sent_again(&run)), (Some(0), 1), "{run:#?}");
    let note = "1 request was sent again after an idle close: the server closed an idle connection before a response";
    assert!(run.stdout.contains(note), "{}", run.stdout);
    // If many requests meet an idle close, the run fails.
    let url = closing(|number| number % 2 == 1);
    let run = bench(&[&[url.as_str(), "-n", "4"], &APART[..]].concat());
    assert_eq!((run.code, run.number("responses"), errors(&run)), (Some(1), 4, Some(0)), "{run:#?}");
    assert_eq!((sent_again(&run), failing(&run)), (3, vec!["idle-closes"]), "{run:#?}");
    // The server may have processed a POST.
    let url = closing(|number| number == 1);
    let run = bench(&[&[url.as_str(), "-n", "3", "--method", "POST"], &APART[..]].concat());
    assert_eq!((run.code, run.failures("closed-early"), sent_again(&run)), (Some(1), 1, 0), "{run:#?}");
}

/// The client notices the close before it sends the next request.
#[test]
fn a_connection_that_ends_with_the_keep_alive_timeout_is_no_failure() {
    let site = Folder::with(&[("a.txt", b"a")]);
    let server = Server::start(site.path(), &["--idle-timeout", "100ms"]);
    let run = bench(&[&[server.url("/a.txt").as_str(), "-n", "4"], &APART[..]].concat());
    assert_eq!((run.code, run.number("responses"), errors(&run)), (Some(0), 4, Some(0)), "{run:#?}");
    assert_eq!((run.number("connections"), failing(&run).len()), (4, 0), "{run:#?}");
    assert!(run.stdout.contains("2.00 requests/s, 1 of up to 4 connections"), "{}", run.stdout);
}

/// The server logs a request, closes the connection, and logs the request again.
#[test]
fn a_request_that_is_sent_again_may_be_in_the_log_of_the_server_twice() {
    let folder = Folder::with(&[("access.log", b"")]);
    let log = folder.path().join("access.log");
    let lines = Mutex::new((0_u32, OpenOptions::new().append(true).open(&log).unwrap()));
    let address = respond(move |_, _| {
        let mut lines = lines.lock().unwrap();
        lines.0 += 1;
        lines.1.write_all(b"127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 64\n").unwrap();
        if lines.0 == 2 { Answer::Last(Vec::new()) } else { Answer::At(0, ok(64)) }
    });
    let url = format!("http://{address}/");
    let run = bench(&[&[url.as_str(), "-n", "3", "--server-log", log.to_str().unwrap()], &APART[..]].concat());
    assert_eq!((run.code, sent_again(&run), run.invalid().contains(&"counts-differ")), (Some(0), 1, false), "{run:#?}");
    let counted = &run.step()["evidence"]["reconciliation"];
    assert_eq!((&counted["server"]["requests"], &counted["client_requests"]), (&json!(4), &json!(3)), "{counted:#}");
}

/// The client pauses between attempts to connect, so few requests fail while the server is down.
#[test]
fn a_server_that_goes_away_leaves_no_figure_of_a_closed_loop_valid() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let until = Instant::now() + Duration::from_millis(300);
        let mut request = [0; 4096];
        while Instant::now() < until && client.read(&mut request).is_ok_and(|count| count > 0) {
            client.write_all(&ok(64)).unwrap();
        }
    });
    let required = ["--require", "errors<50%", "--require", "p50<1s"];
    let run = bench(&[&[url.as_str(), "-c", "1", "--threads", "1", "-d", "1s"], &required[..]].concat());
    assert!(run.invalid().contains(&"server-unreachable"), "{run:#?}");
    assert_eq!((run.exit, failing(&run).len()), (Some(5), 0), "{run:#?}");
    let share = run.step()["evidence"]["unconnected_share"].as_f64().unwrap();
    assert!((0.2..0.8).contains(&share), "{share}");
    let unsound = |outcome: &serde_json::Value| outcome["unsound"].as_array().unwrap().len();
    assert!(run.json["thresholds"].as_array().unwrap().iter().all(|outcome| unsound(outcome) > 0), "{run:#?}");
}

/// Starts a relay to a server. For each connection, `forward` receives the client's side and the server's side, and
/// forwards requests. A thread forwards responses, up to this number of bytes.
fn relay(
    target: SocketAddr,
    response_bytes_max: u64,
    forward: fn(&mut TcpStream, &mut TcpStream) -> io::Result<()>,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(target).unwrap());
            let (from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || {
                let _ = io::copy(&mut from.take(response_bytes_max), &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
            thread::spawn(move || {
                // The end of either side ends both.
                let _ = forward(&mut client, &mut server);
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// Forwards the frames of an HTTP/2 client until its second request.
fn forward_one_request(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    let mut preface = [0; PREFACE_BYTES];
    client.read_exact(&mut preface)?;
    server.write_all(&preface)?;
    let mut requests = 0;
    loop {
        let mut frame = vec![0; FRAME_HEADER_BYTES];
        client.read_exact(&mut frame)?;
        let payload_bytes = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
        requests += u32::from(frame[3] == HEADERS);
        frame.resize(FRAME_HEADER_BYTES + payload_bytes, 0);
        client.read_exact(&mut frame[FRAME_HEADER_BYTES..])?;
        if requests == 2 {
            return Ok(());
        }
        server.write_all(&frame)?;
    }
}

#[test]
fn over_http2_a_request_is_sent_again_only_if_the_connection_was_idle() {
    let site = Folder::with(&[("a.txt", b"a")]);
    let server = Server::start(site.path(), &["--h2c"]);
    let url = format!("http://{}/a.txt", relay(server.address, u64::MAX, forward_one_request));
    let base = [url.as_str(), "--http", "2", "-n", "4"];
    let run = bench(&[&base[..], &["-c", "1", "--threads", "1"]].concat());
    assert_eq!((run.exit, run.number("responses"), errors(&run)), (Some(1), 2, Some(2)), "{run:#?}");
    assert_eq!((sent_again(&run), run.number("connections")), (0, 2), "{run:#?}");
    let run = bench(&[&base[..], &APART].concat());
    assert_eq!((run.exit, run.number("responses"), errors(&run)), (Some(1), 4, Some(0)), "{run:#?}");
    assert_eq!((sent_again(&run), run.number("connections")), (3, 4), "{run:#?}");
    assert_eq!(failing(&run), ["idle-closes"], "{run:#?}");
    let run = bench(&[&base[..], &["--method", "POST", "--expect-status", "2xx,405"], &APART].concat());
    assert_eq!((run.exit, run.number("responses"), sent_again(&run)), (Some(1), 2, 0), "{run:#?}");
    assert_eq!(errors(&run), Some(2), "{run:#?}");
}

/// The client sees the head of the response, and a part of the body.
#[test]
fn a_connection_that_closes_within_a_body_has_cut_the_body_in_every_version() {
    const BODY_BYTES: usize = 100_000;
    const FORWARDED_BYTES: u64 = 20_000;
    let site = Folder::with(&[("a.txt", &vec![b'a'; BODY_BYTES])]);
    let server = Server::start(site.path(), &["--h2c"]);
    let forward = |client: &mut TcpStream, server: &mut TcpStream| io::copy(client, server).map(|_| ());
    let url = format!("http://{}/a.txt", relay(server.address, FORWARDED_BYTES, forward));
    for version in ["1.1", "2"] {
        let run = bench(&[&url, "--http", version, "-n", "3", "-c", "1", "--threads", "1"]);
        assert_eq!((run.exit, run.failures("short-body"), sent_again(&run)), (Some(1), 3, 0), "{version} {run:#?}");
        assert!(run.stdout.contains("3 bodies were cut: the connection closed before the end"), "{}", run.stdout);
        let received = run.number("body_bytes_in");
        assert!((1..3 * FORWARDED_BYTES).contains(&received), "{version} {received}");
    }
}
