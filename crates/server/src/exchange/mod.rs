//! A request and its response, independent of the protocol. HTTP/1.1, HTTP/2 and HTTP/3 only frame these parts.
//!
//! | file | contents |
//! |---|---|
//! | `record` | data of a request for its log line |
//! | `intake` | request content on its way to the handler that took it |
//! | `pace` | how fast request content arrives |
//! | `pending` | a response that is not ready, with its interim responses |
//! | `streamed` | a response whose content is still arriving |

pub(crate) mod intake;
pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod record;
pub(crate) mod streamed;
