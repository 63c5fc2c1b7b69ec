//! Load balancing among the origins of a proxy, without I/O. Time is passed as an argument.
//!
//! | file | content |
//! |---|---|
//! | [`group`] | balancing policies, passive health, and the origins that each request tried |
//! | [`limit`] | concurrency limit and queue of an origin |
//! | [`health`] | active health checks: schedule and evaluation |
//!
//! Requests and health checks are sent elsewhere (see `flatout_proxy`).

pub mod group;
pub mod health;
pub mod limit;
