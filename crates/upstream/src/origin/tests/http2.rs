use super::tls::{Authorities, identity, secure_client, server_config};
use super::*;
use crate::origin::Repeat;
use ::bytes::Bytes;
use ::http::{HeaderMap, HeaderValue, Request, Response};
use flatout_handler::content::{Offers, REWIND_BYTES_MAX, content_channel};
use flatout_os::runtime::build_runtime;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

/// The requests that an HTTP/2 server received.
pub(super) struct Asked {
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    /// Index among all requests of the server.
    number: usize,
}

/// An HTTP/2 server, over TLS if it has an acceptor, that passes each request to `handle`, which responds, or makes the
/// server send GOAWAY. Counts its connections.
pub(super) fn serve_http2<F>(acceptor: Option<TlsAcceptor>, handle: fn(Asked) -> F) -> (OriginAddress, Arc<AtomicUsize>)
where
    F: Future<Output = Then> + 'static,
{
    let (origin, connections, _) = serve_counted(acceptor, handle);
    (origin, connections)
}

/// The same, which also counts the connections that have ended.
fn serve_counted<F>(
    acceptor: Option<TlsAcceptor>,
    handle: fn(Asked) -> F,
) -> (OriginAddress, Arc<AtomicUsize>, Arc<AtomicUsize>)
where
    F: Future<Output = Then> + 'static,
{
    serve_after(|| (), acceptor, handle)
}

/// The same, which responds to connections only after `wait` has returned. The system accepts them earlier.
fn serve_after<F>(
    wait: impl FnOnce() + Send + 'static,
    acceptor: Option<TlsAcceptor>,
    handle: fn(Asked) -> F,
) -> (OriginAddress, Arc<AtomicUsize>, Arc<AtomicUsize>)
where
    F: Future<Output = Then> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let origin = OriginAddress::new(acceptor.is_some(), "127.0.0.1", listener.local_addr().unwrap().port());
    let connections = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let (counted, counted_ended) = (Arc::clone(&connections), Arc::clone(&ended));
    thread::spawn(move || {
        wait();
        build_runtime().unwrap().block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let requests = Arc::new(AtomicUsize::new(0));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, requests, ended) = (acceptor.clone(), Arc::clone(&requests), Arc::clone(&counted_ended));
                spawn_local(async move {
                    match acceptor {
                        None => serve_connection(stream, requests, handle).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve_connection(stream, requests, handle).await;
                            }
                        }
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
    });
    (origin, connections, ended)
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Then {
    GoOn,
    GoAway,
}

async fn serve_connection<F>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    requests: Arc<AtomicUsize>,
    handle: fn(Asked) -> F,
) where
    F: Future<Output = Then> + 'static,
{
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    poll_fn(|context| {
        while let Poll::Ready(Some(then)) = tells.poll_recv(context) {
            if then == Then::GoAway {
                connection.graceful_shutdown();
            }
        }
        while let Some(Ok((request, respond))) = ready!(connection.poll_accept(context)) {
            let number = requests.fetch_add(1, Ordering::SeqCst);
            let told = told.clone();
            spawn_local(async move {
                let _ = told.send(handle(Asked { request, respond, number }).await);
            });
        }
        Poll::Ready(())
    })
    .await;
}

pub(super) fn http2_client(mut settings: OriginSettings) -> OriginClient {
    settings.http2 = true;
    client_with(settings)
}

pub(super) fn ok() -> Response<()> {
    Response::builder().header("x-a", "1").header("x-a", "2").body(()).unwrap()
}

/// Echoes the request, including content and trailers.
async fn echo(mut asked: Asked) -> Then {
    let head = format!("{} {}\n{:?}\n", asked.request.method(), asked.request.uri(), asked.request.headers());
    let mut content = Vec::new();
    let body = asked.request.body_mut();
    while let Some(Ok(bytes)) = body.data().await {
        body.flow_control().release_capacity(bytes.len()).unwrap();
        content.extend_from_slice(&bytes);
    }
    let trailers = body.trailers().await.unwrap();
    let mut stream = asked.respond.send_response(ok(), false).unwrap();
    stream.send_data(Bytes::from(head), false).unwrap();
    stream.send_data(Bytes::from(content), trailers.is_none()).unwrap();
    if let Some(trailers) = trailers {
        stream.send_trailers(trailers).unwrap();
    }
    Then::GoOn
}

#[test]
fn requests_and_responses_look_the_same_as_over_http1() {
    let (origin, connections) = serve_http2(None, echo);
    run(async {
        let client = http2_client(OriginSettings::default());
        let answer = get(&client, &origin).await.unwrap();
        assert_eq!((answer.status, &*answer.lines), (200, "x-a: 1\r\nx-a: 2\r\n"));
        let text = String::from_utf8(answer.content).unwrap();
        assert_eq!(text, "GET http://origin.example/path?query\n{\"x-one\": \"1\"}\n");
        // Content of every kind, trailers, and content larger than any window.
        let put = OutgoingRequest { content: bytes(b"hello"), ..request("PUT") };
        let text = String::from_utf8(exchange(&client, &origin, put).await.unwrap().content).unwrap();
        assert!(text.ends_with("{\"x-one\": \"1\", \"content-length\": \"5\"}\nhello"), "{text}");
        let large: Vec<u8> = (0..3_000_000).map(|index| (index / 257) as u8).collect();
        let put = OutgoingRequest { content: bytes(&large), ..request("PUT") };
        assert!(exchange(&client, &origin, put).await.unwrap().content.ends_with(&large));
        let (writer, content) = content_channel(None);
        let post = OutgoingRequest { content: OutgoingContent::Content(content), ..request("POST") };
        writer.write(SharedBytes::from(&b"abc"[..]));
        writer.end(Some(b"X-Sum: 6\r\n"[..].into()));
        let answer = exchange(&client, &origin, post).await.unwrap();
        assert!(answer.content.ends_with(b"abc"));
        assert_eq!(answer.trailers.as_deref(), Some("x-sum: 6\r\n"));
        assert_eq!(connections.load(Ordering::SeqCst), 1);
        assert_eq!((client.counts().connections_opened.get(), client.counts().connections_reused.get()), (1, 3));
    });
}

#[test]
fn concurrent_streams_share_the_first_connection() {
    async fn slowly(mut asked: Asked) -> Then {
        // Others arrive meanwhile.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let mut stream = asked.respond.send_response(ok(), false).unwrap();
        stream.send_data(Bytes::from(vec![b'x'; 50_000]), true).unwrap();
        Then::GoOn
    }
    let (origin, connections) = serve_http2(None, slowly);
    run(async {
        let client = http2_client(OriginSettings::default());
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (client, origin) = (client.clone(), origin.clone());
                spawn_local(async move { get(&client, &origin).await.unwrap().content.len() })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), 50_000);
        }
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn interim_responses_and_responses_without_a_body() {
    async fn hints(mut asked: Asked) -> Then {
        if asked.request.method() != "HEAD" {
            let early = Response::builder().status(103).header("link", "</a>").body(()).unwrap();
            asked.respond.send_informational(early).unwrap();
        }
        let answer = Response::builder().header("content-length", "500");
        let answer = if asked.request.method() == "HEAD" { answer } else { Response::builder().status(204) };
        asked.respond.send_response(answer.body(()).unwrap(), true).unwrap();
        Then::GoOn
    }
    let (origin, _) = serve_http2(None, hints);
    run(async {
        let client = http2_client(OriginSettings::default());
        let mut seen = Vec::new();
        let told = |status, lines: &[u8]| seen.push((status, lines.to_vec()));
        let incoming = client.exchange(&origin, &mut request("GET"), told).await.unwrap();
        assert_eq!((incoming.status, seen), (204, vec![(103, b"link: </a>\r\n".to_vec())]));
        let mut incoming = client.exchange(&origin, &mut request("HEAD"), |_, _| {}).await.unwrap();
        assert_eq!((incoming.content_length, incoming.body.is_ended()), (Some(500), true));
        assert_eq!(finish(&mut incoming).await.unwrap().content, b"");
    });
}

#[test]
fn goaway_leads_to_a_new_connection() {
    async fn leave(mut asked: Asked) -> Then {
        let mut stream = asked.respond.send_response(ok(), false).unwrap();
        stream.send_data(Bytes::from_static(b"bye"), true).unwrap();
        Then::GoAway
    }
    let (origin, connections) = serve_http2(None, leave);
    run(async {
        let client = http2_client(OriginSettings::default());
        for round in 1..=4 {
            assert_eq!(get(&client, &origin).await.unwrap().content, b"bye");
            client.pause(30).await;
            assert_eq!(connections.load(Ordering::SeqCst), round);
        }
    });
}

#[test]
fn a_refused_stream_is_retried_once() {
    async fn refuse_odd(mut asked: Asked) -> Then {
        if asked.number % 2 == 1 {
            asked.respond.send_reset(Reason::REFUSED_STREAM);
            return Then::GoOn;
        }
        echo(asked).await
    }
    async fn refuse_all(mut asked: Asked) -> Then {
        asked.respond.send_reset(Reason::REFUSED_STREAM);
        Then::GoOn
    }
    run(async {
        let client = http2_client(OriginSettings::default());
        let (origin, _) = serve_http2(None, refuse_odd);
        for _ in 0..2 {
            let post = OutgoingRequest { content: bytes(b"abc"), ..request("POST") };
            assert!(exchange(&client, &origin, post).await.unwrap().content.ends_with(b"abc"));
        }
        assert_eq!(client.counts().repeats.get(), 1);
        let (origin, _) = serve_http2(None, refuse_all);
        let failure = get(&client, &origin).await.unwrap_err();
        assert_eq!((failure.failure, failure.repeat), (OriginFailure::H2Refused, Repeat::Always));
    });
}

#[test]
fn a_refused_upload_is_sent_again_while_it_is_kept() {
    async fn refuse_once(mut asked: Asked) -> Then {
        if !REFUSED.swap(true, Ordering::SeqCst) {
            // Everything has arrived when the stream is refused.
            let mut body = asked.request.into_body();
            while let Some(bytes) = body.data().await {
                let bytes = bytes.unwrap();
                let _ = body.flow_control().release_capacity(bytes.len());
            }
            asked.respond.send_reset(Reason::REFUSED_STREAM);
            return Then::GoOn;
        }
        echo(asked).await
    }
    static REFUSED: AtomicBool = AtomicBool::new(true);
    let (origin, _) = serve_http2(None, refuse_once);
    run(async {
        let client = http2_client(OriginSettings::default());
        for (bytes, is_kept) in [(3, true), (REWIND_BYTES_MAX, true), (REWIND_BYTES_MAX + 1, false)] {
            // The connection is a reused one.
            get(&client, &origin).await.unwrap();
            REFUSED.store(false, Ordering::SeqCst);
            let sent = vec![b'x'; bytes];
            let (writer, content) = content_channel(None);
            let mut post = OutgoingRequest { content: OutgoingContent::Content(content), ..request("POST") };
            writer.write(SharedBytes::from(&sent[..]));
            writer.end(None);
            match client.exchange(&origin, &mut post, |_, _| {}).await {
                Ok(mut incoming) => {
                    assert!(finish(&mut incoming).await.unwrap().content.ends_with(&sent) && is_kept, "{bytes}");
                }
                Err(failure) => {
                    assert_eq!((failure.failure, failure.repeat), (OriginFailure::H2Refused, Repeat::Always));
                    assert!(post.content.is_spent() && !is_kept, "{bytes}");
                }
            }
        }
    });
}

#[test]
fn truncated_bodies_never_complete() {
    async fn cut(mut asked: Asked) -> Then {
        let wrong = asked.request.uri().path() == "/path" && asked.number == 1;
        let mut answer = ok();
        if wrong {
            answer.headers_mut().insert("content-length", HeaderValue::from_static("9"));
        }
        let mut stream = asked.respond.send_response(answer, false).unwrap();
        stream.send_data(Bytes::from_static(b"abc"), wrong).unwrap();
        if !wrong {
            // The content goes out first.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
        Then::GoOn
    }
    let (origin, _) = serve_http2(None, cut);
    run(async {
        let client = http2_client(OriginSettings::default());
        for _ in 0..2 {
            let failure = get(&client, &origin).await.unwrap_err();
            assert!(matches!(failure.failure, OriginFailure::CutBody | OriginFailure::H2Failed), "{failure:?}");
            assert_ne!(failure.repeat, Repeat::Always);
        }
    });
}

#[test]
fn late_origins_time_out() {
    async fn late(mut asked: Asked) -> Then {
        if asked.request.method() == "POST" {
            let mut stream = asked.respond.send_response(ok(), false).unwrap();
            stream.send_data(Bytes::from_static(b"abc"), false).unwrap();
            return std::future::pending().await;
        }
        std::future::pending().await
    }
    let (origin, _) = serve_http2(None, late);
    run(async {
        let client = http2_client(quick());
        assert_eq!(failure_of(get(&client, &origin).await), OriginFailure::HeadTimeout);
        assert_eq!(failure_of(exchange(&client, &origin, request("POST")).await), OriginFailure::BodyTimeout);
        // It takes no more than its window.
        let put = OutgoingRequest { content: bytes(&vec![0; 1_000_000]), ..request("PUT") };
        assert_eq!(failure_of(exchange(&client, &origin, put).await), OriginFailure::UploadTimeout);
    });
}

#[test]
fn an_unread_body_delays_only_its_own_stream() {
    async fn large(mut asked: Asked) -> Then {
        let mut stream = asked.respond.send_response(ok(), false).unwrap();
        stream.send_data(Bytes::from(vec![b'x'; 4_000_000]), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-end", HeaderValue::from_static("1"));
        stream.send_trailers(trailers).unwrap();
        Then::GoOn
    }
    let (origin, connections) = serve_http2(None, large);
    run(async {
        let client = http2_client(quick());
        let mut slow = client.exchange(&origin, &mut request("GET"), |_, _| {}).await.unwrap();
        let dropped = client.exchange(&origin, &mut request("GET"), |_, _| {}).await.unwrap();
        drop(dropped);
        for _ in 0..3 {
            assert_eq!(get(&client, &origin).await.unwrap().content.len(), 4_000_000);
        }
        client.pause(300).await;
        let answer = finish(&mut slow).await.unwrap();
        assert_eq!((answer.content.len(), answer.trailers.as_deref()), (4_000_000, Some("x-end: 1\r\n")));
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    });
}

const MINUTE_MS: u64 = 60_000;

#[test]
fn a_connection_to_an_address_that_the_name_has_lost_gets_no_more_requests() {
    let (origin, connections) = serve_http2(None, echo);
    let origin = OriginAddress::new(false, "localhost", origin.port);
    let address = |last| std::net::SocketAddr::from(([127, 0, 0, last], origin.port));
    run(async {
        let client = http2_client(OriginSettings::default());
        let rounds = [(&[1][..], 1), (&[2, 1], 1), (&[2], 1), (&[1, 2], 1), (&[2], 1), (&[2], 1), (&[1], 2)];
        for (minute, (addresses, expected)) in rounds.into_iter().enumerate() {
            let addresses: Vec<_> = addresses.iter().map(|last| address(*last)).collect();
            client.resolve_to(&origin, &addresses, minute as u64 * MINUTE_MS);
            if addresses.contains(&address(1)) {
                get(&client, &origin).await.unwrap();
            }
            assert_eq!(connections.load(Ordering::SeqCst), expected, "{addresses:?}");
        }
    });
}

/// The name loses the address while the connection is being opened: the server does not complete the TLS handshake yet.
#[test]
fn a_new_connection_to_an_address_that_the_name_has_just_lost_gets_one_request() {
    let identity = identity(&["localhost"]);
    let authorities = Authorities::of(&identity);
    let (go, wait) = std::sync::mpsc::channel();
    let acceptor = TlsAcceptor::from(server_config(&identity, &[b"h2"]));
    let (origin, connections, _) = serve_after(move || wait.recv().unwrap(), Some(acceptor), echo);
    let origin = OriginAddress::new(true, "localhost", origin.port);
    let address = |last| std::net::SocketAddr::from(([127, 0, 0, last], origin.port));
    run(async {
        let settings = OriginSettings { http2: true, ..OriginSettings::default() };
        let client = secure_client(settings, &authorities.tls());
        client.resolve_to(&origin, &[address(1)], 0);
        let mut first = std::pin::pin!(get(&client, &origin));
        let is_pending = poll_fn(|context| Poll::Ready(first.as_mut().poll(context).is_pending())).await;
        assert!(is_pending);
        client.resolve_to(&origin, &[address(2)], 0);
        client.resolve_to(&origin, &[address(2)], MINUTE_MS);
        go.send(()).unwrap();
        first.await.unwrap();
        client.resolve_to(&origin, &[address(1)], MINUTE_MS);
        for _ in 0..2 {
            get(&client, &origin).await.unwrap();
            assert_eq!(connections.load(Ordering::SeqCst), 2);
        }
    });
}

#[test]
fn an_unused_connection_is_closed() {
    let (origin, connections) = serve_http2(None, echo);
    run(async {
        let client = http2_client(OriginSettings { idle_timeout_ms: 100, ..OriginSettings::default() });
        for round in 1..=2 {
            get(&client, &origin).await.unwrap();
            get(&client, &origin).await.unwrap();
            assert_eq!(connections.load(Ordering::SeqCst), round);
            client.pause(300).await;
        }
    });
}

#[test]
fn an_origin_may_respond_before_it_has_read_the_request() {
    async fn refuse(mut asked: Asked) -> Then {
        let answer = Response::builder().status(413).body(()).unwrap();
        let mut stream = asked.respond.send_response(answer, false).unwrap();
        // Nobody reads the rest of the request: the stream is reset, without an error, behind the answer.
        stream.send_data(Bytes::from_static(b"much"), true).unwrap();
        Then::GoOn
    }
    let (origin, connections) = serve_http2(None, refuse);
    run(async {
        let client = http2_client(quick());
        for _ in 0..3 {
            let put = OutgoingRequest { content: bytes(&vec![0; 1_000_000]), ..request("PUT") };
            let answer = exchange(&client, &origin, put).await.unwrap();
            assert_eq!((answer.status, &*answer.content), (413, &b"much"[..]));
            let (writer, content) = content_channel(Some(1_000_000));
            let post = OutgoingRequest { content: OutgoingContent::Content(content), ..request("POST") };
            writer.write(SharedBytes::from(vec![0; 500_000]));
            assert_eq!(exchange(&client, &origin, post).await.unwrap().status, 413);
            assert!(writer.is_abandoned());
        }
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_dropped_client_closes_its_connections() {
    let (origin, connections, ended) = serve_counted(None, echo);
    run(async {
        let client = http2_client(OriginSettings::default());
        let mut incoming = client.exchange(&origin, &mut request("GET"), |_, _| {}).await.unwrap();
        drop(client);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!finish(&mut incoming).await.unwrap().content.is_empty(), "a body outlives its client");
        drop(incoming);
        let begun = Instant::now();
        while ended.load(Ordering::SeqCst) == 0 && begun.elapsed() < Duration::from_mins(1) {
            tokio::task::yield_now().await;
        }
        assert_eq!((connections.load(Ordering::SeqCst), ended.load(Ordering::SeqCst)), (1, 1));
    });
}

#[test]
fn an_http1_origin_is_a_protocol_error() {
    let origin = serve(|_, mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        let mut some = [0; 1000];
        while matches!(stream.read(&mut some), Ok(1..)) {}
    });
    run(async {
        let failure = failure_of(get(&http2_client(quick()), &origin).await);
        assert!(matches!(failure, OriginFailure::H2Failed | OriginFailure::Reset), "{failure:?}");
    });
}

#[test]
fn alpn_decides_between_http1_and_http2() {
    let identity = identity(&["127.0.0.1"]);
    let tls = Authorities::of(&identity).tls();
    let settings = OriginSettings { http2: true, ..OriginSettings::default() };
    let acceptor = TlsAcceptor::from(server_config(&identity, &[b"h2", b"http/1.1"]));
    let (origin, connections) = serve_http2(Some(acceptor), echo);
    run(async {
        let client = secure_client(settings.clone(), &tls);
        for _ in 0..3 {
            let answer = get(&client, &origin).await.unwrap();
            assert!(answer.content.starts_with(b"GET https://origin.example/path?query\n"));
        }
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    });
    let config = server_config(&identity, &[b"http/1.1"]);
    let origin = serve(move |_, stream| {
        let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut session = rustls::StreamOwned::new(session, stream);
        while read_request(&mut session).is_some() {
            session.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none").unwrap();
        }
    });
    let origin = OriginAddress { secure: true, ..origin };
    run(async {
        let client = secure_client(settings, &tls);
        for _ in 0..3 {
            assert_eq!(get(&client, &origin).await.unwrap().content, b"one");
        }
        assert_eq!(client.counts().connections_opened.get(), 1, "the connection that was asked is used");
    });
}

/// RFC 9110 §10.1.1.
#[test]
fn an_expectation_is_forwarded_on_a_stream() {
    let (origin, _) = serve_http2(None, |Asked { mut request, mut respond, .. }| async move {
        assert_eq!(request.headers()["expect"], "100-continue");
        if request.uri().query() == Some("refused") {
            let refused = Response::builder().status(413).body(()).unwrap();
            respond.send_response(refused, true).unwrap();
            return Then::GoOn;
        }
        respond.send_informational(Response::builder().status(100).body(()).unwrap()).unwrap();
        let mut content = Vec::new();
        while let Some(Ok(piece)) = request.body_mut().data().await {
            content.extend_from_slice(&piece);
        }
        let mut stream = respond.send_response(ok(), false).unwrap();
        stream.send_data(content.into(), true).unwrap();
        Then::GoOn
    });
    run(async {
        let settings = OriginSettings { continue_timeout_ms: 60_000, head_timeout_ms: 60_000, ..Default::default() };
        let client = http2_client(settings);
        for (target, status, content) in [(&b"/"[..], 200, &b"hello"[..]), (b"/?refused", 413, b"")] {
            let offers = Offers::with_content(Some(5)).expecting_continue(true);
            let content_of_request = OutgoingContent::Content(offers.take_content().unwrap());
            let writer = offers.writer().unwrap();
            let writing = spawn_local(async move {
                while writer.was_never_asked() && !writer.is_abandoned() {
                    tokio::task::yield_now().await;
                }
                let is_asked = !writer.was_never_asked();
                writer.write(SharedBytes::from(&b"hello"[..]));
                writer.end(None);
                is_asked
            });
            let post = OutgoingRequest { target, content: content_of_request, ..request("POST") };
            let answer = exchange(&client, &origin, post).await.unwrap();
            assert_eq!((answer.status, &answer.content[..]), (status, content));
            assert_eq!(writing.await.unwrap(), status == 200);
        }
    });
}
