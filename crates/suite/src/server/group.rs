//! All processes of a server: the started one, its descendants, and members of its process group.
//!
//! Orphaned ones become children of this process (it requests that from the kernel), so none can escape.

use flatout_os::procfs::{ProcessStat, read_process_status, read_processes};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use std::collections::{BTreeMap, BTreeSet};

/// The processes of the server that was started as `leader`, zombies left out.
pub fn members(leader: u32) -> BTreeSet<u32> {
    let table = read_processes();
    let first = table.iter().filter(|(pid, entry)| **pid == leader || entry.group == leader);
    with_descendants(&table, first.map(|(pid, _)| *pid).collect())
}

/// A process and its descendants, zombies left out; others of its group, such as those of a shell's pipe, are not meant.
pub fn members_below(process: u32) -> BTreeSet<u32> {
    with_descendants(&read_processes(), BTreeSet::from([process]))
}

fn with_descendants(table: &BTreeMap<u32, ProcessStat>, mut members: BTreeSet<u32>) -> BTreeSet<u32> {
    loop {
        let before = members.len();
        let more: Vec<u32> =
            table.iter().filter(|(_, entry)| members.contains(&entry.parent)).map(|(pid, _)| *pid).collect();
        members.extend(more);
        if members.len() == before {
            break;
        }
    }
    members.retain(|pid| table.get(pid).is_some_and(|entry| !entry.has_ended()));
    members
}

/// Resident memory of some processes, in bytes.
pub fn memory(processes: &BTreeSet<u32>) -> u64 {
    processes.iter().filter_map(|pid| read_process_status(*pid).ok()).map(|status| status.memory_bytes).sum()
}

/// Has the kernel make orphaned descendants children of this process.
pub fn adopt_orphans() {
    // Without kernel support, servers that daemonise are found by their group only.
    let _set = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Sends a signal to a group and to these processes.
pub fn signal(leader: u32, members: &BTreeSet<u32>, number: i32) {
    let Some(signal) = Signal::from_named_raw(number) else { return };
    if let Some(group) = Pid::from_raw(leader.cast_signed()) {
        // A process that is gone needs no signal.
        let _sent = kill_process_group(group, signal);
    }
    for pid in members {
        if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
            let _sent = kill_process(pid, signal);
        }
    }
}

/// Stops and reaps children of this process that it did not start itself: leftovers of servers.
pub fn reap_orphans(known: &BTreeSet<u32>) -> Vec<u32> {
    let own = std::process::id();
    let mut reaped = Vec::new();
    let orphans: Vec<u32> = read_processes()
        .iter()
        .filter(|(pid, entry)| entry.parent == own && !known.contains(pid))
        .map(|(pid, _)| *pid)
        .collect();
    for orphan in orphans {
        let Some(pid) = Pid::from_raw(orphan.cast_signed()) else { continue };
        let _sent = kill_process(pid, Signal::KILL);
        let _waited = waitpid(Some(pid), WaitOptions::empty());
        reaped.push(orphan);
    }
    reaped
}

#[cfg(test)]
mod tests {
    use super::members;
    use std::process::Command;

    #[test]
    fn descendants_are_members() {
        let mut child = Command::new("sh").args(["-c", "sleep 30 & wait"]).spawn().unwrap();
        let begun = std::time::Instant::now();
        while members(child.id()).len() < 2 && begun.elapsed().as_secs() < 30 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let found = members(child.id());
        super::signal(0, &found, 9);
        child.wait().unwrap();
        assert_eq!(found.len(), 2);
    }
}
