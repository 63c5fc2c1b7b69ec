//! Weighted round robin with even interleaving, without a lock.
//!
//! This is stride scheduling (Waldspurger and Weihl, 1995) with the virtual time of start-time fair queueing (Goyal,
//! Vin and Cheng, 1996). Each origin has a pass, which each request increases by a stride that is inversely
//! proportional to the origin's weight. The origin whose pass would be lowest afterwards is next. The group's virtual
//! time follows the pass of the selected origin. No origin lags behind it by more than one stride, so that an origin
//! that was down or idle cannot make up for missed turns. Workers that select at the same instant may select the same
//! origin. It is then charged twice, so the shares remain correct.
//!
//! Passes are compared by their distance from the virtual time, and may wrap around.

use std::sync::atomic::{AtomicU64, Ordering};

/// Stride of an origin with a weight of 1 in the unit of `Member::weight`. Weights are at most 10⁶, so strides are
/// accurate to a millionth, and distances stay far below 2⁶³.
const SCALE: u64 = 1 << 40;

/// The virtual time of a group.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    virtual_time: AtomicU64,
}

impl Schedule {
    /// Returns the stride of an origin with this weight.
    pub(super) fn stride(weight: u64) -> i64 {
        i64::try_from(SCALE / weight.max(1)).unwrap_or(i64::MAX)
    }

    /// Returns the distance of the pass from the virtual time, the distance at which the next request starts, and the
    /// virtual time.
    fn start(&self, pass: &AtomicU64, stride: i64) -> (i64, i64, u64) {
        let virtual_time = self.virtual_time.load(Ordering::Relaxed);
        let distance = pass.load(Ordering::Relaxed).wrapping_sub(virtual_time).cast_signed();
        (distance, distance.max(-stride), virtual_time)
    }

    /// Returns the deadline of an origin's next turn. The origin with the lowest deadline is next.
    pub(super) fn deadline(&self, pass: &AtomicU64, weight: u64) -> i64 {
        let stride = Self::stride(weight);
        self.start(pass, stride).1 + stride
    }

    /// Takes an origin's turn: advances its pass and the virtual time.
    pub(super) fn charge(&self, pass: &AtomicU64, weight: u64) {
        let stride = Self::stride(weight);
        let (distance, start, virtual_time) = self.start(pass, stride);
        pass.fetch_add((start + stride - distance).cast_unsigned(), Ordering::Relaxed);
        if start > 0 {
            // If another worker has advanced the virtual time, its value is as good.
            let _ = self.virtual_time.compare_exchange(
                virtual_time,
                virtual_time.wrapping_add_signed(start),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;
    use std::sync::atomic::AtomicU64;

    fn turns(schedule: &Schedule, weights: &[u64], count: usize) -> Vec<usize> {
        let passes: Vec<_> = weights
            .iter()
            .map(|_| AtomicU64::new(schedule.virtual_time.load(std::sync::atomic::Ordering::Relaxed)))
            .collect();
        (0..count)
            .map(|_| {
                let turn = (0..weights.len()).min_by_key(|&at| schedule.deadline(&passes[at], weights[at])).unwrap();
                schedule.charge(&passes[turn], weights[turn]);
                turn
            })
            .collect()
    }

    #[test]
    fn turns_are_by_weight_and_evenly_spread() {
        assert_eq!(turns(&Schedule::default(), &[1000, 1000, 1000], 6), [0, 1, 2, 0, 1, 2]);
        let turns = turns(&Schedule::default(), &[4000, 1000, 1000], 600);
        let count = |origin| turns.iter().filter(|&&turn| turn == origin).count();
        assert_eq!([count(0), count(1), count(2)], [400, 100, 100]);
        // Never five in a row of the heavy one: four come before the light ones' turns.
        assert!(!turns.windows(5).any(|five| five == [0; 5]));
    }

    #[test]
    fn passes_may_wrap_around() {
        let schedule = Schedule { virtual_time: AtomicU64::new(u64::MAX - (1 << 33)) };
        let turns = turns(&schedule, &[3000, 1000], 4000);
        let light = turns.iter().filter(|&&turn| turn == 1).count();
        assert!((999..=1001).contains(&light), "{light}");
    }
}
