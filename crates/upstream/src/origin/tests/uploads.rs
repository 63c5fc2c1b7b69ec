use super::*;
use flatout_handler::content::{ContentWriter, content_channel};
use flatout_handler::ending::CloseReason;
use std::future::poll_fn;
use std::sync::mpsc::channel;

fn streamed(length: Option<u64>) -> (ContentWriter, OutgoingRequest<'static>) {
    let (writer, content) = content_channel(length);
    (writer, OutgoingRequest { content: OutgoingContent::Content(content), ..request("POST") })
}

/// Echoes the request as it came over the wire.
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
fn content_at_hand_is_framed_by_its_length() {
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
fn streamed_content_is_framed_as_it_comes() {
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
fn trailers_go_along() {
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
fn large_content_streams_with_back_pressure() {
    const BYTES: usize = 12_000_000;
    let origin = serve(|_, mut stream| {
        let head = read_head(&mut stream).unwrap();
        assert!(head.contains(&format!("Content-Length: {BYTES}\r\n")));
        thread::sleep(std::time::Duration::from_millis(100));
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
                poll_fn(|context| writer.poll_room(context)).await;
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
fn content_that_is_cut_or_does_not_fit_ends_the_exchange() {
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
            assert!(!failure.failure.is_origin_fault() && post.content.is_taken());
            // What is left of it is not sent as if it were the request.
            let again = client.exchange(&origin, &mut post, |_, _| {}).await.unwrap_err();
            assert_eq!(again.failure, OriginFailure::ClientCutContent, "{length:?}");
        }
        assert_eq!(client.idle_connections(&origin), 0);
    });
    for _ in 0..4 {
        let all = asked.recv().unwrap();
        assert!(!all.ends_with(b"0\r\n\r\n"), "never as if it were whole");
    }
}

/// The client stops sending while the origin waits: neither is late until the client's own timeout ends.
#[test]
fn a_client_that_pauses_is_not_the_origin_s_fault() {
    let origin = echo();
    run(async {
        let client = client_with(quick());
        let (writer, post) = streamed(Some(4));
        let task = tokio::task::spawn_local({
            let client = client.clone();
            async move { exchange(&client, &origin, post).await }
        });
        writer.write(SharedBytes::from(&b"ab"[..]));
        pause_ms(400).await;
        writer.write(SharedBytes::from(&b"cd"[..]));
        writer.end(None);
        assert_eq!(content_of(task.await.unwrap().unwrap()), "Content-Length: 4\r\n\r\nabcd");
    });
}

#[test]
fn an_origin_may_answer_before_it_has_read_everything() {
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
        thread::sleep(std::time::Duration::from_secs(2));
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

/// The answer begins while content still goes the other way, and both are whole.
#[test]
fn both_directions_go_on_at_once() {
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
