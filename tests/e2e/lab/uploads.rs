//! Servers that respond before they have read a request, or while they read it.

use super::bench;
use super::http3::secure;
use crate::e2e::harness::Folder;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Far more than the buffers of both sockets hold.
const CONTENT_BYTES: usize = 16 << 20;

const REFUSED: &[u8] = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno\n";

/// Listens, and calls `serve` for every request, on a thread for each connection, once its head has been read. `serve`
/// gets the part of the content that has arrived with the head, and returns whether the connection stays open.
fn listen(serve: impl Fn(&mut TcpStream, &[u8]) -> bool + Send + Sync + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let (mut request, mut piece) = (Vec::new(), [0; 4096]);
                loop {
                    let Ok(count @ 1..) = stream.read(&mut piece) else { return };
                    request.extend_from_slice(&piece[..count]);
                    let end = request.windows(4).position(|window| window == b"\r\n\r\n");
                    if let Some(end) = end {
                        if !serve(&mut stream, &request[end + 4..]) {
                            return;
                        }
                        request.clear();
                    }
                }
            });
        }
    });
    address
}

/// Sends the content back as it arrives.
fn echo(stream: &mut TcpStream, content: &[u8]) -> bool {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {CONTENT_BYTES}\r\n\r\n");
    if stream.write_all(head.as_bytes()).is_err() || stream.write_all(content).is_err() {
        return false;
    }
    let (mut left, mut piece) = (CONTENT_BYTES - content.len(), [0; 16_384]);
    while left > 0 {
        let Ok(count @ 1..) = stream.read(&mut piece) else { return false };
        if stream.write_all(&piece[..count]).is_err() {
            return false;
        }
        left -= count;
    }
    true
}

/// Refuses the request and closes the connection with content unread, which resets it.
fn refuse_and_close(stream: &mut TcpStream, _: &[u8]) -> bool {
    let _ = stream.write_all(REFUSED);
    false
}

/// Refuses the request, and then neither reads nor closes.
fn refuse_and_wait(stream: &mut TcpStream, _: &[u8]) -> bool {
    let _ = stream.write_all(REFUSED);
    // Another descriptor, which is never closed, keeps the connection open.
    std::mem::forget(stream.try_clone());
    false
}

/// Refuses the request, and reads the rest of it before the connection is closed.
fn refuse_and_read(stream: &mut TcpStream, _: &[u8]) -> bool {
    let _ = stream.write_all(REFUSED).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut piece = [0; 16_384];
    while stream.read(&mut piece).is_ok_and(|count| count > 0) {}
    false
}

#[test]
fn a_response_that_comes_before_the_end_of_its_request_is_a_response() {
    let folder = Folder::with(&[("content", &vec![b'c'; CONTENT_BYTES])]);
    let content = folder.path().join("content");
    let content = content.to_str().unwrap();
    for (name, address, status) in [
        ("echo", listen(echo), "200"),
        ("refuse and close", listen(refuse_and_close), "413"),
        ("refuse and read", listen(refuse_and_read), "413"),
        ("refuse and wait", listen(refuse_and_wait), "413"),
    ] {
        let url = format!("http://{address}/");
        let arguments = ["-n", "6", "-c", "2", "--method", "POST", "--body", content, "--expect-status", status];
        let run = bench(&[&[url.as_str()][..], &arguments].concat());
        assert_eq!(run.code, Some(0), "{name}: {} {}", run.stdout, run.stderr);
        assert_eq!(run.json["statuses"][status], 6, "{name}: {}", run.stdout);
        let received = if status == "200" { 6 * CONTENT_BYTES as u64 } else { 18 };
        assert_eq!(run.number("body_bytes_in"), received, "{name}");
    }
}

/// flatout refuses an upload to a file, while the client still sends it.
#[test]
fn a_response_that_comes_early_over_tls_is_a_response_in_every_version() {
    let (folder, certificate, server) = secure();
    fs::write(folder.path().join("content"), vec![b'c'; CONTENT_BYTES]).unwrap();
    let (authority, content) = (certificate.authority(), folder.path().join("content"));
    let url = format!("https://localhost:{}/a.txt", server.address.port());
    for version in ["1.1", "2", "3"] {
        let run = bench(&[
            &url,
            "--cacert",
            authority.to_str().unwrap(),
            "--http",
            version,
            "-n",
            "6",
            "-c",
            "2",
            "--method",
            "POST",
            "--body",
            content.to_str().unwrap(),
            "--expect-status",
            "413",
        ]);
        assert_eq!(run.code, Some(0), "{version}: {} {}", run.stdout, run.stderr);
        assert_eq!(run.json["statuses"]["413"], 6, "{version}: {}", run.stdout);
    }
}
