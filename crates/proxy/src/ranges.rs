//! Limits on fetches of whole responses on behalf of range requests. They are limited per client and in total, because
//! a request for one byte could otherwise make an origin send megabytes.
//!
//! By design, this module uses no sockets and no clock.

use flatout_os::random::HashState;
use flatout_store::Marker;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of concurrent fetches in total.
const UNDER_WAY_MAX: u32 = 64;

/// Maximum number of concurrent fetches per client.
const OF_CLIENT_MAX: u32 = 4;

/// Maximum number of bytes fetched per client and period.
const PERIOD_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Number of bytes charged for a fetch that is abandoned after its head: an estimate of what the origin has sent by
/// then, based on Linux's initial receive buffer.
pub(crate) const GIVEN_UP_BYTES: u64 = 128 * 1024;

/// Length of a period, in milliseconds.
const PERIOD_MS: u64 = 60_000;

/// Number of client entries. Clients that share an entry share its limits.
const CLIENTS: usize = 1024;

/// How long to remember that the whole response for a key must not be fetched, in milliseconds.
const REMEMBERED_MS: u64 = 600_000;

/// Returns the marker for a key whose whole response must not be fetched.
pub(crate) const fn marker(now_ms: u64) -> Marker {
    Marker { reason: 0, until_ms: now_ms.saturating_add(REMEMBERED_MS) }
}

/// Counters of the clients that share an entry.
#[derive(Debug, Default)]
struct Client {
    under_way: AtomicU32,
    /// Number of the current period. `bytes` is the number of bytes fetched in it.
    period: AtomicU64,
    bytes: AtomicU64,
}

/// All fetches of whole responses on behalf of range requests in the process.
#[derive(Debug)]
pub(crate) struct RangeFetches {
    hasher: HashState,
    under_way: AtomicU32,
    clients: Box<[Client]>,
}

impl Default for RangeFetches {
    fn default() -> Self {
        let clients = (0..CLIENTS).map(|_| Client::default()).collect();
        Self { hasher: HashState::default(), under_way: AtomicU32::new(0), clients }
    }
}

impl RangeFetches {
    /// Registers a fetch on behalf of `client`. Returns `None` if there are too many fetches or the client has reached
    /// its limit of bytes.
    pub(crate) fn begin(self: &Arc<Self>, client: Option<IpAddr>, now_ms: u64) -> Option<RangeFetch> {
        // An IPv6 client may use any address of its /64 network.
        let network = match client {
            Some(IpAddr::V6(address)) => Some(IpAddr::V6((address.to_bits() >> 64 << 64).into())),
            client => client,
        };
        let index = self.hasher.hash_one(network) as usize % CLIENTS;
        let fetch = RangeFetch { all: Arc::clone(self), index };
        let in_all = self.under_way.fetch_add(1, Ordering::Relaxed);
        let of_client = self.clients[index].under_way.fetch_add(1, Ordering::Relaxed);
        // If the fetch is dropped here, its destructor decrements both counters.
        (in_all < UNDER_WAY_MAX && of_client < OF_CLIENT_MAX && fetch.charge(0, now_ms)).then_some(fetch)
    }
}

/// Registration of a fetch of a whole response, until dropped.
#[derive(Debug)]
pub(crate) struct RangeFetch {
    all: Arc<RangeFetches>,
    index: usize,
}

impl RangeFetch {
    /// Charges `bytes` to the client and returns true, or returns false if that would exceed the limit.
    pub(crate) fn charge(&self, bytes: u64, now_ms: u64) -> bool {
        let client = &self.all.clients[self.index];
        let before = self.count(bytes, now_ms);
        let fits = before < PERIOD_BYTES_MAX && before.saturating_add(bytes) <= PERIOD_BYTES_MAX;
        if !fits {
            client.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Charges `bytes` to the client regardless of the limit. Returns the total charged in this period before.
    pub(crate) fn count(&self, bytes: u64, now_ms: u64) -> u64 {
        let client = &self.all.clients[self.index];
        let period = now_ms / PERIOD_MS;
        if client.period.swap(period, Ordering::Relaxed) != period {
            client.bytes.store(0, Ordering::Relaxed);
        }
        client.bytes.fetch_add(bytes, Ordering::Relaxed)
    }
}

impl Drop for RangeFetch {
    fn drop(&mut self) {
        self.all.under_way.fetch_sub(1, Ordering::Relaxed);
        self.all.clients[self.index].under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{OF_CLIENT_MAX, PERIOD_BYTES_MAX, PERIOD_MS, RangeFetches, UNDER_WAY_MAX};
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn one_client_and_all_of_them_are_bounded() {
        let all = Arc::<RangeFetches>::default();
        let mine: Vec<_> = (0..10).filter_map(|_| all.begin(Some(client(1)), 0)).collect();
        assert_eq!(mine.len(), OF_CLIENT_MAX as usize);
        drop(mine);
        assert!(all.begin(Some(client(1)), 0).is_some());
        let others: Vec<_> = (0..1000).filter_map(|number| all.begin(Some(client(number)), 0)).collect();
        assert_eq!(others.len(), UNDER_WAY_MAX as usize);
        assert!(all.begin(Some(client(5000)), 0).is_none());
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let all = Arc::<RangeFetches>::default();
        let address = |last: u32| format!("2001:db8::{last:x}").parse().ok();
        let kept: Vec<_> = (0..10).filter_map(|last| all.begin(address(last), 0)).collect();
        assert_eq!(kept.len(), OF_CLIENT_MAX as usize);
    }

    #[test]
    fn bytes_are_bounded_in_each_period() {
        let all = Arc::<RangeFetches>::default();
        let fetch = all.begin(Some(client(1)), 0).unwrap();
        assert!(fetch.charge(PERIOD_BYTES_MAX, 0) && !fetch.charge(1, 1));
        assert!(all.begin(Some(client(1)), 1).is_none() && all.begin(Some(client(1)), PERIOD_MS).is_some());
        assert!(fetch.charge(1, PERIOD_MS));
    }
}
