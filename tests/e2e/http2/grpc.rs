//! gRPC through the accelerator: statuses and trailers arrive as the origin sent them, checked by frames and with
//! grpcio.

use super::client::{Client, DATA, END_HEADERS, END_STREAM, Frame, HEADERS, literal, request};
use super::origin::FrameOrigin;
use crate::e2e::harness::{Folder, Server};
use crate::e2e::tool::{run, test_tool};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A site over h2c and HTTP/1.1 in front of an origin that supports HTTP/2 with prior knowledge.
pub(super) fn accelerate(folder: &Folder, origin: &str, cache: &str) -> Server {
    let text = format!(
        "workers 1
admin off=#true
site \"*\" {{
    listen \"127.0.0.1:0\" h2c=#true
    {cache}
    proxy \"http://{origin}\" {{
        http2 #true
    }}
}}
"
    );
    Server::run(folder, &text)
}

/// Like [`accelerate`], for an origin over HTTP/1.1, with the directives `before` in front of the proxy.
pub(super) fn accelerate_http1(folder: &Folder, url: &str, before: &str) -> Server {
    let listen = "listen \"127.0.0.1:0\" h2c=#true";
    let text = format!("workers 1\nadmin off=#true\nsite \"*\" {{\n{listen}\n{before}\nproxy \"{url}\"\n}}\n");
    Server::run(folder, &text)
}

/// `:status 200` and these fields.
fn ok_with(fields: &[(&str, &str)]) -> Vec<u8> {
    let lines = fields.iter().flat_map(|(name, value)| literal(name.as_bytes(), value.as_bytes()));
    [0x88].into_iter().chain(lines).collect()
}

/// The frames of the response on `stream`.
fn response_on(client: &mut Client, stream: u32) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        let frame = client.frame_like("a response", |frame| {
            frame.stream == stream && matches!(frame.kind, HEADERS | DATA | super::RST_STREAM)
        });
        let ends = frame.ends_stream() || frame.kind == super::RST_STREAM;
        frames.push(frame);
        if ends {
            return frames;
        }
    }
}

fn kinds(frames: &[Frame]) -> Vec<(u8, bool, usize)> {
    let bytes = |frame: &Frame| if frame.kind == DATA { frame.payload.len() } else { 0 };
    frames.iter().map(|frame| (frame.kind, frame.flags & END_STREAM != 0, bytes(frame))).collect()
}

/// The frames of an origin's response: type, whether the frame ends the stream, payload.
type Script = Vec<(u8, bool, Vec<u8>)>;

#[test]
fn end_stream_stays_on_its_original_frame() {
    let status = ("grpc-status", "5");
    let fresh = ("cache-control", "max-age=60");
    let trailers = |fields: (&str, &str)| (HEADERS, true, literal(fields.0.as_bytes(), fields.1.as_bytes()));
    let data = (DATA, false, b"abc".to_vec());
    let only = vec![(HEADERS, true, ok_with(&[status]))];
    let stored_only = vec![(HEADERS, true, ok_with(&[status, fresh]))];
    let empty = vec![(HEADERS, false, ok_with(&[])), trailers(status)];
    let trailed = vec![(HEADERS, false, ok_with(&[fresh])), data.clone(), trailers(("x-sum", "294"))];
    let length = vec![(HEADERS, false, ok_with(&[fresh, ("content-length", "3")])), data, trailers(("x-sum", "294"))];
    let folder = Folder::new();
    // The expected number of requests to the origin for three requests to one path, and one more, with a cache.
    let cases: [(Script, usize); 5] = [(only, 4), (stored_only, 2), (empty, 4), (trailed, 2), (length, 2)];
    for (number, (script, asked)) in cases.into_iter().enumerate() {
        let expected: Vec<_> = script
            .iter()
            .map(|(kind, ends, bytes)| (*kind, *ends, if *kind == DATA { bytes.len() } else { 0 }))
            .collect();
        for cache in ["", "cache"] {
            let script = script.clone();
            let origin = FrameOrigin::start(move |request, connection| {
                assert!(request.ends_stream(), "a request without content ends with its fields");
                for (kind, ends, bytes) in &script {
                    let end_headers = if *kind == HEADERS { END_HEADERS } else { 0 };
                    connection.send(*kind, end_headers | if *ends { END_STREAM } else { 0 }, request.stream, bytes);
                }
            });
            let server = accelerate(&folder, &origin.address(), cache);
            let mut client = Client::connect(&server, &[]);
            for stream in [1, 3] {
                client.get(stream, "/");
                assert_eq!(kinds(&response_on(&mut client, stream)), expected, "{number}, {cache}");
            }
            client.send_frame(HEADERS, END_HEADERS | END_STREAM, 5, &request("POST", "/"));
            assert_eq!(kinds(&response_on(&mut client, 5)), expected, "{number}, {cache}");
            let asked = if cache.is_empty() { 4 } else { asked };
            let fields = "Host: test\r\nTE: trailers\r\nConnection: TE, close\r\n";
            let text = server.exchange(format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes());
            let text = String::from_utf8(text).unwrap();
            let (head, content) = text.split_once("\r\n\r\n").unwrap();
            let head = head.to_lowercase();
            match number {
                0 | 1 => assert!(head.contains("\r\ncontent-length: 0") && content.is_empty(), "{text}"),
                2 => assert!(content.ends_with("0\r\ngrpc-status: 5\r\n\r\n"), "{text}"),
                3 => assert!(content.ends_with("3\r\nabc\r\n0\r\nx-sum: 294\r\n\r\n"), "{text}"),
                // Over HTTP/1.1, a response with Content-Length cannot have trailers.
                _ => assert!(content.contains("abc"), "{text}"),
            }
            // POST invalidates the stored response, so the last GET goes to the origin again.
            let asked = if cache.is_empty() || asked == 4 { asked } else { asked + 1 };
            assert_eq!(origin.requests(), asked, "{number}, {cache}");
        }
    }
}

/// A program that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn grpc() -> Command {
    let mut python = test_tool("python", "grpc/bin");
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/grpc_errors.py"));
    python
}

#[test]
fn grpcio_receives_every_status_that_its_server_sent() {
    let mut server = Running(grpc().arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let origin = format!("127.0.0.1:{}", port.trim());
    let direct = run(grpc().args(["call", &origin]));
    assert_eq!(direct.matches(" True").count(), 16, "{direct}");
    assert!(
        direct.contains("fail UNAUTHENTICATED UNAUTHENTICATED no ") && direct.contains("talk ONE TWO THREE"),
        "{direct}"
    );
    // The origin sees that a call was cancelled.
    assert!(direct.ends_with("cancel begun CANCELLED ended\n"), "{direct}");
    let folder = Folder::new();
    for cache in ["", "cache"] {
        let accelerator = accelerate(&folder, &origin, cache);
        let through = run(grpc().args(["call", &accelerator.address.to_string()]));
        assert_eq!(through, direct, "{cache}");
    }
}

#[test]
fn silence_between_messages_does_not_time_out() {
    let mut server = Running(grpc().arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let folder = Folder::new();
    // The timeouts are shorter than the silences, because they do not apply to streams.
    let text = format!(
        "workers 1
admin off=#true
timeouts {{
    body \"200ms\"
}}
site \"*\" {{
    listen \"127.0.0.1:0\" h2c=#true
    proxy \"http://127.0.0.1:{}\" {{
        http2 #true
        timeouts {{
            head \"200ms\"
            body \"200ms\"
        }}
    }}
}}
",
        port.trim()
    );
    let accelerator = Server::run(&folder, &text);
    let said = run(grpc().args(["rest", &accelerator.address.to_string()]));
    assert_eq!(said, "late head a\nlate messages a a\nlate content ab\n");
}

/// RFC 9110 §8.6: identical lengths are merged into one.
#[test]
fn a_repeated_content_length_of_an_origin_is_merged() {
    let folder = Folder::new();
    for (lengths, status) in [(&["3", "3"][..], 200), (&["3", "03", "3"], 200), (&["3", "4"], 502), (&["3", "x"], 502)]
    {
        let origin = FrameOrigin::start(move |request, connection| {
            let lengths: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
            connection.send(HEADERS, END_HEADERS, request.stream, &ok_with(&lengths));
            connection.send(DATA, END_STREAM, request.stream, b"abc");
        });
        for cache in ["", "cache"] {
            let server = accelerate(&folder, &origin.address(), cache);
            let said = server.exchange(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
            let said = String::from_utf8(said).unwrap().to_lowercase();
            assert!(said.starts_with(&format!("http/1.1 {status} ")), "{lengths:?}: {said}");
            if status == 200 {
                assert_eq!(said.matches("\r\ncontent-length: 3\r\n").count(), 1, "{lengths:?}: {said}");
                assert_eq!(said.matches("\r\ncontent-length").count(), 1, "{lengths:?}: {said}");
            }
        }
    }
}
