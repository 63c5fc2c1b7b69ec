//! Entity tags (RFC 9110 §8.8.3) and how to compare them.

use crate::token::{ETAGC, is};

/// An entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ETag<'a> {
    /// True if the tag has the prefix `W/`.
    pub weak: bool,
    /// Text between the quotes.
    pub opaque: &'a [u8],
}

impl<'a> ETag<'a> {
    /// Parses exactly one entity tag, without surrounding white space.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        match parse_prefix(bytes)? {
            (tag, []) => Some(tag),
            _ => None,
        }
    }

    /// Returns whether both tags are strong and equal (strong comparison, RFC 9110 §8.8.3.2).
    pub fn matches_strongly(&self, other: &Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Returns whether the opaque parts are equal (weak comparison, RFC 9110 §8.8.3.2).
    pub fn matches_weakly(&self, other: &Self) -> bool {
        self.opaque == other.opaque
    }
}

fn parse_prefix(bytes: &[u8]) -> Option<(ETag<'_>, &[u8])> {
    let (weak, quoted) = match bytes {
        [b'W', b'/', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    let rest = quoted.strip_prefix(b"\"")?;
    let end = rest.iter().position(|&byte| byte == b'"')?;
    let opaque = &rest[..end];
    opaque.iter().all(|&byte| is(byte, ETAGC)).then_some((ETag { weak, opaque }, &rest[end + 1..]))
}

/// Returns whether a list of entity tags, as in If-Match and If-None-Match, contains one that satisfies `matches`. A
/// malformed list matches nothing.
pub fn list_matches(list: &[u8], mut matches: impl FnMut(&ETag<'_>) -> bool) -> bool {
    let mut rest = list;
    let mut found = false;
    loop {
        while let [b' ' | b'\t' | b',', tail @ ..] = rest {
            rest = tail;
        }
        if rest.is_empty() {
            return found;
        }
        let Some((tag, tail)) = parse_prefix(rest) else { return false };
        found |= matches(&tag);
        rest = crate::token::trim(tail);
        if !matches!(rest.first(), None | Some(b',')) {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ETag, list_matches};

    #[test]
    fn valid_and_invalid_tags() {
        assert_eq!(ETag::parse(b"\"a\""), Some(ETag { weak: false, opaque: b"a" }));
        assert_eq!(ETag::parse(b"W/\"\""), Some(ETag { weak: true, opaque: b"" }));
        for bad in [&b"a"[..], b"\"a", b"a\"", b"w/\"a\"", b"\"a\"b", b"\"a b\"", b"W/a", b""] {
            assert_eq!(ETag::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_comparison_table_of_the_standard() {
        // RFC 9110 §8.8.3.2, table 3.
        for (left, right, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            let (left, right) = (ETag::parse(left.as_bytes()).unwrap(), ETag::parse(right.as_bytes()).unwrap());
            assert_eq!((left.matches_strongly(&right), left.matches_weakly(&right)), (strong, weak));
        }
    }

    #[test]
    fn lists_are_searched_and_malformed_ones_match_nothing() {
        let has_b = |list: &str| list_matches(list.as_bytes(), |tag| tag.opaque == b"b");
        assert!(has_b("\"a\", \"b\"") && has_b("W/\"b\"") && has_b(", \"a\",,\"b\" ,") && has_b("\"a\",\"b\""));
        assert!(!has_b("\"a\"") && !has_b("") && !has_b("\"b\" \"c\"") && !has_b("b") && !has_b("\"b\", c"));
        assert!(list_matches(b"\"a,b\"", |tag| tag.opaque == b"a,b"));
    }
}
