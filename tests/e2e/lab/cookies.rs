//! Cookies: each client sends those that responses set, unless the user decides otherwise.

use super::fill::serve;
use super::{Bench, bench};
use crate::e2e::tls::Certificate;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// A server that gives each client without a cookie a new one. Returns its URL, and the Cookie field of each request.
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
        let answer = format!("HTTP/1.1 200 OK\r\nCache-Control: private\r\n{set}Content-Length: 2\r\n\r\nok");
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
            "{clients} clients stored {stored} cookies that responses set, and sent cookies with {sent} requests"
        );
        assert_eq!(note(&run), Some(text.as_str()), "{version}");
        assert!(run.stdout.contains(&text), "{}", run.stdout);
        let counted = json!({ "clients": clients, "stored": stored, "requests": sent, "unused": 0, "dropped": 0 });
        let step = run.step();
        assert_eq!((&step["record"]["counts"]["cookies"], &step["plan"]["cookies"]), (&counted, &json!("kept")));
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
        assert_eq!((note(&run), &run.step()["plan"]["cookies"]), (None, &json!("given")));
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
        let text = note(&run).unwrap();
        assert!(text.starts_with("responses set 16 cookies, but no request had one, because"), "{text}");
    }
}
