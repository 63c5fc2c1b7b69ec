//! Distributed runs: several machines generate one load, and one controller merges their results.
//!
//! An agent connects to its controller over mutual TLS, exchanges clock readings until the offset is known precisely
//! enough, receives its share of the work and a start time, and sends its recorded results at the end. The controller
//! merges histograms, not percentiles, and reports late starts. If an agent is lost, the run is invalid, because the
//! load was smaller than planned.
//!
//! - [`frame`] and [`message`]: the wire format, as bytes and as messages;
//! - [`clock`]: clock offsets of other machines;
//! - [`coordinator`]: the controller's decisions, without sockets;
//! - [`trust`]: authentication of controller and agents;
//! - [`controller`] and [`member`]: the two sides of the connection, with their sockets;
//! - [`merge`]: merging the results of all agents into one report.

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
