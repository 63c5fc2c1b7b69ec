//! The full-screen live view: rate, response times as a heat map, errors and lag.
//!
//! The displayed state is a value ([`DisplayState`]). Drawing it is a pure function of that value and of the screen's
//! size (`draw`); only [`screen`] accesses the terminal.

mod draw;
pub mod screen;

pub use draw::draw;
pub use screen::LiveScreen;

use crate::view::live::AVERAGED_NS_MIN;
use flatout_load::record::series::heat_class;
use flatout_load::report::percentiles::quantile_ns;
use flatout_load::report::visible;
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of stored readings, one per column. No screen is wider.
const READINGS_MAX: usize = 1_000;

/// Number of response-time classes per row of the heat map: half of a doubling.
pub(crate) const CLASSES_A_ROW: u16 = 4;

/// The progress of a run since the start of its current part.
#[derive(Clone, Copy, Debug)]
pub struct RunProgress<'a> {
    /// Seconds since the part started.
    pub at_s: f64,
    /// Number of successful responses.
    pub responses: u64,
    /// Number of requests without a complete response, or with an unexpected status.
    pub failures: u64,
    /// Number of requests without a complete response, which are slower than all others.
    pub unanswered: u64,
    /// Response times of successful responses so far, in nanoseconds.
    pub response: &'a Histogram<u64>,
    /// Schedule lag so far in nanoseconds, if the run is an open loop.
    pub lag: Option<&'a Histogram<u64>>,
}

/// The changes between two updates of the display.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IntervalReading {
    pub(crate) at_s: f64,
    /// Length of the interval, in seconds.
    pub(crate) span_s: f64,
    /// True for the first interval of a part of the run.
    pub(crate) is_first: bool,
    pub(crate) responses_per_s: f64,
    pub(crate) failures: u64,
    /// Number of responses by row of the heat map.
    pub(crate) heat: BTreeMap<u16, u64>,
    /// True if requests ended. A percentile without a value is then that of a request that never got a response.
    pub(crate) has_ended: bool,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) max_ns: Option<u64>,
    pub(crate) lag_p99_ns: Option<u64>,
}

/// The state that the display shows.
#[derive(Clone, Debug)]
pub struct DisplayState {
    pub(crate) title: String,
    /// The subject of the current measurement: a step's load, or the machine's limit.
    pub(crate) part: String,
    /// The offered requests per second, if the clock determines the rate.
    pub(crate) offered_per_s: Option<f64>,
    /// Planned duration of the part, to follow the elapsed time; empty if it is unknown.
    pub(crate) planned: String,
    /// Number of responses by status.
    pub(crate) statuses: String,
    pub(crate) readings: VecDeque<IntervalReading>,
    pub(crate) failures: u64,
    pub(crate) responses: u64,
    last: Option<LastReading>,
}

/// The totals at the last reading.
#[derive(Clone, Debug)]
struct LastReading {
    at_s: f64,
    responses: u64,
    failures: u64,
    unanswered: u64,
    response: Histogram<u64>,
    lag: Option<Histogram<u64>>,
}

impl DisplayState {
    /// Creates the state of a run without data.
    pub fn new(title: &str) -> Self {
        Self {
            title: visible(title).into_owned(),
            part: String::new(),
            offered_per_s: None,
            planned: String::new(),
            statuses: String::new(),
            readings: VecDeque::new(),
            failures: 0,
            responses: 0,
            last: None,
        }
    }

    /// Starts another part of the run: counts start again from 0, and the displayed history stays.
    pub fn begin(&mut self, part: &str, offered_per_s: Option<f64>) {
        part.clone_into(&mut self.part);
        self.offered_per_s = offered_per_s;
        self.last = None;
    }

    /// Adds a reading from the progress since the last one.
    pub fn push(&mut self, standing: RunProgress) {
        let last = self.last.take();
        let since_s = last.as_ref().map_or(0.0, |last| last.at_s);
        let span_s = (standing.at_s - since_s).max(1e-3);
        let before = last.as_ref().map_or((0, 0, 0), |last| (last.responses, last.failures, last.unanswered));
        let responses = standing.responses.saturating_sub(before.0);
        let failures = standing.failures.saturating_sub(before.1);
        let unanswered = standing.unanswered.saturating_sub(before.2);
        let response = since(standing.response, last.as_ref().map(|last| &last.response));
        let lag = standing.lag.map(|lag| since(lag, last.as_ref().and_then(|last| last.lag.as_ref())));
        let mut heat = BTreeMap::new();
        for step in response.iter_recorded() {
            *heat.entry(heat_class(step.value_iterated_to()) / CLASSES_A_ROW).or_insert(0) +=
                step.count_since_last_iteration();
        }
        self.readings.push_back(IntervalReading {
            at_s: standing.at_s,
            span_s,
            is_first: last.is_none(),
            responses_per_s: responses as f64 / span_s,
            failures,
            heat,
            has_ended: !response.is_empty() || unanswered > 0,
            p50_ns: quantile_ns(&response, 0.5, unanswered),
            p99_ns: quantile_ns(&response, 0.99, unanswered),
            max_ns: quantile_ns(&response, 1.0, unanswered),
            lag_p99_ns: lag.as_ref().and_then(|lag| quantile_ns(lag, 0.99, 0)),
        });
        if self.readings.len() > READINGS_MAX {
            self.readings.pop_front();
        }
        self.responses += responses;
        self.failures += failures;
        self.last = Some(LastReading {
            at_s: standing.at_s,
            responses: standing.responses,
            failures: standing.failures,
            unanswered: standing.unanswered,
            response: standing.response.clone(),
            lag: standing.lag.cloned(),
        });
    }
}

impl DisplayState {
    /// Returns the rate of responses over about the last second of the current part.
    pub(crate) fn recent_per_s(&self) -> f64 {
        let (mut responses, mut span_s) = (0.0, 0.0);
        for reading in self.readings.iter().rev() {
            responses += reading.responses_per_s * reading.span_s;
            span_s += reading.span_s;
            if reading.is_first || span_s >= AVERAGED_NS_MIN as f64 / 1e9 {
                break;
            }
        }
        if span_s > 0.0 { responses / span_s } else { 0.0 }
    }
}

/// Returns what was added to a histogram that only grows, since an earlier copy.
fn since(now: &Histogram<u64>, before: Option<&Histogram<u64>>) -> Histogram<u64> {
    let mut grown = now.clone();
    if let Some(before) = before {
        let subtracted = grown.subtract(before);
        debug_assert!(subtracted.is_ok(), "a record only grows");
    }
    grown
}

#[cfg(test)]
mod tests;
