//! An overload can be seen: on standard error, in the status, and in the metrics.

use super::cli::get;
use super::harness::{Folder, Server, wait_until};
use super::process::free_port;
use super::site::{Site, TWO_PROCESSES, configure, files, prepare};
use super::tool::{run, tool};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

fn metrics(site: &Site) -> String {
    let mut curl = tool("curl");
    curl.args(["--silent", "--unix-socket"]).arg(site.folder.path().join("admin"));
    run(curl.arg("http://flatout/metrics"))
}

#[test]
fn the_listen_backlog_is_shown() {
    let folder = prepare("", "");
    configure(&folder, &format!("workers 2\n{TWO_PROCESSES}\nsockets {{ backlog 8; }}"), &files(folder.path()));
    let site = Site::run(folder);
    assert_eq!(get(site.address(), "/").status, 200);
    let name = format!("accept: {}", site.address());
    let queues = site.status("queues");
    assert_eq!(queues[0], serde_json::json!({"name": name, "waiting": 0, "waiting_max": 16}));
    let status = String::from_utf8(site.order(&["status"]).stdout).unwrap();
    for part in ["\noverload     none\n", &format!("\nqueues       {name} 0 waiting, at most 16\n")] {
        assert!(status.contains(part), "{part}: {status}");
    }
    let limit = format!("flatout_queue_limit{{queue=\"{name}\"}} 16");
    assert!(metrics(&site).lines().any(|line| line == limit), "{limit}");
}

/// However short the backlog is, and however briefly it is full.
#[test]
fn a_full_listen_backlog_is_reported() {
    let folder = prepare("", "");
    let global = "workers 1\nworker-process #false\nsockets { backlog 4; }";
    configure(&folder, global, &files(folder.path()));
    let mut site = Site::run(folder);
    site.running.signal("STOP");
    // The queue has room for five. TCP_DEFER_ACCEPT: only clients that send something are queued.
    let clients: Vec<_> = (0..12)
        .filter_map(|_| {
            let mut client = TcpStream::connect_timeout(&site.address(), Duration::from_millis(50)).ok()?;
            client.write_all(b"G").ok().map(|()| client)
        })
        .collect();
    site.running.signal("CONT");
    wait_until("the overload is reported", || site.running.stderr().contains("overload began: "));
    assert!(site.running.stderr().contains(" × accept_queue_full"), "{}", site.running.stderr());
    let refused = site.status("overload")["refused"][0].clone();
    assert!(refused["name"] == "accept_queue_full" && refused["count"].as_u64() > Some(0), "{refused}");
    drop(clients);
    site.stop();
}

/// More sign-ins than the thread can verify: those beyond the queue get 503, and are counted.
#[test]
fn a_full_password_queue_is_reported() {
    // No password is right. Each verification takes far longer than a request.
    let hash = format!("$argon2id$v=19$m=65536,t=3,p=1$c2FsdHNhbHRzYWx0${}", "A".repeat(43));
    let folder = prepare("", "");
    let inside = format!("basic-auth realm=\"r\" {{ user \"ann\" \"{hash}\"; }}\n{}", files(folder.path()));
    configure(&folder, "workers 1", &inside);
    let mut site = Site::run(folder);
    let clients: Vec<_> = (0..300)
        .map(|number| {
            let mut stream = TcpStream::connect(site.address()).unwrap();
            // The name and a password, in base64.
            let credentials = format!("YW5uOndyb25n{number:04}");
            let request = format!("GET / HTTP/1.1\r\nHost: test\r\nAuthorization: Basic {credentials}\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    wait_until("the overload is reported", || site.running.stderr().contains("overload began: "));
    assert!(site.running.stderr().contains(" × auth_busy"), "{}", site.running.stderr());
    wait_until("the status has it", || site.status("overload")["refused"][0]["name"] == "auth_busy");
    let queues = site.status("queues");
    let passwords = queues.as_array().unwrap().iter().find(|queue| queue["name"] == "passwords").unwrap();
    assert!(passwords["waiting"].as_u64().unwrap() <= passwords["waiting_max"].as_u64().unwrap(), "{passwords}");
    drop(clients);
    site.stop();
}

/// An origin that stays out of rotation after each trial is reported once.
#[test]
fn an_origin_out_of_rotation_is_reported_once() {
    let (folder, port) = (prepare("", ""), free_port());
    let good = Server::start(&folder.path().join("www"), &[]);
    let proxy = format!(
        "listen \"127.0.0.1:0\"\nproxy \"http://127.0.0.1:{port}\" \"http://{}\" {{ balance \"round-robin\"; \
         passive failures=1 pause=\"1ms\"; }}",
        good.address_of(0)
    );
    configure(&folder, "workers 1", &proxy);
    let site = Site::run(folder);
    let trials = || {
        let metrics = metrics(&site);
        let failed = "flatout_origin_failures_total{reason=\"origin_refused\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(failed)?.parse::<u32>().ok()).unwrap_or(0)
    };
    wait_until("several trials failed", || {
        assert_eq!(get(site.address(), "/").status, 200);
        trials() > 3
    });
    let line = format!("origin http://127.0.0.1:{port} is out of rotation: [origin_paused]");
    wait_until("the origin is reported", || site.running.stderr().contains(&line));
    assert_eq!(site.running.stderr().matches(" rotation").count(), 1, "{}", site.running.stderr());
}

/// The next line about an origin says that a reload has ended its pause.
#[test]
fn a_reload_that_ends_a_pause_is_reported() {
    let (folder, port) = (prepare("", ""), free_port());
    let good = Server::start(&folder.path().join("www"), &[]);
    let configure = |folder: &Folder, pause: &str| {
        let proxy = format!(
            "listen \"127.0.0.1:0\"\nproxy \"http://127.0.0.1:{port}\" \"http://{}\" {{ balance \"round-robin\"; \
             passive failures=1 pause=\"{pause}\"; }}",
            good.address_of(0)
        );
        configure(folder, "workers 1", &proxy);
    };
    configure(&folder, "1h");
    let site = Site::run(folder);
    let line = format!("origin http://127.0.0.1:{port} is out of rotation: [origin_paused]");
    wait_until("the origin is reported", || {
        assert_eq!(get(site.address(), "/").status, 200);
        site.running.stderr().contains(&line)
    });
    configure(&site.folder, "2h");
    let reloaded = site.order(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    let line = format!("origin http://127.0.0.1:{port} is back in rotation: [origin_renewed]");
    wait_until("the end of the pause is reported", || site.running.stderr().contains(&line));
}

/// What began also ends. The line about an origin that no route uses any more comes with the reload.
#[test]
fn a_removed_origin_is_reported() {
    let (folder, port) = (prepare("", ""), free_port());
    let good = Server::start(&folder.path().join("www"), &[]);
    let configure = |folder: &Folder, another: &str| {
        let proxy = format!(
            "listen \"127.0.0.1:0\"\nproxy \"http://{}\" {another} {{ balance \"round-robin\"; \
             passive failures=1 pause=\"1h\"; }}",
            good.address_of(0)
        );
        configure(folder, "workers 1", &proxy);
    };
    configure(&folder, &format!("\"http://127.0.0.1:{port}\""));
    let site = Site::run(folder);
    let line = format!("origin http://127.0.0.1:{port} is out of rotation: [origin_paused]");
    wait_until("the origin is reported", || {
        assert_eq!(get(site.address(), "/").status, 200);
        site.running.stderr().contains(&line)
    });
    configure(&site.folder, "");
    let reloaded = site.order(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    let line = format!("origin http://127.0.0.1:{port} gets no more requests: [origin_removed]");
    wait_until("the removal is reported", || site.running.stderr().contains(&line));
}
