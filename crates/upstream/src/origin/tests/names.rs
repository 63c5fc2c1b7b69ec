//! Connections to an origin whose name moves to another address while the old one still responds.

use super::*;
use std::net::SocketAddr;
use std::sync::mpsc::channel;

const MINUTE_MS: u64 = 60_000;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The same origin by name.
fn named(origin: &OriginAddress) -> OriginAddress {
    OriginAddress::new(false, "localhost", origin.port)
}

fn old(origin: &OriginAddress) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], origin.port))
}

fn new(origin: &OriginAddress) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], origin.port))
}

#[test]
fn connections_to_an_address_that_the_name_has_lost_are_retired() {
    let origin = named(&serve_answer(OK));
    run(async {
        let client = client();
        client.resolve_to(&origin, &[old(&origin)], 0);
        get(&client, &origin).await.unwrap();
        assert_eq!(client.idle_connections(&origin), 1);
        // More addresses, in another order, lose none.
        client.resolve_to(&origin, &[new(&origin), old(&origin)], MINUTE_MS);
        // A resolution that fails says nothing.
        client.resolve_to(&origin, &[], 2 * MINUTE_MS);
        assert_eq!(client.idle_connections(&origin), 1);
        // One response without the address is no proof.
        client.resolve_to(&origin, &[new(&origin)], 3 * MINUTE_MS);
        client.resolve_to(&origin, &[new(&origin)], 3 * MINUTE_MS + MINUTE_MS / 4);
        assert_eq!(client.idle_connections(&origin), 1);
        client.resolve_to(&origin, &[new(&origin)], 3 * MINUTE_MS + MINUTE_MS / 2);
        assert_eq!(client.idle_connections(&origin), 0);
        // Back again.
        client.resolve_to(&origin, &[old(&origin)], 6 * MINUTE_MS);
        get(&client, &origin).await.unwrap();
        assert_eq!(client.idle_connections(&origin), 1);
    });
}

/// Names of large pools have more addresses than a response.
#[test]
fn rotating_addresses_retire_no_connection() {
    let origin = named(&serve_answer(OK));
    let other = |last| SocketAddr::from(([127, 0, 0, last], origin.port));
    let parts = [vec![old(&origin), other(2)], vec![other(2), other(3)], vec![old(&origin), other(3)]];
    run(async {
        let client = client();
        for round in 0..30 {
            client.resolve_to(&origin, &parts[round % 3], round as u64 * MINUTE_MS / 2);
            get(&client, &origin).await.unwrap();
            assert_eq!(client.counts().connections_opened.get(), 1, "{round}");
        }
    });
}

#[test]
fn a_connection_in_use_is_retired_after_its_response() {
    let (go, wait) = channel();
    let wait = std::sync::Mutex::new(wait);
    let origin = named(&serve(move |_, mut stream| {
        read_head(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok").unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(b"ok").unwrap();
        hold(stream);
    }));
    run(async {
        let client = client();
        client.resolve_to(&origin, &[old(&origin)], 0);
        let mut request = request("GET");
        let mut incoming = client.exchange(&origin, &mut request, |_, _| {}).await.unwrap();
        client.resolve_to(&origin, &[new(&origin)], 0);
        client.resolve_to(&origin, &[new(&origin)], MINUTE_MS);
        go.send(()).unwrap();
        assert_eq!(finish(&mut incoming).await.unwrap().content, b"okok");
        assert_eq!(client.idle_connections(&origin), 0);
    });
}

/// The resolutions of a name in use are as far apart as the setting says. Without connections, there are none.
#[test]
fn the_name_of_an_origin_in_use_is_resolved_again() {
    let origin = named(&serve_answer(OK));
    let settings = |recheck_ms| OriginSettings { recheck_ms, head_timeout_ms: 50, ..OriginSettings::default() };
    run(async {
        let client = client_with(settings(1));
        let begun = std::time::Instant::now();
        while client.counts().lookups.get() < 3 {
            get(&client, &origin).await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(20), "the name is not resolved again");
        }
        assert_eq!(client.counts().connections_opened.get(), 1);
        let rare = client_with(settings(60_000));
        for _ in 0..100 {
            get(&rare, &origin).await.unwrap();
        }
        assert_eq!(rare.counts().lookups.get(), 1);
    });
}

/// A connection that is only kept must not outlive the address of its name either.
#[test]
fn the_name_of_an_idle_connection_is_resolved_again() {
    let origin = named(&serve_answer(OK));
    let settings = OriginSettings { recheck_ms: 1, head_timeout_ms: 50, ..OriginSettings::default() };
    run(async {
        let client = client_with(settings);
        get(&client, &origin).await.unwrap();
        let begun = std::time::Instant::now();
        while client.counts().lookups.get() < 4 {
            client.pause(1).await;
            assert!(begun.elapsed() < Duration::from_secs(20), "the name is not resolved again");
        }
        client.close_idle();
    });
}
