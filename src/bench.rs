//! `flatout bench`: flags to a plan, a report to text and files, and the exit code.

mod flags;
mod plan;
mod sense;
mod show;

pub(crate) use flags::BenchArgs;
pub(crate) use plan::parse_duration;

use crate::agent::{self, AgentsPlan};
use flatout_lab::bench::{BenchError, BenchReport, Progress, question, run as run_bench};
use flatout_lab::view::style::Style;
use flatout_lab::view::{command, human, json, output, text};
use flatout_load::judge::Threshold;
use flatout_load::report::RunReport;
use plan::{Question, Run};
use show::Outputs;
use std::net::SocketAddr;
use std::path::Path;
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
    if args.agents.share.is_some()
        && let Err(text) = agent::end_with_agent()
    {
        return complain(&text, FAILED);
    }
    let outputs = Outputs::of(&args.output);
    let agents = args.agents.agents.zip(args.agents.listen).zip(args.agents.trust.clone());
    let planned = plan::plan(args).and_then(|run| outputs.check().map(|()| run));
    let run = match planned {
        Ok(run) => run,
        Err(text) => return complain(&text, USAGE),
    };
    if let Some(((agents, listen), trust)) = agents {
        return run_by_agents(&run.thresholds, &outputs, agents, listen, &trust);
    }
    let report = {
        let mut progress = outputs.progress(&run.ask.url.to_string());
        answer(run, progress.watcher())
    };
    match report {
        Ok(report) => finish(&report, &outputs),
        Err(error) if error.is_usage() => complain(&error.to_string(), USAGE),
        Err(error) => complain(&error.to_string(), FAILED),
    }
}

fn answer(run: Run, progress: &mut dyn Progress) -> Result<BenchReport, BenchError> {
    let Run { ask, books, question, thresholds } = run;
    let mut report = match question {
        Question::Levels => run_bench(ask, books, progress),
        Question::Knee(requirement, plan) => question::find_knee(ask, books, &requirement, plan, progress),
        Question::Overload(plan) => question::overload(ask, books, &plan, progress),
        Question::Versus(other) => question::versus(ask, *other, progress),
    }?;
    let words: Vec<String> = std::env::args().collect();
    report.run.command = command::kept(&words);
    for step in &report.run.steps {
        let outcomes = thresholds.iter().map(|threshold| threshold.judge(&step.record, step.elapsed_ns, step.step));
        report.run.thresholds.extend(outcomes);
    }
    Ok(report)
}

/// Has agents make the load, and tells of it as of any other.
fn run_by_agents(require: &[Threshold], outputs: &Outputs, agents: u32, listen: SocketAddr, trust: &Path) -> ExitCode {
    // The program's and the verb's name are left out.
    let words: Vec<String> = std::env::args().skip(2).collect();
    let plan = AgentsPlan { words: &words, agents, listen, trust, require };
    let report = match agent::bench(&plan) {
        Ok(report) => report,
        Err(text) => return complain(&text, FAILED),
    };
    let text = text::print(&report, Style::of(&std::io::stdout()));
    let json = report.encode().unwrap_or_default();
    let passed = report.steps.iter().all(|step| step.failing.is_empty());
    let code = code_of(&report, passed, false, false);
    conclude(outputs.write(&report, &text, &json), code, wrong_with(&report, false))
}

fn finish(report: &BenchReport, outputs: &Outputs) -> ExitCode {
    let text = human::print_bench(report, Style::of(&std::io::stdout()));
    let json = format!("{:#}", json::bench_value(report));
    let code = code_of(&report.run, report.passed(), report.asked.overload, report.interrupted);
    conclude(outputs.write(&report.run, &text, &json), code, wrong_with(&report.run, report.interrupted))
}

/// What is said of an invalid run last, in one sentence.
fn wrong_with(run: &RunReport, interrupted: bool) -> &'static str {
    use flatout_load::judge::InvalidReason;
    let of_a_part = |reason| matches!(reason, InvalidReason::PartMissing | InvalidReason::CountsMissing);
    let mut reasons = run.steps.iter().flat_map(|step| &step.invalid).map(|invalid| invalid.reason);
    if interrupted {
        "the run was ended before its time; its figures cover the part that ran"
    } else if reasons.all(of_a_part) {
        "a part of what was asked for could not be measured; the figures are those of the rest"
    } else {
        "the run is invalid: its figures must not be believed"
    }
}

/// What could be written stays written, and what could not is told last.
fn conclude(written: Result<(), String>, code: u8, wrong: &str) -> ExitCode {
    if let Err(text) = written {
        return complain(&text, FAILED);
    }
    if code == INVALID {
        return complain(wrong, code);
    }
    ExitCode::from(code)
}

fn code_of(run: &RunReport, passed: bool, overload: bool, interrupted: bool) -> u8 {
    let requires_errors = run.thresholds.iter().any(|outcome| outcome.text.trim_start().starts_with("errors"));
    // Who says how many errors are too many is not told of every one; and past the knee they are what was looked for.
    if !passed && !requires_errors && !overload {
        FAILED
    } else if interrupted || !run.is_valid() {
        INVALID
    } else if run.meets_thresholds() {
        0
    } else {
        MISSED
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("bench", text);
    ExitCode::from(code)
}
