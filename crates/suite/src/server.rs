//! Servers as child processes. They are looked up, started on their cores, checked for readiness, and stopped with all
//! their descendants.

pub mod group;
pub mod instance;
pub mod program;
pub mod ready;
pub mod version;

pub use instance::{Instance, Stopped};
pub use program::{LocatedProgram, find};
