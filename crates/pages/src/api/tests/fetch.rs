//! Tests of requests to other servers.

use super::{Ask, OriginAddress, Site};
use crate::api::budget::ContentBudget;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

/// A server for one connection, which sends `answer` and returns what it received.
fn serve(answer: Vec<u8>) -> (u16, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let count = stream.read(&mut buffer).unwrap_or(0);
            received.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&received);
            let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                let length = head
                    .lines()
                    .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
                body.len() >= length.unwrap_or(0)
            });
            if count == 0 || whole {
                break;
            }
        }
        let _ = stream.write_all(&answer);
        String::from_utf8_lossy(&received).into_owned()
    });
    (port, server)
}

fn site(port: u16) -> Site {
    Site::with(|settings| {
        settings.upstreams.insert("api".to_owned(), OriginAddress::new(false, "127.0.0.1", port));
    })
}

#[test]
fn an_answer_is_read_whole() {
    let (port, server) = serve(b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-A: b\r\nX-A: c\r\n\r\nhello".to_vec());
    let code = "local a = fetch('api', '/p?q=1', {method = 'POST', headers = {['X-B'] = 'd'}, body = 'content'})
                __r(a.status .. a.headers['x-a'] .. a.body)";
    let answered = site(port).run(&Ask::default(), code);
    assert_eq!((answered.error, &*answered.text), (None, "201b, chello"));
    let received = server.join().unwrap();
    assert!(received.starts_with("POST /p?q=1 HTTP/1.1\r\n") && received.ends_with("\r\n\r\ncontent"), "{received}");
    assert!(received.contains("X-B: d\r\n") && received.contains(&format!("Host: 127.0.0.1:{port}\r\n")), "{received}");
}

#[test]
fn failures_have_names() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let code = "__r(table.concat({tostring((fetch('api', '/'))), select(2, fetch('api', '/'))}, ' '))";
    assert_eq!(site(nobody).run(&Ask::default(), code).text, "nil origin_refused");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let code = "__r((select(2, fetch('api', '/', {timeout = 0.2}))))";
    assert_eq!(site(port).run(&Ask::default(), code).text, "fetch_timeout");
    let long = [&b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"[..], &vec![b'x'; 3_000_000]].concat();
    let (port, _server) = serve(long);
    assert_eq!(site(port).run(&Ask::default(), "__r((select(2, fetch('api', '/'))))").text, "fetch_too_large");
    let (port, _server) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec());
    let full = Site::with(|settings| {
        settings.upstreams.insert("api".to_owned(), OriginAddress::new(false, "127.0.0.1", port));
        settings.budget = Arc::new(ContentBudget::new(0));
    });
    assert_eq!(full.run(&Ask::default(), "__r((select(2, fetch('api', '/'))))").text, "fetch_content_budget");
}

#[test]
fn what_cannot_be_asked() {
    let site = site(9);
    for (code, part) in [
        ("fetch('other', '/')", "use one of: api"),
        ("fetch('api', 'http://elsewhere/')", "must begin with /"),
        ("fetch('api', '/a b')", "spaces"),
        ("fetch('api', '/a\\r\\nX: y')", "line breaks"),
        ("fetch('api', '/', {method = 'A B'})", "method"),
        ("fetch('api', '/', {method = 'CONNECT'})", "method"),
        ("fetch('api', '/', {headers = {['A'] = 'b\\r\\nC: d'}})", "line breaks"),
        ("fetch('api', '/', {headers = {Host = 'x'}})", "cannot set Host"),
        ("fetch('api', '/', {headers = {['Transfer-Encoding'] = 'chunked'}})", "cannot set Host"),
        ("fetch('api', '/', {timeout = 61})", "60"),
        ("fetch('api', '/', {tiemout = 1})", "options of fetch"),
    ] {
        let error = site.error(code);
        assert!(error.contains(part), "{code}: {error}");
    }
}
