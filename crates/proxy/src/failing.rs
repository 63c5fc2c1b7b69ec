//! A series of failed requests to an origin: since when, why, and how many. The first failure is reported at once;
//! `status` and `explain` tell the series until the origin answers.

use flatout_store::hold;
use flatout_upstream::origin::OriginFailure;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Minimum time between the reports of two series of an origin, in milliseconds. An origin that fails and answers in
/// turn must not fill the log.
const REPORT_INTERVAL_MS: u64 = 10_000;

/// A series of failed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    /// Reason of the last failure.
    failure: OriginFailure,
    /// Time of the first failure, in milliseconds of the monotonic clock.
    began_ms: u64,
    /// Number of failed requests.
    requests: u64,
    /// True if the first failure was reported.
    is_reported: bool,
}

/// The failed requests to an origin since it last answered.
#[derive(Debug, Default)]
pub(crate) struct FailureSeries {
    /// True during a series, so that the responses of a healthy origin need no lock.
    is_failing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    series: Option<Series>,
    /// Time of the last report of a first failure.
    reported_ms: Option<u64>,
}

impl FailureSeries {
    /// Adds a failed request. Returns the report of the first one, unless that of an earlier series is recent.
    pub(crate) fn add(&self, failure: OriginFailure, now_ms: u64) -> Option<String> {
        let State { series, reported_ms } = &mut *hold(&self.state);
        self.is_failing.store(true, Ordering::Relaxed);
        if let Some(series) = series {
            (series.failure, series.requests) = (failure, series.requests.saturating_add(1));
            return None;
        }
        let is_reported = reported_ms.is_none_or(|at| now_ms >= at.saturating_add(REPORT_INTERVAL_MS));
        *series = Some(Series { failure, began_ms: now_ms, requests: 1, is_reported });
        is_reported.then(|| {
            *reported_ms = Some(now_ms);
            format!("does not answer: [{}] {}", failure.name(), failure.text())
        })
    }

    /// Ends the series, if there is one, because the origin has answered. Returns the report, if the first failure was
    /// reported and others followed.
    pub(crate) fn end(&self, now_ms: u64) -> Option<String> {
        if !self.is_failing.load(Ordering::Relaxed) {
            return None;
        }
        let series = {
            let mut state = hold(&self.state);
            self.is_failing.store(false, Ordering::Relaxed);
            state.series.take()
        };
        let Series { requests, began_ms, .. } = series.filter(|series| series.is_reported && series.requests > 1)?;
        let seconds = now_ms.saturating_sub(began_ms) / 1000;
        Some(format!("answers again: {requests} requests failed within {seconds} s"))
    }

    /// Describes the series at the time `now_ms`, if there is one.
    pub(crate) fn describe(&self, now_ms: u64) -> Option<String> {
        let Series { failure, began_ms, requests, .. } = hold(&self.state).series?;
        let seconds = now_ms.saturating_sub(began_ms) / 1000;
        let noun = if requests == 1 { "request" } else { "requests" };
        Some(format!("no answer for {seconds} s: [{}] {requests} {noun} failed", failure.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::FailureSeries;
    use flatout_upstream::origin::OriginFailure;

    #[test]
    fn a_series_is_reported_when_it_begins_and_when_it_ends() {
        let series = FailureSeries::default();
        assert_eq!((series.end(0), series.describe(0)), (None, None));
        let report = series.add(OriginFailure::Refused, 1_000).unwrap();
        assert!(report.starts_with("does not answer: [origin_refused] The origin's host refused"), "{report}");
        assert_eq!(series.describe(1_000).unwrap(), "no answer for 0 s: [origin_refused] 1 request failed");
        assert_eq!(series.add(OriginFailure::Reset, 2_000), None);
        assert_eq!(series.describe(4_500).unwrap(), "no answer for 3 s: [origin_reset] 2 requests failed");
        assert_eq!(series.end(14_000).unwrap(), "answers again: 2 requests failed within 13 s");
        assert_eq!((series.end(14_000), series.describe(14_000)), (None, None));
    }

    /// Otherwise an origin that fails one request in a hundred would fill the log.
    #[test]
    fn single_failures_are_reported_every_ten_seconds() {
        let series = FailureSeries::default();
        let reports = |now_ms: u64| {
            let began = series.add(OriginFailure::Reset, now_ms).is_some();
            (began, series.end(now_ms + 1).is_some())
        };
        let told: Vec<u64> = (0..30_000).step_by(100).filter(|&now_ms| reports(now_ms) != (false, false)).collect();
        assert_eq!(told, [0, 10_000, 20_000]);
        // Its end is not reported without its beginning.
        assert_eq!(series.add(OriginFailure::Reset, 29_950), None);
        assert_eq!((series.add(OriginFailure::Reset, 29_960), series.end(29_970)), (None, None));
    }
}
