//! Entity tags of files (RFC 9110 §8.8.1). They are the same on every machine that has a copy of the file.
//!
//! - The tag of a content in memory is its digest, so two contents never share one.
//! - The tag of a larger file is made from its modification time and a sample of its content, unless the time may be the
//!   same for another content. Then it is the digest, and until that is computed, the file has no tag. Two contents share
//!   a tag that is made from the time only if a program dates a file back after it has changed only the middle.
//!
//! The size is part of every tag. Inode, device and change time are part of none, because they differ among copies.

use crate::digests::Digests;
use aws_lc_rs::digest::{Context, SHA256};
use flatout_http::base64::BASE64;
use flatout_os::file::{ContentSample, FileIdentity};

/// Bytes of a hash in a tag, which need no padding in Base64.
const HASH_BYTES: usize = 15;

const SECOND_NS: i128 = 1_000_000_000;

/// 1990-01-01, in nanoseconds since 1970. Tools that build the same archive each time date its files 0, 1 or 1980.
const DATES_BEGIN_NS: i128 = 631_152_000 * SECOND_NS;

/// Returns whether the modification time is a date, and not what tools write instead of one.
pub(crate) const fn is_date(modified_ns: i128) -> bool {
    modified_ns >= DATES_BEGIN_NS
}

/// Returns whether another content of the same file would have another modification time, if the file has not changed
/// for a tick. Archives and some file systems store whole seconds, and build tools give all files one time, also in
/// whole seconds.
pub(crate) const fn is_telling(modified_ns: i128) -> bool {
    is_date(modified_ns) && modified_ns % SECOND_NS != 0
}

/// Returns the tag of `content`.
pub(crate) fn of_content(content: &[u8]) -> String {
    let mut hash = Context::new(&SHA256);
    hash.update(content);
    format_tag(content.len() as u64, hash.finish().as_ref())
}

/// Returns the tag of a content of `size_bytes` bytes with `digests`. It is the same as that of [`of_content`].
pub(crate) fn of_digests(size_bytes: u64, digests: &Digests) -> String {
    format_tag(size_bytes, digests.sha256())
}

/// Returns the tag of a file whose modification time [tells](is_telling). The sample protects files that a program has
/// changed and dated back.
pub(crate) fn of_time(identity: &FileIdentity, sample: &ContentSample) -> String {
    let mut hash = Context::new(&SHA256);
    hash.update(&identity.modified_ns.to_le_bytes());
    hash.update(sample.bytes());
    format_tag(identity.size_bytes, hash.finish().as_ref())
}

fn format_tag(size_bytes: u64, hash: &[u8]) -> String {
    format!("{size_bytes:x}-{}", BASE64.encode(&hash[..HASH_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::{is_telling, of_content, of_digests};
    use crate::digests::Digests;

    #[test]
    fn a_digest_makes_the_tag_of_its_content() {
        // The first 15 bytes of the SHA-256 of "abc" (FIPS 180-2 B.1).
        assert_eq!(of_content(b"abc"), "3-ungWv48Bz+pBQUDeXa4i");
        assert_eq!(of_digests(3, &Digests::of_bytes(b"abc")), of_content(b"abc"));
    }

    #[test]
    fn a_time_in_whole_seconds_or_before_1990_does_not_tell_contents_apart() {
        for (modified_ns, tells) in [
            // A time in the future is no other one after it has passed.
            (4_000_000_000_000_000_001, true),
            (4_000_000_000_000_000_000, false),
            (0, false),
            (1_000_000_001, false),
            (315_532_800_000_000_001, false),
            (1_700_000_000_000_000_000, false),
            (1_700_000_000_001_000_000, true),
            (-1, false),
        ] {
            assert_eq!(is_telling(modified_ns), tells, "{modified_ns}");
        }
    }
}
