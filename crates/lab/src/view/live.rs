//! The progress line on standard error.

use crate::bench::{Live, Phase, ProgressReceiver};
use flatout_load::plan::{Plan, Stop};
use flatout_load::record::Statuses;
use flatout_load::report::percentiles::quantile_ns;
use flatout_report::figures::time;
use flatout_report::style::{Style, Weight};
use flatout_units::show;
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// Shortest time over which a rate is averaged, in nanoseconds. Over less, a constant rate of a few hundred would seem
/// to jump.
pub(crate) const AVERAGED_NS_MIN: u64 = 950_000_000;

/// A line that is rewritten in place. Nothing is shown if standard error is not a terminal.
#[derive(Debug)]
pub struct LiveLine {
    is_terminal: bool,
    style: Style,
    begun: Instant,
    /// Planned duration of the current measurement, for example ` of 10.0 s`; empty if it ends by count.
    planned: String,
    /// Earlier progress, oldest first. The line covers the time since the oldest.
    earlier: VecDeque<LineBaseline>,
}

/// Earlier progress, since which a line covers the time.
#[derive(Debug)]
struct LineBaseline {
    at_ns: u64,
    responses: u64,
    unanswered: u64,
    latency: Histogram<u64>,
}

/// Returns the planned duration of a plan, with its warm-up, as text to follow the elapsed time; empty if it is unknown.
pub(crate) fn planned(plan: &Plan) -> String {
    match (plan.stop, plan.unmeasured_ns()) {
        (Stop::After { duration_ns }, Some(unmeasured_ns)) => {
            format!(" of {:.1} s", duration_ns.saturating_add(unmeasured_ns) as f64 / 1e9)
        }
        _ => String::new(),
    }
}

/// Formats the number of responses by status, as far as it fits: `200 1,234  404 5`.
pub(crate) fn statuses(live: &Statuses) -> String {
    let all: Vec<String> =
        live.iter().take(STATUSES_MAX).map(|(status, count)| format!("{status} {}", show::count(count))).collect();
    all.join("  ")
}

/// Maximum number of statuses in the live view.
const STATUSES_MAX: usize = 4;

impl LiveLine {
    /// Creates a line on standard error.
    pub fn new() -> Self {
        let stderr = io::stderr();
        Self {
            is_terminal: stderr.is_terminal(),
            style: Style::of(&stderr),
            begun: Instant::now(),
            planned: String::new(),
            earlier: VecDeque::new(),
        }
    }

    /// Replaces the line with other text.
    pub fn show(&self, text: &str) {
        if self.is_terminal {
            // A failed write to the terminal cannot be reported.
            let _shown = write!(io::stderr().lock(), "\r\x1b[2K{text}");
        }
    }

    /// Clears the line, so that further output begins on an empty line.
    pub fn clear(&self) {
        self.show("");
    }
}

impl Default for LiveLine {
    fn default() -> Self {
        Self::new()
    }
}

impl ProgressReceiver for LiveLine {
    fn is_live(&self) -> bool {
        self.is_terminal
    }

    fn handle_begin(&mut self, _phase: Phase, plan: &Plan) {
        self.begun = Instant::now();
        self.planned = planned(plan);
        self.earlier.clear();
    }

    fn handle_live(&mut self, phase: Phase, live: Option<&Live>) {
        let elapsed_s = self.begun.elapsed().as_secs_f64();
        let planned = &self.planned;
        let what = match phase {
            Phase::Server => "",
            Phase::Limit => "  the machine's limit:",
        };
        let text = match live {
            None => format!("{elapsed_s:5.1} s{planned}{what}  ..."),
            Some(live) => format!("{elapsed_s:5.1} s{planned}{what}  {}", advance(&mut self.earlier, live, self.style)),
        };
        self.show(&text);
    }
}

/// Describes the last second of a run, and adds its progress to `earlier`.
fn advance(earlier: &mut VecDeque<LineBaseline>, live: &Live, style: Style) -> String {
    // The oldest progress that remains is the last one that is old enough.
    while earlier.get(1).is_some_and(|next| live.at_ns.saturating_sub(next.at_ns) >= AVERAGED_NS_MIN) {
        earlier.pop_front();
    }
    let text = describe(live, earlier.front(), style);
    if earlier.back().is_none_or(|last| last.at_ns < live.at_ns) {
        earlier.push_back(LineBaseline {
            at_ns: live.at_ns,
            responses: live.responses,
            unanswered: live.unanswered,
            latency: live.latency.clone(),
        });
    }
    text
}

/// Describes the time since `earlier`. Without it, there is no rate yet.
fn describe(live: &Live, earlier: Option<&LineBaseline>, style: Style) -> String {
    let mut recent = live.latency.clone();
    let mut unanswered = live.unanswered;
    let mut rate = "-".to_owned();
    if let Some(earlier) = earlier {
        let span_s = live.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9;
        unanswered = live.unanswered.saturating_sub(earlier.unanswered);
        let subtracted = recent.subtract(&earlier.latency);
        debug_assert!(subtracted.is_ok(), "a record only grows");
        if span_s > 0.0 {
            rate = show::figure(live.responses.saturating_sub(earlier.responses) as f64 / span_s);
        }
    }
    let rate = style.paint(Weight::Strong, &rate);
    let p99 = if recent.is_empty() && unanswered == 0 {
        "-".to_owned()
    } else {
        time(quantile_ns(&recent, 0.99, unanswered))
    };
    let errors = match live.failures {
        0 => "no errors".to_owned(),
        failures => style.paint(Weight::Bad, &show::plural(failures, "error", "errors")),
    };
    format!("{rate} requests/s  p99 {p99}  {errors}  {}", statuses(&live.statuses)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{advance, planned, statuses};
    use crate::bench::Live;
    use flatout_load::plan::{Plan, Stop};
    use flatout_load::record::Statuses;
    use flatout_report::style::Style;
    use hdrhistogram::Histogram;
    use std::collections::VecDeque;

    fn live(at_ms: u64, responses: u64, failures: u64) -> Live {
        let mut latency = Histogram::new_with_bounds(1, 1_000_000_000, 3).unwrap();
        latency.record_n(1_000, responses).unwrap();
        let lag = latency.clone();
        let statuses = Statuses::default();
        Live { at_ns: at_ms * 1_000_000, statuses, responses, failures, unanswered: failures, latency, lag }
    }

    #[test]
    fn a_constant_rate_does_not_jump_however_irregular_the_reports_are() {
        let mut earlier = VecDeque::new();
        let mut rate =
            |at_ms, responses, failures| advance(&mut earlier, &live(at_ms, responses, failures), Style::PLAIN);
        assert_eq!(rate(200, 40, 0), "- requests/s  p99 1.00 µs  no errors");
        for at_ms in [400, 600, 650, 1_000, 1_050, 1_700, 1_900, 2_000, 2_900] {
            let text = rate(at_ms, at_ms / 5, 0);
            assert_eq!(text, "200 requests/s  p99 1.00 µs  no errors", "at {at_ms} ms");
        }
        // A short interval does not change the rate much.
        assert_eq!(rate(2_950, 600, 3), "211 requests/s  p99 never  3 errors");
    }

    #[test]
    fn the_planned_duration_is_known_if_the_run_ends_by_time() {
        let stop = |stop| planned(&Plan { stop, ..Plan::default() });
        assert_eq!(stop(Stop::After { duration_ns: 2_500_000_000 }), " of 2.5 s");
        assert_eq!(stop(Stop::Count(5)), "");
        let mut many = Statuses::default();
        for text in ["{\"200\":1234,\"404\":5}", "{\"500\":1}", "{\"501\":1}", "{\"502\":1}"] {
            many.merge(&serde_json::from_str(text).unwrap());
        }
        assert_eq!(statuses(&many), "200 1,234  404 5  500 1  501 1");
    }
}
