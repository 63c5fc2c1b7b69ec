//! An accelerator: origins and their pools, forwarding, coalescing, the store.
//!
//! | file | what it knows |
//! |---|---|
//! | [`accelerator`] | what the whole process shares |
//! | [`step`], [`rules`] | one `proxy` step and one `cache` step of the configuration |
//! | [`worker`] | what one worker answers with |
//! | `query`, `lookup`, `front` | a request that is looked up; answering from what is kept; what one worker has ready |
//! | `exchange`, `pass`, `fetch` | asking the origins: once, for one client, for all |
//! | `answer`, `note` | answers made of what is kept or comes |
//! | `compose` | pages put together from parts that are looked up like any answer |
//! | `check` | looking after the origins' health |
//! | [`meta`] | what is kept beside an answer's content |
//! | [`group`] | which origin is asked: weights, balance, what is known of each one's health |
//! | [`limit`] | how many requests an origin gets at once, and who waits |
//! | [`forward`] | the fields of a request on its way to an origin and of an answer on its way back; upgrades; retries |
//! | [`health`] | what an active check asks, and how its answer is judged |
//! | [`fill`], [`growing`] | one fetch for many clients, and content that is still coming |
//! | [`store`] | what is kept of answers: memory and disks |
//! | [`esi`] | pages made of parts (ESI 1.0) |
//! | [`hints`] | the Link fields of a response that may be sent ahead of it in a 103 |
//! | [`outcome`] | why each answer was what it was |
//! | [`explain`], [`told`] | what is kept for a request and why or why not; what was not kept, and origins in and out |
//!
//! Absent by design: sockets (`flatout_net` has them) and what may be stored (`flatout_cache` decides).

pub mod accelerator;
mod answer;
mod check;
mod checked;
mod compose;
mod direct;
pub mod esi;
mod exchange;
pub mod explain;
mod fetch;
pub mod fill;
pub mod forward;
mod found;
mod front;
pub mod group;
pub mod growing;
pub mod health;
pub mod hints;
pub mod limit;
mod lookup;
pub mod meta;
mod note;
pub mod outcome;
mod parts;
mod pass;
mod query;
mod ranges;
pub mod rules;
pub mod step;
pub mod store;
pub mod told;
pub mod worker;

pub use accelerator::Accelerator;
pub use explain::CacheExplanation;
pub use meta::{Kept, Meta};
pub use rules::CacheStep;
pub use step::ProxyStep;
pub use worker::{Asking, Changes, Handled, Making, ProxyWorker, Refused};
