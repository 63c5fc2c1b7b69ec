//! PHP-FPM itself, over Unix and TCP sockets, and what visitors get when it is killed.

use super::super::accelerator::wiki::{Running, free_port, is_root, php_fpm};
use super::super::harness::{Folder, Response, Server, TIMEOUT, wait_until};
use super::scripted::record;
use super::{ask, get, outcomes, serve, serve_with, text};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A running PHP-FPM.
pub(super) struct Fpm {
    process: Option<Running>,
    config: PathBuf,
    /// The address in the form that the `php` directive takes.
    pub(super) address: String,
}

impl Fpm {
    /// Starts PHP-FPM with `children` and these lines in its pool, on a Unix socket or on a TCP port.
    pub(super) fn start(folder: &Folder, is_unix: bool, children: u32, lines: &str) -> Self {
        let root = folder.path().display();
        let (listen, address) = if is_unix {
            (format!("{root}/fpm.sock"), format!("unix:{root}/fpm.sock"))
        } else {
            let port = free_port();
            (format!("127.0.0.1:{port}"), format!("tcp:127.0.0.1:{port}"))
        };
        let user = if is_root() { "user = root\ngroup = root\n" } else { "" };
        folder.write(
            "fpm.conf",
            format!(
                "[global]\nerror_log = {root}/fpm.log\ndaemonize = no\n[www]\n{user}listen = {listen}\npm = static\n\
                 pm.max_children = {children}\ncatch_workers_output = yes\n{lines}"
            )
            .as_bytes(),
        );
        let mut fpm = Self { process: None, config: folder.path().join("fpm.conf"), address };
        fpm.run();
        fpm
    }

    /// Starts it, or restarts it.
    pub(super) fn run(&mut self) {
        let mut command = Command::new(php_fpm());
        command.args(["-R", "-F", "-y"]).arg(&self.config).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(Running(command.spawn().unwrap()));
        let address = self.address.clone();
        wait_until("PHP listens", || match address.split_once(':').unwrap() {
            ("unix", path) => UnixStream::connect(path).is_ok(),
            (_, address) => TcpStream::connect(address).is_ok(),
        });
    }

    /// Returns the response of PHP-FPM itself to a GET for `path`, without a web server.
    pub(super) fn response(&self, path: &str) -> String {
        let mut stream = UnixStream::connect(self.address.strip_prefix("unix:").unwrap()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let variables: Vec<u8> = [("REQUEST_METHOD", "GET"), ("SCRIPT_NAME", path), ("SCRIPT_FILENAME", path)]
            .iter()
            .flat_map(|(name, value)| {
                [&[name.len() as u8, value.len() as u8][..], name.as_bytes(), value.as_bytes()].concat()
            })
            .collect();
        // A responder, without a request to keep the connection open.
        let begin = record(1, &[0, 1, 0, 0, 0, 0, 0, 0]);
        let request = [begin, record(4, &variables), record(4, b""), record(5, b"")].concat();
        stream.write_all(&request).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Kills it and all its children at once.
    pub(super) fn kill(&mut self) {
        let Some(running) = self.process.take() else { return };
        let parent = running.0.id().to_string();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        let pids = std::iter::once(parent.as_str()).chain(children.split_whitespace());
        let status = Command::new("kill").arg("-KILL").args(pids).status().unwrap();
        assert!(status.success());
        drop(running);
    }
}

fn folder() -> Folder {
    Folder::with(&[
        ("www/show.php", b"<?php header('Content-Type: application/json'); echo json_encode(['server' => $_SERVER, 'get' => $_GET, 'post' => $_POST, 'body' => strlen(file_get_contents('php://input'))]);"),
        ("www/hello.php", b"<?php echo 'hello';"),
        ("www/sleep.php", b"<?php usleep((int) $_GET['us']); echo 'slept';"),
        ("www/big.php", b"<?php for ($i = 0; $i < 1000; $i++) { echo str_repeat(chr(65 + $i % 26), 1000); }"),
        ("www/upload.php", b"<?php echo $_FILES['f']['size'], ' ', md5_file($_FILES['f']['tmp_name']);"),
        ("www/index.php", b"<?php echo 'front ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'];"),
        ("www/warn.php", b"<?php error_log('a complaint'); echo 'done';"),
        ("www/status.php", b"<?php http_response_code(404); setcookie('a', 'b'); echo 'gone';"),
        ("www/newline.php", b"<?php header('Content-Length: 5'); echo 'hello'; ?>\n\n"),
        ("www/short.php", b"<?php header('Content-Length: 9'); echo 'hello'; ?>"),
        ("www/none.php", b"<?php http_response_code((int) $_GET['status']); header('ETag: \"a\"'); echo 'surplus';"),
        ("www/style.css", b"a style"),
    ])
}

fn steps(folder: &Folder, fpm: &Fpm, settings: &str) -> String {
    let root = folder.path().join("www");
    let root = root.to_str().unwrap();
    format!("    php {:?} {{\n{settings}\n    }}\n    files {root:?}", fpm.address)
}

#[test]
fn scripts_run_over_unix_and_tcp_sockets() {
    for is_unix in [true, false] {
        let folder = folder();
        let fpm = Fpm::start(&folder, is_unix, 4, "");
        let server = serve(&folder, &steps(&folder, &fpm, "env \"APP_ENV\" \"test\""));
        let request = "POST /show.php/info/a%20b?x=1&y=%41 HTTP/1.1\r\nHost: a.example\r\nProxy: evil\r\nX_A: 1\r\nX-A: 2\r\n\
                       Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 5\r\nConnection: close\r\n\r\nq=r+s";
        let told: serde_json::Value = serde_json::from_slice(&ask(&server, request).body).unwrap();
        let root = folder.path().join("www").display().to_string();
        for (name, value) in [
            ("SCRIPT_NAME", "/show.php"),
            ("PATH_INFO", "/info/a b"),
            ("REQUEST_URI", "/show.php/info/a%20b?x=1&y=%41"),
            ("HTTP_X_A", "2"),
            ("APP_ENV", "test"),
            ("SERVER_NAME", "a.example"),
            ("PHP_SELF", "/show.php/info/a b"),
            ("DOCUMENT_ROOT", &root),
            ("SCRIPT_FILENAME", &format!("{root}/show.php")),
        ] {
            assert_eq!(told["server"][name], value, "{name}");
        }
        assert_eq!(told["server"].get("HTTP_PROXY"), None);
        assert_eq!((&told["get"]["y"], &told["post"]["q"], &told["body"]), (&"A".into(), &"r s".into(), &5.into()));
        assert_eq!(text(&get(&server, "/style.css")), "a style");
        let gone = get(&server, "/status.php");
        assert_eq!((gone.status, text(&gone).as_str(), gone.field("set-cookie")), (404, "gone", Some("a=b")));
        let big = get(&server, "/big.php");
        assert!(text(&big).matches('A').count() >= 1_000, "{}", big.body.len());
        let head = server.exchange(b"HEAD /hello.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(head.starts_with(b"HTTP/1.1 200") && head.ends_with(b"\r\n\r\n"));
        assert_eq!(text(&get(&server, "/warn.php")), "done");
        let newline = server.exchange(b"GET /newline.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(newline.starts_with(b"HTTP/1.1 200") && newline.ends_with(b"\r\n\r\nhello"));
        let short = server.exchange(b"GET /short.php HTTP/1.1\r\nHost: a\r\n\r\n");
        let short = String::from_utf8_lossy(&short).into_owned();
        assert!(short.contains("\r\nContent-Length: 9\r\n") && short.ends_with("\r\n\r\nhello"), "{short}");
        // Content where there can be none must not become the beginning of the next response.
        for (request, status) in
            [("GET /none.php?status=204", 204), ("GET /none.php?status=304", 304), ("HEAD /big.php", 200)]
        {
            let pair = format!(
                "{request} HTTP/1.1\r\nHost: a\r\n\r\nGET /style.css HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            );
            let both = String::from_utf8(server.exchange(pair.as_bytes())).unwrap();
            let (first, second) = both.split_once("\r\n\r\n").unwrap();
            assert!(first.starts_with(&format!("HTTP/1.1 {status} ")), "{both}");
            assert!(second.starts_with("HTTP/1.1 200 ") && second.ends_with("\r\n\r\na style"), "{both}");
        }
        super::pause(1_500);
        let (_, log) = server.stop();
        assert!(log.contains("warn.php: ") && log.contains("a complaint"), "{log}");
    }
}

/// Two sites on one server with two processes: the idle connections of one site do not block the other.
#[test]
fn two_sites_share_the_processes_of_one_server() {
    let folder = folder();
    let fpm = Fpm::start(&folder, true, 2, "");
    // Far longer than a visitor waits.
    let settings = "idle-connections 8\n timeouts {\n  idle \"10m\"\n }";
    let config = ["a.example", "b.example"].map(|host| {
        let steps = steps(&folder, &fpm, settings);
        format!("site {host:?} {{\n    listen \"127.0.0.1:0\"\n{steps}\n}}\n")
    });
    let server = Server::run(&folder, &format!("workers 2\nadmin off=#true\n{}", config.concat()));
    let ask = |host: &str, script: &str| {
        let request = format!("GET {script} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        text(&ask(&server, &request))
    };
    for (first, second) in [("a.example", "b.example"), ("b.example", "a.example")] {
        // Both processes work for one site, which keeps its connections to them open.
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| assert_eq!(ask(first, "/sleep.php?us=200000"), "slept"));
            }
        });
        assert_eq!(ask(second, "/hello.php"), "hello");
    }
}

#[test]
fn scripts_see_the_client_reported_by_a_trusted_proxy() {
    let folder = folder();
    let fpm = Fpm::start(&folder, true, 2, "");
    let lines = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n";
    let told = |settings: &str| -> serde_json::Value {
        let server = serve(&folder, &steps(&folder, &fpm, settings));
        let request = format!("GET /show.php HTTP/1.1\r\nHost: a.example\r\n{lines}Connection: close\r\n\r\n");
        let mut told: serde_json::Value = serde_json::from_slice(&ask(&server, &request).body).unwrap();
        told["server"].take()
    };
    let trusting = told("trusted-proxies \"127.0.0.0/8\" \"::1\"");
    for (name, value) in [
        ("REMOTE_ADDR", "192.0.2.1"),
        ("HTTPS", "on"),
        ("SERVER_PORT", "443"),
        ("REQUEST_SCHEME", "https"),
        ("HTTP_X_FORWARDED_FOR", "192.0.2.1"),
    ] {
        assert_eq!(trusting[name], value, "{name}");
    }
    for settings in ["", "trusted-proxies \"192.0.2.0/24\""] {
        let wary = told(settings);
        assert_eq!((&wary["REMOTE_ADDR"], wary.get("HTTPS")), (&"127.0.0.1".into(), None), "{settings}");
        assert_eq!(wary["SERVER_PORT"], "80");
    }
}

#[test]
fn uploads_may_have_no_declared_length() {
    let folder = folder();
    let fpm = Fpm::start(
        &folder,
        true,
        2,
        "php_admin_value[post_max_size] = 20M\nphp_admin_value[upload_max_filesize] = 20M\n",
    );
    let server = serve(&folder, &steps(&folder, &fpm, ""));
    let content: Vec<u8> = (0..10_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    folder.write("upload.bin", &content);
    let file = folder.path().join("upload.bin");
    let expected = super::super::tool::run(super::super::tool::tool("md5sum").arg(&file));
    let expected = format!("10000000 {}", expected.split_whitespace().next().unwrap());
    for field in [None, Some("Transfer-Encoding: chunked")] {
        let mut curl = super::super::tool::tool("curl");
        curl.args(["--silent", "--show-error", "--form"]).arg(format!("f=@{}", file.display()));
        if let Some(field) = field {
            curl.args(["--header", field]);
        }
        assert_eq!(super::super::tool::run(curl.arg(server.url("/upload.php"))), expected, "{field:?}");
    }
}

#[test]
fn a_front_controller_handles_paths_that_are_not_files() {
    let folder = folder();
    let fpm = Fpm::start(&folder, true, 2, "");
    let server = serve(&folder, &steps(&folder, &fpm, "front-controller \"/index.php\""));
    for (path, expected) in [
        ("/", "front / /index.php"),
        ("/blog/post?a=b", "front /blog/post?a=b /index.php"),
        ("/missing.php", "front /missing.php /index.php"),
        ("/style.css/x.php", "front /style.css/x.php /index.php"),
        ("/style.css", "a style"),
        ("/hello.php", "hello"),
    ] {
        assert_eq!(text(&get(&server, path)), expected, "{path}");
    }
}

/// An application in a subfolder computes the address of its start page from these variables, as Symfony, Laravel and
/// WordPress do.
#[test]
fn scripts_below_a_removed_prefix_know_their_address() {
    let folder = folder();
    let fpm = Fpm::start(&folder, true, 2, "");
    let steps = steps(&folder, &fpm, "front-controller \"/index.php\"");
    let route = format!("    route \"/shop\" \"/shop/*\" {{\n rewrite strip-prefix=\"/shop\"\n{steps}\n    }}");
    let server = serve(&folder, &route);
    let told: serde_json::Value = serde_json::from_slice(&get(&server, "/shop/show.php/a%20b?x=1").body).unwrap();
    let root = folder.path().join("www").display().to_string();
    for (name, value) in [
        ("REQUEST_URI", "/shop/show.php/a%20b?x=1"),
        ("SCRIPT_NAME", "/shop/show.php"),
        ("PHP_SELF", "/shop/show.php/a b"),
        ("PATH_INFO", "/a b"),
        ("DOCUMENT_URI", "/shop/show.php/a b"),
        ("SCRIPT_FILENAME", &format!("{root}/show.php")),
        ("DOCUMENT_ROOT", &root),
    ] {
        assert_eq!(told["server"][name], value, "{name}");
    }
    for (path, expected) in [
        ("/shop", "front /shop /shop/index.php"),
        ("/shop/", "front /shop/ /shop/index.php"),
        ("/shop/blog/post", "front /shop/blog/post /shop/index.php"),
        ("/shop/hello.php", "hello"),
    ] {
        assert_eq!(text(&get(&server, path)), expected, "{path}");
    }
    // The links of an index script that is no front controller are relative to its folder.
    let plain = route.replace("front-controller \"/index.php\"", "");
    let server = serve(&folder, &plain);
    let slash = get(&server, "/shop?a=b");
    assert_eq!((slash.status, slash.field("location")), (308, Some("/shop/?a=b")));
    assert_eq!(text(&get(&server, "/shop/")), "front /shop/ /shop/index.php");
    let posted = ask(&server, "POST /shop HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_eq!(posted.status, 200);
}

#[test]
fn fields_with_underscores_reach_scripts_if_allowed() {
    let folder = folder();
    let fpm = Fpm::start(&folder, true, 2, "");
    for (settings, api_key) in [("", None), ("underscores-in-headers #true", Some("4"))] {
        let server = serve(&folder, &steps(&folder, &fpm, settings));
        let request = "GET /show.php HTTP/1.1\r\nHost: a.example\r\napi_key: 4\r\nX_Real_IP: 1\r\nX-Real-IP: 2\r\n\
                       Connection: close\r\n\r\n";
        let told: serde_json::Value = serde_json::from_slice(&ask(&server, request).body).unwrap();
        assert_eq!(told["server"].get("HTTP_API_KEY").and_then(|value| value.as_str()), api_key, "{settings}");
        assert_eq!(told["server"]["HTTP_X_REAL_IP"], "2", "{settings}");
    }
}

#[test]
fn a_slow_upload_occupies_no_child() {
    let folder = folder();
    let fpm = Fpm::start(&folder, true, 1, "");
    let server = serve(&folder, &steps(&folder, &fpm, "connections 1; timeouts { head \"15s\" }"));
    // PHP's post_max_size of 8 MiB applies only to POST.
    for bytes in [300_000, 9_500_000_usize] {
        let mut slow = server.connect();
        let head = format!(
            "PUT /show.php HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n"
        );
        slow.write_all(head.as_bytes()).unwrap();
        // The server asks for the content, so the request has got as far as it can without it.
        let mut interim = [0; 25];
        slow.read_exact(&mut interim).unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        slow.write_all("a".repeat(bytes - 100_000).as_bytes()).unwrap();
        for _ in 0..3 {
            let answer = get(&server, "/hello.php");
            assert_eq!((answer.status, text(&answer).as_str()), (200, "hello"));
        }
        slow.write_all("a".repeat(100_000).as_bytes()).unwrap();
        let mut answer = Vec::new();
        slow.read_to_end(&mut answer).unwrap();
        let told: serde_json::Value = serde_json::from_slice(&Response::parse(&answer).body).unwrap();
        assert_eq!((&told["body"], &told["server"]["CONTENT_LENGTH"]), (&bytes.into(), &bytes.to_string().into()));
    }
}

#[test]
fn more_clients_than_children_all_get_responses() {
    let folder = folder();
    let fpm = Fpm::start(&folder, true, 2, "");
    // Two workers, each with its own connections: idle ones must not starve the visitors of the other worker.
    let server = serve_with(&folder, 2, &steps(&folder, &fpm, ""));
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(text(&get(&server, "/sleep.php?us=2000")), "slept");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(answered.load(Ordering::Relaxed), 320);
}

#[test]
fn a_server_killed_under_load_is_used_again_after_its_restart() {
    for is_unix in [true, false] {
        let folder = folder();
        let mut fpm = Fpm::start(&folder, is_unix, 4, "");
        let server = serve_with(&folder, 2, &steps(&folder, &fpm, ""));
        let is_over = AtomicBool::new(false);
        let (well, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let response = get(&server, "/sleep.php?us=5000");
                        match response.status {
                            200 => {
                                assert_eq!(text(&response), "slept");
                                well.fetch_add(1, Ordering::Relaxed);
                            }
                            502 => {
                                failed.fetch_add(1, Ordering::Relaxed);
                                thread::sleep(Duration::from_millis(5));
                            }
                            other => panic!("{other}: {}", text(&response)),
                        }
                    }
                });
            }
            for _ in 0..3 {
                let before = well.load(Ordering::Relaxed);
                wait_until("clients get responses", || well.load(Ordering::Relaxed) > before + 50);
                let before = failed.load(Ordering::Relaxed);
                fpm.kill();
                wait_until("clients get errors", || failed.load(Ordering::Relaxed) > before + 10);
                // Every client still gets a response in the meantime, and files are served as usual.
                assert_eq!(get(&server, "/style.css").status, 200);
                fpm.run();
            }
            let before = well.load(Ordering::Relaxed);
            wait_until("clients get responses again", || well.load(Ordering::Relaxed) > before + 50);
            is_over.store(true, Ordering::Relaxed);
        });
        let names = outcomes(&folder, 1);
        for name in &names {
            let expected = [
                "php_answered",
                "php_answered_again",
                "php_refused",
                "php_closed_before_head",
                "php_cut_head",
                "php_no_socket",
                "php_connect_failed",
            ];
            assert!(expected.contains(&name.as_str()) || !name.starts_with("php_"), "{name}");
        }
        assert!(names.iter().any(|name| name == "php_refused"));
        // Stable again: no more requests fail.
        for _ in 0..50 {
            assert_eq!(text(&get(&server, "/hello.php")), "hello");
        }
    }
}
