//! One measurement: a separate `flatout bench` or another client, which runs on the client's cores and in the client's
//! network.

use super::StopRequest;
use crate::bundle::{RunFiles, write_whole};
use crate::client::{ClientProgram, ClientRun};
use crate::document::Why;
use crate::server::instance::{spawn_pinned, tail};
use crate::server::{Instance, group};
use crate::why::Reason;
use flatout_lab::cpu::CpuReading;
use flatout_load::report::RunReport;
use flatout_os::clock;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Interval at which a running bench is polled.
const LOOK: Duration = Duration::from_millis(20);

/// Multiple of its expected duration after which a bench is stopped. It is large because searches take long.
const TIMEOUT_TIMES: f64 = 20.0;
const TIMEOUT_S: f64 = 600.0;

/// Timeout for a stopped bench to exit.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The parameters of a measurement.
#[derive(Debug)]
pub(super) struct Measurement<'m> {
    /// The program and its arguments, after the words that select the namespace.
    pub(super) command: Vec<String>,
    /// The files that the results are written to.
    pub(super) files: &'m RunFiles,
    /// Cores of the client.
    pub(super) cores: &'m [usize],
    /// Expected duration of the measurement, in seconds.
    pub(super) expected_s: f64,
    /// The client; `None` for `flatout bench`.
    pub(super) client: Option<ForeignClient<'m>>,
}

/// A client other than `flatout bench`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForeignClient<'m> {
    /// The load generator.
    pub(super) program: ClientProgram,
    /// The requested URL.
    pub(super) url: &'m str,
    /// The requested duration, in seconds.
    pub(super) seconds: f64,
    /// Number of cores that the client may use.
    pub(super) cores: usize,
}

/// The outcome of a measurement.
#[derive(Debug)]
pub(super) enum Ending {
    /// There is a result, which may be invalid.
    Report(Box<RunReport>),
    /// A server exited during the measurement. Contains the index of the server.
    Died(usize),
    /// The suite was requested to stop.
    Stopped,
    /// The measurement failed for this reason.
    Failed(Why),
}

/// Makes a measurement. `servers` are the servers that must not exit during the measurement. Calls `started` with the
/// process ID of the client.
pub(super) fn measure(
    measurement: &Measurement<'_>,
    servers: &mut [&mut Instance],
    stop: &StopRequest,
    started: impl FnOnce(u32),
) -> Ending {
    let failed = |text: String| Ending::Failed(Reason::BenchFailed.why(text));
    let Measurement { command: words, files, cores, expected_s, client } = measurement;
    let Some((program, arguments)) = words.split_first() else { return failed("no program".to_owned()) };
    // A file left over from an earlier run must not be mistaken for the result of this run.
    match fs::remove_file(&files.part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return failed(format!("{}: {error}", files.part.display()));
        }
        _ => {}
    }
    let outputs = files.said.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        let out = File::create(&files.said)?;
        Ok((out.try_clone()?, out))
    });
    let (out, err) = match outputs {
        Ok(outputs) => outputs,
        Err(error) => return failed(format!("{}: {error}", files.said.display())),
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err).env("NO_COLOR", "1");
    let mut child = match spawn_pinned(&mut command, cores) {
        Ok(child) => child,
        Err(error) => return failed(format!("{}: {error}", words.join(" "))),
    };
    started(child.id());
    let timeout = Duration::from_secs_f64(expected_s * TIMEOUT_TIMES + TIMEOUT_S);
    let (begun, begun_unix_ms) = (Instant::now(), clock::unix_ms().unsigned_abs());
    let mut cpu_ns = 0;
    let status = loop {
        if client.is_some() && has_ended(&child) {
            // The kernel keeps the CPU time of an exited child until the child is waited for.
            cpu_ns = CpuReading::of([child.id()]).used_since(&CpuReading::default());
        }
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return failed(error.to_string()),
        }
        if stop.is_asked() {
            end(&mut child);
            return Ending::Stopped;
        }
        if let Some(dead) = servers.iter_mut().position(|server| !server.is_running()) {
            end(&mut child);
            return Ending::Died(dead);
        }
        if begun.elapsed() > timeout {
            end(&mut child);
            let seconds = timeout.as_secs();
            return Ending::Failed(Reason::BenchHung.why(format!("the bench did not finish within {seconds} s")));
        }
        std::thread::sleep(LOOK);
    };
    // A server that exited at the last moment also invalidates the result.
    if let Some(dead) = servers.iter_mut().position(|server| !server.is_running()) {
        return Ending::Died(dead);
    }
    if stop.is_asked() {
        return Ending::Stopped;
    }
    if let Some(client) = client.filter(|_| status.success()) {
        let run = ClientRun {
            command: words.clone(),
            url: client.url.to_owned(),
            begun_unix_ms,
            cpu_ns,
            cores: client.cores,
        };
        if let Err(text) = keep_foreign(client, run, files) {
            return failed(text);
        }
    }
    if let Ok(report) = flatout_report::bundle::read(&files.part) {
        return Ending::Report(Box::new(report));
    }
    let said = tail(&files.said).join("; ");
    let said = if said.is_empty() { "it printed nothing".to_owned() } else { said };
    let client = client.map_or("the bench", |client| client.program.name());
    failed(format!("{client} exited without a result ({status}): {said}"))
}

/// Converts the output of another client to a result, and writes the result.
fn keep_foreign(client: ForeignClient<'_>, run: ClientRun, files: &RunFiles) -> Result<(), String> {
    let output = fs::read(&files.said).map_err(|error| format!("{}: {error}", files.said.display()))?;
    let counts = client.program.counts(&String::from_utf8_lossy(&output), client.seconds)?;
    if counts.responses == 0 {
        return Err(format!("{} received no response", client.program.name()));
    }
    let report = client.program.report(run, counts)?;
    let text = serde_json::to_string(&report).map_err(|error| error.to_string())?;
    write_whole(&files.part, text.as_bytes()).map_err(|error| format!("{}: {error}", files.part.display()))
}

/// Returns whether a child has exited. Does not wait for the child, so that the kernel keeps its CPU time.
fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(Pid::from_child(child)), options), Ok(Some(_)))
}

/// Stops a bench, by SIGKILL if necessary.
fn end(child: &mut Child) {
    let members = BTreeSet::from([child.id()]);
    group::signal(0, &members, 15);
    let begun = Instant::now();
    while begun.elapsed() < END_TIMEOUT {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(LOOK);
    }
    // The kernel refuses this only if the process has exited.
    let _killed = child.kill();
    let _ended = child.wait();
}

/// Returns the arguments of a bench: first those that the engine sets, then those of the step. With `quick_s`, this
/// duration replaces the step's own.
pub(crate) fn words(url: &str, part: &Path, seconds: f64, quick_s: Option<f64>, step: &[String]) -> Vec<String> {
    let mut words: Vec<String> = ["bench", url, "--no-tui", "--json"].map(str::to_owned).to_vec();
    words.push(part.display().to_string());
    let mut own = step.to_vec();
    let time = |seconds: f64| format!("{}ms", (seconds * 1e3).round());
    if let Some(quick_s) = quick_s {
        for index in 0..own.len() {
            match own[index].as_str() {
                "-d" | "--duration" if index + 1 < own.len() => own[index + 1] = time(quick_s),
                text if text.starts_with("--duration=") => own[index] = format!("--duration={}", time(quick_s)),
                _ => {}
            }
        }
    }
    if !has_end(&own) {
        words.extend(["--duration".to_owned(), time(quick_s.unwrap_or(seconds))]);
    }
    words.extend(own);
    words
}

/// Returns whether the arguments specify a duration or a number of requests.
fn has_end(words: &[String]) -> bool {
    words.iter().any(|word| {
        let name = word.split('=').next().unwrap_or("");
        matches!(name, "-d" | "--duration" | "-n" | "--requests") || (name == "--arrivals" && word.contains('@'))
    })
}

#[cfg(test)]
mod tests {
    use super::words;
    use std::path::Path;

    #[test]
    fn the_time_is_the_suites_unless_the_step_has_its_own() {
        let made = |quick, step: &[&str]| {
            let step: Vec<String> = step.iter().map(|word| (*word).to_owned()).collect();
            words("http://x/", Path::new("r.part"), 3.0, quick, &step)[5..].join(" ")
        };
        assert_eq!(made(None, &["-c", "5"]), "--duration 3000ms -c 5");
        assert_eq!(made(Some(0.25), &["-c", "5"]), "--duration 250ms -c 5");
        assert_eq!(made(None, &["--duration", "2m"]), "--duration 2m");
        assert_eq!(made(Some(0.25), &["--duration", "2m"]), "--duration 250ms");
        assert_eq!(made(Some(0.25), &["--duration=2m"]), "--duration=250ms");
        assert_eq!(made(Some(0.25), &["-n", "100"]), "-n 100");
    }
}
