//! The repository's own checks and measurements, run as `cargo xtask NAME`.
//!
//! Nothing here ships in the product, and nothing here is needed to build it. A check lives in a file of its
//! own and has a unit test that shows it failing on a bad sample: a check that cannot fail is a defect.

mod cache_tests;
mod ci;
mod docs_commands;
mod failure;
mod lab_figures;
mod markdown;
mod mutations;
mod sbom;
mod shell;
mod store_restart;
mod tidy;

use failure::Outcome;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask NAME [OPTIONS]

  tidy            the rules of the house: direction, dead files, unsafe, links, words,
                  licences, sizes
  ci              the checks for every change, in order; a failure does not stop the others
                  (`ci --list` names the steps, `ci STEP...` runs some of them)
  check           what changed since the last commit (`check COMMIT`: since that one): format, clippy,
                  tidy, and the unit and end-to-end tests of what it can break
  reasons         write the tables of docs/reasons.md and the codes of docs/config.md from the code
  fuzz-smoke      each fuzz target for a moment, without nightly
  docs-commands   the ```console blocks of README.md and docs/, run for real
  lab-figures     how late the lab begins what is due, and how flat its memory is
  store-restart   how soon a million kept answers are served again after kill -9
  sbom            the crates in the release binary, as CycloneDX: target/release/flatout.cdx.json
  mutations       mistakes in the product that the simulation must catch; writes docs/contributing.md
                  (`mutations NAME...` tries some of them and writes nothing)
  cache-tests     http-cache-tests against the release binary and its peers; writes docs/conformance.md";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Outcome<()> {
    let (name, rest) = match args.split_first() {
        Some((name, rest)) => (name.as_str(), rest),
        None => ("help", args),
    };
    match name {
        "tidy" => tidy::run(),
        "ci" => ci::run(rest),
        "check" => ci::check(rest),
        "reasons" => ci::write_reasons(),
        "fuzz-smoke" => ci::fuzz_smoke(),
        "docs-commands" => docs_commands::run(rest),
        "lab-figures" => lab_figures::run(rest),
        "store-restart" => store_restart::run(rest),
        "sbom" => sbom::run(rest),
        "mutations" => mutations::run(rest),
        "cache-tests" => cache_tests::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(format!("no task is called `{other}`\n{USAGE}").into()),
    }
}
