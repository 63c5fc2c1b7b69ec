//! Pages with a database: many concurrent writers and readers, two processes on one file, migrations at startup.

use super::{configure, page, start, text};
use crate::e2e::harness::{Folder, Server, TIMEOUT, flatout, read_response};
use crate::e2e::skip::skip;
use crate::e2e::tool::tool;
use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: usize = 50;
const READERS: usize = 500;

const SITE: &[(&str, &str)] = &[
    (
        "migrations/001_start.sql",
        "CREATE TABLE entry (id INTEGER PRIMARY KEY, writer INTEGER NOT NULL, number INTEGER NOT NULL,
             is_counted INTEGER NOT NULL, UNIQUE (writer, number)) STRICT;
         CREATE TABLE total (entries INTEGER NOT NULL) STRICT;
         INSERT INTO total VALUES (0);",
    ),
    // A single statement.
    (
        "site/write.lhtml",
        "<?lua local made = db.exec(\"INSERT INTO entry (writer, number, is_counted) VALUES (?, ?, 0)\",
             tonumber(request.query.writer), tonumber(request.query.number)) ?><?= made.changes ?>",
    ),
    // Two statements in one transaction.
    (
        "site/count.lhtml",
        "<?lua db.transaction(function()
             db.exec(\"INSERT INTO entry (writer, number, is_counted) VALUES (?, ?, 1)\",
                 tonumber(request.query.writer), tonumber(request.query.number))
             db.exec(\"UPDATE total SET entries = entries + 1\")
         end) ?>1",
    ),
    // The difference of the two in one snapshot: always 0.
    (
        "site/read.lhtml",
        "<?= db.value(\"SELECT (SELECT sum(is_counted) FROM entry) - (SELECT entries FROM total)\") or 0 ?>",
    ),
    ("site/all.lhtml", "<?= db.value(\"SELECT count(*) FROM entry\") ?>"),
    ("data/.keep", ""),
];

const SETTINGS: &str = "database \"data/site.db\" migrations=\"migrations\"";

fn folder() -> Folder {
    let files: Vec<(&str, &[u8])> = SITE.iter().map(|(name, content)| (*name, content.as_bytes())).collect();
    Folder::with(&files)
}

/// Requests `path` on a connection that stays open, and returns the page's content. A page that a slow machine refuses,
/// because too many wait, is requested again. It has not begun, so a write that it contains cannot fail as a duplicate.
fn ask(stream: &mut std::net::TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < TIMEOUT, "{path} is refused all the time");
        stream.write_all(request.as_bytes()).unwrap();
        let response = read_response(stream);
        let said = text(&response);
        assert!(!said.contains("locked"), "{path}: {said}");
        if response.status == 503 && said.contains("too busy for this page") {
            continue;
        }
        assert_eq!(response.status, 200, "{path}: {said}");
        return said;
    }
}

/// Tells the readers to stop, even if a writer has failed.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The median and the 99th percentile, in microseconds.
fn percentiles(mut times_us: Vec<u128>) -> (u128, u128) {
    times_us.sort_unstable();
    (times_us[times_us.len() / 2], times_us[times_us.len() * 99 / 100])
}

/// 50 clients write and 500 read at once: no response fails or mentions a lock, every reader sees complete
/// transactions, and everything that was confirmed is there. `FLATOUT_CROWD_SECONDS` runs the test for that long and
/// prints statistics.
#[test]
fn concurrent_readers_and_writers_lose_nothing() {
    let seconds: Option<u64> = std::env::var("FLATOUT_CROWD_SECONDS").ok().map(|text| text.parse().unwrap());
    let folder = folder();
    let server = start(&folder, SETTINGS, "");
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let goes_on = |done: usize| match seconds {
        Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
        None => done < 10,
    };
    let (mut written, mut write_us, mut read_us) = (0, Vec::new(), Vec::new());
    thread::scope(|scope| {
        let spawn = |work: Box<dyn FnOnce() -> Vec<u128> + Send>| {
            thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, work).unwrap()
        };
        let (server, is_over, reads, goes_on) = (&server, &is_over, &reads, &goes_on);
        let end = End(is_over);
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                spawn(Box::new(move || {
                    let (mut stream, mut times) = (server.connect(), Vec::new());
                    loop {
                        let asked = Instant::now();
                        assert_eq!(ask(&mut stream, "/read"), "0");
                        times.push(asked.elapsed().as_micros());
                        reads.fetch_add(1, Ordering::Relaxed);
                        if is_over.load(Ordering::Relaxed) {
                            return times;
                        }
                    }
                }))
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                spawn(Box::new(move || {
                    let (mut stream, mut times) = (server.connect(), Vec::new());
                    while goes_on(times.len()) {
                        let page = if times.len() % 2 == 0 { "write" } else { "count" };
                        let path = format!("/{page}?writer={writer}&number={}", times.len());
                        let asked = Instant::now();
                        assert_eq!(ask(&mut stream, &path), "1", "{path}");
                        times.push(asked.elapsed().as_micros());
                    }
                    times
                }))
            })
            .collect();
        for writer in writers {
            let times = writer.join().unwrap();
            written += times.len();
            write_us.extend(times);
        }
        drop(end);
        for reader in readers {
            read_us.extend(reader.join().unwrap());
        }
    });
    let took = began.elapsed().as_secs_f64();
    assert_eq!(page(&server, "/all"), written.to_string());
    assert_eq!(page(&server, "/read"), "0");
    if seconds.is_some() {
        let reads = reads.load(Ordering::Relaxed);
        let ((write, write_p99), (read, read_p99)) = (percentiles(write_us), percentiles(read_us));
        eprintln!(
            "{took:.1} s: {written} writes, all there ({:.0}/s, median {write} us, p99 {write_p99} us); {reads} reads \
             ({:.0}/s, median {read} us, p99 {read_p99} us); no answer failed",
            written as f64 / took,
            reads as f64 / took,
        );
    }
}

/// As in an upgrade: the old and the new process have the file open, and each only waits for the other's locks.
#[test]
fn two_processes_share_a_database_file() {
    const WRITES: usize = 60;
    let folder = folder();
    let old = start(&folder, SETTINGS, "");
    // A separate configuration, so that neither process takes over the other's admin socket.
    let settings = configure(SETTINGS, "").replace("admin.sock", "other.sock");
    let other = folder.path().join("other.kdl");
    fs::write(&other, settings).unwrap();
    let mut command = flatout();
    command.args(["run", "-c"]).arg(&other).env("XDG_STATE_HOME", folder.path().join("state"));
    let new = Server::spawn(command);
    thread::scope(|scope| {
        for (writer, server) in [(0, &old), (1, &new), (2, &old), (3, &new)] {
            scope.spawn(move || {
                let mut stream = server.connect();
                for number in 0..WRITES {
                    let page = if number % 2 == 0 { "write" } else { "count" };
                    ask(&mut stream, &format!("/{page}?writer={writer}&number={number}"));
                    assert_eq!(ask(&mut stream, "/read"), "0");
                }
            });
        }
    });
    for server in [&old, &new] {
        assert_eq!(page(server, "/all"), (4 * WRITES).to_string());
    }
    let (status, _) = old.stop();
    assert!(status.success());
    assert_eq!(page(&new, "/all"), (4 * WRITES).to_string());
}

#[test]
fn the_server_starts_only_after_all_migrations_are_applied() {
    let folder = folder();
    let server = start(&folder, SETTINGS, "");
    assert_eq!(page(&server, "/all"), "0");
    let (status, _) = server.stop();
    assert!(status.success());
    for (name, content, expected) in [
        ("001_start.sql", "CREATE TABLE entry (id)", "001_start.sql"),
        ("002_wrong.sql", "CREATE TABLE more (id); SELEKT", "002_wrong.sql"),
        ("wrong.sql", "", "wrong.sql"),
    ] {
        let path = folder.path().join("migrations").join(name);
        let before = fs::read(&path).ok();
        fs::write(&path, content).unwrap();
        fs::write(folder.path().join("flatout.kdl"), configure(SETTINGS, "")).unwrap();
        let mut command = flatout();
        command.args(["run", "-c"]).arg(folder.path().join("flatout.kdl"));
        let began = Instant::now();
        let output = command.output().unwrap();
        assert!(began.elapsed() < TIMEOUT);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{name}: {said}");
        match before {
            Some(before) => fs::write(&path, before).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    assert_eq!(page(&start(&folder, SETTINGS, ""), "/all"), "0");
}

#[test]
fn a_reload_applies_new_migrations_and_reports_the_result() {
    let folder = folder();
    let server = start(&folder, SETTINGS, "");
    let reload = || {
        let socket = folder.path().join("admin.sock");
        let output = flatout().arg("reload").arg("--admin").arg(socket).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let (is_done, said) = reload();
    assert!(is_done && !said.contains("migrations"), "{said}");
    let write = |name: &str, text: &str| fs::write(folder.path().join("migrations").join(name), text).unwrap();
    write("002_more.sql", "INSERT INTO entry (writer, number, is_counted) VALUES (1, 1, 0);");
    write("003_again.sql", "INSERT INTO entry (writer, number, is_counted) VALUES (1, 2, 0);");
    let (is_done, said) = reload();
    assert!(is_done && said.contains("site.db: 002_more.sql, 003_again.sql"), "{said}");
    assert_eq!(page(&server, "/all"), "2");
    write("004_wrong.sql", "SELEKT");
    let (is_done, said) = reload();
    assert!(!is_done && said.contains("004_wrong.sql") && said.contains("db_migration_failed"), "{said}");
    assert_eq!(page(&server, "/all"), "2");
    // A backup that is put in place of the file, while it is open, has no effect.
    fs::remove_file(folder.path().join("migrations/004_wrong.sql")).unwrap();
    let path = folder.path().join("data/site.db");
    fs::copy(&path, path.with_extension("copy")).unwrap();
    fs::rename(path.with_extension("copy"), &path).unwrap();
    let (is_done, said) = reload();
    assert!(is_done && said.contains("site.db has been replaced while it is open"), "{said}");
}

#[test]
fn validate_reports_a_migration_without_a_number() {
    let folder = folder();
    fs::write(folder.path().join("migrations/more.sql"), "SELECT 1").unwrap();
    let config = folder.path().join("flatout.kdl");
    fs::write(&config, configure(SETTINGS, "")).unwrap();
    let output = flatout().current_dir(folder.path()).args(["validate", "-c"]).arg(&config).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() && said.contains("more.sql"), "{said}");
}

#[test]
fn a_full_disk_is_507_with_its_own_outcome() {
    let folder = folder();
    let data = folder.path().join("data");
    let mounted = tool("mount").args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"]).arg(&data).output().unwrap();
    if !mounted.status.success() {
        skip("no file system may be mounted here");
        return;
    }
    let log = folder.path().join("access.log");
    let server = start(&folder, SETTINGS, &format!("log \"{}\"", log.display()));
    assert_eq!(page(&server, "/write?writer=1&number=1"), "1");
    let _ = fs::write(data.join("filler"), vec![0; 1 << 20]);
    // The write-ahead log has room left only in its last page.
    let full = (2..2_000)
        .map(|number| server.get(&format!("/write?writer=1&number={number}")).status)
        .find(|&status| status != 200);
    assert_eq!(full, Some(507));
    fs::remove_file(data.join("filler")).unwrap();
    assert_eq!(page(&server, "/write?writer=2&number=1"), "1");
    let (_, stderr) = server.stop();
    let _ = tool("umount").arg("-l").arg(&data).output();
    let lines = fs::read_to_string(&log).unwrap();
    assert!(lines.contains("page_database_disk_full"), "{stderr}\n{lines}");
}
