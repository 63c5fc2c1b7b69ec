//! Name resolution on a separate thread, with a cache.
//!
//! The name of an origin in use is also resolved when no connection has to be opened, because a name may move to another
//! machine while the old one still responds. Connections to addresses that the name has lost are then retired. One
//! response is no proof of a loss: a name server may return a part of its addresses at a time, in turn, and a resolver
//! may leave out those of one family after a timeout. The workers share these resolutions.

use super::client::OriginShared;
use super::failure::OriginFailure;
use super::pool::OriginPool;
use flatout_http::url::OriginAddress;
use flatout_net::task_deadlines::{DeadlineTimer, now_ms};
use flatout_os::random::KeyedHashState;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Minimum time between a failed resolution and the next attempt, in milliseconds.
const FAILURE_TTL_MS: u64 = 1_000;

/// Multiple of the TTL for which addresses are used. After the TTL, they are used only while new ones are being
/// resolved or if that fails.
const STALE_TTLS: u64 = 6;

/// How long resolutions must not have returned an address, in milliseconds, until the name has lost it. With the time
/// until they notice the absence, and that between two of them, this is less than a minute.
const ABSENCE_MS: u64 = 30_000;

/// While an address is missing, the name is resolved again after the setting divided by this.
const ABSENCE_DIVISOR: u64 = 3;

/// A name is resolved again earlier than the setting says, by up to the setting divided by this. The amount is random, so
/// that not all names and workers use the resolver at the same time.
const JITTER_DIVISOR: u64 = 4;

/// How long other workers may take the result of a resolution, in milliseconds.
const SHARED_MS: u64 = 10_000;

/// Cached addresses of an origin.
#[derive(Debug)]
pub(super) struct Resolution {
    known: RefCell<ResolvedHost>,
    /// The addresses that the name has, or may still have. Empty if the host is an IP address.
    had: RefCell<Vec<HadAddress>>,
    /// When the last resolution ended, whether or not it succeeded, in milliseconds.
    checked_ms: Cell<u64>,
    /// Random number that spreads the times of resolutions.
    jitter: u64,
    arrived: Notify,
}

/// An address that a resolution has returned.
#[derive(Debug)]
struct HadAddress {
    address: SocketAddr,
    /// When a resolution first did not return the address, in milliseconds; `None` if the last one did.
    absent_since_ms: Option<u64>,
}

#[derive(Debug)]
struct ResolvedHost {
    addresses: Rc<[SocketAddr]>,
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
            fresh_until_ms: until_ms,
            usable_until_ms: until_ms,
            failed_until_ms: 0,
            under_way: false,
        };
        Self {
            known: RefCell::new(known),
            had: RefCell::default(),
            checked_ms: Cell::new(0),
            jitter: KeyedHashState::default().build_hasher().finish(),
            arrived: Notify::new(),
        }
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
    /// Returns whether the host has this address, or may still have it. The scope of IPv6 addresses is ignored.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        let had = self.had.borrow();
        had.is_empty() || had.iter().any(|had| is_same(had.address, address))
    }

    /// Notes that a resolution has returned `addresses`, of which there is at least one. Returns whether the name has
    /// lost an address.
    fn note_addresses(&self, addresses: &[SocketAddr], now_ms: u64) -> bool {
        let mut had = self.had.borrow_mut();
        for known in &mut *had {
            let is_returned = addresses.iter().any(|address| is_same(*address, known.address));
            known.absent_since_ms = if is_returned { None } else { known.absent_since_ms.or(Some(now_ms)) };
        }
        let count = had.len();
        had.retain(|known| known.absent_since_ms.is_none_or(|since_ms| now_ms.saturating_sub(since_ms) < ABSENCE_MS));
        let has_lost = had.len() < count;
        for &address in addresses {
            if !had.iter().any(|known| is_same(known.address, address)) {
                had.push(HadAddress { address, absent_since_ms: None });
            }
        }
        has_lost
    }

    /// Returns whether the name is to be resolved again, because the last resolution, even if it failed, was about
    /// `recheck_ms` ago, or less if it did not return all addresses. False if a resolution is in progress.
    fn is_recheck_due(&self, recheck_ms: u64, now_ms: u64) -> bool {
        let known = self.known.borrow();
        let is_name = known.fresh_until_ms != u64::MAX;
        let lacks_any = self.had.borrow().iter().any(|had| had.absent_since_ms.is_some());
        let recheck_ms = if lacks_any { recheck_ms / ABSENCE_DIVISOR } else { recheck_ms };
        let early_ms = self.jitter % (recheck_ms / JITTER_DIVISOR).max(1);
        let is_due = now_ms.saturating_sub(self.checked_ms.get()) >= recheck_ms.saturating_sub(early_ms);
        is_name && is_due && !known.under_way && !known.addresses.is_empty()
    }
}

fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// The resolutions of names in use, which the workers of a process share: one of them resolves a name, and the others
/// take its result.
#[derive(Debug, Default)]
struct Rechecks(Mutex<HashMap<Box<str>, LastRecheck>>);

#[derive(Debug, Default)]
struct LastRecheck {
    is_under_way: bool,
    /// The result, which is empty if the resolution failed. Ports are those of the origin for which it was made.
    addresses: Vec<SocketAddr>,
    ended_ms: u64,
}

/// The turn of a worker for whom a name is to be resolved again.
#[derive(Debug)]
enum Turn<'a> {
    /// It resolves the name.
    Resolve(Recheck<'a>),
    /// It waits for the worker that is resolving the name.
    Wait,
    /// It takes these addresses, which were returned at this time in milliseconds.
    Take(Vec<SocketAddr>, u64),
}

/// The right to resolve a name again.
#[derive(Debug)]
struct Recheck<'a> {
    rechecks: &'a Rechecks,
    host: Box<str>,
}

impl Rechecks {
    /// Returns what a worker does whose last resolution of `host` ended at `checked_ms`.
    fn turn(&self, host: &str, checked_ms: u64, now_ms: u64) -> Turn<'_> {
        let mut last = self.lock();
        if let Some(LastRecheck { is_under_way, addresses, ended_ms }) = last.get(host) {
            if *is_under_way {
                return Turn::Wait;
            }
            if *ended_ms > checked_ms && now_ms.saturating_sub(*ended_ms) < SHARED_MS {
                return Turn::Take(addresses.clone(), *ended_ms);
            }
        }
        last.retain(|_, last| last.is_under_way || now_ms.saturating_sub(last.ended_ms) < SHARED_MS);
        last.insert(host.into(), LastRecheck { is_under_way: true, ..LastRecheck::default() });
        Turn::Resolve(Recheck { rechecks: self, host: host.into() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, LastRecheck>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recheck<'_> {
    /// Shares the result with the other workers.
    fn end(self, addresses: &[SocketAddr], ended_ms: u64) {
        let last = LastRecheck { is_under_way: false, addresses: addresses.to_vec(), ended_ms };
        self.rechecks.lock().insert(self.host.clone(), last);
    }
}

impl Drop for Recheck<'_> {
    fn drop(&mut self) {
        if let Some(last) = self.rechecks.lock().get_mut(&self.host) {
            last.is_under_way = false;
        }
    }
}

/// Resolves the name of `pool` again if it has connections, or has used any since the last time, and that is long ago.
pub(super) fn recheck(shared: &Rc<OriginShared>, pool: &Rc<OriginPool>, now_ms: u64) {
    static RECHECKS: LazyLock<Rechecks> = LazyLock::new(Rechecks::default);
    let resolution = &pool.resolution;
    let needs_address = pool.is_kept() || pool.was_used();
    if !needs_address || !resolution.is_recheck_due(shared.settings.recheck_ms, now_ms) {
        return;
    }
    match RECHECKS.turn(&pool.address.host, resolution.checked_ms.get(), now_ms) {
        // The next sweep tries again.
        Turn::Wait => {}
        Turn::Take(addresses, ended_ms) => handle_addresses(shared, pool, of_port(addresses, pool), ended_ms),
        Turn::Resolve(recheck) => {
            resolution.known.borrow_mut().under_way = true;
            let (shared, pool) = (Rc::clone(shared), Rc::clone(pool));
            tokio::task::spawn_local(async move {
                let addresses = look_up(&shared, &pool).await;
                recheck.end(&addresses, pool.resolution.checked_ms.get());
            });
        }
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
                let (shared, pool) = (Rc::clone(shared), Rc::clone(pool));
                tokio::task::spawn_local(async move { look_up(&shared, &pool).await });
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

/// Calls the system's resolver on a separate thread. Returns the addresses, none if the resolution failed.
async fn look_up(shared: &OriginShared, pool: &OriginPool) -> Rc<[SocketAddr]> {
    shared.counts.lookups.add(1);
    let found = tokio::net::lookup_host((&*pool.address.host, pool.address.port)).await;
    let addresses: Rc<[SocketAddr]> = found.into_iter().flatten().collect();
    handle_addresses(shared, pool, Rc::clone(&addresses), now_ms());
    addresses
}

/// Returns the addresses with the port of an origin.
fn of_port(addresses: Vec<SocketAddr>, pool: &OriginPool) -> Rc<[SocketAddr]> {
    let with_port = |mut address: SocketAddr| {
        address.set_port(pool.address.port);
        address
    };
    addresses.into_iter().map(with_port).collect()
}

/// Handles the result of a resolution that ended at `now_ms`, which is empty if it failed.
pub(super) fn handle_addresses(shared: &OriginShared, pool: &OriginPool, addresses: Rc<[SocketAddr]>, now_ms: u64) {
    let resolution = &pool.resolution;
    let mut known = resolution.known.borrow_mut();
    known.under_way = false;
    resolution.checked_ms.set(now_ms);
    if addresses.is_empty() {
        known.failed_until_ms = now_ms.saturating_add(FAILURE_TTL_MS);
    } else {
        let ttl_ms = shared.settings.resolve_ttl_ms;
        let has_lost = resolution.note_addresses(&addresses, now_ms);
        known.addresses = addresses;
        known.fresh_until_ms = now_ms.saturating_add(ttl_ms.max(1));
        known.usable_until_ms = now_ms.saturating_add(ttl_ms.max(1).saturating_mul(STALE_TTLS));
        pool.retire(has_lost);
    }
    drop(known);
    pool.forget_use();
    resolution.arrived.notify_waiters();
}

#[cfg(test)]
mod tests {
    use super::{ABSENCE_MS, FAILURE_TTL_MS, Recheck, Rechecks, Resolution, SHARED_MS, Turn};
    use crate::origin::OriginSettings;
    use flatout_http::url::OriginAddress;
    use std::net::SocketAddr;

    const RECHECK_MS: u64 = 30_000;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 80))
    }

    fn name() -> Resolution {
        Resolution::new(&OriginAddress::new(false, "a.example", 80))
    }

    /// Notes these addresses, and returns which of the first four addresses the name has.
    fn note(resolution: &Resolution, addresses: &[u8], now_ms: u64) -> Vec<u8> {
        let addresses: Vec<_> = addresses.iter().copied().map(address).collect();
        resolution.note_addresses(&addresses, now_ms);
        (0..4).filter(|&last| resolution.has(address(last))).collect()
    }

    #[test]
    fn names_with_rotating_addresses_lose_none() {
        let resolution = name();
        let parts = [&[0, 1][..], &[1, 2], &[0, 2]];
        for (round, part) in parts.iter().cycle().take(30).enumerate() {
            let after = note(&resolution, part, 1 + round as u64 * RECHECK_MS);
            assert_eq!(after, if round == 0 { &[0, 1][..] } else { &[0, 1, 2] }, "{round}");
        }
    }

    /// For instance, a resolver whose request for one family of addresses times out.
    #[test]
    fn a_name_has_lost_an_address_after_half_a_minute_without_it() {
        let resolution = name();
        assert_eq!(note(&resolution, &[0, 1], 1), [0, 1]);
        // The name was not resolved for an hour, so this absence is a new one.
        let begin_ms = 3_600_000;
        assert_eq!(note(&resolution, &[1], begin_ms), [0, 1]);
        assert_eq!(note(&resolution, &[0, 1], begin_ms + 50_000), [0, 1]);
        assert_eq!(note(&resolution, &[1], begin_ms + 70_000), [0, 1]);
        assert_eq!(note(&resolution, &[1], begin_ms + 70_000 + ABSENCE_MS - 1), [0, 1]);
        assert_eq!(note(&resolution, &[1], begin_ms + 70_000 + ABSENCE_MS), [1]);
        assert_eq!(note(&resolution, &[1, 0], begin_ms + 200_000), [0, 1]);
    }

    /// Time until all of `count` workers have noticed that a name has moved `phase_ms` after a round time, in
    /// milliseconds, if each resolution takes two seconds.
    fn time_to_leave_ms(count: usize, phase_ms: u64) -> u64 {
        const LOOKUP_MS: u64 = 2_000;
        const MOVED_MS: u64 = 100_000;
        let recheck_ms = OriginSettings::default().recheck_ms;
        let workers: Vec<_> = (0..count).map(|_| name()).collect();
        let rechecks = Rechecks::default();
        let take = |worker: &Resolution, last: u8, ended_ms: u64| {
            note(worker, &[last], ended_ms);
            worker.checked_ms.set(ended_ms);
            let mut known = worker.known.borrow_mut();
            (known.addresses, known.under_way) = ([address(last)].into(), false);
        };
        for worker in &workers {
            take(worker, 0, 0);
        }
        let (mut now_ms, mut under_way) = (0, None);
        while workers.iter().any(|worker| worker.has(address(0))) {
            now_ms += 100;
            if let Some((worker, recheck, last, _)) = under_way.take_if(|(_, _, _, end_ms)| *end_ms <= now_ms) {
                take(worker, last, now_ms);
                Recheck::end(recheck, &[address(last)], now_ms);
            }
            for worker in workers.iter().filter(|worker| worker.is_recheck_due(recheck_ms, now_ms)) {
                match rechecks.turn("a.example", worker.checked_ms.get(), now_ms) {
                    Turn::Wait => {}
                    Turn::Take(addresses, ended_ms) => {
                        take(worker, u8::from(addresses == [address(1)]), ended_ms);
                    }
                    Turn::Resolve(recheck) => {
                        assert!(under_way.is_none(), "one worker at a time resolves a name");
                        worker.known.borrow_mut().under_way = true;
                        let last = u8::from(now_ms >= MOVED_MS + phase_ms);
                        under_way = Some((worker, recheck, last, now_ms + LOOKUP_MS));
                    }
                }
            }
        }
        now_ms - MOVED_MS - phase_ms
    }

    #[test]
    fn a_name_that_moves_has_lost_its_former_address_within_a_minute() {
        for count in [1, 32] {
            for phase_ms in (0..2 * OriginSettings::default().recheck_ms).step_by(300) {
                let after_ms = time_to_leave_ms(count, phase_ms);
                assert!((ABSENCE_MS..=60_000).contains(&after_ms), "{after_ms} at {phase_ms} with {count} workers");
            }
        }
    }

    #[test]
    fn an_ip_address_cannot_be_lost() {
        let resolution = Resolution::new(&OriginAddress::new(false, "192.0.2.1", 80));
        assert!(resolution.has(address(1)));
        assert!(!resolution.is_recheck_due(RECHECK_MS, u64::MAX));
    }

    #[test]
    fn names_are_resolved_again_at_different_times_even_after_a_failure() {
        let mut due = std::collections::HashSet::new();
        for _ in 0..20 {
            let resolution = name();
            resolution.known.borrow_mut().addresses = [address(1)].into();
            for (failed_until_ms, checked_ms) in [(0, 1_000), (1_000 + FAILURE_TTL_MS, 1_000)] {
                resolution.known.borrow_mut().failed_until_ms = failed_until_ms;
                resolution.checked_ms.set(checked_ms);
                let is_due = |after_ms| resolution.is_recheck_due(RECHECK_MS, checked_ms + after_ms);
                assert!(!is_due(FAILURE_TTL_MS) && !is_due(RECHECK_MS * 3 / 4) && is_due(RECHECK_MS));
                due.insert((0..=RECHECK_MS).find(|&after_ms| is_due(after_ms)));
            }
            resolution.known.borrow_mut().under_way = true;
            assert!(!resolution.is_recheck_due(RECHECK_MS, u64::MAX));
        }
        assert!(due.len() > 10, "{due:?}");
    }

    #[test]
    fn workers_share_a_resolution_for_some_time() {
        let rechecks = Rechecks::default();
        let resolve = |host: &str, checked_ms: u64, now_ms: u64| match rechecks.turn(host, checked_ms, now_ms) {
            Turn::Resolve(recheck) => recheck,
            turn => panic!("{turn:?}"),
        };
        let first = resolve("a.example", 0, 1);
        assert!(matches!(rechecks.turn("a.example", 0, 1), Turn::Wait));
        // A worker that ends leaves the name to another.
        drop((first, resolve("b.example", 0, 1)));
        resolve("a.example", 0, 2).end(&[address(1)], 1_000);
        let Turn::Take(addresses, 1_000) = rechecks.turn("a.example", 999, 1_000 + SHARED_MS - 1) else { panic!() };
        assert_eq!(addresses, [address(1)]);
        // The worker has this result, or a later one.
        drop(resolve("a.example", 1_000, 1_001));
        resolve("a.example", 0, 2_000).end(&[], 3_000);
        drop(resolve("a.example", 0, 3_000 + SHARED_MS));
        assert_eq!(rechecks.lock().len(), 1, "other names are forgotten");
    }
}
