//! The few files of /proc that the lab reads: CPU time by task and of the whole machine.
//!
//! Parsers take text, so they are tested without a kernel; readers name the file and hand over its text.

use std::collections::BTreeMap;
use std::fs;
use std::io;

/// On-CPU time and time spent ready but waiting for a core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedTime {
    /// On a core.
    pub cpu_ns: u64,
    /// Ready, waiting for a core.
    pub wait_ns: u64,
}

/// Length of a tick of /proc/stat. The kernel's own ticks vary; those it shows to programs are 100 a second everywhere
/// that Rust's standard library runs on.
const TICK_NS: u64 = 10_000_000;

/// How busy the machine has been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineBusy {
    /// Time on any core, of everybody and of the kernel itself, in nanoseconds, to a tick of 10 ms.
    pub busy_ns: u64,
    /// Cores of the machine, whether or not this process may use them.
    pub cores: usize,
}

/// On-CPU nanoseconds of every task of a process. Tasks that end while we look are left out.
pub fn read_task_cpu_ns(pid: u32) -> io::Result<BTreeMap<u32, u64>> {
    let mut tasks = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Some(task) = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) else { continue };
        if let Ok(time) = read_sched_time(&format!("/proc/{pid}/task/{task}/schedstat")) {
            tasks.insert(task, time.cpu_ns);
        }
    }
    Ok(tasks)
}

/// Times of the calling thread.
pub fn read_own_sched_time() -> io::Result<SchedTime> {
    read_sched_time("/proc/thread-self/schedstat")
}

/// Time that all cores together were busy since the machine started, and how many cores there are.
pub fn read_machine_busy() -> io::Result<MachineBusy> {
    parse_machine_busy(&fs::read_to_string("/proc/stat")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has another form than expected"))
}

/// `cpu user nice system idle iowait irq softirq steal guest guest_nice`, in ticks; guests are in user already.
fn parse_machine_busy(text: &str) -> Option<MachineBusy> {
    let all = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = all.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|index| ticks.get(index)).sum();
    let cores = text.lines().skip(1).take_while(|line| line.starts_with("cpu")).count();
    (ticks.len() >= 4 && cores > 0).then_some(MachineBusy { busy_ns: busy * TICK_NS, cores })
}

fn read_sched_time(path: &str) -> io::Result<SchedTime> {
    parse_sched_time(&fs::read_to_string(path)?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path} has another form than expected")))
}

fn parse_sched_time(text: &str) -> Option<SchedTime> {
    let mut fields = text.split_ascii_whitespace();
    Some(SchedTime { cpu_ns: fields.next()?.parse().ok()?, wait_ns: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::{MachineBusy, SchedTime, parse_machine_busy, parse_sched_time, read_own_sched_time};

    #[test]
    fn times_are_read_or_refused() {
        assert_eq!(parse_sched_time("5 7 9\n"), Some(SchedTime { cpu_ns: 5, wait_ns: 7 }));
        assert_eq!(parse_sched_time("5"), None);
        // A thread that has never left its core may still read as zero.
        assert!(read_own_sched_time().is_ok());
    }

    #[test]
    fn busy_time_leaves_out_idling_and_waiting_for_disks() {
        let text =
            "cpu  10 20 30 4000 5000 1 2 3 9 9\ncpu0 5 10 15 1 1 1 1 1 0 0\ncpu1 5 10 15 1 1 0 1 2 0 0\nintr 1\n";
        assert_eq!(parse_machine_busy(text), Some(MachineBusy { busy_ns: 660_000_000, cores: 2 }));
        assert_eq!(parse_machine_busy("cpu 1 2\n"), None);
        assert!(super::read_machine_busy().unwrap().busy_ns > 0);
    }
}
