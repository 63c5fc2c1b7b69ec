//! The time that the attempts of one request share.

use super::super::super::harness::{Folder, TIMEOUT, read_response};
use super::super::origin::{Origin, Then};
use super::super::{configure, converse};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// The second origin has what the first one has left of the head timeout.
#[test]
fn a_retry_has_the_rest_of_the_head_timeout() {
    const HEAD: Duration = Duration::from_secs(6);
    const FIRST: Duration = Duration::from_secs(3);
    let requests =
        ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\ncontent"];
    let both = Barrier::new(requests.len());
    thread::scope(|scope| {
        for request in requests {
            let both = &both;
            scope.spawn(move || {
                let (asked, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
                let slow = || {
                    let (asked, is_over) = (Arc::clone(&asked), Arc::clone(&is_over));
                    Origin::start(move |_, _| {
                        if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                            thread::sleep(FIRST);
                        } else {
                            while !is_over.load(Ordering::SeqCst) {
                                thread::sleep(Duration::from_millis(10));
                            }
                        }
                        Then::Close
                    })
                };
                let (origins, folder) = ([slow(), slow()], Folder::new());
                let urls = format!("{}\" \"{}", origins[0].url(), origins[1].url());
                let proxy = format!("retries 2\npassive off=#true\ntimeouts {{ head \"{}s\" }}", HEAD.as_secs());
                let server = configure(&folder, &urls, "", &proxy);
                both.wait();
                let begun = Instant::now();
                let closing = request.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
                assert_eq!(converse(&server, closing.as_bytes())[0].status, 504, "{request}");
                let elapsed = begun.elapsed();
                is_over.store(true, Ordering::SeqCst);
                assert_eq!(asked.load(Ordering::SeqCst), 2, "{request}");
                // With a head timeout of its own, the second origin would have had until the sum of both.
                let expected = HEAD.saturating_sub(Duration::from_millis(100))..FIRST + HEAD;
                assert!(expected.contains(&elapsed), "{elapsed:?} {request}");
            });
        }
    });
}

const HALF: &[u8] = b"half";

/// How long the content is on its way: longer than the head timeout.
const HEAD: Duration = Duration::from_secs(2);
const UPLOAD: Duration = Duration::from_millis(2_500);

/// An origin that closes its first connection without a response, and responds on the second one. On the first, it waits
/// for all content, or, if `is_impatient`, closes while the client still has to send half of it. `has_half` is told of
/// each other connection when half of the content has arrived.
fn start_failing(is_impatient: bool, has_half: Sender<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for (index, stream) in listener.incoming().enumerate() {
            let (mut stream, mut bytes) = (stream.unwrap(), Vec::new());
            let mut read_to = |end: &[u8]| {
                while !bytes.ends_with(end) {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    bytes.push(byte[0]);
                }
            };
            read_to(b"\r\n\r\nhalf");
            if index == 0 && is_impatient {
                thread::sleep(UPLOAD);
                continue;
            }
            let _ = has_half.send(());
            read_to(b"halfhalf");
            if index > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        }
    });
    url
}

/// An origin is not late while the client still sends the content.
#[test]
fn a_slow_upload_takes_no_time_from_a_retry() {
    for is_impatient in [false, true] {
        let (has_half, half) = channel();
        let url = start_failing(is_impatient, has_half);
        let folder = Folder::new();
        let proxy = format!("retries 1\npassive off=#true\ntimeouts {{ head \"{}s\" }}", HEAD.as_secs());
        let server = configure(&folder, &url, "", &proxy);
        let mut stream = server.connect();
        stream.write_all(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n").unwrap();
        stream.write_all(HALF).unwrap();
        half.recv_timeout(TIMEOUT).unwrap();
        if !is_impatient {
            thread::sleep(UPLOAD);
        }
        stream.write_all(HALF).unwrap();
        assert_eq!(read_response(&mut stream).status, 200, "{is_impatient}");
    }
}
