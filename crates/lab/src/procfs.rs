//! Readers of /proc: CPU time by task and of the whole machine.
//!
//! Parsers take text, so they are tested without a kernel; readers open the file and call them.

use std::collections::BTreeMap;
use std::fs;
use std::io;

/// CPU time and time spent ready but waiting for a core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedTime {
    /// On a core.
    pub cpu_ns: u64,
    /// Ready, waiting for a core.
    pub wait_ns: u64,
}

/// CPU time in user mode and in the kernel, in ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// In user mode.
    pub user: u64,
    /// In the kernel.
    pub system: u64,
}

impl Ticks {
    /// The difference to `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self { user: self.user.saturating_sub(earlier.user), system: self.system.saturating_sub(earlier.system) }
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }

    /// Both together, in nanoseconds.
    pub const fn total_ns(self) -> u64 {
        (self.user + self.system) * TICK_NS
    }

    /// Splits a more precisely measured time in the same proportion; in halves if there are no ticks.
    pub fn split(self, cpu_ns: u64) -> flatout_load::report::Cpu {
        let all = self.user + self.system;
        let user_share = if all == 0 { 0.5 } else { self.user as f64 / all as f64 };
        let user_ns = ((cpu_ns as f64 * user_share) as u64).min(cpu_ns);
        flatout_load::report::Cpu { user_ns, system_ns: cpu_ns - user_ns }
    }
}

/// Length of a tick of /proc/stat. The kernel's internal ticks vary; those shown to programs are 100 per second on
/// all platforms of Rust's standard library.
const TICK_NS: u64 = 10_000_000;

/// CPU use of the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineBusy {
    /// Busy time of all cores, including the kernel, in nanoseconds, to a tick of 10 ms.
    pub busy_ns: u64,
    /// The part used by processes: without interrupts and stolen time.
    pub processes_ns: u64,
    /// Cores of the machine, including those unavailable to this process.
    pub cores: usize,
}

/// Times of every task of a process, without tasks that have ended or end meanwhile.
pub fn read_task_times(pid: u32) -> io::Result<BTreeMap<u32, SchedTime>> {
    let mut tasks = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Some(task) = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) else { continue };
        if let Ok(time) = read_sched_time(&format!("/proc/{pid}/task/{task}/schedstat")) {
            tasks.insert(task, time);
        }
    }
    Ok(tasks)
}

/// Times of the calling thread.
pub fn read_own_sched_time() -> io::Result<SchedTime> {
    read_sched_time("/proc/thread-self/schedstat")
}

/// User and system time of the calling thread.
pub fn read_own_ticks() -> io::Result<Ticks> {
    read_ticks("/proc/thread-self/stat", OWN_TICKS)
}

/// User and system time of a process with all its threads, including ended ones.
pub fn read_process_ticks(pid: u32) -> io::Result<Ticks> {
    read_ticks(&format!("/proc/{pid}/stat"), OWN_TICKS)
}

/// User and system time of a process's reaped children.
pub fn read_children_ticks(pid: u32) -> io::Result<Ticks> {
    read_ticks(&format!("/proc/{pid}/stat"), CHILDREN_TICKS)
}

/// The parent of a process; `None` if the process is gone.
pub fn read_parent(pid: u32) -> Option<u32> {
    parse_parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The parent of every process of this machine.
pub fn read_parents() -> BTreeMap<u32, u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, read_parent(pid)?))).collect()
}

/// The current children of a process, of all its threads. `None` if the kernel does not list them
/// (`CONFIG_PROC_CHILDREN`) or the process is gone.
pub fn read_children(pid: u32) -> Option<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        match fs::read_to_string(entry.path().join("children")) {
            Ok(text) => children.extend(text.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok())),
            // The thread ended while its siblings were read.
            Err(_) if !entry.path().exists() => {}
            Err(_) => return None,
        }
    }
    Some(children)
}

/// Returns whether a process ignores SIGCHLD, so that the kernel reaps its children without accounting for their use.
pub fn ignores_children(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|text| parse_ignores_children(&text))
}

/// The state and then the parent are the fields after a program's name.
fn parse_parent(text: &str) -> Option<u32> {
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// `SigIgn` is a mask in hexadecimal, of which bit n - 1 is signal n.
fn parse_ignores_children(text: &str) -> bool {
    let mask = text.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (rustix::process::Signal::CHILD.as_raw() - 1)) != 0)
}

/// Positions of user and system time among the fields after the program's name: its own, and those of its reaped
/// children.
const OWN_TICKS: usize = 11;
const CHILDREN_TICKS: usize = 13;

fn read_ticks(path: &str, first: usize) -> io::Result<Ticks> {
    parse_ticks(&fs::read_to_string(path)?, first)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path} has another form than expected")))
}

/// `pid (name) state …`; a name may have spaces and brackets.
fn parse_ticks(text: &str, first: usize) -> Option<Ticks> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(first);
    Some(Ticks { user: fields.next()?.parse().ok()?, system: fields.next()?.parse().ok()? })
}

/// Returns whether the calling thread has a real-time policy. The kernel limits such threads to 95 % of each second
/// (`kernel.sched_rt_runtime_us`), and stops one that never sleeps for the rest.
pub fn is_realtime() -> bool {
    fs::read_to_string("/proc/thread-self/stat").is_ok_and(|text| parse_realtime(&text).unwrap_or_default())
}

/// Returns whether the scheduling policy, the 41st field, is FIFO, round robin or deadline.
fn parse_realtime(text: &str) -> Option<bool> {
    let (_, rest) = text.rsplit_once(')')?;
    let policy: u32 = rest.split_ascii_whitespace().nth(38)?.parse().ok()?;
    Some(matches!(policy, 1 | 2 | 6))
}

/// Memory and context switches of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// Peak resident memory, in bytes.
    pub memory_bytes_peak: u64,
    /// Voluntary context switches; the kernel reports those of the first thread only.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_forced: u64,
}

/// Reads that of a process, with the switches of all its threads added.
pub fn read_process_status(pid: u32) -> io::Result<ProcessStatus> {
    let mut all = parse_process_status(&fs::read_to_string(format!("/proc/{pid}/status"))?);
    (all.switches_voluntary, all.switches_forced) = (0, 0);
    for entry in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        if let Ok(text) = fs::read_to_string(entry.path().join("status")) {
            let task = parse_process_status(&text);
            all.switches_voluntary += task.switches_voluntary;
            all.switches_forced += task.switches_forced;
        }
    }
    Ok(all)
}

fn parse_process_status(text: &str) -> ProcessStatus {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0)
    };
    ProcessStatus {
        memory_bytes: field("VmRSS").saturating_mul(1024),
        memory_bytes_peak: field("VmHWM").saturating_mul(1024),
        switches_voluntary: field("voluntary_ctxt_switches"),
        switches_forced: field("nonvoluntary_ctxt_switches"),
    }
}

/// Busy time of all cores since boot, and the number of cores.
pub fn read_machine_busy() -> io::Result<MachineBusy> {
    parse_machine_busy(&fs::read_to_string("/proc/stat")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has another form than expected"))
}

/// Parses `cpu user nice system idle iowait irq softirq steal guest guest_nice`, in ticks; guests are included in
/// user.
fn parse_machine_busy(text: &str) -> Option<MachineBusy> {
    let all = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = all.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|index| ticks.get(index)).sum();
    let cores = text.lines().skip(1).take_while(|line| line.starts_with("cpu")).count();
    let processes: u64 = ticks.iter().take(3).sum();
    (ticks.len() >= 4 && cores > 0).then_some(MachineBusy {
        busy_ns: busy * TICK_NS,
        processes_ns: processes * TICK_NS,
        cores,
    })
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
    use super::{
        CHILDREN_TICKS, MachineBusy, OWN_TICKS, SchedTime, Ticks, is_realtime, parse_ignores_children,
        parse_machine_busy, parse_parent, parse_process_status, parse_realtime, parse_sched_time, parse_ticks,
        read_own_sched_time, read_own_ticks, read_parents, read_process_status,
    };

    #[test]
    fn times_are_read_or_refused() {
        assert_eq!(parse_sched_time("5 7 9\n"), Some(SchedTime { cpu_ns: 5, wait_ns: 7 }));
        assert_eq!(parse_sched_time("5"), None);
        // A thread that has never left its core may still read as zero.
        assert!(read_own_sched_time().is_ok());
    }

    #[test]
    fn ticks_stand_behind_whatever_the_name_is() {
        let text = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 110 12 0 0 20";
        assert_eq!(parse_ticks(text, OWN_TICKS), Some(Ticks { user: 110, system: 12 }));
        assert_eq!(parse_ticks(text, CHILDREN_TICKS), Some(Ticks { user: 0, system: 0 }));
        assert_eq!(parse_ticks("7 (a S 1", OWN_TICKS), None);
        let cpu = Ticks { user: 3, system: 1 }.split(1_000);
        assert_eq!((cpu.user_ns, cpu.system_ns), (750, 250));
        assert_eq!(Ticks::default().split(9).total_ns(), 9);
        assert!(read_own_ticks().is_ok());
    }

    #[test]
    fn parents_and_ignored_signals_are_read() {
        assert_eq!(parse_parent("7 (a) b (c) S 12 3 4"), Some(12));
        assert_eq!(parse_parent("7 (a"), None);
        assert_eq!(read_parents().get(&std::process::id()), Some(&std::os::unix::process::parent_id()));
        assert!(parse_ignores_children("SigBlk:\t0\nSigIgn:\t0000000000011000\n"));
        assert!(!parse_ignores_children("SigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001000\n"));
        assert!(!parse_ignores_children(""));
    }

    #[test]
    fn a_policy_is_told_by_its_field() {
        let fields = |policy: &str| format!("7 (a) b) S {} {policy} 0 0", ["0"; 37].join(" "));
        let found = ["0", "1", "2", "3", "5", "6", "x"].map(|policy| parse_realtime(&fields(policy)));
        let known = [false, true, true, false, false, true].map(Some);
        assert_eq!((&found[..6], found[6]), (&known[..], None));
        assert!(!is_realtime());
    }

    #[test]
    fn a_status_tells_memory_and_switches() {
        let text = "Name:\tx\nVmHWM:\t  20 kB\nVmRSS:\t  10 kB\nvoluntary_ctxt_switches:\t3\n\
            nonvoluntary_ctxt_switches:\t4\n";
        let status = parse_process_status(text);
        assert_eq!((status.memory_bytes, status.memory_bytes_peak), (10_240, 20_480));
        assert_eq!((status.switches_voluntary, status.switches_forced), (3, 4));
        assert!(read_process_status(std::process::id()).unwrap().memory_bytes > 0);
    }

    #[test]
    fn busy_time_leaves_out_idling_and_waiting_for_disks() {
        let text =
            "cpu  10 20 30 4000 5000 1 2 3 9 9\ncpu0 5 10 15 1 1 1 1 1 0 0\ncpu1 5 10 15 1 1 0 1 2 0 0\nintr 1\n";
        assert_eq!(
            parse_machine_busy(text),
            Some(MachineBusy { busy_ns: 660_000_000, processes_ns: 600_000_000, cores: 2 })
        );
        assert_eq!(parse_machine_busy("cpu 1 2\n"), None);
        assert!(super::read_machine_busy().unwrap().busy_ns > 0);
    }
}
