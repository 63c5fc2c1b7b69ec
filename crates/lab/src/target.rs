//! The server under test, if it runs on this machine: its processes and their resource use.
//!
//! A server is found by its port: first the listening sockets at the address, then every process that holds one of
//! them, and all descendants of those processes. This finds a master and its workers, all processes that share the port
//! by `SO_REUSEPORT`, and children that serve connections without the listening socket. Upstream processes, such as an
//! application that the server forwards to, are neither found nor counted, unless the server started them.

use crate::cpu::CpuReading;
use crate::tree::{ObservedProcesses, descendants};
use flatout_load::report::CpuClock;
use flatout_os::procfs::{self, ProcessStat};
use flatout_os::socket;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

flatout_reason::reasons! {
    /// The reason the server's CPU time is unknown.
    #[derive(thiserror::Error)]
    #[error("{}", self.text())]
    pub enum TargetUnknown { name, text, }
    /// The address does not belong to this machine.
    NotLocal, "not-local", "the server runs on another machine";
    /// Nothing listens at the address, or only in another network namespace.
    NothingListens, "nothing-listens", "no process on this machine listens there";
    /// A process of another user listens at the address.
    NotPermitted, "not-permitted", "the server's processes belong to another user";
    /// /proc cannot be read.
    Unreadable, "unreadable", "/proc cannot be read";
}

/// The processes of a server on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProcesses {
    place: ListenPlace,
    processes: BTreeSet<u32>,
    listeners: BTreeSet<u32>,
    name: String,
}

/// The place where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ListenPlace {
    Addresses(Vec<SocketAddr>),
    UnixSocket(PathBuf),
}

impl ListenPlace {
    /// Returns the processes that listen here.
    fn listeners(&self) -> Result<BTreeSet<u32>, TargetUnknown> {
        match self {
            Self::Addresses(addresses) => listeners_of_all(addresses),
            Self::UnixSocket(path) => {
                let inodes = socket::read_listening_unix(path).map_err(|_| TargetUnknown::Unreadable)?;
                holders_of(&inodes)
            }
        }
    }
}

impl ServerProcesses {
    /// Finds the server that listens at these addresses: all its processes, whichever of the addresses they serve.
    pub fn find(addresses: &[SocketAddr]) -> Result<Self, TargetUnknown> {
        if !addresses.iter().all(|address| socket::is_local(address.ip())) {
            return Err(TargetUnknown::NotLocal);
        }
        Self::find_in(ListenPlace::Addresses(addresses.to_owned()))
    }

    /// Finds the server that listens at a Unix socket.
    pub fn find_at_socket(path: &Path) -> Result<Self, TargetUnknown> {
        Self::find_in(ListenPlace::UnixSocket(path.to_owned()))
    }

    fn find_in(place: ListenPlace) -> Result<Self, TargetUnknown> {
        let listeners = place.listeners()?;
        let processes = descendants(&listeners).into_keys().collect();
        let name = listeners.first().and_then(|pid| socket::read_process_name(*pid)).unwrap_or_default();
        Ok(Self { place, processes, listeners, name })
    }

    /// Returns the server's current processes, including new children.
    fn processes_now(&self) -> BTreeSet<u32> {
        let listeners = self.place.listeners().unwrap_or_else(|_| self.listeners.clone());
        descendants(&listeners).into_keys().collect()
    }

    /// Records the server's current descendants, so that short-lived processes are known.
    pub fn look(&self, seen: &mut ObservedProcesses) {
        seen.look(&self.listeners);
    }

    /// Returns the short name of the server's first process, for example `nginx`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the IDs of the server's processes, in ascending order; never empty.
    pub fn processes(&self) -> &BTreeSet<u32> {
        &self.processes
    }

    /// Reads the current CPU time of every process and task of the server.
    pub fn snapshot(&self) -> CpuSnapshot {
        let processes = self.processes_now();
        let reading = CpuReading::of(processes.iter().copied());
        let mut tasks = BTreeMap::new();
        for pid in processes {
            // The CPU time of a process that has exited is still included in that of the process that reaped it.
            for (task, time) in procfs::read_task_times(pid).unwrap_or_default() {
                tasks.insert(task, TaskCpu { pid, time });
            }
        }
        CpuSnapshot { tasks, processes: reading }
    }
}

impl ServerProcesses {
    /// Reads memory, context switches, and user and system time, summed over the server's processes.
    pub fn status(&self) -> TargetStatus {
        let processes = self.processes_now();
        let mut sum = TargetStatus::default();
        for pid in processes {
            let (Ok(status), Ok(stat)) = (procfs::read_process_status(pid), ProcessStat::read(pid)) else {
                continue;
            };
            sum.processes += 1;
            sum.ticks.user += stat.own.user;
            sum.ticks.system += stat.own.system;
            sum.memory_bytes += status.memory_bytes;
            sum.memory_bytes_peak += status.memory_bytes_peak;
            sum.switches_voluntary += status.switches_voluntary;
            sum.switches_forced += status.switches_forced;
        }
        sum
    }
}

/// Sums over a server's processes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStatus {
    /// Number of processes that could be read.
    pub processes: u32,
    /// User and system time used so far.
    pub ticks: procfs::Ticks,
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// Peak resident memory so far, summed over the processes, in bytes.
    pub memory_bytes_peak: u64,
    /// Voluntary context switches of the threads that still exist.
    pub switches_voluntary: u64,
    /// Involuntary context switches of the threads that still exist.
    pub switches_forced: u64,
}

fn listeners_of_all(addresses: &[SocketAddr]) -> Result<BTreeSet<u32>, TargetUnknown> {
    let mut all = BTreeSet::new();
    for address in addresses {
        all.append(&mut listeners_of(*address)?);
    }
    Ok(all)
}

fn listeners_of(address: SocketAddr) -> Result<BTreeSet<u32>, TargetUnknown> {
    let sockets = socket::read_listening().map_err(|_| TargetUnknown::Unreadable)?;
    let inodes: BTreeSet<u64> =
        sockets.iter().filter(|socket| socket.serves(address)).map(|socket| socket.inode).collect();
    holders_of(&inodes)
}

/// Returns the processes that hold listening sockets with these inodes.
fn holders_of(inodes: &BTreeSet<u64>) -> Result<BTreeSet<u32>, TargetUnknown> {
    if inodes.is_empty() {
        return Err(TargetUnknown::NothingListens);
    }
    let (processes, hidden) = socket::read_holders(inodes).map_err(|_| TargetUnknown::Unreadable)?;
    if processes.is_empty() {
        return Err(if hidden > 0 { TargetUnknown::NotPermitted } else { TargetUnknown::NothingListens });
    }
    Ok(processes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskCpu {
    pid: u32,
    time: procfs::SchedTime,
}

/// CPU time of every process and task of a server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSnapshot {
    tasks: BTreeMap<u32, TaskCpu>,
    processes: CpuReading,
}

impl CpuSnapshot {
    /// Returns the CPU time used since `earlier`. All the time of a new task counts. `seen` are processes that were
    /// observed in between.
    pub fn since(&self, earlier: &Self, seen: &ObservedProcesses) -> CpuUsed {
        let (mut by_task, mut wait_ns) = (Vec::new(), 0);
        for (task, now) in &self.tasks {
            let before = earlier.tasks.get(task).filter(|before| before.pid == now.pid);
            let before = before.map_or_else(procfs::SchedTime::default, |before| before.time);
            wait_ns += now.time.wait_ns.saturating_sub(before.wait_ns);
            by_task.push(TaskUsed { pid: now.pid, task: *task, cpu_ns: now.time.cpu_ns.saturating_sub(before.cpu_ns) });
        }
        let of_tasks_ns: u64 = by_task.iter().map(|task| task.cpu_ns).sum();
        let used_ns = self.processes.used_since(&earlier.processes);
        CpuUsed {
            by_task,
            ended_ns: used_ns.saturating_sub(of_tasks_ns),
            wait_ns,
            clock: self.processes.clock(),
            is_short: self.processes.has_lost_since(&earlier.processes, seen),
        }
    }
}

/// CPU time used by one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskUsed {
    /// ID of the task's process.
    pub pid: u32,
    /// ID of the task.
    pub task: u32,
    /// CPU time used, in nanoseconds.
    pub cpu_ns: u64,
}

/// Share of time on a core above which a task counts as busy. A guess: more than the housekeeping of idle threads, less
/// than a worker that shares the load with three others.
const BUSY_SHARE_MIN: f64 = 0.05;

/// CPU time used between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuUsed {
    /// CPU time of each task that still exists, in ascending order of task ID.
    pub by_task: Vec<TaskUsed>,
    /// CPU time of tasks and children that exited in between, in nanoseconds.
    pub ended_ns: u64,
    /// Time that existing tasks were runnable but waited for a core, in nanoseconds.
    pub wait_ns: u64,
    /// The source of the times.
    pub clock: CpuClock,
    /// True if the real use was higher, because the time of exited children was not accounted for.
    pub is_short: bool,
}

impl CpuUsed {
    /// Returns the CPU time of all tasks, including exited tasks and children, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.ended_ns + self.by_task.iter().map(|task| task.cpu_ns).sum::<u64>()
    }

    /// Adds the use of another period.
    pub fn merge(&mut self, other: &Self) {
        self.ended_ns += other.ended_ns;
        self.wait_ns += other.wait_ns;
        self.is_short |= other.is_short;
        for theirs in &other.by_task {
            match self.by_task.iter_mut().find(|mine| (mine.pid, mine.task) == (theirs.pid, theirs.task)) {
                Some(mine) => mine.cpu_ns += theirs.cpu_ns,
                None => self.by_task.push(*theirs),
            }
        }
    }

    /// Returns the tasks that were busy during `elapsed_ns`, busiest first. The busiest task is always included.
    pub fn busy_tasks(&self, elapsed_ns: u64) -> Vec<u32> {
        let mut by_cpu = self.by_task.clone();
        by_cpu.sort_by_key(|task| std::cmp::Reverse(task.cpu_ns));
        let least_ns = BUSY_SHARE_MIN * elapsed_ns as f64;
        let busy = by_cpu.iter().filter(|task| task.cpu_ns as f64 >= least_ns).count().max(1);
        by_cpu.into_iter().take(busy).map(|task| task.task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuUsed, ServerProcesses, TargetUnknown, TaskUsed};
    use crate::tree::ObservedProcesses;
    use flatout_os::socket::is_local;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    /// Returns the CPU time of a server whose child has closed the listening socket, as reported while the child runs,
    /// and whether time is missing after the child has exited. The server is a program with the listening socket as
    /// standard input. It writes a line when the child has done its work, and another line when the child has exited.
    fn of_a_child(program: &str, arguments: &[&str]) -> (u64, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (end, mut go) = std::io::pipe().unwrap();
        let mut server = Command::new(program)
            .args(arguments)
            .stdin(OwnedFd::from(listener))
            .stdout(Stdio::piped())
            .stderr(end)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let target = ServerProcesses::find(&[address]).unwrap();
        let (before, mut seen) = (target.snapshot(), ObservedProcesses::default());
        go.write_all(b"a").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "worked");
        target.look(&mut seen);
        let while_it_lives = target.snapshot().since(&before, &seen);
        assert!(!while_it_lives.is_short && target.status().processes == 2);
        go.write_all(b"b").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "gone");
        let used = target.snapshot().since(&before, &seen);
        server.kill().unwrap();
        server.wait().unwrap();
        (while_it_lives.total_ns(), used.is_short)
    }

    /// The pipe has standard error's descriptor, from which Perl can also read.
    fn perl(setting: &str, wait: &str) -> String {
        format!(
            "$| = 1; open(G, '<&=', 2); {setting} print qq(ready\\n); sysread(G, $_, 1); pipe(R, W); \
             if (!fork) {{ close STDIN; $i++ while (times)[0] < 0.2; print qq(worked\\n); sysread(G, $_, 1); exit }} \
             close W; sysread(R, $_, 1); {wait} print qq(gone\\n); sleep 600"
        )
    }

    #[test]
    fn children_without_the_listening_socket_are_counted() {
        let (used_ns, is_short) = of_a_child("perl", &["-e", &perl("", "wait;")]);
        assert!(used_ns > 150_000_000 && !is_short, "{used_ns}");
    }

    #[test]
    fn children_that_the_kernel_reaps_are_missed() {
        let (used_ns, is_short) = of_a_child("perl", &["-e", &perl("$SIG{CHLD} = 'IGNORE';", "wait;")]);
        assert!(used_ns > 150_000_000 && is_short, "{used_ns}");
    }

    #[test]
    fn a_listener_of_this_process_is_found_with_its_cpu_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = ServerProcesses::find(&[listener.local_addr().unwrap()]).unwrap();
        assert!(target.processes().contains(&std::process::id()));
        let before = target.snapshot();
        let mut sum = 0_u64;
        while target.snapshot().since(&before, &ObservedProcesses::default()).total_ns() < 3_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(!target.snapshot().since(&before, &ObservedProcesses::default()).busy_tasks(1_000_000).is_empty());
    }

    #[test]
    fn threads_that_ended_are_not_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = ServerProcesses::find(&[listener.local_addr().unwrap()]).unwrap();
        let before = target.snapshot();
        let mut burnt_ns = 0;
        for _ in 0..4 {
            let burn = std::thread::spawn(|| {
                let mut sum = 0_u64;
                loop {
                    sum = std::hint::black_box(sum.wrapping_add(1));
                    let used_ns = flatout_os::procfs::read_sched_time("thread-self").unwrap().cpu_ns;
                    if used_ns > 5_000_000 {
                        return used_ns;
                    }
                }
            });
            burnt_ns += burn.join().unwrap();
        }
        let used = target.snapshot().since(&before, &ObservedProcesses::default());
        assert!(used.total_ns() >= burnt_ns && used.ended_ns > 0, "{used:?}, {burnt_ns} burnt");
        assert_eq!(used.clock, flatout_load::report::CpuClock::Process);
    }

    #[test]
    fn a_port_without_listener_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(ServerProcesses::find(&[address]), Err(TargetUnknown::NothingListens));
    }

    #[test]
    fn local_addresses_are_told_from_others() {
        assert!(is_local("127.0.0.9".parse().unwrap()) && is_local("::1".parse().unwrap()));
        // TEST-NET-1 (RFC 5737) belongs to no machine.
        assert!(!is_local("192.0.2.1".parse().unwrap()));
        assert_eq!(ServerProcesses::find(&["192.0.2.1:80".parse().unwrap()]), Err(TargetUnknown::NotLocal));
    }

    #[test]
    fn busy_threads_are_those_that_did_the_work() {
        let task = |task, cpu_ns| TaskUsed { pid: 9, task, cpu_ns };
        let used = |by_task| CpuUsed { by_task, ended_ns: 30, ..CpuUsed::default() };
        let mut all = used(vec![task(1, 900), task(2, 40), task(3, 700)]);
        assert_eq!(all.busy_tasks(1_000), vec![1, 3]);
        assert_eq!(all.busy_tasks(1_000_000), vec![1]);
        all.merge(&used(vec![task(2, 60), task(4, 1)]));
        assert_eq!(all.total_ns(), 1_761);
        assert_eq!(all.by_task.len(), 4);
        assert!(CpuUsed::default().busy_tasks(5).is_empty());
    }
}
