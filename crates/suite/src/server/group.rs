//! All processes of a server: the started one, its descendants, and members of its process group.
//!
//! Orphaned ones become children of this process (it requests that from the kernel), so none can escape.

use flatout_lab::procfs;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use std::collections::{BTreeMap, BTreeSet};

/// The kernel's data of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessEntry {
    parent: u32,
    group: u32,
    is_zombie: bool,
}

/// All processes there are.
fn table() -> BTreeMap<u32, ProcessEntry> {
    let mut table = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process that ends while it is read is no longer ours.
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(found) = parse(&stat) {
            table.insert(pid, found);
        }
    }
    table
}

fn parse(stat: &str) -> Option<ProcessEntry> {
    // The program's name may itself hold blanks and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let is_zombie = fields.next()? == "Z";
    Some(ProcessEntry { parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()?, is_zombie })
}

/// The processes of the server that was started as `leader`, zombies left out.
pub fn members(leader: u32) -> BTreeSet<u32> {
    let table = table();
    let first = table.iter().filter(|(pid, entry)| **pid == leader || entry.group == leader);
    with_descendants(&table, first.map(|(pid, _)| *pid).collect())
}

/// A process and its descendants, zombies left out; others of its group, such as those of a shell's pipe, are not meant.
pub fn members_below(process: u32) -> BTreeSet<u32> {
    with_descendants(&table(), BTreeSet::from([process]))
}

fn with_descendants(table: &BTreeMap<u32, ProcessEntry>, mut members: BTreeSet<u32>) -> BTreeSet<u32> {
    loop {
        let before = members.len();
        let more: Vec<u32> =
            table.iter().filter(|(_, entry)| members.contains(&entry.parent)).map(|(pid, _)| *pid).collect();
        members.extend(more);
        if members.len() == before {
            break;
        }
    }
    members.retain(|pid| table.get(pid).is_some_and(|entry| !entry.is_zombie));
    members
}

/// Resident memory of some processes, in bytes.
pub fn memory(processes: &BTreeSet<u32>) -> u64 {
    processes.iter().filter_map(|pid| procfs::read_process_status(*pid).ok()).map(|status| status.memory_bytes).sum()
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
    let orphans: Vec<u32> = table()
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
    use super::{members, parse};
    use std::process::Command;

    #[test]
    fn a_line_of_the_kernel_is_read_behind_the_name() {
        let entry = parse("12 (a ) (b) Z 7 5 5 0 -1").unwrap();
        assert_eq!((entry.parent, entry.group, entry.is_zombie), (7, 5, true));
        assert!(parse("").is_none() && parse("1 (x) S").is_none());
    }

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
