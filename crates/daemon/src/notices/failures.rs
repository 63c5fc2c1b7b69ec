//! Lines about origins whose requests fail. The routes of an origin report separately; a line is printed when the first of
//! them fails, and, unless single requests have failed, when all answer again.

use super::INTERVAL_MS;
use flatout_upstream::events::SeriesReport;
use std::collections::{BTreeMap, BTreeSet};

/// Failing requests by the name of the origin.
#[derive(Debug, Default)]
pub(super) struct FailureNotices(BTreeMap<String, OriginFailures>);

#[derive(Debug, Default)]
struct OriginFailures {
    /// The routes whose requests fail.
    failing: BTreeSet<u64>,
    /// True if the last line says that requests fail.
    is_reported: bool,
    beginning: LineState,
    end: LineState,
}

/// The next line about the beginning, or about the end of failures.
#[derive(Debug, Default)]
struct LineState {
    text: Option<String>,
    /// Time from which it may be printed, in milliseconds.
    next_ms: u64,
}

impl OriginFailures {
    /// Returns from when the next line may be printed, in milliseconds; `None` if the last line is still true.
    fn due_ms(&self) -> Option<u64> {
        let is_failing = !self.failing.is_empty();
        let line = if is_failing { &self.beginning } else { &self.end };
        (is_failing != self.is_reported).then_some(if line.text.is_some() { line.next_ms } else { 0 })
    }

    fn next_line(&mut self, now_ms: u64) -> Option<String> {
        if self.failing.is_empty() && !self.is_reported {
            // The failures have ended before the line about them was printed.
            (self.beginning.text, self.end.text) = (None, None);
        }
        self.due_ms().filter(|due_ms| now_ms >= *due_ms)?;
        self.is_reported = !self.failing.is_empty();
        let line = if self.is_reported { &mut self.beginning } else { &mut self.end };
        let text = line.text.take();
        if text.is_some() {
            line.next_ms = now_ms.saturating_add(INTERVAL_MS);
        }
        (self.beginning.text, self.end.text) = (None, None);
        text
    }
}

impl FailureNotices {
    /// Handles a report of the route with the number `route` about `server`.
    pub(super) fn handle(&mut self, server: String, route: u64, report: SeriesReport) {
        let origin = self.0.entry(server).or_default();
        match report {
            SeriesReport::Began(text) => {
                origin.failing.insert(route);
                origin.beginning.text = Some(text);
            }
            SeriesReport::Ended(text) => {
                origin.failing.remove(&route);
                origin.end.text = text.or_else(|| origin.end.text.take());
            }
        }
    }

    /// Forgets the failures of routes that do not exist any more. `exists` returns whether a route to a server does.
    pub(super) fn retain_routes(&mut self, exists: impl Fn(&str, u64) -> bool) {
        for (server, origin) in &mut self.0 {
            origin.failing.retain(|route| exists(server, *route));
        }
    }

    /// Returns the lines to print now.
    pub(super) fn lines(&mut self, now_ms: u64) -> Vec<String> {
        let mut lines = Vec::new();
        for (server, origin) in &mut self.0 {
            lines.extend(origin.next_line(now_ms).map(|text| format!("{server} {text}")));
        }
        let is_recent = |line: &LineState| line.next_ms > now_ms;
        self.0.retain(|_, origin| {
            origin.is_reported || !origin.failing.is_empty() || is_recent(&origin.beginning) || is_recent(&origin.end)
        });
        lines
    }

    /// Returns when [`lines`](Self::lines) must be called even if nothing was handled, in milliseconds.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.0.values().filter_map(OriginFailures::due_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::FailureNotices;
    use flatout_upstream::events::SeriesReport::{self, Began, Ended};

    fn look(notices: &mut FailureNotices, route: u64, report: SeriesReport, now_ms: u64) -> Vec<String> {
        notices.handle("origin a".to_owned(), route, report);
        notices.lines(now_ms)
    }

    fn began(text: &str) -> SeriesReport {
        Began(text.to_owned())
    }

    fn ended(text: &str) -> SeriesReport {
        Ended(Some(text.to_owned()))
    }

    #[test]
    fn failures_of_several_routes_are_one_failure() {
        let mut notices = FailureNotices::default();
        assert_eq!(look(&mut notices, 1, began("fails"), 0), ["origin a fails"]);
        assert_eq!(look(&mut notices, 2, began("fails"), 1), [""; 0]);
        assert_eq!(look(&mut notices, 1, ended("answers"), 2), [""; 0]);
        assert_eq!(look(&mut notices, 3, began("fails"), 20_000), [""; 0]);
        assert_eq!(look(&mut notices, 3, ended("answers once more"), 20_001), [""; 0]);
        assert_eq!(look(&mut notices, 2, Ended(None), 20_002), ["origin a answers once more"]);
        notices.handle("origin b".to_owned(), 1, began("fails"));
        assert_eq!(notices.lines(20_003), ["origin b fails"]);
        // An origin that answers again is forgotten.
        notices.handle("origin b".to_owned(), 1, Ended(None));
        assert_eq!((notices.lines(60_000), notices.0.len(), notices.due_ms()), (Vec::new(), 0, None));
    }

    #[test]
    fn the_last_line_is_true_but_may_be_late() {
        let mut notices = FailureNotices::default();
        assert_eq!(look(&mut notices, 1, began("fails"), 0).len(), 1);
        assert_eq!(look(&mut notices, 1, ended("answers"), 2_000).len(), 1);
        assert_eq!(look(&mut notices, 1, began("fails again"), 10_000), ["origin a fails again"]);
        assert_eq!(look(&mut notices, 1, ended("answers again"), 11_000), [""; 0]);
        assert_eq!((notices.due_ms(), notices.lines(11_999).len()), (Some(12_000), 0));
        assert_eq!(notices.lines(12_000), ["origin a answers again"]);
        // What has ended before its line was printed is not said.
        assert_eq!(look(&mut notices, 1, began("fails"), 19_000), [""; 0]);
        assert_eq!((look(&mut notices, 1, ended("answers"), 19_001), notices.due_ms()), (Vec::new(), None));
        assert_eq!(look(&mut notices, 1, began("fails once"), 30_000), ["origin a fails once"]);
        assert_eq!(look(&mut notices, 1, Ended(None), 30_001), [""; 0]);
    }

    /// An origin that fails one request in a hundred.
    #[test]
    fn single_failures_are_reported_every_ten_seconds() {
        let mut notices = FailureNotices::default();
        let mut said = Vec::new();
        for now_ms in (0..25_000).step_by(100) {
            let lines =
                look(&mut notices, 1, began("fails"), now_ms).len() + look(&mut notices, 1, Ended(None), now_ms).len();
            said.extend((lines > 0).then_some(now_ms));
        }
        assert_eq!(said, [0, 10_000, 20_000]);
    }

    #[test]
    fn a_reload_forgets_the_failures_of_changed_routes() {
        let mut notices = FailureNotices::default();
        assert_eq!(look(&mut notices, 1, began("fails"), 0).len(), 1);
        notices.retain_routes(|_, route| route == 2);
        assert_eq!((notices.lines(1), notices.due_ms()), (Vec::new(), None));
        assert_eq!(look(&mut notices, 2, began("still fails"), 2), [""; 0]);
        assert_eq!(notices.due_ms(), Some(10_000));
        assert_eq!(notices.lines(10_000), ["origin a still fails"]);
        // Another route still fails, and ends.
        assert_eq!(look(&mut notices, 3, began("fails"), 10_001), [""; 0]);
        notices.retain_routes(|server, route| server == "origin a" && route == 3);
        assert_eq!(look(&mut notices, 3, ended("answers"), 10_002), ["origin a answers"]);
    }
}
