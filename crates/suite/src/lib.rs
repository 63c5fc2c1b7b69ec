//! Suites: an experiment as a file that anybody can read, change and run.
//!
//! - [`model`] is a suite's file as values;
//! - [`document`] is what came of it, [`measure`] the figures by name;
//!
//! Absent on purpose: how load is made. Every measurement is a `flatout bench` of its own, whose result is a file.

pub mod document;
pub mod measure;
pub mod model;
pub mod report;

pub use document::SuiteReport;
pub use model::Suite;
