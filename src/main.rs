//! flatout: a web server, a shared HTTP cache and a load generator.

mod accelerate;
mod admin;
mod agent;
mod bench;
mod compare;
mod completions;
mod config;
mod explain;
mod flags;
mod limits;
mod man;
mod pages;
mod purge;
mod reload;
mod report;
mod rerun;
mod run;
mod serve;
mod status;
mod suite;
mod topics;
mod workload;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A web server, a shared HTTP cache and a load generator in one binary
#[derive(Parser)]
#[command(name = "flatout", version, max_term_width = 100, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is only one, and it is used once")]
enum Verb {
    Serve(serve::ServeArgs),
    Accelerate(accelerate::AccelerateArgs),
    Run(run::RunArgs),
    Status(status::StatusArgs),
    Purge(purge::PurgeArgs),
    Reload(reload::ReloadArgs),
    Upgrade(reload::UpgradeArgs),
    Bench(bench::BenchArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Rerun(rerun::RerunArgs),
    Agent(agent::AgentArgs),
    Limits(limits::LimitsArgs),
    Suite(suite::SuiteArgs),
    Workload(workload::WorkloadArgs),
    Pages(pages::PagesArgs),
    Validate(config::ValidateArgs),
    Fmt(config::FmtArgs),
    Adapt(config::AdaptArgs),
    Passwd(config::PasswdArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    Explain(explain::ExplainArgs),
    Config(explain::ConfigArgs),
    Help(config::HelpArgs),
}

fn main() -> ExitCode {
    match Arguments::parse().verb {
        Verb::Serve(arguments) => serve::run(&arguments),
        Verb::Accelerate(arguments) => accelerate::run(&arguments),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Purge(arguments) => purge::run(&arguments),
        Verb::Reload(arguments) => reload::reload(&arguments),
        Verb::Upgrade(arguments) => reload::upgrade(&arguments),
        Verb::Bench(arguments) => bench::run(arguments),
        Verb::Report(arguments) => report::run(&arguments),
        Verb::Compare(arguments) => compare::run(&arguments),
        Verb::Rerun(arguments) => rerun::run(arguments),
        Verb::Agent(arguments) => agent::run(&arguments),
        Verb::Limits(arguments) => limits::run(arguments),
        Verb::Suite(arguments) => suite::run(&arguments),
        Verb::Workload(arguments) => workload::run(&arguments),
        Verb::Pages(arguments) => pages::run(&arguments),
        Verb::Validate(arguments) => config::validate(&arguments),
        Verb::Fmt(arguments) => config::fmt(&arguments),
        Verb::Adapt(arguments) => config::adapt(&arguments),
        Verb::Passwd(arguments) => config::passwd(&arguments),
        Verb::Completions(arguments) => completions::run::<Arguments>(&arguments),
        Verb::Man(arguments) => man::run::<Arguments>(&arguments),
        Verb::Explain(arguments) => explain::explain(&arguments),
        Verb::Config(arguments) => explain::config(&arguments),
        Verb::Help(arguments) => config::help::<Arguments>(&arguments),
    }
}
