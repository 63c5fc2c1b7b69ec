//! What an unsafe method's answer makes invalid (RFC 9111 §4.4, RFC 9875 §3).

use crate::request::CacheRequest;
use crate::rules::Rules;
use crate::tags::Tags;
use flatout_http::head::Fields;

/// What is invalid now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invalidation {
    /// Keys, each with all its variants: the target's, and those of Location and Content-Location when they are of the
    /// same origin.
    pub keys: Vec<Vec<u8>>,
    /// The same without queries: what was stored under a key of [`crate::search`] lies under these.
    pub path_keys: Vec<Vec<u8>>,
    /// Groups of this origin (RFC 9875 §3); see [`write_group_tag`](crate::tags::write_group_tag).
    pub groups: Tags,
}

/// Decides what `request`, answered with `status` and `fields`, makes invalid: nothing for a safe method or an error.
pub fn decide_invalidation(
    request: &CacheRequest<'_>,
    status: u16,
    fields: &Fields<'_>,
    rules: &Rules,
) -> Invalidation {
    let _ = (request, status, fields, rules);
    unimplemented!()
}

/// Whether `method` is registered as safe (RFC 9110 §9.2.1). One that is unknown is not.
pub fn is_safe(method: &str) -> bool {
    let _ = method;
    unimplemented!()
}
