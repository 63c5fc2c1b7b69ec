//! Eviction queue of the memory tier: S3-FIFO with limits on bytes, objects and file descriptors.
//!
//! New objects enter a small queue (a tenth of the bytes), and reach the main queue only if they are hit while in it. A
//! crawler that requests everything once therefore evicts only other objects that are requested once. SIEVE is simpler,
//! but its authors state that it is not scan-resistant. A hit only increments a counter in the object, without changing
//! a queue or taking a lock.
//!
//! All shards share one queue, so its totals are exact. Insertions and removals lock it; hits do not.

use crate::object::Object;
use flatout_handler::budget::Budget;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Limits of the memory tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "bounds end in `_max` everywhere")]
pub(crate) struct Bounds {
    pub(crate) bytes_max: u64,
    pub(crate) objects_max: u64,
    pub(crate) descriptors_max: u64,
}

/// Values of `Object::eviction`, which names the object's queue and is written only under the lock of the eviction
/// queue.
const NEW: u8 = 0;
const SMALL: u8 = 1;
const MAIN: u8 = 2;
const GONE: u8 = 3;

/// Number of hits in the small queue required to enter the main queue.
const HITS_FOR_MAIN: u8 = 2;

/// Divisor of the limits, which yields the small queue's target size.
const SMALL_PART: u64 = 10;

/// Eviction queue and totals of the memory tier.
#[derive(Debug)]
pub(crate) struct EvictionQueue<M> {
    bounds: Bounds,
    /// Memory budget of the process. Objects may use what other content leaves free.
    budget: Arc<Budget>,
    small: VecDeque<Weak<Object<M>>>,
    main: VecDeque<Weak<Object<M>>>,
    /// All objects with a file descriptor, from which one can be selected for eviction without scanning all objects.
    holders: VecDeque<Weak<Object<M>>>,
    ghosts: Ghosts,
    small_bytes: u64,
    bytes: u64,
    objects: u64,
    descriptors: u64,
    /// Number of entries in `small` and `main` whose object is no longer in that queue.
    dead: usize,
    evicted: u64,
}

impl<M> EvictionQueue<M> {
    pub(crate) fn new(bounds: Bounds, budget: Arc<Budget>) -> Self {
        Self {
            bounds,
            budget,
            small: VecDeque::new(),
            main: VecDeque::new(),
            holders: VecDeque::new(),
            ghosts: Ghosts::default(),
            small_bytes: 0,
            bytes: 0,
            objects: 0,
            descriptors: 0,
            dead: 0,
            evicted: 0,
        }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn objects(&self) -> u64 {
        self.objects
    }

    pub(crate) const fn descriptors(&self) -> u64 {
        self.descriptors
    }

    pub(crate) const fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(crate) const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Adds `object`, replacing `former` if given. Returns the objects to evict, which have already been removed from
    /// the queue.
    pub(crate) fn add(&mut self, object: &Arc<Object<M>>, former: Option<&Object<M>>) -> Vec<Arc<Object<M>>> {
        // The object was replaced before it could be added.
        if object.eviction.load(Ordering::Relaxed) != NEW {
            return Vec::new();
        }
        let inherits = former.is_some_and(|former| former.eviction.load(Ordering::Relaxed) == MAIN);
        if let Some(former) = former {
            object.set_hits(former.hits());
            self.remove(former);
        }
        let is_main = inherits | self.ghosts.take(ghost_of(object));
        object.eviction.store(if is_main { MAIN } else { SMALL }, Ordering::Relaxed);
        self.bytes += object.cost();
        self.objects += 1;
        if is_main {
            self.main.push_back(Arc::downgrade(object));
        } else {
            self.small_bytes += object.cost();
            self.small.push_back(Arc::downgrade(object));
        }
        if object.body().has_descriptor() {
            self.descriptors += 1;
            self.holders.push_back(Arc::downgrade(object));
        }
        self.evict()
    }

    /// Removes `object` from the queue.
    pub(crate) fn remove(&mut self, object: &Object<M>) {
        let place = object.eviction.swap(GONE, Ordering::Relaxed);
        if place == SMALL || place == MAIN {
            self.strike(object, place);
            self.dead += 1;
            self.sweep();
            self.budget.set_stored(self.bytes);
        }
    }

    /// Changes the limits. Returns the objects to evict.
    pub(crate) fn set_bounds(&mut self, bounds: Bounds) -> Vec<Arc<Object<M>>> {
        self.bounds = bounds;
        self.budget.set_bytes_max(bounds.bytes_max);
        self.evict()
    }

    /// Returns the objects to evict because the budget leaves less room for them now.
    pub(crate) fn make_room(&mut self) -> Vec<Arc<Object<M>>> {
        self.evict()
    }

    /// Subtracts `object` from the totals.
    fn strike(&mut self, object: &Object<M>, place: u8) {
        self.bytes -= object.cost();
        self.objects -= 1;
        if place == SMALL {
            self.small_bytes -= object.cost();
        }
        if object.body().has_descriptor() {
            self.descriptors -= 1;
        }
    }

    /// Drops dead entries when they outnumber live entries, so that a removal takes amortised constant time.
    fn sweep(&mut self) {
        const DEAD_MIN: usize = 64;
        if self.dead > DEAD_MIN + self.objects as usize {
            for (queue, place) in [(&mut self.small, SMALL), (&mut self.main, MAIN)] {
                queue.retain(|entry| stands_in(entry, place).is_some());
                queue.shrink_to(queue.len() * 2);
            }
            self.dead = 0;
        }
        if self.holders.len() > DEAD_MIN + 2 * self.descriptors as usize {
            self.holders.retain(|entry| entry.upgrade().is_some_and(|object| is_listed(&object)));
        }
    }

    fn evict(&mut self) -> Vec<Arc<Object<M>>> {
        let mut victims = Vec::new();
        let bytes_max = self.bounds.bytes_max.min(self.budget.stored_bytes_max());
        while self.bytes > bytes_max || self.objects > self.bounds.objects_max {
            let Some(victim) = self.next_victim() else { break };
            victims.push(victim);
        }
        while self.descriptors > self.bounds.descriptors_max {
            let Some(victim) = self.next_holder() else { break };
            victims.push(victim);
        }
        self.evicted += victims.len() as u64;
        self.sweep();
        self.budget.set_stored(self.bytes);
        victims
    }

    fn next_victim(&mut self) -> Option<Arc<Object<M>>> {
        // Bounds the loop under concurrent hits: after this many turns, the next object is evicted even if it was hit.
        let mut turns = 4 * (self.small.len() + self.main.len()) + 4;
        loop {
            turns = turns.saturating_sub(1);
            let is_small_full = self.small_bytes.saturating_mul(SMALL_PART) >= self.bounds.bytes_max;
            // If objects are tiny, the limit on their number applies instead, and so the small queue's share applies to
            // it.
            let is_small_long =
                (self.small.len() as u64).saturating_mul(SMALL_PART) >= self.bounds.objects_max.max(SMALL_PART);
            let from_small = !self.small.is_empty() && (is_small_full || is_small_long || self.main.is_empty());
            let (queue, place) = if from_small { (&mut self.small, SMALL) } else { (&mut self.main, MAIN) };
            let entry = queue.pop_front()?;
            let Some(object) = stands_in(&entry, place) else {
                self.dead = self.dead.saturating_sub(1);
                continue;
            };
            let hits = object.hits();
            if turns > 0 && place == SMALL && hits >= HITS_FOR_MAIN {
                object.set_hits(0);
                object.eviction.store(MAIN, Ordering::Relaxed);
                self.small_bytes -= object.cost();
                self.main.push_back(entry);
                continue;
            }
            if turns > 0 && place == MAIN && hits > 0 {
                object.set_hits(hits - 1);
                self.main.push_back(entry);
                continue;
            }
            if place == SMALL {
                self.ghosts.add(ghost_of(&object), self.objects as usize);
            }
            object.eviction.store(GONE, Ordering::Relaxed);
            self.strike(&object, place);
            return Some(object);
        }
    }

    /// Removes the oldest object with a file descriptor that was not hit, to free its descriptor.
    fn next_holder(&mut self) -> Option<Arc<Object<M>>> {
        let mut turns = 4 * self.holders.len() + 4;
        loop {
            turns = turns.saturating_sub(1);
            let entry = self.holders.pop_front()?;
            let Some(object) = entry.upgrade().filter(|object| is_listed(object)) else { continue };
            let hits = object.hits();
            if turns > 0 && hits > 0 {
                object.set_hits(hits - 1);
                self.holders.push_back(entry);
                continue;
            }
            let place = object.eviction.swap(GONE, Ordering::Relaxed);
            self.strike(&object, place);
            self.dead += 1;
            return Some(object);
        }
    }
}

/// Returns the object of a queue entry, if it is still in the queue `place`.
fn stands_in<M>(entry: &Weak<Object<M>>, place: u8) -> Option<Arc<Object<M>>> {
    entry.upgrade().filter(|object| object.eviction.load(Ordering::Relaxed) == place)
}

fn is_listed<M>(object: &Object<M>) -> bool {
    matches!(object.eviction.load(Ordering::Relaxed), SMALL | MAIN)
}

/// Returns the fingerprint that represents an object in the ghost queue.
fn ghost_of<M>(object: &Object<M>) -> u64 {
    // A weak hash suffices, since a collision only puts an object in the wrong queue.
    let variant = object.variant().iter().fold(0_u64, |sum, byte| sum.rotate_left(7) ^ u64::from(*byte));
    object.key().hash() ^ variant.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Ghost queue: fingerprints of the objects most recently evicted from the small queue. An object that is inserted
/// again soon goes directly to the main queue.
#[derive(Debug, Default)]
struct Ghosts {
    order: VecDeque<(u64, u64)>,
    members: HashMap<u64, u64, flatout_os::random::Prehashed>,
    count: u64,
}

impl Ghosts {
    /// Minimum number of fingerprints, so that a small cache does not forget them immediately.
    const MIN: usize = 64;

    fn add(&mut self, ghost: u64, count_max: usize) {
        self.count += 1;
        self.order.push_back((ghost, self.count));
        self.members.insert(ghost, self.count);
        while self.order.len() > count_max.max(Self::MIN) {
            if let Some((oldest, count)) = self.order.pop_front()
                && self.members.get(&oldest) == Some(&count)
            {
                self.members.remove(&oldest);
            }
        }
    }

    fn take(&mut self, ghost: u64) -> bool {
        self.members.remove(&ghost).is_some()
    }
}

#[cfg(test)]
mod tests;
