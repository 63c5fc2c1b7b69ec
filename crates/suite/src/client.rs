//! Other load generators as clients: their command lines, and parsers of their output.
//!
//! Counts and costs are taken from them. Their response times are left out, because they are measured from the actual
//! start of a request and cannot be compared with those of `flatout bench`, which are measured from the intended start.

use flatout_lab::machine;
use flatout_load::failure::FailureKind;
use flatout_load::plan::{CookieUse, Plan, Stop};
use flatout_load::record::{Recorder, RecorderSettings};
use flatout_load::report::{
    ClientReport, Cpu, RunReport, SCHEMA, SCHEMA_VERSION, StepFacts, StepReport, Times, WarmUpReport,
};
use flatout_load::schedule::Tally;
use serde_json::Value;

/// More requests than `ab` can send in the time. Without `-n`, it stops after 50,000. It allocates 32 bytes for each
/// request.
const AB_REQUESTS_MAX: &str = "10000000";

flatout_reason::reasons! {
    /// A load generator other than `flatout bench`.
    pub enum ClientProgram { name, }
    /// `wrk`.
    Wrk, "wrk";
    /// `h2load`, which is part of nghttp2.
    H2load, "h2load";
    /// `ab`, which is part of Apache httpd.
    Ab, "ab";
    /// `oha`.
    Oha, "oha";
}

/// The status class under which unexpected responses count: load generators do not print their statuses.
const UNEXPECTED_CLASS: usize = 4;

/// The counts that a load generator reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientCounts {
    /// Complete responses.
    pub responses: u64,
    /// Responses whose status the load generator counts as a failure, which `responses` includes.
    pub unexpected: u64,
    /// Number of requests that failed. `h2load` does not tell whether these had a response.
    pub failures: u64,
    /// Bytes received; 0 if the load generator does not report them.
    pub bytes_in: u64,
    /// Duration of the load, in seconds.
    pub seconds: f64,
}

/// A run of a load generator, without its counts.
#[derive(Clone, Debug, Default)]
pub struct ClientRun {
    /// The command line.
    pub command: Vec<String>,
    /// The requested URL.
    pub url: String,
    /// Time at which the run started, in milliseconds since the epoch.
    pub begun_unix_ms: u64,
    /// CPU time of the load generator, in nanoseconds.
    pub cpu_ns: u64,
    /// Number of cores that the load generator may use.
    pub cores: usize,
}

impl ClientProgram {
    /// Returns the Debian package, or crate, that contains the load generator.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Wrk => "the Debian package wrk",
            Self::H2load => "the Debian package nghttp2-client",
            Self::Ab => "the Debian package apache2-utils",
            Self::Oha => "`cargo install oha`",
        }
    }

    /// Returns the arguments with which the load generator prints its version.
    pub const fn version_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Wrk => &["-v"],
            Self::Ab => &["-V"],
            Self::H2load | Self::Oha => &["--version"],
        }
    }

    /// Returns the load generator with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|program| program.name() == name)
    }

    /// Returns the arguments of the load generator: those of the step, the duration and the URL. `wrk` and `ab` accept
    /// only whole seconds.
    pub fn arguments(self, own: &[String], seconds: f64, url: &str) -> Vec<String> {
        let whole = seconds.ceil().max(1.0) as u64;
        let added: Vec<String> = match self {
            Self::Wrk => vec![format!("-d{whole}s")],
            Self::H2load => vec![format!("--duration={}ms", (seconds * 1e3).round())],
            Self::Ab => ["-q", "-t", &whole.to_string(), "-n", AB_REQUESTS_MAX].map(str::to_owned).to_vec(),
            Self::Oha => {
                let time = format!("{}ms", (seconds * 1e3).round());
                ["--no-tui", "--output-format", "json", "-z", &time].map(str::to_owned).to_vec()
            }
        };
        own.iter().cloned().chain(added).chain([url.to_owned()]).collect()
    }

    /// Returns the number of threads, from the arguments or by default. `ab` has one thread.
    fn threads(self, arguments: &[String], cores: usize) -> usize {
        let given = |index: usize, word: &str| {
            let value = word.strip_prefix("--threads=").or_else(|| word.strip_prefix("-t"))?;
            if value.is_empty() { arguments.get(index + 1)?.parse().ok() } else { value.parse().ok() }
        };
        let given = || arguments.iter().enumerate().find_map(|(index, word)| given(index, word));
        match self {
            Self::Ab => 1,
            Self::Wrk => given().unwrap_or(2),
            Self::H2load => given().unwrap_or(1),
            Self::Oha => cores,
        }
    }

    /// Parses the counts in the output. `seconds` is the requested duration, for load generators that do not print
    /// theirs.
    ///
    /// # Errors
    /// Returns a description of what is missing in the output.
    pub fn counts(self, output: &str, seconds: f64) -> Result<ClientCounts, String> {
        let counts = match self {
            Self::Wrk => wrk_counts(output),
            Self::H2load => h2load_counts(output, seconds),
            Self::Ab => ab_counts(output),
            Self::Oha => oha_counts(output),
        };
        counts.ok_or_else(|| format!("the output of {} has no counts", self.name()))
    }

    /// Converts a run to a report like that of `flatout bench`, with counts, rates, costs, and the same criterion for
    /// saturation.
    ///
    /// # Errors
    /// Fails if memory for the recorder cannot be allocated.
    pub fn report(self, run: ClientRun, counts: ClientCounts) -> Result<RunReport, String> {
        let settings = RecorderSettings { classes: 1, start_ns: 0, measured_from_ns: 0 };
        let mut record = Recorder::new(settings).map_err(|error| error.to_string())?;
        record.counts.requests_begun = counts.responses.saturating_add(counts.failures);
        record.counts.requests_sent = record.counts.requests_begun;
        record.counts.responses = counts.responses;
        record.counts.unexpected_classes[UNEXPECTED_CLASS] = counts.unexpected;
        record.counts.body_bytes_in = counts.bytes_in;
        record.sums.response_bytes.sum = counts.bytes_in;
        record.counts.failures.0[FailureKind::Other.index()] = counts.failures;
        let elapsed_ns = (counts.seconds * 1e9) as u64;
        let threads = self.threads(&run.command, run.cores).clamp(1, run.cores.max(1));
        let client = ClientReport {
            cpu: Cpu { user_ns: run.cpu_ns, system_ns: 0 },
            cpu_ns_per_response: (record.counts.successes() > 0)
                .then(|| run.cpu_ns as f64 / record.counts.successes() as f64),
            busy_share: run.cpu_ns as f64 / (elapsed_ns.max(1) as f64 * threads as f64),
            loop_lag: Times::of(record.lag.clone()),
            busy_wait_ns: 0,
            wait_share: 0.0,
            held_back_share: None,
            stopped_ns: 0,
            crowded_share: Some(0.0),
            memory_bytes_peak: None,
            other_cpu_share: None,
            agents: Vec::new(),
        };
        let stop = Stop::After { duration_ns: elapsed_ns };
        let plan = Plan { connections: 0, cookies: CookieUse::Off, stop, ..Plan::default() };
        let facts = StepFacts {
            step: 0,
            plan,
            elapsed_ns,
            tally: Tally::default(),
            warm_up: WarmUpReport::default(),
            client,
            server: None,
            kernel: None,
            reconciliation: None,
            agents_lost: 0,
            counts_missing: None,
            stopped_early: None,
            interrupted: false,
            overload: false,
        };
        Ok(RunReport {
            schema: SCHEMA.to_owned(),
            schema_version: SCHEMA_VERSION,
            label: format!("{} {}", self.name(), run.url),
            flatout_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: run.command,
            begun_unix_ms: run.begun_unix_ms,
            url: run.url,
            address: String::new(),
            protocol: String::new(),
            workload: "one URL".to_owned(),
            seed: 0,
            request_timeout_ns: 0,
            threads: threads as u32,
            agents: 0,
            server_software: None,
            machine: machine::here(),
            class_names: Vec::new(),
            steps: vec![StepReport::of(record, facts)],
            limit: None,
            thresholds: Vec::new(),
            findings: serde_json::Map::new(),
        })
    }
}

/// Returns the first word after `prefix`, in a line that begins with it.
fn after<'t>(output: &'t str, prefix: &str) -> Option<&'t str> {
    output.lines().find_map(|line| line.trim_start().strip_prefix(prefix)?.split_whitespace().next())
}

/// Parses the output of `wrk`, which prints the duration with two digits, and the rate exactly.
fn wrk_counts(output: &str) -> Option<ClientCounts> {
    let line = output.lines().find(|line| line.contains(" requests in ") && line.ends_with(" read"))?;
    let mut words = line.split_whitespace();
    let responses: u64 = words.next()?.parse().ok()?;
    let bytes_in = wrk_bytes(words.rev().nth(1)?)?;
    let rate: f64 = after(output, "Requests/sec:")?.parse().ok()?;
    let errors = |line: &str| -> Option<u64> {
        let errors = line.split_once("Socket errors:")?.1;
        errors.split(',').map(|part| part.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    let socket: u64 = output.lines().find_map(errors).unwrap_or(0);
    let statuses: u64 = after(output, "Non-2xx or 3xx responses:").map_or(Some(0), |word| word.parse().ok())?;
    let seconds = if rate > 0.0 { responses as f64 / rate } else { 0.0 };
    Some(ClientCounts { responses, unexpected: statuses, failures: socket, bytes_in, seconds })
}

/// Parses a size as printed by `wrk`: `12.34MB`, in multiples of 1,024.
fn wrk_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "B" => 1.0,
        "KB" => 1024.0,
        "MB" => 1_048_576.0,
        "GB" => 1_073_741_824.0,
        "TB" => 1_099_511_627_776.0,
        _ => return None,
    };
    Some((digits.parse::<f64>().ok()? * factor) as u64)
}

/// Parses the line `requests: 9 total, 9 started, 9 done, 9 succeeded, 0 failed, 0 errored, 0 timeout`.
fn h2load_counts(output: &str, seconds: f64) -> Option<ClientCounts> {
    let line = output.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let of = |name: &str| -> Option<u64> {
        line.split(", ").find_map(|part| part.strip_suffix(name)).and_then(|number| number.trim().parse().ok())
    };
    let traffic = output.lines().find_map(|line| line.strip_prefix("traffic: "));
    let bytes_in = traffic.and_then(|line| line.split(['(', ')']).nth(1)?.parse().ok()).unwrap_or(0);
    // A failed request got a status of 4xx or 5xx, or no response at all.
    let failures = of(" failed")? + of(" timeout")?;
    Some(ClientCounts { responses: of(" succeeded")?, unexpected: 0, failures, bytes_in, seconds })
}

fn ab_counts(output: &str) -> Option<ClientCounts> {
    let number = |prefix: &str| -> Option<u64> { after(output, prefix)?.parse().ok() };
    // `ab` prints the line only if there are such responses.
    let statuses = number("Non-2xx responses:").unwrap_or(0);
    Some(ClientCounts {
        responses: number("Complete requests:")?,
        unexpected: statuses,
        failures: number("Failed requests:")?,
        bytes_in: number("Total transferred:").unwrap_or(0),
        seconds: after(output, "Time taken for tests:")?.parse().ok()?,
    })
}

/// The error text of requests that were in progress at the end. Every connection has one.
const OHA_DEADLINE: &str = "aborted due to deadline";

fn oha_counts(output: &str) -> Option<ClientCounts> {
    let value: Value = serde_json::from_str(output.get(output.find('{')?..)?).ok()?;
    let sum = |name: &str, is_counted: &dyn Fn(&str) -> bool| -> u64 {
        let entries = value.get(name).and_then(Value::as_object).into_iter().flatten();
        entries.filter(|(key, _)| is_counted(key)).filter_map(|(_, count)| count.as_u64()).sum()
    };
    let summary = value.get("summary")?;
    Some(ClientCounts {
        responses: sum("statusCodeDistribution", &|_| true),
        unexpected: sum("statusCodeDistribution", &|status| status.starts_with(['4', '5'])),
        failures: sum("errorDistribution", &|error| error != OHA_DEADLINE),
        bytes_in: summary.get("totalData").and_then(Value::as_u64).unwrap_or(0),
        seconds: summary.get("total")?.as_f64()?,
    })
}

#[cfg(test)]
mod tests;
