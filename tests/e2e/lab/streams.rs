//! Streams of HTTP/2 and HTTP/3: requests that the server did not process, and streams beyond its limit.

use super::bench;
use super::http3::secure;
use crate::e2e::harness::{Folder, Server};
use crate::e2e::http2::client::{END_HEADERS, END_STREAM, HEADERS, RST_STREAM};
use crate::e2e::http2::origin::FrameOrigin;
use crate::e2e::nginx;
use crate::e2e::process::{Running, free_port};
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// nginx with HTTP/2 in clear text, with these additional settings.
pub(super) fn start_nginx(settings: &str) -> (Folder, Running, String) {
    let folder = Folder::new();
    let port = free_port();
    let settings =
        format!("{settings} server {{ listen 127.0.0.1:{port} http2; location / {{ return 200 'served'; }} }}");
    let nginx = nginx::start(&folder, &settings, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (folder, nginx, format!("http://127.0.0.1:{port}/"))
}

#[test]
fn requests_that_a_closing_server_did_not_process_are_sent_again() {
    let (_folder, _nginx, url) = start_nginx("keepalive_requests 100;");
    let run = bench(&[&url, "-n", "10000", "-c", "4", "--http", "2", "--streams", "10", "--threads", "1"]);
    assert_eq!(run.code, Some(0), "{} {}", run.stdout, run.stderr);
    assert_eq!((run.number("responses"), run.json["errors"]["total"].as_u64()), (10_000, Some(0)));
    // A connection that closes has up to ten streams, and only those that were open already are processed.
    let counts = &run.step()["record"]["counts"];
    assert!(counts["sent_again"].as_u64().unwrap() > 0 && run.number("connections") >= 100, "{counts:#}");
    assert!(
        run.stdout.contains("sent again, because the server stated that it did not process them"),
        "{}",
        run.stdout
    );
}

/// RFC 9113 §8.7.
#[test]
fn requests_that_a_server_refuses_are_sent_again() {
    let number = AtomicU64::new(0);
    let origin = FrameOrigin::start(move |frame, connection| match number.fetch_add(1, Ordering::Relaxed) % 5 {
        // REFUSED_STREAM.
        3 => connection.send(RST_STREAM, 0, frame.stream, &7_u32.to_be_bytes()),
        // The status 200.
        _ => connection.send(HEADERS, END_HEADERS | END_STREAM, frame.stream, &[0x88]),
    });
    let url = format!("http://{}/", origin.address());
    let run = bench(&[&url, "-n", "400", "-c", "2", "--http", "2", "--streams", "4", "--threads", "1"]);
    assert_eq!((run.code, run.number("responses"), run.json["errors"]["total"].as_u64()), (Some(0), 400, Some(0)));
    // One in five is refused. The connections remain.
    let sent_again = run.step()["record"]["counts"]["sent_again"].as_u64().unwrap();
    assert_eq!((sent_again, origin.requests(), run.number("connections")), (100, 500, 2), "{run:#?}");
    let note = "sent again, because the server stated that it did not process them";
    assert!(run.stdout.contains(note), "{}", run.stdout);
}

/// Streams beyond the server's limit are not used, so that their wait in the client does not count as the server's.
#[test]
fn streams_beyond_the_servers_limit_are_not_used_and_reported() {
    let (_folder, _nginx, url) = start_nginx("keepalive_requests 100000; http2_max_concurrent_streams 8;");
    let base = [url.as_str(), "--http", "2", "--streams", "32", "--threads", "1"];
    let run = bench(&[&base[..], &["-n", "2000", "-c", "2"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 2_000, 2), "{run:#?}");
    let record = &run.step()["record"];
    assert_eq!((&record["in_flight"]["peak"], &record["counts"]["sent_again"]), (&json!(16), &json!(0)), "{record:#}");
    let tally = &run.step()["tally"];
    assert_eq!((&tally["slots_unusable"], &tally["streams_max"]), (&json!(48), &json!(8)), "{tally:#}");
    let note = "the server permits 8 concurrent streams on a connection, so 16 of 64 were used";
    let notes = run.json["notes"].as_array().unwrap();
    assert!(notes.contains(&json!({ "note": "streams-limited", "text": note })), "{notes:#?}");
    assert!(run.stdout.contains(note) && run.stdout.contains("2 connections of 8 streams"), "{}", run.stdout);
    // As many requests as streams: the usable ones send them all.
    let run = bench(&[&base[..], &["-n", "32", "-c", "1"]].concat());
    assert_eq!((run.code, run.number("responses")), (Some(0), 32), "{run:#?}");
    assert_eq!(run.step()["record"]["in_flight"]["peak"], 8);
    // In an open loop, arrivals wait for a stream that can be used, as they wait for a free connection.
    let run = bench(&[&base[..], &["-n", "200", "-c", "1", "--rate", "2000"]].concat());
    assert_eq!((run.code, run.number("responses")), (Some(0), 200), "{run:#?}");
    assert!(run.step()["record"]["in_flight"]["peak"].as_u64().unwrap() <= 8, "{run:#?}");
}

/// flatout permits 128 streams over HTTP/2. Over HTTP/3, it permits 20 at first, and 100 when 10 are in use.
#[test]
fn streams_beyond_the_limit_of_flatout_are_not_used() {
    let (_site, certificate, server) = secure();
    let url = format!("https://localhost:{}/a.txt", server.address.port());
    let authority = certificate.authority();
    // Over HTTP/3, the last grants may arrive too late to be used.
    for (version, permitted) in [("2", 128..=128), ("3", 21..=100)] {
        let tls = ["--cacert", authority.to_str().unwrap(), "--http", version];
        let run = bench(&[&[url.as_str(), "-n", "2000", "-c", "1", "--streams", "200"], &tls[..]].concat());
        assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 2_000, 1), "{run:#?}");
        let step = run.step();
        let streams_max = step["tally"]["streams_max"].as_u64().unwrap();
        assert!(permitted.contains(&streams_max), "{run:#?}");
        assert_eq!(step["tally"]["slots_unusable"], 200 - streams_max);
        assert!(step["record"]["in_flight"]["peak"].as_u64().unwrap() <= streams_max, "{run:#?}");
    }
    // Each slot sends four requests at once, so that five slots can be used at first, and more when the server permits
    // more streams.
    let bursts = ["-n", "4000", "-c", "1", "--streams", "20", "--burst", "4", "--http", "3"];
    let run = bench(&[&[url.as_str(), "--cacert", authority.to_str().unwrap()], &bursts[..]].concat());
    assert_eq!((run.code, run.number("responses")), (Some(0), 4_000), "{run:#?}");
    assert!(run.step()["tally"]["slots_unusable"].as_u64().unwrap() < 15, "{run:#?}");
}

/// Time until the relay forwards the first bytes of a server.
const GREETING_DELAY: Duration = Duration::from_millis(300);

/// Forwards connections to a server whose first bytes come late.
fn relay(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let forward = |mut from: TcpStream, mut to: TcpStream, delay: Duration| {
        thread::spawn(move || {
            let mut piece = [0; 4096];
            let bytes = from.read(&mut piece).unwrap();
            thread::sleep(delay);
            to.write_all(&piece[..bytes]).and_then(|()| io::copy(&mut from, &mut to))
        });
    };
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(target).unwrap());
            forward(client.try_clone().unwrap(), server.try_clone().unwrap(), Duration::ZERO);
            forward(server, client, GREETING_DELAY);
        }
    });
    address
}

/// The wait for the server's SETTINGS is not the client's lag.
#[test]
fn arrivals_that_wait_for_the_handshake_have_begun() {
    let site = Folder::with(&[("a.txt", b"a")]);
    let server = Server::start(site.path(), &["--h2c"]);
    let url = format!("http://{}/a.txt", relay(server.address));
    let run = bench(&[&url, "--http", "2", "--streams", "4", "-c", "1", "--threads", "1", "--rate", "200", "-n", "4"]);
    assert_eq!((run.code, run.number("responses")), (Some(0), 4), "{run:#?}");
    let (service, lag) = (&run.step()["service"], &run.step()["lag"]);
    let delay_ns = GREETING_DELAY.as_nanos() as u64;
    assert!(service["min_ns"].as_u64().unwrap() > delay_ns / 2, "{service:#}");
    assert!(lag["max_ns"].as_u64().unwrap() < delay_ns / 2, "{lag:#}");
}
