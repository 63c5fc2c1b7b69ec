//! Whether a run can be believed, whether it met what was required, and when it is warm or tight enough.

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
