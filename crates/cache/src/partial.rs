//! Parts of a representation: which 206 may be kept, and how parts are joined (RFC 9111 §3.3, §3.4; RFC 9110 §14.4,
//! §15.3.7).

use crate::request::CacheRequest;
use crate::stored::{Extent, Stored};
use crate::validate::Conditions;

/// Reads a Content-Range of the unit bytes with a range: `first`, `last`, and the total when it is not `*`. `None` for
/// anything else and for what RFC 9110 §14.4 calls invalid.
pub fn parse_content_range(value: &[u8]) -> Option<Extent> {
    let _ = value;
    unimplemented!()
}

/// What becomes of a part that has come when another one is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// They are of one representation, and touch or overlap: this metadata, and the content is the first
    /// `old_bytes` or `new_bytes` of one followed by what lies beyond in the other.
    Joined {
        /// The metadata of both; its extent is `Whole`, with status 200, when nothing is missing any more.
        stored: Box<Stored>,
        /// Whether the old content comes first.
        old_first: bool,
        /// Bytes of the second content, at its beginning, that are left out since the first has them.
        overlap_bytes: u64,
    },
    /// They lie apart, or are not known to be of one representation: keep the new one alone.
    Replace,
    /// The old one has all that the new one has: keep the old one with the new one's metadata.
    Contained(Box<Stored>),
}

/// Decides how the part `new` joins the part or whole `old`. Only parts with one strong validator are joined
/// (RFC 9111 §3.4).
pub fn decide_joining(old: &Stored, new: &Stored) -> Joining {
    let _ = (old, new);
    unimplemented!()
}

/// The lines that ask the origin for what is missing of the stored part for `request`: Range and If-Range. `None` when
/// it has no strong validator, or when what is missing is not one range.
pub fn make_completion(request: &CacheRequest<'_>, stored: &Stored) -> Option<Conditions> {
    let _ = (request, stored);
    unimplemented!()
}
