//! Load balancing among the origins of a proxy, without I/O: time is an argument.
//!
//! | file | content |
//! |---|---|
//! | [`group`] | policies, passive health, and what each request tried |
//! | [`limit`] | the concurrency limit of an origin, and its queue |
//! | [`health`] | active health checks: schedule and evaluation |
//!
//! Absent by design: sending requests and checks (see `flatout_proxy`).

pub mod group;
pub mod health;
pub mod limit;
