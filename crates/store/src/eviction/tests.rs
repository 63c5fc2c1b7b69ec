//! The order in which objects are evicted.

use super::{Bounds, EvictionQueue};
use crate::object::{Object, ObjectKey};
use crate::tests::{Note, memory_body};
use std::sync::Arc;

fn object(number: u64, bytes: usize) -> Arc<Object<Note>> {
    let key = ObjectKey::new(&number.to_be_bytes(), 0..8, number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Arc::new(Object::new(key, b"", Note::default(), b""[..].into(), memory_body(&vec![0; bytes]), 0))
}

/// An eviction queue with room for `objects` of this size, and its contents.
struct Cache {
    eviction: EvictionQueue<Note>,
    held: Vec<Arc<Object<Note>>>,
}

impl Cache {
    fn new(objects: u64) -> Self {
        let bounds =
            Bounds { bytes_max: objects * object(0, 100).cost(), objects_max: u64::MAX, descriptors_max: u64::MAX };
        Self { eviction: EvictionQueue::new(bounds, Arc::default()), held: Vec::new() }
    }

    /// A request for object `number`; returns whether it was a hit, and the evicted objects.
    fn request(&mut self, number: u64) -> (bool, Vec<u64>) {
        let hash = object(number, 0).key().hash();
        if let Some(held) = self.held.iter().find(|held| held.key().hash() == hash) {
            held.touch();
            return (true, Vec::new());
        }
        let object = object(number, 100);
        self.held.push(Arc::clone(&object));
        let victims = self.eviction.add(&object, None);
        self.held.retain(|held| !victims.iter().any(|victim| Arc::ptr_eq(held, victim)));
        let name = |victim: &Arc<Object<Note>>| u64::from_be_bytes(victim.key().as_bytes().try_into().unwrap());
        (false, victims.iter().map(name).collect())
    }

    fn check(&self) {
        assert_eq!(self.eviction.objects() as usize, self.held.len());
        assert_eq!(self.eviction.bytes(), self.held.iter().map(|held| held.cost()).sum::<u64>());
    }
}

#[test]
fn the_oldest_without_hits_leaves_first_and_ghosts_come_back_to_stay() {
    let mut cache = Cache::new(10);
    for number in 0..10 {
        assert_eq!(cache.request(number), (false, vec![]));
    }
    // 0 was hit twice, so it goes to the main queue instead; 1, hit once, leaves.
    for number in [0, 0, 1] {
        assert!(cache.request(number).0);
    }
    assert_eq!(cache.request(10), (false, vec![1]));
    assert_eq!(cache.request(11), (false, vec![2]));
    // 1 was known: it goes to the main queue at once and outlives all that pass by.
    assert_eq!(cache.request(1), (false, vec![3]));
    for number in 100..200 {
        cache.request(number);
        cache.check();
    }
    assert!(cache.request(0).0 && cache.request(1).0);
}

#[test]
fn a_scan_pushes_out_nothing_that_is_used() {
    let mut cache = Cache::new(1_000);
    for round in 0..4 {
        for number in 0..800 {
            assert_eq!(cache.request(number).0, round > 0);
        }
    }
    for number in 1_000_000..1_020_000 {
        cache.request(number);
    }
    cache.check();
    let hits = (0..800).filter(|number| cache.request(*number).0).count();
    assert!(hits >= 780, "{hits} of 800");
}

#[test]
fn a_skewed_load_is_held_better_than_by_age() {
    // Objects are asked for in proportion to 1 / rank, from a fixed sequence; the cache holds a tenth of them.
    let (mut state, objects) = (1_u64, 2_000.0_f64);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (state >> 11) as f64 / (1_u64 << 53) as f64;
        objects.powf(unit) as u64
    };
    let mut cache = Cache::new(200);
    let (mut fifo, mut fifo_hits) = (std::collections::VecDeque::new(), 0);
    let mut hits = 0;
    for _ in 0..40_000 {
        let number = next();
        hits += u32::from(cache.request(number).0);
        if fifo.contains(&number) {
            fifo_hits += 1;
        } else {
            fifo.push_back(number);
            if fifo.len() > 200 {
                fifo.pop_front();
            }
        }
    }
    cache.check();
    assert!(hits > fifo_hits + 2_000, "{hits} and by age {fifo_hits}");
}

#[test]
fn a_freshened_object_keeps_its_place() {
    let mut cache = Cache::new(10);
    for number in (0..10).chain([0, 0]).chain(10..12) {
        cache.request(number);
    }
    let old = cache.held.iter().position(|held| held.key().as_bytes() == 0_u64.to_be_bytes()).unwrap();
    let fresh = object(0, 100);
    let former = std::mem::replace(&mut cache.held[old], Arc::clone(&fresh));
    assert!(cache.eviction.add(&fresh, Some(&former)).is_empty());
    for number in 100..150 {
        cache.request(number);
        cache.check();
    }
    assert!(cache.request(0).0);
}

#[test]
fn replaced_objects_leave_no_trace_in_the_queues() {
    let mut cache = Cache::new(10);
    let mut former = object(1, 100);
    assert!(cache.eviction.add(&former, None).is_empty());
    for _ in 0..10_000 {
        let next = object(1, 100);
        cache.eviction.add(&next, Some(&former));
        former = next;
    }
    assert_eq!((cache.eviction.objects(), cache.eviction.bytes()), (1, former.cost()));
    assert!(cache.eviction.small.len() + cache.eviction.main.len() < 200);
}

#[test]
fn one_replaced_before_it_was_entered_is_never_counted() {
    let mut cache = Cache::new(10);
    let late = object(1, 100);
    cache.eviction.remove(&late);
    assert!(cache.eviction.add(&late, None).is_empty());
    assert_eq!((cache.eviction.objects(), cache.eviction.bytes()), (0, 0));
}
