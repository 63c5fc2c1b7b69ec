//! Slow, silent, impatient and vanishing peers: what the server waits for, how long, and how each wait ends.
//!
//! Where a test sets a short timeout, the peer is one that would wait forever, so that it does not matter when the
//! timeout passes. All other waits are bounds that only a test that hangs can reach.

use super::harness::{Folder, PATIENCE, Response, Server, flatout, read_response, read_to_end, wait_until};
use flatout_http::limits::Limits;
use flatout_net::ending::CloseReason;
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The reasons to close a connection that are brought about here; `expect_closed` looks them up.
pub(super) const CLOSES: [&str; 11] = [
    "client_closed",
    "client_reset",
    "descriptor_pressure",
    "drain_deadline",
    "draining",
    "file_changed",
    "head_timeout",
    "body_timeout",
    "idle_timeout",
    "refused_body",
    "write_timeout",
];

const LARGE_BYTES: usize = 10 * 1024 * 1024;

/// Bytes of which each tells its place, so that none can be lost, doubled or exchanged unseen.
fn large() -> Vec<u8> {
    (0..LARGE_BYTES as u32 / 4).flat_map(|index| index.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn site() -> Folder {
    Folder::with(&[("index.html", b"welcome"), ("large.bin", &large())])
}

/// A server of `folder` with an access log.
fn start_logged(folder: &Folder, arguments: &[&str]) -> (Server, PathBuf) {
    let log = folder.path().join("access.log");
    let server = Server::start(folder.path(), &[&["--access-log", log.to_str().unwrap()], arguments].concat());
    (server, log)
}

/// SIGTERM; the server must end well. Returns its counters.
fn stop(server: Server) -> String {
    let (status, counters) = server.stop();
    assert_eq!(status.code(), Some(0), "{counters}");
    counters
}

/// The counter `name`; one that is not printed is 0.
fn count(counters: &str, name: &str) -> u64 {
    let row = counters.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    row.map_or(0, |count| count.trim().parse().unwrap())
}

fn expect_closed(counters: &str, reason: CloseReason, expected: u64) {
    assert!(CLOSES.contains(&reason.name()), "{} belongs into CLOSES", reason.name());
    assert_eq!(count(counters, &format!("closed_{}", reason.name())), expected, "{} in {counters}", reason.name());
}

/// Waits until the log has a line that ends with `outcome`, how the response ended, and a duration.
fn wait_for_line(log: &PathBuf, status: u16, outcome: &str) {
    let status = format!("\" {status:03} ");
    wait_until(&format!("{status}… {outcome} in the log"), || {
        let text = fs::read_to_string(log).unwrap();
        let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        lines.any(|(line, _duration)| line.contains(&status) && line.ends_with(outcome))
    });
}

/// A connection whose kernel takes as little as it may before the test reads.
fn connect_with_small_buffer(server: &Server) -> TcpStream {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    set_socket_recv_buffer_size(&socket, 2048).unwrap();
    connect(&socket, &server.address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Closes `stream` by a reset.
fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
}

/// Waits until the server has sent something and can send no more to a client that does not read.
fn wait_until_stuck(stream: &TcpStream) {
    let mut byte = [0];
    assert_eq!(stream.peek(&mut byte).unwrap(), 1);
}

/// Waits for a while in which the server's threads use no processor. A server that spins uses up all of every while;
/// one that does not may still be at work in the first.
pub(super) fn wait_until_idle(server: &Server) {
    wait_until("the server is idle", || {
        let before_ns = server.cpu_ns();
        thread::sleep(Duration::from_millis(700));
        server.cpu_ns() - before_ns < 4_000_000
    });
}

/// Sends `beginning` and then bytes without end, and returns what comes back before the server ends the stream.
fn trickle(server: &Server, beginning: &[u8], piece: &[u8]) -> Response {
    let mut stream = server.connect();
    stream.set_nodelay(true).unwrap();
    stream.write_all(beginning).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let (start, answered) = (Instant::now(), AtomicBool::new(false));
    let bytes = thread::scope(|scope| {
        scope.spawn(|| {
            let goes_on = || !answered.load(Ordering::Relaxed) && start.elapsed() < PATIENCE;
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

#[test]
fn a_head_that_trickles_is_answered_408() {
    let folder = site();
    let (server, log) = start_logged(&folder, &["--head-timeout", "200ms"]);
    let response = trickle(&server, b"GET / HTTP/1.1\r\nHost: test\r\nA: ", b"b");
    assert_eq!((response.status, response.field("connection")), (408, Some("close")));
    assert!(String::from_utf8_lossy(&response.body).contains("not complete in time"));
    let response = trickle(&server, b"HEAD / HTTP/1.1\r\nA: ", b"b");
    assert_eq!((response.status, response.body.len()), (408, 0), "no content for HEAD");
    // A head behind an answered request has its own time.
    let response = trickle(&server, format!("{}GET / HTTP/1.1\r\nA: ", get("/none")).as_bytes(), b"b");
    let page = String::from_utf8_lossy(&response.body);
    assert_eq!((response.status, page.contains("HTTP/1.1 408 ")), (404, true), "{page}");
    wait_for_line(&log, 408, "head_timeout sent");
    expect_closed(&stop(server), CloseReason::HeadTimeout, 3);
}

#[test]
fn a_body_that_trickles_is_answered_408() {
    let folder = site();
    let (server, log) = start_logged(&folder, &["--body-timeout", "200ms"]);
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
    // Nothing at all comes after the server has asked for it.
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).status, 100);
    assert_eq!(read_response(&mut stream).status, 408);
    drop(stream);
    wait_for_line(&log, 408, "body_timeout sent");
    expect_closed(&stop(server), CloseReason::BodyTimeout, 5);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let folder = site();
    let server = Server::start(folder.path(), &["--idle-timeout", "200ms"]);
    // The kernel keeps a client that sends nothing to itself for a second or more, and then hands it over.
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
fn a_client_that_never_reads_is_given_up() {
    let folder = site();
    let (server, log) = start_logged(&folder, &["--write-timeout", "200ms"]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_for_line(&log, 200, "write_timeout");
    let bytes = read_to_end(&mut stream);
    assert!(bytes.len() < LARGE_BYTES, "{} bytes", bytes.len());
    // The same for answers from memory.
    let mut stream = connect_with_small_buffer(&server);
    let mut writer = stream.try_clone().unwrap();
    let flood = thread::spawn(move || while writer.write_all(get("/").repeat(100).as_bytes()).is_ok() {});
    flood.join().unwrap();
    read_until_cut(&mut stream);
    drop(stream);
    expect_closed(&stop(server), CloseReason::WriteTimeout, 2);
}

/// Reads until the end, by whatever it comes.
fn read_until_cut(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return bytes,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => return bytes,
            Err(error) => panic!("after {} bytes: {error}", bytes.len()),
        }
    }
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    // It also tells that it will send nothing more: half of a connection is enough to be answered on.
    stream.shutdown(Shutdown::Write).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 20_000]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
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
    // The kernel tells the server of room when megabytes are read, which takes this reader many timeouts. Only an
    // attempt in which the reader itself was never kept from reading for long says anything.
    for _ in 0..20 {
        let mut stream = connect_with_small_buffer(&server);
        stream.write_all(get("/large.bin").as_bytes()).unwrap();
        let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1000]);
        while bytes.len() < LARGE_BYTES {
            let count = stream.read(&mut buffer).unwrap_or(0);
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
fn half_a_connection_is_enough_to_be_answered_on() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    for (request, statuses) in [
        (get("/"), vec![200]),
        (get("/large.bin"), vec![200]),
        (get("/").repeat(40), vec![200; 40]),
        (
            "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".to_owned(),
            vec![405],
        ),
        (format!("{}{}{}", get("/large.bin"), get("/none"), get("/large.bin")), vec![200, 404, 200]),
    ] {
        let mut bytes = server.exchange(request.as_bytes()).into_iter();
        let mut came = Vec::new();
        while let Some(response) = next_response(&mut bytes, false) {
            came.push(response.status);
        }
        assert_eq!(came, statuses, "{request}");
    }
}

/// Takes one response from bytes that were read before.
fn next_response(bytes: &mut std::vec::IntoIter<u8>, to_head: bool) -> Option<Response> {
    let rest = bytes.as_slice();
    if rest.is_empty() {
        return None;
    }
    let head_end = rest.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = Response::parse(&rest[..head_end]);
    let length = if to_head { 0 } else { head.field("content-length").map_or(0, |length| length.parse().unwrap()) };
    let body = rest[head_end..head_end + length].to_vec();
    bytes.nth(head_end + length - 1);
    Some(Response { body, ..head })
}

#[test]
fn a_thousand_pipelined_requests_get_a_thousand_answers_in_order() {
    let files: Vec<_> =
        (0..10).map(|index| (format!("{index}.txt"), format!("file {index}").repeat(index + 1))).collect();
    let files: Vec<_> = files.iter().map(|(name, content)| (name.as_str(), content.as_bytes())).collect();
    let folder = Folder::with(&files);
    let server = Server::start(folder.path(), &[]);
    let requests: String = (0..1000).map(|index| get(&format!("/{}.txt", index * 7 % 10))).collect();
    let mut bytes = server.exchange(requests.as_bytes()).into_iter();
    for index in 0..1000 {
        let response = next_response(&mut bytes, false).unwrap();
        assert_eq!(response.status, 200, "{index}");
        assert_eq!(response.body, files[index * 7 % 10].1, "{index}");
    }
    assert!(bytes.as_slice().is_empty());
    assert_eq!(count(&stop(server), "requests"), 1000);
}

#[test]
fn a_crowd_of_different_requests_is_answered_in_order_to_a_slow_reader() {
    const ROUNDS: usize = 40;
    let middle: Vec<u8> = large()[..300_000].to_vec();
    let folder = Folder::with(&[("index.html", b"welcome"), ("middle.bin", &middle), ("30k.bin", &middle[..30_000])]);
    let server = Server::start(folder.path(), &[]);
    let head = "HEAD /middle.bin HTTP/1.1\r\nHost: test\r\n\r\n";
    let post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 20000\r\n\r\n".to_owned() + &"x".repeat(20_000);
    let round =
        [&get("/"), head, &get("/none"), &get("/middle.bin"), &get("/30k.bin"), &post].map(String::from).concat();
    let mut stream = connect_with_small_buffer(&server);
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        writer.write_all(round.repeat(ROUNDS).as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 10_000]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
    writing.join().unwrap();
    let mut bytes = bytes.into_iter();
    for round in 0..ROUNDS {
        for (status, to_head, body) in [
            (200, false, Some(&b"welcome"[..])),
            (200, true, Some(b"")),
            (404, false, None),
            (200, false, Some(&middle)),
            (200, false, Some(&middle[..30_000])),
            (405, false, None),
        ] {
            let response = next_response(&mut bytes, to_head).unwrap();
            assert_eq!(response.status, status, "round {round}");
            assert!(body.is_none_or(|body| response.body == body), "round {round}: {status}");
        }
    }
    assert!(bytes.as_slice().is_empty());
    assert_eq!(count(&stop(server), "requests"), 6 * ROUNDS as u64);
}

#[test]
fn an_expectation_is_met_or_the_answer_comes_at_once() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").unwrap();
    let interim = read_response(&mut stream);
    assert_eq!((interim.status, interim.fields.len()), (100, 0));
    stream.write_all(b"abc").unwrap();
    let response = read_response(&mut stream);
    assert_eq!((response.status, response.body.as_slice()), (200, &b"welcome"[..]));
    // The connection goes on, and chunks are expected like any content.
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    assert_eq!(read_response(&mut stream).status, 100);
    stream.write_all(b"3\r\nabc\r\n0\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).status, 200);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").unwrap();
    let refused = read_response(&mut stream);
    assert_eq!((refused.status, refused.field("connection")), (405, Some("close")));
    // A client that did not wait may still be sending; it is heard to the end, not reset, and not answered again.
    stream.write_all(get("/").repeat(1000).as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
    drop(stream);
    wait_for_line(&log, 405, "method_not_allowed sent");
    expect_closed(&stop(server), CloseReason::RefusedBody, 1);
}

#[test]
fn a_refused_client_that_keeps_sending_gets_its_answer_and_no_reset() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\nHost: test\r\n\r\n").unwrap();
    for _ in 0..64 {
        stream.write_all(&[b'x'; 4096]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let response = Response::parse(&bytes);
    assert_eq!((response.status, response.field("connection")), (400, Some("close")));
    assert_eq!(response.field("content-length"), Some(response.body.len().to_string().as_str()));
    // One that never stops is heard for a while, and no longer.
    let mut stream = server.connect();
    stream.write_all(b"\0").unwrap();
    while stream.write_all(&[b'x'; 4096]).is_ok() {}
    drop(stream);
    let counters = stop(server);
    assert_eq!(count(&counters, "closed_refused"), 2, "{counters}");
}

#[test]
fn a_client_may_vanish_at_any_moment() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    let beginnings =
        ["G", "GET / HTTP/1.1\r\nHost: test\r\n", "GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\na", "\0"];
    for beginning in beginnings {
        let mut stream = server.connect();
        stream.write_all(beginning.as_bytes()).unwrap();
        // The server has taken the bytes when it has answered a later connection's.
        assert_eq!(server.get("/").status, 200);
        reset(stream);
    }
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_until_stuck(&stream);
    reset(stream);
    wait_for_line(&log, 200, "client_reset");
    wait_for_line(&log, 0, "unanswered client_reset");
    let counters = stop(server);
    expect_closed(&counters, CloseReason::ClientReset, 4);
    assert_eq!(count(&counters, "closed_refused"), 1, "{counters}");
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_cuts_its_answer_short() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_until_stuck(&stream);
    fs::File::options().write(true).open(folder.path().join("large.bin")).unwrap().set_len(100).unwrap();
    let response = Response::parse(&read_until_cut(&mut stream));
    assert_eq!(response.field("content-length"), Some(LARGE_BYTES.to_string().as_str()));
    assert!(response.body.len() < LARGE_BYTES, "an answer is complete that should not be");
    wait_for_line(&log, 200, "file_changed");
    expect_closed(&stop(server), CloseReason::FileChanged, 1);
}

#[test]
fn waiting_costs_nothing_whatever_for() {
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
        // The first request is answered before the runtime hears of the connection; the second comes through it.
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
fn those_who_ask_for_much_and_read_nothing_cost_little_memory() {
    const CONNECTIONS: u64 = 100;
    let folder = Folder::with(&[("16k.bin", &[b'x'; 16_000])]);
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.get("/16k.bin").status, 200);
    let before_kb = server.memory_kb("RssAnon");
    let requests = get("/16k.bin").repeat(2000);
    let mut waiting = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = connect_with_small_buffer(&server);
        stream.set_nonblocking(true).unwrap();
        let _ = stream.write(requests.as_bytes()).unwrap();
        waiting.push(stream);
    }
    wait_until_idle(&server);
    // One receive and a part of a head that are not answered yet, and one batch of answers that the kernel did not take.
    let bound_kb = 32 + 16 + u64::from(Limits::DEFAULT.pipelined_max) * 17;
    let growth_kb = server.memory_kb("RssAnon") - before_kb;
    assert!(growth_kb <= CONNECTIONS * bound_kb, "{growth_kb} kB for {CONNECTIONS} connections");
}

#[test]
fn slow_heads_by_the_hundred_keep_nobody_out() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let mut slow: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for piece in get("/").as_bytes().chunks(9) {
        for stream in &mut slow {
            stream.write_all(piece).unwrap();
        }
        assert_eq!(server.get("/").status, 200);
    }
    for stream in &mut slow {
        assert_eq!(read_response(stream).body, b"welcome");
    }
}

/// Starts a server that may have so many descriptors.
fn start_with_descriptors(folder: &Folder, descriptors: u32) -> Server {
    let binary = flatout();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]).arg(binary.get_program());
    command.arg("serve").arg(folder.path()).args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    Server::spawn(command)
}

#[test]
fn without_descriptors_idle_connections_make_room_for_new_ones() {
    let folder = site();
    let server = start_with_descriptors(&folder, 64);
    let mut open = Vec::new();
    for index in 0..300 {
        let mut stream = server.connect();
        stream.write_all(get(&format!("/?{index}")).as_bytes()).unwrap();
        assert_eq!(read_response(&mut stream).status, 200, "connection {index}");
        open.push(stream);
    }
    drop(open);
    let counters = stop(server);
    let closed = count(&counters, "closed_descriptor_pressure");
    assert!(closed >= 200, "{counters}");
    expect_closed(&counters, CloseReason::DescriptorPressure, closed);
    assert_eq!(count(&counters, "connections_accepted"), 300);
}

#[test]
fn a_crowd_that_comes_at_once_finds_descriptors_for_its_files() {
    let folder = Folder::new();
    for index in 0..200 {
        folder.write(&format!("{index}.txt"), format!("file {index}").as_bytes());
    }
    let server = start_with_descriptors(&folder, 64);
    let ask = |index| {
        let mut stream = server.connect();
        stream.write_all(get(&format!("/{index}.txt")).as_bytes()).unwrap();
        stream
    };
    let crowd: Vec<_> = (0..200).map(ask).collect();
    for (index, mut stream) in crowd.into_iter().enumerate() {
        // A connection may have been idle for as long as the test was kept from asking, and have given way; whoever
        // is answered nothing asks again (RFC 9112 §9.3.1).
        while !matches!(stream.peek(&mut [0]), Ok(1)) {
            stream = ask(index);
        }
        let response = read_response(&mut stream);
        assert_eq!((response.status, response.body), (200, format!("file {index}").into_bytes()));
    }
}

#[test]
fn a_server_that_may_open_nothing_waits_quietly_until_it_may() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.get("/").status, 200);
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let maximum = getrlimit(Resource::Nofile).maximum;
    let usual = prlimit(pid, Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
    let mut stream = server.connect();
    stream.write_all(get("/").as_bytes()).unwrap();
    wait_until_idle(&server);
    prlimit(pid, Resource::Nofile, usual).unwrap();
    assert_eq!(read_response(&mut stream).status, 200);
    drop(stream);
    assert!(count(&stop(server), "accepts_without_descriptor") > 0);
}

#[test]
fn files_held_open_leave_descriptors_for_connections() {
    let folder = Folder::new();
    for index in 0..200 {
        folder.write(&format!("{index}.bin"), &vec![b'x'; 70_000]);
    }
    let server = start_with_descriptors(&folder, 64);
    for index in 0..200 {
        let response = server.get(&format!("/{index}.bin"));
        assert_eq!((response.status, response.body.len()), (200, 70_000), "file {index}");
    }
    stop(server);
}

#[test]
fn a_download_that_is_under_way_at_sigterm_is_finished() {
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
    // Who is idle is let go at once, while the download still stands.
    assert_eq!(read_to_end(&mut idle), b"");
    // Who has begun to ask is answered, and told that it was the last.
    asking.write_all(b"st: test\r\n\r\n").unwrap();
    let response = read_response(&mut asking);
    assert_eq!((response.status, response.field("connection")), (200, Some("close")));
    assert_eq!(read_to_end(&mut asking), b"");
    drop(asking);
    wait_until("nobody new is let in", || TcpStream::connect(server.address).is_err());
    let response = Response::parse(&read_to_end(&mut stream));
    assert!(response.body == large(), "{} bytes came", response.body.len());
    drop(stream);
    let (status, counters) = server.wait();
    assert_eq!(status.code(), Some(0), "{counters}");
    expect_closed(&counters, CloseReason::Draining, 3);
    assert!(fs::read_to_string(log).unwrap().lines().all(|line| line.contains(" sent ")));
}

#[test]
fn a_download_that_outlasts_the_drain_timeout_is_cut_and_said_so() {
    let folder = site();
    let (mut server, log) = start_logged(&folder, &["--drain-timeout", "100ms"]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_until_stuck(&stream);
    server.signal("TERM");
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("stopped with 1 connections cut: --drain-timeout passed"), "{said}");
    expect_closed(&said, CloseReason::DrainDeadline, 1);
    assert!(fs::read_to_string(log).unwrap().contains(" drain_deadline "));
    assert!(read_until_cut(&mut stream).len() < LARGE_BYTES);
}

#[test]
fn a_second_signal_leaves_at_once() {
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

#[test]
fn a_line_is_in_the_log_without_another_request() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    // Answered before the runtime ever hears of the connection.
    assert_eq!(server.get("/").status, 200);
    wait_for_line(&log, 200, "sent");
    stop(server);
}
