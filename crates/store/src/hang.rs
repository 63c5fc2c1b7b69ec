//! A note on a stored response that the origin hangs, so that clients need not wait for it again.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long a note is in force, and minimum time between two claims of an attempt, in milliseconds.
const NOTE_MS: u64 = 30_000;

/// Additional time for which a claim keeps a note in force, in milliseconds. More than timers are late.
const CLAIM_MARGIN_MS: u64 = 1_000;

/// A note that attempts to replace or validate the stored response hang. Times are in milliseconds of the caller's
/// clock. The note ends with its object: a newer response begins without one.
#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "a unit ends the name of each time")]
pub struct HangNote {
    /// The note is in force before this time.
    until_ms: AtomicU64,
    /// The next attempt may begin at this time.
    attempt_ms: AtomicU64,
    /// How long attempts have taken that all clients left, since the origin last responded.
    waited_ms: AtomicU64,
}

impl HangNote {
    /// Notes at `now_ms` that an attempt hangs or has hung.
    pub fn set(&self, now_ms: u64) {
        self.until_ms.fetch_max(now_ms.saturating_add(NOTE_MS), Ordering::Relaxed);
    }

    /// Removes the note.
    pub fn clear(&self) {
        for value in [&self.until_ms, &self.waited_ms] {
            // Writing would slow down the other workers.
            if value.load(Ordering::Relaxed) != 0 {
                value.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Adds an attempt from `began_ms` to `now_ms` that all clients left. Together, such attempts hang if they took
    /// `hang_ms`.
    pub fn add_wait(&self, now_ms: u64, began_ms: u64, hang_ms: u64) {
        let wait_ms = now_ms.saturating_sub(began_ms);
        let before_ms = self.waited_ms.fetch_add(wait_ms, Ordering::Relaxed);
        if before_ms.saturating_add(wait_ms) >= hang_ms {
            self.set(now_ms);
        }
    }

    /// Returns whether the note is in force at `now_ms`. Costs one atomic load.
    pub fn is_in_force(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms.load(Ordering::Relaxed)
    }

    /// Returns whether the caller must make another attempt at `now_ms`, which hangs after `hang_ms`. Returns true to one
    /// caller in 30 seconds. The note then stays in force until it is known whether the attempt hangs.
    pub fn claim_attempt(&self, now_ms: u64, hang_ms: u64) -> bool {
        let claim = |attempt_ms: u64| (now_ms >= attempt_ms).then(|| now_ms.saturating_add(NOTE_MS));
        let is_claimed = self.attempt_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).is_ok();
        if is_claimed {
            let known_ms = now_ms.saturating_add(hang_ms).saturating_add(CLAIM_MARGIN_MS);
            self.until_ms.fetch_max(known_ms, Ordering::Relaxed);
        }
        is_claimed
    }
}

#[cfg(test)]
mod tests {
    use super::{HangNote, NOTE_MS};

    #[test]
    fn a_note_is_in_force_for_30_seconds_or_until_it_is_removed() {
        let note = HangNote::default();
        assert!(!note.is_in_force(0));
        note.set(1_000);
        assert!(note.is_in_force(1_000) && note.is_in_force(1_000 + NOTE_MS - 1) && !note.is_in_force(1_000 + NOTE_MS));
        note.set(5_000);
        note.set(4_000);
        assert!(note.is_in_force(5_000 + NOTE_MS - 1), "a later note is not shortened");
        note.clear();
        assert!(!note.is_in_force(5_000));
    }

    #[test]
    fn one_attempt_is_made_in_30_seconds() {
        let note = HangNote::default();
        note.set(1_000);
        let claims: Vec<u64> =
            (1_000..100_000).step_by(500).filter(|&now_ms| note.claim_attempt(now_ms, 5_000)).collect();
        assert_eq!(claims, [1_000, 31_000, 61_000, 91_000]);
    }

    #[test]
    fn a_note_is_in_force_until_the_next_attempt_hangs() {
        let note = HangNote::default();
        note.set(0);
        assert!(note.claim_attempt(29_000, 150_000));
        assert!(note.is_in_force(29_000 + 150_000));
        assert!(!note.is_in_force(29_000 + 152_000));
    }

    #[test]
    fn attempts_that_all_clients_leave_hang_together() {
        let note = HangNote::default();
        note.add_wait(3_000, 0, 10_000);
        note.add_wait(10_000, 6_000, 10_000);
        assert!(!note.is_in_force(10_000));
        note.add_wait(13_000, 10_000, 10_000);
        assert!(note.is_in_force(13_000));
        // The origin has responded.
        note.clear();
        note.add_wait(23_000, 20_000, 10_000);
        assert!(!note.is_in_force(23_000));
    }
}
