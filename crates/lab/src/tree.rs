//! The processes of a server: those that hold its listening socket, and all descendants of those.
//!
//! Workers of Node's `cluster`, and children that serve one connection each, do not hold the listening socket. They are
//! found by their parents. Two kinds of processes are not followed: children of a process that started flatout, because
//! its other children need not belong to the server; and daemonised children, which fork twice.

use flatout_os::process_clock::process_cpu_ns;
use flatout_os::procfs::{self, ProcessStat};
use std::collections::{BTreeMap, BTreeSet};

/// Returns these processes and all their current descendants, each with its parent if the parent is among them.
pub fn descendants(roots: &BTreeSet<u32>) -> BTreeMap<u32, Option<u32>> {
    let own = own_line();
    let mut processes: Option<BTreeMap<u32, ProcessStat>> = None;
    let mut children_of = |pid: u32| {
        procfs::read_children(pid).unwrap_or_else(|| {
            let processes = processes.get_or_insert_with(procfs::read_processes);
            processes.iter().filter(|(_, stat)| stat.parent == pid).map(|(child, _)| *child).collect()
        })
    };
    let mut found: BTreeMap<u32, Option<u32>> = roots.iter().map(|pid| (*pid, None)).collect();
    let mut next: Vec<u32> = roots.iter().copied().filter(|pid| !own.contains(pid)).collect();
    while let Some(pid) = next.pop() {
        for child in children_of(pid) {
            let parent = found.entry(child).or_insert_with(|| {
                next.push(child);
                None
            });
            *parent = Some(pid);
        }
    }
    found
}

/// Returns this process and its ancestors.
fn own_line() -> BTreeSet<u32> {
    let mut line = BTreeSet::new();
    let mut next = Some(std::process::id());
    while let Some(pid) = next.filter(|pid| *pid > 0 && line.insert(*pid)) {
        next = ProcessStat::read(pid).ok().map(|stat| stat.parent);
    }
    line
}

/// Processes that were observed at any time, with the parent and the last known CPU time of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedProcesses(BTreeMap<u32, (u32, u64)>);

/// Maximum number of observed processes.
const SEEN_MAX: usize = 100_000;

impl ObservedProcesses {
    /// Records all current descendants of these processes.
    pub fn look(&mut self, roots: &BTreeSet<u32>) {
        for (pid, parent) in descendants(roots) {
            if let (Some(parent), Ok(own_ns)) = (parent, process_cpu_ns(pid))
                && (self.0.len() < SEEN_MAX || self.0.contains_key(&pid))
            {
                self.0.insert(pid, (parent, own_ns));
            }
        }
    }

    /// Iterates over the processes, with ID, parent, and CPU time in nanoseconds.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        self.0.iter().map(|(pid, (parent, own_ns))| (*pid, *parent, *own_ns))
    }
}

impl FromIterator<(u32, u32, u64)> for ObservedProcesses {
    fn from_iter<I: IntoIterator<Item = (u32, u32, u64)>>(processes: I) -> Self {
        Self(processes.into_iter().map(|(pid, parent, own_ns)| (pid, (parent, own_ns))).collect())
    }
}
