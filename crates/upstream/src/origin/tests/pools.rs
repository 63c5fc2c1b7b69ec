use super::*;
use crate::origin::Repeat;
use flatout_http::proxy_protocol::ProxyVersion;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn connections_are_reused() {
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
fn connections_with_a_proxy_header_belong_to_one_client_each() {
    let (sender, received) = channel();
    let origin = serve(move |index, mut stream| {
        let mut header = vec![0];
        while !header.ends_with(b"\r\n") {
            header.push(0);
            let last = header.len() - 1;
            stream.read_exact(&mut header[last..]).unwrap();
        }
        sender.send((index, String::from_utf8(header[1..].to_vec()).unwrap())).unwrap();
        while read_request(&mut stream).is_some() && stream.write_all(OK).is_ok() {}
    });
    run(async {
        let proxy_protocol = Some(ProxyVersion::V1);
        let settings = OriginSettings { proxy_protocol, idle_connections_max: 2, ..OriginSettings::default() };
        let client = client_with(settings);
        let named = |from: &str| match from {
            "check" => ProxyClient::Sender,
            "hidden" => ProxyClient::Hidden,
            address => ProxyClient::At(address.parse().unwrap()),
        };
        let open = async |from: &str| {
            let request = OutgoingRequest { client: named(from), ..request("GET") };
            exchange(&client, &origin, request).await.unwrap();
            client.counts().connections_opened.get()
        };
        let (one, two) = ("192.0.2.1:5", "[2001:db8::2]:6");
        for (from, opened) in [(one, 1), (one, 1), (two, 2), (one, 2), (two, 2), ("192.0.2.1:7", 3), (two, 3), (one, 4)]
        {
            assert_eq!(open(from).await, opened, "{from}");
        }
        // A request that is sent at once belongs to its client, too, and one without a client to no other.
        let send = |from: &str| client.send_kept(&origin, ("GET", b"/"), named(from), |_| Some(())).is_some();
        assert!(!send("192.0.2.1:7") && !send("check") && !send("hidden") && send(one));
        // Hidden clients and health checks have connections of their own.
        for (from, opened) in [("check", 5), ("hidden", 6), ("check", 6), ("hidden", 6)] {
            assert_eq!(open(from).await, opened, "{from}");
        }
        assert!(send("hidden") && !send("hidden"));
    });
    let port = origin.port;
    let mut headers: Vec<_> = received.try_iter().collect();
    headers.sort();
    let headers: Vec<String> = headers.into_iter().map(|(_, header)| header).collect();
    assert_eq!(
        headers,
        [
            format!("PROXY TCP4 192.0.2.1 127.0.0.1 5 {port}\r\n"),
            format!("PROXY TCP6 2001:db8::2 ::ffff:127.0.0.1 6 {port}\r\n"),
            format!("PROXY TCP4 192.0.2.1 127.0.0.1 7 {port}\r\n"),
            format!("PROXY TCP4 192.0.2.1 127.0.0.1 5 {port}\r\n"),
            "PROXY UNKNOWN\r\n".to_owned(),
            format!("PROXY TCP4 0.0.0.0 127.0.0.1 0 {port}\r\n"),
        ]
    );
}

#[test]
fn idle_connections_are_bounded() {
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
fn a_connection_is_not_used_for_as_long_as_the_origin_may_close_it() {
    let answer = |timeout: &str, end: &str| format!("HTTP/1.1 200 OK\r\nKeep-Alive: timeout={timeout}\r\n{end}");
    for end in ["Content-Length: 2\r\n\r\nok", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"] {
        let origin = serve_answer(answer("0", end));
        run(async {
            let client = client();
            get(&client, &origin).await.unwrap();
            assert_eq!(client.idle_connections(&origin), 0);
        });
        let origin = serve_answer(answer("1", end));
        run(async {
            let client = client_with(OriginSettings { head_timeout_ms: 50, ..OriginSettings::default() });
            let begun = std::time::Instant::now();
            get(&client, &origin).await.unwrap();
            assert_eq!(client.idle_connections(&origin), 1);
            // Well before the second that the origin waits, but not before half of it.
            while client.idle_connections(&origin) > 0 {
                client.pause(1).await;
                assert!(begun.elapsed() < Duration::from_secs(20), "the connection is still kept");
            }
            assert!(begun.elapsed() >= Duration::from_millis(500));
        });
        let origin = serve_answer(answer("60", end));
        run(async {
            let client = client();
            for _ in 0..3 {
                get(&client, &origin).await.unwrap();
            }
            assert_eq!(client.counts().connections_opened.get(), 1);
        });
    }
}

/// As above, for content that arrives after the head, and for a response that is processed in the receive buffer.
#[test]
fn a_connection_is_not_used_after_any_response_that_says_so() {
    let (go, wait) = channel();
    let wait = std::sync::Mutex::new(wait);
    let origin = serve(move |_, mut stream| {
        read_head(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\nContent-Length: 4\r\n\r\nok").unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(b"ok").unwrap();
        hold(stream);
    });
    run(async {
        let client = client();
        let mut request = request("GET");
        let mut incoming = client.exchange(&origin, &mut request, |_, _| {}).await.unwrap();
        go.send(()).unwrap();
        assert_eq!(finish(&mut incoming).await.unwrap().content, b"okok");
        assert_eq!(client.idle_connections(&origin), 0);
    });
    let origin = serve(|_, mut stream| {
        read_head(&mut stream).unwrap();
        stream.write_all(OK).unwrap();
        read_head(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\nContent-Length: 2\r\n\r\nok").unwrap();
        hold(stream);
    });
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        let mut exchange = client.send_kept(&origin, ("GET", b"/"), ProxyClient::Sender, |_| Some(())).unwrap();
        let answer = std::future::poll_fn(|context| exchange.poll(context, |_, _| {}, |_| true)).await;
        assert!(matches!(answer, crate::origin::KeptAnswer::Taken), "{answer:?}");
        assert_eq!(client.idle_connections(&origin), 0);
    });
}

#[test]
fn a_connection_that_cannot_persist_is_not_pooled() {
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
    // Content that was declared but must not exist may follow later.
    for answer in [
        "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let origin = serve_answer(answer);
        run(async {
            let client = client();
            assert_eq!(get(&client, &origin).await.unwrap().status, 204, "{answer:?}");
            assert_eq!(client.idle_connections(&origin), 0, "{answer:?}");
        });
    }
    let origin = serve_answer("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n");
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        assert_eq!(client.idle_connections(&origin), 1);
    });
    let origin = serve_answer("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok");
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        assert_eq!(client.idle_connections(&origin), 1);
    });
}

#[test]
fn a_connection_that_may_be_authenticated_is_not_pooled() {
    for lines in ["WWW-Authenticate: NTLM", "WWW-Authenticate: Basic realm=\"a\", Negotiate", "Persistent-Auth: true"] {
        for body in ["Content-Length: 2\r\n\r\nok", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"] {
            let origin = serve_answer(format!("HTTP/1.1 401 Unauthorized\r\n{lines}\r\n{body}"));
            run(async {
                let client = client();
                assert_eq!(get(&client, &origin).await.unwrap().content, b"ok");
                assert_eq!(client.idle_connections(&origin), 0, "{lines}");
            });
        }
    }
    // The response need not say anything.
    for (credentials, pooled) in [("NTLM TlRM", 0), ("negotiate YII=", 0), ("Basic eDp5", 1)] {
        let origin = serve_answer(OK);
        let lines = format!("Host: a\r\nAuthorization: {credentials}\r\n");
        run(async {
            let client = client();
            let request = OutgoingRequest { lines: lines.as_bytes(), ..request("GET") };
            exchange(&client, &origin, request).await.unwrap();
            assert_eq!(client.idle_connections(&origin), pooled, "{credentials}");
        });
    }
    // The rest of the body arrives later.
    let origin = serve(|_, mut stream| {
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nPersistent-Auth: true\r\nContent-Length: 300000\r\n\r\n").unwrap();
        stream.write_all(&vec![b'x'; 300_000]).unwrap();
        read_request(&mut stream);
    });
    run(async {
        let client = client();
        assert_eq!(get(&client, &origin).await.unwrap().content.len(), 300_000);
        assert_eq!(client.idle_connections(&origin), 0);
    });
}

#[test]
fn unsolicited_bytes_are_never_a_response() {
    let (go, goes) = channel::<()>();
    let goes = std::sync::Mutex::new(goes);
    let (tell, told) = channel::<()>();
    let origin = serve(move |index, mut stream| {
        read_request(&mut stream);
        stream.write_all(OK).unwrap();
        if index == 0 {
            goes.lock().unwrap().recv().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").unwrap();
            tell.send(()).unwrap();
        }
        while read_request(&mut stream).is_some() && stream.write_all(OK).is_ok() {}
    });
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        assert_eq!(client.idle_connections(&origin), 1);
        go.send(()).unwrap();
        told.recv().unwrap();
        assert_eq!(get(&client, &origin).await.unwrap().content, b"ok");
        assert_eq!((client.counts().connections_opened.get(), client.counts().connections_stale.get()), (2, 1));
    });
}

#[test]
fn an_unread_body_closes_its_connection() {
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
fn an_idle_connection_is_closed_after_its_timeout() {
    let origin = serve_answer(OK);
    run(async {
        let client = client_with(OriginSettings { idle_timeout_ms: 1_000, ..OriginSettings::default() });
        get(&client, &origin).await.unwrap();
        assert_eq!(client.idle_connections(&origin), 1);
        client.pause(2_000).await;
        assert_eq!(client.idle_connections(&origin), 0);
        get(&client, &origin).await.unwrap();
        assert_eq!(client.counts().connections_reused.get(), 0);
    });
}

/// Closes each connection after `answers` responses, without announcing it.
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
fn a_request_is_retried_once_on_a_new_connection_if_that_is_safe() {
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
fn a_closed_pooled_connection_is_detected_before_use() {
    let origin = serve_last(OK);
    run(async {
        let client = client();
        for round in 0..3 {
            // Not even what must not be sent twice fails.
            let post = OutgoingRequest { content: bytes(b"abc"), ..request("POST") };
            exchange(&client, &origin, post).await.unwrap();
            assert_eq!(client.counts().connections_opened.get(), round + 1);
            client.pause(30).await;
        }
        // The last one is not asked for again, and the sweep of idle ones may have come by or not.
        let (repeats, stale) = (client.counts().repeats.get(), client.counts().connections_stale.get());
        assert!(repeats == 0 && (2..=3).contains(&stale), "{repeats} {stale}");
    });
}

#[test]
fn names_are_resolved_once_and_failures_are_named() {
    let origin = serve_last(OK);
    run(async {
        let client = client();
        let by_name = OriginAddress::new(false, "localhost", origin.port);
        for _ in 0..3 {
            get(&client, &by_name).await.unwrap();
            client.pause(10).await;
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
fn a_closed_port_is_refused() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut post = OutgoingRequest { content: bytes(b"abc"), ..request("POST") };
    run(async {
        let failure = client().exchange(&OriginAddress::new(false, "127.0.0.1", port), &mut post, |_, _| {}).await;
        let failure = failure.unwrap_err();
        assert_eq!((failure.failure, failure.repeat), (OriginFailure::Refused, Repeat::Always));
        assert!(failure.failure.is_origin_fault());
    });
}
