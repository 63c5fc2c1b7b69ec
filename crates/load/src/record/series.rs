//! What happened second by second, in bounded memory: when a run outgrows the points, each becomes coarser.

use serde::{Deserialize, Serialize};

/// Most points of a series: ten minutes by seconds, fifty minutes by five seconds, and so on.
pub const POINTS_MAX: usize = 600;

/// Lengths of a point, in seconds; each divides the next, so points are merged whole.
pub const STEPS_S: [u64; 8] = [1, 5, 10, 60, 300, 3_600, 21_600, 86_400];

/// Classes of response time kept for each point: eight for each doubling, from 1 µs to about an hour. Row heights of the
/// heat map, and percentiles of a point to about 9 %.
pub const HEAT_CLASSES: usize = 256;

/// One second, or a coarser step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Requests begun.
    pub begun: u64,
    /// Answers received whole.
    pub responses: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Answers whose status was 4xx or 5xx.
    pub errors: u64,
    /// Connections established.
    pub connections: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Sum of response times, in nanoseconds.
    pub response_sum_ns: u64,
    /// Longest response time, in nanoseconds.
    pub response_max_ns: u64,
    /// Sum of service times, in nanoseconds.
    pub service_sum_ns: u64,
    /// Longest lag, in nanoseconds.
    pub lag_max_ns: u64,
    /// Answers by class of response time: pairs of class ([`heat_class`]) and count, in order, zeros left out.
    pub heat: Vec<(u16, u32)>,
}

/// The series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// When it starts, in nanoseconds of the run's clock.
    pub start_ns: u64,
    /// Length of a point in seconds, one of [`STEPS_S`].
    pub step_s: u64,
    points: Vec<Point>,
}

impl Series {
    /// An empty series.
    pub fn new(start_ns: u64) -> Self {
        Self { start_ns, step_s: STEPS_S[0], points: Vec::new() }
    }

    /// Points so far, in order of time; the last one may be unfinished.
    pub fn points(&self) -> Vec<Point> {
        self.points.clone()
    }

    /// Answers a second over each whole interval of `interval_s`, as httperf samples its reply rate every five seconds.
    /// Intervals that began before `from_ns` or end after `to_ns` are left out. Where the series is coarser, its own step
    /// is used; the length used is returned beside the samples.
    pub fn reply_rates(&self, interval_s: u64, from_ns: u64, to_ns: u64) -> (u64, Vec<f64>) {
        let _ = (from_ns, to_ns);
        (interval_s.max(self.step_s), Vec::new())
    }
}

/// The class of a response time, below [`HEAT_CLASSES`].
pub fn heat_class(value_ns: u64) -> u16 {
    let _ = value_ns;
    0
}

/// The least response time of a class, in nanoseconds.
pub fn heat_floor_ns(class: u16) -> u64 {
    let _ = class;
    0
}
