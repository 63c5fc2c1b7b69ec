//! Wildcard patterns for paths and field values.
//!
//! Patterns are matched against the decoded path without its leading slash, as returned by
//! `flatout_http::path::decode_path`. A star at the beginning or end of a pattern matches any run of characters,
//! including slashes; any other star matches only within a segment. For example, `/admin/*` matches everything below
//! the folder, `*.php` matches every path with that suffix, and `/*/feed.xml` matches the feed of each folder.

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// A star that matches any run of bytes without slashes.
    Within,
    /// A star that matches any run of bytes.
    Across,
}

/// A pattern for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPattern {
    /// Alternative forms of the pattern. There are two if the pattern begins with `*/`, because the star may also match
    /// nothing before the leading slash, which decoded paths do not have.
    forms: Vec<Box<[Token]>>,
    text: Box<[u8]>,
}

/// The property that all paths matched by a pattern share, for the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Only this path.
    Exact(Vec<u8>),
    /// Paths with this prefix, which consists of whole segments including their slashes.
    Segments(Vec<u8>),
    /// Any path.
    Any,
}

/// Maximum number of segments in a key.
pub(crate) const KEY_SEGMENTS_MAX: usize = 3;

impl PathPattern {
    /// Parses the pattern `text`.
    pub(crate) fn new(text: &str) -> Self {
        let bytes = text.strip_prefix('/').unwrap_or(text).as_bytes();
        let tokens = |bytes: &[u8], leading: bool| -> Box<[Token]> {
            let last = bytes.len().saturating_sub(1);
            let token = |(at, &byte): (usize, &u8)| match byte {
                b'*' if at == last || (at == 0 && leading) => Token::Across,
                b'*' => Token::Within,
                _ => Token::Byte(byte),
            };
            bytes.iter().enumerate().map(token).collect()
        };
        // A pattern such as `/*x` begins with a slash, so its star matches only within the first segment.
        let mut forms = vec![tokens(bytes, text.starts_with('*'))];
        if let Some(rest) = text.strip_prefix("*/") {
            forms.push(tokens(rest.as_bytes(), false));
        }
        Self { forms, text: bytes.into() }
    }

    /// Matches `path`. Returns the range that the last star matched, or an empty range at the end if there is no star.
    /// Returns `None` if the path does not match.
    pub(crate) fn match_path(&self, path: &[u8]) -> Option<Range<usize>> {
        self.forms.iter().find_map(|tokens| match_tokens(tokens, path))
    }

    /// Returns what all paths that match have in common.
    pub(crate) fn key(&self) -> Key {
        let Some(star) = self.text.iter().position(|&byte| byte == b'*') else {
            return Key::Exact(self.text.to_vec());
        };
        let literal = &self.text[..star];
        let slashes = literal.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        match slashes.take(KEY_SEGMENTS_MAX).last() {
            Some(slash) => Key::Segments(literal[..=slash].to_vec()),
            None => Key::Any,
        }
    }
}

/// A star during matching: its token, and the start and end of the run that it matches in the current attempt.
#[derive(Clone, Copy)]
struct Star {
    token: usize,
    start: usize,
    end: usize,
}

/// Matches `path`, and returns the range that the last star matched. Of the stars within segments, only the latest ever
/// needs to be retried, because segments match independently. If that fails, a leading star across segments is retried.
fn match_tokens(tokens: &[Token], path: &[u8]) -> Option<Range<usize>> {
    let (mut token, mut at) = (0, 0);
    let (mut within, mut across): (Option<Star>, Option<Star>) = (None, None);
    let mut stars_within = 0;
    loop {
        match tokens.get(token) {
            Some(Token::Across) if token + 1 == tokens.len() => return Some(at..path.len()),
            Some(Token::Across) => {
                across = Some(Star { token, start: at, end: at });
                token += 1;
                continue;
            }
            Some(Token::Within) => {
                within = Some(Star { token, start: at, end: at });
                stars_within += 1;
                token += 1;
                continue;
            }
            Some(Token::Byte(byte)) if path.get(at) == Some(byte) => {
                (token, at) = (token + 1, at + 1);
                continue;
            }
            None if at == path.len() => {
                let last = within.or(across);
                return Some(last.map_or(at..at, |star| star.start..star.end));
            }
            _ => {}
        }
        if let Some(star) = &mut within
            && path.get(star.end).is_some_and(|&byte| byte != b'/')
        {
            star.end += 1;
            (token, at) = (star.token + 1, star.end);
            continue;
        }
        let star = across.as_mut()?;
        // All runs of the star within this segment have failed, and a later start would only try a subset of them. The
        // next attempt that can succeed begins in the next segment.
        let skip = match within {
            Some(failed) if stars_within == 1 => (failed.end + 1).saturating_sub(failed.token - star.token - 1),
            _ => 0,
        };
        star.end = (star.end + 1).max(skip);
        if star.end > path.len() {
            return None;
        }
        (within, stars_within) = (None, 0);
        (token, at) = (star.token + 1, star.end);
    }
}

/// Returns whether `value` matches `pattern`, in which a star matches any run of bytes.
pub(crate) fn match_value(pattern: &[u8], value: &[u8]) -> bool {
    let (mut next, mut at) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        match pattern.get(next) {
            Some(b'*') => {
                star = Some((next, at));
                next += 1;
            }
            Some(byte) if value.get(at) == Some(byte) => (next, at) = (next + 1, at + 1),
            None if at == value.len() => return true,
            _ => match &mut star {
                Some((star_next, end)) if *end < value.len() => {
                    *end += 1;
                    (next, at) = (*star_next + 1, *end);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, PathPattern, match_value};
    use proptest::prelude::*;

    fn rest<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
        let path = path.strip_prefix('/').unwrap();
        PathPattern::new(pattern).match_path(path.as_bytes()).map(|range| &path[range])
    }

    #[test]
    fn stars_at_the_ends_cross_slashes_and_others_do_not() {
        for (pattern, path, expected) in [
            ("/", "/", Some("")),
            ("/", "/a", None),
            ("/a", "/a", Some("")),
            ("/a", "/A", None),
            ("/a", "/a/", None),
            ("/a", "/a.", None),
            ("/admin/*", "/admin/", Some("")),
            ("/admin/*", "/admin/a/b", Some("a/b")),
            ("/admin/*", "/admin", None),
            ("/admin/*", "/administrator/x", None),
            ("/admin*", "/administrator/x", Some("istrator/x")),
            ("/*", "/", Some("")),
            ("/*", "/a/b", Some("a/b")),
            ("*", "/a/b", Some("a/b")),
            ("*.php", "/a/b.php", Some("a/b")),
            ("*.php", "/.php", Some("")),
            ("*.php", "/a.php/b", None),
            ("*.php", "/a.php.php", Some("a.php")),
            ("/img/*.png", "/img/a.png", Some("a")),
            ("/img/*.png", "/img/a/b.png", None),
            ("/*/feed.xml", "/blog/feed.xml", Some("blog")),
            ("/*/feed.xml", "/a/b/feed.xml", None),
            ("*/feed.xml", "/feed.xml", Some("")),
            ("*/feed.xml", "/a/b/feed.xml", Some("a/b")),
            ("*/feed.xml", "/a/xfeed.xml", None),
            ("/a*b*c", "/aXbYc", Some("Y")),
            ("/a*b*", "/aXb/Y", Some("/Y")),
            ("*/a*b", "/x/ac/ab", Some("")),
            ("*/a*b", "/x/a/ab/acb", Some("c")),
            ("*a*b", "/aa/axb", Some("x")),
            ("*a*b*", "/xaybz/z", Some("z/z")),
        ] {
            assert_eq!(rest(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn keys_are_whole_segments() {
        let key = |pattern| PathPattern::new(pattern).key();
        assert_eq!(key("/a/b"), Key::Exact(b"a/b".to_vec()));
        assert_eq!(key("/a/b*"), Key::Segments(b"a/".to_vec()));
        assert_eq!(key("/a/b/c/d/e/*"), Key::Segments(b"a/b/c/".to_vec()));
        assert_eq!(key("/a*"), Key::Any);
        assert_eq!(key("*.a/b"), Key::Any);
    }

    /// The definition of a match, by trying every possibility.
    fn matches_slowly(pattern: &[u8], path: &[u8], leading: bool) -> bool {
        match pattern {
            [] => path.is_empty(),
            [b'*', rest @ ..] => {
                let crosses = rest.is_empty() || leading;
                (0..=path.len())
                    .any(|run| (crosses || !path[..run].contains(&b'/')) && matches_slowly(rest, &path[run..], false))
            }
            [byte, rest @ ..] => path.first() == Some(byte) && matches_slowly(rest, &path[1..], false),
        }
    }

    proptest! {
        #[test]
        fn matching_is_the_definition(pattern in "[/*][ab/*]{0,8}", path in "/[ab/]{0,10}") {
            prop_assume!(!pattern.contains("**"));
            // A pattern that begins with a star is compared with the path and its slash.
            let expected = if pattern.starts_with('*') {
                (0..=path.len()).any(|run| {
                    matches_slowly(&pattern.as_bytes()[1..], &path.as_bytes()[run..], false)
                })
            } else {
                matches_slowly(pattern.as_bytes(), path.as_bytes(), false)
            };
            let decoded = &path.as_bytes()[1..];
            prop_assert_eq!(PathPattern::new(&pattern).match_path(decoded).is_some(), expected, "{} {}", pattern, path);
        }

        #[test]
        fn value_matching_is_the_definition(pattern in "[ab*]{0,8}", value in "[ab]{0,10}") {
            prop_assert_eq!(
                match_value(pattern.as_bytes(), value.as_bytes()),
                {
                    fn slow(pattern: &[u8], value: &[u8]) -> bool {
                        match pattern {
                            [] => value.is_empty(),
                            [b'*', rest @ ..] => (0..=value.len()).any(|run| slow(rest, &value[run..])),
                            [byte, rest @ ..] => value.first() == Some(byte) && slow(rest, &value[1..]),
                        }
                    }
                    slow(pattern.as_bytes(), value.as_bytes())
                }
            );
        }
    }
}
