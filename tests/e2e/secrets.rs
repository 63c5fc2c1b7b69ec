//! Secrets in configurations and from clients: no log, page, metric, status, operator command or core dump shows them.

use super::harness::{Folder, flatout, read_to_end, wait_until, worker_of};
use super::site::{Site, TWO_PROCESSES, config, configure};
use super::tool::said;
use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::thread;

/// Part of every secret in these tests.
const CANARY: &str = "canary7f3a";

fn assert_clean(what: &str, text: &str) {
    assert!(!text.contains(CANARY), "{what} shows a secret:\n{text}");
}

/// An origin that responds to every request, and the heads that it received.
fn origin() -> (u16, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, heads) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(String::new())));
    let seen = Arc::clone(&heads);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 8192];
            let count = std::io::Read::read(&mut stream, &mut buffer).unwrap_or(0);
            seen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, heads)
}

/// A site with a secret in every setting that can contain one, and the port of its origin.
fn site(port: u16) -> Site {
    let folder = Folder::with(&[("www/index.html", b"here")]);
    folder.write("origin-token", format!("Bearer {CANARY} \"quoted\"\n").as_bytes());
    folder.write("link-key", format!("{CANARY}-link").as_bytes());
    folder.write("data/secret", format!("{CANARY}-signs-the-sessions-of-this-site").as_bytes());
    fs::set_permissions(folder.path().join("data/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    folder.write("pages/index.lhtml", b"<?lua session.user = 'ann' ?>in");
    // The minimum cost, because only the hash's text matters.
    let hash = format!("$2b$04${CANARY}MRZMRZoMZRyeIjZAgcfl7p92ldGxad68LJZdL17lhWy");
    folder.write("ann.hash", hash.as_bytes());
    let path = folder.path().display();
    let inside = format!(
        "    listen \"127.0.0.1:0\"
    log \"{path}/access.log\" format=\"json\"
    route \"/origin/*\" {{
        proxy \"http://127.0.0.1:{port}\" {{
            request-header {{ set \"Authorization\" (file)\"origin-token\" }}
        }}
    }}
    route \"/linked\" {{
        match {{ header \"X-Link\" (file)\"link-key\" }}
        respond 200 \"linked\"
    }}
    route \"/staff/*\" {{
        basic-auth {{ user \"ann\" (file)\"ann.hash\" }}
        respond 200 \"staff\"
    }}
    route \"/pages/*\" {{
        rewrite strip-prefix=\"/pages\"
        pages \"{path}/pages\" {{ secret \"{path}/data/secret\" }}
    }}
    route \"/metrics\" {{ metrics }}
    files \"{path}/www\""
    );
    configure(&folder, &format!("workers 1\n{TWO_PROCESSES}"), &inside);
    Site::run(folder)
}

fn exchange(site: &Site, target: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(site.address()).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{fields}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    String::from_utf8_lossy(&read_to_end(&mut stream)).into_owned()
}

#[test]
fn no_output_shows_a_secret() {
    let (port, heads) = origin();
    let mut site = site(port);
    let credentials = format!("Authorization: Basic {CANARY}\r\nCookie: id={CANARY}\r\nX-Token: {CANARY}\r\n");
    for target in ["/", "/none", "/staff/x", "/origin/x", "/pages/", "/linked", "/a%zz"] {
        assert_clean(target, &exchange(&site, target, &credentials));
    }
    // The secret is in use: the origin received it.
    assert!(heads.lock().unwrap().contains(&format!("Bearer {CANARY} \"quoted\"")));
    assert_clean("metrics", &exchange(&site, "/metrics", ""));
    for order in [&["status"][..], &["status", "--json"], &["reload"]] {
        assert_clean(&format!("{order:?}"), &said(&site.order(order)));
    }
    let file = config(&site.folder);
    for verb in [&["explain"][..], &["explain", "--json"], &["config", "show"]] {
        for path in ["/", "/staff/x", "/origin/x", "/pages/", "/linked"] {
            let output = flatout().args(verb).arg(format!("http://test{path}")).arg("-c").arg(&file).output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
            assert_clean(&format!("{verb:?} {path}"), &said(&output));
        }
    }
    for verb in [&["validate", "-c"][..], &["fmt"], &["adapt", "-c"]] {
        let output = flatout().args(verb).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        assert_clean(verb[0], &said(&output));
    }
    site.stop();
    let log = site.folder.path().join("access.log");
    wait_until("the log", || fs::read_to_string(&log).is_ok_and(|text| text.contains("/linked")));
    assert_clean("the log", &fs::read_to_string(&log).unwrap());
    assert_clean("standard error", &site.running.stderr());
    assert_clean("standard output", &site.running.stdout());
}

/// core(5): with an empty filter, the kernel writes no memory mappings.
#[test]
fn memory_is_excluded_from_core_dumps() {
    let (port, _) = origin();
    let site = site(port);
    exchange(&site, "/origin/x", "");
    for pid in [site.running.pid(), worker_of(site.running.pid())] {
        let filter = fs::read_to_string(format!("/proc/{pid}/coredump_filter")).unwrap();
        assert_eq!(filter.trim(), "00000000");
    }
    // The test process is not protected like this.
    assert_ne!(fs::read_to_string("/proc/self/coredump_filter").unwrap().trim(), "00000000");
}

/// Every thread of the worker process has the seccomp filter and no capabilities, and can gain none. The supervisor has
/// no filter, because it starts processes.
#[test]
fn every_thread_of_the_worker_process_is_sandboxed() {
    let (port, _) = origin();
    let site = site(port);
    exchange(&site, "/", "");
    let (supervisor, worker) = (site.running.pid(), worker_of(site.running.pid()));
    assert_ne!(supervisor, worker);
    let value =
        |status: &str, key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned();
    let mut workers = 0;
    for task in fs::read_dir(format!("/proc/{worker}/task")).unwrap().flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap();
        let (name, status) = (read("comm"), read("status"));
        for (key, expected) in [
            ("NoNewPrivs:", "1"),
            ("Seccomp:", "2"),
            ("CapEff:", "0000000000000000"),
            ("CapPrm:", "0000000000000000"),
            ("CapInh:", "0000000000000000"),
            ("CapAmb:", "0000000000000000"),
        ] {
            assert_eq!(value(&status, key), expected, "{key} {name}");
        }
        workers += usize::from(name.starts_with("worker-"));
    }
    assert_eq!(workers, 1);
    let status = fs::read_to_string(format!("/proc/{supervisor}/status")).unwrap();
    assert_eq!((value(&status, "NoNewPrivs:").as_str(), value(&status, "Seccomp:").as_str()), ("1", "0"));
}
