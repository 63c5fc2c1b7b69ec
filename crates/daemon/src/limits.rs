//! The configured limits on connections, handshakes, request heads and requests, per client address and in total.

use crate::store::StatusRow;
use arc_swap::ArcSwap;
use flatout_config::model::{ConnectionLimits, HeldLimit};
use flatout_engine::UntrustedProxy;
use flatout_engine::spec::Spec;
use flatout_os::random::KeyedHashState;
use flatout_overload::{ClientCounter, ClientLimit};
use flatout_server::ConnectionCounters;
use flatout_units::quantity::exact_size;
use std::net::IpAddr;
use std::sync::Arc;

/// The counters for `limit-connections`, which all workers share as long as the process runs.
#[derive(Clone)]
pub(crate) struct HeldCounters {
    pub(crate) connections: ConnectionCounters,
    pub(crate) requests: &'static ClientCounter,
    /// A proxy in front of this server that no setting trusts, so that all its clients are counted as one.
    pub(crate) untrusted: Arc<UntrustedProxy>,
}

impl HeldCounters {
    /// Creates counters with `limits`. By default, proxies that the configuration `in_force` trusts are exempt. `say`
    /// prints a line on standard error.
    pub(crate) fn new(
        limits: &ConnectionLimits,
        in_force: &Arc<ArcSwap<Spec>>,
        say: impl Fn(String) + Send + Sync + 'static,
    ) -> Self {
        const INCOMPLETE: u32 = ConnectionLimits::INCOMPLETE_PER_ADDRESS;
        let in_force = Arc::clone(in_force);
        Self {
            connections: ConnectionCounters::new(
                limit(limits.connections, ConnectionLimits::PER_ADDRESS),
                limit(limits.handshakes, INCOMPLETE),
                limit(limits.heads, INCOMPLETE),
                move |client| in_force.load().trusts(client),
            ),
            requests: ClientCounter::leak(limit(limits.requests, ConnectionLimits::PER_ADDRESS), KeyedHashState::new()),
            untrusted: UntrustedProxy::new(move |peer| say(describe_untrusted(peer))),
        }
    }

    /// Returns one row of text for each kind of limit.
    pub(crate) fn status_rows(&self) -> Vec<StatusRow> {
        let ConnectionCounters { connections, handshakes, heads, .. } = &self.connections;
        let kinds =
            [("connections", connections), ("handshakes", handshakes), ("heads", heads), ("requests", &self.requests)];
        let rows = kinds.map(|(name, counter)| {
            let (addresses, bytes) = counter.table_size();
            let shown = |limit: u32| if limit == 0 { "no limit".to_owned() } else { format!("at most {limit}") };
            let ClientLimit { per_client_max, total_max, .. } = *counter.limit();
            let value = format!(
                "{} per address, {} in total; counting {addresses} addresses in {}, {} uncounted",
                shown(per_client_max),
                shown(total_max),
                exact_size(bytes as u64),
                counter.uncounted()
            );
            StatusRow { name: name.to_owned(), value }
        });
        let untrusted = self.untrusted.peer().filter(|peer| !(self.connections.is_proxy)(*peer));
        let untrusted = untrusted.map(|peer| StatusRow {
            name: "untrusted proxy".to_owned(),
            value: format!(
                "all sampled requests of a worker came from {peer}; its clients count as one without `trusted-proxies \"{peer}\"`"
            ),
        });
        rows.into_iter().chain(untrusted).collect()
    }
}

fn describe_untrusted(peer: IpAddr) -> String {
    format!(
        "warning: for a minute, all sampled requests of a worker have come from {peer}, a proxy that names its clients in \
         X-Forwarded-For or Forwarded; without `trusted-proxies`, flatout ignores these fields and takes all of them for \
         one client\n  try: \
         trusted-proxies \"{peer}\", at the top level of the configuration"
    )
}

fn limit(written: HeldLimit, per_address_default: u32) -> ClientLimit {
    ClientLimit {
        per_client_max: written.per_address.unwrap_or(per_address_default),
        spares_proxies: written.per_address.is_none(),
        total_max: written.total,
    }
}

#[cfg(test)]
mod tests {
    use super::{HeldCounters, describe_untrusted};
    use arc_swap::ArcSwap;
    use flatout_config::load_text;
    use flatout_config::model::ConnectionLimits;
    use flatout_engine::{Sources, Spec};
    use std::net::IpAddr;
    use std::sync::Arc;

    #[test]
    fn an_untrusted_proxy_is_reported_until_it_is_trusted() {
        let spec = |top: &str| {
            let config = load_text(&format!("{top}\nsite {{\n respond 200 \"x\"\n}}")).unwrap();
            Arc::new(Spec::compile(&config, &Sources::default()).unwrap())
        };
        let in_force = Arc::new(ArcSwap::new(spec("")));
        let (sender, said) = std::sync::mpsc::channel();
        let counters =
            HeldCounters::new(&ConnectionLimits::default(), &in_force, move |text| sender.send(text).unwrap());
        let row = || counters.status_rows().into_iter().find(|row| row.name == "untrusted proxy").map(|row| row.value);
        assert_eq!(row(), None);
        let peer: IpAddr = "10.0.0.1".parse().unwrap();
        counters.untrusted.report(peer);
        counters.untrusted.report("10.0.0.2".parse().unwrap());
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [describe_untrusted(peer)]);
        assert!(describe_untrusted(peer).contains("try: trusted-proxies \"10.0.0.1\""));
        assert!(row().unwrap().contains("10.0.0.1"));
        in_force.store(spec("trusted-proxies \"10.0.0.0/8\""));
        assert_eq!(row(), None);
    }
}
