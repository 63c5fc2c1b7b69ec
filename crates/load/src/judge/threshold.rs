//! What a run must meet: `p99<20ms`, `errors<0.1%`, `rate>=1000`.
//!
//! ```text
//! requirement = figure comparison value
//! comparison  = "<" | "<=" | ">" | ">="
//! figure      = [ times "." ] ( "p" NUMBER | "mean" | "min" | "max" )      a time: 20ms
//!             | "errors" | "failures" | "4xx" | "5xx"                      a share: 0.1 %, or a count: 10
//!             | "rate" | "responses"                                       a number: 1000, 10k
//!             | "throughput"                                               bytes a second: 100MB, 100MiB
//! times       = "response" | "service" | "lag" | "resolve" | "connect" | "tls" | "wait" | "transfer"
//! ```
//!
//! Times without a name are response times, from the intended start. Errors are failures, 4xx and 5xx together.

use crate::plan::quantity::{parse_number, parse_time_ns, split_unit};
use crate::record::{Counts, Hdr, Recorder};
use serde::{Deserialize, Serialize};

/// Which times a requirement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Response,
    Service,
    Lag,
    Resolve,
    Connect,
    Tls,
    Wait,
    Transfer,
}

/// Names of times.
const TIMES: [(&str, Times); 8] = [
    ("response", Times::Response),
    ("service", Times::Service),
    ("lag", Times::Lag),
    ("resolve", Times::Resolve),
    ("connect", Times::Connect),
    ("tls", Times::Tls),
    ("wait", Times::Wait),
    ("transfer", Times::Transfer),
];

/// Which figure of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    /// A percentile, as the share above 0 and up to 1.
    Percentile(f64),
    Mean,
    Min,
    Max,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Time(Times, Statistic),
    Errors,
    Failures,
    ClientErrors,
    ServerErrors,
    Rate,
    Responses,
    Throughput,
}

/// Names of figures that are not times.
const FIGURES: [(&str, Figure); 7] = [
    ("errors", Figure::Errors),
    ("failures", Figure::Failures),
    ("4xx", Figure::ClientErrors),
    ("5xx", Figure::ServerErrors),
    ("rate", Figure::Rate),
    ("responses", Figure::Responses),
    ("throughput", Figure::Throughput),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// Signs of comparisons, the longer ones first.
const COMPARISONS: [(&str, Comparison); 4] =
    [("<=", Comparison::AtMost), (">=", Comparison::AtLeast), ("<", Comparison::Below), (">", Comparison::Above)];

/// Units of bytes.
const BYTE_UNITS: [(&str, f64); 7] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];

/// The unit a value is given in, and found values are shown in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Nanoseconds,
    Percent,
    Count,
    PerSecond,
    BytesPerSecond,
}

/// A requirement. In JSON the text as given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Threshold {
    text: String,
    figure: Figure,
    comparison: Comparison,
    value: f64,
    unit: Unit,
}

/// Why a requirement cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for ThresholdError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}: {}", self.text, self.what)
    }
}

impl std::error::Error for ThresholdError {}

/// What came of a requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThresholdOutcome {
    /// The requirement, as given.
    pub text: String,
    /// Step it was judged on, from 0.
    pub step: u16,
    /// The value found, in the requirement's own unit, for people: `17.3 ms`. Absent when there is no such value.
    pub found: Option<String>,
    /// Whether it was met. A value that is not there is a requirement missed.
    pub met: bool,
}

impl Threshold {
    /// Reads a requirement.
    pub fn parse(text: &str) -> Result<Self, ThresholdError> {
        read(text).map_err(|what| ThresholdError { text: text.to_owned(), what })
    }

    /// Judges a finished record whose measured part lasted `elapsed_ns`.
    pub fn judge(&self, recorder: &Recorder, elapsed_ns: u64, step: u16) -> ThresholdOutcome {
        let value = self.find(recorder, elapsed_ns);
        let met = value.is_some_and(|value| match self.comparison {
            Comparison::Below => value < self.value,
            Comparison::AtMost => value <= self.value,
            Comparison::Above => value > self.value,
            Comparison::AtLeast => value >= self.value,
        });
        ThresholdOutcome { text: self.text.clone(), step, found: value.map(|value| self.show(value)), met }
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn find(&self, recorder: &Recorder, elapsed_ns: u64) -> Option<f64> {
        let counts = &recorder.counts;
        let of_requests = |count: u64| {
            let ended = counts.responses + counts.failures_total();
            match self.unit {
                Unit::Percent => (ended > 0).then(|| 100.0 * count as f64 / ended as f64),
                _ => Some(count as f64),
            }
        };
        let per_second = |count: u64| (elapsed_ns > 0).then(|| count as f64 * 1e9 / elapsed_ns as f64);
        match self.figure {
            Figure::Time(times, statistic) => find_time(histogram_of(recorder, times), statistic),
            Figure::Errors => of_requests(errors(counts)),
            Figure::Failures => of_requests(counts.failures_total()),
            Figure::ClientErrors => of_requests(counts.status_classes[3]),
            Figure::ServerErrors => of_requests(counts.status_classes[4]),
            Figure::Rate => per_second(counts.responses),
            Figure::Responses => Some(counts.responses as f64),
            Figure::Throughput => per_second(counts.bytes_in()),
        }
    }

    fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Nanoseconds => show_time(value),
            Unit::Percent => format!("{value:.3} %"),
            Unit::Count => format!("{value:.0}"),
            Unit::PerSecond => format!("{value:.1}/s"),
            Unit::BytesPerSecond => format!("{:.3} MB/s", value / 1e6),
        }
    }
}

fn errors(counts: &Counts) -> u64 {
    counts.failures_total() + counts.status_errors()
}

fn histogram_of(recorder: &Recorder, times: Times) -> &Hdr {
    match times {
        Times::Response => &recorder.response,
        Times::Service => &recorder.service,
        Times::Lag => &recorder.lag,
        Times::Resolve => &recorder.phases.resolve,
        Times::Connect => &recorder.phases.connect,
        Times::Tls => &recorder.phases.tls,
        Times::Wait => &recorder.phases.wait,
        Times::Transfer => &recorder.phases.transfer,
    }
}

fn find_time(histogram: &Hdr, statistic: Statistic) -> Option<f64> {
    let histogram = Some(histogram.histogram()).filter(|histogram| !histogram.is_empty())?;
    Some(match statistic {
        Statistic::Percentile(share) => histogram.value_at_quantile(share) as f64,
        Statistic::Mean => histogram.mean(),
        Statistic::Min => histogram.min() as f64,
        Statistic::Max => histogram.max() as f64,
    })
}

fn show_time(value_ns: f64) -> String {
    match value_ns {
        value if value < 1e3 => format!("{value:.0} ns"),
        value if value < 1e6 => format!("{:.1} µs", value / 1e3),
        value if value < 1e9 => format!("{:.2} ms", value / 1e6),
        value => format!("{:.3} s", value / 1e9),
    }
}

fn read(text: &str) -> Result<Threshold, String> {
    let Some(at) = text.find(['<', '>', '=']) else {
        return Err("there is no comparison in it; write it as p99<20ms or errors<0.1%".to_owned());
    };
    let (name, rest) = text.split_at(at);
    let Some((sign, comparison)) = COMPARISONS.into_iter().find(|(sign, _)| rest.starts_with(sign)) else {
        return Err("compare with <, <=, > or >=".to_owned());
    };
    let figure = read_figure(name.trim())?;
    let value_text = rest[sign.len()..].trim();
    if value_text.is_empty() {
        return Err("there is nothing to compare with".to_owned());
    }
    let (value, unit) = read_value(figure, value_text)?;
    Ok(Threshold { text: text.to_owned(), figure, comparison, value, unit })
}

fn read_figure(name: &str) -> Result<Figure, String> {
    if let Some((_, figure)) = FIGURES.into_iter().find(|(known, _)| *known == name) {
        return Ok(figure);
    }
    let (times, statistic) = match name.split_once('.') {
        // The dot of p99.9 is none of a name.
        Some((times, statistic)) if !times.starts_with('p') => {
            let known = TIMES.into_iter().find(|(known, _)| *known == times);
            let names = TIMES.map(|(name, _)| name).join(", ");
            let (_, times) = known.ok_or_else(|| format!("no times are called {times:?}; there are {names}"))?;
            (times, statistic)
        }
        _ => (Times::Response, name),
    };
    let statistic = match statistic {
        "mean" => Statistic::Mean,
        "min" => Statistic::Min,
        "max" => Statistic::Max,
        _ => match statistic.strip_prefix('p').map(parse_percent) {
            Some(Ok(share)) if share > 0.0 && share <= 1.0 => Statistic::Percentile(share),
            Some(Ok(_)) => return Err(format!("{statistic:?} is no percentile; give p0.1 to p100")),
            _ => {
                let names = FIGURES.map(|(name, _)| name).join(", ");
                return Err(format!(
                    "no figure is called {statistic:?}; there are p50 and the like, mean, min, max, {names}"
                ));
            }
        },
    };
    Ok(Figure::Time(times, statistic))
}

/// A percentage as a share. The decimal point is moved in the text: 99.9 divided by 100 is a little more than 0.999, and
/// that little is another request.
fn parse_percent(text: &str) -> Result<f64, String> {
    parse_number(text)?;
    format!("{text}e-2").parse().map_err(|_| format!("{text:?} is not a number"))
}

fn read_value(figure: Figure, text: &str) -> Result<(f64, Unit), String> {
    match figure {
        Figure::Time(..) => Ok((parse_time_ns(text)?, Unit::Nanoseconds)),
        Figure::Errors | Figure::Failures | Figure::ClientErrors | Figure::ServerErrors => {
            let Some(percent) = text.strip_suffix('%') else { return Ok((parse_number(text)?, Unit::Count)) };
            let percent = parse_number(percent)?;
            if percent <= 100.0 { Ok((percent, Unit::Percent)) } else { Err(format!("{text} is more than everything")) }
        }
        Figure::Rate => Ok((parse_number(text.strip_suffix("/s").unwrap_or(text))?, Unit::PerSecond)),
        Figure::Responses => Ok((parse_number(text)?, Unit::Count)),
        Figure::Throughput => {
            let (value, unit) = split_unit(text.strip_suffix("/s").unwrap_or(text))?;
            let known = BYTE_UNITS.into_iter().find(|(known, _)| *known == unit);
            let (_, scale) =
                known.ok_or_else(|| format!("{unit:?} is no unit of bytes; use B, kB, MB, GB, KiB, MiB or GiB"))?;
            Ok((value * scale, Unit::BytesPerSecond))
        }
    }
}

impl TryFrom<String> for Threshold {
    type Error = ThresholdError;

    fn try_from(text: String) -> Result<Self, ThresholdError> {
        Self::parse(&text)
    }
}

impl From<Threshold> for String {
    fn from(threshold: Threshold) -> Self {
        threshold.text
    }
}

#[cfg(test)]
mod tests;
