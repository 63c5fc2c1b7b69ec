//! RFC 9111 as values: what may be stored, when it is fresh, what to do next.
//!
//! A driver asks in this order, and obeys:
//!
//! 1. [`decide_request`](decision::decide_request): look up, leave the cache out, or invalidate afterwards.
//! 2. [`write_key`](key::write_key), and of the variants under that key the one with the request's
//!    [`write_variant_key`](vary::write_variant_key).
//! 3. [`decide_stored`](decision::decide_stored) for what was found, [`decide_parts`](decision::decide_parts) for several
//!    parts of one representation, [`decide_miss`](decision::decide_miss) when nothing was: serve, serve stale, validate,
//!    complete, forward, or 504.
//! 4. [`decide_conditions`](condition::decide_conditions) for what is served: 200, 304, 206 or 416.
//! 5. [`decide_response`](storable::decide_response) for a new answer, [`freshen`](validate::freshen) for a 304,
//!    [`decide_head`](validate::decide_head) for an answer to HEAD,
//!    [`decide_failure`](decision::decide_failure) for none, [`decide_invalidation`](invalidate::decide_invalidation)
//!    after an unsafe method.
//!
//! | file | what it knows |
//! |---|---|
//! | [`rules`] | what the owner of the cache has chosen |
//! | [`request`], [`cookie`] | the request as a cache sees it, and which of its cookies tell visitors apart |
//! | [`directive`], [`targeted`] | Cache-Control in either direction, and the fields that stand in for it |
//! | [`age`], [`freshness`] | how old an answer is, and how old it may get |
//! | [`key`], [`search`], [`vary`] | which request an answer is for |
//! | [`storable`], [`stored`], [`codec`] | what is kept, in which form |
//! | [`decision`], [`condition`] | what is answered |
//! | [`validate`], [`partial`], [`parts`], [`invalidate`], [`tags`] | updates to stored responses |
//! | [`reason`], [`status`], [`explain`] | why, for people |
//!
//! Absent by design: sockets, files, threads, the clock. Time is an argument, in whole seconds since 1970, and every
//! decision is a value with a reason.

pub mod age;
pub mod codec;
pub mod condition;
pub mod cookie;
pub mod decision;
pub mod directive;
pub mod explain;
pub mod freshness;
pub mod invalidate;
pub mod key;
pub mod lines;
pub mod partial;
pub mod parts;
pub mod reason;
pub mod request;
pub mod rules;
pub mod search;
pub mod status;
pub mod storable;
pub mod stored;
pub mod tags;
pub mod targeted;
pub mod validate;
pub mod vary;
