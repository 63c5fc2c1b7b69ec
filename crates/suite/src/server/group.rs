//! All processes of a server: the process that was started, its descendants, and the members of its process group.
//!
//! This process is made a child subreaper, which becomes the parent of orphaned descendants, so none of them can
//! escape.

use flatout_os::procfs::{ProcessStat, read_process_status, read_processes};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the processes of the server whose first process is `leader`, without zombies.
pub fn members(leader: u32) -> BTreeSet<u32> {
    let table = read_processes();
    let first = table.iter().filter(|(pid, entry)| **pid == leader || entry.group == leader);
    with_descendants(&table, first.map(|(pid, _)| *pid).collect())
}

/// Returns a process and its descendants, without zombies. Other members of its process group, such as those of a shell
/// pipe, are not included.
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

/// Returns the resident memory of these processes together, in bytes.
pub fn memory(processes: &BTreeSet<u32>) -> u64 {
    processes.iter().filter_map(|pid| read_process_status(*pid).ok()).map(|status| status.memory_bytes).sum()
}

/// Asks the kernel to make orphaned descendants children of this process.
pub fn adopt_orphans() {
    // Without kernel support, servers that daemonise are found only by their process group.
    let _set = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Sends a signal to a process group and to these processes. A `leader` of 0 means no group.
pub fn signal(leader: u32, members: &BTreeSet<u32>, number: i32) {
    let Some(signal) = Signal::from_named_raw(number) else { return };
    if let Some(group) = Pid::from_raw(leader.cast_signed()) {
        // This may fail if the process has exited, which needs no signal.
        let _sent = kill_process_group(group, signal);
    }
    for pid in members {
        if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
            let _sent = kill_process(pid, signal);
        }
    }
}

/// Kills and reaps children of this process except those in `known`. They are orphans that servers left running.
/// Returns their process IDs.
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
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn descendants_are_members() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 30 & echo begun; wait"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        let found = members(child.id());
        super::signal(0, &found, 9);
        child.wait().unwrap();
        assert_eq!(found.len(), 2);
    }
}
