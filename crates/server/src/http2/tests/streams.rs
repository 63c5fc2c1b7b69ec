//! Tests of content that arrives in pieces, in both directions.

use super::{connect, content, get};
use crate::tests::{Running, timeouts};
use bytes::Bytes;
use flatout_handler::ending::CloseReason;
use flatout_http::timeouts::Timeouts;
use flatout_os::runtime::build_runtime;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Runs `client` against a worker.
fn with_player<F: Future<Output = Running>>(timeouts: Timeouts, client: impl FnOnce(Running) -> F) {
    let server = Running::with(timeouts, None);
    let server = build_runtime().unwrap().block_on(client(server));
    assert_eq!(server.stop(), 0);
}

fn post(client: &mut SendRequest<Bytes>, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
    let request = http::Request::post(format!("http://test{path}")).body(()).unwrap();
    client.send_request(request, false).unwrap()
}

/// Returns the number of bytes that arrived before a stream ended early, and the reason it ended.
async fn cut(mut body: RecvStream) -> (usize, Option<Reason>) {
    let mut bytes = 0;
    while let Some(piece) = body.data().await {
        match piece {
            Ok(piece) => {
                bytes += piece.len();
                body.flow_control().release_capacity(piece.len()).unwrap();
            }
            Err(error) => return (bytes, error.reason()),
        }
    }
    (bytes, None)
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come to be");
        tokio::task::yield_now().await;
    }
}

/// Sends as much as the server's windows permit. Returns the number of bytes.
async fn send_all_it_takes(stream: &mut SendStream<Bytes>) -> usize {
    let mut sent = 0;
    loop {
        stream.reserve_capacity(16 * 1024);
        let waited = tokio::time::timeout(
            Duration::from_millis(300),
            poll_fn(|context| match stream.capacity() {
                0 => stream.poll_capacity(context).map(|_| ()),
                _ => std::task::Poll::Ready(()),
            }),
        );
        if waited.await.is_err() || sent > 16 * 1024 * 1024 {
            return sent;
        }
        let bytes = stream.capacity().min(16 * 1024);
        stream.send_data(vec![b'x'; bytes].into(), false).unwrap();
        sent += bytes;
    }
}

#[test]
fn answers_come_bit_by_bit_with_trailers() {
    with_player(timeouts(), |server| async move {
        let mut client = connect(server.address).await;
        for (path, expected) in [("/chunked", "one two three"), ("/later/known", "fourmore"), ("/nothing", "")] {
            let response = get(&mut client, path).await.unwrap();
            assert!(!response.headers().contains_key("transfer-encoding"));
            assert_eq!(content(response.into_body()).await, expected.as_bytes(), "{path}");
        }
        let mut body = get(&mut client, "/trailers").await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "body");
        assert!(body.data().await.is_none());
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!((&trailers["x-sum"], &trailers["x-more"]), (&"4".parse().unwrap(), &"yes".parse().unwrap()));
        let files = content(get(&mut client, "/files").await.unwrap().into_body()).await;
        assert_eq!((files.len(), files[0], files[100_001], files[170_002]), (170_003, b'<', b'|', b'>'));
        let big = get(&mut client, "/later/big").await.unwrap();
        assert_eq!(content(big.into_body()).await.len(), 3_000_000);
        until("the end of all sources", || server.seen.dropped.load(Ordering::Relaxed) == 6).await;
        assert_eq!(server.counters.http2_streams_cut.get(), 0);
        server
    });
}

#[test]
fn what_is_not_whole_ends_with_a_reset() {
    with_player(timeouts(), |server| async move {
        let mut client = connect(server.address).await;
        for (path, bytes) in [("/failing", 4), ("/short", 7), ("/later/long", 4)] {
            let response = get(&mut client, path).await.unwrap();
            let (came, reason) = cut(response.into_body()).await;
            assert!(came <= bytes, "{path}: {came}");
            assert_eq!(reason, Some(Reason::INTERNAL_ERROR), "{path}");
        }
        let head = http::Request::head("http://test/failing").body(()).unwrap();
        let response = client.send_request(head, true).unwrap().0.await.unwrap();
        assert!(response.body().is_end_stream());
        let tunnel = get(&mut client, "/tunnel").await.unwrap();
        assert_eq!(tunnel.status(), 501);
        until("the ends", || server.seen.dropped.load(Ordering::Relaxed) == 4).await;
        assert_eq!(server.counters.http2_streams_cut.get(), 3);
        server
    });
}

#[test]
fn a_stream_that_is_reset_ends_its_source() {
    with_player(timeouts(), |server| async move {
        let mut client = connect(server.address).await;
        let mut body = get(&mut client, "/slow").await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "begun");
        assert_eq!(server.seen.dropped.load(Ordering::Relaxed), 0);
        drop(body);
        until("the end of the source", || server.seen.dropped.load(Ordering::Relaxed) == 1).await;
        assert_eq!(get(&mut client, "/now").await.unwrap().status(), 200);
        server
    });
}

#[test]
fn a_client_that_does_not_read_holds_back_its_source() {
    let timeouts = Timeouts { write_timeout_ms: 1000, ..timeouts() };
    with_player(timeouts, |server| async move {
        let mut client = connect(server.address).await;
        let flood = get(&mut client, "/flood").await.unwrap();
        let slow = get(&mut client, "/slow").await.unwrap();
        let (uploaded, mut upload) = post(&mut client, "/count");
        upload.send_data("one".into(), false).unwrap();
        // Another stream is not delayed.
        assert_eq!(get(&mut client, "/now").await.unwrap().status(), 200);
        // What has arrived opens no window again. After the write timeout, only this stream ends.
        let mut body = flood.into_body();
        let ended = loop {
            match body.data().await.unwrap() {
                Ok(_) => {}
                Err(error) => break error.reason(),
            }
        };
        assert_eq!(ended, Some(Reason::CANCEL));
        drop(body);
        // The client's window, and what is read ahead of it.
        let given = server.seen.bytes.load(Ordering::Relaxed);
        assert!(given <= 256 * 1024, "{given}");
        upload.send_data("two".into(), true).unwrap();
        assert_eq!(content(uploaded.await.unwrap().into_body()).await, b"6 of None []");
        assert_eq!(get(&mut client, "/now").await.unwrap().status(), 200);
        assert_eq!(server.closed(CloseReason::WriteTimeout), 0);
        drop(slow);
        server
    });
}

#[test]
fn a_slow_source_is_waited_for() {
    let timeouts = Timeouts { write_timeout_ms: 100, idle_timeout_ms: 100, body_timeout_ms: 100, ..timeouts() };
    with_player(timeouts, |server| async move {
        let mut client = connect(server.address).await;
        let slow = get(&mut client, "/slow").await.unwrap();
        // Other connections reach their timeouts one after the other.
        for number in 1..=2 {
            let idle = server.connect();
            until("an idle connection's end", || server.closed(CloseReason::IdleTimeout) == number).await;
            drop(idle);
        }
        assert_eq!(get(&mut client, "/now").await.unwrap().status(), 200);
        drop(slow);
        server
    });
}

#[test]
fn content_goes_both_ways_at_once_with_trailers() {
    with_player(timeouts(), |server| async move {
        let mut client = connect(server.address).await;
        let (response, mut stream) = post(&mut client, "/echo");
        let mut body = response.await.unwrap().into_body();
        for word in ["one", "two", "three"] {
            stream.send_data(word.into(), false).unwrap();
            assert_eq!(body.data().await.unwrap().unwrap(), word);
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-last", "yes".parse().unwrap());
        trailers.insert("content-type", "not/late".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
        assert!(body.data().await.is_none());
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!((trailers.len(), &trailers["x-last"]), (1, &"yes".parse().unwrap()));
        // More than any window, and more than the limit on unread content.
        let (response, mut stream) = post(&mut client, "/echo");
        let body = response.await.unwrap().into_body();
        stream.send_data(vec![b'x'; 5_000_000].into(), true).unwrap();
        assert_eq!(content(body).await.len(), 5_000_000);
        server
    });
}

#[test]
fn handlers_are_given_content_of_any_size() {
    with_player(timeouts(), |server| async move {
        let mut client = connect(server.address).await;
        let request = http::Request::post("http://test/count").header("content-length", 3_000_000).body(()).unwrap();
        let (response, mut stream) = client.send_request(request, false).unwrap();
        stream.send_data(vec![b'x'; 3_000_000].into(), true).unwrap();
        let counted = content(response.await.unwrap().into_body()).await;
        assert_eq!(String::from_utf8_lossy(&counted), "3000000 of Some(3000000) []");
        // Only handlers that read content may receive this much.
        let request = http::Request::post("http://test/now").header("content-length", 3_000_000).body(()).unwrap();
        let (response, _stream) = client.send_request(request, false).unwrap();
        assert_eq!(response.await.unwrap().status(), 413);
        let request = http::Request::post("http://test/slow-count").header("expect", "100-continue").body(()).unwrap();
        let (mut response, mut stream) = client.send_request(request, false).unwrap();
        let early = poll_fn(|context| response.poll_informational(context)).await.unwrap().unwrap();
        assert_eq!(early.status(), 100);
        stream.send_data("four".into(), true).unwrap();
        assert_eq!(content(response.await.unwrap().into_body()).await, b"4 of None []");
        // The handler does not read this content, so the client need not send it (RFC 9110 §10.1.1).
        let request = http::Request::post("http://test/untouched").header("expect", "100-continue").body(()).unwrap();
        let (mut response, _stream) = client.send_request(request, false).unwrap();
        let early = poll_fn(|context| response.poll_informational(context)).await;
        assert!(early.is_none(), "{early:?}");
        assert_eq!(content(response.await.unwrap().into_body()).await, b"untouched");
        server
    });
}

#[test]
fn a_slow_reader_holds_back_the_client() {
    with_player(timeouts(), |server| async move {
        let mut client = connect(server.address).await;
        let (response, mut stream) = post(&mut client, "/holding");
        let sent = send_all_it_takes(&mut stream).await;
        assert!((64 * 1024..=256 * 1024).contains(&sent), "{sent}");
        // The content of another request is not delayed.
        let (counted, mut other) = post(&mut client, "/count");
        other.send_data(vec![b'x'; 300_000].into(), true).unwrap();
        assert_eq!(content(counted.await.unwrap().into_body()).await, b"300000 of None []");
        stream.send_reset(Reason::CANCEL);
        drop((response, stream));
        server
    });
}

/// Otherwise, content that was unread when the client cancelled would be missing from the connection's window.
#[test]
fn cancelled_uploads_leave_the_window_to_others() {
    const UPLOADS: u64 = 50;
    const UPLOAD_BYTES: u64 = 50_000;
    with_player(timeouts(), |server| async move {
        let mut client = connect(server.address).await;
        for number in 1..=UPLOADS {
            let (response, mut stream) = post(&mut client, "/holding");
            stream.send_data(vec![b'x'; UPLOAD_BYTES as usize].into(), false).unwrap();
            let received = || server.counters.bytes_received.get() >= number * UPLOAD_BYTES;
            until(&format!("upload {number}"), received).await;
            stream.send_reset(Reason::CANCEL);
            drop((response, stream));
        }
        let (counted, mut stream) = post(&mut client, "/count");
        stream.send_data(vec![b'x'; 300_000].into(), true).unwrap();
        assert_eq!(content(counted.await.unwrap().into_body()).await, b"300000 of None []");
        server
    });
}

#[test]
fn an_early_answer_gives_up_the_rest() {
    with_player(timeouts(), |server| async move {
        let mut client = connect(server.address).await;
        let (response, mut stream) = post(&mut client, "/early");
        stream.send_data("begin".into(), false).unwrap();
        let body = response.await.unwrap().into_body();
        assert_eq!(content(body).await, b"early");
        let reason = poll_fn(|context| stream.poll_reset(context)).await.unwrap();
        assert_eq!(reason, Reason::NO_ERROR);
        assert_eq!(get(&mut client, "/now").await.unwrap().status(), 200);
        server
    });
}

#[test]
fn slow_content_is_refused() {
    let timeouts = Timeouts { body_timeout_ms: 100, ..timeouts() };
    with_player(timeouts, |server| async move {
        let mut client = connect(server.address).await;
        let (response, mut stream) = post(&mut client, "/count");
        stream.send_data("half".into(), false).unwrap();
        assert_eq!(response.await.unwrap().status(), 408);
        // Here, the reader is slow, not the client.
        let (response, mut stream) = post(&mut client, "/slow-count");
        stream.send_data(vec![b'x'; 300_000].into(), true).unwrap();
        assert_eq!(content(response.await.unwrap().into_body()).await, b"300000 of None []");
        server
    });
}

#[test]
fn interim_answers_go_ahead() {
    with_player(timeouts(), |server| async move {
        let mut client = connect(server.address).await;
        let mut response = get(&mut client, "/hints");
        let early = poll_fn(|context| response.poll_informational(context)).await.unwrap().unwrap();
        assert_eq!(
            (early.status().as_u16(), &early.headers()["link"]),
            (103, &"</a.css>; rel=preload".parse().unwrap())
        );
        let early = poll_fn(|context| response.poll_informational(context)).await.unwrap().unwrap();
        assert_eq!(early.status(), 102);
        let response = response.await.unwrap();
        assert_eq!(content(response.into_body()).await, b"hinted");
        server
    });
}
