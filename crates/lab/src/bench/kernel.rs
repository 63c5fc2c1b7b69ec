//! The kernel's TCP counters of the whole network namespace.

use flatout_load::report::KernelReport;
use std::fs;

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelCounters(KernelReport);

impl KernelCounters {
    /// Reads them; `None` if /proc lacks them.
    pub(super) fn read() -> Option<Self> {
        let snmp = fs::read_to_string("/proc/net/snmp").ok()?;
        let netstat = fs::read_to_string("/proc/net/netstat").ok()?;
        Some(Self(parse(&snmp, &netstat)))
    }

    /// The difference to `earlier`.
    pub(super) fn since(self, earlier: Self) -> KernelReport {
        let (now, before) = (self.0, earlier.0);
        KernelReport {
            tcp_retransmits: now.tcp_retransmits.saturating_sub(before.tcp_retransmits),
            listen_overflows: now.listen_overflows.saturating_sub(before.listen_overflows),
            listen_drops: now.listen_drops.saturating_sub(before.listen_drops),
            connect_failures: now.connect_failures.saturating_sub(before.connect_failures),
            resets: now.resets.saturating_sub(before.resets),
        }
    }
}

fn parse(snmp: &str, netstat: &str) -> KernelReport {
    KernelReport {
        tcp_retransmits: field(snmp, "Tcp:", "RetransSegs"),
        listen_overflows: field(netstat, "TcpExt:", "ListenOverflows"),
        listen_drops: field(netstat, "TcpExt:", "ListenDrops"),
        connect_failures: field(snmp, "Tcp:", "AttemptFails"),
        resets: field(snmp, "Tcp:", "EstabResets"),
    }
}

/// Each group has a line of names and one of values.
fn field(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let index = names.split_ascii_whitespace().position(|found| found == name);
    index
        .and_then(|index| values.split_ascii_whitespace().nth(index))
        // Some counters of the group are signed, but none of these.
        .and_then(|value| value.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{KernelCounters, parse};

    #[test]
    fn counters_are_found_by_name() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: MaxConn AttemptFails EstabResets RetransSegs\nTcp: -1 5 6 7\n";
        let netstat = "TcpExt: X ListenOverflows ListenDrops\nTcpExt: 1 8 9\nIpExt: a\nIpExt: 1\n";
        let report = parse(snmp, netstat);
        assert_eq!((report.connect_failures, report.resets, report.tcp_retransmits), (5, 6, 7));
        assert_eq!((report.listen_overflows, report.listen_drops), (8, 9));
        assert_eq!(parse("", "TcpExt: A\n"), parse("", ""));
        let now = KernelCounters::read().unwrap();
        assert_eq!(now.since(now), parse("", ""));
    }
}
