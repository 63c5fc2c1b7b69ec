//! The cost of a request in system calls and allocations, counted from outside the real server.

use super::harness::{Folder, Response, Server, flatout, wait_until};
use super::tool::tool;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

pub(super) const RECEIVES: &[&str] = &["read", "readv", "recvfrom", "recvmsg", "recvmmsg", "pread64", "preadv"];
pub(super) const SENDS: &[&str] =
    &["write", "writev", "sendto", "sendmsg", "sendmmsg", "pwrite64", "sendfile", "splice"];
pub(super) const WAITS: &[&str] = &["epoll_wait", "epoll_pwait", "epoll_pwait2"];

/// Calls by name, as counted by `strace -c`, and how many of them failed.
#[derive(Debug)]
pub(super) struct Calls(BTreeMap<String, (u64, u64)>);

impl Calls {
    fn parse(table: &str) -> Self {
        let row = |line: &str| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            // % time, seconds, usecs/call, calls, [errors,] syscall
            let (calls, name) = (columns.get(3)?.parse().ok()?, columns.last()?);
            let errors = columns.get(4)?.parse().unwrap_or(0);
            Some(((*name).to_owned(), (calls, errors))).filter(|(name, _)| name != "total")
        };
        Self(table.lines().filter_map(row).collect())
    }

    pub(super) fn of(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.0.get(*name)).map(|(calls, _)| calls).sum()
    }

    fn failed(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |(_, errors)| *errors)
    }

    pub(super) fn all(&self) -> u64 {
        self.0.values().map(|(calls, _)| calls).sum()
    }
}

/// Serves `folder` under strace, runs `load`, and returns the server's system calls from start to exit.
fn count_calls(folder: &Path, load: impl FnOnce(&Server)) -> Calls {
    count_calls_with(folder, &[], load)
}

fn count_calls_with(folder: &Path, arguments: &[&str], load: impl FnOnce(&Server)) -> Calls {
    let folder = folder.to_str().unwrap();
    let serve = ["serve", folder, "--listen", "127.0.0.1:0", "--workers", "1"];
    count_calls_of(&[&serve[..], arguments].concat(), load)
}

/// Runs the server with these arguments under strace, runs `load`, and returns the server's system calls from start to
/// exit.
pub(super) fn count_calls_of(arguments: &[&str], load: impl FnOnce(&Server)) -> Calls {
    let notes = Folder::new();
    let table = notes.path().join("strace");
    let mut command = tool("strace");
    // With -D, strace runs detached, so that the server is our own child and gets our signals.
    command.args(["-D", "-c", "-f", "-o"]).arg(&table).arg(flatout().get_program()).args(arguments);
    let server = Server::spawn(command);
    load(&server);
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    let read = || fs::read_to_string(&table).unwrap_or_default();
    wait_until("strace's table", || read().contains("total"));
    Calls::parse(&read())
}

fn request(path: &str, option: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n{option}\r\n").into_bytes()
}

/// Sends `request` and waits for the complete response, which is as long as `answer`.
fn exchange(stream: &mut TcpStream, request: &[u8], answer: &mut [u8]) {
    stream.write_all(request).unwrap();
    stream.read_exact(answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

/// Size of the response to `request` while its connection stays open.
fn response_bytes(server: &Server, request: &[u8]) -> usize {
    let mut stream = server.connect();
    stream.write_all(request).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(Response::parse(&answer).status, 200);
    answer.len()
}

pub(super) const CONNECTIONS: u64 = 8;

/// Sends `count` requests, each after the response to the previous one, over eight connections at once.
fn request_in_lock_step(server: &Server, count: u64) {
    let request = request("/1k", "");
    let bytes = response_bytes(server, &request);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let (mut stream, mut answer) = (server.connect(), vec![0; bytes]);
                (0..count / CONNECTIONS).for_each(|_| exchange(&mut stream, &request, &mut answer));
            });
        }
    });
}

fn site() -> Folder {
    Folder::with(&[("1k", &[b'x'; 1024]), ("10m", &vec![b'y'; 10 * 1024 * 1024])])
}

#[test]
fn a_request_takes_one_wait_one_receive_and_one_send() {
    const REQUESTS: u64 = 10_000;
    let folder = site();
    let mut seconds = 0;
    let calls = count_calls(folder.path(), |server| {
        let begun = Instant::now();
        request_in_lock_step(server, REQUESTS);
        seconds = begun.elapsed().as_secs();
    });
    let start = count_calls(folder.path(), |server| request_in_lock_step(server, 8));
    let each = |names: &[&str]| calls.of(names) as f64 / REQUESTS as f64;
    println!("a request: {} receives, {} sends, {} waits", each(RECEIVES), each(SENDS), each(WAITS));
    assert!(each(RECEIVES) <= 1.05, "{calls:?}");
    assert!(each(SENDS) <= 1.05, "{calls:?}");
    assert!(each(WAITS) <= 1.05, "{calls:?}");
    // In addition to these three: a check of the file about once a second, and the calls at startup.
    let others = |calls: &Calls| calls.all() - calls.of(RECEIVES) - calls.of(SENDS) - calls.of(WAITS);
    let requests_others = others(&calls).saturating_sub(others(&start));
    assert!(
        requests_others <= REQUESTS / 100 + 10 * seconds,
        "{seconds} s: {calls:?}\nwithout the requests: {start:?}"
    );
}

/// Logging needs no system call per request: lines reach the writer and the file by the hundreds.
#[test]
fn a_logged_request_takes_one_wait_one_receive_and_one_send() {
    const REQUESTS: u64 = 10_000;
    let (folder, logs) = (site(), Folder::new());
    let log = logs.path().join("log");
    let arguments = ["--access-log", log.to_str().unwrap()];
    let calls = count_calls_with(folder.path(), &arguments, |server| request_in_lock_step(server, REQUESTS));
    let start = count_calls_with(folder.path(), &arguments, |server| request_in_lock_step(server, 8));
    let beyond_start = calls.all().saturating_sub(start.all()) as f64 / REQUESTS as f64;
    println!("a logged request: {beyond_start} calls");
    assert!(beyond_start <= 3.15, "{calls:?}\nwithout the requests: {start:?}");
    // The first request of each run determines the size of the response.
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count() as u64, REQUESTS + 1 + 8 + 1);
}

#[test]
fn pipelined_requests_share_one_receive_and_one_send() {
    const BATCHES: u64 = 1000;
    const DEPTH: usize = 10;
    let folder = site();
    let calls = count_calls(folder.path(), |server| {
        let one = request("/1k", "");
        let mut answers = vec![0; response_bytes(server, &one) * DEPTH];
        let mut stream = server.connect();
        (0..BATCHES).for_each(|_| exchange(&mut stream, &one.repeat(DEPTH), &mut answers));
    });
    let each = |names: &[&str]| calls.of(names) as f64 / (BATCHES * DEPTH as u64) as f64;
    println!("a pipelined request: {} receives, {} sends", each(RECEIVES), each(SENDS));
    assert!(each(RECEIVES) <= 0.15 && each(SENDS) <= 0.15, "{calls:?}");
}

#[test]
fn a_connection_per_request_takes_accept_receive_send_shutdown_and_close() {
    const REQUESTS: u64 = 2000;
    let folder = site();
    let load = |server: &Server, count: u64| {
        let request = request("/1k", "Connection: close\r\n");
        let bytes = response_bytes(server, &request);
        for _ in 0..count {
            let mut answer = vec![0; bytes];
            exchange(&mut server.connect(), &request, &mut answer);
        }
    };
    let calls = count_calls(folder.path(), |server| load(server, REQUESTS));
    let start = count_calls(folder.path(), |server| load(server, 1));
    let beyond_start = |names: &[&str]| calls.of(names).saturating_sub(start.of(names)) as f64 / REQUESTS as f64;
    let (registrations, waits) = (beyond_start(&["epoll_ctl"]), beyond_start(WAITS));
    println!("a connection: {registrations} registrations, {waits} waits");
    for names in [RECEIVES, SENDS, &["close"]] {
        let each = beyond_start(names);
        assert!((0.99..=1.05).contains(&each), "{each} of {names:?} a connection: {calls:?}");
    }
    // Our side is shut down while the last packet is still queued, so this packet carries the FIN.
    let shut = beyond_start(&["shutdown"]);
    assert!((0.99..=1.05).contains(&shut), "{calls:?}");
    // The server checks whether another connection waits, instead of trying to accept it.
    let accepted = calls.of(&["accept4"]) - calls.failed("accept4");
    assert!(accepted <= REQUESTS + 2, "{calls:?}");
    assert!(calls.failed("accept4") <= REQUESTS / 5, "{calls:?}");
    assert!(beyond_start(&["poll", "ppoll"]) <= 1.05, "{calls:?}");
    // The response is sent before the connection would be registered.
    assert!(registrations <= 0.2, "{calls:?}");
}

#[test]
fn a_large_file_is_sent_with_sendfile() {
    const REQUESTS: u64 = 20;
    const MIB: f64 = (10 * REQUESTS) as f64;
    let folder = site();
    let calls = count_calls(folder.path(), |server| {
        for _ in 0..REQUESTS {
            assert_eq!(server.get("/10m").body.len(), 10 * 1024 * 1024);
        }
    });
    let start = count_calls(folder.path(), |server| assert_eq!(server.get("/10m").status, 200));
    println!("a MiB: {} sendfiles", calls.of(&["sendfile"]) as f64 / MIB);
    assert!(calls.of(&["sendfile"]) >= 10 * REQUESTS, "{calls:?}");
    // All but the end of the file, which is read before it is sent.
    let reads = calls.of(&["pread64"]) - start.of(&["pread64"]);
    assert!(reads <= 2 * REQUESTS, "{calls:?}");
}

/// Calls of malloc, calloc and realloc by a server with these arguments that serves this many requests.
fn count_allocations(arguments: &[&str], requests: u64) -> u64 {
    count_allocations_of(arguments, |server| request_in_lock_step(server, requests))
}

/// Calls of malloc, calloc and realloc by a server with these arguments under `load`, counted by glibc's libmemusage.
pub(super) fn count_allocations_of(arguments: &[&str], load: impl FnOnce(&Server)) -> u64 {
    let library =
        Command::new("sh").args(["-c", "ls /usr/lib/*/libmemusage.so /lib/*/libmemusage.so 2>/dev/null"]).output();
    let library = String::from_utf8(library.unwrap().stdout).unwrap();
    let library = library.lines().next().expect("libmemusage.so is not there; please run: apt-get install libc6");
    let mut command = flatout();
    command.env("LD_PRELOAD", library).args(arguments);
    let server = Server::spawn(command);
    load(&server);
    let (status, said) = server.stop();
    // libmemusage prints its table in the process's last destructor and then stops counting. Memory that another thread
    // frees after that looks invalid to glibc, which aborts with this message after the server has finished.
    let is_aborted_by_glibc = status.signal() == Some(6) && said.contains("munmap_chunk(): invalid pointer");
    assert!(status.success() || is_aborted_by_glibc, "{status}: {said}");
    assert!(said.contains("Memory usage summary"), "{said}");
    // With colours: `malloc|   1234   567890   0` and so on.
    let plain: String = said.split('\u{1b}').map(|part| part.split_once('m').map_or(part, |(_, rest)| rest)).collect();
    let calls = |name: &str| -> u64 {
        let line = plain.lines().find_map(|line| line.trim_start().strip_prefix(name)?.trim_start().strip_prefix('|'));
        let line = line.unwrap_or_else(|| panic!("no {name} in the output of libmemusage: {said}"));
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    calls("malloc") + calls("calloc") + calls("realloc")
}

/// 100 sites with 1,000 routes in total, each with its own header directives. `test` is one of them, and its file is
/// reached after all of its routes.
fn many_sites(folder: &Path, log: Option<&str>) -> String {
    let log = log.map_or_else(String::new, |log| format!("log {log:?} format=\"json\"\n"));
    let route =
        |number| format!("    route \"/part{number}/*\" {{ header \"X-Part\" \"{number}\"; respond \"part\" }}\n");
    let routes: String = (0..9).map(route).collect();
    let site = |number| {
        let host = if number == 50 { "test".to_owned() } else { format!("site{number}.example") };
        format!(
            "site \"{host}\" \"*.{host}\" {{
    listen \"127.0.0.1:0\"
    header \"Strict-Transport-Security\" \"max-age=63072000\"
    allow \"127.0.0.0/8\"
    rate-limit requests=1000000 period=\"1s\"
    cors \"https://app.example\"
{routes}    route \"/1*\" method=\"GET\" {{ header \"Cache-Control\" \"max-age=60\" }}
    files {:?}
}}
",
            folder.to_str().unwrap()
        )
    };
    let sites: String = (0..100).map(site).collect();
    format!("workers 1\nadmin off=#true\n{log}{sites}")
}

#[test]
fn a_cached_response_allocates_nothing() {
    const REQUESTS: u64 = 10_000;
    let (folder, configs) = (site(), Folder::new());
    let root = folder.path().to_str().unwrap();
    let configured = |name: &str, log| {
        let path = configs.path().join(name);
        fs::write(&path, many_sites(folder.path(), log)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (plain, logged) = (configured("plain.kdl", None), configured("logged.kdl", Some("/dev/null")));
    let serve = ["serve", root, "--listen", "127.0.0.1:0", "--workers", "1"];
    for arguments in [
        &serve[..],
        &[&serve[..], &["--access-log", "/dev/null"]].concat(),
        &["run", "-c", &plain],
        &["run", "-c", &logged],
    ] {
        let count = |requests| count_allocations(arguments, requests);
        let (few, many) = (count(CONNECTIONS), count(REQUESTS));
        println!("{arguments:?}, allocations: {few} for {CONNECTIONS} requests, {many} for {REQUESTS}");
        // A file is checked for changes about once a second, the machine may be slow, and startup varies.
        let beyond = many.saturating_sub(few);
        assert!(beyond <= REQUESTS / 20, "{arguments:?}: {few} for {CONNECTIONS} requests, {many} for {REQUESTS}");
    }
}

/// The settings in `sockets { … }` take effect, and responses stay the same.
#[test]
fn socket_features_can_be_switched_off_for_measurements() {
    let site = Folder::new();
    let body: Vec<u8> = (0..900_000_u32).map(|index| (index % 251) as u8).collect();
    site.write("large.bin", &body);
    let calls = |sockets: &str| {
        let folder = Folder::new();
        let text = format!(
            "workers 1\nadmin off=#true\n{sockets}\nsite \"*\" {{ listen \"127.0.0.1:0\"; files \"{}\"; }}\n",
            site.path().display()
        );
        folder.write("flatout.kdl", text.as_bytes());
        let config = folder.path().join("flatout.kdl");
        count_calls_of(&["run", "-c", config.to_str().unwrap()], |server| {
            for _ in 0..3 {
                let answer = server.get("/large.bin");
                assert!(answer.body == body, "the content differs");
            }
        })
    };
    let usual = calls("");
    assert!(usual.of(&["sendfile"]) > 0);
    let other = calls(
        "sockets { reuseport #false; defer-accept #false; nodelay #false; quickack #true; sendfile #false; backlog 16; \
         accept-batch 1; }",
    );
    assert_eq!(other.of(&["sendfile"]), 0);
    // Three connections, each with immediate acknowledgements.
    assert_eq!(other.of(&["setsockopt"]), usual.of(&["setsockopt"]) + 3, "{other:?}");
}
