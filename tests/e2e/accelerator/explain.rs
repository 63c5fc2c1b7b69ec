//! `flatout explain` with a running accelerator: its output matches what the next request gets.

use super::super::cli;
use super::super::harness::{Folder, Response, Server, flatout, uninterrupted, wait_until};
use super::super::process::free_port;
use super::super::site::{self, Site};
use super::origin::{Origin, Then, response};
use super::{accelerate, ask, configuration, get, log_of};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::Output;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Instant;

fn origin() -> Origin {
    Origin::responding(|request| {
        let fields = match request.path() {
            "/private" => "Cache-Control: private\r\n",
            "/cookie" => "Cache-Control: max-age=60\r\nSet-Cookie: sid=1\r\n",
            "/short" => "Cache-Control: max-age=1\r\nETag: \"a\"\r\n",
            "/vary" => "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n",
            _ => "Cache-Control: max-age=600\r\n",
        };
        response("200 OK", fields, b"hello")
    })
}

/// An accelerator, with a folder that is the home and the current directory of `explain` commands.
struct Subject {
    origin: Origin,
    server: Server,
    admin: PathBuf,
    folder: Folder,
}

impl Subject {
    fn start() -> Self {
        let (origin, folder) = (origin(), Folder::new());
        let admin = folder.path().join("admin");
        let server = accelerate(&origin, &["--workers", "2", "--admin", admin.to_str().unwrap()]);
        Self { origin, server, admin, folder }
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = flatout();
        command.current_dir(self.folder.path()).env("HOME", self.folder.path()).env_remove("XDG_CONFIG_HOME");
        command.arg("explain").args(arguments).arg("--admin").arg(&self.admin).output().unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The state of the store in the JSON output.
    fn cache(&self, arguments: &[&str]) -> Value {
        let output = self.output(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&told["status"], &told["outcome"]), (&Value::Null, &Value::Null), "{told}");
        told["proxy"]["cache"].clone()
    }

    fn lookup(&self, arguments: &[&str]) -> String {
        self.cache(arguments)["lookup"]["name"].as_str().unwrap().to_owned()
    }
}

fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn hits_and_misses_are_explained_with_their_age_and_lifetime() {
    let subject = Subject::start();
    let url = "http://test/page?b=c";
    let text = subject.text(&[url]);
    let origin = subject.origin.url();
    assert_parts(
        &text,
        &[&origin, "key       http://test/page?b=c", "[miss_cold]", "stored    nothing", "fix       Repeat"],
    );
    assert!(subject.origin.requests().is_empty(), "the origin gets no request");
    get(&subject.server, "/page?b=c");
    wait_until("the response is stored", || subject.lookup(&[url]) == "hit_fresh");
    let text = subject.text(&[url]);
    assert_parts(
        &text,
        &[
            "[hit_fresh] The stored response is fresh.",
            "The stored response is served, with Age: ",
            "memory: 200, 5 bytes",
            "lifetime     600 s, from max-age in Cache-Control",
            "fresh        for another ",
        ],
    );
    assert_eq!(subject.lookup(&[url, "-H", "Cache-Control: no-cache"]), "request_no_cache");
    assert_eq!(subject.lookup(&[url, "-X", "POST"]), "unsafe_method");
    assert_eq!(subject.lookup(&["http://other/page?b=c"]), "miss_cold");
    // Explaining a request changes nothing.
    assert_eq!(subject.origin.requests().len(), 1);
}

#[test]
fn an_uncacheable_response_is_explained_with_advice() {
    let subject = Subject::start();
    let begun = Instant::now();
    get(&subject.server, "/private");
    get(&subject.server, "/cookie");
    let text = subject.text(&["http://test/private"]);
    let ago =
        text.split_once("200, ").and_then(|(_, rest)| rest.split_once(" s ago")).map(|(ago, _)| ago.parse::<u64>());
    assert!(ago.is_some_and(|ago| ago.is_ok_and(|ago| ago <= begun.elapsed().as_secs() + 1)), "{text}");
    assert_parts(&text, &["[hit_for_miss]", "NO: [private] The response is private:", "marker    [private]"]);
    assert_parts(&text, &["fix       Send public, or remove private."]);
    let cookie = subject.cache(&["http://test/cookie"]);
    assert_eq!(cookie["not_kept"]["reason"]["name"], "set_cookie");
    assert!(subject.text(&["http://test/cookie"]).contains("set-cookie \"strip\""));
    // The status counts it.
    let ask_admin = |verb: &str| {
        let output = flatout().args([verb, "--admin"]).arg(&subject.admin).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let status = ask_admin("status");
    assert_parts(&status, &["not stored: private", "not stored: set_cookie"]);
}

#[test]
fn a_variant_miss_names_the_field_that_differs() {
    let subject = Subject::start();
    ask(&subject.server, "GET", "/vary", "Accept-Language: de\r\n");
    let german = ["http://test/vary", "-H", "Accept-Language: de"];
    wait_until("the response is stored", || subject.lookup(&german) == "hit_fresh");
    let text = subject.text(&["http://test/vary", "-H", "Accept-Language: fr"]);
    assert_parts(&text, &["[miss_vary]", "for another request: accept-language is `fr", "Vary: accept-language"]);
    let none = subject.cache(&["http://test/vary"]);
    let difference = &none["variants"][0]["differences"][0];
    assert_eq!((&difference["name"], &difference["asked"]), (&Value::from("accept-language"), &Value::Null));
}

#[test]
fn stale_and_purged_responses_are_distinguished() {
    let subject = Subject::start();
    get(&subject.server, "/short");
    wait_until("the response is stale", || subject.lookup(&["http://test/short"]) == "stale_expired");
    assert_parts(
        &subject.text(&["http://test/short"]),
        &["stale        since", "stored response is validated with an origin", "ETag \"a\""],
    );
    get(&subject.server, "/long");
    wait_until("the response is stored", || subject.lookup(&["http://test/long"]) == "hit_fresh");
    let purge = |arguments: &[&str]| {
        let mut command = flatout();
        let output = command.arg("purge").args(arguments).arg("--admin").arg(&subject.admin).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    purge(&["http://test/long", "--soft"]);
    let soft = subject.cache(&["http://test/long"]);
    assert_eq!((&soft["variants"][0]["purged"], &soft["lookup"]["name"]), (&"soft".into(), &"stale_expired".into()));
    purge(&["http://test/long"]);
    assert!(matches!(subject.lookup(&["http://test/long"]).as_str(), "miss_cold" | "miss_purged"));
}

/// Without a cache, too, an operator reads at the first failure that an origin fails, and why.
#[test]
fn an_origin_that_refuses_connections_is_reported_at_once() {
    let (folder, port) = (site::prepare("", ""), free_port());
    let proxy = format!("listen \"127.0.0.1:0\"\nproxy \"http://127.0.0.1:{port}\" {{\nretries 0\n}}");
    site::configure(&folder, "workers 1", &proxy);
    let site = Site::run(folder);
    let stderr = || site.running.stderr();
    let explain = || {
        let config = site::config(&site.folder);
        let output = flatout().args(["explain", "http://test/", "-c"]).arg(config).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let healthy = format!("state     http://127.0.0.1:{port}: healthy, 0 of ");
    assert_parts(&explain(), &[&healthy, "NO: No cache applies"]);
    let failed = cli::get(site.address(), "/");
    assert_eq!(failed.status, 502);
    assert_parts(&String::from_utf8_lossy(&failed.body), &["<p>Bad gateway: the origin cannot be reached.</p>"]);
    let refused = format!("origin http://127.0.0.1:{port} fails: [origin_refused] The origin's host refused");
    wait_until("the first failure is reported", || stderr().contains(&refused));
    let state = format!("http://127.0.0.1:{port}: in rotation, failing since ");
    assert_parts(&explain(), &[&state, "[origin_refused]"]);
    let status = String::from_utf8(site.order(&["status"]).stdout).unwrap();
    assert_parts(&status, &["in rotation, failing since ", "[origin_refused]"]);
    assert_eq!(cli::get(site.address(), "/").status, 502);
    let www = site.folder.path().join("www");
    let _origin = Server::start(&www, &["--listen", &format!("127.0.0.1:{port}")]);
    assert_eq!(cli::get(site.address(), "/").status, 200);
    wait_until("the end is reported", || {
        stderr().contains(&format!("origin http://127.0.0.1:{port} answers again, after "))
    });
    assert_parts(&explain(), &[&healthy]);
    assert_eq!(stderr().matches("origin http://").count(), 2, "{}", stderr());
}

/// A response that has no room when its head arrives, and one of which this turns out later.
#[test]
fn a_response_without_room_is_not_reported_as_stored() {
    const FIELDS: &str = "Cache-Control: max-age=60\r\n";
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let origin = Origin::start(move |request, stream| {
        if request.path() == "/open" {
            let head = format!("HTTP/1.1 200 OK\r\n{FIELDS}Transfer-Encoding: chunked\r\n\r\n");
            let chunk = |bytes: usize| [format!("{bytes:x}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat();
            let _ = stream.write_all(&[head.as_bytes(), &chunk(1_500_000)].concat());
            let _ = released.lock().unwrap().recv();
            let _ = stream.write_all(&[&chunk(1_000_000)[..], b"0\r\n\r\n"].concat());
        } else {
            let bytes = if request.path() == "/first" { 1_000 } else { 3_000_000 };
            let _ = stream.write_all(&response("200 OK", FIELDS, &vec![b'x'; bytes]));
        }
        Then::Keep
    });
    let folder = Folder::new();
    let admin = format!("admin {:?}\nstore memory=\"8MiB\"", folder.path().join("admin"));
    let config = configuration(&folder, &origin.url(), "", "").replace("admin off=#true", &admin);
    let server = Server::run(&folder, &config);
    let status_of = |path: &str| server.get(path).field("cache-status").unwrap().to_owned();
    let first = status_of("/first");
    assert!(first.contains("; stored"), "{first}");
    // Half of the memory is for content in transit. This response takes so much of it that the second does not fit.
    let mut stream = server.connect();
    stream.write_all(b"GET /open HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let (mut received, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    while received.len() < 1_500_000 {
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        assert!(count > 0, "cut after {} bytes", received.len());
        received.extend_from_slice(&buffer[..count]);
    }
    let second = status_of("/second");
    assert!(!second.contains("stored") && second.ends_with("detail=no_room"), "{second}");
    let mut command = flatout();
    command.current_dir(folder.path()).env("HOME", folder.path()).args(["explain", "http://test/second"]);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_parts(&text, &["stored    NO: [no_room]", "fix       Raise the store's limits."]);
    release.send(()).unwrap();
    uninterrupted(|| stream.read_to_end(&mut received)).unwrap();
    assert!(received.ends_with(b"0\r\n\r\n") && received.len() > 2_500_000, "{} bytes", received.len());
    let read_log = || fs::read_to_string(log_of(&folder)).unwrap_or_default();
    wait_until("the log has three lines", || read_log().lines().count() == 3);
    for (path, cache) in [("/first", "storing"), ("/second", "no_room"), ("/open", "no_room")] {
        let (log, cache) = (read_log(), format!("\"cache\":\"{cache}\""));
        let line = log.lines().find(|line| line.contains(path)).unwrap();
        assert!(line.contains(&cache), "{line}");
    }
}

/// As with a load balancer that ends TLS in front of the accelerator.
#[test]
fn an_https_url_behind_a_trusted_proxy_is_explained_as_its_visitors_get_it() {
    let (origin, folder) = (origin(), Folder::new());
    let admin = format!("admin {:?}\ntrusted-proxies \"127.0.0.1\"", folder.path().join("admin"));
    let config = configuration(&folder, &origin.url(), "", "").replace("admin off=#true", &admin);
    let server = Server::run(&folder, &config);
    let request = "GET /x HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n\r\n";
    let status = || Response::parse(&server.exchange(request.as_bytes())).field("cache-status").unwrap().to_owned();
    wait_until("visitors get the stored response", || status().contains("; hit"));
    let mut command = flatout();
    command.current_dir(folder.path()).env("HOME", folder.path()).args(["explain", "https://test/x"]);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_parts(&text, &["GET https://test/x\n", "a trusted proxy is assumed to terminate TLS", "[hit_fresh]"]);
}

#[test]
fn without_a_running_process_only_the_routing_is_explained() {
    let (origin, folder) = (origin(), Folder::new());
    let admin = folder.path().join("admin");
    let config = configuration(&folder, &origin.url(), "", "").replace("admin off=#true", &format!("admin {admin:?}"));
    folder.write("flatout.kdl", config.as_bytes());
    let explain = |arguments: &[&str]| {
        let mut command = flatout();
        command.current_dir(folder.path()).env("HOME", folder.path()).arg("explain").args(arguments).output().unwrap()
    };
    let output = explain(&["http://test/a"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert_parts(&text, &["forwards to http://", &origin.url(), "stored    unknown: no flatout is running"]);
    folder.write("flatout.kdl", config.replace(&format!("admin {admin:?}"), "admin off=#true").as_bytes());
    let output = explain(&["http://test/a"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("disables the admin socket"));
    // With a server running, the configuration names its admin socket.
    let server = Server::run(&folder, &config);
    get(&server, "/a");
    wait_until("the response is stored", || {
        String::from_utf8(explain(&["http://test/a"]).stdout).unwrap().contains("[hit_fresh]")
    });
    assert!(String::from_utf8(explain(&["http://test/a"]).stdout).unwrap().contains("flatout.kdl:"));
}
