//! Deterministic pseudorandom numbers. The same seed gives the same numbers on every machine and in every version.
//!
//! All random choices of the lab come from this module, and the seed is printed, so that a run can be repeated request
//! by request. The generator is SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
//! 2014), which has eight bytes of state and offers a separate stream for any number. It is not suitable for secrets.

/// A stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

/// Fractional part of the golden ratio in 64 bits, the increment of SplitMix64.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Creates the stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Creates the stream for number `index` (of a visit, a request or a thread) and a purpose. It is independent of
    /// the streams for all other indices and purposes.
    pub const fn stream(seed: u64, purpose: u64, index: u64) -> Self {
        let seed = mix(seed.wrapping_add(GAMMA));
        let purpose = mix((seed ^ purpose).wrapping_add(GAMMA));
        Self { state: mix((purpose ^ index).wrapping_add(GAMMA)) }
    }

    /// Returns the next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// Returns a number in [0, 1) from 53 random bits.
    pub const fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a uniformly distributed number below `bound`, or 0 if `bound` is 0 (Lemire, 2019).
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            // Reject the 2⁶⁴ mod `bound` lowest products, which would favour some results.
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns an exponentially distributed number with mean 1.
    pub fn next_exp(&mut self) -> f64 {
        // 1 - u is above 0, so the logarithm is finite.
        -(1.0 - self.next_f64()).ln()
    }

    /// Returns a normally distributed number with mean 0 and variance 1 (Box and Muller, 1958).
    #[cfg(test)]
    pub fn next_normal(&mut self) -> f64 {
        (2.0 * self.next_exp()).sqrt() * (std::f64::consts::TAU * self.next_f64()).cos()
    }
}

/// Output function of SplitMix64.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_numbers_are_the_published_ones() {
        // The first three numbers of SplitMix64 with seed 1234567, from its authors' test vectors.
        let mut random = Random::new(1_234_567);
        let numbers: Vec<_> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn the_same_seed_gives_the_same_and_each_stream_its_own() {
        let first = |mut random: Random| (0..20).map(|_| random.next_u64()).collect::<Vec<_>>();
        assert_eq!(first(Random::new(7)), first(Random::new(7)));
        assert_ne!(first(Random::new(7)), first(Random::new(8)));
        assert_eq!(first(Random::stream(7, 1, 2)), first(Random::stream(7, 1, 2)));
        for other in
            [Random::stream(7, 1, 3), Random::stream(7, 2, 2), Random::stream(8, 1, 2), Random::stream(7, 2, 1)]
        {
            assert_ne!(first(Random::stream(7, 1, 2)), first(other));
        }
    }

    #[test]
    fn means_and_bounds_are_right() {
        let mut random = Random::new(1);
        let count = 100_000;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..count).map(|_| draw()).sum::<f64>() / f64::from(count);
        assert!((mean(&mut || random.next_f64()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || random.next_exp()) - 1.0).abs() < 0.02);
        assert!(mean(&mut || random.next_normal()).abs() < 0.02);
        assert!((mean(&mut || random.next_normal().powi(2)) - 1.0).abs() < 0.02);
        // The first numbers of adjacent streams are as random as successive numbers of one stream.
        let mut index = 0;
        let mut first = || {
            index += 1;
            Random::stream(1, 0, index).next_f64()
        };
        assert!((mean(&mut first) - 0.5).abs() < 0.005);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
        let mut seen = [0; 7];
        for _ in 0..70_000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (9_500..10_500).contains(&count)), "{seen:?}");
    }
}
