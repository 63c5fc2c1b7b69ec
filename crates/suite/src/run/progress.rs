//! Progress of a suite: the current measurement, and the estimated remaining time.

use std::time::Instant;

/// Receives the progress of a suite.
pub trait SuiteReporter {
    /// Shows the progress: the current measurement, the number of measurements, and the estimated remaining time.
    fn tell(&mut self, told: &SuiteProgress<'_>);

    /// Prints a line, for example about a server that was left out.
    fn say(&mut self, line: &str);
}

/// The progress of a suite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SuiteProgress<'t> {
    /// Description of the current measurement.
    pub what: &'t str,
    /// Number of completed measurements.
    pub done: usize,
    /// Total number of measurements.
    pub all: usize,
    /// Estimated remaining time, in seconds.
    pub left_s: f64,
}

/// Counts measurements, and estimates the remaining time from the measurements already made.
#[derive(Debug)]
pub struct Clock {
    done: usize,
    all: usize,
    expected_left_s: f64,
    measured_expected_s: f64,
    measured_s: f64,
    begun: Instant,
}

impl Clock {
    /// Creates a clock for `all` measurements with this total expected duration.
    pub fn new(all: usize, expected_s: f64) -> Self {
        Self {
            done: 0,
            all,
            expected_left_s: expected_s,
            measured_expected_s: 0.0,
            measured_s: 0.0,
            begun: Instant::now(),
        }
    }

    /// Notes that a measurement starts.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Notes that a measurement with this expected duration is over. `was_made` is false if its result already existed
    /// or it was skipped.
    pub fn end(&mut self, expected_s: f64, was_made: bool) {
        self.done += 1;
        self.expected_left_s = (self.expected_left_s - expected_s).max(0.0);
        if was_made {
            self.measured_expected_s += expected_s;
            self.measured_s += self.begun.elapsed().as_secs_f64();
        }
    }

    /// Returns the current progress.
    pub fn told<'t>(&self, what: &'t str) -> SuiteProgress<'t> {
        let known = self.measured_expected_s > 0.0;
        let factor = if known { self.measured_s / self.measured_expected_s } else { 1.0 };
        SuiteProgress { what, done: self.done, all: self.all, left_s: self.expected_left_s * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn what_is_left_is_learnt_from_what_was_done() {
        let mut clock = Clock::new(4, 40.0);
        assert!((clock.told("x").left_s - 40.0).abs() < 1e-9);
        clock.end(10.0, false);
        assert_eq!((clock.told("x").done, clock.told("x").left_s), (1, 30.0));
        clock.begin();
        clock.end(10.0, true);
        assert!(clock.told("x").left_s < 1.0, "it took no time at all");
        clock.end(10.0, true);
        clock.end(10.0, true);
        assert!(clock.told("x").left_s.abs() < 1e-9);
    }
}
