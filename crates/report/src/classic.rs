//! The classic text reports, computed from the lab's record: the layouts of httperf, WebStone, ptester, wrk and
//! autobench, with their formulas.
//!
//! Every line of the original is present, so parsers of the originals work. Where an original computes something
//! wrongly, the right figure takes its place, and a line beginning with `#` below the report says so.

mod autobench;
mod httperf;
mod ptester;
mod webstone;
mod wrk;

use flatout_http::url::Url;
use flatout_load::record::Recorder;
use flatout_load::report::{RunReport, StepReport};
use std::fmt::Write as _;

/// A classic report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classic {
    /// httperf 0.9, one report per step.
    Httperf,
    /// WebStone 2.0, one report per step.
    Webstone,
    /// ptester of phttpd, one report per step.
    Ptester,
    /// wrk 4, one report per step.
    Wrk,
    /// autobench 2.1, one row per step.
    Autobench,
}

impl Classic {
    /// All reports.
    pub const ALL: [Self; 5] = [Self::Httperf, Self::Webstone, Self::Ptester, Self::Wrk, Self::Autobench];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Httperf => "httperf",
            Self::Webstone => "webstone",
            Self::Ptester => "ptester",
            Self::Wrk => "wrk",
            Self::Autobench => "autobench",
        }
    }

    /// Parses its name on the command line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|view| view.name() == text);
        found.ok_or_else(|| {
            format!("there is no view called {text:?}; known are {}", Self::ALL.map(Self::name).join(", "))
        })
    }

    /// The report in the original's layout, with notes below.
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

/// The report of every step, after a comment line with its number if there are several.
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

/// Lines that no original prints: late requests, and invalid figures.
fn add_verdict(text: &mut String, step: &StepReport) {
    let requests = &step.requests;
    if requests.late > 0 {
        note(
            text,
            &format!(
                "In time {}, late {}: {}. Rates of replies are of those in time.",
                requests.in_time,
                requests.late,
                super::verdict::lateness(step)
            ),
        );
    }
    if !step.invalid.is_empty() {
        note(
            text,
            &format!(
                "{}: {}.",
                if step.has_sound() { "NOT ALL HOLDS" } else { "INVALID" },
                super::verdict::worth(step)
            ),
        );
    }
    for invalid in &step.invalid {
        note(text, &format!("{}: {}", invalid.reason.name(), invalid.text));
    }
}

/// A line below the report.
fn note(text: &mut String, words: &str) {
    let _ = writeln!(text, "# {words}");
}

/// Length of the measured part in seconds; never 0, so that rates are numbers.
fn seconds(step: &StepReport) -> f64 {
    (step.elapsed_ns.max(1)) as f64 / 1e9
}

/// Connections as an option of the originals: the requested number in a closed loop, the peak in an open one.
fn connections(step: &StepReport) -> u64 {
    if step.plan.is_open() { step.record.connections.peak } else { u64::from(step.offered.connections) }
}

fn ms(value_ns: f64) -> f64 {
    value_ns / 1e6
}

/// A quotient, or 0 if the divisor is 0.
fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { 0.0 }
}

/// Replies per second over each whole interval of five seconds, as httperf samples them, after the interval used.
fn reply_rates(record: &Recorder, elapsed_ns: u64) -> (u64, Vec<f64>) {
    let from_ns = record.measured_from_ns;
    record.series.reply_rates(5, from_ns, from_ns.saturating_add(elapsed_ns))
}

/// Minimum, mean, maximum and sample standard deviation; zeros without samples.
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

/// The report's URL, with the brackets of an IPv6 address; that of an unknown server if it is not a URL.
fn parse_url(report: &RunReport) -> Url {
    match Url::parse_lenient(&report.url) {
        Ok(url) if url.host.contains(':') => Url { host: format!("[{}]", url.host), ..url },
        Ok(url) => url,
        Err(_) => Url { secure: false, host: String::new(), port: 80, target: "/".to_owned() },
    }
}

#[cfg(test)]
mod tests;
