//! Responses to visitors when the application server fails, and the handling of misbehaving scripts.

use super::super::harness::{Folder, read_to_end, wait_until};
use super::scripted::{Scripted, complete_response, end, read_record, record, send, stderr, stdout};
use super::slow::buffered;
use super::{ask, get, outcomes, pause, serve, text};
use std::io::{Read as _, Write as _};
use std::sync::atomic::Ordering;
use std::time::Instant;

const HELLO: &str = "Content-Type: text/plain\r\n\r\nhello";

fn folder() -> Folder {
    Folder::with(&[
        ("x.php", b"<?php"),
        ("index.php", b"<?php"),
        ("private/big.bin", [7_u8; 1_000].repeat(100).as_slice()),
    ])
}

#[test]
fn each_failure_has_a_status_and_a_name() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |asked, stream| {
        let mut endless = || {
            let line = "X-A: b\r\n".repeat(1_000);
            while send(stream, &stdout(&line)) {}
            false
        };
        let bytes = match asked.variables["QUERY_STRING"].as_str() {
            "closed" => return false,
            "cut-head" => stdout("Content-Type: te"),
            "head-without-end" => [stdout("Content-Type: text/plain\r\n"), end(0)].concat(),
            "endless-head" => return endless(),
            "malformed" => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            "other-request" => vec![1, 6, 0, 9, 0, 1, 0, 0, b'x'],
            "status-line" => complete_response("HTTP/1.1 200 OK\r\n\r\n"),
            "no-field" => complete_response("what?\r\n\r\n"),
            "status" => complete_response("Status: 99\r\n\r\n"),
            "overloaded" => end(2),
            "role" => end(3),
            "slow" => {
                pause(6_000);
                complete_response(HELLO)
            }
            _ => complete_response(HELLO),
        };
        send(stream, &bytes);
        false
    });
    let server = serve(&folder, &app.step(folder.path(), "timeouts { head \"2s\"; body \"2s\" }"));
    let cases = [
        ("closed", 502, "php_closed_before_head"),
        ("cut-head", 502, "php_cut_head"),
        ("head-without-end", 502, "php_cut_head"),
        ("endless-head", 502, "php_head_too_large"),
        ("malformed", 502, "php_record_malformed"),
        ("other-request", 502, "php_record_malformed"),
        ("status-line", 502, "php_status_line"),
        ("no-field", 502, "php_head_malformed"),
        ("status", 502, "php_head_malformed"),
        ("overloaded", 503, "php_overloaded"),
        ("role", 502, "php_role_unknown"),
        ("slow", 504, "php_head_timeout"),
        ("well", 200, "php_answered"),
    ];
    for (query, status, _) in cases {
        let before = Instant::now();
        let response = get(&server, &format!("/x.php?{query}"));
        assert_eq!(response.status, status, "{query}: {}", text(&response));
        assert!(before.elapsed().as_millis() < 5_500, "{query}");
    }
    let names: Vec<_> = cases.iter().map(|(_, _, name)| *name).collect();
    assert_eq!(outcomes(&folder, cases.len()), names);
}

#[test]
fn a_missing_server_is_distinguished_from_one_that_refuses() {
    let folder = folder();
    let root = folder.path();
    let socket = root.join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let port = super::super::accelerator::wiki::free_port();
    let php =
        |address: &str, route: &str| format!("    route \"/{route}/*\" {{ php {address:?} {{ root {root:?} }} }}");
    for name in ["none/x.php", "stale/x.php", "tcp/x.php"] {
        folder.write(name, b"<?php");
    }
    let steps = [
        php("unix:none.sock", "none"),
        php(&format!("unix:{}", socket.display()), "stale"),
        php(&format!("tcp:127.0.0.1:{port}"), "tcp"),
    ];
    let server = serve(&folder, &steps.join("\n"));
    for name in ["none", "stale", "tcp"] {
        assert_eq!(get(&server, &format!("/{name}/x.php")).status, 502);
    }
    assert_eq!(outcomes(&folder, 3), ["php_no_socket", "php_refused", "php_refused"]);
}

#[test]
fn a_truncated_response_never_looks_complete() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |asked, stream| {
        let bytes = match asked.variables["QUERY_STRING"].as_str() {
            "short" => complete_response("Content-Length: 9\r\n\r\nhello"),
            "broken" => [stdout(HELLO), vec![9; 16]].concat(),
            "slow" => {
                send(stream, &stdout(HELLO));
                pause(1_500);
                return false;
            }
            _ => stdout(HELLO),
        };
        send(stream, &bytes);
        false
    });
    let server = serve(&folder, &app.step(folder.path(), "timeouts { body \"300ms\" }"));
    for query in ["cut", "short", "broken", "slow"] {
        let request = format!("GET /x.php?{query} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let bytes = server.exchange(request.as_bytes());
        let shown = String::from_utf8_lossy(&bytes);
        let is_refused = shown.starts_with("HTTP/1.1 502");
        assert!(is_refused || !shown.contains("\r\n0\r\n\r\n"), "{query}: {shown}");
        assert!(!shown.contains("Content-Length: 5\r\n"), "{query}: {shown}");
    }
}

/// nginx sends as many bytes as the script declared, whatever follows: often a newline after `?>`.
#[test]
fn content_beyond_the_declared_length_is_discarded() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |asked, stream| {
        let head = "Content-Length: 5\r\n\r\n";
        let parts = match asked.variables["QUERY_STRING"].as_str() {
            "at-once" => vec![complete_response(&format!("{head}hello\n"))],
            "later" => vec![stdout(head), stdout("hello\n"), stdout("more"), [record(6, b""), end(0)].concat()],
            "much" => vec![stdout(head), stdout("hello"), stdout(&"x".repeat(60_000)).repeat(3), end(0)],
            // The response is complete, so what breaks then does not matter.
            "broken" => vec![stdout(&format!("{head}hel")), [stdout("lo"), vec![9; 16]].concat()],
            _ => vec![complete_response("Content-Length: 0\r\n\r\n\n")],
        };
        parts.iter().all(|part| {
            pause(20);
            send(stream, part)
        }) && asked.variables["QUERY_STRING"] != "broken"
    });
    let server = serve(&folder, &app.step(folder.path(), ""));
    for (query, content) in [("at-once", "hello"), ("later", "hello"), ("much", "hello"), ("broken", "hello"), ("", "")]
    {
        // The client's connection remains usable.
        let requests = format!(
            "GET /x.php?{query} HTTP/1.1\r\nHost: a\r\n\r\nGET /x.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        );
        let bytes = server.exchange(requests.as_bytes());
        let shown = String::from_utf8_lossy(&bytes);
        let (head, rest) = shown.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}", content.len())), "{query}: {shown}");
        let next = rest.strip_prefix(content).unwrap_or_else(|| panic!("{query}: {shown}"));
        assert!(next.starts_with("HTTP/1.1 200 ") && next.ends_with("\r\n\r\n"), "{query}: {shown}");
    }
    let (_, log) = server.stop();
    assert!(log.contains("x.php: the script sent more content than its Content-Length of 5; "), "{log}");
}

#[test]
fn what_arrived_of_a_response_that_breaks_off_is_sent() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |asked, stream| {
        let head = "Content-Length: 9\r\n\r\n";
        let parts = match asked.variables["QUERY_STRING"].as_str() {
            "at-once" => vec![complete_response(&format!("{head}hello"))],
            "later" => vec![stdout(head), [stdout("hello"), record(6, b""), end(0)].concat()],
            "broken" => vec![stdout(head), [stdout("hello"), vec![9; 16]].concat()],
            _ => vec![stdout(head), stdout("hello")],
        };
        for part in &parts {
            pause(20);
            send(stream, part);
        }
        false
    });
    let server = serve(&folder, &app.step(folder.path(), ""));
    for query in ["at-once", "later", "broken", "closed"] {
        let request = format!("GET /x.php?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
        let bytes = server.exchange(request.as_bytes());
        let shown = String::from_utf8_lossy(&bytes);
        assert!(shown.contains("\r\nContent-Length: 9\r\n") && shown.ends_with("\r\n\r\nhello"), "{query}: {shown}");
    }
}

#[test]
fn connections_are_reused_and_a_closed_one_fails_no_request() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |asked, stream| {
        assert!(asked.keeps);
        send(stream, &complete_response(HELLO));
        // The fourth request uses a connection that is closed without a response.
        match asked.number {
            2 => {
                let _ = read_record(stream);
                false
            }
            _ => true,
        }
    });
    let server = serve(&folder, &app.step(folder.path(), "idle-connections 8"));
    for _ in 0..6 {
        assert_eq!(text(&get(&server, "/x.php")), "hello");
    }
    assert_eq!(app.connections.load(Ordering::SeqCst), 2);
    let names = outcomes(&folder, 6);
    assert_eq!(names.iter().filter(|name| *name == "php_answered_again").count(), 1, "{names:?}");
}

#[test]
fn a_request_that_may_have_had_effects_is_not_retried() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |asked, stream| {
        if asked.number > 0 {
            return false;
        }
        send(stream, &complete_response(HELLO))
    });
    let server = serve(&folder, &app.step(folder.path(), "idle-connections 8"));
    assert_eq!(get(&server, "/x.php").status, 200);
    let request = "POST /x.php HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
    assert_eq!(ask(&server, request).status, 502);
    assert_eq!(app.asked().len(), 2, "the request is sent only once");
    assert_eq!(app.connections.load(Ordering::SeqCst), 1, "the connection is reused");
    assert_eq!(outcomes(&folder, 2)[1], "php_closed_before_head");
}

/// A kept connection that no longer accepts anything, although the server has not closed it for reading.
#[test]
fn a_request_of_which_nothing_was_accepted_is_sent_again_whatever_its_method() {
    let folder = folder();
    let kept = std::sync::Mutex::new(Vec::new());
    let app = Scripted::start(folder.path(), move |asked, stream| {
        if asked.number == 0 {
            // Before the response, so that it holds for the next request.
            stream.shutdown(std::net::Shutdown::Read).unwrap();
            kept.lock().unwrap().push(stream.try_clone().unwrap());
        }
        let content = String::from_utf8_lossy(&asked.content);
        send(stream, &complete_response(&format!("Content-Type: text/plain\r\n\r\n{content}")))
    });
    let server = serve(&folder, &app.step(folder.path(), "idle-connections 8"));
    for content in ["first", "second"] {
        let length = content.len();
        let request = format!(
            "POST /x.php HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{content}"
        );
        let answer = ask(&server, &request);
        assert_eq!((answer.status, text(&answer).as_str()), (200, content));
    }
    assert_eq!((app.asked().len(), app.connections.load(Ordering::SeqCst)), (2, 2));
    assert_eq!(outcomes(&folder, 2), ["php_answered", "php_answered_again"]);
}

#[test]
fn content_is_forwarded_with_its_length() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |asked, stream| {
        let told = &asked.variables["CONTENT_LENGTH"];
        let sum: u64 = asked.content.iter().map(|&byte| u64::from(byte)).sum();
        send(stream, &complete_response(&format!("\r\n{told} {} {sum}", asked.content.len())))
    });
    let server = serve(&folder, &app.step(folder.path(), "content-limit \"1MiB\"; spool-limit \"300KiB\""));
    let body = |bytes: usize| "a".repeat(bytes);
    let plain = |bytes: usize| {
        let body = body(bytes);
        ask(
            &server,
            &format!("POST /x.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n{body}"),
        )
    };
    let chunked = |bytes: usize| {
        let body = body(bytes);
        ask(
            &server,
            &format!(
                "POST /x.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{body}\r\n0\r\n\r\n"
            ),
        )
    };
    for bytes in [0, 1, 65_535, 65_536, 200_000, 1_048_576] {
        assert_eq!(text(&plain(bytes)), format!("{bytes} {bytes} {}", bytes * 97), "{bytes}");
    }
    for bytes in [1, 65_536, 65_537, 250_000, 310_000, 1_048_576] {
        assert_eq!(text(&chunked(bytes)), format!("{bytes} {bytes} {}", bytes * 97), "{bytes}");
    }
    assert_eq!(plain(1_048_577).status, 413);
    assert_eq!(chunked(1_048_577).status, 413);
    let full = Scripted::start(folder.path(), |_, stream| send(stream, &complete_response(HELLO)));
    let server = serve(&folder, &full.step(folder.path(), "spool-total \"2MiB\""));
    let chunk = format!("40000\r\n{}\r\n", body(0x40000));
    let chunked = |count: usize| {
        let content = chunk.repeat(count);
        format!(
            "POST /x.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{content}0\r\n\r\n"
        )
    };
    // The smallest total has space for one file.
    assert_eq!(ask(&server, &chunked(4)).status, 200);
    assert_eq!(full.asked().len(), 1);
    // It would never fit.
    let request = chunked(5);
    assert_eq!(ask(&server, &request).status, 413);
    assert_eq!(full.asked().len(), 1);
    let steps = full.step(folder.path(), "spool-total \"4MiB\"");
    let server = serve(&folder, &format!("    route \"/metrics\" {{ metrics; }}\n{steps}"));
    let mut slow = server.connect();
    let head = "POST /x.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    slow.write_all(format!("{head}1e0000\r\n{}\r\n", body(0x1e_0000)).as_bytes()).unwrap();
    wait_until("the first request is buffered", || buffered(&server) == 0x1e_0000);
    // Both together need more than half of the total.
    let answer = ask(&server, &request);
    assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")));
    assert_eq!(full.asked().len(), 1);
    slow.write_all(b"0\r\n\r\n").unwrap();
    assert!(read_to_end(&mut slow).ends_with(b"hello"));
    let refusing = Scripted::start(folder.path(), |_, stream| send(stream, &complete_response(HELLO)));
    let server = serve(&folder, &refusing.step(folder.path(), "spool-limit \"0B\""));
    let request =
        "POST /x.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    assert_eq!(ask(&server, request).status, 411);
    assert!(refusing.asked().is_empty());
}

#[test]
fn content_that_was_sent_is_not_buffered_while_the_response_arrives() {
    let folder = folder();
    let (sender, receiver) = std::sync::mpsc::channel();
    let receiver = std::sync::Mutex::new(receiver);
    let app = Scripted::start(folder.path(), move |_, stream| {
        send(stream, &stdout("Content-Type: text/plain\r\n\r\nhel"));
        receiver.lock().unwrap().recv().unwrap();
        send(stream, &complete_response("lo"))
    });
    let steps = app.step(folder.path(), "");
    let server = serve(&folder, &format!("    route \"/metrics\" {{ metrics; }}\n{steps}"));
    let mut client = server.connect();
    let content = "a".repeat(300_000);
    let head = "POST /x.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n";
    client.write_all(format!("{head}{content}").as_bytes()).unwrap();
    let mut first = [0];
    client.read_exact(&mut first).unwrap();
    wait_until("the request is not buffered", || buffered(&server) == 0);
    sender.send(()).unwrap();
    assert!(read_to_end(&mut client).ends_with(b"2\r\nlo\r\n0\r\n\r\n"));
}

#[test]
fn a_disconnected_client_aborts_its_request() {
    let folder = folder();
    let (sender, receiver) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let app = Scripted::start(folder.path(), move |asked, stream| {
        if asked.variables["QUERY_STRING"] == "well" {
            return send(stream, &complete_response(HELLO));
        }
        let next = read_record(stream).map(|(kind, _)| kind);
        sender.lock().unwrap().send((next, read_record(stream).is_none())).unwrap();
        false
    });
    let server = serve(&folder, &app.step(folder.path(), ""));
    let mut stream = server.connect();
    std::io::Write::write_all(&mut stream, b"GET /x.php HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    wait_until("the script runs", || app.asked().len() == 1);
    super::super::timeouts::reset(stream);
    let told = receiver.recv_timeout(super::super::harness::TIMEOUT).unwrap();
    assert_eq!(told, (Some(2), true), "it is told, and then the connection ends");
    assert_eq!(get(&server, "/x.php?well").status, 200);
}

#[test]
fn script_errors_are_logged_within_limits() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |_, stream| {
        let flood: Vec<u8> = (0..300).flat_map(|index| stderr(&format!("PHP message: warning {index}\n"))).collect();
        send(stream, &[flood, stderr("\u{1b}[31mred\n"), stderr("half a "), complete_response(HELLO)].concat())
    });
    let server = serve(&folder, &app.step(folder.path(), ""));
    assert_eq!(text(&get(&server, "/x.php")), "hello");
    pause(1_500);
    let (_, log) = server.stop();
    assert!(log.contains("x.php: PHP message: warning 0\n") && log.contains("warning 99\n"), "{log}");
    assert!(!log.contains("warning 100\n") && log.contains("(202 more lines)"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
}

#[test]
fn files_named_by_scripts_are_sent_only_from_configured_folders() {
    let folder = folder();
    let private = folder.path().join("private");
    folder.write("private/x.php", b"<?php 'secret'");
    folder.write("outside.txt", b"outside");
    let shown = private.display().to_string();
    let app = Scripted::start(folder.path(), move |asked, stream| {
        let named = match asked.variables["QUERY_STRING"].as_str() {
            "path" => format!("X-Sendfile: {shown}/big.bin"),
            "address" => "X-Accel-Redirect: /protected/big.bin".to_owned(),
            "up" => format!("X-Sendfile: {shown}/../outside.txt"),
            "address-up" => "X-Accel-Redirect: /protected/%2e%2e/outside.txt".to_owned(),
            "elsewhere" => "X-Sendfile: /etc/passwd".to_owned(),
            "beside" => format!("X-Sendfile: {shown}-not/big.bin"),
            "unknown" => "X-Accel-Redirect: /other/big.bin".to_owned(),
            "source" => "X-Accel-Redirect: /protected/x.php".to_owned(),
            _ => "X-Accel-Redirect: /protected/none".to_owned(),
        };
        let head = format!(
            "Content-Type: image/png\r\nContent-Disposition: attachment\r\nETag: \"s\"\r\n{named}\r\n\r\nignored"
        );
        send(stream, &complete_response(&head))
    });
    let settings = format!("sendfile {private:?}; accel-redirect \"/protected/\" {private:?}");
    let server = serve(&folder, &app.step(folder.path(), &settings));
    for query in ["path", "address"] {
        let whole = get(&server, &format!("/x.php?{query}"));
        assert_eq!((whole.status, whole.body.len()), (200, 100_000), "{query}");
        assert_eq!(whole.field("content-type"), Some("image/png"));
        assert_eq!(whole.field("content-disposition"), Some("attachment"));
        let tag = whole.field("etag").unwrap();
        assert_ne!(tag, "\"s\"");
        let part = format!("GET /x.php?{query} HTTP/1.1\r\nHost: a\r\nRange: bytes=10-19\r\nConnection: close\r\n\r\n");
        let part = ask(&server, &part);
        assert_eq!((part.status, part.body.as_slice()), (206, &[7; 10][..]));
        let known =
            format!("GET /x.php?{query} HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\nConnection: close\r\n\r\n");
        assert_eq!(ask(&server, &known).status, 304);
    }
    for (query, status) in [
        ("elsewhere", 502),
        ("beside", 502),
        ("unknown", 502),
        ("up", 404),
        ("address-up", 404),
        ("source", 404),
        ("none", 404),
    ] {
        let response = get(&server, &format!("/x.php?{query}"));
        assert_eq!(response.status, status, "{query}: {}", text(&response));
    }
    assert_eq!(outcomes(&folder, 13).last().map(String::as_str), Some("php_file_missing"));
}

#[test]
fn head_requests_and_content_in_small_pieces_are_handled() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |asked, stream| {
        if asked.variables["REQUEST_METHOD"] == "HEAD" {
            return send(stream, &complete_response("Content-Length: 5\r\n\r\nhello"));
        }
        for part in ["Status: 418 I am a teapot\r\nX-A: b", "\r\n\r", "\nfirst ", "second"] {
            send(stream, &stdout(part));
            pause(50);
        }
        send(stream, &[record(6, b""), end(0)].concat())
    });
    let server = serve(&folder, &app.step(folder.path(), "idle-connections 8"));
    for _ in 0..2 {
        let response = get(&server, "/x.php");
        assert_eq!((response.status, response.field("x-a")), (418, Some("b")));
        assert!(text(&response).contains("first ") && text(&response).contains("second"));
        let head = server.exchange(b"HEAD /x.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let head = String::from_utf8_lossy(&head).into_owned();
        assert!(head.contains("Content-Length: 5\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }
    // Methods that only scripts support.
    let request = "PROPFIND /x.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(&server, request).status, 418);
    assert_eq!(app.connections.load(Ordering::SeqCst), 1, "the connection is reused throughout");
}
