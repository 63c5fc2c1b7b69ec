//! Request content that is buffered before an origin gets the request.

use super::super::harness::{Folder, Response, Server, TIMEOUT, read_to_end, wait_until};
use super::super::tool::{run, tool};
use std::fs::{OpenOptions, read_dir, read_link};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// The value of a field in `head`.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Reads the head of a request, or returns `None` at the end of the connection.
fn read_head(stream: &mut BufReader<impl Read>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// An origin that responds with this HTTP version, or with the status line in the field X-Respond. It skips chunked
/// content. It serves one connection at a time, and closes it after a request without the field X-Keep. Returns
/// its URL, and the head and the content of each request.
fn origin(version: &'static str) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            while let Some(head) = read_head(&mut stream) {
                let length = field(&head, "content-length").map_or(0, |digits| digits.parse().unwrap());
                let mut content = vec![0; length];
                stream.read_exact(&mut content).unwrap();
                let mut skipped = String::new();
                while field(&head, "transfer-encoding").is_some() && !skipped.ends_with("0\r\n\r\n") {
                    stream.read_line(&mut skipped).unwrap();
                }
                let line = field(&head, "x-respond").map_or_else(|| format!("{version} 200 OK"), str::to_owned);
                let connection = if field(&head, "x-keep").is_some() { "keep-alive" } else { "close" };
                sender.send((head, content)).unwrap();
                let response = format!("{line}\r\nContent-Length: 2\r\nConnection: {connection}\r\n\r\nok");
                stream.get_mut().write_all(response.as_bytes()).unwrap();
                if connection == "close" {
                    break;
                }
            }
        }
    });
    (url, receiver)
}

fn serve(folder: &Folder, url: &str, settings: &str) -> Server {
    let text = format!(
        "workers 1\nadmin off=#true\nsite \"*\" {{\n    listen \"127.0.0.1:0\" h2c=#true\n    proxy \"{url}\" {{ {settings} }}\n}}\n"
    );
    Server::run(folder, &text)
}

fn get(server: &Server) -> Response {
    Response::parse(&server.exchange(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
}

/// Uploads `file` with curl, which sends it without a length. Returns the status.
fn upload(server: &Server, file: &str, arguments: &[&str]) -> String {
    let mut curl = tool("curl");
    curl.args(["--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{http_code}"]).args(arguments);
    curl.args(["--header", "Transfer-Encoding: chunked", "--header", "Expect:", "--upload-file", file]);
    run(curl.arg(server.url("/upload")))
}

#[test]
fn an_origin_that_speaks_http10_gets_a_length() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let folder = Folder::with(&[("file", &content)]);
    let file = folder.path().join("file").display().to_string();
    for settings in ["", "buffer-requests \"4MiB\""] {
        for arguments in [&["--http1.1"][..], &["--http2-prior-knowledge"]] {
            let (url, requests) = origin("HTTP/1.0");
            let server = serve(&folder, &url, settings);
            // For the first upload, flatout does not know the version.
            for number in 1..=2 {
                assert_eq!(upload(&server, &file, arguments), "200");
                let (head, read) = requests.recv().unwrap();
                assert!(head.starts_with("PUT /upload HTTP/1.1\r\n") && !head.contains("chunked"), "{head}");
                assert!(read == content, "{settings}, {arguments:?}, {number}: {} bytes", read.len());
            }
        }
    }
}

#[test]
fn responses_show_the_version_and_errors_cast_doubt_on_it() {
    let folder = Folder::with(&[("file", b"abc")]);
    let file = folder.path().join("file").display().to_string();
    let (url, requests) = origin("HTTP/1.1");
    let server = serve(&folder, &url, "");
    let respond = |line: &str, fields: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Respond: {line}\r\n{fields}Connection: close\r\n\r\n");
        assert_eq!(Response::parse(&server.exchange(request.as_bytes())).body, b"ok");
        requests.recv().unwrap();
    };
    // Whether the upload that gets this response has a length.
    let has_length = |line: &str| {
        let status = upload(&server, &file, &["--http1.1", "--header", &format!("X-Respond: {line}")]);
        assert_eq!(Some(status.as_str()), line.split(' ').nth(1));
        let (head, content) = requests.recv().unwrap();
        let length = field(&head, "content-length");
        assert_eq!(length.is_none(), field(&head, "transfer-encoding") == Some("chunked"), "{head}");
        assert!(length.is_none() || (length, &content[..]) == (Some("3"), &b"abc"[..]), "{head}");
        length.is_some()
    };
    assert!(has_length("HTTP/1.0 411 Length Required"), "the version is unknown");
    assert!(has_length("HTTP/1.1 404 Not Found"), "so it remains after an error of version 1.0");
    assert!(!has_length("HTTP/1.0 411 Length Required"));
    assert!(has_length("HTTP/1.1 404 Not Found"), "the origin may have been replaced");
    assert!(!has_length("HTTP/1.1 200 OK"));
    respond("HTTP/1.0 503 Service Unavailable", "");
    assert!(has_length("HTTP/1.0 200 OK"));
    // A success shows the version more reliably than an error.
    assert!(has_length("HTTP/1.1 404 Not Found"));
    assert!(has_length("HTTP/1.1 404 Not Found"));
    // The second response arrives on a connection from the pool.
    respond("HTTP/1.1 200 OK", "X-Keep: yes\r\n");
    respond("HTTP/1.0 200 OK", "");
    assert!(has_length("HTTP/1.1 200 OK"));
    assert!(!has_length("HTTP/1.1 200 OK"));
}

#[test]
fn a_health_check_shows_the_version() {
    let folder = Folder::with(&[("file", "a".repeat(300_000).as_bytes())]);
    let file = folder.path().join("file").display().to_string();
    let (url, requests) = origin("HTTP/1.0");
    let server = serve(&folder, &url, "buffer-requests \"100KiB\"; health-check \"/health\" interval=\"100ms\"");
    // The second check follows the response to the first one.
    for _ in 0..2 {
        assert!(requests.recv().unwrap().0.starts_with("GET /health HTTP/1.1\r\n"));
    }
    // If the version were unknown, this would be forwarded in chunks.
    assert_eq!(upload(&server, &file, &["--http1.1"]), "411");
    assert!(requests.try_iter().all(|(head, _)| head.starts_with("GET /health ")));
}

#[test]
fn content_beyond_the_buffer_is_forwarded_while_the_version_is_unknown() {
    let folder = Folder::with(&[("file", "a".repeat(300_000).as_bytes())]);
    let file = folder.path().join("file").display().to_string();
    let (url, requests) = origin("HTTP/1.1");
    let server = serve(&folder, &url, "buffer-requests \"100KiB\"");
    assert_eq!(upload(&server, &file, &["--http1.1"]), "200");
    let (head, _) = requests.recv().unwrap();
    assert!(field(&head, "transfer-encoding") == Some("chunked") && field(&head, "content-length").is_none(), "{head}");
}

/// In a group of both versions, content that is buffered completely suits every origin. Longer content is refused only
/// if an origin that speaks HTTP/1.0 would get it.
#[test]
fn an_origin_that_speaks_http10_gets_no_chunks_in_a_mixed_group() {
    let folder = Folder::with(&[("small", b"abc"), ("large", "a".repeat(300_000).as_bytes())]);
    let file = |name: &str| folder.path().join(name).display().to_string();
    let [old, new] = ["HTTP/1.0", "HTTP/1.1"].map(origin);
    let urls = format!("{}\" \"{}", old.0, new.0);
    let settings = "balance \"round-robin\"; passive off=#true; buffer-requests \"100KiB\"";
    let server = serve(&folder, &urls, settings);
    let (mut seen_old, mut seen_new) = (0, 0);
    while seen_old == 0 || seen_new == 0 {
        assert_eq!(get(&server).body, b"ok");
        seen_old += old.1.try_iter().count();
        seen_new += new.1.try_iter().count();
        assert!(seen_old + seen_new < 100, "{seen_old} {seen_new}");
    }
    for _ in 0..4 {
        assert_eq!(upload(&server, &file("small"), &["--http1.1"]), "200");
    }
    let heads: Vec<_> = [&old.1, &new.1].map(|requests| requests.try_iter().collect::<Vec<_>>()).concat();
    assert!(heads.len() == 4 && heads.iter().all(|(head, _)| field(head, "content-length") == Some("3")), "{heads:?}");
    let mut statuses: Vec<_> = (0..4).map(|_| upload(&server, &file("large"), &["--http1.1"])).collect();
    statuses.sort_unstable();
    statuses.dedup();
    assert_eq!(statuses, ["200", "411"]);
    assert_eq!(old.1.try_iter().count(), 0);
    assert!(new.1.try_iter().all(|(head, _)| field(&head, "transfer-encoding") == Some("chunked")));
}

/// The descriptor of the server's only unlinked file, if it has `length` bytes, and the path that the file had.
fn buffer_of(server: &Server, length: u64) -> Option<(PathBuf, PathBuf)> {
    let descriptors = read_dir(format!("/proc/{}/fd", server.worker())).unwrap();
    descriptors.flatten().map(|entry| entry.path()).find_map(|descriptor| {
        let path = read_link(&descriptor).ok()?;
        let is_buffer = path.to_string_lossy().ends_with(" (deleted)");
        (is_buffer && descriptor.metadata().ok()?.len() == length).then_some((descriptor, path))
    })
}

/// If the policy sends a client's requests to one origin, only the version of that origin matters.
#[test]
fn hashing_selects_the_origin_that_needs_a_length() {
    let folder = Folder::with(&[("file", b"abc")]);
    let file = folder.path().join("file").display().to_string();
    let origins = ["HTTP/1.0", "HTTP/1.1"].map(origin);
    let urls = format!("{}\" \"{}", origins[0].0, origins[1].0);
    let policy = "balance \"consistent-hash\" header=\"X-Key\"; passive off=#true";
    let server = serve(&folder, &urls, policy);
    let keys: Vec<String> = (0..16).map(|key| format!("X-Key: {key}")).collect();
    // Returns the index of the origin that got the request, and the head of the request.
    let asked =
        || origins.iter().enumerate().find_map(|(index, (_, requests))| Some((index, requests.try_recv().ok()?.0)));
    for key in &keys {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{key}\r\nConnection: close\r\n\r\n");
        assert_eq!(Response::parse(&server.exchange(request.as_bytes())).body, b"ok");
    }
    let mut counts = [0; 2];
    while let Some((index, _)) = asked() {
        counts[index] += 1;
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    for key in &keys {
        assert_eq!(upload(&server, &file, &["--http1.1", "--header", key]), "200");
        let (index, head) = asked().unwrap();
        let (length, coding) = (field(&head, "content-length"), field(&head, "transfer-encoding"));
        let expected = if index == 0 { (Some("3"), None) } else { (None, Some("chunked")) };
        assert_eq!((length, coding), expected, "{head}");
    }
}

#[test]
fn a_buffer_is_a_file_and_its_loss_is_no_fault_of_the_client() {
    const LENGTH: usize = 1 << 20;
    let folder = Folder::new();
    let (url, requests) = origin("HTTP/1.0");
    let server = serve(&folder, &url, "");
    assert_eq!(get(&server).body, b"ok");
    requests.recv().unwrap();
    let mut client = server.connect();
    let head = "PUT /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    client.write_all(format!("{head}{LENGTH:x}\r\n{}\r\n", "a".repeat(LENGTH)).as_bytes()).unwrap();
    let mut found = None;
    wait_until("the content is buffered", || {
        found = buffer_of(&server, LENGTH as u64);
        found.is_some()
    });
    let (descriptor, path) = found.unwrap();
    // Landlock permits it without `buffer-requests`, too.
    assert!(path.starts_with(std::env::temp_dir().canonicalize().unwrap()), "{path:?}");
    OpenOptions::new().write(true).open(descriptor).unwrap().set_len(0).unwrap();
    client.write_all(b"0\r\n\r\n").unwrap();
    let response = Response::parse(&read_to_end(&mut client));
    assert_eq!((response.status, response.field("retry-after")), (503, Some("1")));
}

#[test]
fn trailers_are_forwarded_after_buffered_content() {
    const CHUNKS: &[u8] = b"3\r\nabc\r\n0\r\nX-Sum: 294\r\n\r\n";
    let folder = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = serve(&folder, &url, "buffer-requests \"1MiB\"");
    // The origin shows that it speaks HTTP/1.1. Over HTTP/1.0, there are no trailers.
    let response = thread::scope(|scope| {
        let client = scope.spawn(|| get(&server));
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        read_head(&mut stream).unwrap();
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
        client.join().unwrap()
    });
    assert_eq!(response.body, b"ok");
    let mut client = server.connect();
    let head =
        "PUT /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\nConnection: close\r\n\r\n";
    client.write_all(&[head.as_bytes(), CHUNKS].concat()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut stream = BufReader::new(stream);
    let head = read_head(&mut stream).unwrap();
    assert_eq!(field(&head, "transfer-encoding"), Some("chunked"), "{head}");
    let mut content = vec![0; CHUNKS.len()];
    stream.read_exact(&mut content).unwrap();
    assert_eq!(String::from_utf8_lossy(&content), String::from_utf8_lossy(CHUNKS));
    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
    assert!(read_to_end(&mut client).ends_with(b"\r\n\r\nok"));
}

#[test]
fn content_beyond_the_buffer_needs_a_length() {
    let folder = Folder::with(&[("file", "a".repeat(300_000).as_bytes())]);
    let file = folder.path().join("file").display().to_string();
    let (url, requests) = origin("HTTP/1.0");
    let server = serve(&folder, &url, "buffer-requests \"100KiB\"");
    assert_eq!(get(&server).body, b"ok");
    requests.recv().unwrap();
    assert_eq!(upload(&server, &file, &["--http1.1"]), "411");
    // With a length, the rest follows as it arrives.
    let mut curl = tool("curl");
    assert_eq!(run(curl.args(["--silent", "--upload-file", &file, &server.url("/upload")])), "ok");
    let (head, read) = requests.recv().unwrap();
    assert!(head.contains("\r\nContent-Length: 300000\r\n") && read == "a".repeat(300_000).as_bytes(), "{head}");
}

#[test]
fn a_slow_upload_occupies_no_connection_to_the_origin() {
    let folder = Folder::new();
    let (url, requests) = origin("HTTP/1.1");
    let server = serve(&folder, &url, "buffer-requests \"1MiB\"");
    let mut slow = server.connect();
    let head = "PUT /upload HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 300000\r\nConnection: close\r\n\r\n";
    slow.write_all(head.as_bytes()).unwrap();
    // flatout asks for the content, although this origin never does.
    let mut interim = [0; 25];
    slow.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    slow.write_all("a".repeat(200_000).as_bytes()).unwrap();
    // The origin serves one connection at a time.
    assert_eq!(get(&server).body, b"ok");
    assert!(requests.recv().unwrap().0.starts_with("GET / "));
    slow.write_all("a".repeat(100_000).as_bytes()).unwrap();
    assert!(read_to_end(&mut slow).ends_with(b"\r\n\r\nok"));
    assert_eq!(requests.recv().unwrap().1, "a".repeat(300_000).as_bytes());
}
