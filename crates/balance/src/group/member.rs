//! State of an origin, in a few atomic numbers.
//!
//! The numbers are independent and do not protect other memory, so `Relaxed` ordering suffices.

use super::rendezvous::hash_key;
use super::ticket::SelectionReason;
use super::{Change, Ending, HealthRules};
use flatout_config::model::Origin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Full share of requests, in thousandths.
pub(super) const SHARE_FULL: u64 = 1000;

/// Initial share of requests in slow start, in thousandths.
const SHARE_MIN: u64 = 10;

/// Availability of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    Well,
    /// The pause is over, and the next request is the trial.
    TrialDue,
    /// The pause is over, and a trial is in progress.
    TrialUnderWay,
    PausedUntil(u64),
    Down,
}

/// State of an origin. Aligned to two cache lines, since prefetchers load cache lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Member {
    weight: u64,
    /// Hash of the origin's URL, which is the same across configurations.
    pub(super) identity: u64,
    pub(super) backup: bool,
    /// Position in the group's schedule.
    pub(super) pass: AtomicU64,
    under_way: AtomicU32,
    /// Health check state: see [`Vitals`].
    vitals: AtomicU32,
    /// Number of consecutive failed requests.
    failures: AtomicU32,
    /// End of the pause, or 0 if the origin is not paused.
    paused_until_ms: AtomicU64,
    /// True if a trial request is in progress.
    trial: AtomicBool,
    /// Time of the last recovery, or 0 if the origin has never been unavailable.
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

    /// Returns the reason for which a request can select this origin, or `None` if it is unavailable.
    pub(super) fn selectable(&self, now_ms: u64) -> Option<SelectionReason> {
        match self.availability(now_ms) {
            Availability::Well => Some(SelectionReason::Plain),
            Availability::TrialDue => Some(SelectionReason::Trial),
            Availability::PausedUntil(_) | Availability::TrialUnderWay | Availability::Down => None,
        }
    }

    /// Returns the weight at the full share, in thousandths.
    pub(super) const fn full_weight(&self) -> u64 {
        self.weight
    }

    /// Returns the current weight, in thousandths. Never 0.
    pub(super) fn weight(&self, now_ms: u64, rules: &HealthRules) -> u64 {
        match self.share(now_ms, rules) {
            SHARE_FULL => self.weight,
            share => (self.weight * share / SHARE_FULL).max(1),
        }
    }

    /// Returns the current share, in thousandths, which grows linearly from recovery to the end of slow start.
    pub(super) fn share(&self, now_ms: u64, rules: &HealthRules) -> u64 {
        let back_since_ms = self.back_since_ms.load(Relaxed);
        if back_since_ms == 0 || rules.slow_start_ms == 0 {
            return SHARE_FULL;
        }
        let elapsed_ms = now_ms.saturating_sub(back_since_ms).min(rules.slow_start_ms);
        let share = u128::from(elapsed_ms) * u128::from(SHARE_FULL) / u128::from(rules.slow_start_ms);
        (share as u64).clamp(SHARE_MIN, SHARE_FULL)
    }

    /// Claims the trial. Returns false if another worker has claimed it.
    pub(super) fn begin_trial(&self) -> bool {
        self.trial.compare_exchange(false, true, Relaxed, Relaxed).is_ok()
    }

    pub(super) fn end_trial(&self) {
        self.trial.store(false, Relaxed);
    }

    /// Handles a response that was complete, or whose remaining content was not needed.
    pub(super) fn handle_success(&self) {
        // Avoid a write in the usual case, so that workers do not contend for the cache line.
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
        // Concurrent failures of other requests do not extend the pause.
        self.paused_until_ms.compare_exchange(0, until_ms, Relaxed, Relaxed).ok().map(|_| Change::Paused)
    }

    /// Handles the outcome of a request to a paused origin.
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

/// Health check state: whether the origin is down, and the number of consecutive results that contradict that.
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

    /// Returns the state after another result: `fall` consecutive failures take the origin down, and `rise` consecutive
    /// successes bring it back.
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
