//! Many demanding clients: memory and descriptors run short, and nobody is locked out.

use super::super::harness::{Folder, Response, Server, flatout, read_response, read_to_end};
use super::super::tool::{run, tool};
use super::{connect_with_small_buffer, count, expect_closed, get, site, stop, wait_until_idle};
use flatout_handler::ending::CloseReason;
use flatout_http::limits::Limits;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::Duration;

#[test]
fn clients_that_read_nothing_use_little_memory() {
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
    // One receive and a partial head not yet processed, and one batch of responses that the kernel did not take.
    let bound_kb = 32 + 16 + u64::from(Limits::DEFAULT.pipelined_max) * 17;
    let growth_kb = server.memory_kb("RssAnon") - before_kb;
    assert!(growth_kb <= CONNECTIONS * bound_kb, "{growth_kb} kB for {CONNECTIONS} connections");
}

/// Bytes that the kernel holds for sockets of `server` until they are sent and acknowledged, including its overhead.
fn queued_in_kernel(server: &Server) -> u64 {
    let port = format!("sport = :{}", server.address_of(0).port());
    let sockets = run(tool("ss").args(["-tmnHO", "state", "established"]).arg(port));
    let queued = |line: &str| {
        let memory = line.split_once("skmem:(")?.1;
        memory.split(',').find_map(|figure| figure.strip_prefix('w'))?.parse::<u64>().ok()
    };
    sockets.lines().map(|line| queued(line).unwrap_or_else(|| panic!("no skmem: {line}"))).sum()
}

#[test]
fn the_kernel_buffers_little_for_clients_that_read_nothing() {
    const CLIENTS: u64 = 40;
    let folder = Folder::with(&[("large.bin", &vec![b'x'; 8 << 20])]);
    let queued_per_client = |lines: &str| {
        let config = format!("{lines}\nsite \"*\" {{ listen \"127.0.0.1:0\"; files \".\"; }}\n");
        let server = Server::run(&folder, &config);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(get("/large.bin").as_bytes()).unwrap();
                stream
            })
            .collect();
        wait_until_idle(&server);
        let queued = queued_in_kernel(&server) / CLIENTS;
        drop(clients);
        queued
    };
    let bounded = queued_per_client("");
    let unbounded = queued_per_client("sockets { not-sent-max \"0B\"; }");
    println!("{bounded} bytes for each client; {unbounded} without the bound");
    assert!(bounded <= 320 * 1024, "{bounded} bytes");
    assert!(unbounded >= 2 * bounded, "{unbounded} bytes without the bound, {bounded} with it");
}

#[test]
fn hundreds_of_slow_heads_lock_nobody_out() {
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

/// Starts a server that may have this many descriptors.
fn start_with_descriptors(folder: &Folder, descriptors: u32) -> Server {
    let binary = flatout();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]).arg(binary.get_program());
    command.arg("serve").arg(folder.path()).args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    Server::spawn(command)
}

#[test]
fn idle_connections_are_closed_when_descriptors_run_out() {
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
fn incomplete_heads_are_dropped_when_descriptors_run_out() {
    let folder = site();
    let server = start_with_descriptors(&folder, 64);
    let mut halves = Vec::new();
    for _ in 0..60 {
        let mut stream = server.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        halves.push(stream);
    }
    // The head timeout is far longer than any test waits.
    assert_eq!(server.get("/").status, 200);
    drop(halves);
    let counters = stop(server);
    assert!(count(&counters, "closed_descriptor_pressure") >= 1, "{counters}");
}

#[test]
fn the_oldest_incomplete_head_is_dropped_before_idle_connections() {
    let folder = site();
    // 27 of 64 descriptors are reserved for connections.
    let server = start_with_descriptors(&folder, 64);
    let open = |beginning: &str| {
        let mut stream = server.connect();
        stream.write_all(beginning.as_bytes()).unwrap();
        stream
    };
    let mut idle: Vec<_> = (0..10).map(|_| open(&get("/"))).collect();
    for stream in &mut idle {
        assert_eq!(read_response(stream).status, 200);
    }
    let mut halves = Vec::new();
    for _ in 0..14 {
        halves.push(open("GET / HTTP/1.1\r\nHo"));
        // The server has seen it once it has responded to a later connection, so the next one is younger.
        assert_eq!(server.get("/").status, 200);
        thread::sleep(Duration::from_millis(10));
    }
    // Younger incomplete heads may still come from honest clients.
    thread::sleep(Duration::from_secs(1));
    let mut new: Vec<_> = (0..6).map(|_| open(&get("/"))).collect();
    for stream in &mut new {
        assert_eq!(read_response(stream).status, 200);
    }
    for stream in &mut idle {
        stream.write_all(get("/").as_bytes()).unwrap();
        assert_eq!(read_response(stream).status, 200, "an idle connection was closed before an incomplete head");
    }
    assert_eq!(Response::parse(&read_to_end(&mut halves[0])).status, 408);
    let last = halves.last_mut().unwrap();
    last.write_all(b"st: test\r\n\r\n").unwrap();
    assert_eq!(read_response(last).status, 200, "the youngest was closed before the oldest");
    drop((idle, halves, new));
    assert!(count(&stop(server), "closed_descriptor_pressure") >= 2);
}

#[test]
fn a_burst_of_connections_leaves_descriptors_for_files() {
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
        // A connection may have been idle while the test was delayed, and may have been closed to make room. A client
        // that
        // gets no response sends its request again (RFC 9112 §9.3.1).
        while !matches!(stream.peek(&mut [0]), Ok(1)) {
            stream = ask(index);
        }
        let response = read_response(&mut stream);
        assert_eq!((response.status, response.body), (200, format!("file {index}").into_bytes()));
    }
}

#[test]
fn a_server_without_descriptors_waits_without_spinning() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.get("/").status, 200);
    let pid = Pid::from_raw(i32::try_from(server.worker()).unwrap());
    let maximum = getrlimit(Resource::Nofile).maximum;
    let usual = prlimit(pid, Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
    let mut stream = server.connect();
    stream.write_all(get("/").as_bytes()).unwrap();
    wait_until_idle(&server);
    prlimit(pid, Resource::Nofile, usual).unwrap();
    assert_eq!(read_response(&mut stream).status, 200);
    drop(stream);
    let counters = stop(server);
    assert!(count(&counters, "accept_process_descriptors") > 0);
    // One line when it begins and one when it ends.
    assert_eq!(
        counters.matches("shortage of file descriptors, ports or kernel memory began: ").count(),
        1,
        "{counters}"
    );
    assert_eq!(counters.matches(" kernel memory ended").count(), 1, "{counters}");
    assert!(counters.contains(" × accept_process_descriptors"), "{counters}");
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
