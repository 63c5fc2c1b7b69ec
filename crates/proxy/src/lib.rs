//! Reverse proxy and accelerator: origins, load balancing, forwarding, request coalescing and the cache store.
//!
//! | file | contents |
//! |---|---|
//! | [`accelerator`] | state of the process |
//! | [`step`], [`rules`] | one `proxy` step and one `cache` step of the configuration |
//! | [`worker`] | entry points for one worker's requests |
//! | `query`, `lookup`, `worker_cache` | a cacheable request; lookup and response; per-worker prebuilt responses |
//! | `exchange`, `pass`, `fetch` | upstream requests: basics, for one client, for the cache |
//! | `answer`, `note` | responses from stored or arriving content |
//! | `compose` | composition of ESI pages |
//! | `check` | driver of health checks |
//! | [`meta`] | metadata of stored responses |
//! | [`group`] | load balancing and passive health |
//! | [`limit`] | concurrency limits and queues per origin |
//! | [`forward`] | fields of requests and responses in transit; upgrades; retries |
//! | [`health`] | request and evaluation of health checks |
//! | [`fill`], [`growing`] | shared fetches and their arriving content |
//! | [`store`] | stored responses: memory and disks |
//! | [`esi`] | ESI 1.0 |
//! | [`hints`] | links for a 103 |
//! | [`outcome`] | reasons for responses |
//! | [`explain`], [`events`] | explanation of lookups; responses not stored, and origin availability |
//!
//! Absent by design: sockets (see `flatout_net`) and caching rules (see `flatout_cache`).

pub mod accelerator;
mod answer;
mod check;
mod checked;
mod compose;
mod direct;
pub mod esi;
pub mod events;
mod exchange;
pub mod explain;
mod fetch;
pub mod fill;
pub mod forward;
pub mod group;
pub mod growing;
pub mod health;
pub mod hints;
pub mod limit;
mod lookup;
mod lookup_result;
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
pub mod worker;
mod worker_cache;

pub use accelerator::Accelerator;
pub use explain::CacheExplanation;
pub use meta::{Meta, StoredResponse};
pub use rules::CacheStep;
pub use step::ProxyStep;
pub use worker::ProxyWorker;
