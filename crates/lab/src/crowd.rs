//! What everybody else does to the machine while something is measured on it.

use crate::cores::process_cpu_ns;
use crate::procfs::{self, MachineBusy};
use flatout_net::clock::precise_ns;

/// Watches the machine from its making on.
#[derive(Clone, Copy, Debug)]
pub struct CrowdWatch {
    begun_ns: u64,
    busy: Option<MachineBusy>,
    own_cpu_ns: u64,
}

impl CrowdWatch {
    /// Begins to watch.
    pub fn begin() -> Self {
        Self { begun_ns: precise_ns(), busy: procfs::read_machine_busy().ok(), own_cpu_ns: process_cpu_ns() }
    }

    /// Share of the machine's CPU that neither this process nor `server_cpu_ns` account for since then, 0 to 1. Nothing
    /// where /proc cannot be read.
    pub fn other_cpu_share(&self, server_cpu_ns: u64) -> Option<f64> {
        let (before, after) = (self.busy?, procfs::read_machine_busy().ok()?);
        let whole_ns = precise_ns().saturating_sub(self.begun_ns) as f64 * after.cores as f64;
        let known_ns = process_cpu_ns().saturating_sub(self.own_cpu_ns) + server_cpu_ns;
        let other_ns = after.busy_ns.saturating_sub(before.busy_ns).saturating_sub(known_ns);
        (whole_ns > 0.0).then(|| (other_ns as f64 / whole_ns).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::CrowdWatch;
    use std::time::{Duration, Instant};

    #[test]
    fn what_this_process_uses_is_not_counted_as_others() {
        let watch = CrowdWatch::begin();
        let begun = Instant::now();
        let mut sum = 0_u64;
        while begun.elapsed() < Duration::from_millis(100) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let share = watch.other_cpu_share(0).unwrap();
        assert!((0.0..=1.0).contains(&share));
        assert!(watch.other_cpu_share(u64::MAX / 2).unwrap() <= 0.0);
    }
}
