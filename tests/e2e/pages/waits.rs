//! Pages that wait: for a silent upstream, and for a client that sends slowly.

use super::{page, site, text};
use crate::e2e::harness::{Response, read_to_end};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

const SITE: &[(&str, &str)] = &[
    ("site/index.lhtml", "<?= 1 ?>"),
    ("site/wait.lhtml", "<p>one</p>\n<?lua\nwhile true do\nfetch(\"silent\", \"/\", { timeout = 60 })\nend ?>"),
    ("site/late.lhtml", "<p>one</p><?lua flush() fetch(\"silent\", \"/\", { timeout = 60 }) ?>two"),
    ("site/upload.lhtml", "<?= #request.text() ?>"),
    ("site/sleep.lhtml", "<p>one</p><?lua flush() sleep(60) ?>two"),
    ("site/doze.lhtml", "<p>one</p><?lua\nsleep(60) ?>two"),
];

#[test]
fn a_sleeping_page_delays_no_other_and_is_stopped_at_its_limit() {
    let (_folder, server) = site(SITE, "run-limit \"1s\"; upstream \"silent\" \"http://127.0.0.1:1\"", "");
    let mut stream = server.connect();
    stream.write_all(b"GET /sleep HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    // The page has been running since before its first byte.
    let mut begun = [0; 1];
    stream.read_exact(&mut begun).unwrap();
    assert_eq!(page(&server, "/"), "1");
    let rest = read_to_end(&mut stream);
    let asleep = Response::parse(&[&begun[..], &rest].concat());
    assert_eq!(asleep.status, 200);
    assert!(text(&asleep).contains("one") && !text(&asleep).contains("two"));
    assert_eq!(server.get("/doze").status, 503);
    let (status, said) = server.stop();
    assert!(status.success());
    for place in ["sleep.lhtml:1: [page_run_limit]", "doze.lhtml:2: [page_run_limit]"] {
        assert!(said.lines().any(|line| line.contains(place)), "{place} in {said}");
    }
}

#[test]
fn a_page_that_waits_too_long_is_stopped_and_logged_by_name() {
    // An upstream that accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = format!("run-limit \"1s\"; upstream \"silent\" \"http://{}\"", silent.local_addr().unwrap());
    let (_folder, server) = site(SITE, &settings, "");
    let answer = server.get("/wait");
    assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")));
    // If the page has already started its response, the response is truncated.
    let mut stream = server.connect();
    stream.write_all(b"GET /late HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let bytes = read_to_end(&mut stream);
    let late = Response::parse(&bytes);
    assert_eq!(late.status, 200);
    assert!(text(&late).contains("one") && !bytes.ends_with(b"0\r\n\r\n"));
    assert_eq!(page(&server, "/"), "1");
    // A slow client is not the page's fault: the timeouts for clients apply.
    let mut stream = server.connect();
    stream
        .write_all(b"POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\nConnection: close\r\n\r\nabc")
        .unwrap();
    thread::sleep(Duration::from_secs(2));
    stream.write_all(b"def").unwrap();
    assert_eq!(text(&Response::parse(&read_to_end(&mut stream))), "6");
    let (status, said) = server.stop();
    assert!(status.success());
    for place in ["wait.lhtml:4: [page_run_limit]", "late.lhtml:1: [page_run_limit]"] {
        assert!(said.lines().any(|line| line.contains(place)), "{place} in {said}");
    }
}
