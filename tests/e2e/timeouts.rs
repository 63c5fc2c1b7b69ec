//! Slow, silent, impatient and vanishing peers: what the server waits for, how long, and how each wait ends.
//!
//! Where a test sets a short timeout, the peer would wait forever, so it does not matter when the timeout expires. All
//! other timeouts are limits that only a hanging test reaches.

mod clients;
mod drain;
mod expiry;
mod hostile;
mod limits;
mod pressure;
mod slowhttptest;
mod streams;

use super::harness::{Folder, Response, Server, TIMEOUT, read_to_end, uninterrupted, wait_until};
use flatout_handler::ending::CloseReason;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// The close reasons that tests here cause. `expect_closed` looks them up.
pub(super) const CLOSES: [&str; 16] = [
    "client_closed",
    "client_reset",
    "descriptor_pressure",
    "drain_deadline",
    "draining",
    "file_changed",
    "head_timeout",
    "body_timeout",
    "idle_timeout",
    "connections_limit",
    "handshakes_limit",
    "handshakes_total",
    "heads_limit",
    "heads_total",
    "refused_body",
    "write_timeout",
];

const LARGE_BYTES: usize = 10 * 1024 * 1024;

/// Bytes whose pattern reveals lost, repeated and reordered ones.
fn large() -> Vec<u8> {
    (0..LARGE_BYTES as u32 / 4).flat_map(|index| index.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn site() -> Folder {
    Folder::with(&[("index.html", b"welcome"), ("large.bin", &large())])
}

/// Serves `folder` with an access log.
fn start_logged(folder: &Folder, arguments: &[&str]) -> (Server, PathBuf) {
    let log = folder.path().join("access.log");
    let server = Server::start(folder.path(), &[&["--access-log", log.to_str().unwrap()], arguments].concat());
    (server, log)
}

/// Waits until the log has `count` lines with a write timeout, and returns how long the request of the last one took, in
/// milliseconds.
pub(super) fn logged_write_timeout_ms(log: &Path, count: usize) -> u64 {
    let mut took_us: Option<u64> = None;
    wait_until("the write timeout is logged", || {
        let text = fs::read_to_string(log).unwrap();
        let line = text.lines().filter(|line| line.contains(" write_timeout ")).nth(count - 1);
        took_us = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        took_us.is_some()
    });
    took_us.unwrap() / 1000
}

/// Sends SIGTERM, asserts that the server exits successfully, and returns its counters.
fn stop(server: Server) -> String {
    let (status, counters) = server.stop();
    assert_eq!(status.code(), Some(0), "{counters}");
    counters
}

/// The counter `name`, or 0 if it was not printed.
fn count(counters: &str, name: &str) -> u64 {
    let row = counters.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    row.map_or(0, |count| count.trim().parse().unwrap())
}

fn expect_closed(counters: &str, reason: CloseReason, expected: u64) {
    assert!(CLOSES.contains(&reason.name()), "{} belongs into CLOSES", reason.name());
    assert_eq!(count(counters, &format!("closed_{}", reason.name())), expected, "{} in {counters}", reason.name());
}

/// Waits until the log has a line with this status and `outcome`.
fn wait_for_line(log: &PathBuf, status: u16, outcome: &str) {
    let status = format!("\" {status:03} ");
    wait_until(&format!("{status}… {outcome} in the log"), || {
        let text = fs::read_to_string(log).unwrap();
        let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        lines.any(|(line, _duration)| line.contains(&status) && line.ends_with(outcome))
    });
}

/// A connection whose kernel buffers as little as possible before the test reads.
fn connect_with_small_buffer(server: &Server) -> TcpStream {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    set_socket_recv_buffer_size(&socket, 2048).unwrap();
    connect(&socket, &server.address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Closes `stream` by a reset.
pub(crate) fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
}

/// Waits until the server has sent something and cannot send more to a client that does not read.
fn wait_until_stuck(stream: &TcpStream) {
    let mut byte = [0];
    assert_eq!(uninterrupted(|| stream.peek(&mut byte)).unwrap(), 1);
}

/// Waits for a period in which the server's threads use no CPU time. A server that spins uses CPU time in every period;
/// one that does not spin may still be working in the first.
pub(super) fn wait_until_idle(server: &Server) {
    wait_until("the server is idle", || {
        let before_ns = server.cpu_ns();
        thread::sleep(Duration::from_millis(700));
        server.cpu_ns() - before_ns < 4_000_000
    });
}

/// Sends `beginning` and then bytes without end. Returns what arrives before the server closes the connection.
fn trickle(server: &Server, beginning: &[u8], piece: &[u8]) -> Response {
    let mut stream = server.connect();
    stream.set_nodelay(true).unwrap();
    stream.write_all(beginning).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let (start, answered) = (Instant::now(), AtomicBool::new(false));
    let bytes = thread::scope(|scope| {
        scope.spawn(|| {
            let goes_on = || !answered.load(Ordering::Relaxed) && start.elapsed() < TIMEOUT;
            while goes_on() && writer.write_all(piece).is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let bytes = read_to_end(&mut stream);
        answered.store(true, Ordering::Relaxed);
        bytes
    });
    Response::parse(&bytes)
}

/// Reads until the end of the stream, even if it is a reset.
fn read_until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match uninterrupted(|| stream.read(&mut buffer)) {
            Ok(0) => return bytes,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => return bytes,
            Err(error) => panic!("after {} bytes: {error}", bytes.len()),
        }
    }
}
