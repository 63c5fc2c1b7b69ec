//! A series of failed attempts to get a response from an origin or an application server: since when, why, and how many.
//! The first failure is reported, but at most one series in ten seconds; `status` and `explain` show the series until
//! the server answers.

use crate::events::SeriesReport;
use flatout_reason::Outcome;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Minimum time between the reports of two series of a server, in milliseconds. A server that fails and answers in turn
/// must not fill the log.
const REPORT_INTERVAL_MS: u64 = 10_000;

/// A series of failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Series {
    /// Reason of the last failure.
    failure: Outcome,
    /// Time of the first failure, in milliseconds of the monotonic clock.
    began_ms: u64,
    /// Number of failed attempts.
    attempts: u64,
    /// True if the series was reported.
    is_reported: bool,
}

/// The failed attempts since a server last answered.
#[derive(Debug, Default)]
pub struct FailureSeries {
    /// True during a series, so that the responses of a healthy server need no lock.
    is_failing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    series: Option<Series>,
    /// Time of the last report that a series has begun.
    reported_ms: Option<u64>,
}

impl FailureSeries {
    /// Adds a failed attempt. Returns the report that the series has begun, once, and not soon after that of an earlier
    /// series.
    pub fn add(&self, failure: impl Into<Outcome>, now_ms: u64) -> Option<SeriesReport> {
        let failure = failure.into();
        let State { series, reported_ms } = &mut *self.lock();
        self.is_failing.store(true, Ordering::Relaxed);
        let series = series.get_or_insert(Series { failure, began_ms: now_ms, attempts: 0, is_reported: false });
        (series.failure, series.attempts) = (failure, series.attempts.saturating_add(1));
        let is_recent = reported_ms.is_some_and(|at| now_ms < at.saturating_add(REPORT_INTERVAL_MS));
        if series.is_reported || is_recent {
            return None;
        }
        (series.is_reported, *reported_ms) = (true, Some(now_ms));
        Some(SeriesReport::Began(format!("fails: [{}] {}", failure.name(), failure.text())))
    }

    /// Ends the series, if there is one, because the server has answered. Returns the report, if the series was reported.
    pub fn end(&self, now_ms: u64) -> Option<SeriesReport> {
        if !self.is_failing.load(Ordering::Relaxed) {
            return None;
        }
        let series = {
            let mut state = self.lock();
            self.is_failing.store(false, Ordering::Relaxed);
            state.series.take()
        };
        let Series { attempts, began_ms, .. } = series.filter(|series| series.is_reported)?;
        let seconds = now_ms.saturating_sub(began_ms) / 1000;
        let text = format!("answers again, after {attempts} failed attempts within {seconds} s");
        Some(SeriesReport::Ended((attempts > 1).then_some(text)))
    }

    /// Describes the series at the time `now_ms`, if there is one.
    pub fn describe(&self, now_ms: u64) -> Option<String> {
        let Series { failure, began_ms, attempts, .. } = self.lock().series?;
        let seconds = now_ms.saturating_sub(began_ms) / 1000;
        let noun = if attempts == 1 { "attempt" } else { "attempts" };
        Some(format!("failing since {seconds} s ago, {attempts} {noun}: [{}]", failure.name()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::FailureSeries;
    use crate::events::SeriesReport::{Began, Ended};
    use crate::origin::OriginFailure;

    #[test]
    fn a_series_is_reported_when_it_begins_and_when_it_ends() {
        let series = FailureSeries::default();
        assert_eq!((series.end(0), series.describe(0)), (None, None));
        let Some(Began(report)) = series.add(OriginFailure::Refused, 1_000) else { panic!("not reported") };
        assert!(report.starts_with("fails: [origin_refused] The origin's host refused"), "{report}");
        assert_eq!(series.describe(1_000).unwrap(), "failing since 0 s ago, 1 attempt: [origin_refused]");
        assert_eq!(series.add(OriginFailure::Reset, 2_000), None);
        assert_eq!(series.describe(4_500).unwrap(), "failing since 3 s ago, 2 attempts: [origin_reset]");
        let Some(Ended(Some(report))) = series.end(14_000) else { panic!("not reported") };
        assert_eq!(report, "answers again, after 2 failed attempts within 13 s");
        assert_eq!((series.end(14_000), series.describe(14_000)), (None, None));
    }

    /// Otherwise an origin that fails one request in a hundred would fill the log.
    #[test]
    fn single_failures_are_reported_every_ten_seconds() {
        let series = FailureSeries::default();
        let reports = |now_ms: u64| {
            let began = series.add(OriginFailure::Reset, now_ms).is_some();
            (began, series.end(now_ms + 1))
        };
        let told: Vec<u64> =
            (0..30_000).step_by(100).filter(|&now_ms| reports(now_ms) == (true, Some(Ended(None)))).collect();
        assert_eq!(told, [0, 10_000, 20_000]);
        // The end is not reported without the beginning.
        assert_eq!(series.add(OriginFailure::Reset, 29_950), None);
        assert_eq!((series.add(OriginFailure::Reset, 29_960), series.end(29_970)), (None, None));
        // An outage that begins soon after a single failure is reported later.
        assert_eq!(series.add(OriginFailure::Reset, 29_980), None);
        assert!(series.add(OriginFailure::Reset, 30_000).is_some());
        assert_eq!(series.add(OriginFailure::Reset, 50_000), None);
    }
}
