//! HTTP/2: real clients, a third-party conformance suite, frames that no client should send, and how connections end.

pub(crate) mod client;
mod compression;
mod conformance;
mod costs;
mod early;
mod errors;
mod far;
mod floods;
mod grpc;
pub(crate) mod origin;

use super::harness::{Folder, Server, TICK, wait_until};
use super::timeouts::logged_write_timeout_ms;
use super::tls::Certificate;
use super::tool::{run, said, test_tool, tool};
use client::{
    ACK, Client, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    literal,
};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt as _};
use std::path::Path;

/// The close reasons that the tests here cause.
pub(crate) const CLOSES: [&str; 6] =
    ["preface_timeout", "h2_protocol", "h2_client_error", "h2_flood", "h2_excess", "draining"];

pub(crate) fn site() -> Folder {
    Folder::with(&[
        ("index.html", b"<!doctype html>home"),
        ("1k", &[b'k'; 1024]),
        ("50k", &vec![b'x'; 50_000]),
        ("big", &vec![b'b'; 5_000_000]),
    ])
}

pub(crate) fn h2c(folder: &Folder) -> Server {
    Server::start(folder.path(), &["--h2c"])
}

/// The value of a counter in the printed output, or 0 if it was not printed.
pub(crate) fn count_of(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.map_or(0, |line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
}

fn curl(server: &Server, path: &str, arguments: &[&str]) -> String {
    run(tool("curl").args(["-sS", "-k", "-i"]).args(arguments).arg(server.url(path)))
}

#[test]
fn curl_uses_http2_with_and_without_tls() {
    let (folder, certificate) = (site(), Certificate::new());
    let log = folder.path().join(".log");
    let log = log.to_str().unwrap();
    for (flag, arguments) in [
        ("--http2-prior-knowledge", vec!["--h2c", "--access-log", log]),
        ("--http2", [certificate.arguments(), vec!["--access-log", log]].concat()),
    ] {
        let server = Server::start(folder.path(), &arguments);
        let home = curl(&server, "/", &[flag]);
        assert!(home.starts_with("HTTP/2 200") && home.ends_with("<!doctype html>home"), "{home}");
        assert!(home.contains("\ndate: ") && home.contains("\netag: "), "{home}");
        let tag = home.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().trim().to_owned();
        let again = curl(&server, "/", &[flag, "-H", &format!("If-None-Match: {tag}")]);
        assert!(again.starts_with("HTTP/2 304") && !again.contains("home"), "{again}");
        let head = curl(&server, "/1k", &[flag, "-I"]);
        assert!(head.starts_with("HTTP/2 200") && head.contains("content-length: 1024"), "{head}");
        let part = curl(&server, "/50k", &[flag, "-r", "10-13"]);
        assert!(part.starts_with("HTTP/2 206") && part.ends_with("xxxx"), "{part}");
        assert!(curl(&server, "/none", &[flag]).starts_with("HTTP/2 404"));
        assert!(curl(&server, "/a%00", &[flag]).starts_with("HTTP/2 400"));
        assert!(curl(&server, "/", &[flag, "-d", "a=b"]).starts_with("HTTP/2 405"));
        // The same listener serves HTTP/1.1 to clients that prefer it.
        assert!(curl(&server, "/", &["--http1.1"]).starts_with("HTTP/1.1 200"));
        let big = folder.path().join(".got");
        run(tool("curl").args(["-sS", "-k", flag, "-o"]).arg(&big).arg(server.url("/big")));
        assert!(fs::read(&big).unwrap() == fs::read(folder.path().join("big")).unwrap());
        let (status, text) = server.stop();
        assert!(status.success(), "{text}");
        assert_eq!((count_of(&text, "http2_connections"), count_of(&text, "http2_streams_cut")), (8, 0), "{text}");
        assert_eq!(count_of(&text, "requests"), 9, "{text}");
    }
    let lines = fs::read_to_string(log).unwrap();
    for expected in [
        "\"GET / HTTP/2.0\" 200 19 ",
        "\"HEAD /1k HTTP/2.0\" 200 0 ",
        "\"GET /a%00 HTTP/2.0\" 400 ",
        "\"POST / HTTP/2.0\" 405 ",
        "\"GET /big HTTP/2.0\" 200 5000000 ",
    ] {
        assert_eq!(lines.matches(expected).count(), 2, "{expected}: {lines}");
    }
    assert_eq!(lines.matches(" sent ").count(), 18, "{lines}");
}

#[test]
fn h2load_gets_every_response() {
    let (folder, certificate) = (site(), Certificate::new());
    for arguments in [vec!["--h2c"], certificate.arguments()] {
        let server = Server::start(folder.path(), &arguments);
        for (path, requests) in [("/1k", "3000"), ("/big", "30")] {
            let said = run(tool("h2load").args(["-n", requests, "-c", "6", "-m", "10"]).arg(server.url(path)));
            assert!(said.contains(&format!(" {requests} succeeded, 0 failed")), "{said}");
        }
    }
}

/// RFC 9112 §2.2, RFC 9113 §3.3: only the preface starts HTTP/2. Anything else is treated as on any other port.
#[test]
fn a_connection_without_a_preface_is_served_as_http1() {
    let folder = site();
    let (both, plain) = (h2c(&folder), Server::start(folder.path(), &[]));
    for request in [
        "\r\nGET /1k HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n",
        "GET /1k\r\nHost: test\r\nX: a line that makes it long enough\r\n\r\n",
        "GET /1k NO/1.1\r\nHost: test\r\nX: a line that makes it long enough\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        "PRI /1k HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n",
        "one two three four five six seven\r\nHost: test\r\n\r\n",
    ] {
        let status_of = |server: &Server| {
            let said = server.exchange(request.as_bytes());
            String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned()
        };
        let expected = status_of(&plain);
        assert!(expected.starts_with("HTTP/1.1 "), "{request:?}: {expected:?}");
        assert_eq!(status_of(&both), expected, "{request:?}");
    }
}

/// Every case of h2spec, the most widely used conformance suite.
#[test]
fn h2spec_finds_no_errors() {
    let (folder, certificate) = (site(), Certificate::new());
    for (arguments, flags) in [(vec!["--h2c"], &[][..]), (certificate.arguments(), &["-t", "-k"][..])] {
        let server = Server::start(folder.path(), &arguments);
        let port = server.address.port().to_string();
        let output = test_tool("h2spec", "bin")
            .args(["--strict", "--timeout", "10", "-h", "127.0.0.1", "-p", &port])
            .args(flags)
            .output()
            .unwrap();
        let said = said(&output);
        let summary = said.lines().rev().find(|line| line.contains(" tests, ")).unwrap_or_default();
        println!("{flags:?}: {summary}");
        assert!(output.status.success() && summary.contains(" 0 skipped, 0 failed"), "{said}");
    }
}

#[test]
fn settings_are_sent_and_acknowledged() {
    let folder = site();
    let server = h2c(&folder);
    let mut client = Client::connect(&server, &[]);
    let settings = client.frame_like("SETTINGS", |frame| frame.kind == SETTINGS && frame.flags == 0);
    let value_of = |id: u16| {
        let pairs = settings.payload.chunks(6);
        pairs
            .map(|pair| (u16::from_be_bytes([pair[0], pair[1]]), &pair[2..]))
            .find(|(found, _)| *found == id)
            .map(|(_, value)| u32::from_be_bytes(value.try_into().unwrap()))
    };
    assert_eq!((value_of(3), value_of(6)), (Some(128), Some(64 * 1024)));
    client.frame_like("the acknowledgement of SETTINGS", |frame| frame.kind == SETTINGS && frame.flags == ACK);
}

#[test]
fn oversized_content_is_refused_and_the_connection_stays_open() {
    let folder = site();
    let server = h2c(&folder);
    let mut client = Client::connect(&server, &[]);
    let fields = [client::request("POST", "/1k"), literal(b"content-length", b"2000000")].concat();
    client.send_frame(HEADERS, END_HEADERS, 1, &fields);
    let answer = client.frame_like("a response", |frame| frame.kind == HEADERS && frame.stream == 1);
    // 413 in the server's encoding. The status is not in the static table, so its digits are literal or Huffman-coded.
    assert!(!answer.payload.is_empty());
    let reset = client.frame_like("a reset", |frame| frame.kind == RST_STREAM);
    assert_eq!((reset.stream, reset.number(0)), (1, 0));
    client.get(3, "/1k");
    client.frame_like("the end of the next response", |frame| frame.stream == 3 && frame.ends_stream());
    drop(client);
    let (_, text) = server.stop();
    assert_eq!(count_of(&text, "refused_body_too_large"), 1, "{text}");
}

#[test]
fn a_file_changed_during_transfer_truncates_the_response() {
    let folder = site();
    let server = h2c(&folder);
    let mut client = Client::connect(&server, &[]);
    client.get(1, "/big");
    let mut received = 0;
    while received < 60_000 {
        received += client.frame_like("content", |frame| frame.kind == DATA).payload.len();
    }
    std::thread::sleep(TICK);
    OpenOptions::new().write(true).open(folder.path().join("big")).unwrap().write_all_at(b"changed", 100).unwrap();
    for stream in [0, 1] {
        client.send_frame(WINDOW_UPDATE, 0, stream, &10_000_000_u32.to_be_bytes());
    }
    let end = client.frame_like("the end of the stream", |frame| frame.kind == RST_STREAM || frame.ends_stream());
    assert_eq!((end.kind, end.number(0)), (RST_STREAM, 2));
    client.get(3, "/1k");
    client.frame_like("the end of the next response", |frame| frame.stream == 3 && frame.ends_stream());
}

#[test]
fn a_file_whose_content_remains_is_sent_as_it_was() {
    let changes: [fn(&Path); 3] = [
        |path| OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap(),
        |path| fs::hard_link(path, path.with_extension("link")).unwrap(),
        |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let folder = site();
        let server = h2c(&folder);
        let mut client = Client::connect(&server, &[]);
        let path = folder.path().join("big");
        let size = fs::metadata(&path).unwrap().len();
        client.get(1, "/big");
        let mut received = 0;
        while received < 60_000 {
            received += client.frame_like("content", |frame| frame.kind == DATA).payload.len() as u64;
        }
        std::thread::sleep(TICK);
        change(&path);
        for stream in [0, 1] {
            client.send_frame(WINDOW_UPDATE, 0, stream, &10_000_000_u32.to_be_bytes());
        }
        loop {
            let frame = client.frame_like("content or a reset", |frame| matches!(frame.kind, DATA | RST_STREAM));
            assert_eq!(frame.kind, DATA, "change {number} after {received} of {size} bytes");
            received += frame.payload.len() as u64;
            if frame.ends_stream() {
                break;
            }
        }
        assert_eq!(received, size, "change {number}");
    }
}

#[test]
fn draining_lets_open_streams_finish() {
    let folder = site();
    let server = h2c(&folder);
    let mut client = Client::connect(&server, &[]);
    client.get(1, "/big");
    client.frame_like("content", |frame| frame.kind == DATA);
    server.signal("TERM");
    let first = client.frame_like("GOAWAY", |frame| frame.kind == GOAWAY);
    assert_eq!((first.number(0), first.number(4)), (0x7fff_ffff, 0));
    for stream in [0, 1] {
        client.send_frame(WINDOW_UPDATE, 0, stream, &10_000_000_u32.to_be_bytes());
    }
    let (mut ended, mut last) = (false, None);
    while let Some(frame) = client.frame() {
        match frame.kind {
            PING if frame.flags == 0 => {
                client.send_frame(PING, ACK, 0, &frame.payload);
            }
            GOAWAY => last = Some((frame.number(0), frame.number(4))),
            _ => ended |= frame.ends_stream(),
        }
    }
    assert!(ended && last == Some((1, 0)), "{last:?}");
    drop(client);
    let mut server = server;
    let (status, text) = server.wait();
    assert!(status.success(), "{text}");
    assert_eq!(count_of(&text, "closed_draining"), 1, "{text}");
}

#[test]
fn an_idle_connection_gets_a_goaway() {
    let folder = site();
    let server = Server::start(folder.path(), &["--h2c", "--idle-timeout", "2s"]);
    let mut client = Client::connect(&server, &[]);
    client.get(1, "/1k");
    client.frame_like("the end of the stream", Frame::ends_stream);
    let goaway = client.frame_like("GOAWAY", |frame| frame.kind == GOAWAY);
    assert_eq!(goaway.number(4), 0);
    assert_eq!(client.frame(), None);
    drop(client);
    let (_, text) = server.stop();
    assert_eq!(count_of(&text, "closed_idle_timeout"), 1, "{text}");
}

#[test]
fn streams_of_a_client_that_opens_no_window_are_reset() {
    let folder = site();
    let log = folder.path().join(".log");
    let arguments = ["--h2c", "--write-timeout", "1s", "--access-log", log.to_str().unwrap()];
    let server = Server::start(folder.path(), &arguments);
    let mut client = Client::connect(&server, &[(4, 0)]);
    client.get(1, "/1k");
    client.get(3, "/big");
    // Pings do not count as progress.
    let mut count = 0_u64;
    while client.send_frame(PING, 0, 0, &count.to_be_bytes()) && count < 150 {
        count += 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for _ in 0..2 {
        let reset = client.frame_like("a reset", |frame| frame.kind == RST_STREAM);
        assert_eq!(reset.number(0), 8, "CANCEL");
    }
    // The connection goes on.
    client.send_frame(HEADERS, END_HEADERS | END_STREAM, 5, &client::request("HEAD", "/1k"));
    client.frame_like("a response", |frame| frame.kind == HEADERS && frame.stream == 5);
    drop(client);
    let (_, text) = server.stop();
    assert_eq!(count_of(&text, "closed_write_timeout"), 0, "{text}");
    let lines = fs::read_to_string(log).unwrap();
    assert_eq!(lines.matches(" write_timeout ").count(), 2, "{lines}");
}

/// Only an attempt in which the machine was not busy shows the exact time, but in no attempt may it be too short.
#[test]
fn the_write_timeout_lasts_as_long_as_it_is_set() {
    const TIMEOUT_MS: u64 = 2_000;
    let folder = site();
    let log = folder.path().join(".log");
    let arguments = ["--h2c", "--write-timeout", "2s", "--access-log", log.to_str().unwrap()];
    let server = Server::start(folder.path(), &arguments);
    let mut next = Client::connect(&server, &[(4, 0)]);
    let mut shortest_ms = u64::MAX;
    for attempt in 1..=5 {
        // From the second attempt on, the connection has been idle for a whole timeout before its request.
        let mut client = std::mem::replace(&mut next, Client::connect(&server, &[(4, 0)]));
        client.get(1, "/big");
        client.frame_like("a reset", |frame| frame.kind == RST_STREAM);
        let took_ms = logged_write_timeout_ms(&log, attempt);
        // Clocks differ by a few milliseconds.
        assert!(took_ms >= TIMEOUT_MS - 50, "{took_ms} ms");
        shortest_ms = shortest_ms.min(took_ms);
        if attempt > 1 && shortest_ms < TIMEOUT_MS + 1_000 {
            return;
        }
        println!("{took_ms} ms");
    }
    panic!("the write timeout took too long in every attempt");
}

#[test]
fn slow_fields_and_slow_content_time_out() {
    let folder = site();
    let server = Server::start(folder.path(), &["--h2c", "--head-timeout", "200ms", "--body-timeout", "200ms"]);
    let mut client = Client::connect(&server, &[]);
    client.send_frame(HEADERS, END_HEADERS, 1, &client::request("POST", "/1k"));
    client.frame_like("408", |frame| frame.kind == HEADERS && frame.stream == 1);
    let reset = client.frame_like("a reset", |frame| frame.kind == RST_STREAM);
    assert_eq!(reset.number(0), 0);
    client.send_frame(HEADERS, 0, 3, &client::request("GET", "/1k"));
    client.frame_like("GOAWAY", |frame| frame.kind == GOAWAY);
    while client.frame().is_some() {}
    let (_, text) = server.stop();
    assert_eq!((count_of(&text, "closed_head_timeout"), count_of(&text, "status_4xx")), (1, 1), "{text}");
}

#[test]
fn a_missing_preface_times_out_like_a_handshake() {
    let folder = site();
    let server = Server::start(folder.path(), &["--h2c", "--handshake-timeout", "200ms", "--head-timeout", "200ms"]);
    let mut stream = server.connect();
    stream.write_all(&client::PREFACE[..20]).unwrap();
    // An incomplete preface could be an HTTP/1.1 request, so it gets the response of a slow one.
    let answer = super::harness::read_to_end(&mut stream);
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    let mut stream = server.connect();
    stream.write_all(b"NO PREFACE AT ALL, AND NO REQUEST\r\n\r\n").unwrap();
    assert!(super::harness::read_to_end(&mut stream).is_empty());
}

#[test]
fn resets_are_logged_by_name() {
    let folder = site();
    let log = folder.path().join(".log");
    let server = Server::start(folder.path(), &["--h2c", "--access-log", log.to_str().unwrap()]);
    let mut client = Client::connect(&server, &[(4, 0)]);
    for (stream, path) in [(1, "/1k"), (3, "/big")] {
        client.get(stream, path);
        client.frame_like("a response head", |frame| frame.kind == HEADERS && frame.stream == stream);
        client.send_frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
    }
    client.send_frame(PING, 0, 0, b"the last");
    client.frame_like("the acknowledgement of the ping", |frame| frame.kind == PING && frame.flags == ACK);
    client.finish();
    while client.frame().is_some() {}
    wait_until("both lines", || {
        fs::read_to_string(&log).is_ok_and(|lines| lines.matches(" stream_reset ").count() == 2)
    });
}

#[test]
fn errors_of_both_sides_are_logged_by_name() {
    let folder = site();
    let server = h2c(&folder);
    // DATA on stream 0 is a connection error that the server detects.
    let mut client = Client::connect(&server, &[]);
    client.send_frame(DATA, 0, 0, b"x");
    let goaway = client.frame_like("GOAWAY", |frame| frame.kind == GOAWAY);
    assert_eq!(goaway.number(4), 1);
    assert_eq!(client.frame(), None);
    // An error that the client reports.
    let mut client = Client::connect(&server, &[]);
    client.send_frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]);
    client.finish();
    while client.frame().is_some() {}
    // Content in single bytes costs more than it carries.
    let mut client = Client::connect(&server, &[]);
    client.send_frame(HEADERS, END_HEADERS, 1, &client::request("POST", "/1k"));
    let code = (0..200_000).find_map(|count| {
        client.send_frame(DATA, 0, 1, b"x");
        if count % 100 == 0 { client.goaway_by_now() } else { None }
    });
    assert_eq!(code, Some(0xb));
    drop(client);
    let (_, text) = server.stop();
    for name in ["closed_h2_protocol", "closed_h2_client_error", "closed_h2_excess"] {
        assert_eq!(count_of(&text, name), 1, "{name}: {text}");
    }
}

#[test]
fn little_memory_is_held_for_a_slow_reader() {
    const BYTES: usize = 40_000_000;
    let (folder, certificate) = (site(), Certificate::new());
    fs::write(folder.path().join("huge"), vec![b'h'; BYTES]).unwrap();
    for arguments in [vec!["--h2c"], certificate.arguments()] {
        let server = Server::start(folder.path(), &arguments);
        assert!(curl(&server, "/1k", &["--http2-prior-knowledge"]).starts_with("HTTP/2 200"));
        let before_kb = server.memory_kb("RssAnon");
        let mut child = tool("curl")
            .args(["-sS", "-k", "--http2-prior-knowledge", "--limit-rate", "20M", "-o", "/dev/null"])
            .arg(server.url("/huge"))
            .spawn()
            .unwrap();
        let mut peak_kb = 0;
        while child.try_wait().unwrap().is_none() {
            peak_kb = peak_kb.max(server.memory_kb("RssAnon"));
            std::thread::sleep(TICK);
        }
        assert!(child.wait().unwrap().success());
        println!("{before_kb} kB became {peak_kb} kB");
        assert!(peak_kb < before_kb + 2048, "{before_kb} kB became {peak_kb} kB");
    }
}
