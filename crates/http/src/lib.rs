//! HTTP semantics (RFC 9110) and HTTP/1.1 (RFC 9112) for both roles, without I/O.
//!
//! Bytes and time are arguments; what comes back is a value: a parsed head, a decoded piece of a body, the next
//! state of a connection, a decision about a precondition. The server in `flatout-net` and the lab's client are the
//! two roles of this one core, so each tests the other.
//!
//! | file | what it knows |
//! |---|---|
//! | [`limits`] | every bound on what a peer may send |
//! | [`refusal`] | every reason for which a message is refused, with its status |
//! | [`token`] | the character classes of the grammars |
//! | [`head`] | where a head ends; line ends; the field section |
//! | [`lines`] | field lines as bytes, and changes to them |
//! | [`request`], [`response`] | the two kinds of head |
//! | [`target`], [`host`], [`path`] | what a request is for |
//! | [`cookie`] | the cookies of a request |
//! | [`media`] | media types whose content comes over hours |
//! | [`framing`], [`chunked`], [`body`] | where a body ends |
//! | [`connection`] | the life of a connection, as one table |
//! | [`http2`] | where frames begin, and when there are too many |
//! | [`etag`], [`conditional`], [`range`], [`ranges`], [`date`] | what a request asks about a representation |
//! | [`encoding`] | which content coding the client likes best |
//! | [`forwarded`] | what proxies say of a request that they pass on |
//! | [`digest`] | digests requested and sent |
//! | [`structured`], [`base64`] | structured fields; bytes as text |
//!
//! Absent by design: sockets, files, threads, a clock, a log, and any allocation while a request is parsed.

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
pub mod token;
