//! Random bytes, and the keys of hash tables.
//!
//! With the feature `settable-clock`, which only tests and simulations enable, a `SeededRandom` replaces the system's
//! randomness on the threads that have entered it, so that a run can be repeated. Without the feature, all randomness
//! is the system's.
//!
//! Which hasher a table of the server uses depends on who chooses its keys:
//!
//! | keys | hasher |
//! |---|---|
//! | from the configuration, from existing files, or limited in number, by eviction or otherwise | [`HashState`]: collisions cannot be planned without its random key, and cost little |
//! | chosen by clients or in purge requests, without a limit on their number | [`KeyedHashState`] (SipHash): slower, but collisions cannot be planned |
//! | any, if the hashes are stored or shared, such as fingerprints and cache keys | [`QualityHashState`] computes them |
//! | such hashes themselves | [`Prehashed`]: they are not hashed again |
//!
//! Tables that are used only at startup, during reloads or by the lab have the standard library's default, which is
//! [`KeyedHashState`].

#[cfg(any(test, feature = "settable-clock"))]
pub use crate::seeded_random::{HashState, KeyedHashState, QualityHashState, SeededRandom};

/// Fast hashing, for tables whose keys clients cannot choose freely.
#[cfg(not(any(test, feature = "settable-clock")))]
pub use foldhash::fast::RandomState as HashState;

/// Hashing for fingerprints: each bit of the hash depends on every bit of the input.
#[cfg(not(any(test, feature = "settable-clock")))]
pub use foldhash::quality::RandomState as QualityHashState;

/// Keyed hashing, for tables in which an attacker must not be able to cause collisions.
#[cfg(not(any(test, feature = "settable-clock")))]
pub use std::hash::RandomState as KeyedHashState;

/// A hasher for tables whose keys are hashes already.
pub type Prehashed = BuildHasherDefault<IdentityHasher>;

#[cfg(any(test, feature = "settable-clock"))]
use crate::seeded_random as seeded;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;

/// Stands in for `SeededRandom` when the feature is disabled: the system's randomness is never replaced.
#[cfg(not(any(test, feature = "settable-clock")))]
mod seeded {
    pub(super) const fn fill(_: &mut [u8]) -> bool {
        false
    }
}

/// A hasher whose keys are 64-bit hashes, which it returns unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Fills `bytes` with cryptographically secure random bytes. This is a system call.
///
/// # Errors
/// If the system cannot provide random bytes.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut rest = bytes;
    if seeded::fill(rest) {
        return Ok(());
    }
    while !rest.is_empty() {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(count) => rest = &mut rest[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// An array of cryptographically secure random bytes.
///
/// # Errors
/// If the system cannot provide random bytes.
pub fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    fill(&mut bytes)?;
    Ok(bytes)
}
