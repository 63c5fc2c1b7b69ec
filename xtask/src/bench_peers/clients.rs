//! The clients: one run of wrk or of our own bench, and what it came to.

use super::cases::{Case, Kind};
use super::servers::{Bench, Server, Subject};
use super::{proc, rounds::Sample};
use crate::failure::{Context, Outcome};
use crate::shell;
use std::process::Command;
use std::time::Duration;

/// Makes wrk print exact counts; it defines no per-request hook, so it costs nothing while wrk runs.
pub(super) const WRK_SCRIPT: &str = r#"done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("COUNTS %d %d %d %d\n", summary.requests, summary.bytes, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// How long a server may need to finish what a client that has ended left behind.
const SETTLE: Duration = Duration::from_millis(50);

/// What wrk counted.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    requests: u64,
    bytes: u64,
    micros: u64,
    errors: u64,
}

/// The command of a client against an address.
pub(super) fn command(client: Subject, bench: &Bench, case: &Case, url: &str, seconds: u64) -> Command {
    let duration = format!("{seconds}s");
    if client == Subject::Flatout {
        let mut command = Command::new(bench.flatout());
        command.args(["bench", url, "-c", "64", "--threads", "1", "-d", &duration]);
        return command;
    }
    let mut command = Command::new("wrk");
    command.args(["-t1", "-c64", &format!("-d{duration}"), "-s"]).arg(bench.wrk_script());
    if case.kind == (Kind::ServerPerRequest { closes: true }) {
        command.args(["-H", "Connection: close"]);
    }
    command.arg(url);
    command
}

/// One round against a server: what the server's processes spent.
pub(super) fn server_sample(bench: &Bench, case: &Case, server: &Server, seconds: u64) -> Outcome<Sample> {
    let wrk = command(Subject::Wrk, bench, case, &server.url(case.file), seconds);
    let before = server.on_cpu_ns()?;
    let said = shell::output_of(&mut bench.on_client_core(&wrk))?;
    std::thread::sleep(SETTLE);
    let spent = server.on_cpu_ns()? - before;
    let counts = faultless_counts(&said)?;
    let work = match case.kind {
        Kind::ServerPerMebibyte => counts.bytes as f64 / 1024.0 / 1024.0,
        _ => counts.requests as f64,
    };
    Ok(Sample { cpu_ns: spent, work, seconds: counts.micros as f64 / 1e6 })
}

/// One round of a client: what the client spent, divided by what the server counted.
pub(super) fn client_sample(
    bench: &Bench,
    case: &Case,
    client: Subject,
    server: &Server,
    seconds: u64,
) -> Outcome<Sample> {
    let run = command(client, bench, case, &server.url(case.file), seconds);
    let (count_before, spent_before) = (server.nginx_requests()?, proc::ended_children_ns()?);
    // Our own client ends with a failure when a request failed; wrk only counts it.
    let said = shell::output_of(&mut bench.on_client_core(&run))?;
    let spent = proc::ended_children_ns()? - spent_before;
    if client == Subject::Wrk {
        faultless_counts(&said)?;
    }
    std::thread::sleep(SETTLE);
    // The second question is itself counted.
    let requests = server.nginx_requests()? - count_before - 1;
    if requests == 0 {
        return Err("the server counted no request".into());
    }
    Ok(Sample { cpu_ns: spent, work: requests as f64, seconds: seconds as f64 })
}

/// A round in which a single request failed is no result.
fn faultless_counts(said: &str) -> Outcome<Counts> {
    let counts = counts(said)?;
    if counts.errors > 0 || counts.requests == 0 {
        return Err(format!("{} errors in {} requests: no result", counts.errors, counts.requests).into());
    }
    Ok(counts)
}

fn counts(said: &str) -> Outcome<Counts> {
    let line = said.lines().find_map(|line| line.strip_prefix("COUNTS ")).cannot("find wrk's counts")?;
    let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
    match numbers.cannot("read wrk's counts")?[..] {
        [requests, bytes, micros, errors] => Ok(Counts { requests, bytes, micros, errors }),
        _ => Err("wrk's counts are not four".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_wrk_prints() {
        let said = "Running 1s test\n  10 requests in 1.00s\nCOUNTS 10 20480 1000123 2\n";
        let expected = Counts { requests: 10, bytes: 20480, micros: 1_000_123, errors: 2 };
        assert_eq!(counts(said).unwrap(), expected);
        for bad in ["", "COUNTS 1 2 3", "COUNTS 1 2 3 x"] {
            assert!(counts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_round_with_a_failed_request_or_without_any_is_refused() {
        assert!(faultless_counts("COUNTS 10 20480 1000123 0").is_ok());
        for bad in ["COUNTS 10 20480 1000123 1", "COUNTS 0 0 1000123 0"] {
            assert!(faultless_counts(bad).is_err(), "{bad}");
        }
    }
}
