//! The classic text reports, computed from the lab's record: the layouts of httperf, WebStone, ptester, wrk and
//! autobench, with their formulas.
//!
//! Every line of the original report is present, so parsers written for the original work. If the original computes a
//! figure wrongly, the correct figure is shown instead, and a line that begins with `#` below the report says so.

mod autobench;
mod httperf;
mod ptester;
mod webstone;
mod wrk;

use flatout_http::url::Url;
use flatout_load::record::Recorder;
use flatout_load::report::{RunReport, StepReport};
use std::fmt::Write as _;

flatout_reason::reasons! {
    /// A classic report, in the format of another tool.
    pub enum Classic { name, }
    /// httperf 0.9, one report per step.
    Httperf, "httperf";
    /// WebStone 2.0, one report per step.
    Webstone, "webstone";
    /// ptester of phttpd, one report per step.
    Ptester, "ptester";
    /// wrk 4, one report per step.
    Wrk, "wrk";
    /// autobench 2.1, one row per step.
    Autobench, "autobench";
}

impl Classic {
    /// Parses the report's name on the command line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|view| view.name() == text);
        found.ok_or_else(|| format!("there is no view called {text:?}; use one of {}", Self::NAMES.join(", ")))
    }

    /// Returns the report in the original's format, with notes below.
    pub fn print(self, report: &RunReport) -> String {
        match self {
            Self::Httperf => each_step(report, httperf::print),
            Self::Webstone => each_step(report, webstone::print),
            Self::Ptester => each_step(report, ptester::print),
            Self::Wrk => each_step(report, wrk::print),
            Self::Autobench => autobench::print(report),
        }
    }
}

/// Returns the reports of all steps. If there are several steps, each report follows a comment line with the number of
/// the step.
fn each_step(report: &RunReport, print: fn(&RunReport, &StepReport) -> String) -> String {
    let mut text = String::new();
    for step in &report.steps {
        if report.steps.len() > 1 {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(
                text,
                "{}# step {} of {}",
                if text.is_empty() { "" } else { "\n" },
                step.step + 1,
                report.steps.len()
            );
        }
        text.push_str(&print(report, step));
        add_verdict(&mut text, step);
    }
    text
}

/// Adds lines that no original prints: about late requests, and about invalid figures.
fn add_verdict(text: &mut String, step: &StepReport) {
    let requests = &step.requests;
    if let Some(covered) = super::verdict::unanswered(step) {
        note(text, &format!("Times are {covered}."));
    }
    if requests.late > 0 {
        note(
            text,
            &format!(
                "In time {}, late {}: {}. Reply rates count those in time.",
                requests.in_time,
                requests.late,
                super::verdict::lateness(step)
            ),
        );
    }
    for failing in &step.failing {
        note(text, &format!("FAILED: {}", failing.text));
    }
    if !step.invalid.is_empty() {
        note(
            text,
            &format!(
                "{}: {}.",
                if step.has_sound() { "NOT ALL VALID" } else { "INVALID" },
                super::verdict::worth(step)
            ),
        );
    }
    for invalid in &step.invalid {
        note(text, &format!("{}: {}", invalid.reason.name(), invalid.text));
    }
}

/// Adds a note below the report.
fn note(text: &mut String, words: &str) {
    let _ = writeln!(text, "# {words}");
}

/// Returns the length of the measured span in seconds. It is never 0, so that rates are numbers.
fn seconds(step: &StepReport) -> f64 {
    (step.elapsed_ns.max(1)) as f64 / 1e9
}

/// Returns the number of connections for the original's option: the requested number in a closed loop, the peak in an
/// open loop.
fn connections(step: &StepReport) -> u64 {
    if step.plan.is_open() { step.record.connections.peak } else { u64::from(step.offered.connections) }
}

fn ms(value_ns: f64) -> f64 {
    value_ns / 1e6
}

/// Returns the quotient, or 0 if the divisor is 0.
fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { 0.0 }
}

/// Returns the interval used, and the replies per second in each whole interval. The interval is five seconds, as in
/// httperf, unless the series has a longer step.
fn reply_rates(record: &Recorder, elapsed_ns: u64) -> (u64, Vec<f64>) {
    let from_ns = record.measured_from_ns;
    record.series.reply_rates(5, from_ns, from_ns.saturating_add(elapsed_ns))
}

/// Returns minimum, mean, maximum and sample standard deviation; zeros without samples.
fn spread(samples: &[f64]) -> (f64, f64, f64, f64) {
    if samples.is_empty() {
        return (0.0, 0.0, 0.0, 0.0);
    }
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let max = samples.iter().copied().fold(0.0, f64::max);
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (min, mean, max, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// Returns the report's URL, with the brackets of an IPv6 address. If the report has no valid URL, returns that of an
/// unknown server.
fn parse_url(report: &RunReport) -> Url {
    match Url::parse_lenient(&report.url) {
        Ok(url) if url.host.contains(':') => Url { host: format!("[{}]", url.host), ..url },
        Ok(url) => url,
        Err(_) => Url { secure: false, host: String::new(), port: 80, target: "/".to_owned() },
    }
}

#[cfg(test)]
mod tests;
