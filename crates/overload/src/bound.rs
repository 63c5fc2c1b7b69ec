//! The bound of a queue, from the measured rate of service.

/// Settings of a [`QueueBound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Time that an entry may wait in a saturated queue, in milliseconds.
    pub delay_target_ms: u64,
    /// The bound is never lower: a short queue keeps a fast server busy between two looks at it.
    pub entries_min: u32,
    /// The bound of a queue that is not saturated.
    pub entries_max: u32,
}

/// Shortest time over which the rate is measured, in milliseconds. A burst that is over sooner is not overload. Longer
/// than several ticks of the coarse clock, and than the period of a usual CPU quota for small machines.
pub(crate) const WINDOW_MS_MIN: u64 = 25;

/// Longest time over which the rate is measured, in milliseconds, if few entries are served.
pub(crate) const WINDOW_MS_MAX: u64 = 250;

/// Entries after which a window may end before [`WINDOW_MS_MAX`]: fewer say little about the rate.
pub(crate) const SERVED_MIN: u32 = 8;

/// Time without saturation after which the bound doubles, in milliseconds.
pub(crate) const RECOVERY_MS: u64 = 100;

/// Bounds a queue to the entries that can be served within a target delay.
///
/// The owner reports each service with what is left. While entries keep waiting, the queue is saturated, and the rate
/// of service is that of the server. Once nothing waits any more, the bound recovers step by step.
#[derive(Clone, Debug)]
pub struct QueueBound {
    settings: QueueSettings,
    bound: u32,
    /// Since when entries have been waiting without interruption, with the entries served since then.
    window: Option<(u64, u32)>,
    /// Entries served per second when last saturated; 0 if unknown.
    rate_per_s: f64,
    /// When the bound may double next.
    recovers_at_ms: u64,
}

impl QueueBound {
    /// The bound of a queue that is not saturated.
    pub fn new(settings: QueueSettings) -> Self {
        Self { settings, bound: settings.entries_max, window: None, rate_per_s: 0.0, recovers_at_ms: 0 }
    }

    /// Upper bound of waiting entries.
    pub const fn bound(&self) -> u32 {
        self.bound
    }

    /// Returns whether the bound is lower than that of a queue that is not saturated.
    pub const fn is_limiting(&self) -> bool {
        self.bound < self.settings.entries_max
    }

    /// Reports that `count` entries have been served and others are still waiting.
    ///
    /// `waiting` returns how many, and is called at the end of a window only. With it, a queue that will be served within
    /// the target delay is no overload. `None` if that is unknown: then a saturated queue always is.
    pub fn handle_saturated(&mut self, count: u32, now_ms: u64, waiting: impl FnOnce() -> Option<u32>) {
        let (began_ms, served) = *self.window.get_or_insert((now_ms, 0));
        let elapsed_ms = now_ms.saturating_sub(began_ms);
        // Those of the report that begins a window were served before it.
        let served = if elapsed_ms == 0 { served } else { served.saturating_add(count) };
        let is_over = elapsed_ms >= WINDOW_MS_MAX || (elapsed_ms >= WINDOW_MS_MIN && served >= SERVED_MIN);
        if !is_over {
            self.window = Some((began_ms, served));
            return;
        }
        self.window = Some((now_ms, 0));
        let rate_per_s = f64::from(served) * 1000.0 / elapsed_ms as f64;
        // The first window has the whole truth; later ones smooth it.
        self.rate_per_s = if self.is_limiting() && self.rate_per_s > 0.0 {
            f64::midpoint(self.rate_per_s, rate_per_s)
        } else {
            rate_per_s
        };
        let entries = (self.rate_per_s * self.settings.delay_target_ms as f64 / 1000.0) as u32;
        let Some(waiting) = waiting() else {
            self.limit(entries, now_ms);
            return;
        };
        if waiting > entries {
            // A burst that has been let in is served: the bound follows the queue downwards.
            self.limit(entries.max(waiting - waiting / 4), now_ms);
        } else if waiting < entries / 2 {
            self.recover(now_ms);
        }
    }

    fn limit(&mut self, entries: u32, now_ms: u64) {
        self.bound = entries.clamp(self.settings.entries_min, self.settings.entries_max);
        self.recovers_at_ms = now_ms.saturating_add(RECOVERY_MS);
    }

    fn recover(&mut self, now_ms: u64) {
        if self.is_limiting() && now_ms >= self.recovers_at_ms {
            self.bound = self.bound.saturating_mul(2).min(self.settings.entries_max);
            self.recovers_at_ms = now_ms.saturating_add(RECOVERY_MS);
        }
    }

    /// Reports that no entry is waiting.
    pub fn handle_empty(&mut self, now_ms: u64) {
        self.window = None;
        self.recover(now_ms);
    }
}

#[cfg(test)]
mod tests;
