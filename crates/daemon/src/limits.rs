//! The configured limits on connections, handshakes, request heads and requests, per client address and in total.

use crate::store::StatusRow;
use arc_swap::ArcSwap;
use flatout_config::model::{ConnectionLimits, HeldLimit};
use flatout_engine::spec::Spec;
use flatout_os::random::KeyedHashState;
use flatout_overload::{ClientCounter, ClientLimit};
use flatout_server::ConnectionCounters;
use flatout_units::quantity::exact_size;
use std::sync::Arc;

/// The counters for `limit-connections`, which all workers share as long as the process runs.
#[derive(Clone)]
pub(crate) struct HeldCounters {
    pub(crate) connections: ConnectionCounters,
    pub(crate) requests: &'static ClientCounter,
}

impl HeldCounters {
    /// Creates counters with `limits`. By default, proxies that the configuration `in_force` trusts are exempt.
    pub(crate) fn new(limits: &ConnectionLimits, in_force: &Arc<ArcSwap<Spec>>) -> Self {
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
        rows.into()
    }
}

fn limit(written: HeldLimit, per_address_default: u32) -> ClientLimit {
    ClientLimit {
        per_client_max: written.per_address.unwrap_or(per_address_default),
        spares_proxies: written.per_address.is_none(),
        total_max: written.total,
    }
}
