//! A process of PHP-FPM belongs to a request: with the default settings, no request waits for another's process.

use super::fpm::Fpm;
use super::{ask, get, outcomes, serve_with, text};
use crate::e2e::harness::{Folder, Server, wait_until};
use crate::e2e::syscalls::{SENDS, count_calls_of};
use std::io::{Read as _, Write as _};
use std::thread;

/// The dynamic pool of Debian's package, which has at most five processes, with its status page.
const POOL: &str = "pm = dynamic\npm.max_children = 5\npm.start_servers = 2\npm.min_spare_servers = 1\n\
                    pm.max_spare_servers = 3\npm.status_path = /fpm-status.php\n";

fn site(lines: &str) -> (Folder, Fpm, Server) {
    let folder = Folder::with(&[
        ("www/hello.php", b"<?php echo 'hello';"),
        ("www/job.php", b"<?php echo 'accepted'; fastcgi_finish_request(); while (!file_exists($_GET['until'])) { usleep(10000); clearstatcache(); }"),
        ("www/report.php", b"<?php usleep(1000 * (int) $_GET['ms']); echo 'report';"),
        ("www/after.php", b"<?php echo 'accepted'; fastcgi_finish_request(); usleep(1000 * (int) $_GET['ms']);"),
        ("www/own.php", b"<?php echo 'outer and ', file_get_contents('http://' . $_SERVER['HTTP_HOST'] . '/hello.php');"),
        ("www/post.php", b"<?php file_put_contents($_GET['log'], 'x', FILE_APPEND | LOCK_EX); echo strlen(file_get_contents('php://input'));"),
        ("www/fpm-status.php", b"<?php // PHP-FPM answers this itself."),
    ]);
    let fpm = Fpm::start(&folder, true, 5, lines);
    let root = folder.path().join("www");
    let server = serve_with(&folder, 2, &format!("    php {:?} {{ root {:?}; }}", fpm.address, root.to_str().unwrap()));
    (folder, fpm, server)
}

/// Asks for a page on the server's own port, so that the page can request another one.
fn get_own(server: &Server, path: &str) -> String {
    text(&ask(server, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address)))
}

#[test]
fn a_job_after_the_response_delays_nobody_while_processes_are_free() {
    let (folder, _fpm, server) = site(POOL);
    let until = folder.path().join("done");
    for _ in 0..4 {
        let answer = get(&server, &format!("/job.php?until={}", until.display()));
        assert_eq!((answer.status, text(&answer).as_str()), (200, "accepted"));
    }
    // Four of five processes work. The fifth serves everybody, although the four have answered.
    for _ in 0..10 {
        assert_eq!(text(&get(&server, "/hello.php")), "hello");
    }
    folder.write("done", b"");
    assert!(outcomes(&folder, 14).iter().all(|outcome| outcome == "php_answered"));
}

/// Requests `count` pages at once. Each must be answered.
fn all_at_once(server: &Server, count: usize, path: &str) {
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| assert_eq!(get(server, path).status, 200, "{path}"));
        }
    });
}

/// A pool works off a burst, although its requests take far longer than earlier ones with the same path, and the next
/// burst as well.
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
    let (_folder, _fpm, server) = site(POOL);
    for _ in 0..6 {
        // If connections were kept, that of an earlier visitor would occupy a process.
        assert_eq!(text(&get(&server, "/hello.php")), "hello");
        assert_eq!(get_own(&server, "/own.php"), "outer and hello");
    }
}

#[test]
fn visitors_who_have_left_hold_no_process() {
    let (_folder, _fpm, server) = site(POOL);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(text(&get(&server, "/hello.php")), "hello"));
        }
    });
    // The process that returns the status page is active. A process with an idle connection would count as active too.
    wait_until("all other processes are idle", || {
        let status: serde_json::Value = serde_json::from_str(&text(&get(&server, "/fpm-status.php?json"))).unwrap();
        status["active processes"] == 1
    });
}

#[test]
fn processes_that_end_after_so_many_requests_lose_none() {
    let (folder, _fpm, server) = site(&format!("{POOL}pm.max_requests = 5\n"));
    let log = folder.path().join("posts");
    let post = |_: usize| {
        let request = format!(
            "POST /post.php?log={} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
            log.display()
        );
        let answer = ask(&server, &request);
        assert_eq!((answer.status, text(&answer).as_str()), (200, "3"), "{}", text(&answer));
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(post));
        }
    });
    assert_eq!(std::fs::read(&log).unwrap().len(), 400, "each POST ran once");
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
