//! The interface between connections, which know no sites, and handlers, which know no sockets.
//!
//! | file | content |
//! |---|---|
//! | `handler` | the interface: [`Handler`], [`Request`], [`Reply`] |
//! | [`routed`] | the contract of the handlers of routes: request, result, refusal |
//! | [`owned`] | a request that outlives its turn |
//! | [`response`], [`shared`] | responses and their bodies |
//! | [`content`], [`stream`] | request content; streamed responses and tunnels |
//! | [`budget`] | one bound for the memory of content |
//! | [`ending`] | why a connection closes |
//! | `page` | the built-in error page |
//!
//! Absent by design: protocols, sockets, and what is served.

pub mod budget;
pub mod content;
pub mod ending;
mod handler;
pub mod owned;
mod page;
pub mod response;
pub mod routed;
pub mod shared;
pub mod stream;

pub use handler::{Handler, LaterResponse, LogSource, OUTCOMES_MAX, Reply, Request};
