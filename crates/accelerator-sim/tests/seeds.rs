//! The invariants hold for the cases that have failed once, and for the first seeds. `FLATOUT_SEEDS=1000000` tries more.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Minimised scenarios that have failed once.
#[test]
fn the_invariants_hold_for_every_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!cases.is_empty());
    let output = Command::new(env!("CARGO_BIN_EXE_flatout-accelerator-sim")).args(cases).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_invariants_hold_for_every_seed() {
    let seeds = std::env::var("FLATOUT_SEEDS").unwrap_or_else(|_| "4000".to_owned());
    let output = Command::new(env!("CARGO_BIN_EXE_flatout-accelerator-sim")).args(["1", &seeds]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stderr));
}
