//! The few files of /proc that the lab reads: listening sockets, who holds them, and CPU time by task.
//!
//! Parsers take text, so they are tested without a kernel; readers name the file and hand over its text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// State 0A of /proc/net/tcp.
const LISTEN: &str = "0A";

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

/// A listening TCP socket: where it listens and the inode that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListeningSocket {
    /// Local address and port; the address may be the unspecified one.
    pub local: SocketAddr,
    /// Inode of the socket, as the links in /proc/PID/fd show it.
    pub inode: u64,
}

impl ListeningSocket {
    /// Whether it takes connections to `address`. One that listens at `[::]` takes IPv4 as well, unless told otherwise.
    pub fn serves(&self, address: SocketAddr) -> bool {
        let same_host = self.local.ip().to_canonical() == address.ip().to_canonical();
        let any_host = self.local.ip().is_unspecified() && (self.local.is_ipv6() || address.is_ipv4());
        self.local.port() == address.port() && (same_host || any_host)
    }
}

/// Every TCP socket that listens in this network namespace.
pub fn read_listening() -> io::Result<Vec<ListeningSocket>> {
    let mut sockets = parse_listening(BufReader::new(File::open("/proc/net/tcp")?))?;
    // A kernel without IPv6 has no such file.
    if let Ok(file) = File::open("/proc/net/tcp6") {
        sockets.extend(parse_listening(BufReader::new(file))?);
    }
    Ok(sockets)
}

/// The kernel lists the listening sockets first. After a run there can be tens of thousands of others, which take the
/// kernel a quarter of a second to print; so reading ends where they begin.
fn parse_listening(lines: impl BufRead) -> io::Result<Vec<ListeningSocket>> {
    let mut sockets = Vec::new();
    for line in lines.lines().skip(1) {
        match parse_listening_line(&line?) {
            Some(socket) => sockets.push(socket),
            None => break,
        }
    }
    Ok(sockets)
}

fn parse_listening_line(line: &str) -> Option<ListeningSocket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != LISTEN {
        return None;
    }
    Some(ListeningSocket { local: parse_address(local)?, inode: inode.parse().ok()? })
}

/// `0100007F:1F90`: the address as 32-bit words, each in the machine's own byte order, and the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| u32::from_str_radix(address.get(8 * index..8 * index + 8)?, 16).ok();
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut octets = [0; 16];
            for (index, octets) in octets.chunks_exact_mut(4).enumerate() {
                octets.copy_from_slice(&word(index)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Processes that hold any of these sockets open, and how many processes could not be looked into.
pub fn read_holders(inodes: &BTreeSet<u64>) -> io::Result<(BTreeSet<u32>, usize)> {
    let (mut holders, mut hidden) = (BTreeSet::new(), 0);
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) else { continue };
        match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(mut links) => {
                let holds = links.any(|link| {
                    link.ok()
                        .and_then(|link| parse_socket_link(fs::read_link(link.path()).ok()?.to_str()?))
                        .is_some_and(|inode| inodes.contains(&inode))
                });
                if holds {
                    holders.insert(pid);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => hidden += 1,
            // It ended while we looked.
            Err(_) => {}
        }
    }
    Ok((holders, hidden))
}

fn parse_socket_link(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Short name of a process, for example `nginx`.
pub fn read_process_name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
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
    use super::{
        ListeningSocket, MachineBusy, SchedTime, parse_address, parse_listening, parse_machine_busy, parse_sched_time,
        parse_socket_link, read_own_sched_time,
    };

    #[test]
    fn reading_ends_after_the_listening_sockets() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0\n\
            1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4\n\
            2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0\n";
        let local = "127.0.0.1:8080".parse().unwrap();
        assert_eq!(parse_listening(text.as_bytes()).unwrap(), vec![ListeningSocket { local, inode: 4711 }]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn addresses_are_words_in_the_machines_byte_order() {
        assert_eq!(parse_address("00000000:0050"), "0.0.0.0:80".parse().ok());
        assert_eq!(parse_address("00000000000000000000000001000000:1F90"), "[::1]:8080".parse().ok());
        assert_eq!(parse_address("0000000000000000FFFF00000100007F:1F90"), "[::ffff:127.0.0.1]:8080".parse().ok());
        for broken in ["", ":", "0100007F", "0100007:1F90", "0100007F:G", "ÄÄÄÄ:1"] {
            assert_eq!(parse_address(broken), None, "{broken}");
        }
    }

    #[test]
    fn links_and_times_are_read_or_refused() {
        assert_eq!(parse_socket_link("socket:[12]"), Some(12));
        assert_eq!(parse_socket_link("pipe:[12]"), None);
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

    #[test]
    fn unspecified_listeners_serve_every_address_of_their_family() {
        let served = |local: &str, address: &str| {
            ListeningSocket { local: local.parse().unwrap(), inode: 1 }.serves(address.parse().unwrap())
        };
        assert!(served("0.0.0.0:80", "127.0.0.1:80"));
        assert!(served("[::]:80", "127.0.0.1:80") && served("[::]:80", "[::1]:80"));
        assert!(served("[::ffff:127.0.0.1]:80", "127.0.0.1:80"));
        assert!(!served("0.0.0.0:80", "[::1]:80"));
        assert!(!served("127.0.0.1:81", "127.0.0.1:80") && !served("127.0.0.2:80", "127.0.0.1:80"));
    }
}
