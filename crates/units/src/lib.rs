//! Durations, sizes, figures and metrics as text.
//!
//! | file | responsibility |
//! |---|---|
//! | [`prometheus`] | metrics in the text format of Prometheus |
//! | [`quantity`] | durations and sizes: parsing what people write, and printing so that the result can be parsed again |
//! | [`show`] | quantities for people: three digits, and a unit that keeps them short |
//!
//! By design, this crate reads no clock and sets no bounds, because each caller has its own bounds.

pub mod prometheus;
pub mod quantity;
pub mod show;
