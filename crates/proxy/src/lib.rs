//! An accelerator: origins and their pools, forwarding, coalescing, the store.
//!
//! Absent by design: sockets (`flatout_net` has them) and what may be stored (`flatout_cache` decides).

pub mod store;
