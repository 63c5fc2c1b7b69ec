//! Slow clients occupy no process of PHP-FPM: flatout buffers what they have not read.

use super::fpm::Fpm;
use super::{get, text};
use crate::e2e::harness::{Folder, Server, connect, read_to_end, wait_until};
use crate::e2e::http2::client::{Client, DATA, HEADERS, RST_STREAM, WINDOW_UPDATE};
use crate::e2e::http3::{Held, aioquic};
use crate::e2e::tls::Certificate;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

const PROCESSES: usize = 3;

/// More than the kernel buffers for a client that does not read.
const LENGTH: usize = 8 << 20;

/// A script that sends [`content`].
pub(super) const BIG: &[u8] = b"<?php for ($i = 0; $i < 512; $i++) { echo str_repeat(chr(65 + $i % 26), 16384); }";

struct Site {
    folder: Folder,
    _fpm: Fpm,
    server: Server,
}

/// A site with `listen` in its block and `settings` in that of `php`.
fn site(listen: &str, settings: &str) -> Site {
    let folder = Folder::with(&[
        ("www/hello.php", b"<?php echo 'hello';"),
        ("www/big.php", BIG),
        ("www/short.php", b"<?php header('Content-Length: 9000000'); for ($i = 0; $i < 512; $i++) { echo str_repeat(chr(65 + $i % 26), 16384); }"),
        ("www/killed.php", b"<?php for ($i = 0; $i < 512; $i++) { echo str_repeat(chr(65 + $i % 26), 16384); } flush(); posix_kill(getmypid(), 9);"),
        ("www/long.php", b"<?php header('Content-Length: 8388608'); for ($i = 0; $i < 528; $i++) { echo str_repeat(chr(65 + $i % 26), 16384); }"),
        ("www/job.php", b"<?php for ($i = 0; $i < 512; $i++) { echo str_repeat(chr(65 + $i % 26), 16384); } fastcgi_finish_request(); touch($_GET['done']);"),
    ]);
    let fpm = Fpm::start(&folder, true, PROCESSES as u32, "");
    let root = folder.path().join("www").display().to_string();
    let text = format!(
        "workers 1
admin off=#true
site \"*\" {{
    listen \"127.0.0.1:0\" {listen}
    route \"/metrics\" {{ metrics; }}
    php {:?} {{ root {root:?}; {settings} }}
}}
",
        fpm.address,
    );
    let server = Server::run(&folder, &text);
    Site { folder, _fpm: fpm, server }
}

pub(super) fn content() -> Vec<u8> {
    (0..LENGTH).map(|at| b'A' + (at / 16_384 % 26) as u8).collect()
}

/// A client that reads only the first byte of the response, which shows that the script runs.
pub(super) fn slow(server: SocketAddr, path: &str) -> TcpStream {
    let mut client = connect(server);
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut first = [0];
    client.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"H");
    client
}

/// Reads the rest of the response, and returns its head, its content without chunked framing, and whether it is
/// complete.
pub(super) fn read(mut client: TcpStream) -> (String, Vec<u8>, bool) {
    let bytes = read_to_end(&mut client);
    let end = memchr::memmem::find(&bytes, b"\r\n\r\n").unwrap() + 4;
    let (head, mut rest) = (String::from_utf8_lossy(&bytes[..end]).into_owned(), &bytes[end..]);
    if !head.contains("chunked") {
        let length = head.split("Content-Length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        return (head.clone(), rest.to_vec(), rest.len() == length.parse::<usize>().unwrap());
    }
    let mut content = Vec::new();
    while let Some(end) = memchr::memmem::find(rest, b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return (head, content, rest[end..] == *b"\r\n\r\n");
        }
        let Some(chunk) = rest.get(end + 2..end + 2 + length) else { break };
        content.extend_from_slice(chunk);
        rest = rest.get(end + 2 + length + 2..).unwrap_or_default();
    }
    (head, content, false)
}

/// The number of bytes that are buffered.
pub(super) fn buffered(server: &Server) -> u64 {
    let answer = text(&get(server, "/metrics"));
    let line = answer.lines().find(|line| line.starts_with("flatout_php_buffered_bytes{")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn assert_others_get_responses(server: &Server) {
    let answer = get(server, "/hello.php");
    assert_eq!((answer.status, text(&answer).as_str()), (200, "hello"));
}

#[test]
fn slow_clients_occupy_no_process_over_http1() {
    let Site { server, .. } = &site("", "");
    let clients: Vec<_> = (0..PROCESSES).map(|_| slow(server.address, "/big.php")).collect();
    assert_others_get_responses(server);
    for client in clients {
        let (_, read, is_complete) = read(client);
        assert!(is_complete && read == content(), "{} bytes", read.len());
    }
}

#[test]
fn slow_clients_occupy_no_process_over_http2() {
    let Site { server, .. } = &site("h2c=#true", "");
    let mut clients: Vec<_> = (0..PROCESSES).map(|_| Client::connect(server, &[])).collect();
    for client in &mut clients {
        client.get(1, "/big.php");
        client.frame_like("the head", |frame| frame.kind == HEADERS);
    }
    assert_others_get_responses(server);
    for client in &mut clients {
        for stream in [0, 1] {
            client.send_frame(WINDOW_UPDATE, 0, stream, &(LENGTH as u32).to_be_bytes());
        }
        let mut read = Vec::new();
        loop {
            let frame = client.frame_like("the end", |frame| frame.kind == DATA);
            read.extend_from_slice(&frame.payload);
            if frame.ends_stream() {
                break;
            }
        }
        assert!(read == content(), "{} bytes", read.len());
    }
}

#[test]
fn slow_clients_occupy_no_process_over_http3() {
    let Certificate { chain, key, .. } = &Certificate::new();
    let site = site(&format!("tls=#true http3=#true\n    tls cert={chain:?} key={key:?}"), "");
    let held = Held::start(site.server.address, "slow", &["/big.php", &PROCESSES.to_string()]);
    let answer = aioquic(site.server.address, "get", &["/hello.php"]);
    assert_eq!((&answer[0]["status"], &answer[0]["body"]), (&200.into(), &"hello".into()));
    let digest: String = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &content())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let read = held.finish();
    let expected = serde_json::json!({ "size": LENGTH, "sha256": digest });
    assert_eq!(read, serde_json::Value::from(vec![expected; PROCESSES]));
}

#[test]
fn the_buffer_is_freed_when_the_client_leaves() {
    let Site { server, .. } = &site("", "");
    let clients: Vec<_> = (0..PROCESSES).map(|_| slow(server.address, "/big.php")).collect();
    wait_until("the rest is buffered", || buffered(server) > PROCESSES as u64 * 2 * 1024 * 1024);
    drop(clients);
    wait_until("the buffers are freed", || buffered(server) == 0);
}

#[test]
fn bounded_buffers_lose_nothing() {
    // The space for less than a receive, which is up to 128 KiB, is left unused.
    for (settings, bytes_min, bytes_max) in
        [("response-spool-limit \"1300KiB\"", 2 * 1172, 2 * 1300), ("spool-total \"3000KiB\"", 2872, 3000)]
    {
        let Site { server, .. } = &site("", settings);
        let clients: Vec<_> = (0..2).map(|_| slow(server.address, "/big.php")).collect();
        wait_until("the buffers are full", || buffered(server) >= bytes_min * 1024);
        assert!(buffered(server) <= bytes_max * 1024, "{settings}: {} bytes", buffered(server));
        for client in clients {
            let (_, read, is_complete) = read(client);
            assert!(is_complete && read == content(), "{settings}: {} bytes", read.len());
        }
        assert_eq!(buffered(server), 0, "{settings}");
    }
}

#[test]
fn slow_clients_detect_incomplete_responses_over_http2() {
    let Site { server, .. } = &site("h2c=#true", "");
    let mut client = Client::connect(server, &[]);
    client.get(1, "/killed.php");
    client.frame_like("the head", |frame| frame.kind == HEADERS);
    // The window is closed while the rest arrives.
    wait_until("the rest is buffered", || buffered(server) > LENGTH as u64 - 512 * 1024);
    for stream in [0, 1] {
        client.send_frame(WINDOW_UPDATE, 0, stream, &(LENGTH as u32).to_be_bytes());
    }
    let mut read = Vec::new();
    loop {
        let frame = client.frame_like("the end", |frame| matches!(frame.kind, DATA | RST_STREAM));
        if frame.kind == RST_STREAM {
            break;
        }
        assert!(!frame.ends_stream());
        read.extend_from_slice(&frame.payload);
    }
    assert!(read == content(), "{} bytes", read.len());
}

#[test]
fn slow_clients_detect_incomplete_responses() {
    let Site { server, folder, .. } = &site("", "");
    for path in ["/short.php", "/killed.php"] {
        let clients: Vec<_> = (0..PROCESSES).map(|_| slow(server.address, path)).collect();
        assert_others_get_responses(server);
        for client in clients {
            let (_, read, is_complete) = read(client);
            assert!(!is_complete && read == content(), "{path}: {} bytes", read.len());
        }
    }
    // More content than declared.
    let client = slow(server.address, "/long.php");
    let (_, read_bytes, is_complete) = read(client);
    assert!(is_complete && read_bytes == content(), "{} bytes", read_bytes.len());
    // The script continues after its response.
    let done = folder.path().join("done");
    let client = slow(server.address, &format!("/job.php?done={}", done.display()));
    wait_until("the script has sent everything", || done.exists());
    let (_, read_bytes, is_complete) = read(client);
    assert!(is_complete && read_bytes == content(), "{} bytes", read_bytes.len());
}
