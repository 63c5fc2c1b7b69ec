//! `flatout compare`: whether B differs from A.

use clap::Args;
use flatout_lab::view::bundle;
use flatout_lab::view::compare::compare;
use flatout_lab::view::output::{self, Output};
use std::path::PathBuf;
use std::process::ExitCode;

/// A result could not be read or written.
const FAILED: u8 = 1;

/// Bad usage.
const USAGE: u8 = 2;

/// No figure holds in both results, or they are too short, so nothing could be compared.
const INVALID: u8 = 5;

/// Say whether B differs from A, by how much, and how far that can be believed
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  flatout compare a.json b.json                    two runs, judged by stretches of themselves
  flatout compare a1.json b1.json a2.json b2.json a3.json b3.json a4.json b4.json a5.json b5.json
                                                   five pairs, judged by the runs

A result is what `flatout bench --json` writes, or a bundle's folder. `flatout bench --vs` measures both in turn, which is \
better than comparing what was measured at different times. The exit code is 0 when a comparison was made, 1 when a result \
could not be read or written, 2 when the command line makes no sense, and 5 when nothing could be compared: no figure holds in both results, or they are too short. A figure that does not \
hold in one of them is not compared.")]
pub(crate) struct CompareArgs {
    /// A and B, and more pairs of them: A B A B ...
    #[arg(required = true, num_args = 2.., value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// Seed of the bootstrap
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the comparison as JSON to FILE as well, or to standard output alone with -
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &CompareArgs) -> ExitCode {
    if !args.results.len().is_multiple_of(2) {
        return complain("give pairs of results: A B, and more of them", USAGE);
    }
    let mut pairs = Vec::new();
    for pair in args.results.chunks_exact(2) {
        match (bundle::read(&pair[0]), bundle::read(&pair[1])) {
            (Ok(a), Ok(b)) => pairs.push((a, b)),
            (Err(error), _) | (_, Err(error)) => return complain(&error.to_string(), FAILED),
        }
    }
    let compared = compare(&pairs, args.seed);
    let (a, b) = (args.results[0].display().to_string(), args.results[1].display().to_string());
    let output = args.json.as_deref().map(Output::parse);
    let mut written = Ok(());
    if let Some(output) = &output {
        written = output.write(&format!("{:#}", compared.value((&a, &b))));
    }
    if output != Some(Output::Stdout) {
        written = written.and(output::show(&compared.print((&a, &b))));
    }
    match written {
        Err(error) => complain(&format!("the comparison could not be written: {error}"), FAILED),
        Ok(()) if compared.is_worthless() => ExitCode::from(INVALID),
        Ok(()) => ExitCode::SUCCESS,
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("compare", text);
    ExitCode::from(code)
}
