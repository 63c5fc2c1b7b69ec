//! HTTP/1.1: `flatout_http` on a worker's sockets.
//!
//! | file | content |
//! |---|---|
//! | `connection` | bytes in, bytes out, and how a connection ends |
//! | `exchanges` | from received bytes to output, through the handler |
//! | `receiving` | request content: discarded, or on its way to the handler |
//! | `awaiting` | pending responses, and their interim responses |
//! | `streaming` | streamed responses |
//! | `polling` | a connection that waits for both the handler and the client |
//! | `opening` | connections that begin with TLS, with HTTP/2, or on the wrong port |
//! | `tunnel` | connections that switch to another protocol |
//! | `fault` | requests that are refused, too slow or cut |
//! | `task` | waiting: readiness and deadlines of one registered connection |

pub(crate) mod awaiting;
pub(crate) mod connection;
pub(crate) mod exchanges;
pub(crate) mod fault;
pub(crate) mod opening;
pub(crate) mod polling;
pub(crate) mod receiving;
pub(crate) mod streaming;
pub(crate) mod task;
pub(crate) mod tunnel;
