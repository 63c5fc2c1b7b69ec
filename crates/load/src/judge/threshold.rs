//! Requirements on a run: `p99<20ms`, `errors<0.1%`, `rate>=1000`.
//!
//! ```text
//! requirement = figure comparison value
//! comparison  = "<" | "<=" | ">" | ">="
//! figure      = [ times "." ] ( "p" NUMBER | "mean" | "min" | "max" )      a time: 20ms
//!             | "errors" | "failures" | "4xx" | "5xx"                      a share: 0.1 %, or a count: 10
//!             | "rate" | "responses"                                       a number: 1000, 10k
//!             | "throughput"                                               bytes per second: 100MB, 100MiB
//! times       = "response" | "service" | "lag" | "resolve" | "connect" | "tls" | "wait" | "transfer"
//! ```
//!
//! A time without a prefix is a response time, measured from the intended start. Times, rates and numbers of responses
//! are those of successful responses; rates count those within the measured span. Errors are failures and responses
//! with an unexpected status together; `4xx` and `5xx` are unexpected statuses of these classes. In percentiles and the
//! maximum, a request without a response counts as slower than every other request. A requirement on a mean fails if a
//! request had no response, unless a requirement on errors or failures permits it and is met.

use super::failing::Finding;
use super::figures::{Figure, FigureVerdict, Soundness};
use super::validity::InvalidReason;
use crate::plan::quantity::{parse_number, parse_time_ns};
use crate::record::{Hdr, Recorder};
use crate::report::percentiles::quantile_ns;
use flatout_units::quantity::parse_size;
use serde::{Deserialize, Serialize};

/// The kind of times that a requirement refers to.
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

/// Names of the kinds of times.
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

/// A statistic of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    /// A percentile as a share: above 0, at most 1.
    Percentile(f64),
    Mean,
    Min,
    Max,
}

/// The figure that a requirement refers to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RequiredFigure {
    Time(Times, Statistic),
    Errors,
    Failures,
    ClientErrors,
    ServerErrors,
    Rate,
    Responses,
    Throughput,
}

/// Names of the figures that are not times.
const FIGURES: [(&str, RequiredFigure); 7] = [
    ("errors", RequiredFigure::Errors),
    ("failures", RequiredFigure::Failures),
    ("4xx", RequiredFigure::ClientErrors),
    ("5xx", RequiredFigure::ServerErrors),
    ("rate", RequiredFigure::Rate),
    ("responses", RequiredFigure::Responses),
    ("throughput", RequiredFigure::Throughput),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// Comparison operators. Longer ones come first, so that `<=` is not read as `<`.
const COMPARISONS: [(&str, Comparison); 4] =
    [("<=", Comparison::AtMost), (">=", Comparison::AtLeast), ("<", Comparison::Below), (">", Comparison::Above)];

/// Unit of a required value. The measured value is shown in the same unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Nanoseconds,
    Percent,
    Count,
    PerSecond,
    BytesPerSecond,
}

/// A requirement on a run. In JSON it is the text as given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Threshold {
    text: String,
    figure: RequiredFigure,
    comparison: Comparison,
    value: f64,
    unit: Unit,
}

/// The reason a string could not be parsed as a requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {what}")]
pub struct ThresholdError {
    /// The requirement as it was written.
    pub text: String,
    /// The reason it could not be parsed.
    pub what: String,
}

/// The result of evaluating a requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThresholdOutcome {
    /// The requirement as given.
    pub text: String,
    /// The step on which it was evaluated, from 0.
    pub step: u16,
    /// The measured value for users, in the requirement's unit: `17.3 ms`. `None` if there is no value.
    pub found: Option<String>,
    /// True if the requirement was met. It is not met if there is no value.
    pub met: bool,
    /// Reasons why the result is uncertain: the figure is not valid, and its bound does not decide the requirement.
    #[serde(default)]
    pub unsound: Vec<InvalidReason>,
}

/// The data about a step on which requirements are evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The step's finished record.
    pub record: &'a Recorder,
    /// Length of the measured span in nanoseconds.
    pub elapsed_ns: u64,
    /// Number of requests that were due but not started.
    pub never_begun: u64,
    /// Index of the step, from 0.
    pub step: u16,
    /// True if another requirement permits the failed requests; a mean then covers only the other requests.
    pub failures_allowed: bool,
}

impl Threshold {
    /// Parses a requirement.
    pub fn parse(text: &str) -> Result<Self, ThresholdError> {
        read(text).map_err(|what| ThresholdError { text: text.to_owned(), what })
    }

    /// Evaluates the requirement on a finished step. `verdict` returns the validity of a figure.
    pub fn judge(&self, judged: &Judged<'_>, verdict: impl Fn(Figure) -> FigureVerdict) -> ThresholdOutcome {
        let value = self.find(judged);
        let met = value.is_some_and(|value| match self.comparison {
            Comparison::Below => value < self.value,
            Comparison::AtMost => value <= self.value,
            Comparison::Above => value > self.value,
            Comparison::AtLeast => value >= self.value,
        });
        let wants_less = matches!(self.comparison, Comparison::Below | Comparison::AtMost);
        let FigureVerdict { soundness, reasons, .. } = self.figure().map(verdict).unwrap_or_default();
        let decides = match soundness {
            // A request without a response is slower than any bound, unless the client is the reason that it has none.
            _ if value.is_some_and(f64::is_infinite) && !reasons.contains(&InvalidReason::ClientStarved) => true,
            Soundness::Sound => true,
            Soundness::AtMost => wants_less == met,
            Soundness::AtLeast => wants_less != met,
            Soundness::Unknown => false,
        };
        let unsound = if decides { Vec::new() } else { reasons };
        let counts = &judged.record.counts;
        let found = match value {
            Some(value) => Some(self.show(value, judged)),
            None if counts.ended() > 0 && counts.successes() == 0 => Some("no request succeeded".to_owned()),
            None => None,
        };
        ThresholdOutcome { text: self.text.clone(), step: judged.step, found, met, unsound }
    }

    /// Returns the figure whose validity applies; `None` for lag, which is itself an input to verdicts.
    fn figure(&self) -> Option<Figure> {
        match self.figure {
            RequiredFigure::Time(Times::Lag, _) => None,
            RequiredFigure::Time(_, Statistic::Mean | Statistic::Min) => Some(Figure::Median),
            RequiredFigure::Time(_, Statistic::Percentile(share)) if share <= 0.5 => Some(Figure::Median),
            RequiredFigure::Time(..) => Some(Figure::Tail),
            RequiredFigure::Rate | RequiredFigure::Throughput => Some(Figure::Rate),
            _ => Some(Figure::Counts),
        }
    }

    /// Returns whether the requirement limits the number of requests that fail in this way.
    pub fn allows(&self, finding: Finding) -> bool {
        let is_failure = matches!(finding, Finding::RequestsFailed | Finding::BodiesShort);
        match self.figure {
            RequiredFigure::Errors => {
                is_failure || matches!(finding, Finding::ClientErrors | Finding::ServerErrors | Finding::OtherStatuses)
            }
            RequiredFigure::Failures => is_failure,
            RequiredFigure::ClientErrors => finding == Finding::ClientErrors,
            RequiredFigure::ServerErrors => finding == Finding::ServerErrors,
            _ => false,
        }
    }

    /// Returns whether the requirement limits the number of failed requests.
    pub const fn bounds_failures(&self) -> bool {
        matches!(self.figure, RequiredFigure::Errors | RequiredFigure::Failures)
    }

    /// Returns whether the requirement limits the number of requests that failed or got an unexpected status.
    pub const fn bounds_errors(&self) -> bool {
        matches!((self.figure, self.comparison), (RequiredFigure::Errors, Comparison::Below | Comparison::AtMost))
    }

    /// The requirement as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn find(&self, judged: &Judged<'_>) -> Option<f64> {
        let (recorder, counts) = (judged.record, &judged.record.counts);
        let of_requests = |count: u64| {
            let ended = counts.ended();
            match self.unit {
                Unit::Percent => (ended > 0).then(|| 100.0 * count as f64 / ended as f64),
                _ => Some(count as f64),
            }
        };
        let per_second = |count: u64| (judged.elapsed_ns > 0).then(|| count as f64 * 1e9 / judged.elapsed_ns as f64);
        match self.figure {
            RequiredFigure::Time(times, statistic) => {
                let unanswered = match statistic {
                    Statistic::Mean if judged.failures_allowed => {
                        unanswered(judged, times).saturating_sub(counts.failures_total())
                    }
                    _ => unanswered(judged, times),
                };
                find_time(histogram_of(recorder, times), statistic, unanswered)
            }
            RequiredFigure::Errors => of_requests(counts.errors()),
            RequiredFigure::Failures => of_requests(counts.failures_total()),
            RequiredFigure::ClientErrors => of_requests(counts.unexpected_classes[3]),
            RequiredFigure::ServerErrors => of_requests(counts.unexpected_classes[4]),
            RequiredFigure::Rate => per_second(recorder.responses_in_time()),
            RequiredFigure::Responses => Some(counts.successes() as f64),
            RequiredFigure::Throughput => per_second(recorder.bytes_in_time()),
        }
    }

    fn show(&self, value: f64, judged: &Judged<'_>) -> String {
        match (self.unit, self.figure) {
            (Unit::Nanoseconds, RequiredFigure::Time(times, _)) if value.is_infinite() => {
                let unanswered = unanswered(judged, times);
                let all = unanswered + histogram_of(judged.record, times).histogram().len();
                format!("{unanswered} of {all} requests never got a response")
            }
            (Unit::Nanoseconds, _) => show_time(value),
            (Unit::Percent, _) => format!("{value:.3} %"),
            (Unit::Count, _) => format!("{value:.0}"),
            (Unit::PerSecond, _) => format!("{value:.1}/s"),
            (Unit::BytesPerSecond, _) => format!("{:.3} MB/s", value / 1e6),
        }
    }
}

/// Returns the number of requests that have no time of this kind because they got no response. They count as slower
/// than every other request.
fn unanswered(judged: &Judged<'_>, times: Times) -> u64 {
    let failures = judged.record.counts.failures_total();
    match times {
        Times::Response => failures + judged.never_begun,
        Times::Service | Times::Wait | Times::Transfer => failures,
        Times::Lag => judged.never_begun,
        Times::Resolve | Times::Connect | Times::Tls => 0,
    }
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

fn find_time(histogram: &Hdr, statistic: Statistic, unanswered: u64) -> Option<f64> {
    let histogram = histogram.histogram();
    if histogram.is_empty() && unanswered == 0 {
        return None;
    }
    let at = |share: f64| quantile_ns(&histogram, share, unanswered).map_or(f64::INFINITY, |value_ns| value_ns as f64);
    Some(match statistic {
        Statistic::Percentile(share) => at(share),
        Statistic::Max => at(1.0),
        // One infinitely slow request makes the mean infinite.
        Statistic::Mean if unanswered > 0 || histogram.is_empty() => f64::INFINITY,
        Statistic::Mean => histogram.mean(),
        Statistic::Min if histogram.is_empty() => f64::INFINITY,
        Statistic::Min => histogram.min() as f64,
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
        return Err("it has no comparison; write it as p99<20ms or errors<0.1%".to_owned());
    };
    let (name, rest) = text.split_at(at);
    let Some((sign, comparison)) = COMPARISONS.into_iter().find(|(sign, _)| rest.starts_with(sign)) else {
        return Err("compare with <, <=, > or >=".to_owned());
    };
    let figure = read_figure(name.trim())?;
    let value_text = rest[sign.len()..].trim();
    if value_text.is_empty() {
        return Err("the value to compare with is missing".to_owned());
    }
    let (value, unit) = read_value(figure, value_text)?;
    Ok(Threshold { text: text.to_owned(), figure, comparison, value, unit })
}

fn read_figure(name: &str) -> Result<RequiredFigure, String> {
    if let Some((_, figure)) = FIGURES.into_iter().find(|(known, _)| *known == name) {
        return Ok(figure);
    }
    let (times, statistic) = match name.split_once('.') {
        // The dot of p99.9 does not separate a name.
        Some((times, statistic)) if !times.starts_with('p') => {
            let known = TIMES.into_iter().find(|(known, _)| *known == times);
            let names = TIMES.map(|(name, _)| name).join(", ");
            let (_, times) = known.ok_or_else(|| format!("there are no times called {times:?}; use one of {names}"))?;
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
            Some(Ok(_)) => return Err(format!("{statistic:?} is not a percentile; use p0.1 to p100")),
            _ => {
                let names = FIGURES.map(|(name, _)| name).join(", ");
                return Err(format!(
                    "there is no figure called {statistic:?}; use a percentile such as p50, or mean, min, max, {names}"
                ));
            }
        },
    };
    Ok(RequiredFigure::Time(times, statistic))
}

/// Parses a percentage as a share by moving the decimal point in the string. In floating point, 99.9 / 100 is slightly
/// above 0.999, which would select a different request.
fn parse_percent(text: &str) -> Result<f64, String> {
    parse_number(text)?;
    format!("{text}e-2").parse().map_err(|_| format!("{text:?} is not a number"))
}

fn read_value(figure: RequiredFigure, text: &str) -> Result<(f64, Unit), String> {
    match figure {
        RequiredFigure::Time(..) => Ok((parse_time_ns(text)?, Unit::Nanoseconds)),
        RequiredFigure::Errors
        | RequiredFigure::Failures
        | RequiredFigure::ClientErrors
        | RequiredFigure::ServerErrors => {
            let Some(percent) = text.strip_suffix('%') else { return Ok((parse_number(text)?, Unit::Count)) };
            let percent = parse_number(percent)?;
            if percent <= 100.0 { Ok((percent, Unit::Percent)) } else { Err(format!("{text} is more than 100 %")) }
        }
        RequiredFigure::Rate => Ok((parse_number(text.strip_suffix("/s").unwrap_or(text))?, Unit::PerSecond)),
        RequiredFigure::Responses => Ok((parse_number(text)?, Unit::Count)),
        RequiredFigure::Throughput => {
            let size = text.strip_suffix("/s").unwrap_or(text);
            let bytes = parse_size(size).map_err(|_| {
                format!("{size:?} is not a number of bytes with a unit: B, kB, MB, GB, KiB, MiB or GiB")
            })?;
            Ok((bytes as f64, Unit::BytesPerSecond))
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
