//! Randomness derived from a seed, for tests and simulations.

use crate::entered::Entered;
use foldhash::{SharedSeed, fast, quality};
use std::cell::RefCell;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of numbers derived from a seed. Clones share the sequence. It is not cryptographically secure.
#[derive(Clone, Debug)]
pub struct SeededRandom(Arc<AtomicU64>);

thread_local! {
    static CURRENT: RefCell<Option<SeededRandom>> = const { RefCell::new(None) };
}

impl SeededRandom {
    /// The sequence of numbers derived from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// Replaces the system's randomness on this thread until the returned value is dropped.
    pub fn enter(&self) -> Entered<Self> {
        Entered::new(&CURRENT, self.clone())
    }

    /// The source that this thread has entered, for passing on to a thread that this one starts.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// The next number: splitmix64 (Steele, Lea and Flood, 2014).
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut word = self.0.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

/// Fills `bytes` from the thread's seeded source. Returns false if the thread has none and uses the system's
/// randomness.
pub(crate) fn fill(bytes: &mut [u8]) -> bool {
    let Some(source) = SeededRandom::current() else { return false };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&source.next().to_le_bytes()[..chunk.len()]);
    }
    true
}

macro_rules! hash_state {
    ($(#[$doc:meta])* $name:ident, $module:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name($module::SeedableRandomState);

        impl $name {
            /// Creates a state with a new key.
            pub fn new() -> Self {
                let seed = SeededRandom::current().map(|source| source.next());
                Self(seed.map_or_else($module::SeedableRandomState::random, |seed| {
                    $module::SeedableRandomState::with_seed(seed, SharedSeed::global_fixed())
                }))
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl BuildHasher for $name {
            type Hasher = $module::FoldHasher<'static>;

            fn build_hasher(&self) -> Self::Hasher {
                self.0.build_hasher()
            }
        }
    };
}

hash_state! {
    /// Fast hashing, for tables whose keys clients cannot choose freely.
    HashState, fast
}

hash_state! {
    /// Hashing for fingerprints: each bit of the hash depends on every bit of the input.
    QualityHashState, quality
}

hash_state! {
    /// Keyed hashing, for tables in which an attacker must not be able to cause collisions. This seeded variant does
    /// not prevent collisions.
    KeyedHashState, quality
}

#[cfg(test)]
mod tests {
    use super::SeededRandom;
    use crate::random::{HashState, KeyedHashState, QualityHashState, bytes, fill};
    use std::hash::BuildHasher as _;

    /// Bytes and hashes, in the order in which they are drawn.
    fn drawn() -> ([u8; 13], [u64; 3]) {
        let bytes = bytes().unwrap();
        let hashes = [
            HashState::new().hash_one("key"),
            QualityHashState::new().hash_one("key"),
            KeyedHashState::new().hash_one("key"),
        ];
        (bytes, hashes)
    }

    #[test]
    fn the_same_seed_repeats_bytes_and_hashes() {
        let with = |seed| {
            let _entered = SeededRandom::new(seed).enter();
            drawn()
        };
        assert_eq!(with(1), with(1));
        assert_ne!(with(1).0, with(2).0);
        assert_ne!(with(1).1, with(2).1);
    }

    #[test]
    fn a_thread_without_a_seed_has_the_systems_randomness() {
        let random = SeededRandom::new(1);
        let entered = random.enter();
        assert!(std::thread::spawn(|| SeededRandom::current().is_none()).join().unwrap());
        drop(entered);
        assert_ne!(drawn().0, drawn().0);
        let mut long = vec![0; 4096];
        fill(&mut long).unwrap();
        assert!(long.iter().any(|byte| *byte != 0));
    }
}
