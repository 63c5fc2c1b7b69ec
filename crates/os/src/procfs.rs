//! Readers of /proc: processes, threads, the machine and the kernel's settings.
//!
//! Parsers take a string, so they are tested without a kernel; readers open the file and call them. Listening sockets
//! and the processes that own them are in [`socket`](crate::socket).

use std::collections::BTreeMap;
use std::fs;
use std::io;

/// CPU time and time spent ready but waiting for a core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedTime {
    /// Time running on a core.
    pub cpu_ns: u64,
    /// Time ready to run, waiting for a core.
    pub wait_ns: u64,
}

/// CPU time in user mode and in the kernel, in ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// Ticks in user mode.
    pub user: u64,
    /// Ticks in the kernel.
    pub system: u64,
}

impl Ticks {
    /// The ticks since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self { user: self.user.saturating_sub(earlier.user), system: self.system.saturating_sub(earlier.system) }
    }

    /// The sum of both, in nanoseconds.
    pub const fn total_ns(self) -> u64 {
        (self.user + self.system) * TICK_NS
    }

    /// The share of ticks in user mode, from 0 to 1; 0.5 if there are no ticks.
    pub fn user_share(self) -> f64 {
        let all = self.user + self.system;
        if all == 0 { 0.5 } else { self.user as f64 / all as f64 }
    }
}

/// Length of a tick in /proc/stat, in nanoseconds. The kernel's internal ticks vary, but those shown to programs are
/// 100 per second on all platforms of Rust's standard library.
const TICK_NS: u64 = 10_000_000;

/// CPU use of the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineBusy {
    /// Busy time of all cores, including the kernel's, in nanoseconds, with a resolution of 10 ms.
    pub busy_ns: u64,
    /// The part of the busy time that processes used, in nanoseconds: without interrupts and stolen time.
    pub processes_ns: u64,
    /// Number of cores of the machine, including those unavailable to this process.
    pub cores: usize,
}

/// The fields of `/proc/PID/stat` that this program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// State of the process: `R`, `S`, `Z` and so on.
    pub state: char,
    /// The parent's process ID.
    pub parent: u32,
    /// The process group's ID.
    pub group: u32,
    /// CPU time of all threads, including exited ones.
    pub own: Ticks,
    /// CPU time of the children that have been reaped.
    pub children: Ticks,
    /// Start time, in the kernel's ticks since boot.
    pub start: u64,
    policy: u32,
}

impl ProcessStat {
    /// Reads the fields of the process `pid`, or of this thread if `pid` is `thread-self`.
    pub fn read(pid: impl std::fmt::Display) -> io::Result<Self> {
        read_parsed(&format!("/proc/{pid}/stat"), parse_stat)
    }

    /// Returns whether the process has exited, although its parent may not have reaped it yet.
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Returns whether the scheduling policy is FIFO, round robin or deadline. The kernel limits such threads to 95 %
    /// of each second (`kernel.sched_rt_runtime_us`), and suspends a thread that never sleeps for the rest of the
    /// second.
    pub const fn is_realtime(&self) -> bool {
        matches!(self.policy, 1 | 2 | 6)
    }
}

/// All processes of this machine, by process ID.
pub fn read_processes() -> BTreeMap<u32, ProcessStat> {
    // Leaves out processes that exit while /proc is being read.
    numbered("/proc").into_iter().flatten().filter_map(|pid| Some((pid, ProcessStat::read(pid).ok()?))).collect()
}

/// Times of every thread of a process, by thread ID, without threads that have exited or exit during the call.
pub fn read_task_times(pid: u32) -> io::Result<BTreeMap<u32, SchedTime>> {
    let time = |task: u32| Some((task, read_sched_time(&format!("{pid}/task/{task}")).ok()?));
    Ok(numbered(&format!("/proc/{pid}/task"))?.filter_map(time).collect())
}

/// Times of one thread: `thread` is `thread-self` or `PID/task/TASK`.
pub fn read_sched_time(thread: &str) -> io::Result<SchedTime> {
    read_parsed(&format!("/proc/{thread}/schedstat"), parse_sched_time)
}

/// The current children of all threads of a process. Returns `None` if the kernel does not list them
/// (`CONFIG_PROC_CHILDREN`) or if the process does not exist.
pub fn read_children(pid: u32) -> Option<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        match fs::read_to_string(entry.path().join("children")) {
            Ok(text) => children.extend(text.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok())),
            // The thread exited while its siblings were being read.
            Err(_) if !entry.path().exists() => {}
            Err(_) => return None,
        }
    }
    Some(children)
}

/// Returns whether a process ignores SIGCHLD, in which case the kernel reaps its children without adding up their CPU
/// time.
pub fn ignores_children(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|text| parse_ignores_children(&text))
}

/// Memory and context switches of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// Address space, in bytes.
    pub address_space_bytes: u64,
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// Peak resident memory, in bytes.
    pub memory_bytes_peak: u64,
    /// Number of voluntary context switches.
    pub switches_voluntary: u64,
    /// Number of involuntary context switches.
    pub switches_forced: u64,
}

/// Reads the memory use of a process, and the context switches of all its threads together.
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

/// Busy time of all cores since boot, and the number of cores.
pub fn read_machine_busy() -> io::Result<MachineBusy> {
    read_parsed("/proc/stat", parse_machine_busy)
}

/// The machine's memory, in bytes.
pub fn read_memory_total() -> Option<u64> {
    bytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

/// The value of a kernel setting by its name, such as `net.core.somaxconn`.
pub fn sysctl(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    Some(text.trim().to_owned())
}

/// TCP counters of the network namespace since boot, by the kernel's names, such as `RetransSegs`. A counter is 0 if
/// the kernel does not have it. Returns `None` if the counters cannot be read.
pub fn read_tcp_counters<const N: usize>(names: [&str; N]) -> Option<[u64; N]> {
    let snmp = fs::read_to_string("/proc/net/snmp").ok()?;
    let netstat = fs::read_to_string("/proc/net/netstat").ok()?;
    Some(names.map(|name| parse_tcp_counter(&snmp, &netstat, name)))
}

/// The value of the first line of the form `name : value`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == name).then(|| value.trim())
    })
}

/// The value of a field in kB, converted to bytes.
fn bytes(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// The entries of a folder whose names are numbers: IDs of processes or threads.
fn numbered(folder: &str) -> io::Result<impl Iterator<Item = u32>> {
    Ok(fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

fn read_parsed<T>(path: &str, parse: impl FnOnce(&str) -> Option<T>) -> io::Result<T> {
    parse(&fs::read_to_string(path)?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path} does not have the expected form")))
}

/// Parses `pid (name) state …`, where the name may contain spaces and parentheses.
fn parse_stat(text: &str) -> Option<ProcessStat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = |index: usize| Some(Ticks { user: number(index)?, system: number(index + 1)? });
    Some(ProcessStat {
        state: fields.first()?.chars().next()?,
        parent: number(1)? as u32,
        group: number(2)? as u32,
        own: ticks(11)?,
        children: ticks(13)?,
        start: number(19)?,
        policy: number(38)? as u32,
    })
}

/// Parses `SigIgn`, a hexadecimal mask in which bit n - 1 stands for signal n.
fn parse_ignores_children(text: &str) -> bool {
    let mask = field(text, "SigIgn").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    mask.is_some_and(|mask| mask & (1 << (rustix::process::Signal::CHILD.as_raw() - 1)) != 0)
}

fn parse_process_status(text: &str) -> ProcessStatus {
    let count = |name: &str| field(text, name).and_then(|count| count.parse().ok()).unwrap_or(0);
    ProcessStatus {
        address_space_bytes: bytes(text, "VmSize").unwrap_or(0),
        memory_bytes: bytes(text, "VmRSS").unwrap_or(0),
        memory_bytes_peak: bytes(text, "VmHWM").unwrap_or(0),
        switches_voluntary: count("voluntary_ctxt_switches"),
        switches_forced: count("nonvoluntary_ctxt_switches"),
    }
}

/// Parses `cpu user nice system idle iowait irq softirq steal guest guest_nice`, in ticks. Guest time is included in
/// user time.
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

fn parse_sched_time(text: &str) -> Option<SchedTime> {
    let mut fields = text.split_ascii_whitespace();
    Some(SchedTime { cpu_ns: fields.next()?.parse().ok()?, wait_ns: fields.next()?.parse().ok()? })
}

fn parse_tcp_counter(snmp: &str, netstat: &str, name: &str) -> u64 {
    // Each group has a line with names and a line with values.
    let counter = |text: &str, group: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
        let (names, values) = (lines.next()?, lines.next()?);
        let index = names.split_ascii_whitespace().position(|found| found == name)?;
        // Signed counters are not needed.
        values.split_ascii_whitespace().nth(index)?.parse().ok()
    };
    counter(snmp, "Tcp:").or_else(|| counter(netstat, "TcpExt:")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{
        MachineBusy, ProcessStat, SchedTime, Ticks, bytes, field, parse_ignores_children, parse_machine_busy,
        parse_process_status, parse_sched_time, parse_stat, parse_tcp_counter, read_memory_total, read_process_status,
        read_processes, read_sched_time, read_tcp_counters, sysctl,
    };

    #[test]
    fn process_times_are_parsed_or_rejected() {
        assert_eq!(parse_sched_time("5 7 9\n"), Some(SchedTime { cpu_ns: 5, wait_ns: 7 }));
        assert_eq!(parse_sched_time("5"), None);
        // A thread that has never left its core may still read as zero.
        assert!(read_sched_time("thread-self").is_ok());
    }

    fn stat(policy: &str) -> String {
        format!("7 (a) b (c) S 12 3 0 0 0 0 0 0 0 0 110 12 5 6 20 0 1 0 1234 {} {policy} 0 0", ["0"; 18].join(" "))
    }

    #[test]
    fn process_fields_follow_any_process_name() {
        let found = parse_stat(&stat("0")).unwrap();
        let expected = ProcessStat {
            state: 'S',
            parent: 12,
            group: 3,
            own: Ticks { user: 110, system: 12 },
            children: Ticks { user: 5, system: 6 },
            start: 1234,
            policy: 0,
        };
        assert_eq!(found, expected);
        assert!(!found.has_ended() && ProcessStat { state: 'Z', ..found }.has_ended());
        assert!(["7 (a S 1", "7 (a) S 1", ""].iter().all(|text| parse_stat(text).is_none()));
        assert_eq!(read_processes()[&std::process::id()].parent, std::os::unix::process::parent_id());
        assert!(!ProcessStat::read("thread-self").unwrap().is_realtime());
    }

    #[test]
    fn realtime_policies_are_recognised() {
        let found = ["0", "1", "2", "3", "5", "6"].map(|policy| parse_stat(&stat(policy)).unwrap().is_realtime());
        assert_eq!(found, [false, true, true, false, false, true]);
        assert_eq!(parse_stat(&stat("x")), None);
    }

    #[test]
    fn the_user_share_of_cpu_ticks_is_computed() {
        let share = Ticks { user: 3, system: 1 }.user_share();
        assert!((share - 0.75).abs() < f64::EPSILON);
        assert!((Ticks::default().user_share() - 0.5).abs() < f64::EPSILON);
    }

    #[test]
    fn ignored_signals_are_parsed() {
        assert!(parse_ignores_children("SigBlk:\t0\nSigIgn:\t0000000000011000\n"));
        assert!(!parse_ignores_children("SigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001000\n"));
        assert!(!parse_ignores_children(""));
    }

    #[test]
    fn a_status_file_has_memory_and_context_switches() {
        let text = "Name:\tx\nVmSize:\t 40 kB\nVmHWM:\t  20 kB\nVmRSS:\t  10 kB\nvoluntary_ctxt_switches:\t3\n\
            nonvoluntary_ctxt_switches:\t4\n";
        let status = parse_process_status(text);
        assert_eq!((status.memory_bytes, status.memory_bytes_peak), (10_240, 20_480));
        assert_eq!(status.address_space_bytes, 40_960);
        assert_eq!((status.switches_voluntary, status.switches_forced), (3, 4));
        assert!(read_process_status(std::process::id()).unwrap().memory_bytes > 0);
    }

    #[test]
    fn fields_are_found_by_name() {
        let text = "MemFree: 1 kB\nMemTotal:       16303428 kB\nmodel name\t: x: y\n";
        assert_eq!((bytes(text, "MemTotal"), bytes(text, "Mem")), (Some(16_303_428 * 1024), None));
        assert_eq!((bytes("nonsense", "MemTotal"), field(text, "model name")), (None, Some("x: y")));
        assert!(read_memory_total().unwrap() > 0);
        assert_eq!(sysctl("kernel.ostype").as_deref(), Some("Linux"));
        assert_eq!(sysctl("kernel.no-such-setting"), None);
    }

    #[test]
    fn busy_time_excludes_idle_and_iowait() {
        let text =
            "cpu  10 20 30 4000 5000 1 2 3 9 9\ncpu0 5 10 15 1 1 1 1 1 0 0\ncpu1 5 10 15 1 1 0 1 2 0 0\nintr 1\n";
        assert_eq!(
            parse_machine_busy(text),
            Some(MachineBusy { busy_ns: 660_000_000, processes_ns: 600_000_000, cores: 2 })
        );
        assert_eq!(parse_machine_busy("cpu 1 2\n"), None);
        assert!(super::read_machine_busy().unwrap().busy_ns > 0);
    }

    #[test]
    fn kernel_counters_are_found_by_name() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: MaxConn AttemptFails EstabResets RetransSegs\nTcp: -1 5 6 7\n";
        let netstat = "TcpExt: X ListenOverflows ListenDrops\nTcpExt: 1 8 9\nIpExt: a\nIpExt: 1\n";
        let counter = |name| parse_tcp_counter(snmp, netstat, name);
        assert_eq!(["RetransSegs", "ListenDrops", "EstabResets", "MaxConn", "A"].map(counter), [7, 9, 6, 0, 0]);
        assert_eq!(parse_tcp_counter("", "TcpExt: A\n", "A"), 0);
        assert!(read_tcp_counters(["RetransSegs"]).is_some());
    }
}
