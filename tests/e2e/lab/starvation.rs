//! Who is short of processor time: the client, and then its figures are worth nothing, or the server, and then they are.
//!
//! A cgroup with a quota of 5 % of a core holds back one of the two. Where this user may make no cgroup, nothing can be
//! shown and the tests say so.

use super::bench_by;
use crate::e2e::harness::{Folder, Server, flatout};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A group whose processes get 5 ms of every 100 ms of a core.
struct Starved(PathBuf);

impl Starved {
    fn new(name: &str) -> Option<Self> {
        let name = format!("flatout-{name}-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu");
        let (folder, quota) = if first.is_dir() {
            (first.join(name), [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "5000")])
        } else {
            (Path::new("/sys/fs/cgroup").join(name), [("cpu.max", "5000 100000"), ("cgroup.type", "domain")])
        };
        let made = fs::create_dir(&folder).is_ok();
        let starved = made.then(|| Self(folder.clone()));
        let is_set = made
            && quota
                .iter()
                .take(if first.is_dir() { 2 } else { 1 })
                .all(|(file, value)| fs::write(folder.join(file), value).is_ok());
        if !is_set {
            eprintln!("not shown: this user may not make a cgroup with a quota");
            return None;
        }
        starved
    }

    fn take(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// A command whose program runs in the group from its beginning.
    fn command(&self, program: &std::ffi::OsStr) -> Command {
        let mut command = Command::new("sh");
        let procs = self.0.join("cgroup.procs");
        command.arg("-c").arg("echo $$ > \"$0\" && exec \"$@\"").arg(procs).arg(program);
        command.env("RUST_BACKTRACE", "0");
        command
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        // Its processes have ended, or are about to.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

fn site() -> Folder {
    Folder::with(&[("a.txt", &[b'a'; 1024])])
}

#[test]
fn a_starved_client_calls_its_run_invalid() {
    let Some(starved) = Starved::new("client") else { return };
    let site = site();
    let server = Server::start(site.path(), &[]);
    for load in [&["-c", "16"][..], &["--rate", "20000"]] {
        let command = starved.command(flatout().get_program());
        let run = bench_by(command, &[&[&server.url("/a.txt"), "-d", "3s", "--threads", "1"][..], load].concat());
        assert_eq!(run.exit, Some(5), "{load:?} {} {}", run.stdout, run.stderr);
        assert!(run.invalid().contains(&"client-saturated"), "{load:?} {:?}", run.invalid());
        assert!(run.stdout.contains("INVALID: client-saturated"), "{}", run.stdout);
    }
}

#[test]
fn a_starved_server_leaves_the_run_valid() {
    let Some(starved) = Starved::new("server") else { return };
    let site = site();
    let server = Server::start(site.path(), &[]);
    starved.take(server.pid());
    // Other work on the machine can starve the client as well; then it is asked again.
    let mut run = None;
    for _ in 0..10 {
        let last = bench_by(flatout(), &[&server.url("/a.txt"), "-d", "2s", "--threads", "1", "-c", "16"]);
        let is_valid = last.exit == Some(0);
        run = Some(last);
        if is_valid {
            break;
        }
    }
    let run = run.unwrap();
    assert_eq!((run.exit, run.invalid()), (Some(0), Vec::new()), "{} {}", run.stdout, run.stderr);
    assert!(run.number("responses") > 0);
    drop(server);
}
