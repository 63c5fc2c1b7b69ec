//! Order of runs of two subjects.
//!
//! A machine's temperature and load change over time, so the last run meets other conditions than the first. Therefore
//! runs alternate, and adjacent runs form a block, compared within itself. The block is also the unit of the
//! bootstrap, as requests and even adjacent runs are not independent.

use crate::random::Random;

/// The subject of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The baseline.
    A,
    /// The candidate.
    B,
}

/// Order of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOrder {
    /// Blocks of four, A B B A: a linear drift affects both equally.
    Abba,
    /// Blocks of two, A B or B A at random from this seed: robust against periodic effects.
    Random(u64),
}

/// The runs of one block, by their indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBlock {
    /// Runs of A.
    pub a: Vec<usize>,
    /// Runs of B, the same number.
    pub b: Vec<usize>,
}

impl RunOrder {
    /// Subject of each run, for this many blocks.
    pub fn sides(self, blocks: usize) -> Vec<Side> {
        match self {
            Self::Abba => [Side::A, Side::B, Side::B, Side::A].repeat(blocks),
            Self::Random(seed) => {
                let mut random = Random::new(seed);
                let pair = |a_first: bool| if a_first { [Side::A, Side::B] } else { [Side::B, Side::A] };
                (0..blocks).flat_map(|_| pair(random.below(2) == 0)).collect()
            }
        }
    }

    /// Runs in a block.
    pub const fn block_runs(self) -> usize {
        match self {
            Self::Abba => 4,
            Self::Random(_) => 2,
        }
    }

    /// Groups completed runs into blocks; drops an incomplete block at the end.
    pub fn blocks(self, sides: &[Side]) -> Vec<RunBlock> {
        let length = self.block_runs();
        let of = |block: usize, side: Side| {
            (block * length..(block + 1) * length).filter(|&run| sides[run] == side).collect::<Vec<_>>()
        };
        (0..sides.len() / length)
            .map(|block| RunBlock { a: of(block, Side::A), b: of(block, Side::B) })
            .filter(|block| block.a.len() == block.b.len())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{RunBlock, RunOrder, Side};

    #[test]
    fn both_sides_run_as_often_in_every_block() {
        let sides = RunOrder::Abba.sides(2);
        assert_eq!(
            RunOrder::Abba.blocks(&sides),
            [RunBlock { a: vec![0, 3], b: vec![1, 2] }, RunBlock { a: vec![4, 7], b: vec![5, 6] }]
        );
        assert_eq!(RunOrder::Abba.blocks(&sides[..7]).len(), 1);
        let order = RunOrder::Random(5);
        let sides = order.sides(100);
        assert_eq!(sides, order.sides(100));
        let blocks = order.blocks(&sides);
        assert_eq!(blocks.len(), 100);
        let a_first = sides.iter().step_by(2).filter(|side| **side == Side::A).count();
        assert!((30..70).contains(&a_first), "{a_first}");
    }
}
