//! What the server keeps in memory: at rest, for each idle connection, and for the files it has shown.
//!
//! RssAnon is the memory that is a process's own: heap and stacks, without the program and its libraries.

use super::harness::{Folder, Server, flatout, read_response, wait_until};
use super::tool::{run, tool};
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::process::id;

/// Figures are the release build's promise. A debug build is looked at too, but forgiven.
pub(super) fn bound(release: u64) -> u64 {
    let is_release = !cfg!(debug_assertions) || flatout().get_program().to_string_lossy().contains("/release/");
    if is_release { release } else { 2 * release }
}

fn rss_anon_bytes(server: &Server) -> u64 {
    server.memory_kb("RssAnon") * 1024
}

fn site() -> Folder {
    Folder::with(&[("1k", &[b'x'; 1024])])
}

#[test]
fn at_rest_it_is_no_larger_than_a_web_server_of_1999() {
    // The resident size that TarantulaWEB published.
    const LIMIT_KB: u64 = 1864;
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let after_start = server.memory_kb("RssAnon");
    assert_eq!(server.get("/1k").status, 200);
    let after_request = server.memory_kb("RssAnon");
    println!("RssAnon: {after_start} kB after start, {after_request} kB after a request");
    assert!(after_start <= bound(LIMIT_KB) && after_request <= bound(LIMIT_KB), "{after_start}, {after_request} kB");
}

/// Lets this process, or `pid`, hold so many descriptors.
pub(super) fn allow_descriptors(pid: u32, count: u64) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut columns = line.split_whitespace().skip(3);
    let (soft, hard) = (columns.next().unwrap(), columns.next().unwrap());
    let is_enough = |limit: &str| limit == "unlimited" || limit.parse::<u64>().unwrap() >= count;
    if is_enough(soft) {
        return;
    }
    assert!(is_enough(hard), "this test needs {count} descriptors a process; please raise the limit: ulimit -Hn");
    run(tool("prlimit").args([format!("--pid={pid}"), format!("--nofile={hard}:{hard}")]));
}

/// Idle connections, each of which has had one answer.
fn open_idle(server: &Server, count: usize) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = server.connect();
        stream.write_all(b"GET /1k HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        assert_eq!(read_response(&mut stream).status, 200);
        stream
    };
    (0..count).map(open).collect()
}

fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

/// A first answer comes when the server has all that it needs. Its end is seen a moment before the server lets go of the
/// descriptor, so the least of several looks counts.
fn descriptors_at_rest(server: &Server) -> usize {
    assert_eq!(server.get("/").status, 404);
    let look = |_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        descriptors(server)
    };
    (0..10).map(look).min().unwrap()
}

#[test]
fn an_idle_connection_costs_no_more_than_a_kibibyte() {
    const CONNECTIONS: usize = 10_000;
    const LIMIT_BYTES: u64 = 1024;
    let folder = site();
    // Nobody is sent away for being idle, however long the test takes on a busy machine.
    let server = Server::start(folder.path(), &["--idle-timeout", "1440m"]);
    // Room for these and for whatever else the tests have open.
    allow_descriptors(id(), CONNECTIONS as u64 + 2000);
    allow_descriptors(server.pid(), CONNECTIONS as u64 + 100);
    let nobody = descriptors_at_rest(&server);
    let wait_for_nobody = || wait_until("every connection closed", || descriptors(&server) == nobody);
    drop(open_idle(&server, 1));
    wait_for_nobody();
    let before = rss_anon_bytes(&server);
    let mut peaks = Vec::new();
    for round in 1..=3 {
        let streams = open_idle(&server, CONNECTIONS);
        let each = rss_anon_bytes(&server).saturating_sub(before) / CONNECTIONS as u64;
        println!("round {round}: {each} bytes of RssAnon for each of {CONNECTIONS} idle connections");
        assert!(each <= bound(LIMIT_BYTES), "{each} bytes a connection");
        peaks.push(rss_anon_bytes(&server));
        drop(streams);
        wait_for_nobody();
    }
    let after = rss_anon_bytes(&server);
    println!("RssAnon: {before} bytes before, {peaks:?} with the connections, {after} after");
    // One crowd after another costs the same, the heap once being cut up, and most of it is given back.
    assert!(peaks[2] <= peaks[1] + peaks[1] / 20, "{peaks:?}");
    wait_until("the memory is given back", || rss_anon_bytes(&server) <= before + 2 * 1024 * 1024);
    assert_eq!(server.get("/1k").status, 200);
}

/// Makes `count` files of `bytes` zeros each, which cost the disk nothing.
fn sparse_files(folder: &Folder, count: usize, bytes: u64) {
    for index in 0..count {
        File::create(folder.path().join(index.to_string())).unwrap().set_len(bytes).unwrap();
    }
}

fn crawl(server: &Server, count: usize) {
    let mut stream = server.connect();
    for index in 0..count {
        stream.write_all(format!("GET /{index} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(read_response(&mut stream).status, 200);
    }
}

#[test]
fn a_crawl_over_a_large_site_stays_within_the_cache_s_bound() {
    const FILES: usize = 2500;
    const BYTES: u64 = 60_000;
    // What one worker's cache may hold; a quarter more for what holding it costs.
    const CACHE_BYTES: u64 = 64 * 1024 * 1024;
    const { assert!(FILES as u64 * BYTES > 2 * CACHE_BYTES, "the site is larger than the cache") };
    let folder = Folder::new();
    sparse_files(&folder, FILES, BYTES);
    let server = Server::start(folder.path(), &[]);
    let mut sizes = Vec::new();
    for _ in 0..2 {
        crawl(&server, FILES);
        sizes.push(rss_anon_bytes(&server) / 1024 / 1024);
    }
    println!("RssAnon: {sizes:?} MiB after each crawl over {} MB", FILES as u64 * BYTES / 1_000_000);
    let most = (CACHE_BYTES + CACHE_BYTES / 4) / 1024 / 1024;
    assert!(sizes.iter().all(|&size| size <= most), "{sizes:?} MiB, more than {most}");
}

#[test]
fn a_crawl_over_large_files_leaves_descriptors_for_visitors() {
    const FILES: usize = 700;
    const DESCRIPTORS_MAX: usize = 512;
    let folder = Folder::new();
    sparse_files(&folder, FILES, 70_000);
    let server = Server::start(folder.path(), &[]);
    let before = descriptors_at_rest(&server);
    crawl(&server, FILES);
    let held = descriptors(&server) - before;
    println!("{held} descriptors held after {FILES} large files");
    assert!(held <= DESCRIPTORS_MAX + 1, "{held} descriptors");
}
