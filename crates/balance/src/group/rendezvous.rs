//! Weighted rendezvous hashing: assignment of keys to origins.
//!
//! Every origin has a score for each key, and the origin with the highest score is selected (Thaler and Ravishankar,
//! 1998; weights by the logarithmic method of Schindelhauer and Schomaker, 2005). If an origin is removed, only its
//! keys move, each to the origin with its next highest score, so the load is distributed over all other origins by
//! weight. If an origin is added or gains weight, keys move only to that origin. A hash ring needs thousands of points
//! per origin for similar accuracy, and consistent hashing with bounded loads (Mirrokni et al., 2018) moves keys, which
//! defeats hashing by client or cookie. Instead, the load of each origin is bounded by its concurrency limit.
//!
//! A score costs one logarithm per origin, which is negligible compared with a request.

/// Parameters of 64-bit FNV-1a.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the hash of a balancing key, which is the same in every process and build, so that several instances select
/// the same origin. It has no secret seed, so a client that chooses URLs can direct them all at one origin.
pub fn hash_key(bytes: &[u8]) -> u64 {
    let mut hash = Hash::new();
    hash.add(bytes.iter().copied());
    hash.finish()
}

/// Incremental form of [`hash_key`]: FNV-1a (Fowler, Noll and Vo) with a finaliser.
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

/// Finaliser of splitmix64 (Steele, Lea and Flood, 2014): changing an input bit changes half of the output bits on
/// average.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the score of the origin with this identity for a key. Positive and finite.
pub(super) fn score(key_hash: u64, identity: u64, weight: u64) -> f64 {
    let bits = mix(key_hash ^ identity.rotate_left(32).wrapping_add(0x9e37_79b9_7f4a_7c15));
    // Strictly between 0 and 1, so the logarithm is finite and negative.
    let unit = ((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    weight as f64 / -unit.ln()
}
