//! What a hit costs in system calls and allocations, counted from outside the real server.

use super::super::harness::{Folder, Server};
use super::super::syscalls::{
    CONNECTIONS, RECEIVES, SENDS, WAITS, count_allocations, count_calls_of, request_in_lock_step,
};
use super::origin::{Origin, response};
use std::fs;
use std::io::Write;

const REQUESTS: u64 = 10_000;

fn origin() -> Origin {
    Origin::answering(|request| match request.path() {
        "/10m" => response("200 OK", "Cache-Control: max-age=3600\r\n", &vec![b'y'; 10 * 1024 * 1024]),
        _ => response("200 OK", "Cache-Control: max-age=3600\r\nContent-Type: text/plain\r\n", &[b'x'; 1024]),
    })
}

#[test]
fn a_hit_is_a_wait_a_receive_and_a_send() {
    let origin = origin();
    let url = origin.url();
    let arguments = ["accelerate", &url, "--listen", "127.0.0.1:0", "--workers", "1", "--admin", "off"];
    let calls = count_calls_of(&arguments, |server| request_in_lock_step(server, REQUESTS));
    let start = count_calls_of(&arguments, |server| request_in_lock_step(server, CONNECTIONS));
    let each = |names: &[&str]| calls.of(names) as f64 / REQUESTS as f64;
    println!("a hit: {} receives, {} sends, {} waits", each(RECEIVES), each(SENDS), each(WAITS));
    for names in [RECEIVES, SENDS, WAITS] {
        assert!(each(names) <= 1.05, "{calls:?}");
    }
    let beyond_start = calls.all().saturating_sub(start.all()) as f64 / REQUESTS as f64;
    println!("calls of all kinds: {beyond_start}");
    assert!(beyond_start <= 3.15, "{calls:?}\nwithout the requests: {start:?}");
    // Two for each run: one that is stored, and none after it.
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn nothing_is_allocated_for_a_hit() {
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
        let count = |requests| count_allocations(arguments, requests);
        let (few, many) = (count(CONNECTIONS), count(REQUESTS));
        println!("{arguments:?}, allocations: {few} for {CONNECTIONS} requests, {many} for {REQUESTS}");
        let beyond = many.saturating_sub(few);
        assert!(beyond <= REQUESTS / 20, "{arguments:?}: {few} for {CONNECTIONS} requests, {many} for {REQUESTS}");
    }
}

#[test]
fn a_large_hit_goes_out_by_sendfile() {
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
        // Nothing of it is read into this process's memory.
        let reads = calls.of(&["pread64"]).saturating_sub(one.of(&["pread64"]));
        assert!(reads <= 2 * HITS, "{calls:?}");
    }
}
