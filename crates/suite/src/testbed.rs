//! Testbeds: network namespaces with a link between two hosts. The link simulates packet sizes and rates of other
//! networks.
//!
//! The name of a namespace contains the ID and start time of the process that created it, so the next run recognises
//! and removes what a crash left. Packets are segmented to the link's MTU before they cross the link; otherwise the
//! kernel would transfer 64 KiB at once, whatever the MTU.

mod delay;
pub mod share;

use self::delay::DelayedLink;
use self::share::ControlGroup;
use crate::document::Why;
use crate::server::program::look_up;
use crate::why::Reason;
use flatout_os::procfs::ProcessStat;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Address of the servers' host in a testbed.
pub const SERVER_ADDRESS: &str = "10.77.0.1";

/// Address of the clients' host in a testbed.
pub const CLIENT_ADDRESS: &str = "10.77.0.2";

/// Prefix of the names of testbed namespaces.
const PREFIX: &str = "flatout-suite-";

/// The properties of a testbed's link and hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkProperties {
    /// MTU of the link, in bytes.
    pub mtu: Option<String>,
    /// Rate of the link in each direction, such as `100mbit`.
    pub rate: Option<String>,
    /// Delay of the link in each direction, such as `1ms`.
    pub delay: Option<String>,
    /// Kernel settings of both hosts, such as `net.ipv4.tcp_sack=0`.
    pub sysctls: Vec<String>,
    /// Share of a core that each server may use.
    pub cpu: Option<String>,
    /// Number of hosts, 1 or 2.
    pub hosts: u8,
    /// The cores of the servers, which also carry the packets of a link with a delay; empty for any cores.
    pub cores: Vec<usize>,
}

/// A network, which is removed when the value is dropped.
#[derive(Debug)]
pub struct Network {
    /// The properties with which the network was created.
    pub link: LinkProperties,
    server: String,
    client: String,
    name: String,
    /// The link between the hosts, if it has a delay.
    wire: Option<DelayedLink>,
    /// CPU quota of each server, by name of the server. Each has its own, so that a server's unfinished work does not
    /// take time from another server.
    shares: RefCell<Vec<(String, ControlGroup)>>,
}

/// Returns whether this process has permission to create networks.
pub fn is_allowed() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the words before a command that run it within a namespace.
pub fn within(namespace: &str) -> Vec<String> {
    let ip = look_up("ip").map_or_else(|| "ip".to_owned(), |path| path.display().to_string());
    vec![ip, "netns".to_owned(), "exec".to_owned(), namespace.to_owned()]
}

impl Network {
    /// Creates a network.
    ///
    /// # Errors
    /// Returns the reason the network cannot be created. Anything that has been created is removed.
    pub fn make(link: LinkProperties) -> Result<Self, Why> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !is_allowed() {
            return Err(Reason::NeedsRoot.why("a testbed uses network namespaces, which require root"));
        }
        for (program, package) in [("ip", "iproute2"), ("tc", "iproute2"), ("sysctl", "procps")] {
            if look_up(program).is_none() && (program != "sysctl" || !link.sysctls.is_empty()) {
                let words = format!("{program} is not installed; the Debian package {package} provides it");
                return Err(Reason::ProgramMissing.why(words));
            }
        }
        let faults = [
            link.mtu.as_deref().and_then(mtu_fault),
            link.rate.as_deref().and_then(rate_fault),
            link.delay.as_deref().and_then(delay_fault),
            link.cpu.as_deref().and_then(share::fault),
        ];
        let faults =
            faults.into_iter().flatten().chain(link.sysctls.iter().filter_map(|setting| sysctl_fault(setting)));
        if let Some(fault) = faults.into_iter().next() {
            return Err(Reason::TestbedFailed.why(fault));
        }
        let pid = std::process::id();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{pid}-{}-{number}", begun_at(pid).unwrap_or(0));
        let server = format!("{name}-server");
        let client = if link.hosts == 1 { server.clone() } else { format!("{name}-client") };
        let mut network = Self { link, server, client, name, wire: None, shares: RefCell::default() };
        // If this machine has no support for quotas, report it now, once, and not for each server.
        drop(network.make_share()?);
        network.build().map_err(|text| Reason::TestbedFailed.why(text))?;
        Ok(network)
    }

    /// Returns the words before the command of `server` that start it in its namespace and its cgroup.
    ///
    /// # Errors
    /// Fails if the cgroup cannot be created.
    pub fn server_words(&self, server: &str) -> Result<Vec<String>, Why> {
        let mut shares = self.shares.borrow_mut();
        if !shares.iter().any(|(name, _)| name == server)
            && let Some(share) = self.make_share()?
        {
            shares.push((server.to_owned(), share));
        }
        let share = shares.iter().find(|(name, _)| name == server);
        let mut words = share.map(|(_, share)| share.words()).unwrap_or_default();
        words.extend(within(&self.server));
        Ok(words)
    }

    fn make_share(&self) -> Result<Option<ControlGroup>, Why> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Some(cpu) = &self.link.cpu else { return Ok(None) };
        let name = format!("{}-{}", self.name, NEXT.fetch_add(1, Ordering::Relaxed));
        ControlGroup::make(&name, cpu).map(Some).map_err(|text| Reason::ShareMissing.why(text))
    }

    /// Returns the name of the clients' namespace.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Returns the address on which servers listen.
    pub fn address(&self) -> &'static str {
        if self.link.hosts == 1 { "127.0.0.1" } else { SERVER_ADDRESS }
    }

    fn build(&mut self) -> Result<(), String> {
        let (server, client) = (self.server.clone(), self.client.clone());
        let (server, client) = (server.as_str(), client.as_str());
        self.add_host(server)?;
        if self.link.hosts == 1 {
            return self.shape(server, "lo");
        }
        self.add_host(client)?;
        if let Some(us) = self.link.delay.as_deref().and_then(delay_us) {
            let wire = DelayedLink::new(Duration::from_micros(us), self.link.cores.clone());
            let wire = self.wire.insert(wire.map_err(|error| format!("a TUN device cannot be created: {error}"))?);
            for (device, namespace) in wire.ends.iter().zip([server, client]) {
                run("ip", &["link", "set", device, "netns", namespace, "name", "wire", "txqueuelen", QUEUE_PACKETS])?;
            }
        } else {
            let peer = ["type", "veth", "peer", "name", "wire", "netns", client];
            run("ip", &[&["link", "add", "wire", "netns", server][..], &peer].concat())?;
        }
        for (namespace, address) in [(server, SERVER_ADDRESS), (client, CLIENT_ADDRESS)] {
            run("ip", &["-n", namespace, "address", "add", &format!("{address}/24"), "dev", "wire"])?;
            self.shape(namespace, "wire")?;
            run("ip", &["-n", namespace, "link", "set", "wire", "up"])?;
        }
        Ok(())
    }

    fn add_host(&self, namespace: &str) -> Result<(), String> {
        run("ip", &["netns", "add", namespace])?;
        run("ip", &["-n", namespace, "link", "set", "lo", "up"])?;
        let mut settings = self.link.sysctls.iter();
        settings.try_for_each(|setting| run("ip", &["netns", "exec", namespace, "sysctl", "-q", "-w", setting]))
    }

    fn shape(&self, namespace: &str, device: &str) -> Result<(), String> {
        if let Some(mtu) = &self.link.mtu {
            run("ip", &["-n", namespace, "link", "set", device, "mtu", mtu])?;
        }
        // Send one packet at a time, as a real link does.
        run("ip", &["-n", namespace, "link", "set", device, "gso_max_segs", "1"])?;
        if let Some(rate) = &self.link.rate {
            // The bucket holds 2 ms of traffic, but at least two of the largest packets. The queue holds 50 ms.
            let bytes = (rate_bits(rate).unwrap_or(0) / 8 / 500).max(2 * MTU_MAX).to_string();
            let mut words = vec!["-n", namespace, "qdisc", "add", "dev", device, "root", "handle", "1:"];
            words.extend(["tbf", "rate", rate, "burst", &bytes, "latency", "50ms"]);
            run("tc", &words)?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in BTreeSet::from([&self.server, &self.client]) {
            remove(name);
        }
        // The field drops the cgroups later, after all processes in the namespaces have been stopped.
    }
}

/// Removes the networks of processes that have exited, with all processes that still run in these networks. Returns the
/// names of the networks.
pub fn sweep() -> Vec<String> {
    if !is_allowed() {
        return Vec::new();
    }
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let mut removed: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    removed.retain(|name| is_orphan(name));
    for name in &removed {
        remove(name);
    }
    removed.extend(share::sweep(&|name| is_orphan(name)));
    removed.sort_unstable();
    removed
}

/// Returns whether a name belongs to a testbed whose process has exited. If another process reuses the process ID, it
/// has a different start time.
fn is_orphan(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut parts = rest.split('-').map(str::parse::<u64>);
    let (Some(Ok(pid)), Some(Ok(begun))) = (parts.next(), parts.next()) else { return false };
    !ProcessStat::read(pid).is_ok_and(|stat| stat.start == begun && !stat.has_ended())
}

/// Returns the start time of a process, in clock ticks since boot.
pub fn begun_at(pid: u32) -> Option<u64> {
    Some(ProcessStat::read(pid).ok()?.start)
}

fn remove(name: &str) {
    let pids = Command::new("ip").args(["netns", "pids", name]).stdin(Stdio::null()).output();
    let pids = pids.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let pids: BTreeSet<u32> = pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    crate::server::group::signal(0, &pids, 9);
    // If the namespace no longer exists, there is nothing to do.
    let _removed = run("ip", &["netns", "delete", name]);
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let path = look_up(program).ok_or_else(|| format!("{program} is not installed"))?;
    let output = Command::new(path).args(arguments).stdin(Stdio::null()).output();
    let words = format!("{program} {}", arguments.join(" "));
    let output = output.map_err(|error| format!("{words}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{words}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Number of packets that a host's end of a link with a delay queues.
const QUEUE_PACKETS: &str = "10000";

/// Smallest accepted MTU in bytes: the minimum of IPv4.
const MTU_MIN: u64 = 68;
/// Largest accepted MTU in bytes: the maximum of the kernel's links.
const MTU_MAX: u64 = 65_535;

/// Returns what is wrong with an MTU, if anything.
pub fn mtu_fault(text: &str) -> Option<String> {
    let fits = text.parse().is_ok_and(|mtu: u64| (MTU_MIN..=MTU_MAX).contains(&mtu));
    (!fits).then(|| format!("{text:?} is not an MTU: use {MTU_MIN} to {MTU_MAX} bytes"))
}

/// Returns what is wrong with a rate, if anything.
pub fn rate_fault(text: &str) -> Option<String> {
    let fits = rate_bits(text).is_some_and(|bits| (8_000..=1_000_000_000_000).contains(&bits));
    (!fits).then(|| format!("{text:?} is not a rate: write a whole number with kbit, mbit or gbit, such as 100mbit"))
}

/// Returns what is wrong with a delay, if anything.
pub fn delay_fault(text: &str) -> Option<String> {
    let fits = delay_us(text).is_some_and(|us| us <= 10_000_000);
    (!fits).then(|| format!("{text:?} is not a delay: write a whole number with us, ms or s, at most 10s"))
}

/// Returns what is wrong with a kernel setting, if anything.
pub fn sysctl_fault(text: &str) -> Option<String> {
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let parts = text.split_once('=');
    let fits = parts.is_some_and(|(name, value)| name.starts_with("net.") && is_name(name) && !value.is_empty());
    (!fits).then(|| {
        format!(
            "{text:?} is not a kernel setting of a network: write its name, which begins with net., an equals sign and \
             its value, such as net.ipv4.tcp_sack=0"
        )
    })
}

/// Parses a delay into microseconds.
fn delay_us(text: &str) -> Option<u64> {
    let units = [("us", 1_u64), ("ms", 1_000), ("s", 1_000_000)];
    units.iter().find_map(|(unit, us)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*us))
}

/// Parses a rate into bits per second.
fn rate_bits(text: &str) -> Option<u64> {
    let units = [("kbit", 1_000_u64), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
    units.iter().find_map(|(unit, bits)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*bits))
}

#[cfg(test)]
mod tests {
    use super::{begun_at, delay_fault, is_orphan, mtu_fault, rate_fault, sysctl_fault};

    #[test]
    fn links_are_bounded() {
        for (fault, good, bad) in [
            (mtu_fault as fn(&str) -> Option<String>, ["576", "9218", "65535"], ["12", "70000", "big"]),
            (rate_fault, ["10mbit", "9600kbit", "1gbit"], ["10", "1kbit", "10 mbit"]),
            (delay_fault, ["0ms", "10s", "250us"], ["1", "11s", "-1ms"]),
            (
                sysctl_fault,
                ["net.ipv4.tcp_sack=0", "net.ipv4.tcp_wmem=4096 65536 67108864", "net.ipv6.conf.eth-0.mtu=1280"],
                ["vm.swappiness=0", "net.ipv4.tcp_sack", "net./../../vm.swappiness=0"],
            ),
        ] {
            assert!(good.iter().all(|text| fault(text).is_none()), "{good:?}");
            assert!(bad.iter().all(|text| fault(text).is_some()), "{bad:?}");
        }
    }

    #[test]
    fn only_namespaces_of_processes_that_are_gone_are_orphans() {
        let own = std::process::id();
        let begun = begun_at(own).unwrap();
        assert!(!is_orphan(&format!("flatout-suite-{own}-{begun}-0-server")));
        assert!(is_orphan(&format!("flatout-suite-{own}-{}-0-server", begun + 1)));
        assert!(is_orphan("flatout-suite-4194999-1-0-client"));
        assert!(!is_orphan("blue") && !is_orphan("flatout-suite-x-1-0") && !is_orphan("flatout-suite-"));
    }
}
