use super::*;
use crate::origin::Repeat;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn connections_are_used_again() {
    let origin = serve_answer(OK);
    run(async {
        let client = client();
        for _ in 0..50 {
            get(&client, &origin).await.unwrap();
        }
        let counts = client.counts();
        assert_eq!((counts.connections_opened.get(), counts.connections_reused.get()), (1, 49));
        // At once, each has its own.
        let many: Vec<_> = (0..20)
            .map(|_| {
                let (client, origin) = (client.clone(), origin.clone());
                tokio::task::spawn_local(async move { get(&client, &origin).await })
            })
            .collect();
        for one in many {
            one.await.unwrap().unwrap();
        }
        assert_eq!(counts.connections_opened.get(), 20);
        assert_eq!(client.idle_connections(&origin), 20);
        client.close_idle();
        assert_eq!(client.idle_connections(&origin), 0);
    });
}

#[test]
fn only_so_many_are_kept() {
    let origin = serve_answer(OK);
    run(async {
        let client = client_with(OriginSettings { idle_connections_max: 2, ..OriginSettings::default() });
        let many: Vec<_> = (0..5)
            .map(|_| {
                let (client, origin) = (client.clone(), origin.clone());
                tokio::task::spawn_local(async move { get(&client, &origin).await })
            })
            .collect();
        for one in many {
            one.await.unwrap().unwrap();
        }
        assert_eq!(client.idle_connections(&origin), 2);
    });
    let (told, asked) = channel();
    let origin = serve(move |_, mut stream| {
        told.send(read_head(&mut stream).unwrap()).unwrap();
        stream.write_all(OK).unwrap();
    });
    run(get(&client_with(OriginSettings { idle_connections_max: 0, ..OriginSettings::default() }), &origin)).unwrap();
    assert!(asked.recv().unwrap().contains("\r\nConnection: close\r\n"));
}

#[test]
fn what_the_origin_ends_or_leaves_open_is_not_kept() {
    for answer in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        // More than was declared: nothing that follows could be believed.
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\n\r\n",
    ] {
        let origin = serve_answer(answer);
        run(async {
            let client = client();
            for _ in 0..2 {
                assert_eq!(get(&client, &origin).await.unwrap().content, b"ok", "{answer:?}");
                assert_eq!(client.idle_connections(&origin), 0, "{answer:?}");
            }
        });
    }
    let origin = serve_answer("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok");
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        assert_eq!(client.idle_connections(&origin), 1);
    });
}

#[test]
fn what_comes_unasked_is_never_an_answer() {
    let (go, goes) = channel::<()>();
    let goes = std::sync::Mutex::new(goes);
    let origin = serve(move |index, mut stream| {
        read_request(&mut stream);
        stream.write_all(OK).unwrap();
        if index == 0 {
            goes.lock().unwrap().recv().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").unwrap();
        }
        while read_request(&mut stream).is_some() && stream.write_all(OK).is_ok() {}
    });
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        assert_eq!(client.idle_connections(&origin), 1);
        go.send(()).unwrap();
        pause_ms(50).await;
        assert_eq!(get(&client, &origin).await.unwrap().content, b"ok");
        assert_eq!((client.counts().connections_opened.get(), client.counts().connections_stale.get()), (2, 1));
    });
}

#[test]
fn a_body_that_is_not_read_closes_its_connection() {
    let origin = serve_answer(format!("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{}", "x".repeat(300_000)));
    run(async {
        let client = client();
        drop(client.exchange(&origin, &mut request("GET"), |_, _| {}).await.unwrap());
        assert_eq!(client.idle_connections(&origin), 0);
        get(&client, &origin).await.unwrap();
        assert_eq!(client.counts().connections_opened.get(), 2);
    });
}

#[test]
fn a_connection_that_grew_old_is_closed() {
    let origin = serve_answer(OK);
    run(async {
        let client = client_with(OriginSettings { idle_timeout_ms: 100, ..OriginSettings::default() });
        get(&client, &origin).await.unwrap();
        assert_eq!(client.idle_connections(&origin), 1);
        pause_ms(250).await;
        assert_eq!(client.idle_connections(&origin), 0);
        get(&client, &origin).await.unwrap();
        assert_eq!(client.counts().connections_reused.get(), 0);
    });
}

/// Ends each connection after `answers` answers, without saying so beforehand.
fn serve_some(answers: usize, also: &'static [u8]) -> (OriginAddress, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let origin = serve(move |_, mut stream| {
        for _ in 0..answers {
            if read_request(&mut stream).is_none() {
                return;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            stream.write_all(OK).unwrap();
        }
        // It goes as the next request arrives: nobody can see that beforehand.
        if read_request(&mut stream).is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
            stream.write_all(also).unwrap();
        }
    });
    (origin, requests)
}

#[test]
fn a_connection_that_dies_under_a_request_is_replaced_once_where_that_is_safe() {
    let (origin, requests) = serve_some(1, b"");
    run(async {
        let client = client();
        for _ in 0..3 {
            assert_eq!(get(&client, &origin).await.unwrap().content, b"ok");
        }
        assert_eq!((client.counts().repeats.get(), requests.load(Ordering::SeqCst)), (2, 5));
        // Content at hand can be sent again, if the method is idempotent.
        let put = OutgoingRequest { content: bytes(b"abc"), ..request("PUT") };
        assert_eq!(exchange(&client, &origin, put).await.unwrap().content, b"ok");
        assert_eq!(client.counts().repeats.get(), 3);
        // It may have acted on this one.
        let post = OutgoingRequest { content: bytes(b"abc"), ..request("POST") };
        let failure = exchange(&client, &origin, post).await.unwrap_err();
        assert_eq!((failure.failure, failure.repeat), (OriginFailure::ClosedBeforeHead, Repeat::Idempotent));
        assert_eq!((client.counts().repeats.get(), failure.failure.status()), (3, 502));
    });
    // One that began to answer is not asked again, nor is a fresh one that dies.
    let (origin, requests) = serve_some(1, b"HTTP/1.1 2");
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        assert_eq!(failure_of(get(&client, &origin).await), OriginFailure::CutHead);
        assert_eq!(requests.load(Ordering::SeqCst), 2);
    });
    let (origin, requests) = serve_some(0, b"");
    assert_eq!(failure_of(get_once(&origin)), OriginFailure::ClosedBeforeHead);
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[test]
fn a_408_without_a_request_is_no_response() {
    let origin = serve(|_, mut stream| {
        while read_request(&mut stream).is_some() {
            stream.write_all(OK).unwrap();
            // It comes when it is too late to see it beforehand.
            if read_head(&mut stream).is_some() {
                stream.write_all(b"HTTP/1.1 408 Late\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
                return;
            }
        }
    });
    run(async {
        let client = client();
        for _ in 0..3 {
            assert_eq!(get(&client, &origin).await.unwrap().status, 200);
        }
        assert_eq!(client.counts().repeats.get(), 2);
        get(&client, &origin).await.unwrap();
        let post = OutgoingRequest { content: bytes(b"abc"), ..request("POST") };
        assert_eq!(failure_of(exchange(&client, &origin, post).await), OriginFailure::ClosedBeforeHead);
    });
    // On a fresh connection it is one.
    assert_eq!(
        get_once(&serve_last("HTTP/1.1 408 Late\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")).unwrap().status,
        408
    );
}

#[test]
fn a_connection_closed_meanwhile_is_seen_before_it_is_used() {
    let origin = serve_last(OK);
    run(async {
        let client = client();
        for round in 0..3 {
            // Not even what must not be sent twice fails.
            let post = OutgoingRequest { content: bytes(b"abc"), ..request("POST") };
            exchange(&client, &origin, post).await.unwrap();
            assert_eq!(client.counts().connections_opened.get(), round + 1);
            pause_ms(30).await;
        }
        // The last one is not asked for again, and the sweep of idle ones may have come by or not.
        let (repeats, stale) = (client.counts().repeats.get(), client.counts().connections_stale.get());
        assert!(repeats == 0 && (2..=3).contains(&stale), "{repeats} {stale}");
    });
}

#[test]
fn names_are_looked_up_once_and_dead_ones_have_a_name() {
    let origin = serve_last(OK);
    run(async {
        let client = client();
        let by_name = OriginAddress::new(false, "localhost", origin.port);
        for _ in 0..3 {
            get(&client, &by_name).await.unwrap();
            pause_ms(10).await;
        }
        assert_eq!((client.counts().lookups.get(), client.counts().connections_opened.get()), (1, 3));
        let nowhere = OriginAddress::new(false, "no-such-host.invalid", 80);
        for _ in 0..3 {
            let failure = get(&client, &nowhere).await.unwrap_err();
            assert_eq!((failure.failure, failure.repeat), (OriginFailure::Unresolved, Repeat::Always));
        }
        assert_eq!(client.counts().lookups.get(), 2, "a failure is remembered for a second");
    });
}

#[test]
fn where_nothing_listens_is_refused() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut post = OutgoingRequest { content: bytes(b"abc"), ..request("POST") };
    run(async {
        let failure = client().exchange(&OriginAddress::new(false, "127.0.0.1", port), &mut post, |_, _| {}).await;
        let failure = failure.unwrap_err();
        assert_eq!((failure.failure, failure.repeat), (OriginFailure::Refused, Repeat::Always));
        assert!(failure.failure.is_origin_fault());
    });
}
