use super::shard::KvShard;
use super::{Kv, KvError, KvLimits, KvValue};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

fn bytes(text: &str) -> KvValue {
    KvValue::Bytes(text.as_bytes().into())
}

#[test]
fn values_live_until_their_time() {
    let kv = Kv::new(KvLimits::default());
    kv.set(b"a", bytes("1"), Some(10), 100).unwrap();
    assert_eq!(kv.get(b"a", 109), Some(bytes("1")));
    assert_eq!(kv.get(b"a", 110), None);
    assert!(kv.add(b"a", bytes("2"), None, 110).unwrap());
    assert!(!kv.add(b"a", bytes("3"), None, u64::MAX - 1).unwrap());
    assert!(kv.delete(b"a", 110));
    assert!(!kv.delete(b"a", 110));
}

#[test]
fn numbers_count() {
    let kv = Kv::new(KvLimits::default());
    assert_eq!(kv.incr(b"n", 2, Some(10), 0), Ok(2));
    // The first time to live remains in effect.
    assert_eq!(kv.incr(b"n", 3, Some(1000), 9), Ok(5));
    assert_eq!(kv.incr(b"n", 1, None, 10), Ok(1));
    assert_eq!(kv.incr(b"n", i64::MAX, None, 10), Err(KvError::Overflow));
    assert_eq!(kv.get(b"n", 10), Some(KvValue::Integer(1)));
    kv.set(b"n", bytes("1"), None, 10).unwrap();
    assert_eq!(kv.incr(b"n", 1, None, 10), Err(KvError::NotInteger));
}

#[test]
fn what_is_too_large_is_refused() {
    let limits = KvLimits { key_bytes_max: 4, value_bytes_max: 8, ..KvLimits::default() };
    let kv = Kv::new(limits);
    assert_eq!(kv.set(b"", bytes(""), None, 0), Err(KvError::Key));
    assert_eq!(kv.set(b"12345", bytes(""), None, 0), Err(KvError::Key));
    assert_eq!(kv.incr(b"12345", 1, None, 0), Err(KvError::Key));
    assert_eq!(kv.set(b"1", bytes("123456789"), None, 0), Err(KvError::Value));
    assert_eq!(kv.set(b"1", bytes("12345678"), None, 0), Ok(()));
    assert_eq!(kv.compare_and_set(b"1", Some(&bytes("12345678")), Some(bytes("x")), None, 0), Ok(true));
    assert_eq!(kv.compare_and_set(b"1", Some(&bytes("y")), None, None, 0), Ok(false));
    assert_eq!(kv.compare_and_set(b"1", Some(&bytes("x")), None, None, 0), Ok(true));
    assert_eq!(kv.get(b"1", 0), None);
    // The effective limit refuses a value that would not fit into its shard.
    let small = Kv::new(KvLimits { bytes_max: 16 * 1024, ..KvLimits::default() });
    assert!(small.limits().value_bytes_max < 1024);
}

#[test]
fn the_bounds_hold_and_the_wanted_stay() {
    let limits = KvLimits { bytes_max: 16 * 8192, entries_max: 16 * 20, ..KvLimits::default() };
    let kv = Kv::new(limits);
    kv.set(b"wanted", bytes("x"), None, 0).unwrap();
    for number in 0_u32..10_000 {
        assert!(kv.get(b"wanted", 0).is_some(), "after {number}");
        kv.set(&number.to_be_bytes(), KvValue::Bytes(vec![0; (number % 300) as usize].into()), None, 0).unwrap();
        let counts = kv.counts();
        assert!(counts.bytes <= limits.bytes_max && counts.entries <= limits.entries_max, "{counts:?}");
    }
    let counts = kv.counts();
    assert!(counts.evicted > 9_000 && counts.entries > 200, "{counts:?}");
}

#[test]
fn expired_values_are_evicted_first() {
    let mut shard = KvShard::new(1 << 20, 4);
    for (hash, expires_ms) in [(1, 50), (2, u64::MAX), (3, 10), (4, u64::MAX)] {
        shard.set(hash, &[hash as u8], KvValue::Integer(1), expires_ms, 0);
    }
    shard.set(5, &[5], KvValue::Integer(1), u64::MAX, 20);
    let found: Vec<_> = (1..=5).map(|hash| shard.get(hash, &[hash as u8], 20).is_some()).collect();
    assert_eq!(found, [true, true, false, true, true]);
    assert_eq!(shard.counts().evicted, 0);
}

#[test]
fn equal_hashes_are_told_apart() {
    let mut shard = KvShard::new(1 << 20, 100);
    for key in 0_u8..5 {
        assert_eq!(shard.set(7, &[key], KvValue::Integer(i64::from(key)), u64::MAX, 0), None);
    }
    for key in [2_u8, 4, 0] {
        assert_eq!(shard.remove(7, &[key], 0), Some(KvValue::Integer(i64::from(key))));
    }
    let found: Vec<_> = (0_u8..5).map(|key| shard.get(7, &[key], 0).cloned()).collect();
    assert_eq!(found, [None, Some(KvValue::Integer(1)), None, Some(KvValue::Integer(3)), None]);
}

#[test]
fn threads_lose_no_count() {
    let kv = Arc::new(Kv::new(KvLimits::default()));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let kv = Arc::clone(&kv);
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    kv.incr(b"hits", 1, None, 0).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(kv.get(b"hits", 0), Some(KvValue::Integer(8000)));
}

/// Operations of a page on a key.
#[derive(Clone, Debug)]
enum Act {
    Get,
    Set(Option<u64>),
    Add(Option<u64>),
    Incr(i64),
    Delete,
    Swap(i64, Option<i64>),
    Wait(u64),
}

fn act() -> impl Strategy<Value = (u8, Act)> {
    let ttl = prop_oneof![Just(None), (0_u64..20).prop_map(Some)];
    let act = prop_oneof![
        Just(Act::Get),
        ttl.clone().prop_map(Act::Set),
        ttl.prop_map(Act::Add),
        (-2_i64..3).prop_map(Act::Incr),
        Just(Act::Delete),
        (-2_i64..3, prop_oneof![Just(None), (0_i64..3).prop_map(Some)]).prop_map(|(a, b)| Act::Swap(a, b)),
        (0_u64..10).prop_map(Act::Wait),
    ];
    (0_u8..12, act)
}

proptest! {
    /// A sufficiently large store behaves like a map.
    #[test]
    fn it_is_a_map(acts in proptest::collection::vec(act(), 0..300)) {
        let kv = Kv::new(KvLimits::default());
        let mut model = HashMap::<u8, (i64, u64)>::new();
        let mut now = 0;
        for (key, act) in acts {
            let name = [key];
            let there = model.get(&key).filter(|(_, until)| *until > now).copied();
            let until = |ttl: Option<u64>| ttl.map_or(u64::MAX, |ttl| now + ttl);
            match act {
                Act::Get => prop_assert_eq!(kv.get(&name, now), there.map(|(value, _)| KvValue::Integer(value))),
                Act::Set(ttl) => {
                    kv.set(&name, KvValue::Integer(1), ttl, now).unwrap();
                    model.insert(key, (1, until(ttl)));
                }
                Act::Add(ttl) => {
                    prop_assert_eq!(kv.add(&name, KvValue::Integer(2), ttl, now), Ok(there.is_none()));
                    if there.is_none() {
                        model.insert(key, (2, until(ttl)));
                    }
                }
                Act::Incr(by) => {
                    let (value, until) = there.unwrap_or((0, u64::MAX));
                    prop_assert_eq!(kv.incr(&name, by, None, now), Ok(value + by));
                    model.insert(key, (value + by, until));
                }
                Act::Delete => {
                    prop_assert_eq!(kv.delete(&name, now), there.is_some());
                    model.remove(&key);
                }
                Act::Swap(expected, value) => {
                    let expects = there.is_some_and(|(value, _)| value == expected);
                    let swapped = kv.compare_and_set(
                        &name,
                        Some(&KvValue::Integer(expected)),
                        value.map(KvValue::Integer),
                        None,
                        now,
                    );
                    prop_assert_eq!(swapped, Ok(expects));
                    if expects {
                        match value {
                            Some(value) => drop(model.insert(key, (value, u64::MAX))),
                            None => drop(model.remove(&key)),
                        }
                    }
                }
                Act::Wait(ms) => now += ms,
            }
        }
        prop_assert_eq!(kv.counts().evicted, 0);
    }

    /// A small store returns what the map does, or nothing, and stays within its limits.
    #[test]
    fn a_small_one_only_forgets(acts in proptest::collection::vec(act(), 0..300)) {
        let mut shard = KvShard::new(600, 3);
        let mut model = HashMap::<u8, (i64, u64)>::new();
        let mut now = 0;
        for (value, (key, act)) in (0_i64..).zip(acts) {
            let hash = u64::from(key % 5);
            match act {
                Act::Set(ttl) | Act::Add(ttl) => {
                    let until = ttl.map_or(u64::MAX, |ttl| now + ttl);
                    shard.set(hash, &[key], KvValue::Integer(value), until, now);
                    model.insert(key, (value, until));
                }
                Act::Delete => drop((shard.remove(hash, &[key], now), model.remove(&key))),
                Act::Wait(ms) => now += ms,
                _ => {
                    let there = model.get(&key).filter(|(_, until)| *until > now);
                    if let Some(found) = shard.get(hash, &[key], now) {
                        let expected = there.map(|(value, _)| KvValue::Integer(*value));
                        prop_assert_eq!(Some(found), expected.as_ref());
                    }
                }
            }
            let counts = shard.counts();
            prop_assert!(counts.bytes <= 600 && counts.entries <= 3, "{:?}", counts);
        }
    }
}
