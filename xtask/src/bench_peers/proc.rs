//! Processor time from /proc: of a server over all its processes, and of children that have ended.

use crate::failure::{Context, Outcome};
use std::path::Path;

/// What some processes and their direct children have spent on a processor.
///
/// Children, because nginx does its work in one: its parent only looks after it. So does PHP-FPM, in many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OnCpu {
    /// The nanoseconds of the threads that are there.
    threads_ns: u64,
    /// The hundredths of a second of all there ever were, and of children that have ended.
    ticks: u64,
    /// How many they are.
    processes: u64,
}

impl OnCpu {
    /// Looks at them now.
    pub(super) fn of(pids: &[u32]) -> Outcome<Self> {
        let mut total = Self::default();
        for entry in std::fs::read_dir("/proc").cannot("list /proc")?.flatten() {
            let Some(other) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // A process that ends while it is read has nothing more to add.
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            if pids.contains(&other) || parent_of(&stat).is_some_and(|parent| pids.contains(&parent)) {
                total.processes += 1;
                total.threads_ns += threads_ns(&entry.path())?;
                total.ticks += ticks(&stat, OWN_TIME_FIELD, 4).cannot("read the time of a process")?;
            }
        }
        if total.threads_ns == 0 {
            return Err(format!("the kernel counts no time for {pids:?} in /proc/PID/task/*/schedstat").into());
        }
        Ok(total)
    }

    /// The nanoseconds spent since an earlier look; exact, unless threads have ended and taken more with them than the
    /// clock of processes may be wrong by. Then that clock is all there is.
    pub(super) fn ns_since(self, before: Self) -> Outcome<u64> {
        let by_ticks = self.ticks.checked_sub(before.ticks).cannot("add up a server's time: it has gone backwards")?;
        let by_ticks = by_ticks * NS_PER_TICK;
        let by_threads = self.threads_ns.checked_sub(before.threads_ns);
        let exact = by_threads.filter(|ns| by_ticks <= ns + self.ticks_error_max() * NS_PER_TICK);
        Ok(exact.unwrap_or(by_ticks))
    }

    /// User and system time are each cut to a whole tick, of at least two processes.
    fn ticks_error_max(self) -> u64 {
        2 * self.processes.max(2)
    }
}

/// The nanoseconds that children of this process have spent, counted when each was waited for.
pub(super) fn ended_children_ns() -> Outcome<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").cannot("read /proc/self/stat")?;
    ticks(&stat, CHILDREN_TIME_FIELD, 2)
        .map(|ticks| ticks * NS_PER_TICK)
        .cannot("read the children's time in /proc/self/stat")
}

/// The kernel reports to user space in hundredths of a second, whatever its own clock does.
const NS_PER_TICK: u64 = 10_000_000;

/// Where a process's own user time stands among the fields behind its name; behind it come its system time, and both of
/// its children that were waited for.
const OWN_TIME_FIELD: usize = 11;
const CHILDREN_TIME_FIELD: usize = 13;

/// The sum of so many fields of a stat.
fn ticks(stat: &str, first: usize, count: usize) -> Option<u64> {
    let mut fields = after_name(stat)?.skip(first);
    (0..count).map(|_| fields.next()?.parse::<u64>().ok()).sum()
}

fn parent_of(stat: &str) -> Option<u32> {
    after_name(stat)?.nth(1)?.parse().ok()
}

/// The fields after the program's name, which may itself hold blanks and parentheses.
fn after_name(stat: &str) -> Option<std::str::SplitWhitespace<'_>> {
    stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace())
}

fn threads_ns(process: &Path) -> Outcome<u64> {
    let mut total = 0;
    // A process that ends while it is read has nothing more to add.
    for thread in std::fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
        let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else { continue };
        let first = text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
        total += first.cannot("read a schedstat: this kernel does not keep them")?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_behind_the_name() {
        let stat = "12 (a ) (b) S 7 5 5 0 -1 4194304 1 2 3 4 100 200 11 31 20 0 1 0";
        assert_eq!(ticks(stat, CHILDREN_TIME_FIELD, 2), Some(42));
        assert_eq!(ticks(stat, OWN_TIME_FIELD, 4), Some(342));
        assert_eq!(parent_of(stat), Some(7));
    }

    #[test]
    fn our_own_time_is_counted_and_a_dead_process_has_none() {
        assert!(OnCpu::of(&[std::process::id()]).is_ok());
        assert!(OnCpu::of(&[u32::MAX]).is_err());
        assert!(ended_children_ns().is_ok());
    }

    #[test]
    fn time_of_threads_that_have_ended_is_not_lost() {
        let at = |threads_ms: u64, ticks| OnCpu { threads_ns: threads_ms * 1_000_000, ticks, processes: 2 };
        let before = at(1000, 100);
        // Both clocks agree, but for their resolution: the exact one counts.
        assert_eq!(at(1515, 150).ns_since(before).unwrap(), 515_000_000);
        assert_eq!(at(1461, 150).ns_since(before).unwrap(), 461_000_000);
        // Threads have ended with more than that, or with what they had before.
        assert_eq!(at(1300, 150).ns_since(before).unwrap(), 500_000_000);
        assert_eq!(at(900, 150).ns_since(before).unwrap(), 500_000_000);
        assert!(at(1500, 50).ns_since(before).is_err());
    }
}
