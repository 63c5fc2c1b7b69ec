//! The first minute with flatout: a folder is served, with every response that a browser or a person may see.

use super::harness::{Folder, Server, read_response};
use std::io::Write;

fn site() -> Folder {
    Folder::with(&[
        ("index.html", b"<h1>Welcome</h1>"),
        ("docs/index.html", b"docs"),
        ("docs/a b.txt", b"0123456789"),
        ("bare/file.txt", b"x"),
        (".secret", b"s"),
        (".well-known/security.txt", b"w"),
        ("empty.txt", b""),
    ])
}

#[test]
fn files_folders_and_missing_paths() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    for (path, status, body) in [
        ("/", 200, "<h1>Welcome</h1>"),
        ("/index.html", 200, "<h1>Welcome</h1>"),
        ("/docs/", 200, "docs"),
        ("/docs/a%20b.txt?query", 200, "0123456789"),
        ("/empty.txt", 200, ""),
        ("/.well-known/security.txt", 200, "w"),
    ] {
        let response = server.get(path);
        assert_eq!((response.status, String::from_utf8_lossy(&response.body).as_ref()), (status, body), "{path}");
        assert_eq!(response.field("content-length"), Some(body.len().to_string().as_str()), "{path}");
    }
    for (path, status, location) in [
        ("/docs", 301, "/docs/"),
        ("/docs?a=b", 301, "/docs/?a=b"),
        ("//docs//", 301, "/docs/"),
        ("//evil.example/%2561", 301, "/evil.example/%2561"),
    ] {
        let response = server.get(path);
        assert_eq!((response.status, response.field("location")), (status, Some(location)), "{path}");
    }
    for path in ["/none", "/bare/", "/.secret", "/docs/none/", "/index.html/", "/docs%2findex.html"] {
        let response = server.get(path);
        assert_eq!(response.status, 404, "{path}");
        assert!(String::from_utf8_lossy(&response.body).contains("404"), "{path}");
    }
}

#[test]
fn conditions_and_ranges() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let first = server.get("/docs/a%20b.txt");
    let (etag, date) = (first.field("etag").unwrap().to_owned(), first.field("last-modified").unwrap().to_owned());
    assert!(etag.starts_with('"'), "a strong tag: {etag}");
    let ask = |fields: &str| {
        let text = format!("GET /docs/a%20b.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n\r\n");
        let response = super::harness::Response::parse(&server.exchange(text.as_bytes()));
        (response.status, String::from_utf8_lossy(&response.body).into_owned(), response)
    };
    assert_eq!(ask(&format!("If-None-Match: {etag}")).0, 304);
    assert_eq!(ask(&format!("If-None-Match: \"x\", W/{etag}")).0, 304);
    assert_eq!(ask("If-None-Match: \"x\"").0, 200);
    assert_eq!(ask(&format!("If-Modified-Since: {date}")).0, 304);
    assert_eq!(ask("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT").0, 200);
    assert_eq!(ask("If-Match: \"x\"").0, 412);
    assert_eq!(ask(&format!("If-Match: {etag}")).0, 200);
    assert_eq!(ask("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT").0, 412);
    let (status, body, response) = ask("Range: bytes=2-4");
    assert_eq!((status, body.as_str(), response.field("content-range")), (206, "234", Some("bytes 2-4/10")));
    assert_eq!(ask("Range: bytes=-3").1, "789");
    assert_eq!(ask("Range: bytes=8-").1, "89");
    let (status, _, response) = ask("Range: bytes=10-");
    assert_eq!((status, response.field("content-range")), (416, Some("bytes */10")));
    let (status, body, response) = ask("Range: bytes=0-1,3-4");
    assert_eq!((status, body.as_str(), response.field("content-range")), (206, "01234", Some("bytes 0-4/10")));
    assert_eq!(ask(&format!("Range: bytes=0-1\r\nIf-Range: {etag}")).0, 206);
    assert_eq!(ask("Range: bytes=0-1\r\nIf-Range: \"x\"").0, 200);
}

#[test]
fn methods_get_the_right_statuses() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let mut stream = server.connect();
    let mut ask = |line: &str, rest: &str| {
        write!(stream, "{line} HTTP/1.1\r\nHost: a\r\n{rest}").unwrap();
        // The response to HEAD declares a length without sending content.
        if line.starts_with("HEAD") {
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
                bytes.push(byte[0]);
            }
            return super::harness::Response::parse(&bytes);
        }
        read_response(&mut stream)
    };
    let head = ask("HEAD /docs/a%20b.txt", "\r\n");
    assert_eq!((head.status, head.field("content-length")), (200, Some("10")));
    let options = ask("OPTIONS *", "\r\n");
    assert_eq!((options.status, options.field("allow")), (204, Some("GET, HEAD, OPTIONS")));
    let post = ask("POST /", "Content-Length: 3\r\n\r\nabc");
    assert_eq!((post.status, post.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    assert_eq!(ask("BREW /", "\r\n").status, 501);
    assert_eq!(ask("GET /", "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n").status, 200);
    assert_eq!(ask("GET /", "Content-Length: 2\r\n\r\nab").status, 200);
    assert_eq!(ask("HEAD /", "\r\n").status, 200);
}
