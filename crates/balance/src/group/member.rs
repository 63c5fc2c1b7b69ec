//! State of one origin in a few atomic numbers.
//!
//! The numbers are independent and guard no other memory, so `Relaxed` ordering suffices.

use super::rendezvous::hash_key;
use super::{Change, Ending, HealthRules};
use flatout_config::model::Origin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Full share, in thousandths.
pub(super) const SHARE_FULL: u64 = 1000;

/// Initial share in slow start, in thousandths.
const SHARE_MIN: u64 = 10;

/// Availability of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    Well,
    /// The pause is over; the next request is the trial.
    TrialDue,
    /// The pause is over; a trial is in progress.
    TrialUnderWay,
    PausedUntil(u64),
    Down,
}

/// Aligned to two cache lines, since prefetchers load lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Member {
    weight: u64,
    /// Identity of the origin, equal across configurations.
    pub(super) identity: u64,
    pub(super) backup: bool,
    /// Its position in the group's schedule.
    pub(super) pass: AtomicU64,
    under_way: AtomicU32,
    /// Health check state: see [`Vitals`].
    vitals: AtomicU32,
    /// Consecutive failed requests.
    failures: AtomicU32,
    /// End of its pause; 0: none.
    paused_until_ms: AtomicU64,
    /// True if a trial request is in progress.
    trial: AtomicBool,
    /// Time of its recovery; 0: it was never unavailable.
    back_since_ms: AtomicU64,
}

impl Member {
    pub(super) fn new(origin: &Origin) -> Self {
        let scheme = if origin.secure { "https" } else { "http" };
        Self {
            weight: u64::from(origin.weight.clamp(1, 1000)) * SHARE_FULL,
            identity: hash_key(format!("{scheme}://{}:{}", origin.host, origin.port).as_bytes()),
            backup: origin.backup,
            pass: AtomicU64::new(0),
            under_way: AtomicU32::new(0),
            vitals: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            paused_until_ms: AtomicU64::new(0),
            trial: AtomicBool::new(false),
            back_since_ms: AtomicU64::new(0),
        }
    }

    pub(super) fn under_way(&self) -> u32 {
        self.under_way.load(Relaxed)
    }

    pub(super) fn begin_request(&self) {
        self.under_way.fetch_add(1, Relaxed);
    }

    pub(super) fn end_request(&self) {
        self.under_way.fetch_sub(1, Relaxed);
    }

    pub(super) fn availability(&self, now_ms: u64) -> Availability {
        if Vitals::unpack(self.vitals.load(Relaxed)).down {
            return Availability::Down;
        }
        match self.paused_until_ms.load(Relaxed) {
            0 => Availability::Well,
            until_ms if now_ms < until_ms => Availability::PausedUntil(until_ms),
            _ if self.trial.load(Relaxed) => Availability::TrialUnderWay,
            _ => Availability::TrialDue,
        }
    }

    /// Weight at its full share, in thousandths.
    pub(super) const fn full_weight(&self) -> u64 {
        self.weight
    }

    /// Current weight, in thousandths; never 0.
    pub(super) fn weight(&self, now_ms: u64, rules: &HealthRules) -> u64 {
        match self.share(now_ms, rules) {
            SHARE_FULL => self.weight,
            share => (self.weight * share / SHARE_FULL).max(1),
        }
    }

    /// Current share, in thousandths: grows linearly from recovery to the end of slow start.
    pub(super) fn share(&self, now_ms: u64, rules: &HealthRules) -> u64 {
        let back_since_ms = self.back_since_ms.load(Relaxed);
        if back_since_ms == 0 || rules.slow_start_ms == 0 {
            return SHARE_FULL;
        }
        let elapsed_ms = now_ms.saturating_sub(back_since_ms).min(rules.slow_start_ms);
        let share = u128::from(elapsed_ms) * u128::from(SHARE_FULL) / u128::from(rules.slow_start_ms);
        (share as u64).clamp(SHARE_MIN, SHARE_FULL)
    }

    /// Claims the trial, unless another worker has.
    pub(super) fn begin_trial(&self) -> bool {
        self.trial.compare_exchange(false, true, Relaxed, Relaxed).is_ok()
    }

    pub(super) fn end_trial(&self) {
        self.trial.store(false, Relaxed);
    }

    /// Handles a response that was complete, or whose rest was not wanted.
    pub(super) fn handle_success(&self) {
        // Usually 0: avoid taking the cache line from other workers.
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// Handles a failed request.
    pub(super) fn handle_failure(&self, now_ms: u64, rules: &HealthRules) -> Option<Change> {
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        if rules.failures == 0 || failures < rules.failures {
            return None;
        }
        self.failures.store(0, Relaxed);
        let until_ms = now_ms.saturating_add(rules.pause_ms);
        // Failures concurrent with the one that started the pause do not extend it.
        self.paused_until_ms.compare_exchange(0, until_ms, Relaxed, Relaxed).ok().map(|_| Change::Paused)
    }

    /// Handles the end of a request to a paused origin.
    pub(super) fn handle_trial(&self, ending: Ending, now_ms: u64, rules: &HealthRules) -> Option<Change> {
        match ending {
            Ending::Abandoned => None,
            Ending::Answered => {
                self.failures.store(0, Relaxed);
                if self.paused_until_ms.swap(0, Relaxed) == 0 {
                    return None;
                }
                self.return_at(now_ms);
                Some(Change::TrialPassed)
            }
            Ending::Failed => {
                let until_ms = now_ms.saturating_add(rules.pause_ms);
                self.paused_until_ms.fetch_max(until_ms, Relaxed);
                Some(Change::TrialFailed)
            }
        }
    }

    pub(super) fn handle_check(&self, good: bool, now_ms: u64, rules: &HealthRules) -> Option<Change> {
        let update = |packed| Some(Vitals::unpack(packed).after(good, rules).pack());
        let Ok(before) = self.vitals.fetch_update(Relaxed, Relaxed, update) else { return None };
        let before = Vitals::unpack(before);
        match (before.down, before.after(good, rules).down) {
            (false, true) => Some(Change::ChecksFailed),
            (true, false) => {
                self.failures.store(0, Relaxed);
                self.paused_until_ms.store(0, Relaxed);
                self.return_at(now_ms);
                Some(Change::ChecksPassed)
            }
            _ => None,
        }
    }

    fn return_at(&self, now_ms: u64) {
        self.back_since_ms.store(now_ms.max(1), Relaxed);
    }
}

/// Health check state: whether the origin is down, and how many consecutive results contradict that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vitals {
    down: bool,
    contrary: u32,
}

impl Vitals {
    const DOWN: u32 = 1 << 31;

    const fn unpack(packed: u32) -> Self {
        Self { down: packed & Self::DOWN != 0, contrary: packed & !Self::DOWN }
    }

    const fn pack(self) -> u32 {
        self.contrary | if self.down { Self::DOWN } else { 0 }
    }

    /// State after another result: `fall` consecutive failures take the origin down, `rise` successes bring it back.
    fn after(self, good: bool, rules: &HealthRules) -> Self {
        if good != self.down {
            return Self { down: self.down, contrary: 0 };
        }
        let contrary = self.contrary + 1;
        let needed = if self.down { rules.rise } else { rules.fall };
        if contrary >= needed.min(Self::DOWN - 1) {
            Self { down: !self.down, contrary: 0 }
        } else {
            Self { down: self.down, contrary }
        }
    }
}
