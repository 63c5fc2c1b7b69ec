//! A process of PHP-FPM belongs to a request: with the default settings, no request waits for another's process. nginx
//! gets the same requests.

use super::fpm::Fpm;
use super::slow::{self, slow};
use super::{get, serve_with, text};
use crate::e2e::harness::{Folder, Response, Server, connect, read_to_end, wait_until};
use crate::e2e::nginx;
use crate::e2e::process::{Running, free_port};
use crate::e2e::syscalls::{SENDS, count_calls_of};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The dynamic pool of Debian's package, which has at most five processes, with its status page.
const POOL: &str = "pm = dynamic\npm.max_children = 5\npm.start_servers = 2\npm.min_spare_servers = 1\n\
                    pm.max_spare_servers = 3\npm.status_path = /fpm-status.php\n";

/// Scripts, and a PHP-FPM with these lines in its pool.
fn scripts(lines: &str) -> (Folder, Fpm) {
    let folder = Folder::with(&[
        ("www/hello.php", b"<?php echo 'hello';"),
        ("www/job.php", b"<?php echo 'accepted'; fastcgi_finish_request(); while (!file_exists($_GET['until'])) { usleep(10000); clearstatcache(); }"),
        ("www/report.php", b"<?php usleep(1000 * (int) $_GET['ms']); echo 'report';"),
        ("www/after.php", b"<?php echo 'accepted'; fastcgi_finish_request(); usleep(1000 * (int) $_GET['ms']);"),
        ("www/own.php", b"<?php echo 'outer and ', file_get_contents('http://' . $_SERVER['HTTP_HOST'] . '/hello.php');"),
        ("www/post.php", b"<?php file_put_contents($_GET['log'], 'x', FILE_APPEND | LOCK_EX); echo strlen(file_get_contents('php://input'));"),
        ("www/big.php", slow::BIG),
        ("www/fpm-status.php", b"<?php // PHP-FPM answers this itself."),
    ]);
    let fpm = Fpm::start(&folder, true, 5, lines);
    (folder, fpm)
}

fn site(lines: &str) -> (Folder, Fpm, Server) {
    let (folder, fpm) = scripts(lines);
    let server = serve(&folder, &fpm, "");
    (folder, fpm, server)
}

/// flatout with these settings of `php`.
fn serve(folder: &Folder, fpm: &Fpm, settings: &str) -> Server {
    let root = folder.path().join("www").display().to_string();
    serve_with(folder, 2, &format!("    php {:?} {{ root {root:?}; {settings} }}", fpm.address))
}

/// nginx with these settings in its `location`.
fn start_nginx(folder: &Folder, fpm: &Fpm, settings: &str) -> (Running, SocketAddr) {
    let port = free_port();
    let variables: String = [
        ("QUERY_STRING", "$query_string"),
        ("REQUEST_METHOD", "$request_method"),
        ("CONTENT_TYPE", "$content_type"),
        ("CONTENT_LENGTH", "$content_length"),
        ("SCRIPT_NAME", "$fastcgi_script_name"),
        ("SCRIPT_FILENAME", "$document_root$fastcgi_script_name"),
        ("REQUEST_URI", "$request_uri"),
        ("SERVER_PROTOCOL", "$server_protocol"),
    ]
    .iter()
    .map(|(name, value)| format!("fastcgi_param {name} {value};"))
    .collect();
    let settings = format!(
        "server {{ listen 127.0.0.1:{port}; root {}/www;
             location / {{ fastcgi_pass {}; {variables} {settings} }} }}",
        folder.path().display(),
        fpm.address
    );
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    (nginx::start(folder, &settings, || TcpStream::connect(address).is_ok()), address)
}

/// A web server with a PHP-FPM of its own.
struct Front<'a> {
    address: SocketAddr,
    folder: &'a Folder,
    fpm: &'a Fpm,
}

impl Front<'_> {
    /// Sends a request as written on its own connection.
    fn ask(&self, request: &str) -> Response {
        let mut stream = connect(self.address);
        stream.write_all(request.as_bytes()).unwrap();
        Response::parse(&read_to_end(&mut stream))
    }

    /// Asks for a page on the server's own port, so that the page can request another one. Without persistent
    /// connections, HTTP/1.0 makes responses readable without chunks.
    fn get(&self, path: &str) -> (u16, String) {
        let answer = self.ask(&format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address));
        (answer.status, text(&answer))
    }

    fn post(&self, path: &str, content: &str) -> (u16, String) {
        let (host, length) = (self.address, content.len());
        let head = format!("POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
        let answer = self.ask(&format!("{head}{content}"));
        (answer.status, text(&answer))
    }

    /// Waits until only the process is active that returns this status.
    fn wait_until_idle(&self) {
        wait_until(&format!("all other processes behind {} are idle", self.address), || {
            let status: serde_json::Value = serde_json::from_str(&self.get("/fpm-status.php?json").1).unwrap();
            status["active processes"] == 1
        });
    }
}

fn ok(content: &str) -> (u16, String) {
    (200, content.to_owned())
}

/// Runs `case` with flatout, and then with nginx, each in front of a PHP-FPM of its own with these lines in its pool.
/// Both outcomes must be `expected`.
fn beside_nginx<T: PartialEq + Debug>(
    lines: &str,
    [flatout, nginx]: [&str; 2],
    expected: &T,
    case: impl Fn(&Front<'_>) -> T,
) {
    let of_flatout = {
        let (folder, fpm) = scripts(lines);
        let server = serve(&folder, &fpm, flatout);
        case(&Front { address: server.address, folder: &folder, fpm: &fpm })
    };
    let of_nginx = {
        let (folder, fpm) = scripts(lines);
        let (_nginx, address) = start_nginx(&folder, &fpm, nginx);
        case(&Front { address, folder: &folder, fpm: &fpm })
    };
    assert!(
        of_flatout == *expected && of_nginx == *expected,
        "expected: {expected:?}\n flatout: {of_flatout:?}\n   nginx: {of_nginx:?}"
    );
}

#[test]
fn a_job_after_the_response_delays_nobody_while_processes_are_free() {
    beside_nginx(POOL, [""; 2], &(4, 10), |front| {
        let until = front.folder.path().join("done");
        let job = format!("/job.php?until={}", until.display());
        let accepted = (0..4).take_while(|_| front.get(&job) == ok("accepted")).count();
        // Four of five processes work. The fifth serves everybody, although the four have answered.
        let served = (0..10).take_while(|_| front.get("/hello.php") == ok("hello")).count();
        front.folder.write("done", b"");
        (accepted, served)
    });
}

/// Requests `count` pages at once. Each must be answered.
fn all_at_once(server: &Server, count: usize, path: &str) {
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| assert_eq!(get(server, path).status, 200, "{path}"));
        }
    });
}

/// A pool serves a burst of requests that take far longer than earlier ones with the same path, and then another burst.
#[test]
fn bursts_of_long_requests_are_answered() {
    let (_folder, _fpm, server) = site(POOL);
    for _ in 0..10 {
        all_at_once(&server, 1, "/report.php?ms=5");
    }
    for _ in 0..2 {
        all_at_once(&server, 25, "/report.php?ms=600");
        all_at_once(&server, 20, "/report.php?ms=5");
    }
}

/// Visitors wait for processes that work after their response, each time.
#[test]
fn visitors_wait_until_processes_have_finished_their_jobs() {
    let (_folder, _fpm, server) = site(POOL);
    for _ in 0..10 {
        all_at_once(&server, 1, "/report.php?ms=5");
    }
    for _ in 0..2 {
        all_at_once(&server, 5, "/after.php?ms=2000");
        all_at_once(&server, 40, "/report.php?ms=5");
    }
}

#[test]
fn a_page_may_request_another_page_of_its_site() {
    beside_nginx(POOL, [""; 2], &6, |front| {
        // If connections were kept, that of an earlier visitor would occupy a process.
        let pages = [("/hello.php", "hello"), ("/own.php", "outer and hello")];
        (0..6).take_while(|_| pages.iter().all(|(path, content)| front.get(path) == ok(content))).count()
    });
}

#[test]
fn visitors_who_have_left_hold_no_process() {
    beside_nginx(POOL, [""; 2], &20, |front| {
        let served = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope
                    .spawn(|| served.fetch_add(usize::from(front.get("/hello.php") == ok("hello")), Ordering::Relaxed));
            }
        });
        // A process with an idle connection would count as active.
        front.wait_until_idle();
        served.into_inner()
    });
}

/// PHP-FPM answers its ping in a process of the pool, as a monitor sees it: without a web server in between.
#[test]
fn visitors_who_read_hold_no_process() {
    let lines = format!("{POOL}ping.path = /ping\n");
    // A kept connection would outlive the test.
    let settings = ["timeouts { idle \"1h\" }", ""];
    beside_nginx(&lines, settings, &true, |front| {
        let visitors: Vec<_> = (0..20)
            .map(|_| {
                let mut stream = connect(front.address);
                stream.write_all(b"GET /hello.php HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                let (mut bytes, mut buffer) = (Vec::new(), [0; 1024]);
                while !bytes.ends_with(b"hello") && !bytes.ends_with(b"\r\n0\r\n\r\n") {
                    let count = stream.read(&mut buffer).unwrap();
                    assert!(count > 0, "{}", String::from_utf8_lossy(&bytes));
                    bytes.extend_from_slice(&buffer[..count]);
                }
                stream
            })
            .collect();
        let responds = front.fpm.response("/ping").contains("\r\n\r\npong");
        front.wait_until_idle();
        drop(visitors);
        responds
    });
}

#[test]
fn processes_that_end_after_so_many_requests_lose_none() {
    let lines = format!("{POOL}pm.max_requests = 5\n");
    beside_nginx(&lines, [""; 2], &(BTreeMap::from([(ok("3"), 400)]), 400), |front| {
        let log = front.folder.path().join("posts");
        let post = || front.post(&format!("/post.php?log={}", log.display()), "abc");
        let answers: Vec<_> = thread::scope(|scope| {
            let clients = [(); 4].map(|()| scope.spawn(|| (0..100).map(|_| post()).collect::<Vec<_>>()));
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let mut counts = BTreeMap::new();
        for answer in answers {
            *counts.entry(answer).or_insert(0) += 1;
        }
        // Each ran once.
        (counts, std::fs::read(&log).unwrap().len())
    });
}

#[test]
fn clients_who_read_slowly_hold_no_process() {
    beside_nginx(POOL, [""; 2], &(ok("hello"), 5), |front| {
        let clients: Vec<_> = (0..5).map(|_| slow(front.address, "/big.php")).collect();
        let other = front.get("/hello.php");
        let content = slow::content();
        let complete = clients.into_iter().map(slow::read).filter(|(_, read, is_whole)| *is_whole && *read == content);
        (other, complete.count())
    });
}

/// PHP-FPM reads requests from its backlog after the web server has closed their connections.
#[test]
fn a_post_whose_client_got_504_may_still_run() {
    let settings = ["timeouts { head \"2s\" }", "fastcgi_read_timeout 2s;"];
    beside_nginx("pm.max_children = 1\n", settings, &(504, 1), |front| {
        let [until, log] = ["done", "posts"].map(|name| front.folder.path().join(name));
        assert_eq!(front.get(&format!("/job.php?until={}", until.display())), ok("accepted"));
        // The only process is busy.
        let (status, _) = front.post(&format!("/post.php?log={}", log.display()), "abc");
        front.folder.write("done", b"");
        // The process takes the requests in the order of their connections.
        wait_until("the process is free", || front.get("/hello.php") == ok("hello"));
        (status, std::fs::read(&log).unwrap_or_default().len())
    });
}

#[test]
fn a_connection_for_each_request_takes_few_system_calls() {
    const REQUESTS: u64 = 500;
    let (folder, fpm, _server) = site(POOL);
    let root = folder.path().join("www");
    let text = format!(
        "workers 1\nadmin off=#true\nsite \"*\" {{ listen \"127.0.0.1:0\"; php {:?} {{ root {root:?}; }}; }}\n",
        fpm.address
    );
    folder.write("counted.kdl", text.as_bytes());
    let config = folder.path().join("counted.kdl");
    let count = |requests: u64| {
        count_calls_of(&["run", "-c", config.to_str().unwrap()], |server| {
            let mut stream = server.connect();
            for _ in 0..requests {
                stream.write_all(b"GET /hello.php HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
                let mut answer = Vec::new();
                while !answer.ends_with(b"hello") {
                    let mut bytes = [0; 1024];
                    let length = stream.read(&mut bytes).unwrap();
                    assert!(length > 0, "{}", String::from_utf8_lossy(&answer));
                    answer.extend_from_slice(&bytes[..length]);
                }
            }
        })
    };
    let (calls, start) = (count(REQUESTS), count(1));
    let each = |names: &[&str]| calls.of(names).saturating_sub(start.of(names)) as f64 / REQUESTS as f64;
    // The request from the client and the response from PHP, in a single read each.
    assert!(each(&["recvfrom"]) <= 2.1, "{calls:?}");
    // All records of a request without content in a single send, and the response to the client.
    assert!(each(SENDS) <= 2.1, "{calls:?}");
    // The script is identified by a single call.
    assert!(each(&["openat2", "fstat", "newfstatat", "statx"]) <= 1.1, "{calls:?}");
    assert!(each(&["close"]) <= 1.1, "{calls:?}");
}
