//! Cookies: each client sends those that responses set, unless the user decides otherwise.

use super::fill::serve;
use super::streams::start_nginx;
use super::{Bench, bench};
use crate::e2e::harness::Folder;
use crate::e2e::tls::Certificate;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// A server that gives each client without a cookie a new one, after an interim response with another, which clients
/// ignore. Returns its URL, and the Cookie field of each request.
fn shop() -> (String, Receiver<Option<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (stream, sender) = (stream.unwrap(), sender.clone());
            thread::spawn(move || answer(number, &stream, &sender));
        }
    });
    (url, requests)
}

fn answer(number: usize, stream: &TcpStream, sender: &Sender<Option<String>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let early = "HTTP/1.1 103 Early Hints\r\nSet-Cookie: early=1; Path=/\r\n\r\n";
    for nth in 0.. {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        if head.is_empty() {
            return;
        }
        let cookie = head.iter().find(|line| line.to_lowercase().starts_with("cookie: "));
        let cookie = cookie.map(|line| line["cookie: ".len()..].to_owned());
        let set = match cookie {
            Some(_) => String::new(),
            None => format!("Set-Cookie: id={number}.{nth}; Path=/; HttpOnly\r\nSet-Cookie: theme=dark\r\n"),
        };
        sender.send(cookie).unwrap();
        let answer = format!("{early}HTTP/1.1 200 OK\r\nCache-Control: private\r\n{set}Content-Length: 2\r\n\r\nok");
        if (&*stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Returns the number of requests without a cookie, and the number of requests with each Cookie field.
fn received(run: &Bench, requests: &Receiver<Option<String>>) -> (usize, BTreeMap<String, usize>) {
    assert_eq!((run.code, run.json["errors"]["total"].as_u64()), (Some(0), Some(0)), "{run:#?}");
    let (mut without, mut with) = (0, BTreeMap::new());
    for cookie in requests.try_iter() {
        match cookie {
            Some(cookie) => *with.entry(cookie).or_default() += 1,
            None => without += 1,
        }
    }
    (without, with)
}

fn note(run: &Bench) -> Option<&str> {
    let notes = run.json["notes"].as_array().unwrap();
    notes.iter().find(|note| note["note"] == "cookies").map(|note| note["text"].as_str().unwrap())
}

#[test]
fn each_client_sends_the_cookies_that_it_received_over_every_version() {
    let certificate = Certificate::new();
    let authority = certificate.authority();
    for (version, streams, clients) in [("", "1", 3), ("1.1", "1", 3), ("2", "4", 12), ("3", "4", 12)] {
        let (origin, requests) = shop();
        let (_folder, proxy) = serve(&certificate, &format!("proxy {:?}", origin.trim_end_matches('/')));
        let secure = format!("https://localhost:{}/", proxy.address.port());
        let arguments = match version {
            "" => vec![origin.as_str()],
            _ => vec![&secure, "--cacert", authority.to_str().unwrap(), "--http", version, "--streams", streams],
        };
        let run = bench(&[&arguments[..], &["-n", "120", "-c", "3", "--threads", "2"]].concat());
        let (without, with) = received(&run, &requests);
        assert_eq!((without, with.len(), with.values().sum::<usize>()), (clients, clients, 120 - clients), "{version}");
        assert!(with.keys().all(|cookie| cookie.starts_with("id=") && cookie.ends_with("; theme=dark")), "{with:?}");
        let (stored, sent) = (2 * clients, 120 - clients);
        let text = format!(
            "{clients} clients stored {stored} cookies that responses set, and sent cookies with {sent} requests, \
             including any warm-up"
        );
        assert_eq!(note(&run), Some(text.as_str()), "{version}");
        assert!(run.stdout.contains(&text), "{}", run.stdout);
        let counted = json!({ "clients": clients, "stored": stored, "requests": sent, "unused": 0, "dropped": 0 });
        let step = run.step();
        let counts = &step["record"]["counts"];
        assert_eq!((&counts["cookies"], &step["plan"]["cookies"]), (&counted, &json!("stored")), "{version}");
        assert_eq!(counts["interim_responses"], 120, "{version}");
    }
}

#[test]
fn a_user_can_turn_cookies_off_or_send_others() {
    let (url, requests) = shop();
    let base = [url.as_str(), "-n", "12", "-c", "2"];
    let run = bench(&[&base[..], &["--no-cookies"]].concat());
    assert_eq!(received(&run, &requests), (12, BTreeMap::new()));
    assert_eq!((note(&run), &run.step()["plan"]["cookies"]), (None, &json!("off")));
    let own = BTreeMap::from([("own=1".to_owned(), 12)]);
    for arguments in [&["-H", "cookie: own=1"][..], &["-H", "Cookie: own={random:1-1}", "--fill"]] {
        let run = bench(&[&base[..], arguments].concat());
        assert_eq!(received(&run, &requests), (0, own.clone()));
        assert_eq!((note(&run), &run.step()["plan"]["cookies"]), (None, &json!("specified")));
    }
    let both = bench(&[&base[..], &["-H", "Cookie: own=1", "--no-cookies"]].concat());
    assert_eq!(both.exit, Some(2), "{both:#?}");
    assert!(both.stderr.contains("a Cookie header replaces the cookies that responses set"), "{}", both.stderr);
}

#[test]
fn each_session_and_each_arrival_begins_without_cookies() {
    let (url, requests) = shop();
    for sessions in [
        &["--calls", "3", "-n", "12", "-c", "1"][..],
        &["--session-length", "3", "-n", "12", "-c", "1"],
        &["--rate", "200", "--arrival-unit", "session", "--session-length", "3", "-n", "4"],
    ] {
        let run = bench(&[&[url.as_str()], sessions].concat());
        let (without, with) = received(&run, &requests);
        assert_eq!((without, with.into_values().collect::<Vec<_>>()), (4, vec![2; 4]), "{sessions:?}");
    }
    for single in [&["--rate", "200", "-n", "8"][..], &["--close", "-n", "8", "-c", "2"]] {
        let run = bench(&[&[url.as_str()], single].concat());
        assert_eq!(received(&run, &requests), (8, BTreeMap::new()));
        let text = "16 Set-Cookie fields were not used, because no request of the same client followed";
        assert_eq!(note(&run), Some(text));
    }
}

#[test]
fn a_response_of_the_wrong_length_sets_cookies_over_every_version() {
    let certificate = Certificate::new();
    let authority = certificate.authority();
    let folder = Folder::with(&[("filelist", b"/x 1 #3\n")]);
    let list = folder.path().join("filelist");
    for version in ["1.1", "2", "3"] {
        let (origin, requests) = shop();
        let (_folder, proxy) = serve(&certificate, &format!("proxy {:?}", origin.trim_end_matches('/')));
        let url = format!("https://localhost:{}/", proxy.address.port());
        let arguments = [&url, "--cacert", authority.to_str().unwrap(), "--http", version, "-n", "5", "-c", "1"];
        let run = bench(&[&arguments[..], &["--filelist", list.to_str().unwrap()]].concat());
        assert_eq!((run.code, run.failures("wrong-body")), (Some(1), 5), "{version}: {}", run.stdout);
        assert_eq!(requests.try_iter().flatten().count(), 4, "{version}");
        let counted = json!({ "clients": 1, "stored": 2, "requests": 4, "unused": 0, "dropped": 0 });
        assert_eq!(run.step()["record"]["counts"]["cookies"], counted, "{version}");
    }
}

#[test]
fn a_request_that_is_sent_again_counts_once() {
    // The server closes connections while it processes other requests.
    let (_folder, _nginx, url) = start_nginx("keepalive_requests 100; add_header Set-Cookie 'id=1';");
    let run = bench(&[&url, "-n", "5000", "-c", "2", "--http", "2", "--streams", "10", "--threads", "1"]);
    let counts = &run.step()["record"]["counts"];
    assert_eq!((run.code, run.number("responses")), (Some(0), 5_000), "{run:#?}");
    assert!(counts["sent_again"].as_u64().unwrap() > 0, "{counts:#}");
    let counted = json!({ "clients": 20, "stored": 5_000, "requests": 4_980, "unused": 0, "dropped": 0 });
    assert_eq!(counts["cookies"], counted);
}

/// Returns a log with one request of each of these clients, in this order.
fn log_of(folder: &Folder, clients: &[u8]) -> String {
    let line = |client| format!("127.0.0.{client} - - [10/Oct/2000:13:55:30 -0700] \"GET / HTTP/1.1\" 200 2\n");
    let text: String = clients.iter().map(line).collect();
    folder.write("access.log", text.as_bytes());
    folder.path().join("access.log").to_str().unwrap().to_owned()
}

#[test]
fn each_session_of_a_replay_has_its_own_cookies_until_its_last_request() {
    let folder = Folder::new();
    let log = log_of(&folder, &[2, 3, 2, 3, 2, 4]);
    for close in [&[][..], &["--close"]] {
        let (url, requests) = shop();
        // With one connection, each request is sent when the previous one has its response.
        let run = bench(&[&[&url, "--replay", &log, "-c", "1"], close].concat());
        let (without, with) = received(&run, &requests);
        let mut with: Vec<_> = with.into_values().collect();
        with.sort_unstable();
        assert_eq!((without, with), (3, vec![1, 2]), "{close:?}");
        let counted = json!({ "clients": 2, "stored": 4, "requests": 3, "unused": 2, "dropped": 0 });
        assert_eq!(run.step()["record"]["counts"]["cookies"], counted, "{close:?}");
    }
}

#[test]
fn a_session_that_has_ended_stores_no_cookie_of_a_late_response() {
    let folder = Folder::new();
    let log = log_of(&folder, &[2, 2]);
    for close in [&[][..], &["--close"]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            // The first request has its response only when the session's last request has arrived.
            let mut streams = [0, 1].map(|_| listener.accept().unwrap().0);
            for stream in &streams {
                let lines = BufReader::new(stream).lines().map_while(Result::ok);
                assert!(lines.take_while(|line| !line.is_empty()).count() > 1);
            }
            for stream in &mut streams {
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: id=1\r\n\r\n";
                stream.write_all(answer.as_bytes()).unwrap();
            }
            streams
        });
        let run = bench(&[&[&url, "--replay", &log, "-c", "2", "--threads", "1"], close].concat());
        drop(server.join().unwrap());
        assert_eq!((run.code, run.number("responses")), (Some(0), 2), "{run:#?}");
        let counted = json!({ "clients": 0, "stored": 0, "requests": 0, "unused": 2, "dropped": 0 });
        assert_eq!(run.step()["record"]["counts"]["cookies"], counted, "{close:?}");
    }
}
