//! Request content that is buffered before an origin gets the request.

use super::super::harness::{Folder, Response, Server, read_to_end};
use super::super::tool::{run, tool};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// An origin that responds to one request per connection with this HTTP version, and knows only Content-Length.
/// Returns its URL, and the head and the content of each request.
fn origin(version: &'static str) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                stream.read_line(&mut head).unwrap();
            }
            let length = head.to_lowercase().split("content-length: ").nth(1).map(|rest| {
                let digits = rest.lines().next().unwrap();
                digits.parse().unwrap()
            });
            let mut content = vec![0; length.unwrap_or(0)];
            stream.read_exact(&mut content).unwrap();
            sender.send((head, content)).unwrap();
            let response = format!("{version} 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            stream.get_mut().write_all(response.as_bytes()).unwrap();
        }
    });
    (url, receiver)
}

fn serve(folder: &Folder, url: &str, settings: &str) -> Server {
    let text = format!(
        "workers 1\nadmin off=#true\nsite \"*\" {{\n    listen \"127.0.0.1:0\" h2c=#true\n    proxy {url:?} {{ {settings} }}\n}}\n"
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
        let (url, requests) = origin("HTTP/1.0");
        let server = serve(&folder, &url, settings);
        // From this response, flatout learns the version.
        assert_eq!(get(&server).body, b"ok");
        requests.recv().unwrap();
        for arguments in [&["--http1.1"][..], &["--http2-prior-knowledge"]] {
            assert_eq!(upload(&server, &file, arguments), "200");
            let (head, read) = requests.recv().unwrap();
            assert!(head.starts_with("PUT /upload HTTP/1.1\r\n") && !head.contains("chunked"), "{head}");
            assert!(read == content, "{settings}, {arguments:?}: {} bytes", read.len());
        }
    }
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
