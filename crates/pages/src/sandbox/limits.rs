//! The limits of a page.

use std::time::Duration;

/// The limits of one request's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CPU time after which a run yields to the worker's other work (`cpu-slice`).
    pub slice: Duration,
    /// CPU time of all its slices together (`cpu-limit`).
    pub cpu: Duration,
    /// Upper bound of its values and its output together, in bytes (`memory-limit`).
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { slice: Duration::from_micros(200), cpu: Duration::from_millis(50), memory_bytes: 16 << 20 }
    }
}

/// Upper bound of `memory-limit`, in bytes: offsets in the output have 32 bits.
pub const MEMORY_BYTES_MAX: usize = 1 << 30;

impl Limits {
    /// The limits, clamped to what is enforceable.
    pub(crate) fn bounded(self) -> Self {
        Self { memory_bytes: self.memory_bytes.min(MEMORY_BYTES_MAX), ..self }
    }
}
