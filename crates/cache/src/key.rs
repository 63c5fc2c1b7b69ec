//! The key of a request: what the origin sees of its target, no more and no less.

use crate::request::CacheRequest;
use crate::rules::{QueryKey, Rules};

/// Appends the key of `request` to `output`: scheme, host, port unless it is the scheme's own, path, and the query that
/// is forwarded. `http://example.com/a?b=c`.
pub fn write_key(request: &CacheRequest<'_>, rules: &Rules, output: &mut Vec<u8>) {
    let _ = (request, rules, output);
    unimplemented!()
}

/// Appends the part of the key before the path to `output`: what is one origin (RFC 9110 §4.3.1).
pub fn write_origin(secure: bool, authority: &[u8], output: &mut Vec<u8>) {
    let _ = (secure, authority, output);
    unimplemented!()
}

/// Appends the host and port in the form in which the key has them: what a Host field to the origin says, so that the
/// origin sees nothing of the client's spelling.
pub fn write_authority(secure: bool, authority: &[u8], output: &mut Vec<u8>) {
    let _ = (secure, authority, output);
    unimplemented!()
}

/// Appends the query that is forwarded, without `?`, to `output`. False: none is, and nothing was appended.
pub fn write_query(query: Option<&[u8]>, rule: &QueryKey, output: &mut Vec<u8>) -> bool {
    let _ = (query, rule, output);
    unimplemented!()
}
