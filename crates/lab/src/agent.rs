//! Agents: several machines that make one load, and one controller that adds up what they saw.
//!
//! An agent dials its controller over mutual TLS, is asked the time until the difference of the clocks is known well
//! enough, is given its share of the work and a moment to begin, and sends its record at the end. The controller merges
//! histograms, not percentiles, and says who began how late. An agent that is lost makes the run invalid: a smaller load
//! quietly passed off as the whole one would be a lie.
//!
//! - [`frame`] and [`message`]: what travels, as bytes and as words;
//! - [`clock`]: what time it is elsewhere;
//! - [`muster`]: the controller's decisions, without a socket;
//! - [`trust`]: who may take part;
//! - [`controller`] and [`member`]: the two sides with their sockets;
//! - [`merge`]: one result out of many.

pub mod clock;
pub mod controller;
pub mod frame;
pub mod link;
pub mod member;
pub mod merge;
pub mod message;
pub mod muster;
pub mod trust;

#[cfg(test)]
mod tests;
