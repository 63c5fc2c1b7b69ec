//! Pages that start to respond before they are complete.

use super::{site, text};
use crate::e2e::harness::{Response, read_to_end, uninterrupted, wait_until};
use crate::e2e::tool::{run, tool};
use std::io::{Read as _, Write as _};

const SITE: &[(&str, &str)] = &[
    ("site/flush.lhtml", "<p>a</p><?lua flush() ?><p><?= \"b\" ?></p><?lua flush() flush() ?><p>c</p>"),
    ("site/long.lhtml", "begun<?lua flush() while true do end ?>"),
    ("site/large.lhtml", "<?lua for i = 1, 20000 do ?><p>row <?= i ?></p>\n<?lua end ?>"),
    ("site/index.lhtml", "<?= 1 ?>"),
];

#[test]
fn flush_sends_chunks() {
    let (_folder, server) = site(SITE, "", "");
    let answer = server.get("/flush");
    assert_eq!((answer.status, answer.field("content-length")), (200, None));
    assert_eq!(answer.field("transfer-encoding"), Some("chunked"));
    let expected = "<p>a</p><p>b</p><p>c</p>";
    assert_eq!(run(tool("curl").args(["-sS", &server.url("/flush")])), expected);
    assert_eq!(run(tool("curl").args(["-sS", "--http2-prior-knowledge", &server.url("/")])), "1");
    // HTTP/1.0 has no chunks: the content ends with the connection.
    let old = Response::parse(&server.exchange(b"GET /flush HTTP/1.0\r\nHost: test\r\n\r\n"));
    assert_eq!((old.status, text(&old).as_str()), (200, expected));
    let head = Response::parse(&server.exchange(b"HEAD /flush HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"));
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn large_contents_are_complete() {
    let (_folder, server) = site(SITE, "cpu-limit \"10s\"", "");
    let expected: String = (1..=20_000).map(|row| format!("<p>row {row}</p>\n")).collect();
    let answer = server.get("/large");
    assert_eq!(answer.field("content-length"), Some(expected.len().to_string().as_str()));
    assert!(text(&answer) == expected, "{} bytes", answer.body.len());
    let over_http2 = run(tool("curl").args(["-sS", "--http2-prior-knowledge", &server.url("/large")]));
    assert!(over_http2 == expected, "{} bytes", over_http2.len());
}

/// When the client disconnects, its page stops and frees its memory.
#[test]
fn a_page_stops_when_its_client_disconnects() {
    let (_folder, server) = site(SITE, "cpu-limit \"1h\"", "");
    for _ in 0..3 {
        let mut stream = server.connect();
        stream.write_all(b"GET /long HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut begun = [0; 64];
        assert!(uninterrupted(|| stream.read(&mut begun)).unwrap() > 0);
        drop(stream);
        let mut other = server.connect();
        other.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!(Response::parse(&read_to_end(&mut other)).status, 200);
    }
    // Nothing uses CPU time any more.
    let mut before = server.cpu_ns();
    wait_until("the runs stop", || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = server.cpu_ns();
        let spent = now - std::mem::replace(&mut before, now);
        spent < 20_000_000
    });
}
