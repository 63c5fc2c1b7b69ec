//! Instructions and allocations per request, counted from outside the real server. Unlike CPU time, they hardly depend
//! on the machine, so they reveal a regression that measurements on a busy machine would miss.
//!
//! Valgrind counts the instructions outside the kernel, after a warm-up.

use super::super::harness::{Folder, Server, flatout, is_release, uninterrupted};
use super::super::skip::skip;
use super::super::syscalls::count_allocations_of;
use super::super::tool::{run, tool};
use super::origin::{Origin, response};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Number of warm-up requests, which connect to the origin and fill caches and buffers.
const FEW: u64 = 500;

/// Number of requests that are counted.
const MANY: u64 = 2_500;

/// Instructions per request, as measured when they last changed intentionally.
const FORWARDED: u64 = 16_400;
const FORWARDED_PRIVATE: u64 = 19_600;
const HIT: u64 = 6_500;
/// Counted by single-stepping, because the installed Valgrind did not support openat2. The steps include the kernel's
/// vDSO.
const STATIC_FILE: u64 = 8_820;

/// Allocations per forwarded request, without and with a cache.
const ALLOCATIONS: f64 = 5.1;
const ALLOCATIONS_PRIVATE: f64 = 6.1;

const BODY_BYTES: usize = 1024;

/// Sends a GET for `path` and waits for the complete response with its 1 KiB of content.
fn exchange(stream: &mut TcpStream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        assert!(count > 0, "cut after {} bytes", bytes.len());
        bytes.extend_from_slice(&buffer[..count]);
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if end.is_some_and(|end| bytes.len() >= end + 4 + BODY_BYTES) {
            return assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\n"));
        }
    }
}

/// Requests `path` `count` times over one connection, one after another.
fn request(server: &Server, path: &str, count: u64) {
    let mut stream = server.connect();
    (0..count).for_each(|_| exchange(&mut stream, path));
}

/// Returns the instructions per request for `path` on a server with these arguments, or the reason why Valgrind cannot
/// run it.
fn count_instructions(arguments: &[&str], path: &str) -> Result<f64, String> {
    let folder = Folder::new();
    let out = folder.path().join("out");
    let mut command = tool("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(flatout().get_program()).args(arguments);
    let server = Server::try_spawn(command)?;
    let control = |action: &str| run(tool("callgrind_control").arg(action).arg(server.pid().to_string()));
    request(&server, path, FEW);
    control("--zero");
    request(&server, path, MANY);
    control("--dump");
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    let counted = fs::read_to_string(out.with_extension("1")).unwrap();
    let total = counted.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
    Ok(total.trim().parse::<f64>().unwrap() / MANY as f64)
}

/// Fails if a request for `path` takes over a tenth more than `expected` instructions.
fn check_instructions(name: &str, arguments: &[&str], path: &str, expected: u64) {
    if !is_release() {
        return skip("instruction counts hold for the release build only");
    }
    match count_instructions(arguments, path) {
        Ok(count) => {
            println!("{name}: {count:.0} instructions");
            assert!(count <= expected as f64 * 1.1, "{name}: {count:.0} instructions, {expected} expected");
        }
        Err(reason) => skip(&format!("Valgrind cannot run this server: {reason}")),
    }
}

fn origin() -> Origin {
    let fields = "Content-Type: text/html; charset=utf-8\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
        ETag: \"0123456789abcdef\"\r\nAccept-Ranges: bytes\r\n";
    Origin::responding_unlogged(move |request| {
        // With this Date, a stored response would be stale.
        let more = match request.path() {
            "/private" => "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: private\r\n",
            _ => "Cache-Control: max-age=3600\r\n",
        };
        response("200 OK", &format!("{fields}{more}"), &[b'x'; BODY_BYTES])
    })
}

fn accelerate(url: &str) -> [&str; 8] {
    ["accelerate", url, "--listen", "127.0.0.1:0", "--workers", "1", "--admin", "off"]
}

/// Writes the configuration of a site with these directives, and returns the arguments that run it.
fn configure(folder: &Folder, steps: &str) -> Vec<String> {
    let text = format!("workers 1\nadmin off=#true\nsite \"*\" {{ listen \"127.0.0.1:0\"; {steps}; }}\n");
    folder.write("flatout.kdl", text.as_bytes());
    let path = folder.path().join("flatout.kdl");
    ["run", "-c", path.to_str().unwrap()].map(ToOwned::to_owned).to_vec()
}

#[test]
fn instructions_of_a_forwarded_request() {
    let (origin, folder) = (origin(), Folder::new());
    let arguments = configure(&folder, &format!("proxy \"{}\"", origin.url()));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    check_instructions("forwarded", &arguments, "/private", FORWARDED);
}

#[test]
fn instructions_of_a_request_forwarded_past_the_cache() {
    let origin = origin();
    check_instructions("forwarded past the cache", &accelerate(&origin.url()), "/private", FORWARDED_PRIVATE);
}

#[test]
fn instructions_of_a_hit() {
    let origin = origin();
    check_instructions("hit", &accelerate(&origin.url()), "/shared", HIT);
}

#[test]
fn instructions_of_a_static_file() {
    let folder = Folder::with(&[("1k", &[b'x'; BODY_BYTES])]);
    let folder = folder.path().to_str().unwrap();
    let arguments = ["serve", folder, "--listen", "127.0.0.1:0", "--workers", "1"];
    check_instructions("static file", &arguments, "/1k", STATIC_FILE);
}

/// The difference between two runs is the allocations of the additional requests.
#[test]
fn allocations_of_a_forwarded_request() {
    let (origin, folder) = (origin(), Folder::new());
    let configured = configure(&folder, &format!("proxy \"{}\"", origin.url()));
    let configured: Vec<_> = configured.iter().map(String::as_str).collect();
    let url = origin.url();
    for (arguments, expected) in [(&configured[..], ALLOCATIONS), (&accelerate(&url)[..], ALLOCATIONS_PRIVATE)] {
        let count = |requests| count_allocations_of(arguments, |server| request(server, "/private", requests));
        let (few, many) = (count(FEW), count(MANY));
        let each = many.saturating_sub(few) as f64 / (MANY - FEW) as f64;
        println!("{arguments:?}: {each:.2} allocations");
        assert!(each <= expected, "{arguments:?}: {each:.2} allocations, {expected} expected");
    }
}
