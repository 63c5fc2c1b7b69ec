//! Reverse proxy and accelerator: origins, load balancing, forwarding, request coalescing and the cache store.
//!
//! | file | contents |
//! |---|---|
//! | [`accelerator`] | state of the process |
//! | [`step`], [`rules`] | one `proxy` step and one `cache` step of the configuration |
//! | [`worker`], `worker_cache` | state of one worker; its prebuilt responses |
//! | `pipeline` | the steps of a request, from its receipt to its response |
//! | `query`, `note` | a cacheable request; Age and Cache-Status of its response |
//! | `exchange` | one upstream request: selection of the origin, waiting, retries |
//! | `compose` | composition of ESI pages |
//! | `check` | driver of health checks |
//! | [`meta`] | metadata of stored responses |
//! | [`forward`] | fields of requests and responses in transit; upgrades; retries |
//! | [`fill`], [`growing`] | shared fetches and their arriving content |
//! | [`esi`] | ESI 1.0 |
//! | [`hints`] | links for a 103 |
//! | [`outcome`] | reasons for responses |
//! | [`explain`], [`events`] | explanation of lookups; responses not stored, and origin availability |
//!
//! Absent by design: sockets (see `flatout_upstream`), balancing (see `flatout_balance`), the store (see `flatout_store`), and caching rules
//! (see `flatout_cache`).

pub mod accelerator;
mod check;
mod checked;
mod compose;
pub mod esi;
pub mod events;
mod exchange;
pub mod explain;
pub mod fill;
pub mod forward;
pub mod growing;
pub mod hints;
pub mod meta;
mod note;
pub mod outcome;
mod parts;
mod pipeline;
mod query;
mod ranges;
pub mod rules;
pub mod step;
pub mod worker;
mod worker_cache;

pub use accelerator::Accelerator;
pub use explain::CacheExplanation;
pub use meta::{Meta, StoredResponse};
pub use rules::CacheStep;
pub use step::ProxyStep;
pub use worker::ProxyWorker;
