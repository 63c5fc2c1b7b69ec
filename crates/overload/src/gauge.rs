//! State of queues for other threads than their owners.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// State of one queue or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueReading {
    /// Number of waiting entries.
    pub waiting: u64,
    /// Current bound on that number.
    pub waiting_max: u64,
}

impl QueueReading {
    /// Adds the state of another queue.
    pub const fn add(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.waiting_max += other.waiting_max;
    }
}

/// State of a queue, which its owner writes and any thread may read.
#[derive(Debug, Default)]
pub struct QueueGauge {
    waiting: AtomicU32,
    waiting_max: AtomicU32,
}

impl QueueGauge {
    /// Publishes the number of waiting entries and its current bound.
    pub fn set(&self, waiting: u32, waiting_max: u32) {
        self.waiting.store(waiting, Ordering::Relaxed);
        self.waiting_max.store(waiting_max, Ordering::Relaxed);
    }
}

/// The gauges of all queues of a kind, for instance one of each worker.
#[derive(Debug, Default)]
pub struct QueueGauges(Mutex<Vec<Weak<QueueGauge>>>);

impl QueueGauges {
    /// Adds a gauge. It is removed when it is dropped.
    pub fn add(&self) -> Arc<QueueGauge> {
        let gauge = Arc::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|gauge| gauge.strong_count() > 0);
        all.push(Arc::downgrade(&gauge));
        gauge
    }

    /// Returns the sums over all queues.
    pub fn read(&self) -> QueueReading {
        let mut sum = QueueReading::default();
        for gauge in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade) {
            let (waiting, waiting_max) =
                (gauge.waiting.load(Ordering::Relaxed), gauge.waiting_max.load(Ordering::Relaxed));
            sum.add(QueueReading { waiting: waiting.into(), waiting_max: waiting_max.into() });
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::{QueueGauges, QueueReading};

    #[test]
    fn queues_of_a_kind_are_summed() {
        let gauges = QueueGauges::default();
        let (one, two) = (gauges.add(), gauges.add());
        one.set(3, 100);
        two.set(5, 6);
        assert_eq!(gauges.read(), QueueReading { waiting: 8, waiting_max: 106 });
        drop(two);
        assert_eq!(gauges.read(), QueueReading { waiting: 3, waiting_max: 100 });
    }
}
