//! Judgement of runs: validity of figures, requirements, and detection of steady state and tight estimates.

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
