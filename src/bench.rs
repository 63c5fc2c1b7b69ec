//! `flatout bench`: turns flags into a plan, writes the report as text and files, and chooses the exit code.

mod flags;
mod plan;
mod sense;
mod show;

pub(crate) use flags::BenchArgs;
pub(crate) use plan::parse_duration;

use crate::agent::{self, AgentsPlan};
use clap::Parser;
use flatout_lab::bench::{BenchError, BenchReport, ProgressReceiver, question, run as run_bench};
use flatout_lab::view::{human, json};
use flatout_load::judge::Threshold;
use flatout_load::report::RunReport;
use flatout_report::style::Style;
use flatout_report::{command, output, text};
use plan::{BenchGoal, Run};
use show::Outputs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

/// Exit code if the run failed: requests failed, or the server could not be reached.
const FAILED: u8 = 1;

/// Exit code for invalid usage: the requested run is contradictory or impossible.
const USAGE: u8 = 2;

/// Exit code if a requirement was missed.
const MISSED: u8 = 4;

/// Exit code if no figure is valid, or if something that was requested was not measured; with `--require` and
/// `--strict`, also if a required figure is not valid.
const INVALID: u8 = 5;

/// Parses the command line of this command on its own.
#[derive(Debug, Parser)]
#[command(name = "bench", no_binary_name = false)]
struct BenchCommandLine {
    #[command(flatten)]
    args: BenchArgs,
}

/// Returns what is wrong with the command line `words`, of which the first is `bench`. Accesses neither the network nor
/// files. `is_known` is true if the numbers in it are those of the run.
pub(crate) fn check(words: &[String], is_known: bool) -> Result<(), String> {
    let line = BenchCommandLine::try_parse_from(words).map_err(|error| {
        let text = error.render().to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    if is_known { plan::check(&line.args) } else { Ok(()) }
}

/// Runs the command.
pub(crate) fn run(args: BenchArgs) -> ExitCode {
    if args.agents.share.is_some()
        && let Err(text) = agent::end_with_agent()
    {
        return complain(&text, FAILED);
    }
    let outputs = Outputs::of(&args.output);
    let is_strict = args.question.strict;
    let agents = args.agents.agents.zip(args.agents.listen).zip(args.agents.certs.clone());
    let planned = plan::plan(args).and_then(|run| outputs.check().map(|()| run));
    let run = match planned {
        Ok(run) => run,
        Err(text) => return complain(&text, USAGE),
    };
    if let Some(((agents, listen), trust)) = agents {
        return run_by_agents(&run.thresholds, &outputs, is_strict, (agents, listen, &trust));
    }
    let report = {
        let mut progress = outputs.progress(&run.ask.url.to_string());
        answer(run, progress.watcher())
    };
    match report {
        Ok(report) => finish(&report, &outputs, is_strict),
        Err(error) if error.is_usage() => complain(&error.to_string(), USAGE),
        Err(error) => complain(&error.to_string(), FAILED),
    }
}

fn answer(run: Run, progress: &mut dyn ProgressReceiver) -> Result<BenchReport, BenchError> {
    let Run { ask, counter_source, question, thresholds } = run;
    let mut report = match question {
        BenchGoal::Levels => run_bench(ask, counter_source, progress),
        BenchGoal::Knee(requirements, plan) => question::find_knee(ask, counter_source, &requirements, plan, progress),
        BenchGoal::Overload(plan) => question::overload(ask, counter_source, &plan, progress),
        BenchGoal::Versus(other) => question::versus(ask, *other, progress),
    }?;
    let words: Vec<String> = std::env::args().collect();
    report.run.command = command::kept(&words);
    report.run.require(&thresholds);
    Ok(report)
}

/// Lets agents generate the load, and reports the result like that of any run.
fn run_by_agents(
    require: &[Threshold],
    outputs: &Outputs,
    is_strict: bool,
    (agents, listen, trust): (u32, SocketAddr, &Path),
) -> ExitCode {
    // Leave out the names of the program and the command.
    let words: Vec<String> = std::env::args().skip(2).collect();
    let plan = AgentsPlan { words: &words, agents, listen, trust, require };
    let report = match agent::bench(&plan) {
        Ok(report) => report,
        Err(text) => return complain(&text, FAILED),
    };
    let text = text::print(&report, Style::of(&std::io::stdout()));
    let json = report.encode().unwrap_or_default();
    conclude(outputs.write(&report, &text, &json), ending(&report, false, is_strict))
}

fn finish(report: &BenchReport, outputs: &Outputs, is_strict: bool) -> ExitCode {
    let text = human::print_bench(report, Style::of(&std::io::stdout()));
    let json = format!("{:#}", json::bench_value(report));
    conclude(outputs.write(&report.run, &text, &json), ending(&report.run, report.interrupted, is_strict))
}

/// Returns the exit code, and a last message if the report does not contain it.
fn ending(run: &RunReport, interrupted: bool, is_strict: bool) -> (u8, &'static str) {
    let has_failed = run.steps.iter().any(|step| !step.failing.is_empty());
    let is_missed = run.thresholds.iter().any(|outcome| !outcome.met && outcome.unsound.is_empty());
    let is_uncertain = run.thresholds.iter().any(|outcome| !outcome.unsound.is_empty());
    if has_failed {
        (FAILED, "")
    } else if interrupted {
        (INVALID, "the run was interrupted; its figures cover only the part that ran")
    } else if !run.has_sound() {
        (INVALID, "no figure in this run is valid; the report says why and what to do")
    } else if !run.is_whole() {
        (INVALID, "part of the requested run could not be measured; the figures cover the rest")
    } else if is_missed {
        (MISSED, "")
    } else if is_uncertain {
        (INVALID, "inconclusive: a figure that --require needs is not valid; the report says why")
    } else if is_strict && !run.is_valid() {
        (INVALID, "--strict requires every figure to be valid, but some are not; the report says which and why")
    } else {
        (0, "")
    }
}

/// Reports failures to write, and returns the exit code. Files that were written remain. Failures are reported last.
fn conclude(written: Result<(), String>, (code, words): (u8, &str)) -> ExitCode {
    if let Err(text) = written {
        return complain(&text, FAILED);
    }
    if code == INVALID {
        return complain(words, code);
    }
    ExitCode::from(code)
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("bench", text);
    ExitCode::from(code)
}
