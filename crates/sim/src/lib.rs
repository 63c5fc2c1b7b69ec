//! A server and a clock that exist in numbers only.
//!
//! The lab's own parts are driven against a server of which all is known, by a clock that stands still while they work: an
//! hour of load takes a second, every run is the same, and what must come out can be computed. So the lab is tested for
//! what it claims, [`truth`] beside what was recorded, without a socket and without a machine's noise.
//!
//! - [`model`] says when a server answers: at once, by two speeds, with stalls, or with few hands;
//! - [`mod@drive`] runs a plan's [`flatout_load::schedule::Schedule`] against it and fills a
//!   [`flatout_load::record::Recorder`];
//! - [`truth`] has the response times' distributions in formulas.
//!
//! A dependency of tests only.

pub mod drive;
pub mod model;
pub mod truth;

pub use drive::{Driven, drive, drive_observed};
pub use model::{Model, Server};
pub use truth::{DistributionPart, Mix};
