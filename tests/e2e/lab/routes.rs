//! Connections to other addresses than those of the URL's host: `--resolve`, `--connect-to` and `--sni`.

use super::http3::secure;
use super::responder::{Answer, ok, respond_at};
use super::{Bench, bench};
use crate::e2e::harness::{Folder, Server};
use crate::e2e::process::free_port;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

/// A server that closes each connection after one response. Sends each request.
pub(super) fn requests_at(listener: TcpListener) -> mpsc::Receiver<String> {
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut request, mut piece) = (String::new(), [0; 1024]);
            let is_whole = |request: &str| {
                let Some((head, content)) = request.split_once("\r\n\r\n") else { return false };
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                content.len() >= length.map_or(0, |length| length.parse().unwrap())
            };
            while !is_whole(&request) {
                let bytes = stream.read(&mut piece).unwrap();
                assert!(bytes > 0, "the client closed the connection");
                request.push_str(std::str::from_utf8(&piece[..bytes]).unwrap());
            }
            sender.send(request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
        }
    });
    requests
}

fn details(run: &Bench, kind: &str) -> Vec<String> {
    let all = run.json["errors"]["details"].as_array().unwrap();
    let of_kind = all.iter().filter(|detail| detail["kind"] == kind);
    of_kind.map(|detail| detail["detail"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn connections_use_all_addresses_of_a_name_in_turn() {
    let port = free_port();
    let servers = ["127.0.0.1", "127.0.0.2"].map(|address| requests_at(TcpListener::bind((address, port)).unwrap()));
    let url = format!("http://flatout.invalid:{port}/");
    let resolve = format!("flatout.invalid:{port}:127.0.0.1,127.0.0.2");
    let run = bench(&[&url, "--resolve", &resolve, "--close", "-n", "20", "-c", "1", "--threads", "1"]);
    assert_eq!((run.code, run.number("responses")), (Some(0), 20), "{run:#?}");
    let host = format!("\r\nHost: flatout.invalid:{port}\r\n");
    for requests in servers {
        assert_eq!(requests.try_iter().filter(|request| request.contains(&host)).count(), 10);
    }
    let list = format!("127.0.0.1:{port}, 127.0.0.2:{port}");
    assert_eq!(run.json["address"], json!(list));
    let note = format!("connections were opened to these addresses in turn: {list}");
    let notes = run.json["notes"].as_array().unwrap();
    assert!(notes.contains(&json!({ "note": "addresses", "text": note })) && run.stdout.contains(&note), "{run:#?}");
}

#[test]
fn threads_share_the_addresses_of_a_name() {
    let port = free_port();
    let names = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"];
    let counts = names.map(|address| {
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        respond_at(TcpListener::bind((address, port)).unwrap(), move |_, arrived_ns| {
            counter.fetch_add(1, Ordering::Relaxed);
            Answer::At(arrived_ns, ok(1))
        });
        count
    });
    let requests = || counts.each_ref().map(|count| count.swap(0, Ordering::Relaxed));
    let (url, resolve) = (format!("http://x.invalid:{port}/"), format!("x.invalid:{port}:{}", names.join(",")));
    let base = [url.as_str(), "--resolve", &resolve, "-n", "40"];
    let run = bench(&[&base[..], &["-c", "4", "--threads", "2"]].concat());
    let counts = requests();
    assert!(run.code == Some(0) && counts.iter().all(|count| *count > 0), "{counts:?} {run:#?}");
    // The note lists only the addresses that were used.
    let run = bench(&[&base[..], &["-c", "2", "--threads", "1"]].concat());
    let counts = requests();
    assert!(run.code == Some(0) && counts.map(|count| count > 0) == [true, true, false, false], "{counts:?} {run:#?}");
    let list = |names: &[&str]| names.iter().map(|name| format!("{name}:{port}")).collect::<Vec<_>>().join(", ");
    assert!(run.stdout.contains(&format!("in turn: {}\n", list(&names[..2]))), "{}", run.stdout);
}

#[test]
fn another_host_and_port_can_be_connected_to() {
    let site = Folder::with(&[("a.txt", b"a")]);
    let server = Server::start(site.path(), &[]);
    let to = format!("flatout.invalid::127.0.0.1:{}", server.address.port());
    let run = bench(&["http://flatout.invalid/a.txt", "--connect-to", &to, "-n", "10", "-c", "2"]);
    assert_eq!((run.code, run.number("responses")), (Some(0), 10), "{run:#?}");
    assert_eq!(run.json["request"]["fields"][0], json!({ "name": "Host", "value": "flatout.invalid" }));
    // Any host, at this port.
    let (port, of) = (server.address.port(), |port: u16| format!("*:{port}:127.0.0.1"));
    let url = format!("http://flatout.invalid:{port}/a.txt");
    let run = bench(&[&url, "--resolve", &of(port), "-n", "10", "-c", "2"]);
    assert_eq!((run.code, run.number("responses")), (Some(0), 10), "{run:#?}");
    let run = bench(&[&url, "--resolve", &of(1), "-n", "1"]);
    assert!(run.exit == Some(2) && run.stderr.contains("--resolve *:1:127.0.0.1 does not apply to"), "{run:#?}");
    let run = bench(&["http://127.0.0.1:9/", "--resolve", "flatout.invalid:80:127.0.0.1", "-n", "1"]);
    assert!(run.exit == Some(2) && run.stderr.contains("does not apply to http://127.0.0.1:9/"), "{run:#?}");
}

#[test]
fn the_server_name_for_tls_can_differ_from_the_host() {
    let (_site, certificate, server) = secure();
    let (port, authority) = (server.address.port(), certificate.authority());
    let (url, resolve) = (format!("https://flatout.invalid:{port}/a.txt"), format!("flatout.invalid:{port}:127.0.0.1"));
    for version in ["1.1", "2", "3"] {
        let base = [&url, "--resolve", &resolve, "--cacert", authority.to_str().unwrap(), "--http", version];
        let base = [&base[..], &["-n", "4", "-c", "1", "--timeout", "5s"]].concat();
        let run = bench(&base);
        assert_eq!((run.exit, details(&run, "tls")), (Some(1), vec!["tls-name".to_owned()]), "{version} {run:#?}");
        let run = bench(&[&base[..], &["--sni", "localhost"]].concat());
        assert_eq!((run.code, run.number("responses")), (Some(0), 4), "{version} {run:#?}");
    }
}
