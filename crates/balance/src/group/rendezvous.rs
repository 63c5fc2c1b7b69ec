//! Weighted rendezvous hashing: assignment of keys to origins.
//!
//! Every origin scores each key, and the highest score wins (Thaler and Ravishankar, 1998; weights by the logarithmic
//! method of Schindelhauer and Schomaker, 2005). If an origin is removed, only its keys move, each to the next in its
//! own order, so the load spreads over all others by weight. If one is added or gains weight, keys move only to it. A
//! ring needs thousands of points per origin for similar accuracy, and bounded loads (Mirrokni et al., 2018) move
//! keys, which defeats hashing by client or cookie. The concurrency limit of each origin bounds its load instead.
//!
//! The score costs one logarithm per origin: negligible beside a request.

/// FNV-1a parameters for 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Hash of a balancing key, the same in every process and build, so that several instances agree. It is not keyed: a
/// client that chooses URLs can direct them at one origin.
pub fn hash_key(bytes: &[u8]) -> u64 {
    let mut hash = Hash::new();
    hash.add(bytes.iter().copied());
    hash.finish()
}

/// Incremental [`hash_key`]: FNV-1a (Fowler, Noll and Vo), with a finaliser.
pub(super) struct Hash(u64);

impl Hash {
    pub(super) const fn new() -> Self {
        Self(FNV_OFFSET)
    }

    pub(super) fn add(&mut self, bytes: impl Iterator<Item = u8>) {
        self.0 = bytes.fold(self.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
    }

    pub(super) const fn finish(self) -> u64 {
        mix(self.0)
    }
}

/// Finaliser of splitmix64 (Steele, Lea and Flood, 2014): each input bit flips half of the output bits.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Score of the origin with this identity for the key: positive and finite.
pub(super) fn score(key_hash: u64, identity: u64, weight: u64) -> f64 {
    let bits = mix(key_hash ^ identity.rotate_left(32).wrapping_add(0x9e37_79b9_7f4a_7c15));
    // Strictly between 0 and 1, so the logarithm is finite and negative.
    let unit = ((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    weight as f64 / -unit.ln()
}
