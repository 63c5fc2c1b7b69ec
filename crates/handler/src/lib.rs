//! The interface between connections, which know nothing of sites, and handlers, which know nothing of sockets.
//!
//! | file | content |
//! |---|---|
//! | `handler` | the interface: [`Handler`], [`Request`], [`Reply`] |
//! | [`later`] | responses in progress |
//! | [`routed`] | the interface of route handlers: request, result, refusal |
//! | [`owned`] | a copy of a request that outlives the handler call |
//! | [`response`], [`shared`] | responses and their bodies |
//! | [`content`], [`stream`] | request content; streamed responses and tunnels |
//! | [`budget`] | one memory limit for all content |
//! | [`ending`] | reasons for closing a connection |
//! | `page` | the built-in error page |
//!
//! Absent by design: protocols, sockets, and the content that is served.

pub mod budget;
pub mod content;
pub mod ending;
mod handler;
pub mod later;
pub mod owned;
mod page;
pub mod response;
pub mod routed;
pub mod shared;
pub mod stream;

pub use handler::{Handler, OUTCOMES_MAX, Reply, Request};
pub use later::LaterResponse;
