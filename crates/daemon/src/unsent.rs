//! Kernel memory of responses that clients have not acknowledged. Measuring it takes time in proportion to the number of
//! connections, so it is measured only on request, and never by a worker.

use crate::status::StatusState;
use flatout_os::clock::precise_ns;
use flatout_os::send_memory::SendMemory;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Time for which the control thread measures once a second after a worker has asked for the memory, in milliseconds.
/// Metrics are usually scraped more often.
const WANTED_MS: u64 = 300_000;

/// Between two measurements, the control thread does other things for at least this multiple of the time that the first
/// took.
const REST_FACTOR: u64 = 50;

/// The memory as last measured.
#[derive(Debug, Default)]
pub(crate) struct UnsentMemory {
    /// `None` unless the control thread is measuring.
    latest: Mutex<Option<SendMemory>>,
    /// Time until which the control thread measures, in milliseconds.
    wanted_until_ms: AtomicU64,
    /// Time before which the control thread does not measure again, in milliseconds.
    rests_until_ms: AtomicU64,
}

impl UnsentMemory {
    /// Returns the memory as the control thread last measured it, if it has, and makes it go on measuring. For workers.
    pub(crate) fn read(&self, now_ms: u64) -> Option<SendMemory> {
        self.wanted_until_ms.store(now_ms.saturating_add(WANTED_MS), Ordering::Relaxed);
        *self.latest()
    }

    fn latest(&self) -> MutexGuard<'_, Option<SendMemory>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self, now_ms: u64) -> bool {
        now_ms < self.wanted_until_ms.load(Ordering::Relaxed)
    }
}

impl StatusState {
    /// Measures the memory. Must not run on an event loop.
    pub(crate) fn measure_unsent(&self) -> SendMemory {
        let queues = self.view().accept_queues.clone();
        let ports: BTreeSet<u16> = queues.iter().filter_map(|queue| queue.address.port()).collect();
        let descriptor_max = self.counters.iter().map(|counters| counters.descriptor_max.get()).max().unwrap_or(0);
        SendMemory::measure(&ports, i32::try_from(descriptor_max).unwrap_or(i32::MAX))
    }

    /// Measures the memory if a worker has asked for it. The control thread calls this once a second.
    pub(crate) fn refresh_unsent(&self, now_ms: u64) {
        if !self.unsent.is_wanted(now_ms) {
            *self.unsent.latest() = None;
        } else if now_ms >= self.unsent.rests_until_ms.load(Ordering::Relaxed) {
            let start_ns = precise_ns();
            let memory = self.measure_unsent();
            let took_ms = precise_ns().saturating_sub(start_ns) / 1_000_000;
            let rests_until_ms = now_ms.saturating_add(took_ms.saturating_mul(REST_FACTOR));
            self.unsent.rests_until_ms.store(rests_until_ms, Ordering::Relaxed);
            *self.unsent.latest() = Some(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{UnsentMemory, WANTED_MS};
    use flatout_os::send_memory::SendMemory;

    #[test]
    fn a_worker_reads_what_was_measured_since_it_asked() {
        let unsent = UnsentMemory::default();
        assert!(!unsent.is_wanted(1_000));
        assert_eq!(unsent.read(1_000), None);
        assert!(unsent.is_wanted(1_000) && unsent.is_wanted(WANTED_MS) && !unsent.is_wanted(1_000 + WANTED_MS));
        let memory = SendMemory { bytes: 7, connections: 1 };
        *unsent.latest() = Some(memory);
        assert_eq!(unsent.read(15_000), Some(memory));
        assert!(unsent.is_wanted(14_999 + WANTED_MS));
    }
}
