//! HTTP semantics (RFC 9110) and HTTP/1.1 (RFC 9112) for both roles, without I/O.
//!
//! Bytes and time are arguments; results are values: a parsed head, decoded content, a connection state, a
//! precondition decision. The server in `flatout-net` and the lab's client are the two roles of this core, so each
//! tests the other.
//!
//! | file | contents |
//! |---|---|
//! | [`limits`], [`timeouts`] | limits on what a peer may send, and timeouts of a server |
//! | [`access`] | settings of an access log, and the fields of a line |
//! | [`refusal`] | reasons to refuse a message, with their status |
//! | [`token`] | character classes of the grammars |
//! | [`head`] | end of a head; line ends; field section |
//! | [`lines`] | field lines as bytes, and header operations |
//! | [`request`], [`response`] | request and response heads |
//! | [`target`], [`host`], [`path`] | request targets |
//! | [`url`] | URLs that people write |
//! | [`cookie`] | request cookies |
//! | [`media`] | media types of long-lived streams |
//! | [`framing`], [`chunked`], [`body`] | message bodies |
//! | [`connection`] | state machine of a connection |
//! | [`http2`] | HTTP/2 frames, flood protection and windows |
//! | [`etag`], [`conditional`], [`range`], [`ranges`], [`date`] | conditional and range requests |
//! | [`encoding`] | content coding negotiation |
//! | [`forwarded`] | client information from proxies |
//! | [`digest`] | digest fields |
//! | [`structured`], [`base64`] | structured fields; base64 |
//!
//! Absent by design: sockets, files, threads, a clock, logging, and allocation during request parsing.

pub mod access;
pub mod base64;
pub mod body;
pub mod chunked;
pub mod conditional;
pub mod connection;
pub mod cookie;
pub mod date;
pub mod digest;
pub mod encoding;
pub mod etag;
pub mod feed;
pub mod forwarded;
pub mod framing;
pub mod head;
pub mod host;
pub mod http2;
pub mod limits;
pub mod lines;
pub mod media;
pub mod path;
pub mod range;
pub mod ranges;
pub mod refusal;
pub mod request;
pub mod response;
pub mod status;
pub mod structured;
pub mod target;
pub mod timeouts;
pub mod token;
pub mod url;
