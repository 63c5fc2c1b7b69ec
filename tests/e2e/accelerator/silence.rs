//! Streams with long silences: event streams, and connections that were upgraded to another protocol.

use super::super::harness::{Folder, read_to_end, wait_until};
use super::origin::{Origin, Then};
use super::{configure, log_of};
use std::fs;
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

/// Longer than `timeouts { body }` in the tests below.
const SILENCE: Duration = Duration::from_secs(3);

/// An origin that sends content of this media type in two pieces with a pause between them.
fn pausing_origin(media: &'static str) -> Origin {
    Origin::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(b"3\r\none\r\n"));
        thread::sleep(SILENCE);
        let _ = stream.write_all(b"3\r\ntwo\r\n0\r\n\r\n");
        Then::Keep
    })
}

#[test]
fn event_streams_may_be_silent_for_longer_than_the_body_timeout() {
    for (media, timeouts, is_whole) in [
        ("text/event-stream; charset=utf-8", "timeouts { body \"200ms\"; }", true),
        ("text/plain", "timeouts { body \"200ms\"; }", false),
        ("text/event-stream", "timeouts { stream \"200ms\"; }", false),
    ] {
        let (folder, origin) = (Folder::new(), pausing_origin(media));
        let server = configure(&folder, &origin.url(), "", timeouts);
        let text = server.exchange(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.ends_with("3\r\ntwo\r\n0\r\n\r\n"), is_whole, "{media} {timeouts}: {text}");
    }
}

#[test]
fn an_idle_tunnel_is_closed_by_the_tunnel_timeout() {
    let origin = Origin::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&buffer[..count]);
        }
        Then::Close
    });
    let folder = Folder::new();
    let timeouts = "timeouts { body \"100ms\"; head \"5s\"; stream \"5s\"; }";
    let server = configure(&folder, &origin.url(), "", timeouts);
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    // The total is longer than the body timeout, but every byte restarts the wait.
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(1_500));
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut byte).unwrap();
    }
    assert!(read_to_end(&mut stream).is_empty());
    wait_until("the log line", || fs::read_to_string(log_of(&folder)).is_ok_and(|log| log.contains("tunnel_idle")));
}
