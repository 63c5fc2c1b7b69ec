//! Numbers that look random and are the same for the same seed.
//!
//! Everything in the lab that is left to chance takes its numbers from here, and its seed is printed: a run can be made
//! again request by request. The generator is xoshiro256++ (Blackman and Vigna, 2021), its state filled by splitmix64
//! (Steele, Lea and Flood, 2014). It is no good for secrets.

/// A generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        let mut filler = seed;
        Self { state: std::array::from_fn(|_| splitmix(&mut filler)) }
    }

    /// A generator for one of many parts of a run, such as a thread: independent of those of other parts, and the same
    /// for the same seed and part.
    pub fn of_part(seed: u64, part: u64) -> Self {
        let mut filler = part;
        let part = splitmix(&mut filler);
        Self::new(seed ^ part)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number from 0 to 1, 1 excluded, in steps of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A whole number below `bound`, each as likely as any other; 0 when `bound` is 0. (Lemire, 2019.)
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            // Of 2⁶⁴ numbers, so many are left over that the smallest results would come more often than the rest.
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number of the exponential distribution with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// A number of the normal distribution with mean 0 and variance 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Brings `items` into an order of which all are as likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Random, splitmix};

    #[test]
    fn the_fillers_numbers_are_the_published_ones() {
        // The first three of splitmix64 with seed 1234567, as in its authors' test vectors.
        let mut state = 1_234_567;
        let numbers: Vec<_> = (0..3).map(|_| splitmix(&mut state)).collect();
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn the_generators_numbers_are_the_published_ones() {
        // xoshiro256++ with state 1, 2, 3, 4, as in the vectors of the reference implementation.
        let mut random = Random { state: [1, 2, 3, 4] };
        let numbers: Vec<_> = (0..4).map(|_| random.bits()).collect();
        assert_eq!(numbers, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn the_same_seed_gives_the_same_and_each_part_its_own() {
        let first = |mut random: Random| (0..20).map(|_| random.bits()).collect::<Vec<_>>();
        assert_eq!(first(Random::new(7)), first(Random::new(7)));
        assert_ne!(first(Random::new(7)), first(Random::new(8)));
        assert_eq!(first(Random::of_part(7, 1)), first(Random::of_part(7, 1)));
        assert_ne!(first(Random::of_part(7, 1)), first(Random::of_part(7, 2)));
        assert_ne!(first(Random::of_part(7, 1)), first(Random::of_part(8, 1)));
    }

    #[test]
    fn means_and_bounds_are_right() {
        let mut random = Random::new(1);
        let count = 100_000;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..count).map(|_| draw()).sum::<f64>() / f64::from(count);
        assert!((mean(&mut || random.unit()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || random.exponential()) - 1.0).abs() < 0.02);
        assert!(mean(&mut || random.normal()).abs() < 0.02);
        assert!((mean(&mut || random.normal().powi(2)) - 1.0).abs() < 0.02);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
        let mut seen = [0; 7];
        for _ in 0..70_000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (9_500..10_500).contains(&count)), "{seen:?}");
        let mut items: Vec<_> = (0..50).collect();
        random.shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
