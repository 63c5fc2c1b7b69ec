//! Load plans, recording and statistics.
//!
//! What a run should do ([`plan`]), one thread's share of it at work ([`schedule`]), what came of it ([`record`]), whether
//! it can be believed ([`judge`]), why a request failed ([`failure`]) and the document all views read ([`report`]). What is
//! asked for ([`workload`]), and what several runs say together ([`stats`]).
//!
//! Absent on purpose: sockets, threads, files and the clock. Time is an argument, in nanoseconds of one monotonic clock,
//! so every rule here can be tested without waiting.

pub mod failure;
pub mod judge;
pub mod plan;
pub mod random;
pub mod record;
pub mod report;
pub mod schedule;
pub mod stats;
pub mod workload;

pub use failure::FailureKind;
