//! Limits on the number of connections, requests or the like that each client has at the same time, and the counts for
//! them.
//!
//! All workers share a table of fixed size. It consists of sets of eight counts (a cache line), each in an atomic word
//! together with a tag of the client, so that the table needs no lock and never grows. A count of zero frees its word.
//! If all words of a set are in use, the client is not counted, and only the limit on the total applies to it. The hash
//! has a secret key, so an attacker cannot choose addresses that fill the set of another client.

use core::fmt;
use core::net::IpAddr;
use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of counts per set, which together fill a cache line.
const WAYS: usize = 8;

/// Number of sets in the table, which is enough for 65,536 clients in 512 KiB.
const SETS: usize = 8192;

/// Number of bits of a count. The other bits of its word are the tag.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Maximum value of the limit for each client.
pub const PER_CLIENT_MAX: u32 = COUNT_MASK as u32 - 1;

/// Maximum number of attempts at a compare-and-exchange that races with other workers. After that, the client is not
/// counted.
const RACES_MAX: u32 = 64;

/// Word index of a permit that is not counted for its client.
const UNCOUNTED: u32 = u32::MAX;

/// Maximum number of connections, requests or the like that clients may have at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLimit {
    /// Limit for each client, at most [`PER_CLIENT_MAX`], or 0 for no limit.
    pub per_client_max: u32,
    /// True if the limit for each client does not apply to loopback addresses and trusted proxies.
    pub spares_proxies: bool,
    /// Limit for all clients together, or 0 for no limit.
    pub total_max: u32,
}

/// Counter of the permits that clients hold, for instance for connections.
pub struct ClientCounter {
    limit: ClientLimit,
    total: AtomicU32,
    uncounted: AtomicU64,
    /// Hash function for clients, with a secret key.
    hash: Box<dyn Fn((u8, u64)) -> u64 + Send + Sync>,
    /// The table, which is allocated when the first client is counted.
    words: OnceLock<Box<[AtomicU64]>>,
}

/// Error that a client has reached its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReached;

/// Permit for one connection, request or the like, which is counted until the permit is dropped.
#[derive(Debug)]
#[must_use]
pub struct ClientPermit {
    counter: &'static ClientCounter,
    word: u32,
}

impl fmt::Debug for ClientCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCounter").field("limit", &self.limit).field("total", &self.total).finish_non_exhaustive()
    }
}

impl ClientCounter {
    /// Creates a counter that exists for the rest of the process, so that permits need no reference count. `hash` must
    /// have random keys.
    pub fn leak(limit: ClientLimit, hash: impl BuildHasher + Send + Sync + 'static) -> &'static Self {
        Box::leak(Box::new(Self {
            limit: ClientLimit { per_client_max: limit.per_client_max.min(PER_CLIENT_MAX), ..limit },
            total: AtomicU32::new(0),
            uncounted: AtomicU64::new(0),
            hash: Box::new(move |client| hash.hash_one(client)),
            words: OnceLock::new(),
        }))
    }

    /// Returns the limit. `per_client_max` is at most [`PER_CLIENT_MAX`].
    pub const fn limit(&self) -> &ClientLimit {
        &self.limit
    }

    /// Returns the number of permits held by all clients if the total is limited, otherwise 0.
    pub fn total(&self) -> u32 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns whether more than `total_max` permits are held.
    pub fn is_exceeded(&self) -> bool {
        self.limit.total_max > 0 && self.total() > self.limit.total_max
    }

    /// Returns whether at least `total_max` permits are held. If several workers check this at the same time before
    /// admitting a client, the total may exceed the limit by up to the number of workers.
    pub fn is_full(&self) -> bool {
        self.limit.total_max > 0 && self.total() >= self.limit.total_max
    }

    /// Returns the number of permits that were not counted for their client because its set was full.
    pub fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }

    /// Returns the number of clients in the table, and the size of the table in bytes.
    pub fn table_size(&self) -> (usize, usize) {
        let words = self.words.get().map(|words| &**words).unwrap_or_default();
        let used = words.iter().filter(|word| word.load(Ordering::Relaxed) != 0).count();
        (used, size_of_val(words))
    }

    /// Admits `client`, regardless of the limit on the total. A client without an address is counted only towards the
    /// total. `is_proxy` returns whether an address belongs to a proxy that many clients share.
    ///
    /// # Errors
    /// Fails if the client already holds `per_client_max` permits.
    pub fn admit(
        &'static self,
        client: Option<IpAddr>,
        is_proxy: impl FnOnce(IpAddr) -> bool,
    ) -> Result<ClientPermit, LimitReached> {
        let counted = client.map(|client| client.to_canonical()).filter(|&client| {
            self.limit.per_client_max > 0 && !(self.limit.spares_proxies && (client.is_loopback() || is_proxy(client)))
        });
        let word = match counted {
            Some(client) => self.increment(client)?,
            None => UNCOUNTED,
        };
        if self.limit.total_max > 0 {
            self.total.fetch_add(1, Ordering::Relaxed);
        }
        Ok(ClientPermit { counter: self, word })
    }

    /// Increments the count of a client, and returns the index of its word.
    fn increment(&self, client: IpAddr) -> Result<u32, LimitReached> {
        let hash = (self.hash)(subject(client));
        // The tag is never zero, so that no word in use appears to be free. The low bits of the hash select the set.
        let tag = (hash >> COUNT_BITS).max(1);
        let set = (hash as usize % SETS) * WAYS;
        let words = self.words.get_or_init(|| (0..SETS * WAYS).map(|_| AtomicU64::new(0)).collect());
        for _ in 0..RACES_MAX {
            let Some((index, value)) = find(&words[set..set + WAYS], tag) else { break };
            if (value & COUNT_MASK) as u32 >= self.limit.per_client_max {
                return Err(LimitReached);
            }
            let new = (tag << COUNT_BITS) | ((value & COUNT_MASK) + 1);
            let word = &words[set + index];
            if word.compare_exchange_weak(value, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok((set + index) as u32);
            }
        }
        self.uncounted.fetch_add(1, Ordering::Relaxed);
        Ok(UNCOUNTED)
    }

    fn decrement(&self, index: u32) {
        let Some(word) = self.words.get().and_then(|words| words.get(index as usize)) else { return };
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| {
            Some(if value & COUNT_MASK <= 1 { 0 } else { value - 1 })
        });
    }
}

/// Returns the index and value of the word with `tag` in a set, or else of a free word. Returns `None` if all words
/// belong to other clients.
fn find(set: &[AtomicU64], tag: u64) -> Option<(usize, u64)> {
    let mut free = None;
    for (index, word) in set.iter().enumerate() {
        let value = word.load(Ordering::Relaxed);
        if value >> COUNT_BITS == tag {
            return Some((index, value));
        }
        if value == 0 && free.is_none() {
            free = Some((index, 0));
        }
    }
    free
}

/// One client: the version of IP, and an address or network.
pub type Subject = (u8, u64);

/// Returns what counts as one client: an IPv4 address, or a whole IPv6 /64, because a subscriber normally has at least
/// a /64 (RFC 6177).
pub const fn subject(client: IpAddr) -> Subject {
    match client {
        IpAddr::V4(address) => (4, address.to_bits() as u64),
        IpAddr::V6(address) => (6, (address.to_bits() >> 64) as u64),
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        if self.word != UNCOUNTED {
            self.counter.decrement(self.word);
        }
        if self.counter.limit.total_max > 0 {
            self.counter.total.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientCounter, ClientLimit, ClientPermit, LimitReached, SETS, WAYS};
    use std::hash::{BuildHasherDefault, DefaultHasher};
    use std::net::{IpAddr, Ipv4Addr};

    /// Keys that are the same in every run.
    fn hash() -> BuildHasherDefault<DefaultHasher> {
        BuildHasherDefault::default()
    }

    fn counter(per_client_max: u32, total_max: u32) -> &'static ClientCounter {
        ClientCounter::leak(ClientLimit { per_client_max, spares_proxies: false, total_max }, hash())
    }

    fn admit(counter: &'static ClientCounter, client: &str) -> Result<ClientPermit, LimitReached> {
        counter.admit(client.parse().ok(), |_| false)
    }

    #[test]
    fn each_address_and_each_network_of_ipv6_has_its_own_count() {
        let counter = counter(2, 0);
        let held = [admit(counter, "192.0.2.1"), admit(counter, "::ffff:192.0.2.1")];
        assert!(held.iter().all(Result::is_ok));
        assert!(admit(counter, "192.0.2.1").is_err());
        assert!(admit(counter, "192.0.2.2").is_ok(), "another address");
        let held_6 = [admit(counter, "2001:db8::1"), admit(counter, "2001:db8::2")];
        assert!(admit(counter, "2001:db8::3").is_err() && admit(counter, "2001:db8:0:1::1").is_ok());
        assert_eq!(counter.table_size(), (2, SETS * WAYS * 8));
        drop((held, held_6));
        assert_eq!(counter.table_size().0, 0, "nothing is left");
        assert!(admit(counter, "192.0.2.1").is_ok());
    }

    #[test]
    fn loopback_and_proxies_are_spared_unless_the_limit_says_otherwise() {
        let spares = ClientCounter::leak(ClientLimit { per_client_max: 1, spares_proxies: true, total_max: 0 }, hash());
        let is_proxy = |client: IpAddr| client == Ipv4Addr::new(10, 0, 0, 1);
        for client in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.0.0.1", "no address"] {
            let held: Vec<_> = (0..9).map(|_| spares.admit(client.parse().ok(), is_proxy)).collect();
            assert!(held.iter().all(Result::is_ok), "{client}");
        }
        assert_eq!(spares.table_size(), (0, 0), "there is no table yet");
        let _held = spares.admit("10.0.0.2".parse().ok(), is_proxy).unwrap();
        assert!(spares.admit("10.0.0.2".parse().ok(), is_proxy).is_err());
        let counter = counter(1, 0);
        let _held = admit(counter, "127.0.0.1").unwrap();
        assert!(admit(counter, "127.0.0.1").is_err());
    }

    #[test]
    fn the_total_includes_those_without_address() {
        let counter = counter(0, 2);
        let mut held = vec![admit(counter, "192.0.2.1").unwrap()];
        assert!(!counter.is_full());
        held.push(admit(counter, "unknown").unwrap());
        assert!(counter.is_full() && !counter.is_exceeded());
        held.push(admit(counter, "192.0.2.1").unwrap());
        assert!(counter.is_exceeded());
        held.truncate(1);
        assert_eq!((counter.total(), counter.is_full()), (1, false));
    }

    #[test]
    fn a_full_table_counts_no_further_clients_and_forgets_none() {
        let counter = counter(1, 0);
        let admit = |bits: u32| counter.admit(Some(Ipv4Addr::from_bits(bits).into()), |_| false);
        let count = (SETS * WAYS * 2) as u32;
        let held: Vec<_> = (0..count).map(admit).collect();
        // Two tags of 44 bits are equal once in 10^13 pairs.
        assert!(held.iter().all(Result::is_ok));
        let uncounted = counter.uncounted();
        assert!(uncounted >= (SETS * WAYS) as u64, "{uncounted}");
        let refused = (0..count).filter(|&bits| admit(bits).is_err()).count() as u64;
        assert_eq!(refused + uncounted, u64::from(count), "the others are still counted");
        drop(held);
        assert_eq!(counter.table_size().0, 0);
    }

    #[test]
    fn workers_together_admit_no_more() {
        let counter = counter(100, 100_000);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..2_000 {
                            drop(admit(counter, "192.0.2.1"));
                        }
                        (0..100).filter_map(|_| admit(counter, "192.0.2.1").ok()).collect::<Vec<_>>()
                    })
                })
                .collect();
            let held: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
            assert_eq!(held.len(), 100);
            assert_eq!((counter.total(), counter.uncounted()), (100, 0));
        });
        assert_eq!((counter.total(), counter.table_size().0), (0, 0));
    }
}
