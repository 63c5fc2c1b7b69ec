//! The load lab against servers with known behaviour: whether it reports the truth, and reports when it cannot.

mod agents;
mod beside;
mod bodies;
mod closed;
mod connections;
mod cookies;
mod costs;
mod counts;
mod failing;
mod fill;
mod http3;
mod live;
mod overdue;
mod questions;
mod ramp;
mod refusals;
mod replay;
mod report;
mod responder;
mod routes;
pub(crate) mod schema;
mod secure;
mod soundness;
mod starvation;
mod stopped;
mod stragglers;
mod streams;
mod terminal;
mod truth;
mod unix;
mod uploads;

use super::harness::{Folder, flatout};
use super::tool::tool;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The exit code and the output of a bench.
#[derive(Debug)]
struct Bench {
    /// The exit code, or 0 if the figures were invalid only for reasons that a busy machine causes.
    code: Option<i32>,
    /// The actual exit code.
    exit: Option<i32>,
    stdout: String,
    stderr: String,
    json: Value,
}

impl Bench {
    /// The last load level.
    fn step(&self) -> &Value {
        self.json["steps"].as_array().and_then(|steps| steps.last()).unwrap_or_else(|| panic!("no level in {self:#?}"))
    }

    /// Every load level.
    fn steps(&self) -> impl Iterator<Item = &Value> {
        self.json["steps"].as_array().into_iter().flatten()
    }

    /// The reasons why the last level is invalid.
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

/// Held by a test whose processes run at high priority: several such tests at once would delay each other.
fn lock_high_priority() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// flatout at a higher priority than all usual processes, if the user may set that.
fn high_priority_flatout() -> Command {
    // Not with a real-time policy: the kernel throttles such a task for 50 ms of every second if it never sleeps.
    let mut command = tool("nice");
    command.args(["-n", "-20"]).arg(flatout().get_program());
    command
}

/// Runs `flatout bench` with these arguments, and reads its result from a file.
fn bench(arguments: &[&str]) -> Bench {
    bench_by(flatout(), arguments)
}

/// Like [`bench`], with a command that ends with the path of flatout.
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

/// Reasons that other work on the machine, or on the host of a virtual machine, may cause.
const BUSY: [&str; 6] = [
    "client-saturated",
    "schedule-lag",
    "cpu-contention",
    "cpu-contention-unknown",
    "client-stopped",
    "rate-not-reached",
];

fn reasons_of(step: &Value) -> Vec<&str> {
    step["invalid"].as_array().unwrap().iter().map(|invalid| invalid["reason"].as_str().unwrap()).collect()
}

/// The soundness of a figure over all levels.
fn soundness<'a>(json: &'a Value, figure: &str) -> &'a str {
    let figures = json["figures"].as_array().unwrap();
    figures.iter().find(|verdict| verdict["figure"] == figure).unwrap()["soundness"].as_str().unwrap()
}
