//! `flatout limits`: measures the limits of this machine. Also runs the bare loop as a separate process, for
//! comparisons.

use crate::bench::parse_duration;
use clap::Args;
use flatout_client::watch_interrupts;
use flatout_lab::cores::Placement;
use flatout_lab::limits::responder::{MEMORY_BYTES_MAX, Responder, ResponderPlan, ResponderReply};
use flatout_lab::limits::{LimitsPlan, PROBE_MIN, run as run_limits};
use flatout_lab::view::live::LiveLine;
use flatout_lab::view::{human, json};
use flatout_report::output::{self, Output};
use flatout_report::style::Style;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Exit code if measuring failed.
const FAILED: u8 = 1;

/// Exit code for invalid usage.
const USAGE: u8 = 2;

/// Longest duration of one probe. A longer probe gives no more information.
const PROBE_MAX: Duration = Duration::from_mins(10);

/// Measure this machine's TCP and HTTP limits over loopback
#[derive(Args, Debug)]
#[command(after_help = "Ctrl-C stops after the current probe and prints the results so far.\n\nExit codes:\n  \
    0  every probe ran in every round\n  \
    1  a probe failed, or the run was interrupted\n  \
    2  the command line is invalid")]
pub(crate) struct LimitsArgs {
    /// Write the result to FILE as JSON; `-` prints only the JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Duration of each probe in each round, such as 0.2, 1 or 500ms; a number without a unit is in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_probe)]
    seconds: Duration,
    /// Number of rounds; each runs every probe once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Response size of the bare HTTP loop, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1024,
        value_parser = clap::value_parser!(u64).range(..=MEMORY_BYTES_MAX))]
    size: u64,
    /// Serve HTTP with the bare loop on this address until SIGTERM, and measure nothing
    #[arg(long, value_name = "ADDR:PORT", hide = true)]
    responder: Option<SocketAddr>,
    /// With --responder: close the connection after each response
    #[arg(long, hide = true, requires = "responder")]
    close: bool,
    /// With --responder: send this file with sendfile
    #[arg(long, value_name = "FILE", hide = true, requires = "responder")]
    sendfile: Option<PathBuf>,
    /// With --sendfile: insert a line in the middle of the file
    #[arg(long, hide = true, requires = "sendfile")]
    insert: bool,
    /// With --responder: send the body with MSG_ZEROCOPY
    #[arg(long, hide = true, requires = "responder", conflicts_with = "sendfile")]
    zerocopy: bool,
    /// With --responder: forward requests to the origin at this address over persistent connections
    #[arg(long, value_name = "ADDR:PORT", hide = true, requires = "responder",
        conflicts_with_all = ["close", "sendfile", "zerocopy", "size"])]
    forward: Option<SocketAddr>,
    /// With --responder: number of threads
    #[arg(long, value_name = "N", hide = true, requires = "responder", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
}

/// Runs the command.
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
    let plan = LimitsPlan { probe: args.seconds, rounds: args.rounds, body_bytes: args.size };
    let interrupted = match follow_interrupts() {
        Ok(interrupted) => interrupted,
        Err(error) => return complain(&format!("cannot watch for Ctrl-C: {error}"), FAILED),
    };
    let live = LiveLine::new();
    let report = run_limits(plan, &mut |round, probe| {
        live.show(&format!("round {round} of {}: {probe}", args.rounds));
        if interrupted.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    live.clear();
    let mut written = Ok(());
    if let Some(output) = &output {
        written = output.write(&format!("{:#}", json::limits_value(&report)));
    }
    if output != Some(Output::Stdout) {
        written = written.and(output::show(&human::print_limits(&report, Style::of(&io::stdout()))));
    }
    match written {
        Ok(()) if report.is_whole() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(FAILED),
        Err(error) => complain(&format!("cannot write the result: {error}"), FAILED),
    }
}

/// Handles Ctrl-C. The first sets the returned flag, after which the measurement ends with the current probe and
/// reports the results so far. The second exits at once.
fn follow_interrupts() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    watch_interrupts(move |count| {
        flag.store(true, Ordering::Relaxed);
        if count > 1 {
            std::process::exit(FAILED.into());
        }
    })?;
    Ok(interrupted)
}

/// Runs the bare loop until SIGTERM, whose default action is enough to stop it.
fn respond(address: SocketAddr, args: LimitsArgs) -> ExitCode {
    let reply = match (args.forward, args.sendfile) {
        (Some(origin), _) => ResponderReply::Origin(origin),
        (None, Some(path)) if args.insert => ResponderReply::FileInParts(path),
        (None, Some(path)) => ResponderReply::File(path),
        (None, None) if args.zerocopy => ResponderReply::MemoryLent { body_bytes: args.size },
        (None, None) => ResponderReply::Memory { body_bytes: args.size },
    };
    let placements = vec![Placement::Anywhere; usize::from(args.threads)];
    let mut responder = match Responder::start(&ResponderPlan { address, placements, reply, closes: args.close }) {
        Ok(responder) => responder,
        Err(error) => return complain(&format!("cannot start the bare loop at {address}: {error}"), FAILED),
    };
    eprintln!("bare loop at http://{}/", responder.address());
    match responder.join() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("the bare loop failed: {error}"), FAILED),
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("limits", text);
    ExitCode::from(code)
}

fn parse_probe(text: &str) -> Result<Duration, String> {
    let range = PROBE_MIN..=PROBE_MAX;
    let probe = parse_duration(text)?;
    if range.contains(&probe) {
        return Ok(probe);
    }
    Err(format!("use {} to {} seconds", range.start().as_secs_f64(), range.end().as_secs()))
}

#[cfg(test)]
mod tests {
    use super::parse_probe;
    use std::time::Duration;

    #[test]
    fn probes_have_bounds_and_one_unit() {
        assert_eq!(parse_probe("0.2"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_probe("1s"), Ok(Duration::from_secs(1)));
        for text in ["1sss", "0.01", "601", "-1", "nan"] {
            assert!(parse_probe(text).is_err(), "{text}");
        }
    }
}
