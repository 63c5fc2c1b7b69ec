//! HTTP/1.1: `flatout_http` on the sockets of a worker.
//!
//! | file | content |
//! |---|---|
//! | `connection` | received and sent bytes, and the close of a connection |
//! | `exchanges` | requests and responses, through the handler |
//! | `receiving` | request content, discarded or delivered to the handler |
//! | `awaiting` | pending responses and their interim responses |
//! | `streaming` | streamed responses |
//! | `polling` | a connection that waits for both the handler and the client |
//! | `proxy_header` | the PROXY header that precedes everything else |
//! | `opening` | connections that begin with TLS or HTTP/2, or use the wrong port |
//! | `tunnel` | connections that switch to another protocol |
//! | `fault` | requests that are refused, too slow or incomplete |
//! | `task` | readiness and deadlines of one registered connection |

pub(crate) mod awaiting;
pub(crate) mod connection;
pub(crate) mod exchanges;
pub(crate) mod fault;
pub(crate) mod opening;
pub(crate) mod polling;
mod proxy_header;
pub(crate) mod receiving;
pub(crate) mod streaming;
pub(crate) mod task;
pub(crate) mod tunnel;
