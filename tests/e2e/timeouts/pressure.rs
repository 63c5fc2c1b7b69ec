//! Many who want much: memory and descriptors run short, and nobody is kept out.

use super::super::harness::{Folder, Server, flatout, read_response};
use super::{connect_with_small_buffer, count, expect_closed, get, site, stop, wait_until_idle};
use flatout_handler::ending::CloseReason;
use flatout_http::limits::Limits;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::io::Write;
use std::process::Command;

#[test]
fn those_who_ask_for_much_and_read_nothing_cost_little_memory() {
    const CONNECTIONS: u64 = 100;
    let folder = Folder::with(&[("16k.bin", &[b'x'; 16_000])]);
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.get("/16k.bin").status, 200);
    let before_kb = server.memory_kb("RssAnon");
    let requests = get("/16k.bin").repeat(2000);
    let mut waiting = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = connect_with_small_buffer(&server);
        stream.set_nonblocking(true).unwrap();
        let _ = stream.write(requests.as_bytes()).unwrap();
        waiting.push(stream);
    }
    wait_until_idle(&server);
    // One receive and a part of a head that are not answered yet, and one batch of answers that the kernel did not take.
    let bound_kb = 32 + 16 + u64::from(Limits::DEFAULT.pipelined_max) * 17;
    let growth_kb = server.memory_kb("RssAnon") - before_kb;
    assert!(growth_kb <= CONNECTIONS * bound_kb, "{growth_kb} kB for {CONNECTIONS} connections");
}

#[test]
fn slow_heads_by_the_hundred_keep_nobody_out() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let mut slow: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for piece in get("/").as_bytes().chunks(9) {
        for stream in &mut slow {
            stream.write_all(piece).unwrap();
        }
        assert_eq!(server.get("/").status, 200);
    }
    for stream in &mut slow {
        assert_eq!(read_response(stream).body, b"welcome");
    }
}

/// Starts a server that may have so many descriptors.
fn start_with_descriptors(folder: &Folder, descriptors: u32) -> Server {
    let binary = flatout();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]).arg(binary.get_program());
    command.arg("serve").arg(folder.path()).args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    Server::spawn(command)
}

#[test]
fn without_descriptors_idle_connections_make_room_for_new_ones() {
    let folder = site();
    let server = start_with_descriptors(&folder, 64);
    let mut open = Vec::new();
    for index in 0..300 {
        let mut stream = server.connect();
        stream.write_all(get(&format!("/?{index}")).as_bytes()).unwrap();
        assert_eq!(read_response(&mut stream).status, 200, "connection {index}");
        open.push(stream);
    }
    drop(open);
    let counters = stop(server);
    let closed = count(&counters, "closed_descriptor_pressure");
    assert!(closed >= 200, "{counters}");
    expect_closed(&counters, CloseReason::DescriptorPressure, closed);
    assert_eq!(count(&counters, "connections_accepted"), 300);
}

#[test]
fn without_descriptors_incomplete_heads_make_room_as_well() {
    let folder = site();
    let server = start_with_descriptors(&folder, 64);
    let mut halves = Vec::new();
    for _ in 0..60 {
        let mut stream = server.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        halves.push(stream);
    }
    // The head timeout is far longer than anybody waits for this.
    assert_eq!(server.get("/").status, 200);
    drop(halves);
    let counters = stop(server);
    assert!(count(&counters, "closed_descriptor_pressure") >= 1, "{counters}");
}

#[test]
fn a_crowd_that_comes_at_once_finds_descriptors_for_its_files() {
    let folder = Folder::new();
    for index in 0..200 {
        folder.write(&format!("{index}.txt"), format!("file {index}").as_bytes());
    }
    let server = start_with_descriptors(&folder, 64);
    let ask = |index| {
        let mut stream = server.connect();
        stream.write_all(get(&format!("/{index}.txt")).as_bytes()).unwrap();
        stream
    };
    let crowd: Vec<_> = (0..200).map(ask).collect();
    for (index, mut stream) in crowd.into_iter().enumerate() {
        // A connection may have been idle for as long as the test was kept from asking, and have given way; anyone who
        // is answered nothing asks again (RFC 9112 §9.3.1).
        while !matches!(stream.peek(&mut [0]), Ok(1)) {
            stream = ask(index);
        }
        let response = read_response(&mut stream);
        assert_eq!((response.status, response.body), (200, format!("file {index}").into_bytes()));
    }
}

#[test]
fn a_server_that_may_open_nothing_waits_quietly_until_it_may() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.get("/").status, 200);
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let maximum = getrlimit(Resource::Nofile).maximum;
    let usual = prlimit(pid, Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
    let mut stream = server.connect();
    stream.write_all(get("/").as_bytes()).unwrap();
    wait_until_idle(&server);
    prlimit(pid, Resource::Nofile, usual).unwrap();
    assert_eq!(read_response(&mut stream).status, 200);
    drop(stream);
    assert!(count(&stop(server), "accepts_without_descriptor") > 0);
}

#[test]
fn files_held_open_leave_descriptors_for_connections() {
    let folder = Folder::new();
    for index in 0..200 {
        folder.write(&format!("{index}.bin"), &vec![b'x'; 70_000]);
    }
    let server = start_with_descriptors(&folder, 64);
    for index in 0..200 {
        let response = server.get(&format!("/{index}.bin"));
        assert_eq!((response.status, response.body.len()), (200, 70_000), "file {index}");
    }
    stop(server);
}
