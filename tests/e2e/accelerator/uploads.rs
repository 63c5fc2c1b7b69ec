//! Content on its way to origins, trailers and interim responses, and third-party clients.

use super::super::harness::{Folder, Server, TIMEOUT, uninterrupted, wait_until};
use super::super::tool::{run, tool};
use super::origin::{Origin, Then, fresh, response};
use super::{Answer, accelerate, accelerate_url, ask, configuration, converse, get, log_of};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;
const UPLOAD: u64 = 200 * MIB;

/// The byte at position `place` of an upload. The pattern reveals lost, repeated and reordered bytes.
/// The content of uploads repeats these bytes. Their number is not a multiple of any buffer's size.
static PERIOD: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..65_521_u64).map(|place| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect());

fn piece(start: u64, count: u64) -> Vec<u8> {
    let (start, count) = (start as usize % PERIOD.len(), count as usize);
    let mut bytes = PERIOD[start..].to_vec();
    while bytes.len() < count {
        bytes.extend_from_slice(&PERIOD);
    }
    bytes.truncate(count);
    bytes
}

/// An origin for one upload, which it does not store. It starts reading when allowed to, and reports what arrived. It
/// responds to GET immediately.
struct Sink {
    url: String,
    may_read: Arc<AtomicBool>,
    came: Arc<AtomicU64>,
}

impl Sink {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (may_read, came) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (go, count) = (Arc::clone(&may_read), Arc::clone(&came));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (go, count) = (Arc::clone(&go), Arc::clone(&count));
                thread::spawn(move || take_upload(stream, &go, &count));
            }
        });
        Self { url, may_read, came }
    }
}

/// Takes everything before an empty line.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if uninterrupted(|| stream.read(&mut byte)).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

fn take_upload(mut stream: TcpStream, may_read: &AtomicBool, came: &AtomicU64) {
    let Some(head) = read_head(&mut stream) else { return };
    if head.starts_with("GET ") {
        let _ = stream.write_all(&response("200 OK", "Connection: close\r\n", b""));
        return;
    }
    let start = Instant::now();
    while !may_read.load(Ordering::SeqCst) && start.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(5));
    }
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    let (mut is_right, mut place, mut buffer) = (true, 0, vec![0; 64 * 1024]);
    let mut take = |stream: &mut TcpStream, mut left: u64| -> Option<()> {
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap());
            let count = stream.read(&mut buffer[..most]).ok().filter(|count| *count > 0)?;
            is_right &= buffer[..count] == piece(place, count as u64);
            place += count as u64;
            left -= count as u64;
            came.store(place, Ordering::SeqCst);
        }
        Some(())
    };
    let taken = if is_chunked {
        loop {
            let (mut line, mut byte) = (Vec::new(), [0]);
            while !line.ends_with(b"\r\n") {
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    return;
                }
                line.push(byte[0]);
            }
            let line = String::from_utf8(line).unwrap();
            let size = u64::from_str_radix(line.split(';').next().unwrap().trim(), 16).unwrap();
            if size == 0 {
                break Some(());
            }
            if take(&mut stream, size).is_none() || stream.read_exact(&mut [0; 2]).is_err() {
                break None;
            }
        }
    } else {
        let length =
            head.to_lowercase().split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        take(&mut stream, length.unwrap())
    };
    if taken.is_some() {
        let body = format!("{place} {}", if is_right { "right" } else { "wrong" });
        let _ = stream.write_all(&response("200 OK", "Connection: close\r\n", body.as_bytes()));
    }
}

/// Sends an upload as fast as the server takes it. `written` counts the bytes written so far.
fn send_upload(mut stream: TcpStream, is_chunked: bool, written: &AtomicU64) -> Answer {
    let framing =
        if is_chunked { "Transfer-Encoding: chunked".to_owned() } else { format!("Content-Length: {UPLOAD}") };
    write!(stream, "PUT /upload HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{framing}\r\n\r\n").unwrap();
    let mut place = 0;
    while place < UPLOAD {
        let piece = piece(place, (64 * 1024).min(UPLOAD - place));
        if is_chunked {
            write!(stream, "{:x}\r\n", piece.len()).unwrap();
        }
        stream.write_all(&piece).unwrap();
        if is_chunked {
            stream.write_all(b"\r\n").unwrap();
        }
        place += piece.len() as u64;
        written.store(place, Ordering::SeqCst);
    }
    if is_chunked {
        stream.write_all(b"0\r\n\r\n").unwrap();
    }
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    Answer::take(&mut bytes.as_slice(), false).unwrap()
}

#[test]
fn uploads_are_paced_by_the_origin_and_not_buffered() {
    for is_chunked in [false, true] {
        let sink = Sink::start();
        let server = accelerate_url(&sink.url, &[]);
        // From this response, flatout knows that the origin accepts chunks.
        assert_eq!(get(&server, "/").status, 200);
        let before = server.memory_kb("RssAnon");
        let written = AtomicU64::new(0);
        let answer = thread::scope(|scope| {
            let client = scope.spawn(|| send_upload(server.connect(), is_chunked, &written));
            // The origin reads nothing, so before long the client cannot write any more: kernels buffer some MiB in
            // each direction, and the accelerator little.
            let mut stuck_at = u64::MAX;
            wait_until("the client is blocked", || {
                thread::sleep(Duration::from_millis(300));
                let now = written.load(Ordering::SeqCst);
                now > 0 && std::mem::replace(&mut stuck_at, now) == now
            });
            assert!(stuck_at < UPLOAD / 2, "{stuck_at} bytes went nowhere");
            let held = server.memory_kb("RssAnon").saturating_sub(before);
            println!("chunked: {is_chunked}: {stuck_at} bytes under way, {held} kB more held");
            assert!(held < 4 * 1024, "{held} kB");
            sink.may_read.store(true, Ordering::SeqCst);
            client.join().unwrap()
        });
        assert_eq!((answer.status, answer.text()), (200, format!("{UPLOAD} right")));
        assert_eq!(sink.came.load(Ordering::SeqCst), UPLOAD);
        let grown = server.memory_kb("RssAnon").saturating_sub(before);
        assert!(grown < 4 * 1024, "{grown} kB");
    }
}

#[test]
fn curl_uploads_over_http1_and_http2() {
    let folder = Folder::new();
    folder.write("upload", &piece(0, 8 * MIB));
    let upload = folder.path().join("upload");
    for arguments in
        [&["--http1.1"][..], &["--http1.1", "--header", "Expect: 100-continue"], &["--http2-prior-knowledge"]]
    {
        let sink = Sink::start();
        sink.may_read.store(true, Ordering::SeqCst);
        let server = accelerate_url(&sink.url, &["--h2c"]);
        let mut curl = tool("curl");
        curl.args(["--silent", "--show-error", "--fail", "--upload-file"]).arg(&upload).args(arguments);
        assert_eq!(run(curl.arg(server.url("/upload"))), format!("{} right", 8 * MIB), "{arguments:?}");
    }
}

/// An origin that asks for the content of `/wanted` and refuses the content for any other target unread. Requests
/// without Expect: 100-continue get a 400.
pub(crate) fn expecting_origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let head = read_head(&mut stream)?;
                if !head.to_lowercase().contains("\r\nexpect: 100-continue\r\n") {
                    return stream.write_all(&response("400 Bad Request", "Connection: close\r\n", &[])).ok();
                }
                if !head.contains(" /wanted ") {
                    return stream.write_all(&response("413 Content Too Large", "Connection: close\r\n", b"no")).ok();
                }
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
                let length = head.to_lowercase().split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
                let mut content = vec![0; length];
                stream.read_exact(&mut content).ok()?;
                stream.write_all(&response("200 OK", "Connection: close\r\n", &content)).ok()
            });
        }
    });
    url
}

/// RFC 9110 §10.1.1. The HTTP/3 version of this test is in `http3`.
#[test]
fn the_origin_decides_whether_a_client_sends_its_content() {
    let server = accelerate_url(&expecting_origin(), &["--h2c"]);
    let folder = Folder::new();
    folder.write("upload", b"content");
    let upload = folder.path().join("upload");
    for (path, status, said) in [("/wanted", "200", "content 7"), ("/refused", "413", "no 0")] {
        let mut curl = tool("curl");
        // curl waits longer than any test runs.
        curl.args(["--silent", "--http1.1", "--expect100-timeout", "600", "--header", "Expect: 100-continue"]);
        curl.args(["--write-out", " %{size_upload} %{http_code}", "--upload-file"]).arg(&upload);
        assert_eq!(run(curl.arg(server.url(path))), format!("{said} {status}"));
        let mut nghttp = tool("nghttp");
        nghttp.args(["--verbose", "--expect-continue", "--header", ":method: PUT", "--data"]).arg(&upload);
        let verbose = run(nghttp.arg(server.url(path)));
        let is_wanted = status == "200";
        assert!(verbose.contains(&format!(":status: {status}")), "{verbose}");
        assert_eq!(verbose.contains(":status: 100"), is_wanted, "{verbose}");
    }
}

/// `content-limit` applies to content of declared and of unknown length, over HTTP/1.1 and HTTP/2.
#[test]
fn content_beyond_the_limit_is_refused() {
    let sink = Sink::start();
    sink.may_read.store(true, Ordering::SeqCst);
    let folder = Folder::new();
    let configuration = configuration(&folder, &sink.url, "", "content-limit \"1MiB\"");
    let server = Server::run(&folder, &configuration.replace(":0\"", ":0\" h2c=#true"));
    for (length, status, said) in [(MIB, "200", format!("{MIB} right")), (MIB + 1, "413", String::new())] {
        folder.write("upload", &piece(0, length));
        let upload = folder.path().join("upload");
        // curl declares the length of a file, but not of its standard input.
        for (version, source) in [
            ("--http1.1", upload.to_str().unwrap()),
            ("--http1.1", "-"),
            ("--http2-prior-knowledge", upload.to_str().unwrap()),
            ("--http2-prior-knowledge", "-"),
        ] {
            let mut curl = tool("curl");
            curl.args(["--silent", version, "--write-out", " %{http_code}", "--upload-file", source]);
            let output = curl.arg(server.url("/upload")).stdin(File::open(&upload).unwrap()).output().unwrap();
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.ends_with(&format!(" {status}")) && output.starts_with(&said),
                "{version} {source}: {output}"
            );
        }
    }
    drop(server.stop());
    let log = std::fs::read_to_string(log_of(&folder)).unwrap();
    assert_eq!(log.matches("\"outcome\":\"origin_content_too_large\"").count(), 4, "{log}");
}

/// An origin that has seen enough responds early. The client gets the response and does not hang.
#[test]
fn an_early_response_reaches_a_client_that_is_still_sending() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = read_head(&mut stream);
            let _ = stream.write_all(&response("413 Content Too Large", "Connection: close\r\n", b"enough"));
            let _ = stream.shutdown(std::net::Shutdown::Write);
            // The rest of the content is discarded, so that a reset does not destroy the response.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    let server = accelerate_url(&url, &[]);
    let mut stream = server.connect();
    write!(stream, "PUT /upload HTTP/1.1\r\nHost: test\r\nContent-Length: {UPLOAD}\r\n\r\n").unwrap();
    stream.write_all(&piece(0, 64 * 1024)).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
}

/// If a client disconnects in the middle of its upload, the origin never sees the end of the content.
#[test]
fn a_truncated_upload_never_looks_complete_to_the_origin() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    for framing in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let server = accelerate_url(&url, &[]);
        // From this response, flatout knows that the origin accepts chunks, and does not buffer them.
        let answer = thread::scope(|scope| {
            let client = scope.spawn(|| get(&server, "/"));
            let (mut stream, _) = listener.accept().unwrap();
            read_head(&mut stream).unwrap();
            stream.write_all(&response("200 OK", "Connection: close\r\n", b"")).unwrap();
            client.join().unwrap()
        });
        assert_eq!(answer.status, 200);
        let mut client = server.connect();
        let content = if framing.contains("chunked") { "4\r\nhalf\r\n" } else { "half" };
        write!(client, "POST /cut HTTP/1.1\r\nHost: test\r\n{framing}\r\n\r\n{content}").unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = read_head(&mut stream).unwrap();
        assert!(head.starts_with("POST /cut "));
        drop(client);
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
        assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 100, "{:?}", String::from_utf8_lossy(&rest));
    }
}

/// A request with content is never retried automatically, even if the origin closes the connection.
#[test]
fn requests_with_content_are_not_retried() {
    let origin = Origin::start(|_, _| Then::Close);
    let server = accelerate(&origin, &[]);
    let answer = ask(&server, "POST", "/post", "Content-Length: 0\r\n");
    assert_eq!((answer.status, origin.count("/post")), (502, 1));
}

#[test]
fn trailers_are_forwarded_both_ways() {
    let origin = Origin::responding(|request| {
        let sum = request.trailers.iter().find(|(name, _)| name == "x-sum").map_or("none", |(_, value)| value);
        let body = format!("{} {sum}", String::from_utf8_lossy(&request.body));
        let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
        format!("{head}{:x}\r\n{body}\r\n0\r\nX-Sum: {sum}\r\n\r\n", body.len()).into_bytes()
    });
    let server = accelerate(&origin, &[]);
    // From this response, flatout knows that the origin speaks HTTP/1.1, which has trailers.
    assert_eq!(get(&server, "/").status, 200);
    let request = "POST / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: TE, close\r\nTrailer: X-Sum\r\n\
                   Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n0\r\nX-Sum: 42\r\n\r\n";
    let answer = converse(&server, request.as_bytes()).remove(0);
    assert_eq!((answer.status, answer.text()), (200, "some 42".to_owned()));
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "42".to_owned())]);
}

#[test]
fn interim_responses_are_forwarded_before_the_final_one() {
    let origin = Origin::start(|request, stream| {
        let hints = "HTTP/1.1 103 Early Hints\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\n\
                     Upgrade: h2c\r\nLink: </style.css>; rel=preload\r\nProxy-Status: a\r\nProxy-Connection: close\r\n\r\n";
        let _ = stream.write_all(format!("HTTP/1.1 102 Processing\r\n\r\n{hints}").as_bytes());
        let _ = stream.write_all(&response("200 OK", "Cache-Control: no-store\r\n", request.target.as_bytes()));
        Then::Keep
    });
    let server = accelerate(&origin, &["--h2c"]);
    // First over a fresh connection, then over a pooled one.
    for _ in 0..2 {
        let answer = get(&server, "/hinted");
        assert_eq!((answer.status, answer.text()), (200, "/hinted".to_owned()));
        let hints = answer.interims.iter().find(|(status, _)| *status == 103).expect("a 103");
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(hints.1, [line("link", "</style.css>; rel=preload"), line("proxy-status", "a")]);
    }
    // RFC 9110 §15.2: an HTTP/1.0 client gets no interim responses.
    let old = converse(&server, b"GET /old HTTP/1.0\r\nHost: test\r\n\r\n").remove(0);
    assert!(old.interims.is_empty() && old.text() == "/old", "{old:?}");
    let verbose = run(tool("nghttp").args(["--verbose", "--no-verify-peer", &server.url("/h2")]));
    assert!(verbose.contains(":status: 103") && verbose.contains("/h2"), "{verbose}");
}

#[test]
fn h2load_gets_hits_and_forwarded_responses_over_http1_and_http2() {
    let origin = Origin::responding(|request| match request.path() {
        "/kept" => fresh(&[b'x'; 10_000]),
        _ => response("200 OK", "Cache-Control: no-store\r\n", &[b'y'; 10_000]),
    });
    let server = accelerate(&origin, &["--workers", "2", "--h2c"]);
    for (path, versions) in [("/kept", [&["--h1"][..], &[]]), ("/passed", [&["--h1"][..], &[]])] {
        for version in versions {
            let mut h2load = tool("h2load");
            h2load.args(["-n", "2000", "-c", "20", "-m", "5", "-t", "1"]).args(version);
            let said = run(h2load.arg(server.url(path)));
            assert!(said.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{path} {version:?}: {said}");
            assert!(said.contains("status codes: 2000 2xx"), "{said}");
        }
    }
    assert_eq!(origin.count("/kept"), 1);
    assert_eq!(origin.count("/passed"), 4000);
}
