//! A simulated server and clock.
//!
//! The lab's scheduler and recorder run against a server whose response times are known, with a clock that stands still
//! while they work: an hour of load takes a second, every run is the same, and the correct result is computable. Tests
//! compare the record with [`truth`], without sockets or noise of a machine.
//!
//! - [`model`]: response times that are constant, of two lengths, with stalls, or of a few workers;
//! - [`mod@drive`]: runs a plan's [`flatout_load::schedule::Schedule`] and fills a [`flatout_load::record::Recorder`];
//! - [`truth`]: the distributions of the response times as formulas.
//!
//! Only tests depend on this crate.

pub mod drive;
pub mod model;
pub mod truth;

pub use drive::{Driven, drive, drive_observed};
pub use model::{Model, Server};
pub use truth::{DistributionPart, Mix};
