//! The limits of a page.

use std::time::Duration;

flatout_reason::defaults! {
    /// The limits of a request's run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// CPU time after which a run yields to other work of the worker (`cpu-slice`).
        pub slice: Duration = Duration::from_micros(200),
        /// CPU time that all slices of the run together may use (`cpu-limit`).
        pub cpu: Duration = Duration::from_millis(50),
        /// Maximum size of the run's values and output together, in bytes (`memory-limit`).
        pub memory_bytes: usize = 16 << 20,
    }
}

/// Largest value of `memory-limit`, in bytes: offsets in the output have 32 bits.
pub const MEMORY_BYTES_MAX: usize = 1 << 30;

impl Limits {
    /// Returns the limits, reduced to what can be enforced.
    pub(crate) fn bounded(self) -> Self {
        Self { memory_bytes: self.memory_bytes.min(MEMORY_BYTES_MAX), ..self }
    }
}
