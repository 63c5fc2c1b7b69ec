//! The HTTP versions of a step's origins, as far as their responses have shown them.
//!
//! HTTP/1.0 has no chunked transfer coding (RFC 9112 §6.1): an origin that speaks it may read content in chunks as empty
//! and respond 200.

use flatout_http::framing::Version;
use std::sync::atomic::{AtomicU8, Ordering};

/// No response has shown the version.
const UNKNOWN: u8 = 0;
/// The origin speaks HTTP/1.0.
const HTTP10: u8 = 1;
/// The origin speaks HTTP/1.1 or a later version.
const LATER: u8 = 2;

/// The versions of all origins of a step, by index.
#[derive(Debug)]
pub(crate) struct OriginVersions(Vec<AtomicU8>);

/// How much the origins that may get a request need the length of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LengthNeed {
    /// All of them accept content of unknown length, in chunks.
    None,
    /// One of them speaks HTTP/1.0, or has not shown its version.
    Possible,
    /// All of them speak HTTP/1.0.
    Certain,
}

impl OriginVersions {
    /// Creates the versions of `count` origins without responses. Origins over HTTP/2 never speak HTTP/1.0.
    pub(crate) fn new(count: usize, is_http2: bool) -> Self {
        let version = if is_http2 { LATER } else { UNKNOWN };
        Self((0..count).map(|_| AtomicU8::new(version)).collect())
    }

    /// Records the version of a response with `status` of the origin `index`.
    pub(crate) fn note(&self, index: usize, version: Version, status: u16) {
        let Some(noted) = self.0.get(index) else { return };
        let known = noted.load(Ordering::Relaxed);
        let shown = version_after(known, version == Version::Http10, status >= 400);
        // Writing would slow down the other workers.
        if shown != known {
            noted.store(shown, Ordering::Relaxed);
        }
    }

    /// Returns whether the origin `index` speaks HTTP/1.0.
    pub(crate) fn is_http10(&self, index: usize) -> bool {
        self.get(index) == HTTP10
    }

    /// Returns whether all origins accept content of unknown length.
    pub(crate) fn accept_chunks(&self) -> bool {
        (0..self.0.len()).all(|index| self.get(index) == LATER)
    }

    /// Returns how much the origins with these `indices` need the length of content.
    pub(crate) fn length_need(&self, indices: &[usize]) -> LengthNeed {
        if indices.iter().all(|index| self.get(*index) == LATER) {
            LengthNeed::None
        } else if indices.iter().all(|index| self.is_http10(*index)) {
            LengthNeed::Certain
        } else {
            LengthNeed::Possible
        }
    }

    fn get(&self, index: usize) -> u8 {
        self.0.get(index).map_or(LATER, |noted| noted.load(Ordering::Relaxed))
    }
}

/// Returns the version of an origin after a response, if `known` was known before. An error is weaker evidence than a
/// success, because a proxy in front of the origin may send errors with another version, and visitors can provoke them.
/// So after an error with HTTP/1.0, content may need a length, but is not refused without one.
const fn version_after(known: u8, is_http10: bool, is_error: bool) -> u8 {
    if is_error && known == HTTP10 {
        HTTP10
    } else if is_error && is_http10 {
        UNKNOWN
    } else if is_http10 {
        HTTP10
    } else {
        LATER
    }
}

#[cfg(test)]
mod tests {
    use super::{LengthNeed, OriginVersions};
    use flatout_http::framing::Version::{Http2, Http10, Http11};

    #[test]
    fn a_success_shows_the_version_and_an_error_casts_doubt() {
        use LengthNeed::{Certain, None, Possible};
        let versions = OriginVersions::new(1, false);
        assert_eq!(versions.length_need(&[0]), Possible, "no response");
        for (version, status, expected) in [
            (Http10, 411, Possible),
            (Http10, 503, Possible),
            (Http11, 404, None),
            (Http10, 400, Possible),
            (Http11, 204, None),
            (Http10, 304, Certain),
            (Http10, 411, Certain),
            (Http11, 502, Certain),
            (Http11, 101, None),
            (Http10, 200, Certain),
            (Http2, 200, None),
        ] {
            versions.note(0, version, status);
            assert_eq!(versions.length_need(&[0]), expected, "{version:?} {status}");
            assert_eq!(versions.is_http10(0), expected == Certain, "{version:?} {status}");
            assert_eq!(versions.accept_chunks(), expected == None, "{version:?} {status}");
        }
        // An origin that does not exist.
        versions.note(1, Http10, 200);
        assert!(!versions.is_http10(1));
    }

    #[test]
    fn origins_over_http2_need_no_length() {
        let versions = OriginVersions::new(2, true);
        assert!(versions.accept_chunks());
        assert_eq!(versions.length_need(&[0, 1]), LengthNeed::None);
    }

    #[test]
    fn one_origin_is_enough_for_a_possible_need() {
        let versions = OriginVersions::new(3, false);
        versions.note(0, Http10, 200);
        versions.note(1, Http11, 200);
        for (indices, expected) in [
            (&[0; 0][..], LengthNeed::None),
            (&[0], LengthNeed::Certain),
            (&[1], LengthNeed::None),
            (&[2], LengthNeed::Possible),
            (&[0, 1], LengthNeed::Possible),
            (&[0, 2], LengthNeed::Possible),
            (&[1, 2], LengthNeed::Possible),
        ] {
            assert_eq!(versions.length_need(indices), expected, "{indices:?}");
        }
    }
}
