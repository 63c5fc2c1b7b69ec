//! WebSockets in HTTP/2 streams (RFC 8441).

use super::http2::{Then, http2_client, ok, serve_http2};
use super::*;
use crate::origin::Repeat;
use ::bytes::Bytes;
use ::http::Response;
use flatout_os::runtime::build_runtime;
use h2::Reason;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_local;

/// An HTTP/2 server that accepts a WebSocket in a stream, unless its target says otherwise, and returns what comes.
/// Counts its connections.
fn serve_websockets() -> (OriginAddress, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let origin = OriginAddress::new(false, "127.0.0.1", listener.local_addr().unwrap().port());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        build_runtime().unwrap().block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let is_first = counted.fetch_add(1, Ordering::SeqCst) == 0;
                spawn_local(serve_websockets_on(stream, is_first));
            }
        });
    });
    (origin, connections)
}

async fn serve_websockets_on(stream: tokio::net::TcpStream, is_first: bool) {
    let mut builder = h2::server::Builder::new();
    let mut connection = builder.enable_connect_protocol().handshake::<_, Bytes>(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(request.method(), "CONNECT");
        assert_eq!(request.extensions().get::<h2::ext::Protocol>().unwrap().as_str(), "websocket");
        assert_eq!(request.uri().authority().unwrap(), "origin.example");
        assert!(!request.headers().contains_key("sec-websocket-key"));
        assert_eq!(request.headers()["sec-websocket-version"], "13");
        if request.uri().path() == "/leaving" {
            // The GOAWAY is sent before the response.
            connection.graceful_shutdown();
        }
        spawn_local(async move {
            match request.uri().path() {
                "/declined" => {
                    let declined = Response::builder().status(403).header("content-length", "2");
                    let declined = declined.header("content-length", "2").body(()).unwrap();
                    respond.send_response(declined, false).unwrap().send_data("no".into(), true).unwrap();
                    return;
                }
                "/refused" if is_first => return respond.send_reset(Reason::REFUSED_STREAM),
                "/silent" => std::future::pending().await,
                "/hints" => {
                    for _ in 0..3 {
                        respond.send_informational(Response::builder().status(103).body(()).unwrap()).unwrap();
                    }
                }
                _ => {}
            }
            let mut stream = respond.send_response(ok(), false).unwrap();
            let mut content = request.into_body();
            while let Some(Ok(piece)) = content.data().await {
                content.flow_control().release_capacity(piece.len()).unwrap();
                stream.send_data(piece, false).unwrap();
            }
            stream.send_data(Bytes::new(), true).unwrap();
        });
    }
}

fn websocket(target: &[u8]) -> OutgoingRequest<'_> {
    let lines = b"Host: origin.example\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n";
    OutgoingRequest { target, lines, upgrade: Some(b"websocket"), ..request("GET") }
}

/// RFC 8441.
#[test]
fn a_websocket_is_opened_in_a_stream() {
    let (origin, _) = serve_websockets();
    run(async {
        let client = http2_client(OriginSettings::default());
        for reused in [false, true] {
            let mut incoming = client.exchange(&origin, &mut websocket(b"/"), |_, _| {}).await.unwrap();
            assert_eq!((incoming.status, incoming.reused), (101, reused));
            assert!(incoming.lines().ends_with(b"Upgrade: websocket\r\nConnection: Upgrade\r\n"));
            let (mut reader, mut writer) = tokio::io::split(incoming.upgraded.take().unwrap());
            let sent = vec![7; 300_000];
            let sending = spawn_local({
                let sent = sent.clone();
                async move {
                    writer.write_all(&sent).await.unwrap();
                    writer.shutdown().await.unwrap();
                }
            });
            let mut received = Vec::new();
            reader.read_to_end(&mut received).await.unwrap();
            sending.await.unwrap();
            assert!(received == sent, "{} bytes", received.len());
        }
        let answer = exchange(&client, &origin, websocket(b"/declined")).await.unwrap();
        assert_eq!((answer.status, &answer.content[..]), (403, &b"no"[..]));
        assert_eq!(&*answer.lines, "content-length: 2\r\n");
    });
}

/// RFC 9113 §6.8.
#[test]
fn a_websocket_is_opened_after_a_goaway_that_leaves_the_connection_open() {
    let (origin, connections) = serve_websockets();
    run(async {
        let client = http2_client(OriginSettings::default());
        let mut first = client.exchange(&origin, &mut websocket(b"/leaving"), |_, _| {}).await.unwrap();
        let second = client.exchange(&origin, &mut websocket(b"/"), |_, _| {}).await.unwrap();
        assert_eq!((second.status, second.reused, connections.load(Ordering::SeqCst)), (101, false, 2));
        assert_eq!(client.counts().repeats.get(), 0, "the connection was known to take no more streams");
        // The first one continues.
        let tunnel = first.upgraded.as_mut().unwrap();
        tunnel.write_all(b"abc").await.unwrap();
        let mut echoed = [0; 3];
        tunnel.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"abc");
    });
}

#[test]
fn a_websocket_is_opened_on_a_new_connection_after_a_fault() {
    let (origin, connections) = serve_websockets();
    run(async {
        let client = http2_client(OriginSettings::default());
        let opened = client.exchange(&origin, &mut websocket(b"/"), |_, _| {}).await.unwrap();
        assert_eq!((opened.status, connections.load(Ordering::SeqCst)), (101, 1));
        let opened = client.exchange(&origin, &mut websocket(b"/refused"), |_, _| {}).await.unwrap();
        assert_eq!((opened.status, opened.reused, connections.load(Ordering::SeqCst)), (101, false, 2));
        assert_eq!(client.counts().repeats.get(), 1);
        // A connection without any response may be dead.
        let mut silent = OutgoingRequest { head_left_ms: Some(0), ..websocket(b"/silent") };
        let silent = client.exchange(&origin, &mut silent, |_, _| {}).await;
        assert_eq!(silent.map(drop).unwrap_err().failure, OriginFailure::HeadTimeout);
        let opened = client.exchange(&origin, &mut websocket(b"/"), |_, _| {}).await.unwrap();
        assert_eq!((opened.status, opened.reused, connections.load(Ordering::SeqCst)), (101, false, 3));
    });
}

#[test]
fn a_websocket_has_the_bounds_of_other_responses() {
    let (origin, _) = serve_websockets();
    run(async {
        let client = http2_client(OriginSettings { interims_max: 2, ..OriginSettings::default() });
        let failure = exchange(&client, &origin, websocket(b"/hints")).await.unwrap_err();
        assert_eq!((failure.failure, failure.repeat), (OriginFailure::InterimsTooMany, Repeat::Never));
        let late = OutgoingRequest { head_left_ms: Some(0), ..websocket(b"/silent") };
        assert_eq!(failure_of(exchange(&client, &origin, late).await), OriginFailure::HeadTimeout);
    });
}

#[test]
fn an_upgrade_that_an_http2_origin_does_not_support_has_a_name() {
    let (origin, _) = serve_http2(None, |_| async { Then::GoOn });
    run(async {
        let upgrade = OutgoingRequest { upgrade: Some(b"websocket"), ..request("GET") };
        let failure = exchange(&http2_client(OriginSettings::default()), &origin, upgrade).await.unwrap_err();
        assert_eq!((failure.failure, failure.repeat), (OriginFailure::UpgradeUnsupported, Repeat::Never));
        assert_eq!(failure.failure.status(), 502);
    });
}
