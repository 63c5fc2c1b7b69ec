//! `flatout suite`: experiments described in files, with the real binary, real servers and real networks.

mod clients;
mod faults;
mod files;
mod five;
mod resume;
mod run;
mod testbed;

use super::harness::{Folder, flatout};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Our own server in a suite, with one page from the fixture `site`.
const FLATOUT: &str = r#"
    fixture "site" { text "index.html" "<!doctype html><title>A page</title><p>{fill}" bytes=317; bytes "big.bin" 100000 }
    server "flatout" {
        program "flatout"
        start "serve" "{site}" "--listen" "{address}:{port}" "--workers" 1
        ready "/"
    }
"#;

/// A step with few requests.
const STEP: &str = r#"step "hits" { servers "flatout"; path "/"; bench "-c" 2 "-n" 200 }"#;

/// A suite made of these parts, in its own folder with room for the result.
struct Given {
    folder: Folder,
}

/// The result of a run.
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Given {
    fn of(parts: &[&str]) -> Self {
        let given = Self { folder: Folder::new() };
        given.write(parts);
        given
    }

    fn write(&self, parts: &[&str]) {
        let text = format!("suite \"test\" {{\n    repetitions 2; seconds 0.2\n{}\n}}\n", parts.join("\n"));
        self.folder.write("a.kdl", text.as_bytes());
    }

    fn out(&self) -> std::path::PathBuf {
        self.folder.path().join("out")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = flatout();
        command.args(["suite", "run"]).arg(self.folder.path().join("a.kdl")).arg("--out").arg(self.out());
        command.args(arguments).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&self.command(arguments).output().unwrap())
    }

    /// Starts the suite without waiting for it.
    fn start(&self) -> Child {
        self.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn report(&self) -> Value {
        let text = std::fs::read_to_string(self.out().join("suite.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The result of a bench, by its path in the bundle.
    fn result(&self, path: &str) -> Value {
        let text = std::fs::read_to_string(self.out().join(path)).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The paths of all results so far.
    fn results(&self) -> Vec<String> {
        let mut found = Vec::new();
        for step in std::fs::read_dir(self.out().join("steps")).into_iter().flatten().flatten() {
            for entry in std::fs::read_dir(step.path()).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap();
                let is_result = Path::new(&name).extension().is_some_and(|ending| ending == "json");
                if is_result && !name.ends_with(".cost.json") {
                    found.push(name);
                }
            }
        }
        found.sort();
        found
    }
}

impl Ran {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The process that runs the suite: the child of the keeper, which is the process that was started.
fn worker_of(keeper: u32) -> u32 {
    let children = format!("/proc/{keeper}/task/{keeper}/children");
    let mut found = None;
    super::harness::wait_until("the keeper's child", || {
        let text = std::fs::read_to_string(&children).unwrap_or_default();
        found = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

/// Sends a signal to one process.
fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Kills a suite's keeper and the suite itself, as a power cut would: neither notices the end of the other.
fn kill_both(child: &mut Child) {
    let worker = worker_of(child.id());
    signal(worker, "STOP");
    child.kill().unwrap();
    child.wait().unwrap();
    signal(worker, "KILL");
    super::harness::wait_until("the worker's end", || {
        let stat = std::fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
}

/// Processes whose command line contains this text. A folder's path finds only those that were started for it.
fn processes_of(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if pid != std::process::id() && String::from_utf8_lossy(&line).contains(text) {
            found.push(pid);
        }
    }
    found
}

/// Asserts that no process started for this folder is still running.
fn assert_nothing_runs(given: &Given) {
    // With the slash, because the name of another test's folder may start with this name.
    let left = processes_of(&format!("{}/", given.folder.path().display()));
    assert!(left.is_empty(), "still running: {left:?}");
}
