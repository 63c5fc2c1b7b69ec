//! What is known of one origin: a few atomic numbers.
//!
//! Each stands for itself, and none guards other memory, so their order among one another does not matter (`Relaxed`).

use super::rendezvous::hash_key;
use super::{Change, Ending, Rules};
use flatout_config::model::Origin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The whole share, in thousandths.
pub(super) const SHARE_FULL: u64 = 1000;

/// The share with which slow start begins, in thousandths.
const SHARE_MIN: u64 = 10;

/// Whether an origin may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    Well,
    /// The pause is over; the next request is the trial.
    TrialDue,
    /// The pause is over, and a request is tried.
    TrialUnderWay,
    PausedUntil(u64),
    Down,
}

/// Two cache lines apart from its neighbours, as prefetchers take lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Member {
    weight: u64,
    /// The same for the same origin, wherever it stands in whichever settings.
    pub(super) identity: u64,
    pub(super) backup: bool,
    /// Its place in the group's schedule.
    pub(super) pass: AtomicU64,
    under_way: AtomicU32,
    /// What the checks say: see [`Vitals`].
    vitals: AtomicU32,
    /// Requests that failed in a row.
    failures: AtomicU32,
    /// When its pause ends; 0: it has none.
    paused_until_ms: AtomicU64,
    /// Whether a request is tried after the pause.
    trial: AtomicBool,
    /// When it came back; 0: it never was out.
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

    /// Its weight when it has its whole share, in thousandths.
    pub(super) const fn full_weight(&self) -> u64 {
        self.weight
    }

    /// Its weight at present, in thousandths; never 0.
    pub(super) fn weight(&self, now_ms: u64, rules: &Rules) -> u64 {
        match self.share(now_ms, rules) {
            SHARE_FULL => self.weight,
            share => (self.weight * share / SHARE_FULL).max(1),
        }
    }

    /// Which part of its share it gets at present, in thousandths: a straight line from its return to the end of slow
    /// start.
    pub(super) fn share(&self, now_ms: u64, rules: &Rules) -> u64 {
        let back_since_ms = self.back_since_ms.load(Relaxed);
        if back_since_ms == 0 || rules.slow_start_ms == 0 {
            return SHARE_FULL;
        }
        let elapsed_ms = now_ms.saturating_sub(back_since_ms).min(rules.slow_start_ms);
        let share = u128::from(elapsed_ms) * u128::from(SHARE_FULL) / u128::from(rules.slow_start_ms);
        (share as u64).clamp(SHARE_MIN, SHARE_FULL)
    }

    /// Takes the trial, unless another worker has.
    pub(super) fn begin_trial(&self) -> bool {
        self.trial.compare_exchange(false, true, Relaxed, Relaxed).is_ok()
    }

    pub(super) fn end_trial(&self) {
        self.trial.store(false, Relaxed);
    }

    /// A request was answered, and its answer was whole or nobody wanted the rest.
    pub(super) fn handle_success(&self) {
        // Nearly always 0 already: then nobody's cache line is taken away.
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// A request failed.
    pub(super) fn handle_failure(&self, now_ms: u64, rules: &Rules) -> Option<Change> {
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        if rules.failures == 0 || failures < rules.failures {
            return None;
        }
        self.failures.store(0, Relaxed);
        let until_ms = now_ms.saturating_add(rules.pause_ms);
        // Whoever failed together with the one that began the pause does not lengthen it.
        self.paused_until_ms.compare_exchange(0, until_ms, Relaxed, Relaxed).ok().map(|_| Change::Paused)
    }

    /// A request to an origin that was paused has ended.
    pub(super) fn handle_trial(&self, ending: Ending, now_ms: u64, rules: &Rules) -> Option<Change> {
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

    pub(super) fn handle_check(&self, good: bool, now_ms: u64, rules: &Rules) -> Option<Change> {
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

/// What the checks say of an origin: whether it is down, and how many results in a row have said otherwise.
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

    /// After another result: `fall` bad ones in a row take it out, `rise` good ones bring it back.
    fn after(self, good: bool, rules: &Rules) -> Self {
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
