//! The limits of the accelerator's own cgroup, and the limits that it enforces for origins.

use super::super::cgroup::Cgroup;
use super::super::harness::{Folder, Server, ask_admin, flatout, wait_until};
use super::origin::{Origin, Then, fresh, response};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn the_memory_budget_follows_the_cgroup_limit() {
    let Some(group) = Cgroup::with_memory("memory", 256 << 20) else { return };
    let origin = Origin::responding(|_| fresh(b"stored"));
    let accelerate = |arguments: &[&str]| {
        let mut command = group.command(flatout().get_program());
        command.args(["accelerate", &origin.url(), "--listen", "127.0.0.1:0", "--workers", "1", "--admin", "off"]);
        command.args(arguments);
        command
    };
    let server = Server::spawn(accelerate(&[]));
    assert_eq!(server.get("/").body, b"stored");
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    let note = "note: the cache may use 64MiB of memory, a quarter of the cgroup's limit of 256MiB";
    assert_eq!(said.matches(note).count(), 1, "{said}");

    // A budget within the cgroup's limit is accepted without a warning.
    let server = Server::spawn(accelerate(&["--memory", "256MiB"]));
    assert_eq!(server.get("/").body, b"stored");
    let (status, said) = server.stop();
    assert!(status.success() && !said.contains("cgroup"), "{said}");

    let output = accelerate(&["--memory", "257MiB"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let error = "the cache may use 257MiB of memory, but the limit of its cgroup is 256MiB";
    assert!(said.contains(error) && said.contains("--memory 64MiB"), "{said}");
}

/// The numbers in `, 3 of 4 requests in progress, 2 waiting for a response head (no limit), 9 queued`.
fn load_of(status: &str) -> Option<[u64; 4]> {
    let line = status.lines().find(|line| line.contains(" requests in progress, "))?;
    let (before, after) = line.split_once(" requests in progress, ")?;
    let words = before.rsplit(' ').take(3).collect::<Vec<_>>();
    let number = |word: &str| word.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().ok();
    let mut rest = after.split(|letter: char| !letter.is_ascii_digit()).filter(|word| !word.is_empty());
    Some([number(words[2])?, number(words[0])?, number(rest.next()?)?, number(rest.next()?)?])
}

#[test]
fn status_never_reports_more_active_requests_than_the_limit() {
    const LIMIT: u64 = 4;
    const CLIENTS: usize = 40;
    let origin = Origin::start(|request, stream| {
        // Slow enough to use up all permits. The exact delay does not matter.
        thread::sleep(Duration::from_millis(2));
        let _ = stream.write_all(&response("200 OK", "Cache-Control: no-store\r\n", request.target.as_bytes()));
        Then::Keep
    });
    let folder = Folder::new();
    let text = format!(
        "workers 2
admin \"{}/admin\"
site \"*\" {{
    listen \"127.0.0.1:0\"
    cache
    proxy \"{}\" {{
        concurrency min={LIMIT} max={LIMIT}
    }}
}}
",
        folder.path().display(),
        origin.url()
    );
    let server = Server::run(&folder, &text);
    let is_over = AtomicBool::new(false);
    let mut seen = Vec::new();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let path = format!("/{client}");
                    assert_eq!(server.get(&path).body, path.as_bytes());
                }
            });
        }
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Samples the status during the load until enough samples show all permits in use and requests queued.
            wait_until("all permits are in use", || {
                let status = ask_admin(&folder, "/status");
                let load = load_of(&status).unwrap_or_else(|| panic!("no load in {status}"));
                seen.push(load);
                let [under_way, max, asking, _] = load;
                assert!(max == LIMIT && under_way <= LIMIT, "{load:?}");
                assert!(asking <= under_way, "{load:?}");
                seen.iter().filter(|[under_way, .., queued]| *under_way == LIMIT && *queued > 0).count() >= 50
            });
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = watched {
            std::panic::resume_unwind(panic);
        }
    });
    // All permits are returned.
    wait_until("no request is in progress", || {
        load_of(&ask_admin(&folder, "/status"))
            .is_some_and(|[under_way, _, asking, queued]| under_way + asking + queued == 0)
    });
}

/// While an origin is limited, status, metrics, log and `explain` say how many requests it has, how many wait, and for
/// which path they are.
#[test]
fn a_limited_origin_is_described_everywhere() {
    const CLIENTS: usize = 24;
    // A listener whose backlog is full drops new connections, like an origin that is overloaded.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let _waiting: Vec<_> = (0..3).map(connect).collect();
    let folder = Folder::new();
    let text = format!(
        "workers 2
admin \"{}/admin\"
site \"*\" {{
    listen \"127.0.0.1:0\"
    proxy \"http://{address}\" {{
        concurrency min=6 max=8
        timeouts {{ connect \"300ms\"; }}
        passive off=#true
        retries 0
    }}
}}
",
        folder.path().display()
    );
    let server = Server::run(&folder, &text);
    let explain = || {
        let mut command = flatout();
        command.current_dir(folder.path()).env("HOME", folder.path()).args(["explain", "http://test/work"]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(matches!(server.get("/work").status, 503 | 504));
                }
            });
        }
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let is_described = |text: &str| {
                let is_full = load_of(text).is_some_and(|[under_way, max, _, queued]| under_way == max && queued > 0);
                is_full && text.contains(" (limit 6), ") && text.contains("; most of them for /work (")
            };
            wait_until("the status describes it", || is_described(&ask_admin(&folder, "/status")));
            wait_until("explain describes it", || is_described(&explain()));
            wait_until("the metrics describe it", || {
                let metrics = ask_admin(&folder, "/metrics");
                let has = |name: &str, label: &str, is_right: fn(u64) -> bool| {
                    let line = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
                    let value = metrics.lines().find(line).and_then(|line| line.rsplit(' ').next()?.parse().ok());
                    value.is_some_and(is_right)
                };
                has("flatout_origin_limit", "state=\"waiting_for_head\"", |value| value == 6)
                    && has("flatout_origin_requests", "state=\"in_progress\"", |value| value == 8)
                    && has("flatout_origin_requests", "state=\"queued\"", |value| value > 0)
                    && has("flatout_origin_requests_by_path", "path=\"/work\"", |value| value > 0)
                    && has("flatout_origin_requests_by_path", "path=\"other\"", |value| value == 0)
            });
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = watched {
            std::panic::resume_unwind(panic);
        }
    });
    let (_, said) = server.stop();
    let line = said.lines().find(|line| line.contains(": [origin_limit_began] ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(&format!("origin http://{address} gets a limited number of requests at once")), "{line}");
    assert!(line.contains(" of 8 requests in progress, ") && line.contains(" (limit 6), "), "{line}");
    assert!(line.contains("; most of them for /work ("), "{line}");
}
