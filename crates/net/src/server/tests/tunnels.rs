//! Connections that go on with another protocol.

use super::{Running, read_until, wait_until};
use crate::ending::CloseReason;
use std::io::{Read, Write};
use std::net::Shutdown;

const UPGRADE: &[u8] = b"GET /tunnel HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

/// Speaks through a tunnel that echoes.
fn speak(stream: &mut (impl Read + Write)) {
    let head = read_until(stream, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: Upgrade\r\n") && !head.contains("close"), "{head}");
    read_until(stream, "first ");
    let piece: Vec<u8> = (0..100_000).map(|at: u32| b'a' + (at % 23) as u8).collect();
    for _ in 0..5 {
        stream.write_all(&piece).unwrap();
        let mut back = vec![0; piece.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == piece);
    }
}

#[test]
fn a_tunnel_goes_both_ways_and_ends() {
    let server = Running::start();
    let mut stream = server.connect();
    // What comes with the request is the tunnel's.
    stream.write_all(&[UPGRADE, b"first "].concat()).unwrap();
    speak(&mut stream);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    wait_until("the end", || server.closed(CloseReason::TunnelEnded) == 1);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_tunnel_follows_other_answers_and_ends_with_the_drain() {
    let server = Running::with(crate::server::Timeouts { drain_timeout_ms: 200, ..super::timeouts() }, None);
    let mut stream = server.connect();
    stream.write_all(&[b"GET /now HTTP/1.1\r\nHost: test\r\n\r\n", UPGRADE, b"first "].concat()).unwrap();
    read_until(&mut stream, "\r\n\r\nnow");
    speak(&mut stream);
    let counters = std::sync::Arc::clone(&server.counters);
    assert_eq!(server.stop(), 1);
    assert_eq!(counters.closes[CloseReason::DrainDeadline as usize].get(), 1);
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn what_cannot_be_a_tunnel_is_an_error() {
    let server = Running::start();
    let answer = server.ask("GET /tunnel HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
}
