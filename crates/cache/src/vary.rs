//! Variants: which stored answer of a key is for a request (RFC 9111 §4.1).

use crate::request::CacheRequest;
use flatout_http::head::Fields;

/// What the Vary fields of an answer say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// `*` is among them: no request matches.
    Star,
    /// These names, in lower case, sorted, each once, separated by commas; empty: no variants.
    Names(Box<str>),
    /// Not a list of names, or more than [`NAMES_MAX`].
    Invalid,
}

/// Names in one Vary at the most.
pub const NAMES_MAX: usize = 16;

/// Reads all Vary lines of an answer.
pub fn parse_vary(fields: &Fields<'_>) -> Vary {
    let _ = fields;
    unimplemented!()
}

/// Appends the values that `request` has for `names` (as in [`Vary::Names`] and `Stored::vary`), normalised, to
/// `output`. Two requests match when they have the same key here. Nothing is appended for no names.
pub fn write_variant_key(names: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) {
    let _ = (names, request, output);
    unimplemented!()
}
