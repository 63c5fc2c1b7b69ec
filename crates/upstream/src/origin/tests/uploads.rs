use super::*;
use flatout_handler::content::{ContentWriter, Offers, REWIND_BYTES_MAX, content_channel};
use flatout_handler::ending::CloseReason;
use std::future::poll_fn;
use std::sync::mpsc::channel;

fn streamed(length: Option<u64>) -> (ContentWriter, OutgoingRequest<'static>) {
    let (writer, content) = content_channel(length);
    (writer, OutgoingRequest { content: OutgoingContent::Content(content), ..request("POST") })
}

/// Echoes the request as received.
fn echo() -> OriginAddress {
    serve(|_, mut stream| {
        while let Some((head, content)) = read_request(&mut stream) {
            let head = head.into_bytes();
            let length = head.len() + content.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all(&[answer.as_bytes(), &head, &content].concat()).unwrap();
        }
    })
}

fn content_of(answer: Answer) -> String {
    let text = String::from_utf8(answer.content).unwrap();
    text.split_once("X-One: 1\r\n").unwrap().1.to_owned()
}

#[test]
fn content_in_memory_has_a_content_length() {
    let origin = echo();
    run(async {
        let client = client();
        for (content, expected) in [
            (OutgoingContent::None, "\r\n"),
            (bytes(b""), "Content-Length: 0\r\n\r\n"),
            (bytes(b"hello"), "Content-Length: 5\r\n\r\nhello"),
        ] {
            let post = OutgoingRequest { content, ..request("POST") };
            assert_eq!(content_of(exchange(&client, &origin, post).await.unwrap()), expected);
        }
        assert_eq!(client.counts().connections_opened.get(), 1);
    });
}

#[test]
fn streamed_content_has_a_length_or_chunks() {
    let origin = echo();
    run(async {
        let client = client();
        let (writer, post) = streamed(Some(5));
        writer.write(SharedBytes::from(&b"he"[..]));
        writer.write(SharedBytes::from(&b"llo"[..]));
        writer.end(None);
        assert_eq!(content_of(exchange(&client, &origin, post).await.unwrap()), "Content-Length: 5\r\n\r\nhello");
        let (writer, post) = streamed(None);
        writer.write(SharedBytes::from(&b"he"[..]));
        writer.write(SharedBytes::from(&b"llo there, it is me"[..]));
        writer.end(None);
        let chunks = "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n13\r\nllo there, it is me\r\n0\r\n\r\n";
        assert_eq!(content_of(exchange(&client, &origin, post).await.unwrap()), chunks);
        for length in [None, Some(0)] {
            let (writer, post) = streamed(length);
            writer.end(None);
            let framed = if length.is_some() {
                "Content-Length: 0\r\n\r\n"
            } else {
                "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            };
            assert_eq!(content_of(exchange(&client, &origin, post).await.unwrap()), framed);
        }
        assert_eq!(client.counts().connections_opened.get(), 1);
    });
}

#[test]
fn trailers_are_forwarded() {
    let (told, asked) = channel();
    let origin = serve(move |_, mut stream| {
        read_head(&mut stream);
        let mut all = Vec::new();
        while !all.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            all.push(byte[0]);
        }
        told.send(String::from_utf8(all).unwrap()).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    run(async {
        let (writer, post) = streamed(None);
        writer.write(SharedBytes::from(&b"abc"[..]));
        writer.end(Some(b"X-Sum: 6\r\n"[..].into()));
        exchange(&client(), &origin, post).await.unwrap();
    });
    assert_eq!(asked.recv().unwrap(), "3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n");
}

#[test]
fn large_content_streams_with_backpressure() {
    const BYTES: usize = 12_000_000;
    let (full, is_full) = channel();
    let is_full = std::sync::Mutex::new(is_full);
    let origin = serve(move |_, mut stream| {
        let head = read_head(&mut stream).unwrap();
        assert!(head.contains(&format!("Content-Length: {BYTES}\r\n")));
        // Nothing is read before the writer has no room left.
        is_full.lock().unwrap().recv().unwrap();
        let (mut sum, mut left, mut piece) = (0_u64, BYTES, vec![0; 100_000]);
        while left > 0 {
            let count = stream.read(&mut piece).unwrap();
            sum += piece[..count].iter().map(|&byte| u64::from(byte)).sum::<u64>();
            left -= count;
        }
        stream
            .write_all(format!("HTTP/1.1 200 {sum}\r\nContent-Length: 0\r\nX-Sum: {sum}\r\n\r\n").as_bytes())
            .unwrap();
    });
    run(async {
        let (writer, post) = streamed(Some(BYTES as u64));
        let expected: u64 = (0..BYTES).map(|index| (index % 200) as u64).sum();
        let pump = tokio::task::spawn_local(async move {
            let mut at = 0;
            while at < BYTES {
                poll_fn(|context| {
                    let room = writer.poll_room(context);
                    if room.is_pending() {
                        let _ = full.send(());
                    }
                    room
                })
                .await;
                let end = (at + 50_000).min(BYTES);
                writer.write(SharedBytes::from((at..end).map(|index| (index % 200) as u8).collect::<Vec<_>>()));
                at = end;
            }
            writer.end(None);
        });
        let answer = exchange(&client(), &origin, post).await.unwrap();
        pump.await.unwrap();
        assert!(answer.lines.contains(&format!("X-Sum: {expected}\r\n")), "{}", answer.lines);
    });
}

#[test]
fn truncated_or_oversized_content_fails_the_exchange() {
    let (told, asked) = channel();
    let origin = serve(move |_, mut stream| {
        read_head(&mut stream);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = told.send(all);
    });
    run(async {
        let client = client();
        // Too little, too much, cut, cut in chunks.
        for (length, end) in [(Some(9), true), (Some(2), true), (Some(9), false), (None, false)] {
            let (writer, mut post) = streamed(length);
            writer.write(SharedBytes::from(&b"abc"[..]));
            if end {
                writer.end(None);
            } else {
                writer.cut(CloseReason::ClientReset);
            }
            let failure = client.exchange(&origin, &mut post, |_, _| {}).await.unwrap_err();
            assert_eq!(failure.failure, OriginFailure::ClientCutContent, "{length:?}");
            assert!(!failure.failure.is_origin_fault());
            // It is sent again from its beginning, and not as if it were whole.
            let again = client.exchange(&origin, &mut post, |_, _| {}).await.unwrap_err();
            assert_eq!(again.failure, OriginFailure::ClientCutContent, "{length:?}");
        }
        assert_eq!(client.idle_connections(&origin), 0);
    });
    for _ in 0..8 {
        let all = asked.recv().unwrap();
        assert!(!all.ends_with(b"0\r\n\r\n"), "never as if it were whole");
    }
}

/// The client stops sending while the origin waits: neither is late until the client's own timeout ends.
#[test]
fn a_pausing_client_does_not_time_out_the_origin() {
    let origin = echo();
    run(async {
        let client = client_with(quick());
        let (writer, post) = streamed(Some(4));
        let task = tokio::task::spawn_local({
            let client = client.clone();
            async move { exchange(&client, &origin, post).await }
        });
        writer.write(SharedBytes::from(&b"ab"[..]));
        client.pause(400).await;
        writer.write(SharedBytes::from(&b"cd"[..]));
        writer.end(None);
        assert_eq!(content_of(task.await.unwrap().unwrap()), "Content-Length: 4\r\n\r\nabcd");
    });
}

#[test]
fn an_origin_may_respond_before_it_has_read_the_request() {
    let refuse = "HTTP/1.1 413 Too much\r\nContent-Length: 4\r\n\r\nmuch";
    // It answers and closes; what it did not read makes that a reset.
    let closes = serve(move |_, mut stream| {
        read_head(&mut stream);
        stream.write_all(refuse.as_bytes()).unwrap();
    });
    // It answers and stays, reading nothing.
    let stays = serve(move |_, mut stream| {
        read_head(&mut stream);
        stream.write_all(refuse.as_bytes()).unwrap();
        hold(stream);
    });
    run(async {
        let client = client_with(quick());
        for origin in [&closes, &stays] {
            let (writer, post) = streamed(Some(10_000_000));
            writer.write(SharedBytes::from(vec![0; 1_000_000]));
            let answer = exchange(&client, origin, post).await.unwrap();
            assert_eq!((answer.status, &*answer.content), (413, &b"much"[..]));
            assert_eq!(client.idle_connections(origin), 0, "the rest of the content would be the next request");
            assert!(writer.is_abandoned());
        }
    });
}

/// The response begins while content is still being sent in the other direction, and both are complete.
#[test]
fn both_directions_stream_at_once() {
    const BYTES: usize = 3_000_000;
    let origin = serve(|_, mut stream| {
        while read_head(&mut stream).is_some() {
            stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes()).unwrap();
            let (mut left, mut piece) = (BYTES, vec![0; 10_000]);
            while left > 0 {
                let count = stream.read(&mut piece).unwrap();
                stream.write_all(&piece[..count]).unwrap();
                left -= count;
            }
        }
    });
    run(async {
        let client = client();
        for _ in 0..2 {
            let (writer, mut post) = streamed(Some(BYTES as u64));
            let pump = tokio::task::spawn_local(async move {
                for at in 0..BYTES / 50_000 {
                    poll_fn(|context| writer.poll_room(context)).await;
                    writer.write(SharedBytes::from(vec![at as u8; 50_000]));
                }
                writer.end(None);
            });
            let mut incoming = client.exchange(&origin, &mut post, |_, _| {}).await.unwrap();
            let answer = finish(&mut incoming).await.unwrap();
            pump.await.unwrap();
            assert!(answer.content.chunks(50_000).enumerate().all(|(at, piece)| piece == vec![at as u8; 50_000]));
        }
    });
}

/// A request whose client waits for 100 (Continue).
fn expecting(length: Option<u64>) -> (ContentWriter, OutgoingRequest<'static>) {
    let offers = Offers::with_content(length).expecting_continue(true);
    let content = offers.take_content().unwrap();
    (offers.writer().unwrap(), OutgoingRequest { content: OutgoingContent::Content(content), ..request("POST") })
}

/// No test here waits for the timeout, unless it says so.
fn patient() -> OriginSettings {
    OriginSettings { continue_timeout_ms: 60_000, head_timeout_ms: 60_000, ..OriginSettings::default() }
}

/// Writes `content` once the reader has polled for it, as a client does after 100 (Continue).
async fn write_when_asked(writer: ContentWriter, content: &[u8]) {
    while writer.was_never_asked() {
        tokio::task::yield_now().await;
    }
    writer.write(SharedBytes::from(content));
    writer.end(None);
}

/// RFC 9110 §10.1.1.
#[test]
fn the_clients_expectation_is_met_by_the_origin() {
    for (length, framing) in [(Some(5), "Content-Length: 5"), (None, "Transfer-Encoding: chunked")] {
        let origin = serve(move |_, mut stream| {
            let head = read_head(&mut stream).unwrap();
            assert!(head.ends_with(&format!("X-One: 1\r\nExpect: 100-continue\r\n{framing}\r\n\r\n")), "{head}");
            stream.write_all(b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n").unwrap();
            let mut content = [0; 5];
            if length.is_none() {
                stream.read_exact(&mut [0; 3]).unwrap();
            }
            stream.read_exact(&mut content).unwrap();
            assert_eq!(&content, b"hello");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        });
        run(async {
            let (writer, post) = expecting(length);
            let client = tokio::task::spawn_local(write_when_asked(writer, b"hello"));
            assert_eq!(exchange(&client_with(patient()), &origin, post).await.unwrap().content, b"ok");
            client.await.unwrap();
        });
    }
}

#[test]
fn content_that_the_origin_does_not_want_is_not_read() {
    let responses = ["401 Unauthorized", "413 Content Too Large", "417 Expectation Failed", "200 OK", "303 See Other"];
    for status in responses {
        let origin = serve(move |_, mut stream| {
            read_head(&mut stream).unwrap();
            let _ = stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno").as_bytes());
            // The connection ends without the content.
            assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        });
        run(async {
            let client = client_with(patient());
            let (writer, post) = expecting(Some(5));
            let answer = exchange(&client, &origin, post).await.unwrap();
            assert_eq!((answer.status.to_string(), &answer.content[..]), (status[..3].to_owned(), &b"no"[..]));
            assert!(writer.was_never_asked() && writer.is_abandoned(), "{status}");
            assert_eq!(client.idle_connections(&origin), 0);
        });
    }
}

#[test]
fn an_origin_that_ignores_the_expectation_gets_the_content_after_a_while() {
    let origin = echo();
    run(async {
        let client = client_with(OriginSettings { continue_timeout_ms: 50, ..patient() });
        let (writer, post) = expecting(Some(5));
        let writing = tokio::task::spawn_local(write_when_asked(writer, b"hello"));
        let expected = "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(content_of(exchange(&client, &origin, post).await.unwrap()), expected);
        writing.await.unwrap();
        // A client that does not wait holds nothing up.
        let client = client_with(patient());
        let (writer, post) = expecting(Some(5));
        writer.write(SharedBytes::from(&b"hello"[..]));
        writer.end(None);
        assert_eq!(content_of(exchange(&client, &origin, post).await.unwrap()), expected);
    });
}

#[test]
fn a_request_with_an_expectation_is_sent_again_while_its_content_is_kept() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    // The first connection is closed before or after the content was requested; the second serves.
    for takes_content in [false, true] {
        let origin = serve(move |index, mut stream| {
            let head = read_head(&mut stream).unwrap();
            if index == 0 {
                if takes_content {
                    stream.read_exact(&mut [0; 5]).unwrap();
                }
                return;
            }
            // The client sends its content after the first 100, so that another is not needed.
            assert_eq!(head.contains("Expect: 100-continue"), !takes_content, "{head}");
            if !takes_content {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            }
            let mut content = [0; 5];
            stream.read_exact(&mut content).unwrap();
            assert_eq!(&content, b"hello");
            stream.write_all(answer).unwrap();
        });
        run(async {
            let settings = OriginSettings { continue_timeout_ms: if takes_content { 20 } else { 60_000 }, ..patient() };
            let client = client_with(settings);
            let (writer, post) = expecting(Some(5));
            let writing = tokio::task::spawn_local(write_when_asked(writer, b"hello"));
            let mut put = OutgoingRequest { method: "PUT", ..post };
            let failure = client.exchange(&origin, &mut put, |_, _| {}).await.unwrap_err();
            assert!(matches!(failure.failure, OriginFailure::ClosedBeforeHead | OriginFailure::Reset), "{failure:?}");
            assert!(!put.content.is_spent());
            assert_eq!(exchange(&client, &origin, put).await.unwrap().content, b"ok");
            writing.await.unwrap();
        });
    }
    const { assert!(REWIND_BYTES_MAX > 5) };
}
