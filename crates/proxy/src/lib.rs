//! An accelerator: origins and their pools, forwarding, coalescing, the store.
//!
//! | file | what it knows |
//! |---|---|
//! | [`group`] | which origin is asked: weights, balance, what is known of each one's health |
//! | [`limit`] | how many requests an origin gets at once, and who waits |
//! | [`forward`] | the fields of a request on its way to an origin and of an answer on its way back; upgrades; retries |
//! | [`health`] | what an active check asks, and how its answer is judged |
//! | [`esi`] | pages made of parts (ESI 1.0) |
//! | [`hints`] | the Link fields of an answer that may go ahead of the next one |
//! | [`outcome`] | why a request was, or was not, given to an origin |
//!
//! Absent by design: sockets (`flatout_net` has them) and what may be stored (`flatout_cache` decides).

pub mod esi;
pub mod forward;
pub mod group;
pub mod health;
pub mod hints;
pub mod limit;
pub mod outcome;
