//! Tests of exchanges with real servers that follow a script.

mod basic;
mod cuts;
mod http2;
mod kept;
mod names;
mod pools;
mod timeouts;
mod tls;
mod uploads;
mod websocket;

use crate::origin::{
    ExchangeFailure, Incoming, IncomingPiece, OriginClient, OriginCounts, OriginFailure, OriginSettings,
    OutgoingContent, OutgoingRequest,
};
use flatout_handler::shared::SharedBytes;
use flatout_http::proxy_protocol::ProxyClient;
use flatout_http::url::OriginAddress;
use flatout_os::runtime::build_server_runtime;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A server on loopback that passes each connection, numbered from 0, to `handle`.
fn serve(handle: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> OriginAddress {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let handle = Arc::new(handle);
    thread::spawn(move || {
        for (index, stream) in listener.incoming().enumerate() {
            let (handle, stream) = (Arc::clone(&handle), stream.unwrap());
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || handle(index, stream));
        }
    });
    OriginAddress::new(false, "127.0.0.1", port)
}

/// A server that responds to every request on every connection with `answer`, and then waits for the next.
fn serve_answer(answer: impl Into<Vec<u8>>) -> OriginAddress {
    let answer = answer.into();
    serve(move |_, mut stream| while read_request(&mut stream).is_some() && stream.write_all(&answer).is_ok() {})
}

/// A server that responds to the first request of every connection with `answer` and closes.
fn serve_last(answer: impl Into<Vec<u8>>) -> OriginAddress {
    let answer = answer.into();
    serve(move |_, mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(&answer);
        }
    })
}

/// Reads a head, byte by byte.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Reads a request with its content as received.
fn read_request(stream: &mut impl Read) -> Option<(String, Vec<u8>)> {
    let head = read_head(stream)?;
    let mut content = Vec::new();
    if let Some((_, rest)) = head.split_once("Content-Length: ") {
        content = vec![0; rest.split("\r\n").next()?.parse().ok()?];
        stream.read_exact(&mut content).ok()?;
    } else if head.contains("Transfer-Encoding: chunked") {
        let mut byte = [0];
        while !content.ends_with(b"0\r\n\r\n") {
            stream.read_exact(&mut byte).ok()?;
            content.push(byte[0]);
        }
    }
    Some((head, content))
}

/// Runs `future` as a worker would: without tokio's timers.
fn run<T>(future: impl Future<Output = T>) -> T {
    build_server_runtime().unwrap().block_on(future)
}

fn client() -> OriginClient {
    client_with(OriginSettings::default())
}

fn client_with(settings: OriginSettings) -> OriginClient {
    OriginClient::new(settings, None, Arc::new(OriginCounts::default()))
}

/// Settings with timeouts as short as a test allows.
fn quick() -> OriginSettings {
    OriginSettings {
        connect_timeout_ms: 150,
        head_timeout_ms: 150,
        body_timeout_ms: 150,
        idle_timeout_ms: 300,
        ..OriginSettings::default()
    }
}

fn request(method: &str) -> OutgoingRequest<'_> {
    OutgoingRequest {
        method,
        target: b"/path?query",
        lines: b"Host: origin.example\r\nX-One: 1\r\n",
        content: OutgoingContent::None,
        upgrade: None,
        head_left_ms: None,
        client: ProxyClient::Sender,
    }
}

fn bytes(bytes: &[u8]) -> OutgoingContent {
    OutgoingContent::Bytes(SharedBytes::from(bytes))
}

/// The result of an exchange, with its body.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    lines: String,
    content: Vec<u8>,
    trailers: Option<String>,
}

async fn exchange(
    client: &OriginClient,
    origin: &OriginAddress,
    mut request: OutgoingRequest<'_>,
) -> Result<Answer, ExchangeFailure> {
    let mut incoming = client.exchange(origin, &mut request, |_, _| {}).await?;
    finish(&mut incoming).await
}

async fn finish(incoming: &mut Incoming) -> Result<Answer, ExchangeFailure> {
    let mut content = Vec::new();
    let trailers = loop {
        match incoming.body.piece().await {
            IncomingPiece::Bytes(bytes) => {
                assert!(!bytes.is_empty());
                content.extend_from_slice(&bytes);
            }
            IncomingPiece::End(trailers) => break trailers,
            IncomingPiece::Failed(failure) => return Err(failure),
        }
    };
    let lines = String::from_utf8_lossy(incoming.lines()).into_owned();
    let trailers = trailers.map(|lines| String::from_utf8_lossy(&lines).into_owned());
    Ok(Answer { status: incoming.status, lines, content, trailers })
}

async fn get(client: &OriginClient, origin: &OriginAddress) -> Result<Answer, ExchangeFailure> {
    exchange(client, origin, request("GET")).await
}

/// Sends a GET with a separate client.
fn get_once(origin: &OriginAddress) -> Result<Answer, ExchangeFailure> {
    run(get(&client(), origin))
}

fn failure_of(answer: Result<Answer, ExchangeFailure>) -> OriginFailure {
    answer.unwrap_err().failure
}

/// Waits for `milliseconds`, and returns true if the client neither sends nor closes meanwhile: the pace of a slow origin.
fn hears_nothing(stream: &TcpStream, milliseconds: u64) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(milliseconds))).unwrap();
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Holds a connection open and neither reads nor writes.
fn hold(_stream: TcpStream) {
    loop {
        thread::park();
    }
}
