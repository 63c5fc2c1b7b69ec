//! Suites: experiments as files that anyone can read, change and run.
//!
//! - [`model`] represents a suite's file, and [`mod@read`] parses it and reports all mistakes at once;
//! - [`client`] supports other load generators: wrk, h2load, ab, oha;
//! - [`arguments`] lists the command lines of the measurements, so that they can be checked before anything runs;
//! - [`fixture`], [`server`] and [`testbed`] create what is needed for a measurement: files, child processes, networks;
//! - [`mod@run`] runs a suite: servers take turns, completed measurements are stored, and everything that was started
//!   is stopped, by the [`keeper`] if the run cannot do so itself;
//! - [`measure`] defines the figures, and [`mod@judge`] compares them with the suite's checks;
//! - [`document`] is the result, [`bundle`] is its folder, and [`mod@report`] is its report.
//!
//! By design, this crate generates no load. Every measurement is a separate `flatout bench` or another client, and its
//! result is a file. So a failed measurement affects no other, and a completed measurement is never repeated.

pub mod arguments;
pub mod bundle;
pub mod client;
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
