//! `flatout bench`: flags to a plan, a report to text and files, and the exit code.

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

/// A run that failed: what was asked for could not be had from the server.
const FAILED: u8 = 1;

/// Bad usage: what was asked for makes no sense, or cannot be done.
const USAGE: u8 = 2;

/// A requirement was missed.
const MISSED: u8 = 4;

/// No figure holds, or only a part of what was asked for was measured; with `--require` and `--strict`, a figure that
/// these are about does not hold.
const INVALID: u8 = 5;

/// A command line of this verb alone.
#[derive(Debug, Parser)]
#[command(name = "bench", no_binary_name = false)]
struct BenchCommandLine {
    #[command(flatten)]
    args: BenchArgs,
}

/// Says what is wrong with the command line `words`, of which the first is `bench`. Nothing is looked up or read. With `is_known`,
/// its numbers are those of the run.
pub(crate) fn check(words: &[String], is_known: bool) -> Result<(), String> {
    let line = BenchCommandLine::try_parse_from(words).map_err(|error| {
        let text = error.render().to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    if is_known { plan::check(&line.args) } else { Ok(()) }
}

/// Runs the verb.
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
        BenchGoal::Knee(requirement, plan) => question::find_knee(ask, counter_source, &requirement, plan, progress),
        BenchGoal::Overload(plan) => question::overload(ask, counter_source, &plan, progress),
        BenchGoal::Versus(other) => question::versus(ask, *other, progress),
    }?;
    let words: Vec<String> = std::env::args().collect();
    report.run.command = command::kept(&words);
    report.run.require(&thresholds);
    Ok(report)
}

/// Has agents make the load, and tells of it as of any other.
fn run_by_agents(
    require: &[Threshold],
    outputs: &Outputs,
    is_strict: bool,
    (agents, listen, trust): (u32, SocketAddr, &Path),
) -> ExitCode {
    // The program's and the verb's name are left out.
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

/// The exit code, and what is said last where the report does not say it.
fn ending(run: &RunReport, interrupted: bool, is_strict: bool) -> (u8, &'static str) {
    let has_failed = run.steps.iter().any(|step| !step.failing.is_empty());
    let is_missed = run.thresholds.iter().any(|outcome| !outcome.met && outcome.unsound.is_empty());
    let is_uncertain = run.thresholds.iter().any(|outcome| !outcome.unsound.is_empty());
    if has_failed {
        (FAILED, "")
    } else if interrupted {
        (INVALID, "the run was interrupted; its figures cover the part that ran")
    } else if !run.has_sound() {
        (INVALID, "no figure of this run holds; the report says why, and what to do")
    } else if !run.is_whole() {
        (INVALID, "a requested part could not be measured; the figures are those of the rest")
    } else if is_missed {
        (MISSED, "")
    } else if is_uncertain {
        (INVALID, "inconclusive: the required figure is not valid; the report says why")
    } else if is_strict && !run.is_valid() {
        (INVALID, "not every figure holds, which --strict requires; the report says which and why")
    } else {
        (0, "")
    }
}

/// Files that could be written remain; those that could not are reported last.
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
