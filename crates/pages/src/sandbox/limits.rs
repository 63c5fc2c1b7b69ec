//! How much a page may take.

use std::time::Duration;

/// What one request's run is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CPU time after which a run makes way for the loop's other work (`cpu-slice`).
    pub slice: Duration,
    /// CPU time of all its slices together (`cpu-limit`).
    pub cpu: Duration,
    /// Bytes of its values and its output together (`memory-limit`).
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { slice: Duration::from_micros(200), cpu: Duration::from_millis(50), memory_bytes: 16 << 20 }
    }
}

/// The most that `memory-limit` can be, bytes: places in the output are counted in 32 bits.
pub const MEMORY_BYTES_MAX: usize = 1 << 30;

impl Limits {
    /// As far as they can be kept.
    pub(crate) fn bounded(self) -> Self {
        Self { memory_bytes: self.memory_bytes.min(MEMORY_BYTES_MAX), ..self }
    }
}
