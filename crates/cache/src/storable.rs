//! What may be kept (RFC 9111 §3).

use crate::reason::NoStore;
use crate::request::CacheRequest;
use crate::rules::Rules;
use crate::stored::Stored;
use flatout_http::head::Fields;

/// An origin's answer, once its head is there.
#[derive(Clone, Copy, Debug)]
pub struct OriginResponse<'a> {
    /// The status, 200 or more.
    pub status: u16,
    /// All field lines, trailers aside.
    pub fields: Fields<'a>,
    /// When the request was sent.
    pub request_time_s: i64,
    /// When the head came.
    pub response_time_s: i64,
    /// How the content's end is known.
    pub ending: Ending,
}

/// How the end of an answer's content is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By its length in bytes; also of none at all.
    Length(u64),
    /// By framing: chunks or HTTP/2's END_STREAM.
    Framed,
    /// By the connection's end (RFC 9112 §6.3).
    Close,
}

/// Whether an answer is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Storing {
    /// Keep it, once its content is complete and no larger than the rules allow.
    Store(Box<Stored>),
    /// Do not.
    No(NoStore),
    /// Do not, and remember for so many seconds that answers for this key cannot be kept, so that clients need not
    /// wait for one another in vain.
    Remember(NoStore, u32),
}

/// Decides whether `response` to `request` may be kept, and with what.
///
/// A request with a method other than GET yields [`Storing::Store`] only for a POST whose answer says that it is what
/// GET would give (RFC 9110 §9.3.3); it is then stored under the key that GET has.
pub fn decide_response(request: &CacheRequest<'_>, response: &OriginResponse<'_>, rules: &Rules) -> Storing {
    let _ = (request, response, rules);
    unimplemented!()
}
