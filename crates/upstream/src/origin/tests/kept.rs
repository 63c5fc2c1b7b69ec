//! Tests of exchanges on pooled connections, whose responses may be used in the receive buffer.

use super::*;
use crate::origin::{KeptAnswer, KeptExchange};
use std::future::poll_fn;

/// Sends a GET on a pooled connection.
fn send(client: &OriginClient, origin: &OriginAddress) -> Option<KeptExchange> {
    client.send_kept(origin, ("GET", b"/"), ProxyClient::Sender, |lines| {
        lines.extend_from_slice(b"Host: origin\r\n");
        Some(())
    })
}

/// The result of an exchange: status and content, if there is a response.
async fn finish_kept(mut exchange: KeptExchange, takes: bool) -> (KeptAnswer, Option<(u16, Vec<u8>)>) {
    let mut taken = None;
    let answer = poll_fn(|context| {
        exchange.poll(
            context,
            |_, _| {},
            |answer| {
                taken = takes.then(|| (answer.head.status, answer.content.to_vec()));
                takes
            },
        )
    })
    .await;
    (answer, taken)
}

#[test]
fn a_pooled_connection_exists_only_after_an_exchange() {
    let origin = serve_answer("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
    run(async {
        let client = client();
        assert!(send(&client, &origin).is_none());
        get(&client, &origin).await.unwrap();
        for _ in 0..3 {
            let answer = finish_kept(send(&client, &origin).unwrap(), true).await;
            assert!(matches!(answer, (KeptAnswer::Taken, Some((404, ref content))) if content == b"no"), "{answer:?}");
            assert_eq!(client.idle_connections(&origin), 1);
        }
        assert_eq!((client.counts().connections_opened.get(), client.counts().responses.get()), (1, 4));
    });
}

#[test]
fn a_response_that_is_not_taken_is_returned_as_usual() {
    let origin = serve_answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        let (answer, _) = finish_kept(send(&client, &origin).unwrap(), false).await;
        let KeptAnswer::Incoming(mut incoming) = answer else { panic!("{answer:?}") };
        assert_eq!(finish(&mut incoming).await.unwrap().content, b"ok");
        assert_eq!(client.idle_connections(&origin), 1);
    });
}

#[test]
fn unusual_responses_are_not_offered() {
    for (answer, kept) in [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1),
        // More than was declared.
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\n", 0),
        ("HTTP/1.1 200 OK\r\n\r\nok", 0),
    ] {
        let origin = serve(move |_, mut stream| {
            read_request(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            read_request(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        run(async {
            let client = client();
            get(&client, &origin).await.unwrap();
            let (taken, _) = finish_kept(send(&client, &origin).unwrap(), true).await;
            let KeptAnswer::Incoming(mut incoming) = taken else { panic!("{answer:?}: {taken:?}") };
            assert_eq!(finish(&mut incoming).await.unwrap().content, b"ok");
            assert_eq!(client.idle_connections(&origin), kept, "{answer:?}");
        });
    }
}

#[test]
fn a_taken_response_does_not_pool_a_closing_connection() {
    let origin = serve(|_, mut stream| {
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").unwrap();
    });
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        let answer = finish_kept(send(&client, &origin).unwrap(), true).await;
        assert!(matches!(answer, (KeptAnswer::Taken, Some((200, _)))), "{answer:?}");
        assert_eq!(client.idle_connections(&origin), 0);
    });
}

#[test]
fn a_closed_connection_may_be_retried_and_a_truncated_head_may_not() {
    for (answer, again) in [("", true), ("HTTP/1.1 200 OK\r\nCont", false)] {
        let origin = serve(move |_, mut stream| {
            read_request(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            read_request(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        run(async {
            let client = client();
            get(&client, &origin).await.unwrap();
            let (ended, _) = finish_kept(send(&client, &origin).unwrap(), true).await;
            let counts = client.counts();
            if again {
                assert!(matches!(ended, KeptAnswer::Again), "{ended:?}");
                assert_eq!(counts.repeats.get(), 1);
            } else {
                let KeptAnswer::Failed(failure) = ended else { panic!("{ended:?}") };
                assert_eq!(failure.failure, OriginFailure::CutHead);
                assert_eq!(counts.failures[OriginFailure::CutHead as usize].get(), 1);
            }
        });
    }
}

#[test]
fn a_request_without_lines_is_not_sent() {
    let origin = serve_answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        assert!(client.send_kept(&origin, ("GET", b"/"), ProxyClient::Sender, |_| None).is_none());
        assert_eq!(client.idle_connections(&origin), 1);
    });
}

#[test]
fn a_pooled_connection_that_may_be_authenticated_is_closed() {
    for (line, challenge) in [("Authorization: NTLM TlRM\r\n", ""), ("", "WWW-Authenticate: NTLM\r\n")] {
        for takes in [true, false] {
            let origin = serve(move |_, mut stream| {
                read_request(&mut stream);
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                read_request(&mut stream);
                let answer = format!("HTTP/1.1 401 Unauthorized\r\n{challenge}Content-Length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).unwrap();
                read_request(&mut stream);
            });
            run(async {
                let client = client();
                get(&client, &origin).await.unwrap();
                assert_eq!(client.idle_connections(&origin), 1);
                let write_lines = |lines: &mut Vec<u8>| {
                    lines.extend_from_slice(format!("Host: origin\r\n{line}").as_bytes());
                    Some(())
                };
                let sent = client.send_kept(&origin, ("GET", b"/"), ProxyClient::Sender, write_lines).unwrap();
                let (answer, _) = finish_kept(sent, takes).await;
                assert_eq!(matches!(answer, KeptAnswer::Taken), takes, "{answer:?}");
                assert_eq!(client.idle_connections(&origin), 0, "{line}{challenge}");
            });
        }
    }
}
