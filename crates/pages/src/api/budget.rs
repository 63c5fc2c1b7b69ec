//! A budget for the memory that the pages of all sites use together, either for content (forms, text, uploaded files,
//! upstream responses) or for output that is buffered for clients.
//!
//! Each request has its own limits; the budget limits all requests together. A single client may use at most a quarter
//! of the budget, or as much as one request may use if that is more, which leaves the rest to other clients.

use flatout_os::random::HashState;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Minimum size of the budget for content, in bytes. The budget is larger if a single request may use more than half of
/// it.
pub const BYTES_MIN: u64 = 256 << 20;

/// Granularity of accounting, in bytes: workers share the counter, so it is updated rarely.
const STEP_BYTES: u64 = 16 << 10;

/// A client may use the budget divided by this number.
const CLIENT_PART: u64 = 4;

/// The limit, and the number of bytes in use.
#[derive(Debug)]
pub struct ContentBudget {
    bytes_max: AtomicU64,
    /// Maximum size of one request, in bytes, which any client may use.
    request_bytes: AtomicU64,
    held_bytes: AtomicU64,
    /// Bytes used by each client that uses any memory.
    clients: Mutex<HashMap<Option<Client>, u64, HashState>>,
}

impl Default for ContentBudget {
    fn default() -> Self {
        Self::new(BYTES_MIN)
    }
}

/// The error if the budget, or the client's share of it, is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// A client: an IPv4 address, or the /64 network of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client(u64);

impl Client {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits())),
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64 | 1 << 63),
        }
    }
}

impl ContentBudget {
    /// Creates a budget of `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max: AtomicU64::new(bytes_max),
            request_bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            clients: Mutex::default(),
        }
    }

    /// The limit, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Changes the limit, in bytes. Memory that is already in use is not affected.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Raises the limit, if necessary, so that two requests of `bytes` each fit.
    pub fn make_room_for(&self, bytes: u64) {
        self.bytes_max.fetch_max(bytes.saturating_mul(2), Ordering::Relaxed);
        self.request_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Number of bytes in use, in steps of 16 KiB.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Maximum number of bytes that one client may use.
    pub fn client_bytes_max(&self) -> u64 {
        let bytes_max = self.bytes_max();
        (bytes_max / CLIENT_PART).max(self.request_bytes.load(Ordering::Relaxed)).min(bytes_max)
    }

    /// Creates an empty share of the budget for a request of the client at this address.
    pub fn share(self: &Arc<Self>, client: Option<IpAddr>) -> RequestBudget {
        RequestBudget { budget: Arc::clone(self), client: client.map(Client::of), used_bytes: 0, taken_bytes: 0 }
    }

    /// Returns whether enough memory is left for another request of the client at this address: a quarter of what one
    /// client may use.
    pub fn has_room_for(&self, client: Option<IpAddr>) -> bool {
        let held_bytes = self.held_bytes();
        if held_bytes == 0 {
            return self.bytes_max() > 0;
        }
        let of_client = self.clients().get(&client.map(Client::of)).copied().unwrap_or(0);
        let wanted = self.client_bytes_max() / CLIENT_PART;
        held_bytes.saturating_add(wanted) <= self.bytes_max()
            && of_client.saturating_add(wanted) <= self.client_bytes_max()
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Option<Client>, u64, HashState>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, client: Option<Client>, bytes: u64) -> Result<(), Exhausted> {
        let mut clients = self.clients();
        let of_client = clients.get(&client).copied().unwrap_or(0).saturating_add(bytes);
        let in_all = self.held_bytes().saturating_add(bytes);
        if of_client > self.client_bytes_max() || in_all > self.bytes_max() {
            return Err(Exhausted);
        }
        clients.insert(client, of_client);
        self.held_bytes.store(in_all, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, client: Option<Client>, bytes: u64) {
        let mut clients = self.clients();
        if let Some(held) = clients.get_mut(&client) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                clients.remove(&client);
            }
        }
        self.held_bytes.store(self.held_bytes().saturating_sub(bytes), Ordering::Relaxed);
    }
}

/// The part of the budget that one request uses. Dropping it returns the memory to the budget.
#[derive(Debug)]
pub struct RequestBudget {
    budget: Arc<ContentBudget>,
    client: Option<Client>,
    used_bytes: u64,
    taken_bytes: u64,
}

impl RequestBudget {
    /// Takes `bytes` more from the budget.
    ///
    /// # Errors
    /// If this would exceed the limit of the budget or of the client. The share is then unchanged.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let used_bytes = self.used_bytes.saturating_add(bytes as u64);
        if used_bytes > self.taken_bytes {
            let more = (used_bytes - self.taken_bytes).div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES);
            self.budget.take(self.client, more)?;
            self.taken_bytes += more;
        }
        self.used_bytes = used_bytes;
        Ok(())
    }

    /// Sets the use of this request to `bytes`.
    ///
    /// # Errors
    /// If this would exceed the limit of the budget or of the client. The share is then unchanged.
    pub fn set(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let used_bytes = bytes as u64;
        if used_bytes > self.used_bytes {
            return self.grow((used_bytes - self.used_bytes) as usize);
        }
        let needed = used_bytes.div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES);
        if self.taken_bytes > needed {
            self.budget.give_back(self.client, self.taken_bytes - needed);
            self.taken_bytes = needed;
        }
        self.used_bytes = used_bytes;
        Ok(())
    }

    /// Number of bytes that this request has taken from the budget.
    pub const fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }
}

impl Drop for RequestBudget {
    fn drop(&mut self) {
        if self.taken_bytes > 0 {
            self.budget.give_back(self.client, self.taken_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentBudget, Exhausted, STEP_BYTES};
    use std::net::IpAddr;
    use std::sync::Arc;

    #[expect(clippy::unnecessary_wraps, reason = "the same signature as for requests")]
    fn client(address: &str) -> Option<IpAddr> {
        Some(address.parse().unwrap())
    }

    #[test]
    fn what_is_held_is_bounded_and_comes_back() {
        let budget = Arc::new(ContentBudget::new(3 * STEP_BYTES));
        budget.make_room_for(STEP_BYTES);
        let mut one = budget.share(client("192.0.2.1"));
        one.grow(1).unwrap();
        one.grow(STEP_BYTES as usize - 1).unwrap();
        assert_eq!(budget.held_bytes(), STEP_BYTES);
        let mut others: Vec<_> = ["192.0.2.2", "2001:db8::1"].iter().map(|at| budget.share(client(at))).collect();
        assert_eq!(others[0].grow(STEP_BYTES as usize + 1), Err(Exhausted));
        for other in &mut others {
            other.grow(STEP_BYTES as usize).unwrap();
        }
        assert!(!budget.has_room_for(client("192.0.2.9")));
        assert_eq!(budget.share(client("192.0.2.9")).grow(1), Err(Exhausted));
        drop(others);
        budget.share(client("192.0.2.9")).grow(1).unwrap();
        drop(one);
        assert_eq!((budget.held_bytes(), budget.clients().len()), (0, 0));
        budget.make_room_for(4 * STEP_BYTES);
        assert_eq!(budget.share(None).grow(5 * STEP_BYTES as usize), Err(Exhausted));
        budget.share(None).grow(4 * STEP_BYTES as usize).unwrap();
    }

    #[test]
    fn one_client_holds_a_quarter() {
        let budget = Arc::new(ContentBudget::new(8 * STEP_BYTES));
        let hold = |address: &str| {
            let mut share = budget.share(client(address));
            share.grow(STEP_BYTES as usize).map(|()| share)
        };
        for (mine, other) in [
            (["192.0.2.1", "::ffff:192.0.2.1"], "192.0.2.2"),
            (["2001:db8::1", "2001:db8::ffff:0:1"], "2001:db8:0:1::1"),
            (["127.0.0.1", "127.0.0.1"], "127.0.0.2"),
        ] {
            let held: Vec<_> = mine.iter().map(|address| hold(address).unwrap()).collect();
            assert!(hold(mine[0]).is_err() && !budget.has_room_for(client(mine[1])), "{mine:?}");
            assert!(hold(other).is_ok() && budget.has_room_for(client(other)), "{other}");
            drop(held);
            assert!(hold(mine[1]).is_ok());
        }
        let mut share = budget.share(None);
        share.set(2 * STEP_BYTES as usize).unwrap();
        share.set(STEP_BYTES as usize - 1).unwrap();
        assert_eq!((share.taken_bytes(), budget.held_bytes()), (STEP_BYTES, STEP_BYTES));
        assert_eq!(share.set(3 * STEP_BYTES as usize), Err(Exhausted));
        drop(share);
        // One request has what it may have in any case.
        budget.make_room_for(3 * STEP_BYTES);
        assert_eq!(budget.client_bytes_max(), 3 * STEP_BYTES);
        assert_eq!(budget.bytes_max(), 8 * STEP_BYTES);
    }
}
