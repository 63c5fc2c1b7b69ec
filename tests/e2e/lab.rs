//! The load lab against servers of a known nature: whether it tells the truth, and says when it cannot.

mod agents;
mod connections;
mod counts;
mod live;
mod overdue;
mod refusals;
mod report;
mod responder;
mod secure;
mod starvation;
mod truth;

use super::harness::{Folder, flatout};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// How a bench ended, and what it said.
#[derive(Debug)]
struct Bench {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    json: Value,
}

impl Bench {
    /// The last level.
    fn step(&self) -> &Value {
        self.json["steps"].as_array().and_then(|steps| steps.last()).unwrap_or_else(|| panic!("no level in {self:#?}"))
    }

    /// Names of the reasons why it is invalid.
    fn invalid(&self) -> Vec<&str> {
        let reasons = self.step()["invalid"].as_array().unwrap();
        reasons.iter().map(|invalid| invalid["reason"].as_str().unwrap()).collect()
    }

    fn failures(&self, kind: &str) -> u64 {
        self.json["errors"]["by_kind"][kind].as_u64().unwrap_or_else(|| panic!("no kind {kind}"))
    }

    fn number(&self, name: &str) -> u64 {
        self.json["counts"][name].as_u64().unwrap_or_else(|| panic!("no count {name}"))
    }
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
    Bench {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        json: serde_json::from_str(&text).unwrap_or_default(),
    }
}
