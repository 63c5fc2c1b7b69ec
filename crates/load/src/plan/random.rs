//! Seeded random numbers: the same seed gives the same numbers on every machine, for ever.
//!
//! SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): eight bytes of state,
//! and streams can be made from any number, which is how every visit has its own.

/// A stream of random numbers. Not for secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

/// The golden ratio's fraction in 64 bits, the generator's own increment.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A stream of its own for number `index` (a visit, say) of a purpose; independent of any other index or purpose.
    pub const fn stream(seed: u64, purpose: u64, index: u64) -> Self {
        Self { state: mix(mix(mix(seed) ^ purpose) ^ index) }
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// A number from 0 (included) to 1 (not included), of 53 random bits.
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `bound`, each as likely as any other to 2^-64; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire's multiplication; its bias is below bound/2^64.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An exponentially distributed number of mean 1.
    pub fn next_exp(&mut self) -> f64 {
        // 1 - u is above 0, so the logarithm is finite.
        -(1.0 - self.next_f64()).ln()
    }
}

/// The output function of SplitMix64.
const fn mix(value: u64) -> u64 {
    let value = (value.wrapping_add(GAMMA) ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
