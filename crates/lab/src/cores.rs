//! The cores available to this process, and pinning of threads.

use rustix::io;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Returns the cores that the calling thread may run on, in ascending order; never empty.
pub fn cores_allowed() -> Vec<usize> {
    let cores = cores_of(None);
    // If the kernel does not report any core, there is at least one.
    if cores.is_empty() { vec![0] } else { cores }
}

/// Returns whether polling client threads leave the server, which consists of these processes, as many cores as they
/// use themselves.
pub fn leave_room(threads: u32, server: impl Iterator<Item = u32>) -> bool {
    let ours = cores_allowed();
    let mut others: Vec<usize> = server.flat_map(|process| cores_of(Pid::from_raw(process.cast_signed()))).collect();
    others.sort_unstable();
    others.dedup();
    others.retain(|core| !ours.contains(core));
    let threads = threads.max(1) as usize;
    others.len() + ours.len().saturating_sub(threads) >= threads
}

fn cores_of(task: Option<Pid>) -> Vec<usize> {
    sched_getaffinity(task)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
        .unwrap_or_default()
}

/// The cores of server and client. They are different if the machine has several cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorePair {
    /// The core of the side under measurement.
    pub server: usize,
    /// The core of the side that generates the load.
    pub client: usize,
}

impl CorePair {
    /// Chooses the first and the second available core, or the same core twice if there is only one.
    pub fn choose() -> Self {
        let cores = cores_allowed();
        Self { server: cores[0], client: cores.get(1).copied().unwrap_or(cores[0]) }
    }

    /// Returns the number of different cores, 1 or 2.
    pub fn cores_used(self) -> usize {
        if self.server == self.client { 1 } else { 2 }
    }
}

/// Returns the CPU time of this process with all its threads, including exited threads, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Pins the calling thread to one core.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
}

/// The cores that a thread may run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Any available core.
    Anywhere,
    /// Only this core.
    Core(usize),
    /// The same cores as the task with this ID, in whose place the thread runs.
    AsTask(u32),
}

impl Placement {
    /// Applies the placement to the calling thread.
    pub fn apply(self) -> io::Result<()> {
        match self {
            Self::Anywhere => Ok(()),
            Self::Core(core) => pin_to_core(core),
            Self::AsTask(task) => sched_setaffinity(None, &sched_getaffinity(Pid::from_raw(task.cast_signed()))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CorePair, cores_allowed, pin_to_core};

    #[test]
    fn a_pinned_thread_is_allowed_one_core() {
        let last = *cores_allowed().last().unwrap();
        let seen = std::thread::spawn(move || {
            pin_to_core(last).unwrap();
            cores_allowed()
        });
        assert_eq!(seen.join().unwrap(), vec![last]);
    }

    #[test]
    fn a_pair_uses_two_cores_where_there_are_two() {
        assert_eq!(CorePair::choose().cores_used(), cores_allowed().len().min(2));
    }
}
