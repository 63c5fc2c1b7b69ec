//! Seeded random numbers, see [`crate::random`].

pub use crate::random::Random;
