//! Clients that pipeline, wait, hurry and disconnect.

use super::super::harness::{Folder, Response, Server, read_response, uninterrupted};
use super::{
    LARGE_BYTES, connect_with_small_buffer, count, expect_closed, get, large, read_until_closed, reset, site,
    start_logged, stop, wait_for_line, wait_until_stuck,
};
use flatout_handler::ending::CloseReason;
use std::fs;
use std::io::Read;
use std::io::Write;
use std::net::Shutdown;
use std::thread;

#[test]
fn a_half_closed_client_gets_its_response() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    for (request, statuses) in [
        (get("/"), vec![200]),
        (get("/large.bin"), vec![200]),
        (get("/").repeat(40), vec![200; 40]),
        (
            "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".to_owned(),
            vec![405],
        ),
        (format!("{}{}{}", get("/large.bin"), get("/none"), get("/large.bin")), vec![200, 404, 200]),
    ] {
        let mut bytes = server.exchange(request.as_bytes()).into_iter();
        let mut came = Vec::new();
        while let Some(response) = next_response(&mut bytes, false) {
            came.push(response.status);
        }
        assert_eq!(came, statuses, "{request}");
    }
}

/// Takes one response from bytes that were already read.
fn next_response(bytes: &mut std::vec::IntoIter<u8>, to_head: bool) -> Option<Response> {
    let rest = bytes.as_slice();
    if rest.is_empty() {
        return None;
    }
    let head_end = rest.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = Response::parse(&rest[..head_end]);
    let length = if to_head { 0 } else { head.field("content-length").map_or(0, |length| length.parse().unwrap()) };
    let body = rest[head_end..head_end + length].to_vec();
    bytes.nth(head_end + length - 1);
    Some(Response { body, ..head })
}

#[test]
fn a_thousand_pipelined_requests_get_a_thousand_responses_in_order() {
    let files: Vec<_> =
        (0..10).map(|index| (format!("{index}.txt"), format!("file {index}").repeat(index + 1))).collect();
    let files: Vec<_> = files.iter().map(|(name, content)| (name.as_str(), content.as_bytes())).collect();
    let folder = Folder::with(&files);
    let server = Server::start(folder.path(), &[]);
    let requests: String = (0..1000).map(|index| get(&format!("/{}.txt", index * 7 % 10))).collect();
    let mut bytes = server.exchange(requests.as_bytes()).into_iter();
    for index in 0..1000 {
        let response = next_response(&mut bytes, false).unwrap();
        assert_eq!(response.status, 200, "{index}");
        assert_eq!(response.body, files[index * 7 % 10].1, "{index}");
    }
    assert!(bytes.as_slice().is_empty());
    assert_eq!(count(&stop(server), "requests"), 1000);
}

#[test]
fn a_slow_reader_gets_mixed_pipelined_responses_in_order() {
    const ROUNDS: usize = 40;
    let middle: Vec<u8> = large()[..300_000].to_vec();
    let folder = Folder::with(&[("index.html", b"welcome"), ("middle.bin", &middle), ("30k.bin", &middle[..30_000])]);
    let server = Server::start(folder.path(), &[]);
    let head = "HEAD /middle.bin HTTP/1.1\r\nHost: test\r\n\r\n";
    let post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 20000\r\n\r\n".to_owned() + &"x".repeat(20_000);
    let round =
        [&get("/"), head, &get("/none"), &get("/middle.bin"), &get("/30k.bin"), &post].map(String::from).concat();
    let mut stream = connect_with_small_buffer(&server);
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        writer.write_all(round.repeat(ROUNDS).as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 10_000]);
    loop {
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
    writing.join().unwrap();
    let mut bytes = bytes.into_iter();
    for round in 0..ROUNDS {
        for (status, to_head, body) in [
            (200, false, Some(&b"welcome"[..])),
            (200, true, Some(b"")),
            (404, false, None),
            (200, false, Some(&middle)),
            (200, false, Some(&middle[..30_000])),
            (405, false, None),
        ] {
            let response = next_response(&mut bytes, to_head).unwrap();
            assert_eq!(response.status, status, "round {round}");
            assert!(body.is_none_or(|body| response.body == body), "round {round}: {status}");
        }
    }
    assert!(bytes.as_slice().is_empty());
    assert_eq!(count(&stop(server), "requests"), 6 * ROUNDS as u64);
}

#[test]
fn an_expectation_gets_100_or_an_immediate_final_response() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").unwrap();
    let interim = read_response(&mut stream);
    assert_eq!((interim.status, interim.fields.len()), (100, 0));
    stream.write_all(b"abc").unwrap();
    let response = read_response(&mut stream);
    assert_eq!((response.status, response.body.as_slice()), (200, &b"welcome"[..]));
    // The connection stays open, and Expect works with chunked content too.
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    assert_eq!(read_response(&mut stream).status, 100);
    stream.write_all(b"3\r\nabc\r\n0\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).status, 200);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").unwrap();
    let refused = read_response(&mut stream);
    assert_eq!((refused.status, refused.field("connection")), (405, Some("close")));
    // A client that did not wait may still be sending. Its bytes are discarded without a reset or another response.
    stream.write_all(get("/").repeat(1000).as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
    drop(stream);
    wait_for_line(&log, 405, "method_not_allowed sent");
    expect_closed(&stop(server), CloseReason::RefusedBody, 1);
}

#[test]
fn a_refused_client_that_keeps_sending_gets_its_response_and_no_reset() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\nHost: test\r\n\r\n").unwrap();
    for _ in 0..64 {
        stream.write_all(&[b'x'; 4096]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let response = Response::parse(&bytes);
    assert_eq!((response.status, response.field("connection")), (400, Some("close")));
    assert_eq!(response.field("content-length"), Some(response.body.len().to_string().as_str()));
    // The server stops reading after a while from a client that never stops sending.
    let mut stream = server.connect();
    stream.write_all(b"\0").unwrap();
    while stream.write_all(&[b'x'; 4096]).is_ok() {}
    drop(stream);
    let counters = stop(server);
    assert_eq!(count(&counters, "closed_refused"), 2, "{counters}");
}

#[test]
fn a_client_may_disconnect_at_any_moment() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    let beginnings =
        ["G", "GET / HTTP/1.1\r\nHost: test\r\n", "GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\na", "\0"];
    for beginning in beginnings {
        let mut stream = server.connect();
        stream.write_all(beginning.as_bytes()).unwrap();
        // The server has received the bytes once it has responded to a later connection.
        assert_eq!(server.get("/").status, 200);
        reset(stream);
    }
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_until_stuck(&stream);
    reset(stream);
    wait_for_line(&log, 200, "client_reset");
    wait_for_line(&log, 0, "client_closed client_reset");
    let counters = stop(server);
    expect_closed(&counters, CloseReason::ClientReset, 4);
    assert_eq!(count(&counters, "closed_refused"), 1, "{counters}");
}

#[test]
fn a_file_that_shrinks_during_transfer_truncates_its_response() {
    let folder = site();
    let (server, log) = start_logged(&folder, &[]);
    let mut stream = connect_with_small_buffer(&server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    wait_until_stuck(&stream);
    fs::File::options().write(true).open(folder.path().join("large.bin")).unwrap().set_len(100).unwrap();
    let response = Response::parse(&read_until_closed(&mut stream));
    assert_eq!(response.field("content-length"), Some(LARGE_BYTES.to_string().as_str()));
    assert!(response.body.len() < LARGE_BYTES, "a response is complete that should be truncated");
    wait_for_line(&log, 200, "file_changed");
    expect_closed(&stop(server), CloseReason::FileChanged, 1);
}
