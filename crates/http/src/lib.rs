//! HTTP semantics (RFC 9110) and HTTP/1.1 (RFC 9112) for both roles, without I/O.
//!
//! Functions take bytes and time as arguments and return values: a parsed head, decoded content, a connection state, a
//! precondition decision. Server connections and client connections are the two roles of this core, so each tests the
//! other.
//!
//! | file | contents |
//! |---|---|
//! | [`limits`], [`timeouts`] | limits on what a peer may send, and timeouts of a server |
//! | [`access`] | settings of an access log, and the fields of its lines |
//! | [`refusal`] | reasons to refuse a message, with their status codes |
//! | [`token`] | character classes of the grammars |
//! | [`head`] | message heads: end of a head, line endings, field section |
//! | [`lines`] | field lines as bytes, and header operations |
//! | [`request`], [`response`] | request and response heads |
//! | [`repair`] | response heads of old origins |
//! | [`target`], [`host`], [`path`], [`percent`] | request targets and percent-encoding |
//! | [`url`] | URLs written by users |
//! | [`cookie`] | request cookies |
//! | [`media`] | media types of long-lived streams |
//! | [`framing`], [`chunked`], [`body`] | message bodies |
//! | [`connection_auth`] | authentication of a connection: NTLM, Negotiate |
//! | [`connection`] | state machine of an HTTP/1.1 connection |
//! | [`http2`] | HTTP/2: frames, streams, flood protection and flow control |
//! | [`http3`] | HTTP/3: frames, streams and flood protection |
//! | `compression` | code shared by HPACK and QPACK |
//! | [`etag`], [`conditional`], [`ranges`], [`date`] | conditional and range requests |
//! | [`accept`], [`encoding`] | weights of Accept fields; content coding negotiation |
//! | [`forwarded`], [`proxy_protocol`] | client information from proxies |
//! | [`digest`] | digest fields |
//! | [`structured`], [`base64`] | structured fields; base64 |
//!
//! Absent by design: sockets, files, threads, a clock, logging, and allocation during request parsing.

pub mod accept;
pub mod access;
pub mod base64;
pub mod body;
pub mod chunked;
mod compression;
pub mod conditional;
pub mod connection;
pub mod connection_auth;
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
pub mod http3;
pub mod limits;
pub mod lines;
pub mod media;
pub mod path;
pub mod percent;
pub mod proxy_protocol;
pub mod ranges;
pub mod refusal;
pub mod repair;
pub mod request;
pub mod response;
pub mod status;
pub mod structured;
pub mod target;
pub mod timeouts;
pub mod token;
pub mod url;
