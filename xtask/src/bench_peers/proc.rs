//! Processor time from /proc: of a server over all its processes, and of children that have ended.

use crate::failure::{Context, Outcome};
use std::path::Path;

/// The nanoseconds that a process and its direct children have spent on a processor, over all their threads.
///
/// Children, because nginx does its work in one: its parent only looks after it.
pub(super) fn on_cpu_ns(pid: u32) -> Outcome<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir("/proc").cannot("list /proc")?.flatten() {
        let Some(other) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let is_ours = other == pid || parent_of(&entry.path()) == Some(pid);
        if is_ours {
            total += threads_ns(&entry.path())?;
        }
    }
    if total == 0 {
        return Err(format!("the kernel counts no time for process {pid} in /proc/{pid}/task/*/schedstat").into());
    }
    Ok(total)
}

/// The nanoseconds that children of this process have spent, counted when each was waited for.
pub(super) fn ended_children_ns() -> Outcome<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").cannot("read /proc/self/stat")?;
    children_ticks(&stat).map(|ticks| ticks * NS_PER_TICK).cannot("read the children's time in /proc/self/stat")
}

/// The kernel reports to user space in hundredths of a second, whatever its own clock does.
const NS_PER_TICK: u64 = 10_000_000;

/// cutime + cstime: the 16th and 17th fields, of which the first two are before and inside the parentheses.
fn children_ticks(stat: &str) -> Option<u64> {
    let mut fields = after_name(stat)?.skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn parent_of(process: &Path) -> Option<u32> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    after_name(&stat)?.nth(1)?.parse().ok()
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
        assert_eq!(children_ticks(stat), Some(42));
        assert_eq!(after_name(stat).and_then(|mut fields| fields.nth(1)), Some("7"));
    }

    #[test]
    fn our_own_time_is_counted_and_a_dead_process_has_none() {
        assert!(on_cpu_ns(std::process::id()).is_ok());
        assert!(on_cpu_ns(u32::MAX).is_err());
        assert!(ended_children_ns().is_ok());
    }
}
