use super::*;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Does nothing until the test is over.
fn wait(mut stream: TcpStream) {
    let mut some = [0; 64];
    while matches!(stream.read(&mut some), Ok(1..)) {}
}

fn timed(settings: OriginSettings, origin: &OriginAddress, expected: OriginFailure) {
    let begun = Instant::now();
    let failure = run(get(&client_with(settings), origin));
    assert_eq!(failure_of(failure), expected);
    let elapsed_ms = begun.elapsed().as_millis();
    // Shorter than the default timeouts.
    let longest_ms = if expected == OriginFailure::ConnectTimeout { 2_900 } else { 25_000 };
    assert!((140..longest_ms).contains(&elapsed_ms), "{expected:?} after {elapsed_ms} ms");
}

/// The default timeouts, except for content.
fn quick_body(body_timeout_ms: u64) -> OriginSettings {
    OriginSettings { body_timeout_ms, ..OriginSettings::default() }
}

#[test]
fn a_silent_origin_times_out() {
    timed(quick(), &serve(|_, stream| wait(stream)), OriginFailure::HeadTimeout);
}

#[test]
fn a_slow_response_head_times_out() {
    let origin = serve(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").unwrap();
        while stream.write_all(b"x").is_ok() && hears_nothing(&stream, 10) {}
    });
    timed(quick(), &origin, OriginFailure::HeadTimeout);
}

#[test]
fn interim_responses_do_not_extend_the_timeout() {
    let origin = serve(|_, mut stream| {
        read_head(&mut stream);
        while stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_ok() && hears_nothing(&stream, 20) {}
    });
    timed(quick(), &origin, OriginFailure::HeadTimeout);
}

#[test]
fn a_stalled_body_times_out_and_a_slow_one_does_not() {
    let stopped = serve(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01").unwrap();
        wait(stream);
    });
    timed(quick_body(150), &stopped, OriginFailure::BodyTimeout);
    let drips = serve(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n").unwrap();
        for _ in 0..10 {
            assert!(hears_nothing(&stream, 150));
            stream.write_all(b"x").unwrap();
        }
    });
    let answer = run(get(&client_with(quick_body(1_000)), &drips)).unwrap();
    assert_eq!(answer.content, b"xxxxxxxxxx");
}

#[test]
fn a_slow_client_does_not_time_out_the_origin() {
    let origin = serve_answer(format!("HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n{}", "x".repeat(3_000_000)));
    run(async {
        let client = client_with(quick_body(1_000));
        let mut incoming = client.exchange(&origin, &mut request("GET"), |_, _| {}).await.unwrap();
        client.pause(2_000).await;
        assert_eq!(finish(&mut incoming).await.unwrap().content.len(), 3_000_000);
    });
}

#[test]
fn an_origin_that_does_not_read_times_out() {
    let origin = serve(|_, stream| hold(stream));
    let failure = run(async {
        let put = OutgoingRequest { content: bytes(&vec![0; 30_000_000]), ..request("PUT") };
        exchange(&client_with(quick()), &origin, put).await
    });
    assert_eq!(failure_of(failure), OriginFailure::UploadTimeout);
}

#[test]
fn connecting_to_a_full_backlog_times_out() {
    // The queue of a listener with room for one is full with two that nobody accepts.
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
    listen(&socket, 0).unwrap();
    let bound = std::net::SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    let held: Vec<_> = (0..2).map(|_| TcpStream::connect_timeout(&bound, Duration::from_millis(100))).collect();
    let origin = OriginAddress::new(false, "127.0.0.1", bound.port());
    timed(quick(), &origin, OriginFailure::ConnectTimeout);
    drop(held);
}

#[test]
fn a_dropped_exchange_closes_its_connection() {
    let (told, closed) = channel();
    let origin = serve(move |_, mut stream| {
        read_head(&mut stream);
        told.send(None).unwrap();
        told.send(Some(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)))).unwrap();
    });
    run(async {
        let client = client();
        let task = {
            let (client, origin) = (client.clone(), origin.clone());
            tokio::task::spawn_local(async move { get(&client, &origin).await })
        };
        let closed = tokio::task::spawn_blocking(move || {
            closed.recv().unwrap();
            closed
        })
        .await
        .unwrap();
        task.abort();
        let closed = tokio::task::spawn_blocking(move || closed.recv().unwrap()).await.unwrap();
        assert_eq!(closed, Some(true));
    });
}

#[test]
fn other_futures_can_be_bounded() {
    run(async {
        let client = client_with(quick());
        let begun = Instant::now();
        client.pause(100).await;
        assert!(begun.elapsed().as_millis() >= 95);
        assert_eq!(client.within(50, std::future::pending::<()>()).await, None);
        assert_eq!(client.within(50, async { 7 }).await, Some(7));
        assert_eq!(client.within(30_000, client.pause(100)).await, Some(()));
    });
}
