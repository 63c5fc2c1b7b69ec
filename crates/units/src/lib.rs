//! Durations, sizes and figures as text.
//!
//! | file | responsibility |
//! |---|---|
//! | [`quantity`] | durations and sizes that people write, parsed; and printed so that they parse as the same |
//! | [`show`] | quantities for people: three digits, and the unit that keeps them short |
//!
//! Absent by design: the clock, and bounds: each caller has its own.

pub mod quantity;
pub mod show;
