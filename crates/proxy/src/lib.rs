//! An accelerator: origins and their pools, forwarding, coalescing, the store.
//!
//! | file | what it knows |
//! |---|---|
//! | [`accelerator`] | what the whole process shares |
//! | [`step`] | one `proxy` step and one `cache` step of the configuration |
//! | [`worker`] | what one worker answers with |
//! | [`fill`], [`growing`] | one fetch for many clients, and content that is still coming |
//! | [`store`] | what is kept of answers: memory and disks |
//! | [`outcome`] | why each answer was what it was |
//!
//! Absent by design: sockets (`flatout_net` has them) and what may be stored (`flatout_cache` decides).

pub mod accelerator;
pub mod fill;
pub mod growing;
pub mod outcome;
pub mod step;
pub mod store;
pub mod worker;

pub use accelerator::Accelerator;
pub use step::{CacheStep, ProxyStep};
pub use worker::{Asking, Changes, Handled, ProxyWorker, Refused};
