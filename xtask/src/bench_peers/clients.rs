//! The clients: one run of wrk, h2load, ab or our own bench, and what it came to.

use super::answers;
use super::bench::Bench;
use super::cases::{Case, Kind, Load};
use super::servers::Server;
use super::subjects::{NginxLog, NginxSettings, Setup, Subject};
use super::{origin, proc, rounds::Sample};
use crate::failure::{Context, Outcome};
use crate::shell;
use std::process::Command;
use std::time::Duration;

/// Makes wrk print exact counts; it defines no per-request hook, so it costs nothing while wrk runs.
pub(super) const WRK_SCRIPT: &str = r#"done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("COUNTS %d %d %d %d %d\n", summary.requests, summary.bytes, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(99)))
end
"#;

/// How long a server may need to finish what a client that has ended left behind.
const SETTLE: Duration = Duration::from_millis(50);

/// More than ab can do before its time is up; without it, it stops after 50,000.
const AB_REQUESTS_MAX: &str = "1000000";

/// What a client counted.
#[derive(Debug, PartialEq)]
struct Counts {
    requests: u64,
    bytes: u64,
    seconds: f64,
    errors: u64,
    /// The latency that one in a hundred exceeds, where the client says it.
    p99_us: Option<u64>,
}

/// The command of the client that asks a subject.
pub(super) fn command(bench: &Bench, case: &Case, subject: Subject, server: &Server, seconds: u64) -> Command {
    let url = server.url(&subject.path(case.file));
    let fields = answers::request_fields(subject, case);
    let mut command = match case.load {
        load if matches!(subject.setup, Setup::FlatoutBench | Setup::FlatoutBenchOpen) => {
            let mut command = Command::new(bench.flatout());
            command.args(["bench", &url, "--threads", "1", "-d", &format!("{seconds}s")]);
            match load {
                _ if subject.setup == Setup::FlatoutBenchOpen => {
                    command.args(["-c", "64", "--rate", &OPEN_RATE_PER_S.to_string()])
                }
                Load::H2load { connections, streams } => {
                    let (connections, streams) = (connections.to_string(), streams.to_string());
                    command.args(["-c", &connections, "--http", "2", "--streams", &streams])
                }
                Load::Wrk { connections, .. } | Load::Ab { connections } => {
                    command.args(["-c", &connections.to_string()])
                }
            };
            return command;
        }
        Load::Wrk { connections, closes } => {
            let mut command = Command::new("wrk");
            command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "-s"]).arg(bench.wrk_script());
            if closes {
                command.args(["-H", "Connection: close"]);
            }
            command
        }
        Load::H2load { connections, streams } => {
            let mut command = Command::new("h2load");
            command.args(["-t1", &format!("-c{connections}"), &format!("-m{streams}"), &format!("-D{seconds}")]);
            command
        }
        Load::Ab { connections } => {
            let mut command = Command::new("ab");
            command.args(["-q", "-c", &connections.to_string(), "-t", &seconds.to_string(), "-n", AB_REQUESTS_MAX]);
            command
        }
    };
    for line in fields {
        command.args(["-H", &line]);
    }
    command.arg(url);
    command
}

/// One round against a server: what the server's processes spent, and the TLS that was agreed on.
pub(super) fn server_sample(
    bench: &Bench,
    case: &Case,
    subject: Subject,
    server: &Server,
    seconds: u64,
) -> Outcome<(Sample, Option<String>)> {
    let client = command(bench, case, subject, server, seconds);
    let forwarded_before = server.forwarded()?;
    let (before, client_before) = (server.on_cpu()?, proc::ended_children_ns()?);
    let said = shell::output_of(&mut bench.on_client_core(&client))?;
    let client_ns = proc::ended_children_ns()?.saturating_sub(client_before);
    std::thread::sleep(SETTLE);
    let counts = faultless(counts(case.load, &said, seconds)?)?;
    // What writes the log belongs to the cost of a request.
    server.logged(counts.requests)?;
    let spent = server.on_cpu()?.ns_since(before)?;
    server.empty_log()?;
    if let (Some(behind), Some(before), Some(after)) = (case.behind, forwarded_before, server.forwarded()?) {
        origin::is_right(behind, counts.requests, after.saturating_sub(before))?;
    }
    let work = match case.kind {
        Kind::ServerPerMebibyte => counts.bytes as f64 / 1024.0 / 1024.0,
        _ => counts.requests as f64,
    };
    let sample =
        Sample { cpu_ns: spent, client_ns: Some(client_ns), work, seconds: counts.seconds, p99_us: counts.p99_us };
    Ok((not_stalled(sample)?, agreed_tls(&said)))
}

/// Clients that ask again as soon as they are answered keep one of the two cores busy, unless answers fail to come. h2load
/// counts no error then.
fn not_stalled(sample: Sample) -> Outcome<Sample> {
    let stalled = sample.shares().is_some_and(|(server, client)| server.max(client) < BUSY_SHARE_MIN);
    if stalled {
        return Err(format!("it stalled: {:.0} a second, and both cores idle", sample.rate()).into());
    }
    Ok(sample)
}

/// Less than any other program on the machine could leave of a core.
const BUSY_SHARE_MIN: f64 = 0.05;

/// One round of a client: what the client spent, divided by what the server counted.
pub(super) fn client_sample(
    bench: &Bench,
    case: &Case,
    client: Subject,
    server: &Server,
    seconds: u64,
) -> Outcome<Sample> {
    let run = command(bench, case, client, server, seconds);
    let (count_before, spent_before) = (server.nginx_requests(case.speech)?, proc::ended_children_ns()?);
    let said = said_by_client(client.setup, &mut bench.on_client_core(&run))?;
    let spent = proc::ended_children_ns()?.saturating_sub(spent_before);
    if matches!(client.setup, Setup::Wrk | Setup::H2load) {
        faultless(counts(case.load, &said, seconds)?)?;
    }
    std::thread::sleep(SETTLE);
    // The second question is itself counted.
    let requests = server.nginx_requests(case.speech)?.saturating_sub(count_before + 1);
    if requests == 0 {
        return Err("the server counted no request".into());
    }
    let sample =
        Sample { cpu_ns: spent, client_ns: None, work: requests as f64, seconds: seconds as f64, p99_us: None };
    if client.setup == Setup::FlatoutBenchOpen { at_its_rate(sample) } else { Ok(sample) }
}

/// What a client printed. Its processor time is the kernel's word and its requests are the server's, so a verdict of our own
/// client on its figures (exit code 5) takes nothing from them; a request that failed (exit code 1) does.
fn said_by_client(client: Setup, command: &mut Command) -> Outcome<String> {
    if !matches!(client, Setup::FlatoutBench | Setup::FlatoutBenchOpen) {
        return shell::output_of(command);
    }
    let shown = shell::shown(command);
    let output = command.output().cannot(&format!("run `{shown}`"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if matches!(output.status.code(), Some(0 | NO_FIGURE_HOLDS)) {
        return Ok(said);
    }
    // The report on standard output names the requests that failed.
    let failed = said.lines().find(|line| line.trim_start().starts_with("FAILED")).unwrap_or_default();
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{shown}` ended with {}: {} {}", output.status, failed.trim(), error.trim()).into())
}

/// `flatout bench` ends with it when no figure of its own holds.
const NO_FIGURE_HOLDS: i32 = 5;

/// A round by the clock in which fewer requests came than were due is no result of that rate.
fn at_its_rate(sample: Sample) -> Outcome<Sample> {
    if sample.rate() < RATE_SHARE_MIN * f64::from(OPEN_RATE_PER_S) {
        return Err(format!("it sent {:.0} requests a second of {OPEN_RATE_PER_S}", sample.rate()).into());
    }
    Ok(sample)
}

/// Requests a second of the client by the clock.
const OPEN_RATE_PER_S: u32 = 10_000;

/// As much of a rate is that rate, as `flatout bench` has it.
const RATE_SHARE_MIN: f64 = 0.98;

/// Makes sure, by nginx's own word, that a client never takes up a TLS session again.
pub(super) fn check_full_handshakes(bench: &Bench, case: &Case) -> Outcome<()> {
    let setup = Setup::Nginx(NginxSettings { sendfile: true, log: NginxLog::Reuse });
    let witness = Subject { name: "nginx as witness", setup, asks: &[], shows: &[] };
    let server = Server::start(bench, witness, case)?;
    let said = shell::output_of(&mut bench.on_client_core(&command(bench, case, witness, &server, 1)))?;
    let counts = faultless(counts(case.load, &said, 1)?)?;
    let log = server.logged(counts.requests)?.unwrap_or_default();
    let resumed = log.lines().filter(|line| *line != ".").count();
    if resumed > 0 {
        return Err(format!("{resumed} of {} handshakes took up a session again", counts.requests).into());
    }
    Ok(())
}

/// A round in which a single request failed is no result.
fn faultless(counts: Counts) -> Outcome<Counts> {
    if counts.errors > 0 || counts.requests == 0 {
        return Err(format!("{} errors in {} requests: no result", counts.errors, counts.requests).into());
    }
    Ok(counts)
}

fn counts(load: Load, said: &str, seconds: u64) -> Outcome<Counts> {
    match load {
        Load::Wrk { .. } => wrk_counts(said),
        Load::H2load { .. } => h2load_counts(said, seconds),
        Load::Ab { .. } => ab_counts(said),
    }
}

fn wrk_counts(said: &str) -> Outcome<Counts> {
    let line = said.lines().find_map(|line| line.strip_prefix("COUNTS ")).cannot("find wrk's counts")?;
    let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
    match numbers.cannot("read wrk's counts")?[..] {
        [requests, bytes, micros, errors, p99_us] => {
            Ok(Counts { requests, bytes, seconds: micros as f64 / 1e6, errors, p99_us: Some(p99_us) })
        }
        _ => Err("wrk's counts are not five".into()),
    }
}

/// `requests: 9 total, 9 started, 9 done, 9 succeeded, 0 failed, 0 errored, 0 timeout`. What succeeded is what had a
/// status of 2xx or 3xx, and files are asked for without conditions.
fn h2load_counts(said: &str, seconds: u64) -> Outcome<Counts> {
    let line = said.lines().find_map(|line| line.strip_prefix("requests: ")).cannot("find h2load's counts")?;
    let of = |what: &str| -> Outcome<u64> {
        let part = line.split(", ").find_map(|part| part.strip_suffix(what));
        part.and_then(|number| number.trim().parse().ok()).cannot(&format!("read how many h2load has{what}"))
    };
    let errors = of(" failed")? + of(" errored")? + of(" timeout")?;
    Ok(Counts { requests: of(" succeeded")?, bytes: 0, seconds: seconds as f64, errors, p99_us: None })
}

fn ab_counts(said: &str) -> Outcome<Counts> {
    let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    let number = |name: &str| -> Outcome<u64> {
        value(name).and_then(|word| word.parse().ok()).cannot(&format!("read ab's `{name}`"))
    };
    let seconds = value("Time taken for tests:").and_then(|word| word.parse().ok());
    // It does not mention them unless there are some.
    let refused = value("Non-2xx responses:").map_or(Ok(0), |_| number("Non-2xx responses:"))?;
    Ok(Counts {
        requests: number("Complete requests:")?,
        bytes: 0,
        seconds: seconds.cannot("read how long ab took")?,
        errors: number("Failed requests:")? + refused,
        p99_us: None,
    })
}

/// The version, cipher suite and key exchange that a client says it agreed on; `None` without TLS.
fn agreed_tls(said: &str) -> Option<String> {
    let value = |names: &[&str]| {
        let line = said.lines().find_map(|line| names.iter().find_map(|name| line.strip_prefix(name)));
        line.map(|value| value.trim().replace(',', " "))
    };
    let parts = [
        value(&["TLS Protocol:", "SSL/TLS Protocol:"])?,
        value(&["Cipher:"]).unwrap_or_default(),
        value(&["Server Temp Key:"]).unwrap_or_default(),
    ];
    Some(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_wrk_prints() {
        let said = "Running 1s test\n  10 requests in 1.00s\nCOUNTS 10 20480 1500000 2 310\n";
        assert_eq!(
            wrk_counts(said).unwrap(),
            Counts { requests: 10, bytes: 20480, seconds: 1.5, errors: 2, p99_us: Some(310) }
        );
        for bad in ["", "COUNTS 1 2 3", "COUNTS 1 2 3 4", "COUNTS 1 2 3 4 x"] {
            assert!(wrk_counts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_are_read_from_what_h2load_prints() {
        let said = "finished in 1.00s, 9.00 req/s, 9KB/s\n\
            requests: 9 total, 12 started, 9 done, 7 succeeded, 1 failed, 1 errored, 3 timeout\n";
        assert_eq!(
            h2load_counts(said, 1).unwrap(),
            Counts { requests: 7, bytes: 0, seconds: 1.0, errors: 5, p99_us: None }
        );
        assert!(h2load_counts("requests: none", 1).is_err());
    }

    #[test]
    fn counts_are_read_from_what_ab_prints() {
        let said = "SSL/TLS Protocol:       TLSv1.3,TLS_AES_256_GCM_SHA384,256,256\n\
            Server Temp Key:        X25519 253 bits\nTime taken for tests:   1.500 seconds\n\
            Complete requests:      748\nFailed requests:        1\n";
        let expected = |errors| Counts { requests: 748, bytes: 0, seconds: 1.5, errors, p99_us: None };
        assert_eq!(ab_counts(said).unwrap(), expected(1));
        assert_eq!(ab_counts(&format!("{said}Non-2xx responses:      3\n")).unwrap(), expected(4));
        assert!(ab_counts("Complete requests: many").is_err());
        let tls = agreed_tls(said).unwrap();
        assert_eq!(tls, "TLSv1.3 TLS_AES_256_GCM_SHA384 256 256 X25519 253 bits");
    }

    #[test]
    fn a_round_with_a_failed_request_or_without_any_is_refused() {
        let counts = |requests, errors| Counts { requests, bytes: 0, seconds: 1.0, errors, p99_us: None };
        assert!(faultless(counts(10, 0)).is_ok());
        assert!(faultless(counts(10, 1)).is_err() && faultless(counts(0, 0)).is_err());
    }

    #[test]
    fn our_client_s_verdict_on_its_own_figures_takes_nothing_from_a_round() {
        let ended = |code: i32, client| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("echo '  FAILED: 3 requests failed'; exit {code}")]);
            said_by_client(client, &mut command)
        };
        for code in [0, 5] {
            assert!(ended(code, Setup::FlatoutBench).is_ok() && ended(code, Setup::FlatoutBenchOpen).is_ok(), "{code}");
        }
        let failure = ended(1, Setup::FlatoutBench).unwrap_err().to_string();
        assert!(failure.contains("FAILED: 3 requests failed"), "{failure}");
        assert!(ended(2, Setup::FlatoutBench).is_err() && ended(5, Setup::Wrk).is_err());
    }

    #[test]
    fn a_round_by_the_clock_has_its_rate() {
        let sample = |work| Sample { cpu_ns: 1, client_ns: None, work, seconds: 2.0, p99_us: None };
        assert!(at_its_rate(sample(19_999.0)).is_ok());
        assert!(at_its_rate(sample(19_000.0)).unwrap_err().to_string().contains("9500 requests a second of 10000"));
    }

    #[test]
    fn a_round_in_which_nobody_was_busy_is_refused() {
        let sample =
            |cpu_ns, client_ns| Sample { cpu_ns, client_ns: Some(client_ns), work: 640.0, seconds: 1.0, p99_us: None };
        assert!(not_stalled(sample(17_000_000, 20_000_000)).is_err());
        assert!(not_stalled(sample(17_000_000, 200_000_000)).is_ok());
        assert!(not_stalled(sample(200_000_000, 20_000_000)).is_ok());
    }

    #[test]
    fn tls_is_named_only_where_there_was_some() {
        let said = "TLS Protocol: TLSv1.3\nCipher: TLS_AES_128_GCM_SHA256\nServer Temp Key: X25519 253 bits\n";
        assert_eq!(agreed_tls(said).as_deref(), Some("TLSv1.3 TLS_AES_128_GCM_SHA256 X25519 253 bits"));
        assert_eq!(agreed_tls("requests: 1 total"), None);
    }
}
