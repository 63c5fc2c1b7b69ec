//! Little's law: the mean number of requests in flight equals the response rate times the mean service time.

use crate::record::Recorder;
use serde::{Deserialize, Serialize};

/// Largest difference, as a share, that clocks and the edges of the run can explain.
pub const DIFFERENCE_SHARE_MAX: f64 = 0.02;

/// Minimum number of finished requests for applying the law.
pub const ENDED_MIN: u64 = 100;

/// Both sides of Little's law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Little {
    /// Mean number of requests in flight, integrated over time.
    pub in_flight: f64,
    /// Requests finished per second, times their mean service time.
    pub rate_times_service: f64,
}

impl Little {
    /// Calculates both sides from a finished record and the length of the measured span. Returns `None` if too few
    /// requests finished.
    ///
    /// One side comes from the times at which requests started and finished, whatever their result; the other comes
    /// from the records of finished requests. The sides differ if samples are lost, a clock jumps, or they cover
    /// different spans.
    pub fn of(recorder: &Recorder, elapsed_ns: u64) -> Option<Self> {
        let in_flight = &recorder.in_flight;
        if in_flight.ended < ENDED_MIN || elapsed_ns == 0 {
            return None;
        }
        // Requests in flight at the end of the span count on both sides until they finish.
        let (elapsed, ended) = ((elapsed_ns + recorder.late.drain_ns) as f64, in_flight.ended as f64);
        let mean_service_ns = in_flight.service_sum_ns as f64 / ended;
        Some(Self {
            in_flight: in_flight.integral_ns as f64 / elapsed,
            rate_times_service: ended / elapsed * mean_service_ns,
        })
    }

    /// Returns the difference as a share of the larger side.
    pub fn difference_share(&self) -> f64 {
        let larger = self.in_flight.max(self.rate_times_service);
        if larger > 0.0 { (self.in_flight - self.rate_times_service).abs() / larger } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{DIFFERENCE_SHARE_MAX, Little};
    use crate::record::{Recorder, RecorderSettings, Sample};

    fn sample(begun_ns: u64, ended_ns: u64) -> Sample {
        Sample {
            class: 0,
            step: 0,
            intended_ns: begun_ns,
            begun_ns,
            sent_ns: begun_ns,
            first_byte_ns: ended_ns,
            ended_ns,
            resolve_ns: 0,
            connect_ns: 0,
            tls_ns: 0,
            result: Ok(200),
            detail: "",
            head_bytes: 1,
            body_bytes: 1,
            sent_bytes: 1,
            interim_responses: 0,
            is_new_connection: false,
        }
    }

    /// A thousand requests of 5 ms, one per millisecond; the end of every `lose`-th is not recorded.
    fn little(lose: u64) -> Option<Little> {
        let settings = RecorderSettings { classes: 1, start_ns: 1_000, measured_from_ns: 1_000 };
        let mut recorder = Recorder::new(settings).unwrap();
        for at_ms in 0..1_005_u64 {
            let now_ns = 1_000 + at_ms * 1_000_000;
            if at_ms >= 5 && (at_ms - 5) % lose != lose - 1 {
                recorder.record(&sample(now_ns - 5_000_000, now_ns));
            }
            if at_ms < 1_000 {
                recorder.record_begun(1, now_ns, now_ns);
            }
        }
        recorder.finish(1_000 + 1_005_000_000);
        Little::of(&recorder, 1_005_000_000)
    }

    #[test]
    fn both_sides_agree_when_every_request_is_accounted_for() {
        let little = little(u64::MAX).unwrap();
        assert!((little.in_flight - 5.0 * 1_000.0 / 1_005.0).abs() < 1e-9, "{little:?}");
        assert!(little.difference_share() < 1e-9, "{little:?}");
    }

    #[test]
    fn lost_samples_part_them() {
        assert!(little(100).unwrap().difference_share() > DIFFERENCE_SHARE_MAX);
    }

    #[test]
    fn few_requests_say_nothing() {
        let settings = RecorderSettings { classes: 1, start_ns: 0, measured_from_ns: 0 };
        assert_eq!(Little::of(&Recorder::new(settings).unwrap(), 5), None);
    }
}
