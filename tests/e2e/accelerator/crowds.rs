//! Crowds in front of a slow origin: clients with too many requests, and clients that disconnect.

use super::super::harness::{Folder, Response, Server, ask_admin, read_response, wait_until};
use super::super::http2::client::{Client, HEADERS};
use super::super::http2::count_of;
use super::super::timeouts::reset;
use super::origin::{Origin, Then, response};
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// A door that holds back the origin's responses until it is opened, or lets some of them pass.
#[derive(Default)]
pub(super) struct Door {
    /// Number of responses that may pass; `usize::MAX` if the door is open.
    passes: Mutex<usize>,
    opened: Condvar,
}

impl Door {
    pub(super) fn pass(&self) {
        let passes = self.passes.lock().unwrap();
        let mut passes = self.opened.wait_while(passes, |passes| *passes == 0).unwrap();
        if *passes < usize::MAX {
            *passes -= 1;
        }
    }

    pub(super) fn open(&self) {
        self.let_pass(usize::MAX);
    }

    pub(super) fn let_pass(&self, count: usize) {
        let mut passes = self.passes.lock().unwrap();
        *passes = passes.saturating_add(count);
        drop(passes);
        self.opened.notify_all();
    }
}

/// An origin whose responses, except the one for `/open`, wait until the door is open.
fn slow_origin() -> (Origin, Arc<Door>) {
    let door = Arc::<Door>::default();
    let behind = Arc::clone(&door);
    let origin = Origin::start(move |request, stream| {
        if request.path() != "/open" {
            behind.pass();
        }
        let _ = stream.write_all(&response("200 OK", "Cache-Control: no-store\r\n", b"late"));
        Then::Keep
    });
    (origin, door)
}

fn start(folder: &Folder, origin: &Origin, top: &str, proxy: &str) -> Server {
    let config = format!(
        "workers 1\nadmin \"{}/admin\"\n{top}\nsite \"*\" {{\n listen \"127.0.0.1:0\" h2c=#true\n\
         route \"/file\" {{ respond 200 \"a file\"; }}\n proxy \"{}\" {{\n {proxy}\n }}\n}}\n",
        folder.path().display(),
        origin.url()
    );
    Server::run(folder, &config)
}

fn send_request(server: &Server, path: &str, fields: &str) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n").as_bytes()).unwrap();
    stream
}

fn fetch(server: &Server, path: &str, fields: &str) -> Response {
    read_response(&mut send_request(server, path, fields))
}

#[test]
fn requests_in_progress_are_limited_per_client_even_behind_a_trusted_proxy() {
    let (origin, door) = slow_origin();
    let folder = Folder::new();
    let limits = "limit-connections { requests per-address=2 total=5; }";
    let server = start(&folder, &origin, limits, "trusted-proxies \"127.0.0.1\"");
    let of = |client: &str| format!("X-Forwarded-For: {client}\r\n");
    let (first, second, third) = (of("192.0.2.1"), of("2001:db8::1"), of("2001:db8:0:1::1"));
    let mut held: Vec<_> = (0..2).map(|_| send_request(&server, "/slow", &first)).collect();
    wait_until("the origin has both requests", || origin.count("/slow") == 2);
    let refused = fetch(&server, "/open", &first);
    assert_eq!((refused.status, refused.field("retry-after")), (429, Some("1")));
    assert_eq!(fetch(&server, "/file", &first).status, 200, "requests that need no origin succeed");
    // All addresses of a /64 network count as one client.
    held.push(send_request(&server, "/slow", &second));
    held.push(send_request(&server, "/slow", &of("2001:db8::2")));
    wait_until("the origin has these requests", || origin.count("/slow") == 4);
    assert_eq!(fetch(&server, "/open", &second).status, 429);
    assert_eq!(fetch(&server, "/open", &third).status, 200, "another network");
    held.push(send_request(&server, "/slow", &third));
    wait_until("the origin has the last request", || origin.count("/slow") == 5);
    let refused = fetch(&server, "/open", &of("192.0.2.9"));
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")), "all clients together");
    let status = ask_admin(&folder, "/status");
    assert!(status.contains("at most 2 per address, at most 5 in total; counting 3 addresses in 512KiB"), "{status}");
    door.open();
    for stream in &mut held {
        assert_eq!(read_response(stream).body, b"late");
    }
    // All permits are free again.
    assert_eq!(fetch(&server, "/open", &first).status, 200);
    drop(held);
    let (_, counters) = server.stop();
    let count = |name: &str| count_of(&counters, name);
    assert_eq!((count("outcome_address_requests_limit"), count("outcome_requests_limit")), (2, 1), "{counters}");
}

/// Number of clients that disconnect while their requests are queued.
const CROWD: usize = 400;

/// Maximum number of concurrent requests to the origin.
const CONCURRENCY: usize = 4;

/// Waits until `count` requests are queued for the origin, in addition to those it is processing.
fn wait_for_queue(folder: &Folder, count: usize) {
    let queued = format!(", {count} queued");
    wait_until(&format!("{count} are queued"), || ask_admin(folder, "/status").contains(&queued));
}

/// Starts a server whose origin is busy, lets `crowd` queue and leave, and asserts that the origin got none of its
/// requests.
fn expect_no_origin_requests<C>(crowd: impl FnOnce(&Server) -> C, leave: impl FnOnce(C)) {
    let (origin, door) = slow_origin();
    let folder = Folder::new();
    let proxy = format!("concurrency min={CONCURRENCY} max={CONCURRENCY} wait=\"1m\"");
    let server = start(&folder, &origin, "", &proxy);
    let mut busy: Vec<_> = (0..CONCURRENCY).map(|_| send_request(&server, "/slow", "")).collect();
    wait_until("the origin is busy", || origin.count("/slow") == CONCURRENCY);
    let crowd = crowd(&server);
    wait_for_queue(&folder, CROWD);
    leave(crowd);
    wait_for_queue(&folder, 0);
    door.open();
    for stream in &mut busy {
        assert_eq!(read_response(stream).body, b"late");
    }
    assert_eq!(fetch(&server, "/open", "").status, 200);
    assert_eq!(origin.count("/left"), 0, "requests of disconnected clients");
}

#[test]
fn queued_requests_of_disconnected_clients_never_reach_the_origin() {
    expect_no_origin_requests(
        |server| (0..CROWD).map(|_| send_request(server, "/left", "")).collect::<Vec<_>>(),
        |mut crowd| {
            // A client that shuts down its write side within 100 ms of its request may still be waiting for the
            // response.
            thread::sleep(Duration::from_millis(300));
            for stream in crowd.split_off(CROWD / 2) {
                reset(stream);
            }
        },
    );
}

#[test]
fn queued_requests_of_reset_streams_never_reach_the_origin() {
    const STREAMS: u32 = 50;
    expect_no_origin_requests(
        |server| {
            let clients = (0..CROWD as u32 / STREAMS).map(|_| {
                let mut client = Client::connect(server, &[]);
                for stream in 0..STREAMS {
                    client.get(2 * stream + 1, "/left");
                }
                client
            });
            clients.collect::<Vec<_>>()
        },
        |mut clients| {
            for client in &mut clients {
                for stream in 0..STREAMS {
                    // RST_STREAM with CANCEL.
                    assert!(client.send_frame(3, 0, 2 * stream + 1, &8_u32.to_be_bytes()));
                }
                // The connection still serves requests.
                client.get(2 * STREAMS + 1, "/file");
                client.frame_like("the file", |frame| frame.kind == HEADERS && frame.stream == 2 * STREAMS + 1);
            }
        },
    );
}
