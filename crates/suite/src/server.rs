//! Servers as child processes: found, started on their cores, seen to be ready, and stopped with all that they started.

pub mod group;
pub mod instance;
pub mod program;
pub mod ready;
pub mod version;

pub use instance::{Instance, Stopped};
pub use program::{Found, find};
