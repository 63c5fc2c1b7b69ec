//! CPU time of processes between two moments, with that of threads and children that ended in between.
//!
//! The kernel keeps what ended: in a process's CPU clock the time of its ended threads, and in its parent's `stat` that of
//! each child that was waited for. A server that starts a thread or a process for each connection has little else.

use crate::procfs;
use flatout_load::report::CpuClock;
use flatout_net::process_clock::process_cpu_ns;
use std::collections::BTreeMap;

/// What one process has used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessCpu {
    /// With all its threads.
    own_ns: u64,
    /// Its children that ended and were waited for, to 10 ms.
    children_ns: u64,
    clock: CpuClock,
}

impl ProcessCpu {
    /// Nothing where the process is gone.
    fn read(pid: u32) -> Option<Self> {
        let ticks = procfs::read_process_ticks(pid).ok();
        let children_ns = procfs::read_children_ticks(pid).map_or(0, procfs::Ticks::total_ns);
        let (own_ns, clock) = match (process_cpu_ns(pid), ticks) {
            (Ok(own_ns), _) => (own_ns, CpuClock::Process),
            (Err(_), Some(ticks)) => (ticks.total_ns(), CpuClock::ProcessTicks),
            (Err(_), None) => {
                let threads = procfs::read_task_times(pid).ok()?;
                (threads.values().map(|time| time.cpu_ns).sum(), CpuClock::Threads)
            }
        };
        Some(Self { own_ns, children_ns, clock })
    }
}

/// What some processes have used up to one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuReading(BTreeMap<u32, ProcessCpu>);

impl CpuReading {
    /// Looks at these processes now. Those that are gone are left out.
    pub fn of(processes: impl IntoIterator<Item = u32>) -> Self {
        Self(processes.into_iter().filter_map(|pid| Some((pid, ProcessCpu::read(pid)?))).collect())
    }

    /// What was used since `earlier`, in nanoseconds. A process that was not there counts whole. One that is gone counts
    /// where another of these has waited for it.
    pub fn used_since(&self, earlier: &Self) -> u64 {
        let (mut own_ns, mut children_ns) = (0_u64, 0_u64);
        for (pid, now) in &self.0 {
            let before = earlier.0.get(pid);
            own_ns += now.own_ns.saturating_sub(before.map_or(0, |before| before.own_ns));
            children_ns += now.children_ns.saturating_sub(before.map_or(0, |before| before.children_ns));
        }
        // Of children that ended, what they had used before is in their parent's sum as well.
        let gone = earlier.0.iter().filter(|(pid, _)| !self.0.contains_key(pid));
        let gone_ns: u64 = gone.map(|(_, before)| before.own_ns).sum();
        own_ns + children_ns.saturating_sub(gone_ns)
    }

    /// The least exact way in which one of the processes was read.
    pub fn clock(&self) -> CpuClock {
        let clocks = || self.0.values().map(|cpu| cpu.clock);
        if clocks().any(|clock| clock == CpuClock::Threads) {
            CpuClock::Threads
        } else if clocks().any(|clock| clock == CpuClock::ProcessTicks) {
            CpuClock::ProcessTicks
        } else {
            CpuClock::Process
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuClock, CpuReading, ProcessCpu};
    use std::process::{Command, Stdio};

    fn reading(processes: &[(u32, u64, u64)]) -> CpuReading {
        let cpu = |&(pid, own_ns, children_ns)| (pid, ProcessCpu { own_ns, children_ns, clock: CpuClock::Process });
        CpuReading(processes.iter().map(cpu).collect())
    }

    #[test]
    fn what_ended_counts_once() {
        let used = |before: &[_], after: &[_]| reading(after).used_since(&reading(before));
        assert_eq!(used(&[(1, 10, 0)], &[(1, 25, 0)]), 15);
        assert_eq!(used(&[(1, 10, 0)], &[(1, 10, 0), (2, 7, 0)]), 7, "a process that began");
        // A child of 5 before, which used 4 more, ended and was waited for.
        assert_eq!(used(&[(1, 10, 0), (2, 5, 0)], &[(1, 10, 9)]), 4);
        assert_eq!(used(&[(1, 10, 0)], &[(1, 11, 6)]), 7, "a child that came and went");
        assert_eq!(used(&[(1, 10, 0), (2, 5, 0)], &[(1, 10, 0)]), 0, "nobody has waited for it");
    }

    #[test]
    fn children_that_ended_are_counted() {
        // Each round starts a process that does some work and ends before the next one.
        let script = "read -r go; i=0; while [ $i -lt 40 ]; do (j=0; while [ $j -lt 3000 ]; do j=$((j+1)); done); i=$((i+1)); done; \
            echo done; read -r go";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, from) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let before = CpuReading::of([shell.id()]);
        std::io::Write::write_all(&mut to, b"go\n").unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(from), &mut line).unwrap();
        let after = CpuReading::of([shell.id()]);
        let own_ns = after.0[&shell.id()].own_ns - before.0[&shell.id()].own_ns;
        let used_ns = after.used_since(&before);
        drop(to);
        shell.wait().unwrap();
        assert!(after.clock() == CpuClock::Process && used_ns > 2 * own_ns, "{used_ns} with {own_ns} of its own");
    }
}
