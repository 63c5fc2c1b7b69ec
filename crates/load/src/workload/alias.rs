//! Weighted choice in constant time: the alias method (Walker, 1977), with the table construction of Vose (1991).

use crate::random::Random;

/// A table for weighted choice of an index.
#[derive(Clone, Debug)]
pub struct Alias {
    /// One slot per item: the probability, 0 to 1, that the slot selects the item itself, and the item that it selects
    /// otherwise.
    slots: Vec<(f64, u32)>,
}

impl Alias {
    /// Creates a table for these weights. Non-finite and negative weights count as 0. Returns `None` if all weights are
    /// 0, or if there are more than 2³² weights.
    pub fn new(weights: impl Iterator<Item = f64>) -> Option<Self> {
        let weights: Vec<f64> =
            weights.map(|weight| if weight.is_finite() && weight > 0.0 { weight } else { 0.0 }).collect();
        let total: f64 = weights.iter().sum();
        if total <= 0.0 || !total.is_finite() || u32::try_from(weights.len()).is_err() {
            return None;
        }
        let count = weights.len() as f64;
        let mut slots: Vec<(f64, u32)> =
            (0..).zip(&weights).map(|(own, weight)| (weight / total * count, own)).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..).take(slots.len()).partition(|&at: &u32| slots[at as usize].0 < 1.0);
        while let (Some(&less), Some(&more)) = (small.last(), large.last()) {
            small.pop();
            slots[less as usize].1 = more;
            let rest = slots[more as usize].0 - (1.0 - slots[less as usize].0);
            slots[more as usize].0 = rest;
            if rest < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        // The remaining items fill their slots, except for rounding errors. An item without weight never remains alone.
        for at in small.into_iter().chain(large) {
            if weights[at as usize] > 0.0 {
                slots[at as usize] = (1.0, at);
            }
        }
        Some(Self { slots })
    }

    /// Returns a random index.
    pub fn choose(&self, random: &mut Random) -> usize {
        let at = random.below(self.slots.len() as u64) as usize;
        let (own, other) = self.slots[at];
        if random.next_f64() < own { at } else { other as usize }
    }

    /// Returns the probability of each index.
    #[cfg(test)]
    fn chances(&self) -> Vec<f64> {
        let mut chances = vec![0.0; self.slots.len()];
        for (at, &(own, other)) in self.slots.iter().enumerate() {
            chances[at] += own / self.slots.len() as f64;
            chances[other as usize] += (1.0 - own) / self.slots.len() as f64;
        }
        chances
    }
}

#[cfg(test)]
mod tests {
    use super::Alias;
    use crate::random::Random;

    #[test]
    fn every_item_has_its_chance() {
        let mut random = Random::new(3);
        let mut cases: Vec<Vec<f64>> = vec![
            vec![1.0],
            vec![350.0, 500.0, 140.0, 9.0, 1.0],
            vec![0.0, 1.0, 0.0, 1e12, f64::NAN, -5.0, f64::INFINITY],
            vec![1e-300, 1.0],
        ];
        cases.push((0..1000).map(|_| random.next_f64()).collect());
        for weights in cases {
            let alias = Alias::new(weights.iter().copied()).unwrap();
            let sound: Vec<_> = weights.iter().map(|w| if w.is_finite() && *w > 0.0 { *w } else { 0.0 }).collect();
            let total: f64 = sound.iter().sum();
            for (chance, weight) in alias.chances().into_iter().zip(&sound) {
                assert!((chance - weight / total).abs() < 1e-12, "{chance} for {weight} of {total}");
            }
        }
        for none in [&[][..], &[0.0, 0.0], &[f64::NAN]] {
            assert!(Alias::new(none.iter().copied()).is_none());
        }
    }

    #[test]
    fn what_has_no_weight_is_never_chosen() {
        let alias = Alias::new([0.0, 3.0, 0.0, 7.0].into_iter()).unwrap();
        let mut random = Random::new(1);
        let mut counts = [0_u32; 4];
        for _ in 0..100_000 {
            counts[alias.choose(&mut random)] += 1;
        }
        assert_eq!((counts[0], counts[2]), (0, 0));
        assert!(counts[1].abs_diff(30_000) < 600, "{counts:?}");
    }
}
