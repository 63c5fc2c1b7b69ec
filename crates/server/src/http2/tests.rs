//! Tests with a small handler and the client of the h2 crate, for behaviour that serving files cannot produce.

mod streams;

use crate::counters::Counters;
use crate::{Listener, Phase, Protocol, Settings, WorkerParts, command_channel, phase_channel, run_worker};
use flatout_handler::response::{Body, FileBody, Head, Response, Segment};
use flatout_handler::{Handler, Reply, Request};
use flatout_http::target::Target;
use flatout_http::timeouts::Timeouts;
use flatout_os::clock::Now;
use flatout_os::file::{FileIdentity, OpenFile};
use flatout_os::runtime::build_runtime;
use flatout_os::socket::{ListenOptions, bind_listener};
use flatout_reason::{Outcome, Table};
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use std::future::poll_fn;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use tokio::net::TcpStream;
use tokio::task::{spawn_local, yield_now};

/// Responds according to the path.
struct Script;

fn bytes(text: impl Into<Vec<u8>>) -> Response {
    Response::new(
        200,
        Head::new(200, &[("Content-Type", "text/plain")]),
        Body::Bytes(text.into().into()),
        Outcome::NONE,
    )
}

fn segments() -> Body {
    let path = std::env::temp_dir().join(format!("flatout-http2-{}", std::process::id()));
    let mut file = std::fs::File::create_new(&path).unwrap();
    file.write_all(&vec![b'f'; 100_000]).unwrap();
    let fd = OwnedFd::from(std::fs::File::open(&path).unwrap());
    std::fs::remove_file(path).unwrap();
    let identity = FileIdentity::read(&fd).unwrap();
    let file = Rc::new(OpenFile::new(fd, identity, None));
    Body::Segments(vec![
        Segment::Bytes(b"".to_vec().into()),
        Segment::Bytes(vec![b'a'; 50_000].into()),
        Segment::File(FileBody { file: Rc::clone(&file), offset: 10, bytes: 90_000 }),
        Segment::Bytes(b"".to_vec().into()),
        Segment::File(FileBody { file, offset: 0, bytes: 5 }),
    ])
}

impl Handler for Script {
    const OUTCOMES: &'static [&'static Table] = &[];

    fn handle(&self, request: &Request<'_>, _now: Now) -> Reply {
        let Target::Resource { path, .. } = request.head.target else { return bytes("none").into() };
        match path {
            b"/hints" => {
                let links = vec!["</a.css>; rel=preload; as=style".to_owned(), "</b.js>; rel=preload".to_owned()];
                Response { early_links: Some(Rc::new(links)), ..bytes("hinted") }.into()
            }
            b"/later" => Reply::later(async {
                for _ in 0..3 {
                    yield_now().await;
                }
                Response { extra: Some(Rc::from(&b"X-Later: yes\r\nDate: never\r\n"[..])), ..bytes("later") }
            }),
            b"/never" => Reply::later(std::future::pending()),
            b"/segments" => Response::new(200, Head::new(200, &[]), segments(), Outcome::NONE).into(),
            _ => {
                let lines: Vec<_> = request.head.fields.all("cookie").collect();
                let host = request.head.host.unwrap_or_default();
                bytes([&lines.join(&b'|')[..], b" ", host].concat()).into()
            }
        }
    }
}

/// Runs `client` against a worker. Returns the worker's counters.
fn with_worker<F: Future<Output = ()>>(client: impl FnOnce(SocketAddr) -> F) -> Arc<Counters> {
    let (fd, address) = bind_listener(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::DEFAULT).unwrap();
    let (phase, phases) = phase_channel();
    let counters = Arc::<Counters>::default();
    let counted = Arc::clone(&counters);
    let timeouts = Timeouts { drain_timeout_ms: 5000, ..Timeouts::DEFAULT };
    let worker = thread::spawn(move || {
        let parts = WorkerParts {
            handler: Script,
            settings: Settings { timeouts, ..Settings::default() },
            tls: None,
            quic: None,
            listeners: vec![Listener { fd, id: 0, protocol: Protocol::Plain { http2: true }, proxy_protocol: false }],
            commands: command_channel().1,
            log: flatout_access_log::Logs::open(&[], Box::new(|_| {})).unwrap().worker(),
            counters: counted,
            held: crate::ConnectionCounters::default(),
            phases,
        };
        run_worker(parts, std::future::pending()).unwrap()
    });
    build_runtime().unwrap().block_on(client(address));
    phase.send(Phase::Drain).unwrap();
    assert_eq!(worker.join().unwrap().connections_cut, 0);
    counters
}

pub(crate) async fn connect(address: SocketAddr) -> SendRequest<bytes::Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    spawn_local(async move {
        let _ = connection.await;
    });
    client.ready().await.unwrap()
}

pub(crate) fn get(client: &mut SendRequest<bytes::Bytes>, path: &str) -> ResponseFuture {
    let request = http::Request::get(format!("http://test{path}")).body(()).unwrap();
    client.send_request(request, true).unwrap().0
}

pub(crate) async fn content(mut body: RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        all.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    all
}

#[test]
fn hints_go_before_their_answer() {
    let counters = with_worker(|address| async move {
        let mut client = connect(address).await;
        let mut response = get(&mut client, "/hints");
        let early = poll_fn(|context| response.poll_informational(context)).await.unwrap().unwrap();
        assert_eq!(early.status(), 103);
        let links: Vec<_> = early.headers().get_all("link").iter().collect();
        assert_eq!(links, ["</a.css>; rel=preload; as=style", "</b.js>; rel=preload"]);
        let response = response.await.unwrap();
        assert_eq!((response.status().as_u16(), response.headers().contains_key("link")), (200, false));
        assert_eq!(content(response.into_body()).await, b"hinted");
    });
    assert_eq!((counters.requests.get(), counters.status_classes[0].get()), (1, 0));
}

#[test]
fn answers_that_come_later_hold_up_nobody() {
    let counters = with_worker(|address| async move {
        let mut client = connect(address).await;
        let never = get(&mut client, "/never");
        let later = get(&mut client, "/later");
        let now = get(&mut client, "/now");
        assert_eq!(content(now.await.unwrap().into_body()).await, b" test");
        let later = later.await.unwrap();
        assert_eq!(later.headers()["x-later"], "yes");
        assert_eq!(later.headers().get_all("date").iter().count(), 1);
        assert_eq!(content(later.into_body()).await, b"later");
        // The client resets the stream, and the handler's future is dropped with it.
        drop(never);
        let again = get(&mut client, "/now");
        assert_eq!(again.await.unwrap().status(), 200);
    });
    assert_eq!((counters.requests.get(), counters.http2_streams_cut.get()), (3, 1));
}

#[test]
fn segments_are_sent_in_their_order() {
    with_worker(|address| async move {
        let mut client = connect(address).await;
        let response = get(&mut client, "/segments").await.unwrap();
        let all = content(response.into_body()).await;
        assert_eq!(all.len(), 140_005);
        assert!(all[..50_000].iter().all(|&byte| byte == b'a') && all[50_000..].iter().all(|&byte| byte == b'f'));
    });
}

#[test]
fn cookies_are_one_and_hosts_agree() {
    with_worker(|address| async move {
        let mut client = connect(address).await;
        let mut send =
            |request: http::request::Builder| client.send_request(request.body(()).unwrap(), true).unwrap().0;
        let crumbs =
            http::Request::get("http://test/").header("cookie", "a=1").header("cookie", "b=2").header("cookie", "c=3");
        let response = send(crumbs);
        let agreed = send(http::Request::get("http://test/").header("host", "TEST"));
        let other = send(http::Request::get("http://test/").header("host", "elsewhere"));
        let many =
            (0..60).fold(http::Request::get("http://test/"), |request, at| request.header(format!("x-{at}"), "y"));
        let many = send(many);
        let too_many =
            (0..101).fold(http::Request::get("http://test/"), |request, at| request.header(format!("x-{at}"), "y"));
        let too_many = send(too_many);
        assert_eq!(content(response.await.unwrap().into_body()).await, b"a=1; b=2; c=3 test");
        assert_eq!(agreed.await.unwrap().status(), 200);
        assert_eq!(other.await.unwrap().status(), 400);
        assert_eq!(many.await.unwrap().status(), 200);
        assert_eq!(too_many.await.unwrap().status(), 431);
    });
}

/// Browsers send each cookie in a field of its own.
#[test]
fn cookies_may_be_as_large_as_over_http_1() {
    with_worker(|address| async move {
        let mut client = connect(address).await;
        // `GET / HTTP/1.1`, `Host: test`, the name of the field, and the line ends.
        let others = "GET / HTTP/1.1\r\nHost: test\r\nCookie: \r\n\r\n".len();
        let room = flatout_http::limits::Limits::DEFAULT.head_bytes_max - others;
        // By the measure of HTTP/2, which counts 32 bytes more for each field, they are larger than the limit.
        let cookie = format!("{:0>91}", "=1");
        let count = 300;
        let last = "z".repeat(room - count * (cookie.len() + "; ".len()));
        for (last, status) in [(last.clone(), 200), (last + "z", 431)] {
            let request = http::Request::get("http://test/");
            let request = (0..count).fold(request, |request, _| request.header("cookie", &cookie));
            let request = request.header("cookie", last).body(()).unwrap();
            assert_eq!(client.send_request(request, true).unwrap().0.await.unwrap().status(), status);
        }
    });
}

#[test]
fn content_is_read_to_its_end_and_expectations_are_met() {
    with_worker(|address| async move {
        let mut client = connect(address).await;
        let request = http::Request::post("http://test/").header("expect", "100-continue").body(()).unwrap();
        let (mut response, mut stream) = client.send_request(request, false).unwrap();
        let early = poll_fn(|context| response.poll_informational(context)).await.unwrap().unwrap();
        assert_eq!(early.status(), 100);
        stream.send_data(vec![b'x'; 300_000].into(), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
        // More unread content than the server discards.
        let request = http::Request::post("http://test/").body(()).unwrap();
        let (response, mut stream) = client.send_request(request, false).unwrap();
        stream.send_data(vec![b'x'; 2_000_000].into(), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 413);
        content(response.into_body()).await;
        // Only the stream was closed, not the connection.
        assert_eq!(get(&mut client, "/").await.unwrap().status(), 200);
    });
}
