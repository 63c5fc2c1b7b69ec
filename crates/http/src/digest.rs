//! Digest fields (RFC 9530): negotiation and formatting. Callers compute the digests.

use crate::base64::BASE64;
use crate::structured::parse_dictionary;
use sfv::{BareItem, ListEntry};

flatout_reason::reasons! {
    /// Hash algorithm for digests: the active algorithms of RFC 9530 §5.
    pub enum DigestAlgorithm { name, }
    /// `sha-256`.
    Sha256, "sha-256";
    /// `sha-512`.
    Sha512, "sha-512";
}

/// Selects the digest algorithm that a client prefers according to its Want-Repr-Digest or Want-Content-Digest lines.
/// Each line is a dictionary of algorithms and integers from 0, "not acceptable", to 10, "most preferred" (RFC 9530
/// §4). Ignores unsupported algorithms, and preferences that are not integers or are out of range. Returns `None` if no
/// algorithm is acceptable, or if a line violates the grammar.
///
/// Each line is parsed separately, because values that span lines do not occur in practice.
pub fn choose_digest<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<DigestAlgorithm> {
    let mut preferences = [0_i64; DigestAlgorithm::ALL.len()];
    for line in lines {
        let members = parse_dictionary([line])?;
        for (algorithm, preference) in DigestAlgorithm::ALL.iter().copied().zip(&mut preferences) {
            *preference = match members.get(algorithm.name()) {
                Some(ListEntry::Item(item)) => match item.bare_item {
                    BareItem::Integer(value) if (0..=10).contains(&i64::from(value)) => value.into(),
                    _ => 0,
                },
                Some(ListEntry::InnerList(_)) => 0,
                None => *preference,
            };
        }
    }
    let mut best = (None, 0);
    for (algorithm, preference) in DigestAlgorithm::ALL.iter().copied().zip(preferences) {
        if preference > best.1 {
            best = (Some(algorithm), preference);
        }
    }
    best.0
}

/// Formats the value of Repr-Digest or Content-Digest: `sha-256=:…:` (RFC 9530 §2, §3; a byte sequence of RFC 9651
/// §3.3.5).
pub fn format_digest(algorithm: DigestAlgorithm, digest: &[u8]) -> String {
    format!("{}=:{}:", algorithm.name(), BASE64.encode(digest))
}

#[cfg(test)]
mod tests {
    use super::{DigestAlgorithm, choose_digest, format_digest};
    use DigestAlgorithm::{Sha256, Sha512};

    #[test]
    fn preferences_decide() {
        for (value, expected) in [
            ("sha-256=1", Some(Sha256)),
            ("sha-512=3, sha-256=10, unixsum=0", Some(Sha256)),
            ("sha-512=10, sha-256=1", Some(Sha512)),
            ("sha-512=5, sha-256=5", Some(Sha256)),
            ("sha-256=0", None),
            ("sha-256=0, sha-512=1", Some(Sha512)),
            ("sha-256=11", None),
            ("sha-256=-1, sha-512=1", Some(Sha512)),
            ("sha-256=1.0", None),
            ("sha-256", None),
            ("md5=10", None),
            ("sha-256=1;x=2", Some(Sha256)),
            ("sha-256=10, sha-256=0", None),
            ("SHA-256=1", None),
            ("sha-256=1,", None),
            ("", None),
        ] {
            assert_eq!(choose_digest([value.as_bytes()]), expected, "{value:?}");
        }
        assert_eq!(choose_digest([&b"sha-256=1"[..], b"sha-512=2"]), Some(Sha512));
        assert_eq!(choose_digest([]), None);
    }

    /// RFC 9530 §2.
    #[test]
    fn a_digest_is_a_byte_sequence() {
        assert_eq!(format_digest(Sha256, &[0; 4]), "sha-256=:AAAAAA==:");
    }
}
