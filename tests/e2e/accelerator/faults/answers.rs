//! The faults, byte for byte.

use super::super::super::harness::wait_until_read;
use super::super::origin::Then;
use super::{Fault, Told};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n";

fn send(stream: &mut TcpStream, bytes: &[u8], then: Then) -> Then {
    let _ = stream.write_all(bytes);
    then
}

fn send_after_ok(stream: &mut TcpStream, rest: &str, then: Then) -> Then {
    send(stream, format!("{OK}{rest}").as_bytes(), then)
}

/// Sends `beginning` and then `piece` repeatedly until the peer stops receiving.
fn send_forever(stream: &mut TcpStream, beginning: &str, piece: &str, pause: Duration) -> Then {
    let _ = stream.write_all(beginning.as_bytes());
    while stream.write_all(piece.as_bytes()).is_ok() {
        thread::sleep(pause);
    }
    Then::Close
}

/// Sends `bytes` and waits until the other side closes the connection.
fn stall(stream: &mut TcpStream, bytes: &str) -> Then {
    let _ = stream.write_all(bytes.as_bytes());
    let _ = stream.read(&mut [0; 1]);
    Then::Close
}

/// Lets the peer read what was sent before the connection closes.
fn send_and_end(stream: &mut TcpStream, rest: &str, then: Then) -> Then {
    send_after_ok(stream, rest, then);
    wait_until_read(stream);
    then
}

const NO_PAUSE: Duration = Duration::ZERO;
const PAUSE: Duration = Duration::from_millis(100);
const BAD_HEAD: &str = "origin_head_malformed";
const CUT: &str = "origin_cut_body";
const BAD_BODY: &str = "origin_body_malformed";
const BAD_GATEWAY: Told = Told::Error(502);
const TIMEOUT: Told = Told::Error(504);

/// A fault that is detected immediately.
const fn fault(name: &'static str, told: Told, reason: &'static str, answer: fn(&mut TcpStream) -> Then) -> Fault {
    Fault { name, told, reason, waits: false, answer }
}

/// A fault that is detected by a timeout.
const fn waiting(name: &'static str, told: Told, reason: &'static str, answer: fn(&mut TcpStream) -> Then) -> Fault {
    Fault { name, told, reason, waits: true, answer }
}

pub(super) const FAULTS: &[Fault] = &[
    fault("closed before the head", BAD_GATEWAY, "origin_closed_before_head", |_| Then::Close),
    fault("reset before the head", BAD_GATEWAY, "origin_reset", |_| Then::Reset),
    fault("closed within the head", BAD_GATEWAY, "origin_cut_head", |stream| {
        send_and_end(stream, "Content-Le", Then::Close)
    }),
    fault("reset within the head", BAD_GATEWAY, "origin_reset", |stream| {
        send_and_end(stream, "Content-Le", Then::Reset)
    }),
    fault("closed within the status line", BAD_GATEWAY, "origin_cut_head", |stream| {
        send(stream, b"HTTP/1.1 20", Then::Close)
    }),
    fault("closed within the body", Told::Cut, CUT, |stream| {
        send_and_end(stream, "Content-Length: 100\r\n\r\nhalf of it", Then::Close)
    }),
    fault("closed before the body", Told::Cut, CUT, |stream| {
        send_and_end(stream, "Content-Length: 100\r\n\r\n", Then::Close)
    }),
    fault("reset within the body", Told::Cut, CUT, |stream| {
        send_and_end(stream, "Content-Length: 100\r\n\r\nhalf of it", Then::Reset)
    }),
    fault("reset within a body that its end delimits", Told::Cut, CUT, |stream| {
        send_and_end(stream, "Connection: close\r\n\r\nhalf of it", Then::Reset)
    }),
    fault("a large body cut by its last byte", Told::Cut, CUT, |stream| {
        let _ = stream.write_all(format!("{OK}Content-Length: 1000001\r\n\r\n").as_bytes());
        send(stream, &vec![b'x'; 1_000_000], Then::Close)
    }),
    fault("chunks without the last", Told::Cut, CUT, |stream| {
        send_and_end(stream, "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", Then::Close)
    }),
    fault("cut within a chunk", Told::Cut, CUT, |stream| {
        send_and_end(stream, "Transfer-Encoding: chunked\r\n\r\nff\r\nhalf", Then::Close)
    }),
    fault("cut within a chunk's size", Told::Cut, CUT, |stream| {
        send_and_end(stream, "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0", Then::Close)
    }),
    fault("cut before the end of the trailers", Told::Cut, CUT, |stream| {
        send_and_end(stream, "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\nA: b\r\n", Then::Close)
    }),
    fault("a chunk without a size", BAD_GATEWAY, BAD_BODY, |stream| {
        send_after_ok(stream, "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nnonsense\r\n", Then::Keep)
    }),
    fault("a chunk longer than its size", BAD_GATEWAY, BAD_BODY, |stream| {
        send_after_ok(stream, "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf and more\r\n0\r\n\r\n", Then::Keep)
    }),
    fault("a chunk's size beyond all bounds", BAD_GATEWAY, BAD_BODY, |stream| {
        send_after_ok(stream, "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhalf", Then::Keep)
    }),
    fault("a negative size of a chunk", BAD_GATEWAY, BAD_BODY, |stream| {
        send_after_ok(stream, "Transfer-Encoding: chunked\r\n\r\n-4\r\nhalf\r\n0\r\n\r\n", Then::Keep)
    }),
    fault("a chunk without a size, after some time", Told::Cut, BAD_BODY, |stream| {
        send_after_ok(stream, "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", Then::Keep);
        thread::sleep(PAUSE);
        send(stream, b"nonsense\r\n", Then::Keep)
    }),
    fault("chunk sizes with spaces", Told::Whole(200, "good"), "", |stream| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n";
        send(stream, format!("{head}4  \r\ngood\r\n0\t\r\n\r\n").as_bytes(), Then::Keep)
    }),
    fault("line ends without CR", Told::Whole(200, "good"), "", |stream| {
        send(stream, b"HTTP/1.1 200 OK\nCache-Control: no-store\nContent-Length: 4\n\ngood", Then::Keep)
    }),
    fault("the same length twice", Told::Whole(200, "good"), "", |stream| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 4\r\nContent-Length: 4, 4\r\n\r\n";
        send(stream, format!("{head}good").as_bytes(), Then::Keep)
    }),
    fault("more than the length, and another answer in it", Told::Whole(200, "good"), "", |stream| {
        let evil = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\nevil";
        // Not cacheable, or the next request would be a hit.
        let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 4\r\n\r\ngood";
        send(stream, format!("{head}{evil}").as_bytes(), Then::Keep)
    }),
    fault("a 204 with a body that looks like an answer", Told::Whole(204, ""), "", |stream| {
        let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
        send(stream, format!("HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n\r\n{evil}").as_bytes(), Then::Keep)
    }),
    fault("two lengths", BAD_GATEWAY, BAD_HEAD, |stream| {
        send_after_ok(stream, "Content-Length: 4\r\nContent-Length: 5\r\n\r\ngood!", Then::Close)
    }),
    fault("a list of lengths", BAD_GATEWAY, BAD_HEAD, |stream| {
        send_after_ok(stream, "Content-Length: 4, 5\r\n\r\ngood!", Then::Close)
    }),
    fault("a negative length", BAD_GATEWAY, BAD_HEAD, |stream| {
        send_after_ok(stream, "Content-Length: -4\r\n\r\ngood", Then::Close)
    }),
    fault("a length that overflows", BAD_GATEWAY, BAD_HEAD, |stream| {
        send_after_ok(stream, "Content-Length: 18446744073709551620\r\n\r\ngood", Then::Close)
    }),
    fault("an unknown transfer coding", BAD_GATEWAY, BAD_HEAD, |stream| {
        send_after_ok(stream, "Transfer-Encoding: nonsense\r\n\r\ngood", Then::Close)
    }),
    fault("fields without end", BAD_GATEWAY, "origin_head_too_large", |stream| {
        send_forever(stream, OK, "X-Padding: and so on\r\n", NO_PAUSE)
    }),
    fault("a field without end", BAD_GATEWAY, "origin_head_too_large", |stream| {
        send_forever(stream, &format!("{OK}X-Padding: "), "and so on ", NO_PAUSE)
    }),
    fault("a reason phrase without end", BAD_GATEWAY, BAD_HEAD, |stream| {
        send_forever(stream, "HTTP/1.1 200 ", "and so on ", NO_PAUSE)
    }),
    fault("interim answers without end", BAD_GATEWAY, "origin_interims_too_many", |stream| {
        send_forever(stream, "", "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n", NO_PAUSE)
    }),
    waiting("interim answers, slowly", TIMEOUT, "origin_head_timeout", |stream| {
        send_forever(stream, "", "HTTP/1.1 102 Processing\r\n\r\n", 3 * PAUSE)
    }),
    fault("an upgrade that was not requested", BAD_GATEWAY, "origin_switched_unasked", |stream| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        send(stream, head.as_bytes(), Then::Keep)
    }),
    fault("noise", BAD_GATEWAY, BAD_HEAD, |stream| {
        let noise: Vec<u8> = (0..4096_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        send(stream, &noise, Then::Close)
    }),
    fault("an answer of HTTP/0.9", BAD_GATEWAY, BAD_HEAD, |stream| {
        send(stream, b"<html>hello</html>\r\n\r\n", Then::Close)
    }),
    fault("another server's greeting", BAD_GATEWAY, BAD_HEAD, |stream| {
        send(stream, b"220 mail.example ESMTP\r\n", Then::Close)
    }),
    fault("a version of its own", BAD_GATEWAY, BAD_HEAD, |stream| {
        send(stream, b"HTTP/3.7 200 OK\r\nContent-Length: 4\r\n\r\ngood", Then::Close)
    }),
    fault("a status of two digits", BAD_GATEWAY, BAD_HEAD, |stream| {
        send(stream, b"HTTP/1.1 20 OK\r\nContent-Length: 4\r\n\r\ngood", Then::Close)
    }),
    fault("a status of letters", BAD_GATEWAY, BAD_HEAD, |stream| {
        send(stream, b"HTTP/1.1 abc OK\r\nContent-Length: 4\r\n\r\ngood", Then::Close)
    }),
    fault("a line without a colon", BAD_GATEWAY, BAD_HEAD, |stream| {
        send_after_ok(stream, "no field at all\r\nContent-Length: 4\r\n\r\ngood", Then::Close)
    }),
    // RFC 9112 §5.1: a proxy removes the space. §5.2: it unfolds the line or refuses the response. RFC 9110 §5.5: NUL
    // is replaced or refused, which flatout does.
    fault("a space before a colon", Told::Whole(200, "good"), "", |stream| {
        send(stream, b"HTTP/1.1 200 OK\r\nCache-Control : no-store\r\nContent-Length : 4\r\n\r\ngood", Then::Close)
    }),
    // RFC 2616 §3.6: no coding.
    fault("the coding identity", Told::Whole(200, "good"), "", |stream| {
        let head =
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: identity\r\nContent-Length: 4\r\n\r\n";
        send(stream, format!("{head}good").as_bytes(), Then::Keep)
    }),
    fault("a folded line", Told::Whole(200, "good"), "", |stream| {
        let head = "HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nCache-Control: no-store\r\nContent-Length: 4\r\n\r\ngood";
        send(stream, head.as_bytes(), Then::Close)
    }),
    fault("a NUL in a value", BAD_GATEWAY, BAD_HEAD, |stream| {
        let head = b"HTTP/1.1 200 OK\r\nX-Nul: a\0b\r\nCache-Control: no-store\r\nContent-Length: 4\r\n\r\ngood";
        send(stream, head, Then::Close)
    }),
    fault("chunks and a length", BAD_GATEWAY, BAD_HEAD, |stream| {
        let framing = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n";
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n{framing}");
        send(stream, head.as_bytes(), Then::Keep)
    }),
    waiting("no answer at all", TIMEOUT, "origin_head_timeout", |stream| stall(stream, "")),
    waiting("half a head and no more", TIMEOUT, "origin_head_timeout", |stream| stall(stream, OK)),
    waiting("a head that drips", TIMEOUT, "origin_head_timeout", |stream| {
        send_forever(stream, &format!("{OK}X-Drip: "), "x", PAUSE)
    }),
    waiting("less than the length, and no more", Told::Cut, "origin_body_timeout", |stream| {
        stall(stream, &format!("{OK}Content-Length: 100\r\n\r\nhalf of it"))
    }),
    waiting("half a chunk and no more", Told::Cut, "origin_body_timeout", |stream| {
        stall(stream, &format!("{OK}Transfer-Encoding: chunked\r\n\r\n64\r\nhalf of it"))
    }),
    waiting("a body that drips, but comes", Told::Whole(200, "drip drip drip"), "", |stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 14\r\n\r\n");
        for byte in b"drip drip drip" {
            let _ = stream.write_all(&[*byte]);
            thread::sleep(Duration::from_millis(30));
        }
        Then::Keep
    }),
];
