//! Testbeds: networks of namespaces, with a link between two hosts that emulates other packet sizes and rates.
//!
//! A namespace's name contains the process that created it and its start time, so leftovers of a crash are recognised
//! and removed by the next run. Packets are segmented to the link's MTU before they cross it: otherwise the kernel
//! would transfer 64 KiB at once whatever the link's packet size.

pub mod share;

use self::share::ControlGroup;
use crate::document::Why;
use crate::server::program::look_up;
use crate::why::Reason;
use flatout_os::procfs::ProcessStat;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The host that servers run on, in a testbed.
pub const SERVER_ADDRESS: &str = "10.77.0.1";

/// The host that clients run on.
pub const CLIENT_ADDRESS: &str = "10.77.0.2";

/// Prefix of the names of testbed namespaces.
const PREFIX: &str = "flatout-suite-";

/// The properties of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkProperties {
    /// Largest packet, in bytes.
    pub mtu: Option<String>,
    /// Rate in each direction.
    pub rate: Option<String>,
    /// Delay in each direction.
    pub delay: Option<String>,
    /// Share of a core's time that servers have.
    pub cpu: Option<String>,
    /// 1 or 2.
    pub hosts: u8,
}

/// A network that is there; dropped, it is taken away.
#[derive(Debug)]
pub struct Network {
    /// Its properties.
    pub link: LinkProperties,
    server: String,
    client: String,
    share: Option<ControlGroup>,
}

/// Returns whether this process has permission to create networks.
pub fn is_allowed() -> bool {
    rustix::process::geteuid().is_root()
}

/// The words before a command that runs within a namespace.
pub fn within(namespace: &str) -> Vec<String> {
    let ip = look_up("ip").map_or_else(|| "ip".to_owned(), |path| path.display().to_string());
    vec![ip, "netns".to_owned(), "exec".to_owned(), namespace.to_owned()]
}

impl Network {
    /// Makes a network.
    ///
    /// # Errors
    /// What could not be had; what was made before is taken away.
    pub fn make(link: LinkProperties) -> Result<Self, Why> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !is_allowed() {
            return Err(Reason::NeedsRoot.why("a testbed uses network namespaces, which need root"));
        }
        for (program, package) in [("ip", "iproute2"), ("tc", "iproute2")] {
            if look_up(program).is_none() {
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
        if let Some(fault) = faults.into_iter().flatten().next() {
            return Err(Reason::TestbedFailed.why(fault));
        }
        let pid = std::process::id();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{pid}-{}-{number}", begun_at(pid).unwrap_or(0));
        let server = format!("{name}-server");
        let client = if link.hosts == 1 { server.clone() } else { format!("{name}-client") };
        let share = match &link.cpu {
            Some(cpu) => Some(ControlGroup::make(&name, cpu).map_err(|text| Reason::ShareMissing.why(text))?),
            None => None,
        };
        let network = Self { link, server, client, share };
        network.build().map_err(|text| Reason::TestbedFailed.why(text))?;
        Ok(network)
    }

    /// The words before a server's own: they put it where it belongs before it begins.
    pub fn server_words(&self) -> Vec<String> {
        let mut words = self.share.as_ref().map(ControlGroup::words).unwrap_or_default();
        words.extend(within(&self.server));
        words
    }

    /// The namespace of clients.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// The address on which servers listen.
    pub fn address(&self) -> &'static str {
        if self.link.hosts == 1 { "127.0.0.1" } else { SERVER_ADDRESS }
    }

    fn build(&self) -> Result<(), String> {
        let (server, client) = (self.server.as_str(), self.client.as_str());
        run("ip", &["netns", "add", server])?;
        run("ip", &["-n", server, "link", "set", "lo", "up"])?;
        if self.link.hosts == 1 {
            return self.shape(server, "lo");
        }
        run("ip", &["netns", "add", client])?;
        run("ip", &["-n", client, "link", "set", "lo", "up"])?;
        run("ip", &["link", "add", "wire", "netns", server, "type", "veth", "peer", "name", "wire", "netns", client])?;
        for (namespace, address) in [(server, SERVER_ADDRESS), (client, CLIENT_ADDRESS)] {
            run("ip", &["-n", namespace, "address", "add", &format!("{address}/24"), "dev", "wire"])?;
            self.shape(namespace, "wire")?;
            run("ip", &["-n", namespace, "link", "set", "wire", "up"])?;
        }
        Ok(())
    }

    fn shape(&self, namespace: &str, device: &str) -> Result<(), String> {
        if let Some(mtu) = &self.link.mtu {
            run("ip", &["-n", namespace, "link", "set", device, "mtu", mtu])?;
        }
        // One packet at a time, as on a wire.
        run("ip", &["-n", namespace, "link", "set", device, "gso_max_segs", "1"])?;
        let mut parent: &[&str] = &["root"];
        if let Some(rate) = &self.link.rate {
            // The bucket holds 2 ms, and two of the largest packets at least; the queue 50 ms.
            let bytes = (rate_bits(rate).unwrap_or(0) / 8 / 500).max(2 * MTU_MAX).to_string();
            let mut words = vec!["-n", namespace, "qdisc", "add", "dev", device, "root", "handle", "1:"];
            words.extend(["tbf", "rate", rate, "burst", &bytes, "latency", "50ms"]);
            run("tc", &words)?;
            parent = &["parent", "1:"];
        }
        if let Some(delay) = &self.link.delay {
            let mut words = vec!["-n", namespace, "qdisc", "add", "dev", device];
            words.extend(parent);
            words.extend(["netem", "delay", delay, "limit", "10000"]);
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
        // The share goes with its own drop, after whatever ran in the namespaces.
    }
}

/// Takes away the networks of processes that are gone, with whatever still runs in them. Returns their names.
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

/// Returns whether a name belongs to a testbed whose process is gone; a process that reused its ID has another start
/// time.
fn is_orphan(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut parts = rest.split('-').map(str::parse::<u64>);
    let (Some(Ok(pid)), Some(Ok(begun))) = (parts.next(), parts.next()) else { return false };
    !ProcessStat::read(pid).is_ok_and(|stat| stat.start == begun && !stat.has_ended())
}

/// Start time of a process, in the kernel's ticks since boot.
pub fn begun_at(pid: u32) -> Option<u64> {
    Some(ProcessStat::read(pid).ok()?.start)
}

fn remove(name: &str) {
    let pids = Command::new("ip").args(["netns", "pids", name]).stdin(Stdio::null()).output();
    let pids = pids.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let pids: BTreeSet<u32> = pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    crate::server::group::signal(0, &pids, 9);
    // If it is gone already, nothing is left to do.
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

/// Packets of a link, in bytes: what IPv4 needs at least, and what the kernel's links have at most.
const MTU_MIN: u64 = 68;
const MTU_MAX: u64 = 65_535;

/// The problem with an MTU, if any.
pub fn mtu_fault(text: &str) -> Option<String> {
    let fits = text.parse().is_ok_and(|mtu: u64| (MTU_MIN..=MTU_MAX).contains(&mtu));
    (!fits).then(|| format!("{text:?} is not an MTU: it is {MTU_MIN} to {MTU_MAX} bytes"))
}

/// The problem with a rate, if any.
pub fn rate_fault(text: &str) -> Option<String> {
    let fits = rate_bits(text).is_some_and(|bits| (8_000..=1_000_000_000_000).contains(&bits));
    (!fits).then(|| format!("{text:?} is not a rate: write a whole number with kbit, mbit or gbit, such as 100mbit"))
}

/// The problem with a delay, if any.
pub fn delay_fault(text: &str) -> Option<String> {
    let units = [("us", 1_u64), ("ms", 1_000), ("s", 1_000_000)];
    let found = units.iter().find_map(|(unit, us)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*us));
    let fits = found.is_some_and(|us| us <= 10_000_000);
    (!fits).then(|| format!("{text:?} is not a delay: write a whole number with us, ms or s, at most 10s"))
}

/// A rate, in bits a second.
fn rate_bits(text: &str) -> Option<u64> {
    let units = [("kbit", 1_000_u64), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
    units.iter().find_map(|(unit, bits)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*bits))
}

#[cfg(test)]
mod tests {
    use super::{begun_at, delay_fault, is_orphan, mtu_fault, rate_fault};

    #[test]
    fn links_are_bounded() {
        for (fault, good, bad) in [
            (mtu_fault as fn(&str) -> Option<String>, ["576", "9218", "65535"], ["12", "70000", "big"]),
            (rate_fault, ["10mbit", "9600kbit", "1gbit"], ["10", "1kbit", "10 mbit"]),
            (delay_fault, ["0ms", "10s", "250us"], ["1", "11s", "-1ms"]),
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
