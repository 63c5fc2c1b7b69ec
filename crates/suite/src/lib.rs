//! Suites: an experiment as a file that anybody can read, change and run.
//!
//! - [`model`] is a suite's file as values, and [`mod@read`] makes it of the text, with all mistakes at once;
//! - [`arguments`] are the command lines of its measurements, for whoever reads them before anything runs;
//! - [`fixture`], [`server`] and [`testbed`] are what is measured: files, child processes, networks;
//! - [`mod@run`] runs it: servers take turns, what is done stays done, and everything that was started is stopped,
//!   by its [`keeper`] when it cannot do so itself;
//! - [`measure`] are the figures by name, [`mod@judge`] holds them against the suite's checks;
//! - [`document`] is what came of it, [`bundle`] the folder with all of it, [`mod@report`] what people read.
//!
//! Absent on purpose: how load is made. Every measurement is a `flatout bench` of its own, whose result is a file; so a
//! measurement that fails takes no other with it, and one that is done is never made twice.

pub mod arguments;
pub mod bundle;
pub mod combine;
pub mod document;
pub mod fixture;
pub mod history;
pub mod judge;
pub mod keeper;
pub mod measure;
pub mod model;
mod pairs;
pub mod read;
pub mod report;
pub mod run;
pub mod server;
pub mod template;
pub mod testbed;
pub mod why;

pub use document::SuiteReport;
pub use model::Suite;
pub use read::read;
