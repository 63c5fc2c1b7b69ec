//! Judging of runs: which figures are valid, whether requirements are met, when a run is steady and when an estimate is
//! precise enough.

mod batches;
pub mod failing;
pub mod figures;
pub mod little;
pub mod reconcile;
pub mod steady;
pub mod threshold;
pub mod tight;
pub mod validity;

pub use figures::{Figure, FigureVerdict, Soundness};
pub use threshold::Threshold;
pub use validity::{Evidence, Invalid, InvalidReason};
