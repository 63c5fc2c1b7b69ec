//! Bound on the length of a queue, derived from the measured service rate.

/// Settings of a [`QueueBound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Target waiting time of an entry in a saturated queue, in milliseconds.
    pub delay_target_ms: u64,
    /// Minimum bound, in entries. A short queue keeps a fast server busy until it takes entries again.
    pub entries_min: u32,
    /// Bound of a queue that is not saturated, in entries.
    pub entries_max: u32,
}

/// Minimum duration of a measurement of the rate, in milliseconds. A shorter burst is not overload. Longer than several
/// ticks of the coarse clock, and than the usual period of CPU quotas on small machines.
pub(crate) const WINDOW_MS_MIN: u64 = 25;

/// Maximum duration of a measurement of the rate, in milliseconds, if few entries are served.
pub(crate) const WINDOW_MS_MAX: u64 = 250;

/// Minimum number of served entries for a measurement to end before [`WINDOW_MS_MAX`], since fewer say little about the
/// rate.
pub(crate) const SERVED_MIN: u32 = 8;

/// Minimum time without saturation before the bound doubles, in milliseconds.
pub(crate) const RECOVERY_MS: u64 = 100;

/// Bounds a queue to the number of entries that can be served within a target delay.
///
/// The owner of the queue reports whenever entries have been served, and whether others are still waiting. While
/// entries are always waiting, the queue is saturated, and the service rate is the capacity of the server. When the
/// queue is no longer saturated, the bound recovers step by step.
#[derive(Clone, Debug)]
pub struct QueueBound {
    settings: QueueSettings,
    bound: u32,
    /// Start of the current measurement, since which entries have always been waiting, and the number of entries served
    /// since then.
    window: Option<(u64, u32)>,
    /// Number of entries served per second when the queue was last saturated, or 0 if unknown.
    rate_per_s: f64,
    /// Earliest time at which the bound may double again.
    recovers_at_ms: u64,
}

impl QueueBound {
    /// Creates the bound of a queue that is not saturated.
    pub fn new(settings: QueueSettings) -> Self {
        Self { settings, bound: settings.entries_max, window: None, rate_per_s: 0.0, recovers_at_ms: 0 }
    }

    /// Returns the current maximum number of waiting entries.
    pub const fn bound(&self) -> u32 {
        self.bound
    }

    /// Returns the maximum number of waiting entries if each is to wait for at most `delay_ms`: the bound, or less if the
    /// queue is saturated and the delay is below the target.
    pub fn bound_within(&self, delay_ms: u64) -> u32 {
        if self.window.is_none() || self.rate_per_s == 0.0 {
            return self.bound;
        }
        let entries = (self.rate_per_s * delay_ms as f64 / 1000.0) as u32;
        self.bound.min(entries.max(self.settings.entries_min))
    }

    /// Returns whether the bound is below the maximum.
    pub const fn is_limiting(&self) -> bool {
        self.bound < self.settings.entries_max
    }

    /// Reports that `count` entries have been served and others are still waiting.
    ///
    /// `waiting` returns the number of waiting entries, and is called only at the end of a measurement. If it is known,
    /// a queue that will be served within the target delay is not treated as overload. If it is `None`, a saturated
    /// queue always is.
    pub fn handle_saturated(&mut self, count: u32, now_ms: u64, waiting: impl FnOnce() -> Option<u32>) {
        let (began_ms, served) = *self.window.get_or_insert((now_ms, 0));
        let elapsed_ms = now_ms.saturating_sub(began_ms);
        // Entries in the report that begins a window were served before it.
        let served = if elapsed_ms == 0 { served } else { served.saturating_add(count) };
        let is_over = elapsed_ms >= WINDOW_MS_MAX || (elapsed_ms >= WINDOW_MS_MIN && served >= SERVED_MIN);
        if !is_over {
            self.window = Some((began_ms, served));
            return;
        }
        self.window = Some((now_ms, 0));
        let rate_per_s = f64::from(served) * 1000.0 / elapsed_ms as f64;
        // Use the rate of the first window as it is, and smooth the rates of later windows.
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
            // Entries that have been accepted are served, so the bound follows the queue downwards.
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
