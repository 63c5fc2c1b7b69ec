//! How fast the content of a request arrives.

use crate::settings::Settings;

/// Divides the arrival of content into rounds, each of which may take the body timeout. A round ends with its last byte,
/// which is the first unless the configuration demands a rate. Chunk heads and trailers end none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Number of bytes that end a round; at least 1.
    round_bytes: u64,
    /// Number of bytes received in the current round.
    bytes: u64,
    /// Number of the current round.
    rounds: u32,
}

impl Pace {
    /// Creates a pace with the rate and the timeout of `settings`.
    pub(crate) const fn new(settings: &Settings) -> Self {
        let bytes = settings.limits.body_rate_min.saturating_mul(settings.timeouts.body_timeout_ms) / 1000;
        Self { round_bytes: if bytes == 0 { 1 } else { bytes }, bytes: 0, rounds: 0 }
    }

    /// Starts a new round.
    pub(crate) const fn begin_round(&mut self) {
        self.bytes = 0;
        self.rounds = self.rounds.wrapping_add(1);
    }

    /// Counts received bytes. Returns whether they ended a round.
    pub(crate) const fn add(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let ends = self.bytes >= self.round_bytes;
        if ends {
            self.begin_round();
        }
        ends
    }

    /// Returns the number of the current round, which distinguishes successive waits.
    pub(crate) const fn rounds(&self) -> u32 {
        self.rounds
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self { round_bytes: 1, bytes: 0, rounds: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use crate::settings::Settings;
    use flatout_http::limits::Limits;

    #[test]
    fn every_byte_ends_a_round_unless_a_rate_is_demanded() {
        let mut pace = Pace::default();
        assert_eq!((pace.add(0), pace.add(1), pace.add(70_000), pace.rounds()), (false, true, true, 2));
        let limits = Limits { body_rate_min: 2048, ..Limits::DEFAULT };
        let mut pace = Pace::new(&Settings { limits, ..Settings::default() });
        // 30 seconds with 2 KiB each.
        assert_eq!((pace.add(61_439), pace.rounds()), (false, 0));
        assert_eq!((pace.add(1), pace.rounds()), (true, 1));
        assert!(!pace.add(61_439));
        pace.begin_round();
        assert_eq!((pace.add(61_439), pace.rounds()), (false, 2));
    }
}
