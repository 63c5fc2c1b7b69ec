//! Order of the runs of two subjects.
//!
//! A machine's temperature and load change over time, so the last run takes place under different conditions from the
//! first. Therefore runs alternate, and adjacent runs form a block; subjects are compared within each block. The block
//! is also the unit of the bootstrap, because requests and even adjacent runs are not independent.

use crate::random::Random;

/// The subject of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The baseline.
    A,
    /// The candidate.
    B,
}

/// The order in which the runs of two subjects alternate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOrder {
    /// Blocks of four, A B B A. A linear drift affects both subjects equally.
    Abba,
    /// Blocks of two, A B or B A, chosen at random from this seed. Robust against periodic effects.
    Random(u64),
}

/// The runs of one block, by their indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBlock {
    /// Indices of the runs of A.
    pub a: Vec<usize>,
    /// Indices of the runs of B, of which there are as many as of A.
    pub b: Vec<usize>,
}

impl RunOrder {
    /// Returns the subject of each run, for this many blocks.
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

    /// Returns the number of runs in a block.
    pub const fn block_runs(self) -> usize {
        match self {
            Self::Abba => 4,
            Self::Random(_) => 2,
        }
    }

    /// Groups completed runs into blocks. Drops an incomplete block at the end.
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
