//! Asking the origin whether what is stored still holds, and what its answer changes (RFC 9111 §4.3).

use crate::reason::Lookup;
use crate::request::CacheRequest;
use crate::rules::Rules;
use crate::storable::OriginResponse;
use crate::stored::Stored;

/// Field lines to add to a request to the origin, each `Name: value` and CR LF, in place of the client's own
/// If-None-Match, If-Modified-Since, If-Range and Range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(pub Vec<u8>);

/// The request fields that [`Conditions`], and a forwarded request whose answer may be kept, leave out: conditions are
/// decided here. Range stays in a forwarded request and goes from one that validates.
pub const CONDITION_FIELDS: [&str; 2] = ["if-none-match", "if-modified-since"];

/// The conditions that ask whether `stored` still holds (RFC 9111 §4.3.1). `None` when it has no validator, or a
/// status of which 304 cannot speak.
pub fn make_conditions(stored: &Stored) -> Option<Conditions> {
    let _ = stored;
    unimplemented!()
}

/// What a 304 does to the stored answer that was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshening {
    /// It holds; this is its metadata now. The content stays.
    Fresh(Box<Stored>),
    /// It holds for this answer, but may not be kept any longer: serve it with this metadata, and drop it.
    FreshOnce(Box<Stored>, Lookup),
    /// The 304 speaks of something else: drop what is stored, and ask again without conditions.
    Mismatch(Lookup),
}

/// Updates `stored` from a 304 (RFC 9111 §4.3.4, §3.2). `request` is the client's, whose variant `stored` is.
pub fn freshen(
    request: &CacheRequest<'_>,
    stored: &Stored,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> Freshening {
    let _ = (request, stored, response, rules);
    unimplemented!()
}

/// What an answer to HEAD does to the stored answer to GET (RFC 9111 §4.3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadEffect {
    /// This is its metadata now.
    Update(Box<Stored>),
    /// The representation is another one now: drop it.
    Drop,
    /// None.
    Nothing,
}

/// Decides what `response` to a HEAD does to `stored`, whose content has `content_bytes` bytes.
pub fn decide_head(
    request: &CacheRequest<'_>,
    stored: &Stored,
    content_bytes: u64,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> HeadEffect {
    let _ = (request, stored, content_bytes, response, rules);
    unimplemented!()
}
