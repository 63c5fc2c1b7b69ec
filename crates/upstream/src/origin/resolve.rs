//! Name resolution on a separate thread, with a cache.
//!
//! The name of an origin in use is also resolved when no connection has to be opened, because a name may move to another
//! machine while the old one still responds. Connections to addresses that the name has lost are then retired.

use super::client::OriginShared;
use super::failure::OriginFailure;
use super::pool::OriginPool;
use flatout_http::url::OriginAddress;
use flatout_net::task_deadlines::{DeadlineTimer, now_ms};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::sync::Notify;

/// Minimum time between a failed resolution and the next attempt, in milliseconds.
const FAILURE_TTL_MS: u64 = 1_000;

/// Multiple of the TTL for which addresses are used. After the TTL, they are used only while new ones are being
/// resolved or if that fails.
const STALE_TTLS: u64 = 6;

/// Cached addresses of an origin.
#[derive(Debug)]
pub(super) struct Resolution {
    known: RefCell<ResolvedHost>,
    arrived: Notify,
}

#[derive(Debug)]
struct ResolvedHost {
    addresses: Rc<[SocketAddr]>,
    resolved_ms: u64,
    fresh_until_ms: u64,
    usable_until_ms: u64,
    failed_until_ms: u64,
    under_way: bool,
}

impl Resolution {
    /// Creates the cache for `address`. If its host is an IP address, it needs no resolution.
    pub(super) fn new(address: &OriginAddress) -> Self {
        let ip = address.ip();
        // An IP address is never resolved.
        let until_ms = if ip.is_some() { u64::MAX } else { 0 };
        let known = ResolvedHost {
            addresses: ip.map(|ip| SocketAddr::new(ip, address.port)).into_iter().collect(),
            resolved_ms: 0,
            fresh_until_ms: until_ms,
            usable_until_ms: until_ms,
            failed_until_ms: 0,
            under_way: false,
        };
        Self { known: RefCell::new(known), arrived: Notify::new() }
    }

    /// Makes the addresses of a name stale, because connecting to all of them failed.
    pub(super) fn doubt(&self) {
        let mut known = self.known.borrow_mut();
        if known.fresh_until_ms != u64::MAX {
            known.fresh_until_ms = 0;
        }
    }
}

impl Resolution {
    /// Returns whether the name has this address, according to the latest resolution. The scope of IPv6 addresses is
    /// ignored.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        let known = self.known.borrow();
        known.addresses.iter().any(|other| (other.ip(), other.port()) == (address.ip(), address.port()))
    }

    /// Returns whether connections are in use whose addresses have not been checked for `recheck_ms`, and begins a
    /// resolution if so.
    fn begin_recheck(&self, recheck_ms: u64, now_ms: u64) -> bool {
        let mut known = self.known.borrow_mut();
        let is_name = known.fresh_until_ms != u64::MAX;
        let is_due = now_ms >= known.failed_until_ms && now_ms.saturating_sub(known.resolved_ms) >= recheck_ms;
        let begins = is_name && is_due && !known.under_way && !known.addresses.is_empty();
        known.under_way |= begins;
        begins
    }
}

/// Resolves the name of `pool` again if its connections have been used since the last time, and that is long ago.
pub(super) fn recheck(shared: &Rc<OriginShared>, pool: &Rc<OriginPool>, now_ms: u64) {
    if pool.was_used() && pool.resolution.begin_recheck(shared.settings.recheck_ms, now_ms) {
        tokio::task::spawn_local(look_up(Rc::clone(shared), Rc::clone(pool)));
    }
}

/// Returns the origin's addresses, of which there is at least one.
pub(super) async fn resolve(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    timer: &mut DeadlineTimer,
) -> Result<Rc<[SocketAddr]>, OriginFailure> {
    loop {
        let arrived = pool.resolution.arrived.notified();
        {
            let mut known = pool.resolution.known.borrow_mut();
            let now = now_ms();
            let usable = now < known.usable_until_ms;
            if now < known.fresh_until_ms {
                return Ok(Rc::clone(&known.addresses));
            }
            let may_begin = !known.under_way && now >= known.failed_until_ms;
            if may_begin {
                known.under_way = true;
                tokio::task::spawn_local(look_up(Rc::clone(shared), Rc::clone(pool)));
            }
            if usable {
                return Ok(Rc::clone(&known.addresses));
            }
            if !may_begin && !known.under_way {
                return Err(OriginFailure::Unresolved);
            }
        }
        timer.bound(arrived).await.ok_or(OriginFailure::ResolveTimeout)?;
    }
}

/// Calls the system's resolver on a separate thread.
async fn look_up(shared: Rc<OriginShared>, pool: Rc<OriginPool>) {
    shared.counts.lookups.add(1);
    let found = tokio::net::lookup_host((&*pool.address.host, pool.address.port)).await;
    handle_addresses(&shared, &pool, found.into_iter().flatten().collect());
}

/// Handles the result of a resolution, which is empty if it failed.
pub(super) fn handle_addresses(shared: &OriginShared, pool: &OriginPool, addresses: Rc<[SocketAddr]>) {
    let now = now_ms();
    let mut known = pool.resolution.known.borrow_mut();
    known.under_way = false;
    let mut has_moved = false;
    if addresses.is_empty() {
        known.failed_until_ms = now.saturating_add(FAILURE_TTL_MS);
    } else {
        let ttl_ms = shared.settings.resolve_ttl_ms;
        has_moved = known.addresses.iter().any(|address| !addresses.contains(address));
        known.addresses = addresses;
        known.resolved_ms = now;
        known.fresh_until_ms = now.saturating_add(ttl_ms.max(1));
        known.usable_until_ms = now.saturating_add(ttl_ms.max(1).saturating_mul(STALE_TTLS));
    }
    drop(known);
    pool.forget_use();
    if has_moved {
        pool.retire();
    }
    pool.resolution.arrived.notify_waiters();
}
