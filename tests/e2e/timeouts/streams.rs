//! Content that trickles to each handler, and a stream that pauses beside one that goes on, over all versions of HTTP.

use super::super::harness::{Folder, Server, connect, read_response};
use super::super::http2::client::{
    Client, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, WINDOW_UPDATE, request,
};
use super::super::http3::{Echo, aioquic};
use super::super::php::scripted::{Scripted, complete_response, send};
use super::super::tls::Certificate;
use bytes::Bytes;
use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

/// A server over HTTP/1.1 and HTTP/2, and at its second address over HTTP/3.
struct Site {
    server: Server,
    _origin: Echo,
    _certificate: Certificate,
    _folder: Folder,
}

/// Serves handlers that read content, and return it except for `/direct`.
fn site(timeouts: &str) -> Site {
    let folder = Folder::with(&[
        ("www/big", &vec![b'x'; 100_000]),
        ("www/echo.php", b"<?php"),
        ("site/page.lhtml", b"<?= request.text() ?>"),
    ]);
    let (origin, certificate) = (Echo::start(), Certificate::new());
    let php = Scripted::start(folder.path(), |asked, stream| {
        let content = String::from_utf8_lossy(&asked.content);
        send(stream, &complete_response(&format!("Content-Type: text/plain\r\n\r\n{content}")))
    });
    let config = format!(
        "workers 1
timeouts {{ {timeouts} }}
site \"*\" {{
    listen \"127.0.0.1:0\" h2c=#true
    listen \"127.0.0.2:0\" tls=#true http3=#true
    tls cert={:?} key={:?}
    route \"/direct\" {{ respond 200 \"x\"; }}
    route \"/proxied\" {{ proxy {:?}; }}
    route \"/page\" {{ pages \"site\"; }}
    route \"/big\" {{ files \"www\"; }}
{}
}}
",
        certificate.chain,
        certificate.key,
        origin.1,
        php.step(&folder.path().join("www"), "")
    );
    Site { server: Server::run(&folder, &config), _origin: origin, _certificate: certificate, _folder: folder }
}

/// Length of the content, the interval between its bytes, and the body timeout: sending all takes longer.
const LENGTH: usize = 15;
const INTERVAL: Duration = Duration::from_millis(80);
const BODY: &str = "body \"800ms\"";

/// The status of each path after all content has arrived. The content of `/direct` is discarded, and its method then
/// refused.
const STATUSES: [(&str, u16); 4] = [("/direct", 405), ("/proxied", 200), ("/echo.php", 200), ("/page", 200)];

/// Sends the first `count` bytes of the content.
fn trickle_over_http1(address: SocketAddr, path: &str, count: usize) -> (u16, Vec<u8>) {
    let mut stream = connect(address);
    let head = format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {LENGTH}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..count {
        thread::sleep(INTERVAL);
        stream.write_all(b"b").unwrap();
    }
    let response = read_response(&mut stream);
    (response.status, response.body)
}

fn trickle_over_http2(address: SocketAddr, path: &str, count: usize) -> (u16, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::post(format!("http://test{path}")).header("content-length", LENGTH);
        let mut requests = requests.ready().await.unwrap();
        let (response, mut content) = requests.send_request(request.body(()).unwrap(), false).unwrap();
        for index in 1..=count {
            tokio::time::sleep(INTERVAL).await;
            content.send_data(Bytes::from_static(b"b"), index == LENGTH).unwrap();
        }
        let response = response.await.unwrap();
        let (status, mut body) = (response.status().as_u16(), response.into_body());
        let mut bytes = Vec::new();
        // A reset follows a refusal.
        while let Some(Ok(piece)) = body.data().await {
            bytes.extend_from_slice(&piece);
        }
        (status, bytes)
    })
}

/// Checks the responses to all content, and to all but its last byte.
fn check(path: &str, status: u16, complete: &(u16, Vec<u8>), incomplete: u16) {
    assert_eq!((complete.0, incomplete), (status, 408), "{path}: {}", String::from_utf8_lossy(&complete.1));
    assert!(status != 200 || complete.1 == [b'b'; LENGTH], "{path}: {}", String::from_utf8_lossy(&complete.1));
}

#[test]
fn a_body_may_be_slow_while_it_arrives() {
    let site = site(BODY);
    let address = site.server.address;
    thread::scope(|scope| {
        for trickle in [trickle_over_http1, trickle_over_http2] {
            for (path, status) in STATUSES {
                let complete = scope.spawn(move || trickle(address, path, LENGTH));
                let incomplete = scope.spawn(move || trickle(address, path, LENGTH - 1));
                scope.spawn(move || check(path, status, &complete.join().unwrap(), incomplete.join().unwrap().0));
            }
        }
    });
}

#[test]
fn a_body_may_be_slow_while_it_arrives_over_http3() {
    let site = site(BODY);
    let (length, interval) = (LENGTH.to_string(), INTERVAL.as_millis().to_string());
    let arguments: Vec<&str> =
        [length.as_str(), interval.as_str()].into_iter().chain(STATUSES.map(|(path, _)| path)).collect();
    let answers = aioquic(site.server.address_of(1), "trickle", &arguments);
    let answers = answers.as_array().unwrap();
    for ((path, status), pair) in STATUSES.into_iter().zip(answers.chunks(2)) {
        let status_of = |answer: &serde_json::Value| answer[0].as_u64().unwrap() as u16;
        let content = pair[0][1].as_str().unwrap().as_bytes().to_vec();
        check(path, status, &(status_of(&pair[0]), content), status_of(&pair[1]));
    }
}

/// Number of bytes that an upload sends at a time.
const PIECE: usize = 100;

#[test]
fn a_paused_stream_is_reset_while_an_upload_goes_on_over_http2() {
    let site = site("write \"1s\"");
    let mut client = Client::connect(&site.server, &[(4, 1_000)]);
    client.get(1, "/big");
    client.frame_like("content", |frame| frame.kind == DATA);
    client.send_frame(HEADERS, END_HEADERS, 3, &request("POST", "/proxied"));
    let mut sent = 0;
    loop {
        assert!(sent < 6_000 * PIECE, "the stream is not reset");
        client.send_frame(DATA, 0, 3, &[b'u'; PIECE]);
        sent += PIECE;
        thread::sleep(Duration::from_millis(20));
        client.send_frame(PING, 0, 0, &[0; 8]);
        let frame = client.frame_like("the reset", |frame| matches!(frame.kind, RST_STREAM | PING));
        if frame.kind == RST_STREAM {
            assert_eq!((frame.stream, frame.number(0)), (1, 8), "CANCEL");
            break;
        }
    }
    client.send_frame(DATA, END_STREAM, 3, b"");
    client.send_frame(WINDOW_UPDATE, 0, 3, &1_000_000_u32.to_be_bytes());
    let mut received = 0;
    loop {
        let frame = client.frame_like("the response", |frame| frame.kind == DATA && frame.stream == 3);
        received += frame.payload.len();
        if frame.ends_stream() {
            break;
        }
    }
    assert_eq!(received, sent);
}

#[test]
fn a_paused_stream_is_reset_while_an_upload_goes_on_over_http3() {
    let site = site("write \"1s\"");
    let answer = aioquic(site.server.address_of(1), "pause", &["/big", "/proxied"]);
    // H3_REQUEST_CANCELLED.
    assert_eq!((&answer["reset"], &answer["upload"]["status"]), (&0x10c.into(), &200.into()), "{answer}");
    assert_eq!(answer["upload"]["size"], answer["sent"], "{answer}");
}
