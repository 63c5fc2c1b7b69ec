//! Load plans, recording and statistics.
//!
//! What a run should do ([`plan`]), what came of it ([`recorder`]), why a request failed ([`failure`]) and what all of it
//! says ([`summary`]).
//!
//! Absent on purpose: sockets, threads, files and the clock. Time is an argument, in nanoseconds of one monotonic clock,
//! so every rule here can be tested without waiting.

pub mod failure;
pub mod plan;
pub mod random;
pub mod recorder;
pub mod summary;
pub mod workload;

pub use failure::FailureKind;
pub use plan::{ConnectionUse, Next, Plan, PlanError, Retry, Share, Stop, ThreadPlan};
pub use recorder::{Exchange, Recorder};
pub use summary::{LatencySummary, Note, RunFacts, Summary, Verdict};
