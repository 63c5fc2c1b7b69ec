//! `flatout limits`: what this machine can do at most; and the bare loop as a process of its own, for comparisons.

use clap::Args;
use flatout_lab::cores::Placement;
use flatout_lab::limits::responder::{Reply, Responder, ResponderPlan};
use flatout_lab::limits::{LimitsPlan, PROBE_MIN, run as run_limits};
use flatout_lab::view::live::LiveLine;
use flatout_lab::view::output::{Output, print};
use flatout_lab::view::style::Style;
use flatout_lab::view::{human, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measuring failed.
const FAILED: u8 = 1;

/// Bad usage.
const USAGE: u8 = 2;

/// Longest time for one probe, in seconds; more tells nothing new.
const PROBE_SECONDS_MAX: f64 = 600.0;

/// Measure what this machine can do at most, now, over loopback
#[derive(Args, Debug)]
pub(crate) struct LimitsArgs {
    /// Write the result as JSON to FILE as well, or to standard output alone with -
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Time for one probe in one round
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Rounds; every probe runs once a round
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Body of the bare loop's answers, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: u64,
    /// Only answer HTTP with the bare loop, at this address, until SIGTERM
    #[arg(long, value_name = "ADDR:PORT", hide = true)]
    responder: Option<SocketAddr>,
    /// With --responder: close the connection after each answer
    #[arg(long, hide = true, requires = "responder")]
    close: bool,
    /// With --responder: answer with this file by sendfile
    #[arg(long, value_name = "FILE", hide = true, requires = "responder")]
    sendfile: Option<PathBuf>,
    /// With --responder: threads
    #[arg(long, value_name = "N", hide = true, requires = "responder", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
}

/// Runs the verb.
pub(crate) fn run(args: LimitsArgs) -> ExitCode {
    match args.responder {
        Some(address) => respond(address, args),
        None => measure(&args),
    }
}

fn measure(args: &LimitsArgs) -> ExitCode {
    let output = args.json.as_deref().map(Output::parse);
    if let Some(error) = output.as_ref().and_then(|output| output.check().err()) {
        return complain(&format!("cannot write the result: {error}"), USAGE);
    }
    let probe = Duration::from_secs_f64(args.seconds);
    let plan = LimitsPlan { probe, rounds: args.rounds, body_bytes: args.size };
    let live = LiveLine::new();
    let report = run_limits(plan, &mut |round, probe| live.show(&format!("round {round} of {}: {probe}", args.rounds)));
    live.clear();
    let report = match report {
        Ok(report) => report,
        Err(error) => return complain(&error.to_string(), FAILED),
    };
    let mut written = Ok(());
    if let Some(output) = &output {
        written = output.write(&format!("{:#}", json::limits_value(&report)));
    }
    if output != Some(Output::Stdout) {
        written = written.and(print(&human::print_limits(&report, Style::of(&std::io::stdout()))));
    }
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("the result could not be written: {error}"), FAILED),
    }
}

/// The bare loop until SIGTERM, whose default action is all the shutdown it needs.
fn respond(address: SocketAddr, args: LimitsArgs) -> ExitCode {
    let reply = match args.sendfile {
        Some(path) => Reply::File(path),
        None => Reply::Memory { body_bytes: args.size },
    };
    let placements = vec![Placement::Anywhere; usize::from(args.threads)];
    let mut responder = match Responder::start(&ResponderPlan { address, placements, reply, closes: args.close }) {
        Ok(responder) => responder,
        Err(error) => return complain(&format!("the bare loop at {address} could not be started: {error}"), FAILED),
    };
    eprintln!("bare loop at http://{}/", responder.address());
    match responder.join() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("the bare loop ended: {error}"), FAILED),
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    eprintln!("flatout limits: {text}");
    ExitCode::from(code)
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let range = PROBE_MIN.as_secs_f64()..=PROBE_SECONDS_MAX;
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if range.contains(&seconds) => Ok(seconds),
        _ => Err(format!("give seconds from {} to {}", range.start(), range.end())),
    }
}
