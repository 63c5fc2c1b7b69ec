//! The progress line on standard error.

use crate::bench::{Live, Phase, ProgressReceiver};
use flatout_load::plan::Plan;
use flatout_load::report::percentiles::quantile_ns;
use flatout_report::figures::time;
use flatout_report::style::{Style, Weight};
use flatout_units::show;
use hdrhistogram::Histogram;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// A line that is rewritten in place. Nothing is shown if standard error is not a terminal.
#[derive(Debug)]
pub struct LiveLine {
    is_terminal: bool,
    style: Style,
    begun: Instant,
    /// The subject of the current measurement, and when the measurement started.
    phase: Option<(Phase, Instant)>,
    last: Option<LineBaseline>,
}

/// The counts when the last line was shown. The next line covers the time since then.
#[derive(Debug)]
struct LineBaseline {
    at: Instant,
    responses: u64,
    unanswered: u64,
    latency: Histogram<u64>,
}

impl LiveLine {
    /// Creates a line on standard error.
    pub fn new() -> Self {
        let stderr = io::stderr();
        Self {
            is_terminal: stderr.is_terminal(),
            style: Style::of(&stderr),
            begun: Instant::now(),
            phase: None,
            last: None,
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

    fn handle_begin(&mut self, phase: Phase, _plan: &Plan) {
        self.phase = Some((phase, Instant::now()));
        self.last = None;
    }

    fn handle_live(&mut self, phase: Phase, live: Option<&Live>) {
        let now = Instant::now();
        let phase_begun = self.phase.map_or(now, |(_, begun)| begun);
        let elapsed_s = self.begun.elapsed().as_secs_f64();
        let what = match phase {
            Phase::Server => "",
            Phase::Limit => "  the machine's limit:",
        };
        let text = match live {
            None => format!("{elapsed_s:5.1} s{what}  ..."),
            Some(live) => {
                let since = self.last.as_ref().map_or(phase_begun, |last| last.at);
                let span_s = now.duration_since(since).as_secs_f64();
                let text = describe(live, self.last.as_ref(), span_s, self.style);
                self.last = Some(LineBaseline {
                    at: now,
                    responses: live.responses,
                    unanswered: live.unanswered,
                    latency: live.latency.clone(),
                });
                format!("{elapsed_s:5.1} s{what}  {text}")
            }
        };
        self.show(&text);
    }
}

/// Describes the `span_s` seconds since the last line, or since the phase started.
fn describe(live: &Live, last: Option<&LineBaseline>, span_s: f64, style: Style) -> String {
    let mut recent = live.latency.clone();
    let (mut responses, mut unanswered) = (live.responses, live.unanswered);
    if let Some(last) = last {
        responses = live.responses.saturating_sub(last.responses);
        unanswered = live.unanswered.saturating_sub(last.unanswered);
        let subtracted = recent.subtract(&last.latency);
        debug_assert!(subtracted.is_ok(), "a record only grows");
    }
    let rate = style.paint(Weight::Strong, &show::figure(responses as f64 / span_s.max(1e-3)));
    let p99 = if recent.is_empty() && unanswered == 0 {
        "-".to_owned()
    } else {
        time(quantile_ns(&recent, 0.99, unanswered))
    };
    let errors = match live.failures {
        0 => "no errors".to_owned(),
        failures => style.paint(Weight::Bad, &show::plural(failures, "error", "errors")),
    };
    format!("{rate} requests/s  p99 {p99}  {errors}")
}

#[cfg(test)]
mod tests {
    use super::{LineBaseline, describe};
    use crate::bench::Live;
    use flatout_report::style::Style;
    use hdrhistogram::Histogram;
    use std::time::Instant;

    fn live(latencies_ns: &[u64], failures: u64) -> Live {
        let mut latency = Histogram::new_with_bounds(1, 1_000_000_000, 3).unwrap();
        for latency_ns in latencies_ns {
            latency.record(*latency_ns).unwrap();
        }
        let lag = latency.clone();
        Live { responses: latencies_ns.len() as u64, failures, unanswered: failures, latency, lag }
    }

    #[test]
    fn a_line_covers_the_time_since_the_last_one() {
        let first = live(&[1_000, 1_000], 0);
        assert_eq!(describe(&first, None, 0.5, Style::PLAIN), "4.00 requests/s  p99 1.00 µs  no errors");
        let last =
            LineBaseline { at: Instant::now(), responses: first.responses, unanswered: 0, latency: first.latency };
        let second = live(&[1_000, 1_000, 2_000_000], 1);
        assert_eq!(describe(&second, Some(&last), 0.25, Style::PLAIN), "4.00 requests/s  p99 never  1 error");
        assert_eq!(describe(&live(&[], 0), None, 0.0, Style::PLAIN), "0.00 requests/s  p99 -  no errors");
    }
}
