//! The parts of a path that a rewrite keeps: what the last star of a route matched, and what follows a prefix.
//!
//! Routes have seen the whole path. A part of it may mean something else: `..` that is within a segment climbs if it is
//! a whole segment of another path, and dot segments may hide what other servers would interpret differently.

use flatout_http::path::{PathFacts, SLASH_IN_SEGMENT, decode_as, decode_path, raw_part, resolve_dots};
use std::borrow::Cow;
use std::ops::Range;

/// The range of the path that the last star of the innermost route matched, and the number of rewrites before that.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub(super) rewrites: u32,
    part: Range<usize>,
    /// True if the range begins with the slash after a segment.
    pub(super) has_slash: bool,
    /// True if the range begins or ends with `..` that is only a part of its segment: in another path, it may be a whole
    /// segment.
    climbs: bool,
}

impl Rest {
    /// Returns the rest that is `part` of `path`, the decoded path after `rewrites` rewrites.
    pub(super) fn new(path: &[u8], part: Range<usize>, rewrites: u32) -> Self {
        let has_slash = path.get(part.start) == Some(&b'/');
        let climbs = cuts_dots(path, &part);
        Self { rewrites, part, has_slash, climbs }
    }

    /// Returns the rest as the client sent it, of `path`, the percent-encoded path that it is a part of.
    pub(super) fn of<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        match resolve_dots(path) {
            Cow::Borrowed(path) => Cow::Borrowed(raw_part(path, &self.part)),
            Cow::Owned(path) => Cow::Owned(raw_part(&path, &self.part).to_vec()),
        }
    }

    /// Returns whether a server may interpret the rest of `path` in a way that earlier routes have not seen: the rest
    /// begins or ends inside a segment of dots, or removing dot segments changes how some server interprets the path.
    pub(super) fn is_ambiguous(&self, path: &[u8]) -> bool {
        self.climbs || dots_change_readings(path)
    }
}

/// Returns what follows the first `prefix_bytes` bytes of `decoded`, as it stands in `path`, which is percent-encoded: an
/// origin may distinguish paths with empty segments, as image servers do whose paths contain a URL. Returns `None` if dot
/// segments lead to the prefix in a path that servers interpret differently: routes have seen the interpretations of the
/// whole path, which need not be those of the rest below the prefix.
pub(super) fn after_prefix<'p>(
    path: &'p [u8],
    decoded: &[u8],
    facts: PathFacts,
    prefix_bytes: usize,
) -> Option<&'p [u8]> {
    let rest = raw_part(path, &(prefix_bytes..decoded.len()));
    let prefix = &path[..path.len() - rest.len()];
    let has_dots = || decode_path(prefix, &mut Vec::new()).is_ok_and(|facts| facts.dot_segment);
    let is_unambiguous = facts.readings.is_empty() || !facts.dot_segment || !has_dots();
    is_unambiguous.then_some(rest)
}

/// Returns whether `part` of `path` begins or ends within a segment with dots that would climb if they were the whole
/// segment, for some server.
fn cuts_dots(path: &[u8], part: &Range<usize>) -> bool {
    let separates = |byte: Option<&u8>| byte.is_none_or(|byte| matches!(byte, b'/' | b'\\' | b';' | &SLASH_IN_SEGMENT));
    let Some(text) = path.get(part.clone()) else { return false };
    let is_cut = |at: usize| !separates(at.checked_sub(1).and_then(|before| path.get(before)));
    let begins = text.strip_prefix(b"..").is_some_and(|after| separates(after.first()));
    let ends = text.strip_suffix(b"..").is_some_and(|before| separates(before.last()));
    begins && is_cut(part.start) || ends && !separates(path.get(part.end))
}

/// Returns whether another server may interpret `path` differently after its dot segments have been removed.
fn dots_change_readings(path: &[u8]) -> bool {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let Cow::Owned(resolved) = resolve_dots(path) else { return false };
    let Ok(facts) = decode_path(path, &mut before) else { return true };
    facts.readings.combinations().any(|ways| {
        let are_valid = decode_as(path, ways, &mut before).is_ok() && decode_as(&resolved, ways, &mut after).is_ok();
        !are_valid || before != after
    })
}
