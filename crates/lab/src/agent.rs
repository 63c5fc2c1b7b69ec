//! Distributed runs: several machines generate one load, and one controller merges their results.
//!
//! An agent connects to its controller over mutual TLS, exchanges clock readings until the offset is known well
//! enough, receives its share of the work and a start time, and sends its record at the end. The controller merges
//! histograms, not percentiles, and reports late starts. A lost agent makes the run invalid, as a smaller load must
//! not be reported as the whole one.
//!
//! - [`frame`] and [`message`]: the wire format, as bytes and as messages;
//! - [`clock`]: clock offsets of other machines;
//! - [`coordinator`]: the controller's decisions, without sockets;
//! - [`trust`]: authentication of participants;
//! - [`controller`] and [`member`]: the two sides with their sockets;
//! - [`merge`]: one result from many.

pub mod clock;
pub mod controller;
pub mod coordinator;
pub mod frame;
pub mod link;
pub mod member;
pub mod merge;
pub mod message;
pub mod trust;

#[cfg(test)]
mod tests;
