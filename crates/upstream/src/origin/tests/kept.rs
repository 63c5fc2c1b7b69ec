//! Exchanges on kept connections, whose answers may be taken where they were received.

use super::*;
use crate::origin::{KeptAnswer, KeptExchange};
use std::future::poll_fn;

/// Sends a GET on a kept connection.
fn send(client: &OriginClient, origin: &OriginAddress) -> Option<KeptExchange> {
    client.send_kept(origin, &mut request("GET"))
}

/// The result of an exchange: status and content, if there is a response.
async fn finish_kept(mut exchange: KeptExchange, takes: bool) -> KeptAnswer<(u16, Vec<u8>)> {
    poll_fn(|context| {
        exchange.poll(context, |_, _| {}, |answer| takes.then(|| (answer.head.status, answer.content.to_vec())))
    })
    .await
}

#[test]
fn there_is_one_only_after_an_exchange() {
    let origin = serve_answer("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
    run(async {
        let client = client();
        assert!(send(&client, &origin).is_none());
        get(&client, &origin).await.unwrap();
        for _ in 0..3 {
            let answer = finish_kept(send(&client, &origin).unwrap(), true).await;
            assert!(matches!(&answer, KeptAnswer::Taken((404, content)) if content == b"no"), "{answer:?}");
            assert_eq!(client.idle_connections(&origin), 1);
        }
        assert_eq!((client.counts().connections_opened.get(), client.counts().responses.get()), (1, 4));
    });
}

#[test]
fn what_is_not_taken_is_an_answer_as_any_other() {
    let origin = serve_answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        let answer = finish_kept(send(&client, &origin).unwrap(), false).await;
        let KeptAnswer::Incoming(mut incoming) = answer else { panic!("{answer:?}") };
        assert_eq!(finish(&mut incoming).await.unwrap().content, b"ok");
        assert_eq!(client.idle_connections(&origin), 1);
    });
}

#[test]
fn what_is_unusual_is_not_shown() {
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
            let taken = finish_kept(send(&client, &origin).unwrap(), true).await;
            let KeptAnswer::Incoming(mut incoming) = taken else { panic!("{answer:?}: {taken:?}") };
            assert_eq!(finish(&mut incoming).await.unwrap().content, b"ok");
            assert_eq!(client.idle_connections(&origin), kept, "{answer:?}");
        });
    }
}

#[test]
fn an_answer_taken_from_a_connection_that_ends_keeps_none() {
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
        assert!(matches!(answer, KeptAnswer::Taken((200, _))), "{answer:?}");
        assert_eq!(client.idle_connections(&origin), 0);
    });
}

#[test]
fn a_connection_that_ends_meanwhile_may_be_tried_again_and_a_cut_head_not() {
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
            let ended = finish_kept(send(&client, &origin).unwrap(), true).await;
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
fn a_request_with_content_is_not_sent() {
    let origin = serve_answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    run(async {
        let client = client();
        get(&client, &origin).await.unwrap();
        let mut posted = request("POST");
        posted.content = bytes(b"x");
        assert!(client.send_kept(&origin, &mut posted).is_none());
        assert_eq!(client.idle_connections(&origin), 1);
    });
}
