//! Cookies of simulated clients over HTTP/1.

use super::{
    ClientSettings, LAST, PreparedRequest, REQUEST, RequestTemplate, Script, WorkerReport, answered, run_script, sent,
    server, settings,
};
use flatout_load::record::CookieCounts;
use flatout_load::schedule::{Begin, Visitor};
use flatout_load::template::Template;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Each slot is a client.
fn by_slot(begin: &Begin) -> Visitor {
    Visitor { number: begin.slot.into(), visit: 0, is_last: false }
}

/// Reads a request head, and returns it as text; `None` at the end of the connection.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

/// A server that gives each client without a cookie a new one, and closes each connection after three responses. Returns
/// the request heads.
fn shop() -> (SocketAddr, Receiver<String>) {
    let (sender, heads) = mpsc::channel();
    let address = server(move |index, mut stream| {
        for nth in 1.. {
            let Some(head) = read_head(&mut stream) else { return };
            let close = if nth == 3 { "Connection: close\r\n" } else { "" };
            let cookie = if head.contains("\r\nCookie: ") {
                String::new()
            } else {
                format!("Set-Cookie: id={index}.{nth}; Path=/\r\nSet-Cookie: theme=dark\r\n")
            };
            sender.send(head).unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 2\r\n{cookie}\r\nok");
            if stream.write_all(answer.as_bytes()).is_err() || nth == 3 {
                return;
            }
        }
    });
    (address, heads)
}

fn run(settings: ClientSettings, script: Script) -> WorkerReport<Script> {
    run_script(settings, Script { visitor: Some(by_slot), ..script })
}

#[test]
fn a_client_has_the_same_cookies_on_its_next_connection() {
    let (address, heads) = shop();
    let report = run(ClientSettings { stores_cookies: true, ..settings(address) }, Script::new(1, 10));
    assert_eq!((answered(&report), report.drive.made.len()), (10, 4));
    let heads: Vec<_> = heads.try_iter().collect();
    let with = "GET / HTTP/1.1\r\nHost: a\r\nCookie: id=0.1; theme=dark\r\n\r\n";
    assert_eq!(heads[0].as_bytes(), REQUEST);
    assert!(heads.len() == 10 && heads[1..].iter().all(|head| head == with), "{heads:#?}");
    assert_eq!(report.cookies, CookieCounts { clients: 1, stored: 2, requests: 9, ..CookieCounts::default() });
    let sent: Vec<_> = report.drive.ended.iter().map(|ended| ended.sent_bytes as usize).collect();
    assert!(sent[0] == REQUEST.len() && sent[1..].iter().all(|bytes| *bytes == with.len()), "{sent:?}");
    // The time to store the cookies is not part of the next response time.
    let ended = &report.drive.ended;
    assert!(ended[1].begun_ns > ended[0].ended_ns, "{ended:#?}");
    assert_eq!(ended[2].begun_ns, ended[1].ended_ns);
}

#[test]
fn a_client_that_the_drive_drops_has_no_cookies() {
    let (address, heads) = shop();
    let script = Script { leaves: true, drops_clients: true, ..Script::new(1, 3) };
    let report = run(ClientSettings { stores_cookies: true, ..settings(address) }, script);
    assert_eq!(answered(&report), 3);
    assert!(heads.try_iter().all(|head| head.as_bytes() == REQUEST));
    assert_eq!(report.cookies, CookieCounts { clients: 3, stored: 6, ..CookieCounts::default() });
}

#[test]
fn a_large_request_with_cookies_is_sent_completely() {
    const CONTENT_BYTES: usize = 8 * 1024 * 1024;
    let (sender, heads) = mpsc::channel();
    let address = server(move |_, mut stream| {
        // The third request needs another connection.
        for close in ["", "Connection: close\r\n"] {
            let Some(head) = read_head(&mut stream) else { return };
            let mut content = vec![0; CONTENT_BYTES];
            stream.read_exact(&mut content).unwrap();
            assert!(content.iter().all(|byte| *byte == b'x'));
            sender.send(head).unwrap();
            write!(stream, "HTTP/1.1 200 OK\r\n{close}Content-Length: 0\r\nSet-Cookie: a=1\r\n\r\n").unwrap();
        }
    });
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {CONTENT_BYTES}\r\n");
    let bytes = [head.as_bytes(), b"\r\n", &vec![b'x'; CONTENT_BYTES]].concat();
    let requests = [PreparedRequest::plain(bytes)].into();
    let report = run(ClientSettings { stores_cookies: true, requests, ..settings(address) }, Script::new(1, 3));
    assert_eq!((answered(&report), sent(&report), report.drive.made.len()), (3, 3, 2));
    let with = format!("{head}Cookie: a=1\r\n\r\n");
    assert_eq!(heads.try_iter().collect::<Vec<_>>(), [format!("{head}\r\n"), with.clone(), with.clone()]);
    let lengths: Vec<_> = report.drive.ended.iter().map(|ended| ended.sent_bytes as usize).collect();
    let with_bytes = with.len() + CONTENT_BYTES;
    assert_eq!(lengths, [head.len() + b"\r\n".len() + CONTENT_BYTES, with_bytes, with_bytes]);
}

#[test]
fn without_cookies_every_request_is_the_prepared_one() {
    let (address, heads) = shop();
    let report = run(settings(address), Script::new(1, 7));
    assert_eq!((answered(&report), report.cookies), (7, CookieCounts::default()));
    assert!(heads.try_iter().all(|head| head.as_bytes() == REQUEST));
}

#[test]
fn a_client_that_makes_no_further_request_stores_no_cookie() {
    let (address, heads) = shop();
    let mut script = Script::new(1, 4);
    script.calls = 2;
    script.visitor = Some(|begin| Visitor { number: begin.slot.into(), visit: begin.visit / 2, is_last: begin.closes });
    let request = PreparedRequest::new(REQUEST, LAST);
    let settings = ClientSettings { stores_cookies: true, requests: [request].into(), ..settings(address) };
    let report = run_script(settings, script);
    assert_eq!(answered(&report), 4);
    // The second request of each connection is the client's last, and the next client has no cookie.
    let heads: Vec<_> = heads.try_iter().collect();
    assert_eq!(heads.iter().map(|head| head.contains("\r\nCookie: ")).collect::<Vec<_>>(), [false, true, false, true]);
    assert!(heads[1].ends_with("\r\nConnection: close\r\nCookie: id=0.1; theme=dark\r\n\r\n"), "{}", heads[1]);
    assert_eq!(report.cookies, CookieCounts { clients: 2, stored: 4, requests: 2, ..CookieCounts::default() });
}

#[test]
fn filled_and_pipelined_requests_have_cookies_too() {
    let template = RequestTemplate {
        head: Template::parse(b"POST /{seq} HTTP/1.1\r\nHost: a\r\nContent-Length: ").unwrap(),
        content: Some(Template::parse(b"").unwrap()),
        kept_end: b"\r\n\r\n"[..].into(),
        last_end: b"\r\n\r\n"[..].into(),
        block: [].into(),
    };
    let filled = PreparedRequest { template: Some(Box::new(template)), ..PreparedRequest::plain(REQUEST.to_vec()) };
    let requests = [PreparedRequest::plain(REQUEST.to_vec()), filled].into();
    let (sender, heads) = mpsc::channel();
    let address = server(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            // The cookie is only for the folder of the second request.
            let path = if head.starts_with("GET / ") { "/" } else { "/1" };
            sender.send(head).unwrap();
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: a{}=1; Path={path}\r\n\r\n", path.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let mut script = Script::new(1, 3);
    script.burst = 2;
    let report = run(ClientSettings { stores_cookies: true, requests, ..settings(address) }, script);
    assert_eq!(answered(&report), 6);
    let heads: Vec<_> = heads.try_iter().collect();
    let distinct: BTreeSet<_> = heads[2..].iter().map(String::as_str).collect();
    let expected = [
        "GET / HTTP/1.1\r\nHost: a\r\nCookie: a1=1\r\n\r\n",
        "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nCookie: a2=1; a1=1\r\n\r\n",
    ];
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), expected, "{heads:#?}");
    assert!(!heads[..2].concat().contains("Cookie"));
    assert_eq!(report.cookies, CookieCounts { clients: 1, stored: 6, requests: 4, ..CookieCounts::default() });
}

#[test]
fn cookies_are_sent_on_the_other_connections_of_a_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let long = format!("id={}", "x".repeat(1_000));
    let expected = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {long}\r\n\r\n");
    let server = thread::spawn(move || {
        let mut streams = [0, 1].map(|_| listener.accept().unwrap().0);
        for stream in &mut streams {
            assert_eq!(read_head(stream).unwrap().as_bytes(), REQUEST);
        }
        let respond = |mut stream: &TcpStream, field: &str| {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{field}\r\n").unwrap();
        };
        respond(&streams[0], &format!("Set-Cookie: {long}\r\n"));
        let first = read_head(&mut streams[0]).unwrap();
        // The client now has the cookie, and the other connection was opened without it.
        respond(&streams[1], "");
        let second = read_head(&mut streams[1]).unwrap();
        for stream in &streams {
            respond(stream, "");
        }
        [first, second]
    });
    let mut script = Script::new(2, 4);
    script.visitor = Some(|_| Visitor { number: 0, visit: 0, is_last: false });
    let report = run_script(ClientSettings { stores_cookies: true, slots: 2, ..settings(address) }, script);
    assert_eq!((answered(&report), report.drive.made.len()), (4, 2));
    assert_eq!(server.join().unwrap(), [expected.as_str(), &expected]);
    assert_eq!(report.cookies, CookieCounts { clients: 1, stored: 1, requests: 2, ..CookieCounts::default() });
}

#[test]
fn requests_that_are_not_sent_do_not_count_as_sent_with_cookies() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        read_head(&mut stream).unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\nSet-Cookie: a=1\r\n\r\n";
        stream.write_all(answer).unwrap();
    });
    let report = run(ClientSettings { stores_cookies: true, ..settings(address) }, Script::new(1, 3));
    // The second connection is refused.
    assert_eq!((answered(&report), sent(&report), report.drive.ended.len()), (1, 1, 2));
    assert_eq!(report.cookies, CookieCounts { clients: 1, stored: 1, ..CookieCounts::default() });
}
