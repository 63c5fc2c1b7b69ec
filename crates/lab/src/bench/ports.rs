//! A check, before any connection is opened, that there are enough local ports for a plan.

use flatout_load::plan::{Arrivals, Loop, Plan, Stop};
use flatout_os::procfs::sysctl;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Time for which a used port is unavailable for connections to the same server, in seconds: the duration of TIME-WAIT
/// (RFC 9293 §3.6.1), which is 60 s on Linux.
const HOLD_S: f64 = 60.0;

/// Time for which a used port is unavailable if the kernel reuses ports (`net.ipv4.tcp_tw_reuse`), in seconds.
const HOLD_REUSED_S: f64 = 1.0;

/// The kernel's settings for local ports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ports {
    /// Number of ports for each pair of a source address and a server.
    pub per_source: u64,
    /// Time for which a used port is unavailable, in seconds.
    pub hold_s: f64,
    /// True if the server is on IPv4 loopback, which has more source addresses.
    pub has_more: bool,
}

/// The error that a plan opens connections faster than ports become available.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortsShort {
    /// Number of connections opened in the time for which a port is unavailable.
    pub needed: f64,
    /// Total number of ports of all source addresses.
    pub available: f64,
    /// The kernel's settings.
    pub ports: Ports,
    /// Number of source addresses in use.
    pub sources: u32,
}

impl std::fmt::Display for PortsShort {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { needed, ports, sources, .. } = *self;
        let (per_source, hold_s) = (ports.per_source, ports.hold_s);
        let addresses =
            if sources == 1 { "1 source address".to_owned() } else { format!("{sources} source addresses") };
        write!(
            formatter,
            "the plan opens up to {needed:.0} connections within the {hold_s:.0} s during which a used port stays reserved, but {addresses} provide only {per_source} ports each; "
        )?;
        if ports.has_more {
            let enough = (needed / per_source.max(1) as f64).ceil();
            write!(formatter, "use --source-addresses {enough:.0} to connect from that many addresses in 127.0.0.0/8")
        } else {
            formatter.write_str(
                "offer less load, keep connections alive, widen net.ipv4.ip_local_port_range, or spread the run over agents",
            )
        }
    }
}

impl Ports {
    /// Reads the settings for connections to these addresses. With several, connections are assumed to share the ports of
    /// one, which is the lower bound.
    pub fn here(addresses: &[SocketAddr]) -> Self {
        let server = addresses.iter().map(SocketAddr::ip).min_by_key(IpAddr::is_loopback);
        let server = server.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let setting = |name: &str| sysctl(name).unwrap_or_default();
        Self::of(&setting("net.ipv4.ip_local_port_range"), &setting("net.ipv4.tcp_tw_reuse"), server)
    }

    fn of(range: &str, reuse: &str, server: IpAddr) -> Self {
        let mut bounds = range.split_ascii_whitespace().map(str::parse::<u64>);
        let per_source = match (bounds.next(), bounds.next()) {
            (Some(Ok(first)), Some(Ok(last))) if first <= last => last - first + 1,
            // The default range of Linux.
            _ => 28_232,
        };
        let reuses = match reuse.trim() {
            "1" => true,
            "2" => server.is_loopback(),
            _ => false,
        };
        let has_more = matches!(server, IpAddr::V4(server) if server.is_loopback());
        Self { per_source, hold_s: if reuses { HOLD_REUSED_S } else { HOLD_S }, has_more }
    }

    /// Checks that `sources` source addresses have enough ports for a plan. A closed loop, and a plan with persistent
    /// connections, need only as many ports as connections are open at once.
    pub fn check(&self, plan: &Plan, sources: u32) -> Result<(), PortsShort> {
        let held = f64::from(plan.connections_used());
        let opened = match &plan.kind {
            // In a replay, either each line opens a connection, or each client does at its first line and closes it
            // after its last.
            Loop::Open(Arrivals { replay: Some(lines), .. }) => {
                let hold_ns = (self.hold_s * 1e9) as u64;
                let each_connects = super::spec::connects(&plan.visit);
                f64::from(if each_connects { lines.due_within(hold_ns) } else { lines.sessions_at_once(hold_ns) })
            }
            Loop::Open(arrivals) if super::spec::connects(&plan.visit) => {
                let peak_per_s =
                    arrivals.levels.iter().map(|level| level.from_per_s.max(level.to_per_s)).fold(0.0, f64::max);
                let most = match plan.stop {
                    Stop::Count(count) => count as f64,
                    Stop::After { duration_ns } | Stop::Tight { duration_ns_max: duration_ns, .. } => {
                        peak_per_s * duration_ns as f64 / 1e9
                    }
                };
                let warm_up_s = plan.unmeasured_ns_max() as f64 / 1e9;
                (most + peak_per_s * warm_up_s).min(peak_per_s * self.hold_s)
            }
            Loop::Open(_) => 0.0,
            Loop::Closed => held,
        };
        let available = self.per_source as f64 * f64::from(sources.max(1));
        if opened <= available {
            return Ok(());
        }
        Err(PortsShort { needed: opened, available, ports: *self, sources: sources.max(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::Ports;
    use flatout_load::plan::{ArrivalKind, Arrivals, Loop, Plan, ReplayLines, Stop, Visit};
    use std::sync::Arc;

    fn open(rate: f64, seconds: u64, visit: Visit) -> Plan {
        Plan {
            kind: Loop::Open(Arrivals::constant(ArrivalKind::Fixed, rate)),
            visit,
            connections: 1_000,
            stop: Stop::After { duration_ns: seconds * 1_000_000_000 },
            ..Plan::default()
        }
    }

    #[test]
    fn every_client_of_a_log_takes_a_port_until_it_is_free_again() {
        let ports = Ports::of("32768\t60999\n", "0\n", "192.0.2.1".parse().unwrap());
        let replay = |clients: u32, gap_ns: u64| {
            let lines = (0..clients).map(|client| (u64::from(client) * gap_ns, client));
            let kind = Loop::Open(Arrivals::replay(Arc::new(ReplayLines::of(lines))));
            Plan { kind, ..open(1.0, 600, Visit::Request) }
        };
        assert!(ports.check(&replay(28_232, 1), 1).is_ok() && ports.check(&replay(28_233, 1), 1).is_err());
        // The first connection's port is free again when the last connection is opened.
        assert!(ports.check(&replay(28_233, 60_000_000_000 / 28_232), 1).is_err());
        assert!(ports.check(&replay(28_233, 60_000_000_000 / 28_232 + 1), 1).is_ok());
    }

    #[test]
    fn ports_that_are_held_a_minute_carry_470_connections_a_second() {
        let ports = Ports::of("32768\t60999\n", "0\n", "192.0.2.1".parse().unwrap());
        assert_eq!((ports.per_source, ports.has_more), (28_232, false));
        let each = Visit::Connection { calls: 1 };
        assert!(ports.check(&open(470.0, 600, each.clone()), 1).is_ok());
        let short = ports.check(&open(471.0, 600, each.clone()), 1).unwrap_err();
        assert!(
            short.to_string().contains("28232 ports each") && !short.to_string().contains("--source-addresses"),
            "{short}"
        );
        // A short run uses no more ports than it opens connections.
        assert!(ports.check(&open(1_000.0, 20, each.clone()), 1).is_ok());
        assert!(ports.check(&open(1_000.0, 600, Visit::Request), 1).is_ok());
        let loopback = Ports::of("32768\t60999\n", "2\n", "127.0.0.1".parse().unwrap());
        assert!(loopback.check(&open(28_000.0, 600, each.clone()), 1).is_ok());
        let short = loopback.check(&open(60_000.0, 600, each.clone()), 1).unwrap_err();
        assert!(short.to_string().contains("use --source-addresses 3 "), "{short}");
        assert!(loopback.check(&open(60_000.0, 600, each), 3).is_ok());
        let held = Plan { connections: 30_000, ..Plan::default() };
        assert!(loopback.check(&held, 1).is_err() && loopback.check(&held, 2).is_ok());
    }
}
