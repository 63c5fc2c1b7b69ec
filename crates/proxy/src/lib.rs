//! Reverse proxy and accelerator: origins, load balancing, forwarding, request coalescing and the cache store.
//!
//! | file | contents |
//! |---|---|
//! | [`accelerator`] | state shared by all workers |
//! | [`step`], [`rules`] | a `proxy` step and a `cache` step of the configuration |
//! | [`realm`] | separation of stored responses by the settings that decide them |
//! | [`worker`], `worker_cache` | state of a worker; its prebuilt responses |
//! | `pipeline` | stages of handling a request, from receipt to response |
//! | `searches` | the latest No-Vary-Search of each path |
//! | `query`, `note` | a cacheable request; Age and Cache-Status of its response |
//! | `exchange` | an upstream request: selection of the origin, waiting, retries |
//! | `versions` | the HTTP versions that origins have shown |
//! | `sticky` | the cookie for session affinity |
//! | `compose` | composition of ESI pages |
//! | `check` | active health checks |
//! | [`meta`] | metadata of stored responses |
//! | [`forward`] | fields of requests and responses in transit; upgrades; retries |
//! | [`fill`], [`growing`] | shared fetches and their arriving content |
//! | [`esi`] | ESI 1.0 |
//! | [`hints`] | links for a 103 |
//! | [`outcome`] | reasons for responses |
//! | [`explain`], [`events`] | explanation of lookups; responses not stored |
//!
//! Implemented elsewhere: sockets (`flatout_upstream`), load balancing (`flatout_balance`), the store (`flatout_store`)
//! and caching rules (`flatout_cache`).

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
pub mod realm;
pub mod rules;
mod searches;
pub mod step;
mod sticky;
mod versions;
pub mod worker;
mod worker_cache;

pub use accelerator::{Accelerator, url_purges};
pub use explain::CacheExplanation;
pub use flatout_balance::group::{Change, OtherOrigins};
pub use meta::{Meta, StoredResponse};
pub use rules::CacheStep;
pub use step::{OriginStanding, ProxyStep};
pub use worker::ProxyWorker;
