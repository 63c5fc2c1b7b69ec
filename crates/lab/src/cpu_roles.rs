//! CPU contention: how much other processes of the machine interfered with a measurement.

use crate::cores::process_cpu_ns;
use flatout_os::clock::precise_ns;
use flatout_os::procfs::{self, MachineBusy};

/// Observes the CPU use of the machine since the start of observation.
#[derive(Clone, Copy, Debug)]
pub struct CrowdWatch {
    begun_ns: u64,
    busy: Option<MachineBusy>,
    own_cpu_ns: u64,
}

impl CrowdWatch {
    /// Starts observing.
    pub fn begin() -> Self {
        Self { begun_ns: precise_ns(), busy: procfs::read_machine_busy().ok(), own_cpu_ns: process_cpu_ns() }
    }

    /// Returns the share of the machine's CPU, 0 to 1, that was used by neither this process nor the server, whose CPU
    /// time was `server_cpu_ns`. Returns `None` if /proc cannot be read.
    pub fn other_cpu_share(&self, server_cpu_ns: u64) -> Option<f64> {
        self.crowd(server_cpu_ns).map(|crowd| crowd.other_cpu_share)
    }

    /// Returns the CPU use by role since the start of observation. The server's CPU time was `server_cpu_ns`. Returns
    /// `None` if /proc cannot be read.
    pub fn crowd(&self, server_cpu_ns: u64) -> Option<CpuByRole> {
        let (before, after) = (self.busy?, procfs::read_machine_busy().ok()?);
        let elapsed_ns = precise_ns().saturating_sub(self.begun_ns) as f64;
        let own_ns = process_cpu_ns().saturating_sub(self.own_cpu_ns);
        let others = |before_ns: u64, after_ns: u64| {
            after_ns.saturating_sub(before_ns).saturating_sub(own_ns + server_cpu_ns) as f64
        };
        (elapsed_ns > 0.0).then(|| CpuByRole {
            other_cpu_share: (others(before.busy_ns, after.busy_ns) / (elapsed_ns * after.cores as f64)).min(1.0),
            other_cores: others(before.processes_ns, after.processes_ns) / elapsed_ns,
            client_cores: own_ns as f64 / elapsed_ns,
            server_cores: server_cpu_ns as f64 / elapsed_ns,
        })
    }
}

/// CPU use of the machine by client, server and other processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuByRole {
    /// Share of the machine's CPU used by neither client nor server, 0 to 1.
    pub other_cpu_share: f64,
    /// Mean number of cores used by other processes, without interrupts.
    pub other_cores: f64,
    /// Mean number of cores used by this process.
    pub client_cores: f64,
    /// Mean number of cores used by the server.
    pub server_cores: f64,
}

impl CpuByRole {
    /// Returns how much of the busiest client thread's waiting time other processes caused. While the thread waits,
    /// another process, the server or another client thread runs, each in proportion to its total use.
    pub fn of_client(&self, wait_share: f64, busy_share: f64) -> f64 {
        let rivals = self.other_cores + self.server_cores + (self.client_cores - busy_share).max(0.0);
        self.part_of(wait_share, rivals)
    }

    /// Returns how much of the server threads' waiting time other processes caused, in cores.
    pub fn of_server(&self, wait_cores: f64) -> f64 {
        self.part_of(wait_cores, self.other_cores + self.client_cores)
    }

    fn part_of(&self, wait: f64, rivals: f64) -> f64 {
        if rivals > 0.0 { (wait * self.other_cores / rivals).min(self.other_cores) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuByRole, CrowdWatch};
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

    #[test]
    fn a_wait_is_others_in_proportion_to_what_they_ran() {
        let crowd = |other_cores| CpuByRole { other_cpu_share: 0.0, other_cores, client_cores: 0.5, server_cores: 0.5 };
        // Client and server wait for each other on one core.
        assert!((crowd(0.0).of_client(0.5, 0.5), crowd(0.0).of_server(0.5)) == (0.0, 0.0));
        assert!((crowd(0.5).of_client(0.4, 0.5) - 0.2).abs() < 1e-9);
        assert!((crowd(0.5).of_server(0.4) - 0.2).abs() < 1e-9);
        assert!((crowd(0.01).of_server(9.0) - 0.01).abs() < 1e-9, "no more than they ran");
    }
}
