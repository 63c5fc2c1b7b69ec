//! Many who ask for one thing at once: one fetch for all of them where that is right, and none who waits for another
//! where it is not.

use super::super::harness::{Folder, Server, TIMEOUT, wait_until};
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

/// Asks for `target` with as many clients at once, each with a name of its own; their answers, and when the last came.
fn ask_at_once(server: &Server, clients: usize, target: &str) -> (Vec<Answer>, Duration) {
    ask_at_once_with("", server, clients, target)
}

/// The same with more lines of fields.
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

/// What no other cache does together: one fetch of what may be shared, no queue for what may not, and an answer from
/// before when the origin fails.
#[test]
fn all_three_at_once() {
    let is_failing = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&is_failing);
    let origin = Origin::answering(move |request| {
        if failing.load(Ordering::SeqCst) {
            return response("503 Service Unavailable", "", b"no");
        }
        thread::sleep(DELAY);
        match request.path() {
            "/shared" => {
                response("200 OK", "Cache-Control: max-age=3, stale-if-error=600\r\nETag: \"a\"\r\n", b"shared")
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
        assert_eq!(origin.requests().len() - before, 1, "one fetch for all");

        let (answers, cold) = ask_at_once(&server, CLIENTS, "/private");
        for (client, answer) in answers.iter().enumerate() {
            assert_eq!((answer.status, answer.text()), (200, client.to_string()), "everybody has their own");
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
        wait_until("what is stored is stale", is_stale);
        let (answers, failed) = ask_at_once(&server, CLIENTS, "/shared");
        assert!(answers.iter().all(|answer| answer.status == 200 && answer.text() == "shared"), "{:?}", answers[0]);
        println!(
            "{workers} workers, {CLIENTS} clients, an origin of {DELAY:?}: shared {shared:?}, private {cold:?}, private \
             once known {known:?}, private with Authorization {authorized:?}, stale instead of 503 {failed:?}"
        );
        // A busy machine may take long, but one after another they would take 25 seconds.
        for time in [shared, cold, known, authorized, failed] {
            assert!(time < DELAY * 10, "{time:?}");
        }
    }
}

/// An origin that answers only when all have asked would wait forever for requests that wait for one another.
#[test]
fn what_is_known_to_be_private_waits_for_nobody() {
    let (count, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(CLIENTS)));
    let origin = Origin::answering(move |request| {
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

/// What is asked for with Authorization belongs to who asks, as far as anybody knows: nobody waits, not even the first
/// time.
#[test]
fn what_is_asked_for_with_authorization_waits_for_nobody() {
    let all = Arc::new(Barrier::new(CLIENTS));
    let origin = Origin::answering(move |request| {
        all.wait();
        response("200 OK", "Cache-Control: private\r\n", request.field("x-client").unwrap_or_default().as_bytes())
    });
    let server = accelerate(&origin, &["--workers", "2"]);
    let (answers, _) = ask_at_once_with(AUTHORIZATION, &server, CLIENTS, "/mine");
    assert!(answers.iter().enumerate().all(|(client, answer)| answer.text() == client.to_string()));
}

fn object(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4).flat_map(|index| index.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// Asks for `target` and compares what comes with `expected` as it comes; when its last byte came.
fn compare(mut stream: TcpStream, target: &str, expected: &[u8]) -> Instant {
    write!(stream, "GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let (mut head, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    let end = loop {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "cut within its head");
        head.extend_from_slice(&buffer[..count]);
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{:?}", String::from_utf8_lossy(&head[..end]));
    let mut seen = head.len() - end;
    assert!(head[end..] == expected[..seen]);
    while seen < expected.len() {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "cut after {seen} bytes");
        assert!(expected.get(seen..seen + count) == Some(&buffer[..count]), "other bytes at {seen}");
        seen += count;
    }
    Instant::now()
}

#[test]
fn a_stampede_is_one_request() {
    const CROWD: usize = 1000;
    let body = Arc::new(object(1024 * 1024));
    let sent = Arc::clone(&body);
    let origin = Origin::answering(move |_| {
        thread::sleep(Duration::from_secs(2));
        response("200 OK", "Cache-Control: max-age=60\r\n", &sent)
    });
    let server = accelerate(&origin, &["--workers", "2"]);
    allow_descriptors(std::process::id(), CROWD as u64 + 2000);
    allow_descriptors(server.pid(), CROWD as u64 + 200);
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
    assert!(*last - *first < Duration::from_secs(30));
}

/// Sends the first half, waits until `go_on`, then the second.
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
fn all_stream_from_one_fetch_as_it_comes_and_it_outlives_who_began_it() {
    for workers in ["1", "2"] {
        let (body, go_on) = (Arc::new(object(256 * 1024)), Arc::new(AtomicBool::new(false)));
        let origin = origin_of_two_halves(&body, &go_on);
        let server = accelerate(&origin, &["--workers", workers]);
        let request = b"GET /streamed HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        let mut first = server.connect();
        first.write_all(request).unwrap();
        // More than a head: content comes before the fetch is done.
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

/// Everybody leaves: whether the fetch goes on or not, nothing broken is kept of it.
#[test]
fn a_fetch_that_everybody_left_leaves_nothing_broken() {
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

/// One who does not read holds up neither the others nor what is behind memory's budget, and gets all of it later.
#[test]
fn a_slow_client_holds_nobody_up() {
    let body = Arc::new(object(48 * 1024 * 1024));
    let sent = Arc::clone(&body);
    let origin = Origin::answering(move |_| response("200 OK", "Cache-Control: max-age=60\r\n", &sent));
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
    // What is larger than memory's budget is not held in memory for anybody.
    let rss = server.memory_kb("RssAnon");
    println!("RssAnon after three times 48 MiB with a budget of 16 MiB: {rss} kB");
    assert!(rss < 32 * 1024, "{rss} kB");
}

/// A crowd on what turns out to be nobody else's is let go at once, and the next crowd does not gather.
#[test]
fn a_crowd_on_an_error_is_answered_once() {
    let origin = Origin::answering(|_| {
        thread::sleep(Duration::from_millis(200));
        response("404 Not Found", "Cache-Control: max-age=60\r\n", b"none")
    });
    let server = accelerate(&origin, &["--workers", "2"]);
    let (answers, _) = ask_at_once(&server, CLIENTS, "/none");
    assert!(answers.iter().all(|answer| answer.status == 404 && answer.text() == "none"));
    assert_eq!(origin.requests().len(), 1);
}

/// Freshening is one question as well, however many wait for it.
#[test]
fn a_crowd_on_a_stale_answer_asks_once() {
    let origin = Origin::answering(|request| {
        if request.field("if-none-match").is_some() {
            thread::sleep(Duration::from_millis(300));
            return b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n\r\n".to_vec();
        }
        response("200 OK", "ETag: \"a\"\r\nCache-Control: max-age=2\r\n", b"the same")
    });
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), "", "");
    assert_eq!(get(&server, "/page").text(), "the same");
    // Until it is stale, which whole seconds tell.
    thread::sleep(Duration::from_secs(3));
    let (answers, _) = ask_at_once(&server, CLIENTS, "/page");
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.text() == "the same"));
    wait_until("one question", || origin.requests().len() == 2);
}
