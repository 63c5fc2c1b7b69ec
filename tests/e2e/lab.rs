//! The load lab against servers of a known nature: whether it tells the truth, and says when it cannot.

mod agents;
mod beside;
mod connections;
mod costs;
mod counts;
mod live;
mod overdue;
mod questions;
mod refusals;
mod replay;
mod report;
mod responder;
pub(crate) mod schema;
mod secure;
mod soundness;
mod starvation;
mod stragglers;
mod terminal;
mod truth;

use super::harness::{Folder, flatout};
use super::tool::tool;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a bench ended, and what it said.
#[derive(Debug)]
struct Bench {
    /// The exit code; 0 as well where the figures were only called invalid for what a busy machine does to a client.
    code: Option<i32>,
    /// The exit code itself.
    exit: Option<i32>,
    stdout: String,
    stderr: String,
    json: Value,
}

impl Bench {
    /// The last level.
    fn step(&self) -> &Value {
        self.json["steps"].as_array().and_then(|steps| steps.last()).unwrap_or_else(|| panic!("no level in {self:#?}"))
    }

    /// Every level.
    fn steps(&self) -> impl Iterator<Item = &Value> {
        self.json["steps"].as_array().into_iter().flatten()
    }

    /// Names of the reasons why it is invalid.
    fn invalid(&self) -> Vec<&str> {
        reasons_of(self.step())
    }

    fn failures(&self, kind: &str) -> u64 {
        self.json["errors"]["by_kind"][kind].as_u64().unwrap_or_else(|| panic!("no kind {kind}"))
    }

    fn number(&self, name: &str) -> u64 {
        self.json["counts"][name].as_u64().unwrap_or_else(|| panic!("no count {name}"))
    }
}

/// Held by a test whose tasks run before all usual ones: several of them together would wait for each other.
fn before_others_alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// flatout as a task that runs before all usual ones, where the user may ask for that.
fn before_others() -> Command {
    // Not by a real-time policy: the kernel stops who never sleeps under one for 50 ms of every second.
    let mut command = tool("nice");
    command.args(["-n", "-20"]).arg(flatout().get_program());
    command
}

/// Runs `flatout bench` with these arguments, its result in a file.
fn bench(arguments: &[&str]) -> Bench {
    bench_by(flatout(), arguments)
}

/// The same by a command that ends with flatout's own name.
fn bench_by(mut command: Command, arguments: &[&str]) -> Bench {
    let folder = Folder::new();
    let file = folder.path().join("result.json");
    let output = command.arg("bench").args(arguments).arg("--json").arg(&file).output().unwrap();
    let text = fs::read_to_string(&file).unwrap_or_default();
    let exit = output.status.code();
    let mut bench = Bench {
        code: exit,
        exit,
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        json: serde_json::from_str(&text).unwrap_or_default(),
    };
    if exit == Some(5) && bench.steps().all(|step| reasons_of(step).iter().all(|reason| BUSY.contains(reason))) {
        bench.code = Some(0);
    }
    bench
}

/// What other work on the machine may bring about.
const BUSY: [&str; 4] = ["client-saturated", "schedule-lag", "cpu-contention", "rate-not-reached"];

fn reasons_of(step: &Value) -> Vec<&str> {
    step["invalid"].as_array().unwrap().iter().map(|invalid| invalid["reason"].as_str().unwrap()).collect()
}
