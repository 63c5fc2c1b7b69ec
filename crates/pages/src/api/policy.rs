//! The caching policy of a page's response, as header fields (RFC 9111 §5.2.2, RFC 9213, RFC 5861).

use crate::exchange::draft::Draft;
use flatout_http::token::trim;
use flatout_units::quantity::{SECOND, parse_duration};
use std::fmt::Write as _;

/// Maximum number of tags per page.
pub const TAGS_MAX: usize = 64;
/// Maximum length of a tag, in bytes.
pub const TAG_BYTES_MAX: usize = 128;
/// Longest duration of any kind in a policy, in seconds: a year.
pub const SECONDS_MAX: u64 = 31_536_000;

/// The default policy: browsers must revalidate, and shared caches must not store the response.
pub const DEFAULT: &str = "Cache-Control: private, no-cache\r\n";

/// The policy of a response that is private to one visitor, if the page sets a policy that would share it.
const PRIVATE: &[u8] = b"private, no-cache";

/// Returns whether a value of Cache-Control excludes shared caches (RFC 9111 §5.2.2): it contains `private` without a
/// list of fields, or `no-store`, and no directive that contradicts it.
fn is_private(value: &[u8]) -> bool {
    let mut is_private = false;
    for directive in value.split(|&byte| byte == b',').map(trim) {
        let name = directive.split(|&byte| byte == b'=').next().unwrap_or_default();
        if name.eq_ignore_ascii_case(b"public") || name.eq_ignore_ascii_case(b"s-maxage") {
            return false;
        }
        is_private |= directive.eq_ignore_ascii_case(b"private") || directive.eq_ignore_ascii_case(b"no-store");
    }
    is_private
}

/// Returns whether the field `name` sets a caching policy: Cache-Control, a targeted field (RFC 9213 §2), or the older
/// Surrogate-Control.
fn is_policy(name: &[u8]) -> bool {
    const TARGETED: &[u8] = b"-cache-control";
    let is_targeted =
        name.len().checked_sub(TARGETED.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(TARGETED));
    is_targeted || name.eq_ignore_ascii_case(b"cache-control") || name.eq_ignore_ascii_case(b"surrogate-control")
}

/// Returns whether `draft` allows shared caches to store the response. Without a policy, [`DEFAULT`] applies, which
/// does not.
pub fn is_shared(draft: &Draft) -> bool {
    draft.fields().any(|(name, value)| is_policy(name) && !is_private(value))
}

/// Makes the response private to one visitor: fields with a caching policy that would allow shared caches to store it
/// are replaced with `private, no-cache`.
pub fn make_private(draft: &mut Draft) {
    let wrong: Vec<Vec<u8>> = draft
        .fields()
        .filter(|(name, value)| is_policy(name) && !is_private(value))
        .map(|(name, _)| name.to_vec())
        .collect();
    if wrong.is_empty() {
        return;
    }
    for name in wrong.iter().map(Vec::as_slice).chain([&b"Surrogate-Key"[..]]) {
        draft.remove_field(name);
    }
    if draft.field(b"Cache-Control").is_none() {
        draft.add_field(b"Cache-Control", PRIVATE);
    }
}

/// Replaces all fields with a caching policy, so that no cache stores the response.
pub fn forbid_storing(draft: &mut Draft) {
    let known: Vec<Vec<u8>> =
        draft.fields().filter(|(name, _)| is_policy(name)).map(|(name, _)| name.to_vec()).collect();
    for name in known.iter().map(Vec::as_slice).chain([&b"Surrogate-Key"[..]]) {
        draft.remove_field(name);
    }
    draft.add_field(b"Cache-Control", b"no-store");
}

/// Ensures that Vary contains `field` (RFC 9110 §12.5.5), in addition to the existing names.
pub fn vary(draft: &mut Draft, field: &[u8]) {
    let lines: Vec<&[u8]> =
        draft.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"vary")).map(|(_, value)| value).collect();
    let named = lines.iter().flat_map(|line| line.split(|&byte| byte == b',')).map(trim);
    if named.clone().any(|name| name == b"*" || name.eq_ignore_ascii_case(field)) {
        return;
    }
    let mut all = lines.join(&b", "[..]);
    if !all.is_empty() {
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(field);
    draft.set_field(b"Vary", &all);
}

/// The caching policy that a page sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    /// Freshness lifetime in shared caches, in seconds, and in browsers unless `browser_s` is set.
    pub fresh_s: u64,
    /// Freshness lifetime in browsers, in seconds, if it is different.
    pub browser_s: Option<u64>,
    /// Value of stale-while-revalidate, in seconds.
    pub revalidate_s: Option<u64>,
    /// Value of stale-if-error, in seconds.
    pub error_s: Option<u64>,
    /// True if only browsers may store the response.
    pub private: bool,
    /// Tags by which the stored response can be purged.
    pub tags: Vec<Box<str>>,
}

/// Returns whether `tag` is valid: visible ASCII characters without commas.
pub fn is_tag(tag: &[u8]) -> bool {
    (1..=TAG_BYTES_MAX).contains(&tag.len()) && tag.iter().all(|&byte| byte.is_ascii_graphic() && byte != b',')
}

/// Parses a number of seconds such as `60`, or a duration in whole seconds with a unit such as `5m`. Returns `None` for
/// anything else, and for durations above [`SECONDS_MAX`].
pub fn parse_seconds(text: &str) -> Option<u64> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    let duration = if is_bare { parse_duration(&format!("{text}s"), SECOND) } else { parse_duration(text, SECOND) };
    duration.ok().filter(|&seconds| seconds <= SECONDS_MAX)
}

impl CachePolicy {
    /// Appends the field lines of the policy, each consisting of `Name: value` and CR LF.
    pub fn write_lines(&self, out: &mut String) {
        // Writing to a String cannot fail.
        if self.private {
            let _ = write!(out, "Cache-Control: private, max-age={}\r\n", self.fresh_s);
            return;
        }
        let mut stale = String::new();
        if let Some(seconds) = self.revalidate_s {
            let _ = write!(stale, ", stale-while-revalidate={seconds}");
        }
        if let Some(seconds) = self.error_s {
            let _ = write!(stale, ", stale-if-error={seconds}");
        }
        match self.browser_s {
            Some(browser_s) => {
                let _ = write!(out, "Cache-Control: public, max-age={browser_s}\r\n");
                // CDNs and reverse proxies use this field instead of Cache-Control (RFC 9213 §2.2).
                let _ = write!(out, "CDN-Cache-Control: public, max-age={}{stale}\r\n", self.fresh_s);
            }
            None => {
                let _ = write!(out, "Cache-Control: public, max-age={}{stale}\r\n", self.fresh_s);
            }
        }
        if !self.tags.is_empty() {
            out.push_str("Surrogate-Key:");
            for tag in &self.tags {
                out.push(' ');
                out.push_str(tag);
            }
            out.push_str("\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CachePolicy, is_shared, is_tag, make_private, parse_seconds, vary};
    use crate::exchange::draft::Draft;

    fn draft(lines: &[&str]) -> Draft {
        let mut draft = Draft::default();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            draft.add_field(name.as_bytes(), value.as_bytes());
        }
        draft
    }

    fn lines_of(draft: &Draft) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        draft.fields().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
    }

    #[test]
    fn what_is_one_visitor_s_own_is_said_to_be() {
        const MADE: &str = "Cache-Control: private, no-cache";
        for (before, after) in [
            (&[][..], &[][..]),
            (&["Cache-Control: private, max-age=60"], &["Cache-Control: private, max-age=60"]),
            (&["cache-control: No-Store"], &["cache-control: No-Store"]),
            (&["Cache-Control: public, max-age=600"], &[MADE]),
            (&["Cache-Control: max-age=600"], &[MADE]),
            (&["Cache-Control: no-cache"], &[MADE]),
            (&["Cache-Control: private=\"set-cookie\", max-age=60"], &[MADE]),
            (&["Cache-Control: private, s-maxage=60"], &[MADE]),
            (&["Cache-Control: private", "Cache-Control: public"], &[MADE]),
            (&["CDN-Cache-Control: max-age=60", "Surrogate-Key: a"], &[MADE]),
            (&["Cache-Control: private", "Flatout-Cache-Control: max-age=60"], &["Cache-Control: private"]),
            (&["Cache-Control: private", "Surrogate-Control: max-age=60"], &["Cache-Control: private"]),
            (&["CDN-Cache-Control: no-store"], &["CDN-Cache-Control: no-store"]),
            (&["X-Cache: a", "Expires: 0"], &["X-Cache: a", "Expires: 0"]),
        ] {
            let mut draft = draft(before);
            assert_eq!(is_shared(&draft), lines_of(&draft) != after, "{before:?}");
            make_private(&mut draft);
            assert_eq!(lines_of(&draft), after, "{before:?}");
            assert!(!is_shared(&draft));
        }
    }

    #[test]
    fn vary_keeps_what_it_names() {
        for (before, after) in [
            (&[][..], "Vary: Cookie"),
            (&["Vary: Accept-Encoding"], "Vary: Accept-Encoding, Cookie"),
            (&["vary: Accept", "Vary: DNT"], "Vary: Accept, DNT, Cookie"),
            (&["Vary: Accept, cookie"], "Vary: Accept, cookie"),
            (&["Vary: *"], "Vary: *"),
        ] {
            let mut draft = draft(before);
            vary(&mut draft, b"Cookie");
            assert_eq!(lines_of(&draft), [after]);
        }
    }

    #[test]
    fn times() {
        for (text, expected) in [
            ("60", Some(60)),
            ("60s", Some(60)),
            ("5m", Some(300)),
            ("2h", Some(7200)),
            ("1d", Some(86_400)),
            ("0s", Some(0)),
            ("365d", Some(31_536_000)),
            ("366d", None),
            ("1w", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("1.5s", None),
            ("99999999999999999999s", None),
            ("1\u{e9}", None),
        ] {
            assert_eq!(parse_seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn lines() {
        let written = |policy: &CachePolicy| {
            let mut out = String::new();
            policy.write_lines(&mut out);
            out
        };
        let plain = CachePolicy { fresh_s: 60, ..CachePolicy::default() };
        assert_eq!(written(&plain), "Cache-Control: public, max-age=60\r\n");
        let private = CachePolicy { private: true, ..plain.clone() };
        assert_eq!(written(&private), "Cache-Control: private, max-age=60\r\n");
        let full = CachePolicy {
            browser_s: Some(0),
            revalidate_s: Some(30),
            error_s: Some(86_400),
            tags: vec!["a".into(), "b-2".into()],
            ..plain
        };
        assert_eq!(
            written(&full),
            "Cache-Control: public, max-age=0\r\nCDN-Cache-Control: public, max-age=60, stale-while-revalidate=30, \
             stale-if-error=86400\r\nSurrogate-Key: a b-2\r\n"
        );
    }

    #[test]
    fn tags() {
        assert!(is_tag(b"article-17") && is_tag(b"a:b/c"));
        assert!(
            !is_tag(b"") && !is_tag(b"a b") && !is_tag(b"a,b") && !is_tag(b"a\r\n") && !is_tag("\u{e9}".as_bytes())
        );
        assert!(!is_tag(&[b'a'; 129]));
    }
}
