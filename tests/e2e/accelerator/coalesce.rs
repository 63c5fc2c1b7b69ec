//! Many clients that request the same URL at once: they share one fetch if that is allowed, and none waits for another
//! if it is not.

use super::super::harness::{Folder, Server, TIMEOUT, uninterrupted, wait_until};
use super::super::memory::allow_descriptors;
use super::origin::{Origin, Then, response};
use super::{Answer, accelerate, configure, get};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 50;
const AUTHORIZATION: &str = "Authorization: Basic bWU6bWU=\r\n";
const DELAY: Duration = Duration::from_millis(500);

/// Requests `target` with this many clients at once, each under its own name. Returns their responses, and how long the
/// last one took.
fn ask_at_once(server: &Server, clients: usize, target: &str) -> (Vec<Answer>, Duration) {
    ask_at_once_with("", server, clients, target)
}

/// Like [`ask_at_once`], with additional field lines.
fn ask_at_once_with(more: &str, server: &Server, clients: usize, target: &str) -> (Vec<Answer>, Duration) {
    let start_line = Barrier::new(clients + 1);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|client| {
                let start_line = &start_line;
                scope.spawn(move || {
                    let mut stream = server.connect();
                    start_line.wait();
                    let fields = format!("Host: test\r\nX-Client: {client}\r\n{more}Connection: close\r\n");
                    write!(stream, "GET {target} HTTP/1.1\r\n{fields}\r\n").unwrap();
                    let mut bytes = Vec::new();
                    stream.read_to_end(&mut bytes).unwrap();
                    Answer::take(&mut bytes.as_slice(), false).unwrap()
                })
            })
            .collect();
        start_line.wait();
        let start = Instant::now();
        let answers = clients.into_iter().map(|client| client.join().unwrap()).collect();
        (answers, start.elapsed())
    })
}

/// A combination that no other cache offers: one fetch for a shareable response, no queue for private responses, and a
/// stale response if the origin fails.
#[test]
fn shared_private_and_stale_responses_at_once() {
    let is_failing = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&is_failing);
    let origin = Origin::responding(move |request| {
        if failing.load(Ordering::SeqCst) {
            return response("503 Service Unavailable", "", b"no");
        }
        thread::sleep(DELAY);
        match request.path() {
            "/shared" => {
                response("200 OK", "Cache-Control: max-age=10, stale-if-error=600\r\nETag: \"a\"\r\n", b"shared")
            }
            _ => response("200 OK", "Cache-Control: private\r\n", request.field("x-client").unwrap().as_bytes()),
        }
    });
    for workers in ["1", "2"] {
        is_failing.store(false, Ordering::SeqCst);
        let before = origin.requests().len();
        let server = accelerate(&origin, &["--workers", workers]);
        let (answers, shared) = ask_at_once(&server, CLIENTS, "/shared");
        assert!(answers.iter().all(|answer| answer.status == 200 && answer.text() == "shared"));
        assert_eq!(origin.requests().len() - before, 1, "one fetch for all clients");

        let (answers, cold) = ask_at_once(&server, CLIENTS, "/private");
        for (client, answer) in answers.iter().enumerate() {
            assert_eq!((answer.status, answer.text()), (200, client.to_string()), "every client gets its own response");
        }
        assert_eq!(origin.requests().len() - before, 1 + CLIENTS);
        let (answers, known) = ask_at_once(&server, CLIENTS, "/private");
        assert!(answers.iter().enumerate().all(|(client, answer)| answer.text() == client.to_string()));

        let (answers, authorized) = ask_at_once_with(AUTHORIZATION, &server, CLIENTS, "/mine");
        assert!(answers.iter().enumerate().all(|(client, answer)| answer.text() == client.to_string()));

        is_failing.store(true, Ordering::SeqCst);
        let is_stale = || {
            let answer = get(&server, "/shared");
            answer.field("cache-status").is_some_and(|status| status.contains("hit_if_error"))
        };
        wait_until("the stored response is stale", is_stale);
        let (answers, failed) = ask_at_once(&server, CLIENTS, "/shared");
        assert!(answers.iter().all(|answer| answer.status == 200 && answer.text() == "shared"), "{:?}", answers[0]);
        println!(
            "{workers} workers, {CLIENTS} clients, an origin of {DELAY:?}: shared {shared:?}, private {cold:?}, private \
             once known {known:?}, private with Authorization {authorized:?}, stale instead of 503 {failed:?}"
        );
        // A busy machine may be slow, but if the requests ran one after another they would take 25 seconds.
        for time in [shared, cold, known, authorized, failed] {
            assert!(time < DELAY * CLIENTS as u32 / 2, "{time:?}");
        }
    }
}

/// The origin responds only after all requests have arrived, so requests that waited for one another would wait
/// forever.
#[test]
fn requests_for_private_responses_do_not_wait() {
    let (count, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(CLIENTS)));
    let origin = Origin::responding(move |request| {
        if count.fetch_add(1, Ordering::SeqCst) > 0 {
            all.wait();
        }
        response("200 OK", "Cache-Control: private\r\n", request.field("x-client").unwrap_or_default().as_bytes())
    });
    let server = accelerate(&origin, &["--workers", "2"]);
    assert_eq!(get(&server, "/private").status, 200);
    let (answers, _) = ask_at_once(&server, CLIENTS, "/private");
    assert!(answers.iter().enumerate().all(|(client, answer)| answer.text() == client.to_string()));
}

/// A response to a request with Authorization is treated as private: no request waits, not even the first time.
#[test]
fn requests_with_authorization_do_not_wait() {
    let all = Arc::new(Barrier::new(CLIENTS));
    let origin = Origin::responding(move |request| {
        all.wait();
        response("200 OK", "Cache-Control: private\r\n", request.field("x-client").unwrap_or_default().as_bytes())
    });
    let server = accelerate(&origin, &["--workers", "2"]);
    let (answers, _) = ask_at_once_with(AUTHORIZATION, &server, CLIENTS, "/mine");
    assert!(answers.iter().enumerate().all(|(client, answer)| answer.text() == client.to_string()));
}

pub(super) fn object(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4).flat_map(|index| index.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// Requests `target` and compares the content with `expected` as it arrives. Returns when the last byte arrived.
fn compare(mut stream: TcpStream, target: &str, expected: &[u8]) -> Instant {
    write!(stream, "GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let (mut head, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    let end = loop {
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        assert!(count > 0, "truncated within the head");
        head.extend_from_slice(&buffer[..count]);
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{:?}", String::from_utf8_lossy(&head[..end]));
    let mut seen = head.len() - end;
    assert!(head[end..] == expected[..seen]);
    while seen < expected.len() {
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        assert!(count > 0, "truncated after {seen} bytes");
        assert!(expected.get(seen..seen + count) == Some(&buffer[..count]), "wrong bytes at {seen}");
        seen += count;
    }
    Instant::now()
}

#[test]
fn a_stampede_causes_one_origin_request() {
    const CROWD: usize = 1000;
    let body = Arc::new(object(1024 * 1024));
    let sent = Arc::clone(&body);
    let origin = Origin::responding(move |_| {
        thread::sleep(Duration::from_secs(2));
        response("200 OK", "Cache-Control: max-age=600\r\n", &sent)
    });
    let server = accelerate(&origin, &["--workers", "2"]);
    allow_descriptors(std::process::id(), CROWD as u64 + 2000);
    allow_descriptors(server.worker(), CROWD as u64 + 200);
    let ends: Vec<Instant> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CROWD)
            .map(|_| {
                let (server, body) = (&server, &body);
                let client = thread::Builder::new().stack_size(128 * 1024);
                client.spawn_scoped(scope, move || compare(server.connect(), "/large", body)).unwrap()
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(origin.requests().len(), 1);
    let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
    println!("{CROWD} clients of a cold 1 MiB object: the last is done {:?} after the first", *last - *first);
    assert!(*last - *first < Duration::from_mins(1));
}

/// An origin that sends the first half, waits until `go_on` is set, and then sends the second half.
fn origin_of_two_halves(body: &Arc<Vec<u8>>, go_on: &Arc<AtomicBool>) -> Origin {
    let (body, go_on) = (Arc::clone(body), Arc::clone(go_on));
    Origin::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n", body.len());
        let half = body.len() / 2;
        let _ = stream.write_all(&[head.as_bytes(), &body[..half]].concat());
        let start = Instant::now();
        while !go_on.load(Ordering::SeqCst) && start.elapsed() < TIMEOUT {
            thread::sleep(Duration::from_millis(2));
        }
        let _ = stream.write_all(&body[half..]);
        Then::Keep
    })
}

/// Reads at least `count` bytes.
fn read_some(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn all_clients_stream_from_one_fetch_that_outlives_its_first_client() {
    for workers in ["1", "2"] {
        let (body, go_on) = (Arc::new(object(256 * 1024)), Arc::new(AtomicBool::new(false)));
        let origin = origin_of_two_halves(&body, &go_on);
        let server = accelerate(&origin, &["--workers", workers]);
        let request = b"GET /streamed HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        let mut first = server.connect();
        first.write_all(request).unwrap();
        // More than the head, so content arrives before the fetch is complete.
        read_some(&mut first, 64 * 1024);
        let mut others: Vec<_> = (0..8).map(|_| server.connect()).collect();
        for other in &mut others {
            other.write_all(request).unwrap();
            read_some(other, 64 * 1024);
        }
        drop(first);
        go_on.store(true, Ordering::SeqCst);
        for mut other in others {
            let mut rest = Vec::new();
            other.read_to_end(&mut rest).unwrap();
            assert!(body.ends_with(&rest) && rest.len() >= body.len() / 2, "{} bytes", rest.len());
        }
        assert_eq!(get(&server, "/streamed").body, *body);
        assert_eq!(origin.requests().len(), 1);
    }
}

/// All clients disconnect. Whether or not the fetch continues, no incomplete response is stored.
#[test]
fn a_fetch_abandoned_by_all_clients_stores_nothing_incomplete() {
    let (body, go_on) = (Arc::new(object(256 * 1024)), Arc::new(AtomicBool::new(false)));
    let origin = origin_of_two_halves(&body, &go_on);
    let server = accelerate(&origin, &[]);
    for _ in 0..4 {
        let mut stream = server.connect();
        stream.write_all(b"GET /left HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        read_some(&mut stream, 64 * 1024);
    }
    go_on.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let answer = get(&server, "/left");
        assert!(answer.status == 200 && answer.is_whole && answer.body == *body);
    }
}

/// A client that does not read delays no other client, does not exceed the memory budget, and still gets the full content later.
#[test]
fn a_slow_client_delays_nobody() {
    let body = Arc::new(object(48 * 1024 * 1024));
    let sent = Arc::clone(&body);
    let origin = Origin::responding(move |_| response("200 OK", "Cache-Control: max-age=60\r\n", &sent));
    let server = accelerate(&origin, &["--memory", "16MiB"]);
    let mut slow = server.connect();
    slow.write_all(b"GET /huge HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    read_some(&mut slow, 1);
    for _ in 0..2 {
        compare(server.connect(), "/huge", &body);
    }
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(&body));
    // A response larger than the memory budget is not held in memory for anybody.
    let rss = server.memory_kb("RssAnon");
    println!("RssAnon after three times 48 MiB with a budget of 16 MiB: {rss} kB");
    assert!(rss < 32 * 1024, "{rss} kB");
}

/// A cacheable error is fetched once, and all clients get this response.
#[test]
fn a_crowd_on_an_error_shares_one_response() {
    let origin = Origin::responding(|_| {
        thread::sleep(Duration::from_millis(200));
        response("404 Not Found", "Cache-Control: max-age=60\r\n", b"none")
    });
    let server = accelerate(&origin, &["--workers", "2"]);
    let (answers, _) = ask_at_once(&server, CLIENTS, "/none");
    assert!(answers.iter().all(|answer| answer.status == 404 && answer.text() == "none"));
    assert_eq!(origin.requests().len(), 1);
}

/// However many clients request a stale response, it is validated once.
#[test]
fn a_crowd_on_a_stale_response_causes_one_validation() {
    let origin = Origin::responding(|request| {
        if request.field("if-none-match").is_some() {
            thread::sleep(Duration::from_millis(300));
            return b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n\r\n".to_vec();
        }
        response("200 OK", "ETag: \"a\"\r\nCache-Control: max-age=2\r\n", b"the same")
    });
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), "", "");
    assert_eq!(get(&server, "/page").text(), "the same");
    // The response has to become stale, and lifetimes are in whole seconds.
    thread::sleep(Duration::from_secs(3));
    let (answers, _) = ask_at_once(&server, CLIENTS, "/page");
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.text() == "the same"));
    wait_until("one validation request", || origin.requests().len() == 2);
}
