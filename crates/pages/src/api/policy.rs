//! What a page says about who may keep it, as header fields (RFC 9111 §5.2.2, RFC 9213, RFC 5861).

use std::fmt::Write as _;

/// Tags of one page at the most.
pub const TAGS_MAX: usize = 64;
/// Bytes of one tag at the most.
pub const TAG_BYTES_MAX: usize = 128;
/// Seconds of any time here at the most: a year.
pub const SECONDS_MAX: u64 = 31_536_000;

/// What is sent with a page that says nothing: everyone asks again, and no cache shares it.
pub const DEFAULT: &str = "Cache-Control: private, no-cache\r\n";

/// What a page says about who may keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    /// How long it is fresh, in seconds.
    pub fresh_s: u64,
    /// How long browsers think it fresh, when that is another time.
    pub browser_s: Option<u64>,
    /// How long it may be given out stale while it is fetched anew.
    pub revalidate_s: Option<u64>,
    /// How long it may be given out stale while it cannot be fetched.
    pub error_s: Option<u64>,
    /// Only the browser may keep it.
    pub private: bool,
    /// Names under which it can be purged.
    pub tags: Vec<Box<str>>,
}

/// Whether `tag` can be one: visible ASCII without a comma.
pub fn is_tag(tag: &[u8]) -> bool {
    (1..=TAG_BYTES_MAX).contains(&tag.len()) && tag.iter().all(|&byte| byte.is_ascii_graphic() && byte != b',')
}

/// `60`, `60s`, `5m`, `2h` or `1d`, in seconds; `None` for anything else, and for more than [`SECONDS_MAX`].
pub fn parse_seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let factor = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|&seconds| seconds <= SECONDS_MAX)
}

impl CachePolicy {
    /// Appends the field lines, each `Name: value` and CR LF.
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
                // Caches in front of us read this one instead (RFC 9213 §2.2).
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
    use super::{CachePolicy, is_tag, parse_seconds};

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
