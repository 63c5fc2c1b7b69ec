//! CPU time of processes between two moments, including threads and children that exited in between.
//!
//! The kernel retains the CPU time of threads and processes that have exited: a process's CPU clock includes its exited
//! threads, and a parent's `stat` includes each reaped child. In a server with one thread or process per connection,
//! this is nearly all of the CPU time.

use crate::tree::ObservedProcesses;
use flatout_load::report::CpuClock;
use flatout_os::process_clock::process_cpu_ns;
use flatout_os::procfs::{self, ProcessStat, Ticks};
use std::collections::BTreeMap;

/// CPU use of one process up to one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessCpu {
    parent: u32,
    /// True if the kernel reaps the process's children without accounting for their CPU time.
    ignores_children: bool,
    /// CPU time of all threads of the process, in nanoseconds.
    own_ns: u64,
    /// CPU time of the reaped children in nanoseconds, with a resolution of 10 ms.
    children_ns: u64,
    clock: CpuClock,
}

impl ProcessCpu {
    /// Reads the CPU use of a process; `None` if the process has exited.
    fn read(pid: u32) -> Option<Self> {
        let stat = ProcessStat::read(pid).ok();
        let threads_ns = || Some(procfs::read_task_times(pid).ok()?.values().map(|time| time.cpu_ns).sum());
        let (own_ns, clock) = choose_clock(process_cpu_ns(pid).ok(), stat.map(|stat| stat.own), threads_ns)?;
        Some(Self {
            parent: stat.map_or(0, |stat| stat.parent),
            ignores_children: procfs::ignores_children(pid),
            own_ns,
            children_ns: stat.map_or(0, |stat| stat.children.total_ns()),
            clock,
        })
    }
}

/// Chooses the most precise source for a process. The sum over its threads is the last resort, because it lacks exited
/// threads.
fn choose_clock(
    process_ns: Option<u64>,
    ticks: Option<Ticks>,
    threads_ns: impl FnOnce() -> Option<u64>,
) -> Option<(u64, CpuClock)> {
    match (process_ns, ticks) {
        (Some(own_ns), _) => Some((own_ns, CpuClock::Process)),
        (None, Some(ticks)) => Some((ticks.total_ns(), CpuClock::ProcessTicks)),
        (None, None) => Some((threads_ns()?, CpuClock::Threads)),
    }
}

/// Possible difference between the children's own clocks and their parent's ticks of 10 ms, in nanoseconds.
const SLACK_NS: u64 = 20_000_000;

/// Maximum number of ancestors that are followed.
const GENERATIONS_MAX: u32 = 64;

/// CPU use of some processes up to one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuReading(BTreeMap<u32, ProcessCpu>);

impl CpuReading {
    /// Reads these processes now. Processes that have exited are left out.
    pub fn of(processes: impl IntoIterator<Item = u32>) -> Self {
        Self(processes.into_iter().filter_map(|pid| Some((pid, ProcessCpu::read(pid)?))).collect())
    }

    /// Returns the CPU time used since `earlier`, in nanoseconds. All the time of a new process counts. The time of a
    /// process that has exited counts if one of the other processes has reaped it.
    pub fn used_since(&self, earlier: &Self) -> u64 {
        // The sum of a parent also includes what exited children had used before `earlier`.
        let mut gone_ns: BTreeMap<u32, u64> = BTreeMap::new();
        for (pid, before) in earlier.0.iter().filter(|(pid, _)| !self.0.contains_key(pid)) {
            if let Some(parent) = self.heir(*pid, |pid| Some(earlier.0.get(&pid)?.parent)) {
                *gone_ns.entry(parent).or_default() += before.own_ns + before.children_ns;
            }
        }
        let each = self.0.iter().map(|(pid, now)| {
            let own_ns = now.own_ns.saturating_sub(earlier.0.get(pid).map_or(0, |before| before.own_ns));
            let gone_ns = gone_ns.get(pid).copied().unwrap_or(0);
            own_ns + self.children_since(*pid, earlier).saturating_sub(gone_ns)
        });
        each.sum()
    }

    /// Returns whether a child exited since `earlier` whose CPU time is in no sum, because its parent ignores SIGCHLD
    /// or has not reaped it. `seen` are processes that were observed in between.
    pub fn has_lost_since(&self, earlier: &Self, seen: &ObservedProcesses) -> bool {
        let known = earlier.0.iter().map(|(pid, cpu)| (*pid, cpu.parent, cpu.own_ns));
        let mut gone: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
        for (pid, parent, own_ns) in known.chain(seen.iter()).filter(|(pid, ..)| !self.0.contains_key(pid)) {
            let entry = gone.entry(pid).or_insert((parent, 0));
            entry.1 = entry.1.max(own_ns);
        }
        let mut known_ns: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for (pid, (_, own_ns)) in &gone {
            let heir = self.heir(*pid, |pid| Some(gone.get(&pid)?.0));
            if heir.and_then(|heir| self.0.get(&heir)).is_some_and(|heir| heir.ignores_children) {
                return true;
            }
            *known_ns.entry(heir).or_default() += own_ns;
        }
        known_ns.into_iter().any(|(heir, known_ns)| {
            let told_ns = heir.map_or(0, |heir| self.children_since(heir, earlier));
            known_ns > told_ns + SLACK_NS
        })
    }

    /// Returns the CPU time of children of a process that were reaped since `earlier`, in nanoseconds.
    fn children_since(&self, pid: u32, earlier: &Self) -> u64 {
        let of = |reading: &Self| reading.0.get(&pid).map_or(0, |cpu| cpu.children_ns);
        of(self).saturating_sub(of(earlier))
    }

    /// Returns the nearest ancestor of an exited process that still exists, according to the known parents.
    fn heir(&self, pid: u32, parent_of: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let mut next = parent_of(pid)?;
        // Process IDs are reused, so the known parents may form a cycle.
        for _ in 0..GENERATIONS_MAX {
            if self.0.contains_key(&next) {
                return Some(next);
            }
            next = parent_of(next)?;
        }
        None
    }

    /// Returns the least precise source that was used for any of the processes.
    pub fn clock(&self) -> CpuClock {
        self.0.values().map(|cpu| cpu.clock).max().unwrap_or(CpuClock::Process)
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuClock, CpuReading, ObservedProcesses, ProcessCpu, choose_clock};
    use flatout_os::procfs::Ticks;
    use std::process::{Command, Stdio};

    /// Creates a reading in which each process is the parent of the next.
    fn reading(processes: &[(u32, u64, u64)]) -> CpuReading {
        let cpu = |&(pid, own_ns, children_ns)| {
            let (parent, clock) = (pid - 1, CpuClock::Process);
            (pid, ProcessCpu { parent, ignores_children: false, own_ns, children_ns, clock })
        };
        CpuReading(processes.iter().map(cpu).collect())
    }

    #[test]
    fn children_that_nobody_waited_for_are_noticed() {
        let ms = 1_000_000;
        let lost = |before: &[_], seen: &[_], after: &[_]| {
            reading(after).has_lost_since(&reading(before), &seen.iter().copied().collect())
        };
        assert!(!lost(&[(1, 10, 0)], &[], &[(1, 25, 0)]));
        assert!(!lost(&[(1, 0, 0)], &[(2, 1, 50 * ms)], &[(1, 0, 60 * ms)]), "its parent waited for it");
        assert!(lost(&[(1, 0, 0)], &[(2, 1, 50 * ms)], &[(1, 0, 0)]), "seen once, and then gone");
        assert!(lost(&[(1, 0, 0), (2, 50 * ms, 0)], &[], &[(1, 0, 0)]), "there at the beginning, and then gone");
        assert!(!lost(&[(1, 0, 0)], &[(2, 1, 9 * ms)], &[(1, 0, 0)]), "less than the ticks tell");
        assert!(!lost(&[(1, 0, 0)], &[(2, 1, 5), (3, 2, 50 * ms)], &[(1, 0, 60 * ms)]), "a grandchild");
        assert!(!lost(&[(1, 0, 0)], &[(2, 1, 50 * ms)], &[(1, 0, 0), (2, 80 * ms, 0)]), "it is still there");
        let mut ignoring = reading(&[(1, 0, 0)]);
        assert!(!ignoring.has_lost_since(&reading(&[(1, 0, 0)]), &ObservedProcesses::from_iter([(2, 1, 5)])));
        ignoring.0.get_mut(&1).unwrap().ignores_children = true;
        assert!(ignoring.has_lost_since(&reading(&[(1, 0, 0)]), &ObservedProcesses::from_iter([(2, 1, 5)])));
        assert!(!ignoring.has_lost_since(&reading(&[(1, 0, 0)]), &ObservedProcesses::default()), "it had no children");
    }

    #[test]
    fn the_most_exact_clock_is_used_and_the_least_exact_is_told() {
        let ticks = Some(Ticks { user: 3, system: 1 });
        let unasked = || panic!("threads are asked although a clock with ended threads is known");
        assert_eq!(choose_clock(Some(7), ticks, unasked), Some((7, CpuClock::Process)));
        assert_eq!(choose_clock(Some(7), None, unasked), Some((7, CpuClock::Process)));
        assert_eq!(choose_clock(None, ticks, unasked), Some((40_000_000, CpuClock::ProcessTicks)));
        assert_eq!(choose_clock(None, None, || Some(5)), Some((5, CpuClock::Threads)));
        assert_eq!(choose_clock(None, None, || None), None, "the process is gone");

        let mut all = reading(&[(1, 0, 0), (2, 0, 0), (3, 0, 0)]);
        assert_eq!((all.clock(), CpuReading::default().clock()), (CpuClock::Process, CpuClock::Process));
        for clock in [CpuClock::ProcessTicks, CpuClock::Threads] {
            all.0.get_mut(&2).unwrap().clock = clock;
            assert_eq!(all.clock(), clock);
        }
    }

    #[test]
    fn what_ended_counts_once() {
        let used = |before: &[_], after: &[_]| reading(after).used_since(&reading(before));
        assert_eq!(used(&[(1, 10, 0)], &[(1, 25, 0)]), 15);
        assert_eq!(used(&[(1, 10, 0)], &[(1, 10, 0), (2, 7, 0)]), 7, "a process that began");
        // A child with 5 used 4 more, exited and was waited for.
        assert_eq!(used(&[(1, 10, 0), (2, 5, 0)], &[(1, 10, 9)]), 4);
        assert_eq!(used(&[(1, 10, 0)], &[(1, 11, 6)]), 7, "a child that came and went");
        assert_eq!(used(&[(1, 10, 0), (2, 5, 0)], &[(1, 10, 0)]), 0, "the parent has not waited for it");
        assert_eq!(used(&[(1, 0, 0), (2, 5, 3), (3, 2, 0)], &[(1, 0, 14)]), 4, "a child, with a child of its own");
        assert_eq!(used(&[(1, 0, 0), (9, 5, 0)], &[(1, 0, 4)]), 4, "a child of another process");
    }

    #[test]
    fn children_that_ended_are_counted() {
        // Each round starts a process that does some work and exits before the next round.
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
