//! Weighted rendezvous hashing: who answers for a key.
//!
//! Every origin scores each key, and the highest score wins (Thaler and Ravishankar, 1998; weights by the logarithmic
//! method of Schindelhauer and Schomaker, 2005). When an origin goes, its keys alone move, each to the next in its own
//! order, so the load spreads over all the others by weight; when one comes or gains weight, keys move to it alone. A
//! ring of points needs thousands of them per origin to come as close to the weights, and loads that are bounded by
//! moving keys (Mirrokni et al., 2018) would break what hashing by client or cookie is for. How much one origin gets
//! at once is bounded by its limit instead.
//!
//! The score costs a logarithm for each origin: nothing beside a request to any of them.

/// FNV-1a's parameters for 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The hash of bytes that decide, the same in every process and every build, so that several accelerators agree. It is
/// not keyed: whoever picks URLs can aim them at one origin.
pub fn hash_key(bytes: &[u8]) -> u64 {
    let mut hash = Hash::new();
    hash.add(bytes.iter().copied());
    hash.finish()
}

/// [`hash_key`] part by part: FNV-1a (Fowler, Noll and Vo), mixed.
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

/// The finaliser of splitmix64 (Steele, Lea and Flood, 2014): every bit of the input changes half of the output's.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// How well the origin of this identity suits the key: positive, and finite.
pub(super) fn score(key_hash: u64, identity: u64, weight: u64) -> f64 {
    let bits = mix(key_hash ^ identity.rotate_left(32).wrapping_add(0x9e37_79b9_7f4a_7c15));
    // Strictly between 0 and 1, so the logarithm is finite and negative.
    let unit = ((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    weight as f64 / -unit.ln()
}
