//! Deterministic simulation of the server and the accelerator.
//!
//! A worker of `flatout_server` with the engine, the accelerator, its store and its client of origins runs unchanged,
//! from a KDL configuration. Visitors, the origin, clocks and timers are simulated, on the worker's own thread. Nothing
//! waits for real time: when nothing is left to do, the clock advances to the next event.
//!
//! | file | contents |
//! |---|---|
//! | [`scenario`] | what happens, drawn from a seed |
//! | [`world`] | the run: events, connections, invariants |
//! | [`origin`] | the origin, and a record of its responses |
//! | [`reader`] | a visitor's reader of responses |
//! | [`oracle`] | which responses may reach whom |
//! | [`minimise`] | the smallest scenario that fails |
//!
//! Connections are pairs of Unix sockets, so the kernel takes part: partial writes and resets are its own.
//!
//! Absent by design: the code of `flatout_cache`, which the oracle judges.

pub mod minimise;
pub mod oracle;
pub mod origin;
pub mod random;
pub mod reader;
pub mod scenario;
pub mod world;

pub use scenario::Scenario;
pub use world::{Figures, Violation, run};
