//! The line on standard error that lives while a run does.

use super::style::{Style, Weight};
use super::units;
use crate::bench::{Live, Phase, Progress};
use hdrhistogram::Histogram;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// One line, rewritten in place; nothing at all where standard error is no terminal.
#[derive(Debug)]
pub struct LiveLine {
    is_terminal: bool,
    style: Style,
    begun: Instant,
    phase: Option<Phase>,
    last: Option<Reading>,
}

/// What the last line was made from; a line tells of the time since.
#[derive(Debug)]
struct Reading {
    at: Instant,
    responses: u64,
    latency: Histogram<u64>,
}

impl LiveLine {
    /// A line on standard error.
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

    /// Shows a text in place of what was there.
    pub fn show(&self, text: &str) {
        if self.is_terminal {
            // Without a terminal to write to there is nobody to tell.
            let _shown = write!(io::stderr().lock(), "\r\x1b[2K{text}");
        }
    }

    /// Clears the line, so that what is printed next begins on an empty one.
    pub fn clear(&self) {
        self.show("");
    }
}

impl Default for LiveLine {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for LiveLine {
    fn is_live(&self) -> bool {
        self.is_terminal
    }

    fn handle_live(&mut self, phase: Phase, live: Option<&Live>) {
        if self.phase != Some(phase) {
            self.phase = Some(phase);
            self.last = None;
        }
        // A new span begins again from nothing.
        if let (Some(live), Some(last)) = (live, &self.last)
            && live.responses < last.responses
        {
            self.last = None;
        }
        let elapsed_s = self.begun.elapsed().as_secs_f64();
        let what = match phase {
            Phase::Server => "",
            Phase::Limit => "  the machine's limit:",
        };
        let text = match live {
            None => format!("{elapsed_s:5.1} s{what}  ..."),
            Some(live) => {
                let text = describe(live, self.last.as_ref(), elapsed_s, what, self.style);
                self.last =
                    Some(Reading { at: Instant::now(), responses: live.responses, latency: live.latency.clone() });
                text
            }
        };
        self.show(&text);
    }
}

fn describe(live: &Live, last: Option<&Reading>, elapsed_s: f64, what: &str, style: Style) -> String {
    let mut recent = live.latency.clone();
    let mut responses = live.responses;
    let mut span_s = elapsed_s;
    if let Some(last) = last {
        span_s = last.at.elapsed().as_secs_f64();
        responses = live.responses.saturating_sub(last.responses);
        let subtracted = recent.subtract(&last.latency);
        debug_assert!(subtracted.is_ok(), "a record only grows");
    }
    let rate = style.paint(Weight::Strong, &units::figure(responses as f64 / span_s.max(1e-3)));
    let p99 = if recent.is_empty() { "-".to_owned() } else { units::duration(recent.value_at_quantile(0.99) as f64) };
    let errors = match live.failures {
        0 => "no errors".to_owned(),
        failures => style.paint(Weight::Bad, &units::plural(failures, "error", "errors")),
    };
    format!("{elapsed_s:5.1} s{what}  {rate} requests/s  p99 {p99}  {errors}")
}
