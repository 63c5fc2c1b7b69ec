//! `flatout compare`: reports whether B differs from A.

use clap::Args;
use flatout_report::bundle;
use flatout_report::compare::compare;
use flatout_report::output::{self, Output};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code if a result could not be read or written.
const FAILED: u8 = 1;

/// Exit code for invalid usage.
const USAGE: u8 = 2;

/// Exit code if nothing could be compared, because no figure is valid in both results or the results are too short.
const INVALID: u8 = 5;

/// Compare two results: report whether B differs from A, by how much, and how certain the difference is
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  flatout compare a.json b.json                    two runs, each split into segments
  flatout compare a1.json b1.json a2.json b2.json a3.json b3.json a4.json b4.json a5.json b5.json
                                                   five pairs of runs, compared run by run

`flatout bench --compare` interleaves both measurements, which is more reliable than comparing runs from different \
times. Only figures that are valid in both results are compared.

Exit codes:
  0  the results were compared
  1  a result could not be read or written
  2  the command line is invalid
  5  nothing could be compared: no figure is valid in both results, or the runs are too short")]
pub(crate) struct CompareArgs {
    /// Pairs of results: A B, or A B A B …; files from `flatout bench --json`, or folders from `--bundle`
    #[arg(required = true, num_args = 2.., value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// Random seed for the bootstrap
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the comparison to FILE as JSON; `-` prints only the JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

/// Runs the command.
pub(crate) fn run(args: &CompareArgs) -> ExitCode {
    if !args.results.len().is_multiple_of(2) {
        return complain("give one or more pairs of results: A B", USAGE);
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
        Err(error) => complain(&format!("cannot write the comparison: {error}"), FAILED),
        Ok(()) if compared.is_worthless() => ExitCode::from(INVALID),
        Ok(()) => ExitCode::SUCCESS,
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("compare", text);
    ExitCode::from(code)
}
