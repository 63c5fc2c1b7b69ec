//! `flatout bench`: flags to a plan, a report to text and JSON, and the exit code.

use clap::Args;
use flatout_lab::bench::{BenchError, BenchPlan, BenchReport, run as run_bench};
use flatout_lab::cores::cores_allowed;
use flatout_lab::request::Field;
use flatout_lab::target::is_local;
use flatout_lab::url::Url;
use flatout_lab::view::live::LiveLine;
use flatout_lab::view::output::{Output, print};
use flatout_lab::view::style::Style;
use flatout_lab::view::{human, json};
use flatout_load::{ConnectionUse, Plan, Stop};
use std::process::ExitCode;
use std::time::Duration;

/// A run that failed: what was asked for could not be had from the server.
const FAILED: u8 = 1;

/// Bad usage: what was asked for makes no sense, or cannot be done.
const USAGE: u8 = 2;

/// A run that somebody ended before its time: nothing went wrong, and it says nothing about the rest.
const INCONCLUSIVE: u8 = 5;

/// How long a run takes when nothing is said about it.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// Load a URL in a closed loop and say how fast it was
#[derive(Args, Debug)]
#[command(
    after_help = "Every connection sends its next request when the last one is answered. The exit code is 0 when \
    every request was answered whole with a status below 400, 1 when not, 2 when the command line makes no sense, and 5 \
    when nothing went wrong but a run for a time was ended early."
)]
pub(crate) struct BenchArgs {
    #[arg(help = "What to load, such as http://127.0.0.1:8080/")]
    url: String,
    /// Connections open at once
    #[arg(short, long, default_value_t = 64, value_name = "N")]
    connections: u32,
    /// How long to send, such as 500ms, 10s or 2m [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "requests")]
    duration: Option<Duration>,
    /// Send exactly so many requests instead
    #[arg(short = 'n', long, value_name = "N")]
    requests: Option<u64>,
    /// Client threads [default: half of the cores for a server on this machine, else all]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// A connection per request
    #[arg(long)]
    close: bool,
    /// Longest wait for a connection, and for a whole answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
    /// Measure the machine's limit beside the run, and say how near the run came to it
    #[arg(long)]
    limit: bool,
    /// Send this header too, as 'Name: value'; may be given several times
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = Field::parse)]
    header: Vec<Field>,
    /// Write the result as JSON to FILE as well, or to standard output alone with -
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: BenchArgs) -> ExitCode {
    let output = args.json.as_deref().map(Output::parse);
    let planned = plan(args).map_err(|error| error.to_string());
    let plan = match planned.and_then(|plan| check_output(output.as_ref()).map(|()| plan)) {
        Ok(plan) => plan,
        Err(text) => return complain(&text, USAGE),
    };
    let mut live = LiveLine::new();
    let report = run_bench(plan, &mut live);
    live.clear();
    match report {
        Ok(report) => show(&report, output.as_ref()),
        Err(error @ (BenchError::Url(_) | BenchError::Plan(_))) => complain(&error.to_string(), USAGE),
        Err(error) => complain(&error.to_string(), FAILED),
    }
}

fn plan(args: BenchArgs) -> Result<BenchPlan, BenchError> {
    let url = Url::parse(&args.url).map_err(BenchError::Url)?;
    let address = url.resolve().map_err(BenchError::Url)?;
    let stop = match args.requests {
        Some(requests) => Stop::Requests(requests),
        None => Stop::After { duration_ns: nanoseconds(args.duration.unwrap_or(DURATION_DEFAULT)) },
    };
    let cores = cores_allowed().len() as u32;
    // A server on the same machine needs cores as well.
    let threads = if is_local(address.ip()) { (cores / 2).max(1) } else { cores };
    let plan = Plan {
        connections: args.connections,
        threads: args.threads.unwrap_or(threads),
        stop,
        connection_use: if args.close { ConnectionUse::PerRequest } else { ConnectionUse::KeepAlive },
    };
    plan.check().map_err(BenchError::Plan)?;
    Ok(BenchPlan {
        url,
        plan,
        request_timeout_ns: nanoseconds(args.timeout).max(1),
        fields: args.header,
        with_limit: args.limit,
    })
}

fn check_output(output: Option<&Output>) -> Result<(), String> {
    match output {
        Some(output @ Output::File(path)) => {
            output.check().map_err(|error| format!("cannot write to {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn show(report: &BenchReport, output: Option<&Output>) -> ExitCode {
    let mut written = Ok(());
    if let Some(output) = output {
        written = output.write(&format!("{:#}", json::bench_value(report)));
    }
    if output != Some(&Output::Stdout) {
        written = written.and(print(&human::print_bench(report, Style::of(&std::io::stdout()))));
    }
    if let Err(error) = written {
        return complain(&format!("the result could not be written: {error}"), FAILED);
    }
    if !report.summary.verdict.passed() {
        return ExitCode::from(FAILED);
    }
    if report.summary.facts.interrupted {
        return complain("the run was ended before its time; its figures cover the part that ran", INCONCLUSIVE);
    }
    ExitCode::SUCCESS
}

fn complain(text: &str, code: u8) -> ExitCode {
    eprintln!("flatout bench: {text}");
    ExitCode::from(code)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `10s`, `500ms`, `2m`, `1h`; a number alone is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits_end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let seconds_per_unit = match unit {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{unit:?} is no unit of time; use ms, s, m or h, such as 500ms or 10s")),
    };
    let number: f64 = number.parse().map_err(|_| "give a number and a unit, such as 500ms or 10s".to_owned())?;
    match Duration::try_from_secs_f64(number * seconds_per_unit) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        Ok(_) => Err("it must be longer than nothing".to_owned()),
        Err(_) => Err("it is longer than can be counted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_duration;
    use std::time::Duration;

    #[test]
    fn times_have_units_or_are_seconds() {
        for (text, expected_ms) in [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("1.5", 1_500), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(expected_ms)), "{text}");
        }
        for text in ["", "s", "10x", "-1s", "0", "1e9s", "1..2s", "99999999999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
