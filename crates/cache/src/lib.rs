//! HTTP caching (RFC 9111) as pure functions that decide what to store, for how long, and how to handle each request.
//!
//! A driver calls these in order and acts on the results:
//!
//! 1. [`decide_request`](decision::decide_request): look up a stored response, bypass the cache, or forward and
//!    invalidate.
//! 2. [`write_key`](key::write_key), then selection of the key's variant with the request's
//!    [`write_variant_key`](vary::write_variant_key).
//! 3. [`decide_stored`](decision::decide_stored) for a stored response, [`decide_parts`](decision::decide_parts) for
//!    several parts of one representation, [`decide_miss`](decision::decide_miss) without either: serve, serve stale,
//!    validate, complete, forward, or 504.
//! 4. [`decide_conditions`](condition::decide_conditions) for the response to serve: 200, 304, 206 or 416.
//! 5. [`decide_response`](storable::decide_response) for a new response, [`freshen`](validate::freshen) for a 304,
//!    [`decide_head`](validate::decide_head) for a response to HEAD, [`decide_failure`](decision::decide_failure) for a
//!    failed request, [`decide_invalidation`](invalidate::decide_invalidation) after an unsafe method.
//!
//! | file | contents |
//! |---|---|
//! | [`rules`] | configuration of the cache |
//! | [`request`], [`cookie`] | the request, and which of its cookies identify visitors |
//! | [`directive`], [`targeted`] | Cache-Control of requests and responses, and the fields that replace it |
//! | [`age`], [`freshness`] | age and freshness lifetime |
//! | [`key`], [`search`], [`vary`] | keys and variants |
//! | [`storable`], [`stored`], [`codec`] | which responses are stored, their metadata, and its encoding |
//! | [`decision`], [`condition`] | how to handle a request |
//! | [`validate`], [`partial`], [`parts`], [`invalidate`], [`tags`] | updates to stored responses |
//! | [`reason`], [`status`], [`explain`] | reasons for users |
//!
//! By design, this crate uses no sockets, files, threads or clock. Time is an argument, in whole seconds since 1970,
//! and every decision is a value that includes its reason.

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
