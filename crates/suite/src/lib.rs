//! Suites: experiments as files that anyone can read, change and run.
//!
//! - [`model`] is a suite's file as values, and [`mod@read`] parses the text, reporting all mistakes at once;
//! - [`client`] are other programs that make the requests of a step: wrk, h2load, ab, oha;
//! - [`arguments`] are the command lines of its measurements, for checks before anything runs;
//! - [`fixture`], [`server`] and [`testbed`] are the objects of measurement: files, child processes, networks;
//! - [`mod@run`] runs it: servers take turns, completed measurements are retained, and everything that was started is
//!   stopped, by its [`keeper`] if it cannot do so itself;
//! - [`measure`] contains the figures by name, [`mod@judge`] compares them with the suite's checks;
//! - [`document`] is the result, [`bundle`] the folder with all of it, [`mod@report`] the report.
//!
//! Absent by design: load generation. Every measurement is a separate `flatout bench` or another client, whose result
//! is a file; so a measurement that fails affects no other, and a completed one is never repeated.

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
