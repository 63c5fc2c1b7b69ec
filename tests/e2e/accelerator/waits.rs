//! Slow requests beside quick ones, with default settings: those that wait are no load, and stop nobody.

use super::super::harness::{Folder, Server, ask_admin, read_response, wait_until};
use super::super::http2::client::{Client, HEADERS};
use super::crowds::Door;
use super::origin::{Origin, Then, response};
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An origin whose `/poll` waits for the door and whose `/never` waits for ever. It counts the polls.
fn start_origin() -> (Origin, Arc<Door>, Arc<AtomicUsize>) {
    let (door, never, polls) = (Arc::<Door>::default(), Arc::<Door>::default(), Arc::<AtomicUsize>::default());
    let (behind, counted) = (Arc::clone(&door), Arc::clone(&polls));
    let origin = Origin::start(move |request, stream| {
        match request.path() {
            "/poll" => {
                counted.fetch_add(1, Ordering::SeqCst);
                behind.pass();
            }
            "/never" => never.pass(),
            _ => {}
        }
        let _ = stream.write_all(&response("200 OK", "Cache-Control: no-store\r\n", b"response"));
        Then::Keep
    });
    (origin, door, polls)
}

fn start(folder: &Folder, origin: &Origin, proxy: &str) -> Server {
    let config = format!(
        "workers 2\nadmin \"{}/admin\"\nsite \"*\" {{\n listen \"127.0.0.1:0\" h2c=#true\n proxy \"{}\" {{\n {proxy}\n }}\n}}\n",
        folder.path().display(),
        origin.url()
    );
    Server::run(folder, &config)
}

fn send(server: &Server, path: &str) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
    stream
}

/// Asserts that requests for pages, some of them for the first time, get their responses.
fn expect_pages(server: &Server, count: usize) {
    let mut stream = server.connect();
    for number in 0..count {
        let path = if number % 4 == 0 { format!("/pages/{number}") } else { "/page".to_owned() };
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(read_response(&mut stream).status, 200, "{path}");
    }
}

#[test]
fn long_polls_stop_nobody() {
    const POLLS: usize = 2_000;
    let (origin, door, polls) = start_origin();
    let folder = Folder::new();
    let server = start(&folder, &origin, "");
    expect_pages(&server, 20);
    // At first, flatout does not know that they are slow.
    let mut held: Vec<_> = (0..POLLS).map(|_| send(&server, "/poll")).collect();
    wait_until("the origin has all polls", || polls.load(Ordering::SeqCst) == POLLS);
    expect_pages(&server, 1_000);
    let status = ask_admin(&folder, "/status");
    assert!(status.contains(&format!("{POLLS} of 8192 requests in progress")), "{status}");
    assert!(status.contains(&format!("most of them for /poll ({POLLS})")), "{status}");
    let metrics = ask_admin(&folder, "/metrics");
    let gauge = format!("state=\"in_progress\"}} {POLLS}\n");
    assert!(metrics.contains(&gauge) && !metrics.contains("flatout_origin_limit{"), "{metrics}");
    door.open();
    for stream in &mut held {
        assert_eq!(read_response(stream).status, 200);
    }
    expect_pages(&server, 100);
    let (_, said) = server.stop();
    assert!(!said.contains("origin_limit_began"), "{said}");
}

/// The first polls end at once, and the others one after another, as with events: their delays grow, although the origin
/// is idle.
#[test]
#[ignore = "decides by timing"]
fn polls_that_end_one_after_another_stop_nobody() {
    const POLLS: usize = 600;
    let (origin, door, polls) = start_origin();
    let folder = Folder::new();
    let server = start(&folder, &origin, "");
    expect_pages(&server, 20);
    for _ in 0..4 {
        door.let_pass(1);
        assert_eq!(read_response(&mut send(&server, "/poll")).status, 200);
    }
    let mut held: Vec<_> = (0..POLLS).map(|_| send(&server, "/poll")).collect();
    wait_until("the origin has all polls", || polls.load(Ordering::SeqCst) == POLLS + 4);
    for _ in 0..POLLS / 8 {
        door.let_pass(8);
        expect_pages(&server, 1);
    }
    door.open();
    for stream in &mut held {
        assert_eq!(read_response(stream).status, 200);
    }
    expect_pages(&server, 100);
    let (_, said) = server.stop();
    assert!(!said.contains("origin_limit_began"), "{said}");
}

#[test]
fn polls_over_few_http2_connections_stop_nobody() {
    const CONNECTIONS: usize = 10;
    const STREAMS: u32 = 100;
    let (origin, door, polls) = start_origin();
    let folder = Folder::new();
    let server = start(&folder, &origin, "");
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| Client::connect(&server, &[])).collect();
    for client in &mut clients {
        (0..STREAMS).for_each(|stream| client.get(2 * stream + 1, "/poll"));
    }
    wait_until("the origin has all polls", || polls.load(Ordering::SeqCst) == CONNECTIONS * STREAMS as usize);
    expect_pages(&server, 1_000);
    door.open();
    for client in &mut clients {
        for _ in 0..STREAMS {
            client.frame_like("a response", |frame| frame.kind == HEADERS);
        }
    }
    expect_pages(&server, 100);
}

#[test]
fn a_url_that_times_out_stops_nobody() {
    let (origin, _door, _) = start_origin();
    let folder = Folder::new();
    let server = start(&folder, &origin, "timeouts { head \"300ms\"; }\nretries 0");
    for _ in 0..4 {
        let mut late: Vec<_> = (0..12).map(|_| send(&server, "/never")).collect();
        expect_pages(&server, 100);
        for stream in &mut late {
            assert_eq!(read_response(stream).status, 504);
        }
        expect_pages(&server, 100);
    }
    let (_, said) = server.stop();
    assert!(!said.contains("origin_limit_began") && !said.contains("origin_paused"), "{said}");
}

/// An operator who knows that the application has few threads sets a maximum. Slow requests leave a quarter of it.
#[test]
fn slow_requests_leave_places_below_a_maximum() {
    let (origin, door, polls) = start_origin();
    let folder = Folder::new();
    let server = start(&folder, &origin, "concurrency max=8 wait=\"1m\"");
    expect_pages(&server, 20);
    let mut held: Vec<_> = (0..20).map(|_| send(&server, "/poll")).collect();
    wait_until("the others are queued", || {
        ask_admin(&folder, "/status").contains("of slow kinds: 0 waiting for a response head (no limit), 14 queued")
    });
    wait_until("the origin has the others", || polls.load(Ordering::SeqCst) == 6);
    expect_pages(&server, 500);
    assert_eq!(polls.load(Ordering::SeqCst), 6);
    door.open();
    for stream in &mut held {
        assert_eq!(read_response(stream).status, 200);
    }
}
