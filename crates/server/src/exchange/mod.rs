//! One request and its response, whatever the protocol: HTTP/1.1 and HTTP/2 are framers around these parts.
//!
//! | file | contents |
//! |---|---|
//! | `record` | the data of a request that its log line needs |
//! | `intake` | content on its way to the handler that took it |
//! | `pending` | a response that is not ready, with its interim responses |
//! | `streamed` | a response whose content is still arriving |

pub(crate) mod intake;
pub(crate) mod pending;
pub(crate) mod record;
pub(crate) mod streamed;
