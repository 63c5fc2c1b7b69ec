//! The cost of a hit in system calls and allocations, counted from outside the real server.

use super::super::harness::{Folder, Server, uninterrupted};
use super::super::syscalls::{CONNECTIONS, RECEIVES, SENDS, WAITS, count_allocations_of, count_calls_of};
use super::origin::{Origin, response};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

const REQUESTS: u64 = 10_000;
const BODY_BYTES: usize = 1024;

/// Sends a request for the small object and waits for its complete response, whose head changes with its age.
fn exchange(stream: &mut TcpStream) {
    stream.write_all(b"GET /1k HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        assert!(count > 0, "cut after {} bytes", bytes.len());
        bytes.extend_from_slice(&buffer[..count]);
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if end.is_some_and(|end| bytes.len() == end + 4 + BODY_BYTES) {
            return assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\n"));
        }
    }
}

/// Stores the small object, and then requests it `count` times over several connections at once.
fn hit(server: &Server, count: u64) {
    exchange(&mut server.connect());
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut stream = server.connect();
                (0..count / CONNECTIONS).for_each(|_| exchange(&mut stream));
            });
        }
    });
}

fn origin() -> Origin {
    Origin::responding(|request| match request.path() {
        "/10m" => response("200 OK", "Cache-Control: max-age=3600\r\n", &vec![b'y'; 10 * 1024 * 1024]),
        _ => response("200 OK", "Cache-Control: max-age=3600\r\nContent-Type: text/plain\r\n", &[b'x'; BODY_BYTES]),
    })
}

#[test]
fn a_hit_takes_one_wait_one_receive_and_one_send() {
    let origin = origin();
    let url = origin.url();
    let arguments = ["accelerate", &url, "--listen", "127.0.0.1:0", "--workers", "1", "--admin", "off"];
    let calls = count_calls_of(&arguments, |server| hit(server, REQUESTS));
    let start = count_calls_of(&arguments, |server| hit(server, CONNECTIONS));
    let each = |names: &[&str]| calls.of(names) as f64 / REQUESTS as f64;
    println!("a hit: {} receives, {} sends, {} waits", each(RECEIVES), each(SENDS), each(WAITS));
    for names in [RECEIVES, SENDS, WAITS] {
        assert!(each(names) <= 1.05, "{calls:?}");
    }
    let beyond_start = calls.all().saturating_sub(start.all()) as f64 / REQUESTS as f64;
    println!("calls of all kinds: {beyond_start}");
    assert!(beyond_start <= 3.15, "{calls:?}\nwithout the requests: {start:?}");
    // One for each of the two runs: all other requests were hits.
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_hit_allocates_nothing() {
    let (origin, folder) = (origin(), Folder::new());
    let text = format!(
        "workers 1\nadmin off=#true\nlog \"/dev/null\" format=\"json\"\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\ncache\nproxy \"{}\"\n}}\n",
        origin.url()
    );
    let config = folder.path().join("logged.kdl");
    fs::write(&config, text).unwrap();
    let url = origin.url();
    for arguments in [
        &["accelerate", &url, "--listen", "127.0.0.1:0", "--workers", "1", "--admin", "off"][..],
        &["run", "-c", config.to_str().unwrap()],
    ] {
        let count = |requests| count_allocations_of(arguments, |server| hit(server, requests));
        let (few, many) = (count(CONNECTIONS), count(REQUESTS));
        println!("{arguments:?}, allocations: {few} for {CONNECTIONS} requests, {many} for {REQUESTS}");
        let beyond = many.saturating_sub(few);
        assert!(beyond <= REQUESTS / 20, "{arguments:?}: {few} for {CONNECTIONS} requests, {many} for {REQUESTS}");
    }
}

#[test]
fn a_large_hit_is_sent_with_sendfile() {
    const HITS: u64 = 20;
    let (origin, disk) = (origin(), Folder::new());
    let url = origin.url();
    let volume = format!("{}=1GiB", disk.path().display());
    let accelerate = ["accelerate", &url, "--listen", "127.0.0.1:0", "--workers", "1", "--admin", "off"];
    for arguments in [&accelerate[..], &[&accelerate[..], &["--disk", &volume]].concat()] {
        let fetch = |server: &Server| {
            let mut stream = server.connect();
            stream.write_all(b"GET /10m HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
            let bytes = super::read_to_end(&mut stream);
            assert!(bytes.len() > 10 * 1024 * 1024, "{}", bytes.len());
        };
        let one = count_calls_of(arguments, fetch);
        let calls = count_calls_of(arguments, |server| (0..=HITS).for_each(|_| fetch(server)));
        let sendfiles = calls.of(&["sendfile"]).saturating_sub(one.of(&["sendfile"]));
        println!("{arguments:?}: {sendfiles} sendfiles for {HITS} hits of 10 MiB");
        assert!(sendfiles >= HITS, "{calls:?}");
        // A hit is never read into the memory of this process. Content from a disk is compared with its checksums once
        // after a start, on the volume's own thread, in chunks of 256 KiB.
        let compared = if arguments.contains(&"--disk") { 10 * 4 + 1 } else { 0 };
        let reads = calls.of(&["pread64"]).saturating_sub(one.of(&["pread64"]));
        assert!(reads <= 2 * HITS + compared, "{calls:?}");
    }
}
