//! The settings of a `files` step, in compiled form.

use flatout_config::model::{Coding, Files, Listing, TryTarget};
use flatout_http::encoding::ContentCoding;

/// Files up to this fraction of a store's bytes are encoded; the result of a larger one would evict everything else.
const ENCODE_SHARE: usize = 4;

/// Default entries of a listing.
const LISTING_ENTRIES: u32 = 10_000;

/// The settings.
#[derive(Debug)]
pub(crate) struct FileRules {
    pub(crate) index: Vec<Vec<u8>>,
    pub(crate) hidden: bool,
    pub(crate) listing: Option<Listing>,
    pub(crate) try_targets: Vec<TryTarget>,
    /// Codings created at run time.
    pub(crate) compress: Vec<ContentCoding>,
    /// Codings of precompressed files.
    pub(crate) precompressed: Vec<ContentCoding>,
    /// Upper bound of files encoded at run time, in bytes.
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
        Self {
            index: settings.index.iter().map(|name| name.clone().into_bytes()).collect(),
            hidden: settings.hidden,
            listing: settings.listing.map(|listing| match listing.entries_max {
                0 => Listing { entries_max: LISTING_ENTRIES },
                _ => listing,
            }),
            try_targets: settings.try_targets.clone(),
            compress: settings.compress.iter().copied().map(content_coding).collect(),
            precompressed: settings.precompressed.iter().copied().map(content_coding).collect(),
            encode_bytes_max: (bytes_max / ENCODE_SHARE) as u64,
            digest: settings.digest || settings.digest_always,
            digest_always: settings.digest_always,
            content_md5: settings.content_md5,
            cache_control: settings.cache_control.clone(),
            expires: settings.expires.clone(),
        }
    }

    /// Returns whether the selection may ever depend on Accept-Encoding.
    pub(crate) const fn offers_codings(&self) -> bool {
        !self.compress.is_empty() || !self.precompressed.is_empty()
    }

    /// Cache-Control and Expires for `content_type`: the first matching pattern of each.
    pub(crate) fn freshness(&self, content_type: &str) -> (Option<String>, Option<u32>) {
        let cache_control = self.cache_control.iter().find(|(pattern, _)| matches_type(pattern, content_type));
        let expires = self.expires.iter().find(|(pattern, _)| matches_type(pattern, content_type));
        (cache_control.map(|(_, value)| value.clone()), expires.map(|(_, seconds)| *seconds))
    }
}

const fn content_coding(coding: Coding) -> ContentCoding {
    match coding {
        Coding::Brotli => ContentCoding::Brotli,
        Coding::Zstd => ContentCoding::Zstd,
        Coding::Gzip => ContentCoding::Gzip,
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
