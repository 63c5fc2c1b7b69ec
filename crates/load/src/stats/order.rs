//! In what order two subjects take turns.
//!
//! A machine gets warmer, and its neighbours come and go: whoever runs last has another machine than who ran first. So
//! runs alternate, and those that lie together are one block, compared within itself. The block is also what is drawn
//! anew in the bootstrap, as requests and even neighbouring runs are not independent.

use crate::random::Random;

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that is compared with.
    A,
    /// The one that is compared.
    B,
}

/// An order of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Blocks of four, A B B A: what drifts evenly hits both alike.
    Abba,
    /// Blocks of two, A B or B A by chance from this seed: no rhythm of the machine can keep step.
    Random(u64),
}

/// The runs of one block, by their indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Runs of A.
    pub a: Vec<usize>,
    /// Runs of B, as many.
    pub b: Vec<usize>,
}

impl Order {
    /// Who runs when, for so many blocks.
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

    /// Which runs make a block, of those that were made; an incomplete block at the end is left out.
    pub fn blocks(self, sides: &[Side]) -> Vec<Block> {
        let length = self.block_runs();
        let of = |block: usize, side: Side| {
            (block * length..(block + 1) * length).filter(|&run| sides[run] == side).collect::<Vec<_>>()
        };
        (0..sides.len() / length)
            .map(|block| Block { a: of(block, Side::A), b: of(block, Side::B) })
            .filter(|block| block.a.len() == block.b.len())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Order, Side};

    #[test]
    fn both_sides_run_as_often_in_every_block() {
        let sides = Order::Abba.sides(2);
        assert_eq!(
            Order::Abba.blocks(&sides),
            [Block { a: vec![0, 3], b: vec![1, 2] }, Block { a: vec![4, 7], b: vec![5, 6] }]
        );
        assert_eq!(Order::Abba.blocks(&sides[..7]).len(), 1);
        let order = Order::Random(5);
        let sides = order.sides(100);
        assert_eq!(sides, order.sides(100));
        let blocks = order.blocks(&sides);
        assert_eq!(blocks.len(), 100);
        let a_first = sides.iter().step_by(2).filter(|side| **side == Side::A).count();
        assert!((30..70).contains(&a_first), "{a_first}");
    }
}
