//! `flatout bench`: flags to a plan, a report to text and files, and the exit code.

mod flags;
mod plan;
mod show;

pub(crate) use flags::BenchArgs;
pub(crate) use plan::parse_duration;

use flatout_lab::bench::{BenchError, BenchReport, question, run as run_bench};
use flatout_lab::view::live::LiveLine;
use plan::{Question, Run};
use show::Outputs;
use std::process::ExitCode;

/// A run that failed: what was asked for could not be had from the server.
const FAILED: u8 = 1;

/// Bad usage: what was asked for makes no sense, or cannot be done.
const USAGE: u8 = 2;

/// A requirement was missed.
const MISSED: u8 = 4;

/// The figures must not be believed, or cover only a part of what was asked for.
const INVALID: u8 = 5;

/// Runs the verb.
pub(crate) fn run(args: BenchArgs) -> ExitCode {
    let outputs = Outputs::of(&args.output);
    let planned = plan::plan(args).and_then(|run| outputs.check().map(|()| run));
    let run = match planned {
        Ok(run) => run,
        Err(text) => return complain(&text, USAGE),
    };
    let mut live = LiveLine::new();
    let report = answer(run, &mut live);
    live.clear();
    match report {
        Ok(report) => finish(report, &outputs),
        Err(error) if error.is_usage() => complain(&error.to_string(), USAGE),
        Err(error) => complain(&error.to_string(), FAILED),
    }
}

fn answer(run: Run, live: &mut LiveLine) -> Result<BenchReport, BenchError> {
    let Run { ask, books, question, thresholds } = run;
    let mut report = match question {
        Question::Levels => run_bench(ask, books, live),
        Question::Knee(requirement, plan) => question::find_knee(ask, books, &requirement, plan, live),
        Question::Overload(plan) => question::overload(ask, books, &plan, live),
        Question::Versus(other) => question::versus(ask, *other, live),
    }?;
    report.run.command = std::env::args().collect();
    for step in &report.run.steps {
        let outcomes = thresholds.iter().map(|threshold| threshold.judge(&step.record, step.elapsed_ns, step.step));
        report.run.thresholds.extend(outcomes);
    }
    Ok(report)
}

fn finish(report: BenchReport, outputs: &Outputs) -> ExitCode {
    // What could be written stays written, and what could not is told last.
    let written = outputs.write(&report);
    let code = code_of(&report);
    if let Err(text) = written {
        return complain(&text, FAILED);
    }
    if code == INVALID {
        let said = if report.interrupted {
            "the run was ended before its time; its figures cover the part that ran"
        } else {
            "the run is invalid: its figures must not be believed"
        };
        return complain(said, code);
    }
    ExitCode::from(code)
}

fn code_of(report: &BenchReport) -> u8 {
    let requires_errors = report.run.thresholds.iter().any(|outcome| outcome.text.trim_start().starts_with("errors"));
    // Who says how many errors are too many is not told of every one; and past the knee they are what was looked for.
    let is_forgiven = requires_errors || report.asked.overload;
    if !report.passed() && !is_forgiven {
        FAILED
    } else if report.interrupted || !report.is_valid() {
        INVALID
    } else if report.run.meets_thresholds() {
        0
    } else {
        MISSED
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    eprintln!("flatout bench: {text}");
    ExitCode::from(code)
}
