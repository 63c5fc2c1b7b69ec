//! The settings of a `files` step, prepared for use.

use flatout_config::model::{Compression, EncodedExtension, Files, Listing, TryTarget};
use flatout_http::encoding::ContentCoding;

/// A file is encoded at run time only if it is at most one in this many parts of the cache's bytes. The encoding of a
/// larger file would evict too many others.
const ENCODE_SHARE: usize = 4;

/// Default maximum number of entries in a listing.
const LISTING_ENTRIES: u32 = 10_000;

/// The settings of a `files` step.
#[derive(Debug)]
pub(crate) struct FileRules {
    pub(crate) index: Vec<Vec<u8>>,
    pub(crate) hidden: bool,
    pub(crate) listing: Option<Listing>,
    /// Paths to try before the request path itself.
    pub(crate) tries_before: Vec<TryTarget>,
    /// Paths to try after the request path itself.
    pub(crate) tries_after: Vec<TryTarget>,
    /// Codings and levels of the encodings created at run time.
    pub(crate) compress: Vec<Compression>,
    /// Codings of precompressed files.
    pub(crate) precompressed: Vec<ContentCoding>,
    /// Extensions of files that are stored encoded.
    pub(crate) encoded: Vec<EncodedExtension>,
    /// Maximum size of a file that is encoded at run time, in bytes.
    pub(crate) encode_bytes_max: u64,
    /// True if digests are sent on request.
    pub(crate) digest: bool,
    /// True if Repr-Digest is always sent.
    pub(crate) digest_always: bool,
    pub(crate) content_md5: bool,
    cache_control: Vec<(String, String)>,
    expires: Vec<(String, u32)>,
}

impl FileRules {
    pub(crate) fn new(settings: &Files, bytes_max: usize) -> Self {
        let (tries_before, tries_after) = settings.split_tries();
        Self {
            index: settings.index.iter().map(|name| name.clone().into_bytes()).collect(),
            hidden: settings.hidden,
            listing: settings.listing.map(|listing| match listing.entries_max {
                0 => Listing { entries_max: LISTING_ENTRIES },
                _ => listing,
            }),
            tries_before: tries_before.to_vec(),
            tries_after: tries_after.to_vec(),
            compress: settings.compress.clone(),
            precompressed: settings.precompressed.clone(),
            encoded: settings.encoded.clone(),
            encode_bytes_max: (bytes_max / ENCODE_SHARE) as u64,
            digest: settings.digest || settings.digest_always,
            digest_always: settings.digest_always,
            content_md5: settings.content_md5,
            cache_control: settings.cache_control.clone(),
            expires: settings.expires.clone(),
        }
    }

    /// Returns whether a response can depend on Accept-Encoding.
    pub(crate) const fn offers_codings(&self) -> bool {
        !self.compress.is_empty() || !self.precompressed.is_empty()
    }

    /// Returns the value of Cache-Control, and the seconds until Expires, for `content_type`. The first pattern that
    /// matches decides, separately for each field.
    pub(crate) fn freshness(&self, content_type: &str) -> (Option<String>, Option<u32>) {
        let cache_control = self.cache_control.iter().find(|(pattern, _)| matches_type(pattern, content_type));
        let expires = self.expires.iter().find(|(pattern, _)| matches_type(pattern, content_type));
        (cache_control.map(|(_, value)| value.clone()), expires.map(|(_, seconds)| *seconds))
    }
}

/// Returns whether `pattern` (`text/html`, `image/*` or `*`) matches `content_type`, ignoring its parameters.
fn matches_type(pattern: &str, content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim_end();
    if matches!(pattern, "*" | "*/*") {
        return true;
    }
    match pattern.strip_suffix("/*") {
        Some(family) => essence.split('/').next().is_some_and(|own| own.eq_ignore_ascii_case(family)),
        None => essence.eq_ignore_ascii_case(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::{FileRules, matches_type};
    use flatout_config::model::Files;

    #[test]
    fn patterns_of_types() {
        for (pattern, content_type, expected) in [
            ("*", "image/png", true),
            ("*/*", "image/png", true),
            ("image/*", "image/png", true),
            ("IMAGE/*", "image/png", true),
            ("image/*", "text/html; charset=utf-8", false),
            ("text/html", "text/html; charset=utf-8", true),
            ("text/htm", "text/html; charset=utf-8", false),
        ] {
            assert_eq!(matches_type(pattern, content_type), expected, "{pattern} {content_type}");
        }
    }

    #[test]
    fn the_first_pattern_that_matches_counts() {
        let line = |pattern: &str, value: &str| (pattern.to_owned(), value.to_owned());
        let settings = Files {
            cache_control: vec![line("text/html", "no-cache"), line("*", "max-age=60")],
            expires: vec![("image/*".to_owned(), 5)],
            ..Files::default()
        };
        let rules = FileRules::new(&settings, 1000);
        assert_eq!(rules.freshness("text/html; charset=utf-8"), (Some("no-cache".to_owned()), None));
        assert_eq!(rules.freshness("image/png"), (Some("max-age=60".to_owned()), Some(5)));
    }
}
