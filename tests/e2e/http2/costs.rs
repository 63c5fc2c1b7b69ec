//! System calls and allocations of a request over HTTP/2, counted from outside the real server.

use super::client::{Client, END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE, encode, request};
use super::site;
use crate::e2e::harness::Server;
use crate::e2e::syscalls::{RECEIVES, SENDS, count_allocations_of, count_calls_of};

/// Number of requests that a client sends at once.
const DEPTH: u32 = 10;

/// Sends `rounds` of requests on one connection, each in one write, after all responses to the previous round.
fn load(server: &Server, rounds: u32) {
    let mut client = Client::connect(server, &[]);
    let mut streams = (1..).step_by(2);
    for _ in 0..rounds {
        let ids: Vec<u32> = streams.by_ref().take(DEPTH as usize).collect();
        let requests = ids.iter().flat_map(|id| encode(HEADERS, END_HEADERS | END_STREAM, *id, &request("GET", "/1k")));
        let credit = encode(WINDOW_UPDATE, 0, 0, &(DEPTH * 1024).to_be_bytes());
        client.send(&credit.into_iter().chain(requests).collect::<Vec<u8>>());
        for _ in &ids {
            let end = client.frame_like("the end of a response", super::client::Frame::ends_stream);
            assert!(ids.contains(&end.stream));
        }
    }
}

#[test]
fn requests_that_arrive_together_share_one_receive_and_one_send() {
    const ROUNDS: u32 = 1000;
    let folder = site();
    let folder = folder.path().to_str().unwrap();
    let arguments = ["serve", folder, "--listen", "127.0.0.1:0", "--workers", "1", "--h2c"];
    let calls = count_calls_of(&arguments, |server| load(server, ROUNDS));
    let each = |names: &[&str]| calls.of(names) as f64 / f64::from(ROUNDS * DEPTH);
    println!("a request: {} receives, {} sends", each(RECEIVES), each(SENDS));
    assert!(each(RECEIVES) <= 0.15 && each(SENDS) <= 0.15, "{calls:?}");
}

#[test]
fn a_cached_response_allocates_nothing() {
    const ROUNDS: u32 = 1000;
    let folder = site();
    let folder = folder.path().to_str().unwrap();
    let serve = ["serve", folder, "--listen", "127.0.0.1:0", "--workers", "1", "--h2c"];
    for arguments in [&serve[..], &[&serve[..], &["--access-log", "/dev/null"]].concat()] {
        let count = |rounds| count_allocations_of(arguments, |server| load(server, rounds));
        let (few, many) = (count(1), count(ROUNDS));
        println!("{arguments:?}, allocations: {few} for a round, {many} for {ROUNDS}");
        // As over HTTP/1.1: a file is checked for changes about once a second, and startup varies.
        let beyond = many.saturating_sub(few);
        assert!(beyond <= u64::from(ROUNDS * DEPTH / 20), "{arguments:?}: {few} for a round, {many} for {ROUNDS}");
    }
}
