//! The server's memory: at rest, per idle connection, and for the files it has served.
//!
//! RssAnon is the private memory of a process: heap and stacks, without the program and its libraries.

use super::bad_input::connections;
use super::harness::{Folder, Server, ask_admin, flatout, is_release, read_response, wait_until};
use super::tls::Certificate;
use super::tool::{run, tool};
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::process::{Child, Stdio, id};

/// The figures apply to the release build. A debug build has a more generous limit.
pub(super) fn bound(release: u64) -> u64 {
    if is_release() { release } else { 2 * release }
}

fn rss_anon_bytes(server: &Server) -> u64 {
    server.memory_kb("RssAnon") * 1024
}

fn site() -> Folder {
    Folder::with(&[("1k", &[b'x'; 1024])])
}

#[test]
fn an_idle_server_is_no_larger_than_a_web_server_of_1999() {
    // The resident set size that TarantulaWEB published.
    const LIMIT_KB: u64 = 1864;
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let after_start = server.memory_kb("RssAnon");
    assert_eq!(server.get("/1k").status, 200);
    let after_request = server.memory_kb("RssAnon");
    println!("RssAnon: {after_start} kB after start, {after_request} kB after a request");
    assert!(after_start <= bound(LIMIT_KB) && after_request <= bound(LIMIT_KB), "{after_start}, {after_request} kB");
}

/// Allows this process, or `pid`, this many descriptors.
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

/// Idle connections, each of which has received one response.
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
    fs::read_dir(format!("/proc/{}/fd", server.worker())).unwrap().count()
}

/// Number of descriptors after a first response, when the server has opened everything it needs. The client sees the
/// connection close slightly before the server closes the descriptor.
fn descriptors_at_rest(server: &Server) -> usize {
    assert_eq!(server.get("/").status, 404);
    wait_until("the connection is closed", || connections(server) == 0);
    descriptors(server)
}

#[test]
fn an_idle_connection_uses_no_more_than_a_kibibyte() {
    const CONNECTIONS: usize = 10_000;
    const LIMIT_BYTES: u64 = 1024;
    let folder = site();
    // Idle connections stay open, however long the test takes on a busy machine.
    let server = Server::start(folder.path(), &["--idle-timeout", "1440m"]);
    // Enough for these connections and for the other tests.
    allow_descriptors(id(), CONNECTIONS as u64 + 2000);
    allow_descriptors(server.worker(), CONNECTIONS as u64 + 100);
    let nobody = descriptors_at_rest(&server);
    let wait_for_nobody = || wait_until("all connections are closed", || descriptors(&server) == nobody);
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
    // Repeated crowds use the same amount of memory once the heap is fragmented, and most of it is returned.
    assert!(peaks[2] <= peaks[1] + peaks[1] / 20, "{peaks:?}");
    wait_until("the memory is freed", || rss_anon_bytes(&server) <= before + 2 * 1024 * 1024);
    assert_eq!(server.get("/1k").status, 200);
}

/// Creates `count` sparse files of `bytes` zeros each.
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
fn a_crawl_of_a_large_site_stays_within_the_cache_limit() {
    const FILES: usize = 2500;
    const BYTES: u64 = 60_000;
    // The limit of one worker's cache. A quarter more is allowed for its overhead.
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
fn a_crawl_of_large_files_leaves_descriptors_for_connections() {
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

/// Bytes of kernel memory in the send queues of the server's connections, one value for each connection that has any.
fn send_queues(server: &Server) -> Vec<u64> {
    let filter = format!("sport = :{}", server.address_of(0).port());
    let shown = run(tool("ss").args(["-tmnH", &filter]));
    let queued = |memory: &str| memory.split(',').find_map(|item| item.strip_prefix('w')?.parse::<u64>().ok());
    let values = shown.split("skmem:(").skip(1).filter_map(|rest| queued(rest.split(')').next()?));
    values.filter(|bytes| *bytes > 0).collect()
}

/// Waits until the kernel's buffers of `readers` connections that read nothing grow no more, and returns the kernel memory
/// in the server's send queues, in bytes.
fn stalled_bytes(server: &Server, readers: usize) -> u64 {
    let (mut queues, mut unchanged) = (Vec::new(), 0);
    wait_until("all connections have stalled", || {
        let before = std::mem::replace(&mut queues, send_queues(server));
        unchanged = if queues == before { unchanged + 1 } else { 0 };
        queues.len() == readers && unchanged >= 5
    });
    queues.iter().sum()
}

/// Asserts that the operator reads how much kernel memory the unsent responses to `readers` hold, of which the kernel says
/// that it is `held` bytes.
fn assert_unsent_memory_is_shown(private: &Folder, readers: usize, held: u64) {
    let metrics = ask_admin(private, "/metrics");
    let value = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let (bytes, connections) = (value("flatout_unsent_memory_bytes "), value("flatout_unsent_connections "));
    assert_eq!(connections, Some(readers as u64));
    let bytes = bytes.unwrap();
    assert!(bytes <= held + held / 2 && held <= bytes + bytes / 2, "{bytes} bytes, the kernel says {held}");
    let status = String::from_utf8(
        flatout().args(["status", "--admin"]).arg(private.path().join("admin")).output().unwrap().stdout,
    )
    .unwrap();
    let row = status.lines().find(|line| line.contains("unsent responses")).unwrap_or_else(|| panic!("{status}"));
    assert!(row.ends_with(&format!(" of kernel memory, for {readers} TCP connections")), "{row}");
}

#[test]
fn stalled_readers_hold_little_kernel_memory() {
    const READERS: usize = 1_000;
    const LIMIT_BYTES: u64 = 256 << 20;
    let (folder, private) = (Folder::new(), Folder::new());
    sparse_files(&folder, 1, 10_000_000);
    let admin = private.path().join("admin");
    let server = Server::start(
        folder.path(),
        &["--write-timeout", "1440m", "--workers", "2", "--admin", admin.to_str().unwrap()],
    );
    allow_descriptors(id(), READERS as u64 + 2000);
    let request = |_| {
        let mut stream = server.connect();
        stream.write_all(b"GET /0 HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        stream
    };
    let streams: Vec<TcpStream> = (0..READERS).map(request).collect();
    let held = stalled_bytes(&server, READERS);
    println!("{} KiB of kernel memory for each of {READERS} stalled readers of 10 MB", held / READERS as u64 / 1024);
    assert!(held <= LIMIT_BYTES, "{held} bytes");
    assert_eq!(server.get("/missing").status, 404);
    assert_unsent_memory_is_shown(&private, READERS, held);
    drop(streams);
    wait_until("the memory is free", || send_queues(&server).is_empty());
    assert_unsent_memory_is_shown(&private, 0, 0);
}

/// curl writes to a pipe that is never read, so it soon stops reading from its connection.
#[test]
fn unsent_memory_is_shown_over_tls_and_http2() {
    const READERS: usize = 8;
    let (folder, private, certificate) = (Folder::new(), Folder::new(), Certificate::new());
    sparse_files(&folder, 1, 100_000_000);
    let admin = private.path().join("admin");
    let arguments = ["--write-timeout", "1440m", "--tls-cert", &certificate.chain, "--tls-key", &certificate.key];
    let server = Server::start(folder.path(), &[&arguments[..], &["--admin", admin.to_str().unwrap()]].concat());
    let read = |_| {
        let mut command = tool("curl");
        command.args(["-sS", "-k", "--http2"]).arg(server.url("/0")).stdout(Stdio::piped());
        Reader(command.spawn().unwrap())
    };
    let _readers: Vec<Reader> = (0..READERS).map(read).collect();
    let held = stalled_bytes(&server, READERS);
    assert_unsent_memory_is_shown(&private, READERS, held);
}

/// A client that is killed at the end.
struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
