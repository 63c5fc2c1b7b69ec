//! Encoding of an object in a volume's index.
//!
//! | bytes | contents |
//! |---|---|
//! | 16 | the first half of the SHA-256 of all that follows |
//! | 8, 8 | generation; until when it is useful, in seconds since 1970 |
//! | 4 each | lengths of key, variant, metadata, lines; where the locator begins and ends in the key |
//! | 2 | how many tags |
//! | 1, 8, 16 | kind of body (0 none, 1 in the index, 2 a file), its length, its checksum or the file's name |
//! | | tags (8 bytes each), key, variant, metadata, lines |
//!
//! Numbers are big-endian. A record is valid if its checksum matches and its length is exact.

use crate::folder::FileId;
use crate::object::{Meta, Object};
use crate::purge::Subject;
use crate::seal::file_bytes;
use aws_lc_rs::digest::{SHA256, digest};

/// Checksum: the first half of a SHA-256, which is sufficient to detect accidental damage.
pub(crate) type Checksum = [u8; 16];

/// Name of a record: 16 bytes for the key and 16 bytes for the variant.
pub(crate) type Id = [u8; 32];

/// Name of a key: the part that the names of all its variants have in common.
pub(crate) type Primary = [u8; 16];

pub(crate) fn checksum(bytes: &[u8]) -> Checksum {
    let mut sum = [0; 16];
    sum.copy_from_slice(&digest(&SHA256, bytes).as_ref()[..16]);
    sum
}

/// Returns the name of `key`. Has no random seed, so that it is the same after each restart. Collisions are harmless,
/// because the full key is compared.
pub(crate) fn primary_of(key: &[u8]) -> Primary {
    checksum(key)
}

/// Returns the name of a variant.
pub(crate) fn id_of(primary: &Primary, variant: &[u8]) -> Id {
    let mut id = [0; 32];
    id[..16].copy_from_slice(primary);
    id[16..].copy_from_slice(&checksum(variant));
    id
}

pub(crate) fn primary_in(id: &Id) -> Primary {
    let mut primary = [0; 16];
    primary.copy_from_slice(&id[..16]);
    primary
}

/// Location of a record's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentLocation {
    None,
    Inline { bytes: u64, sum: Checksum },
    File { bytes: u64, id: FileId },
}

impl ContentLocation {
    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Inline { bytes, .. } | Self::File { bytes, .. } => bytes,
        }
    }
}

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) generation: u64,
    pub(super) useful_until_s: u64,
    pub(super) tags: Vec<u64>,
    pub(super) key: &'a [u8],
    pub(super) locator: std::ops::Range<usize>,
    pub(super) variant: &'a [u8],
    pub(super) meta: &'a [u8],
    pub(super) lines: &'a [u8],
    pub(super) content: ContentLocation,
}

/// Size in bytes of the fixed-length fields at the beginning of a record.
const FIXED_BYTES: usize = 16 + 8 + 8 + 6 * 4 + 2 + 1 + 8 + 16;

impl<'a> Record<'a> {
    /// Decodes a record. Returns `None` if it is invalid.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (sum, rest) = bytes.split_at_checked(16)?;
        (checksum(rest) == sum).then(|| Self::decode_unchecked(bytes)).flatten()
    }

    /// Decodes a record without verifying its checksum, for scans of the whole index.
    pub(super) fn decode_unchecked(bytes: &'a [u8]) -> Option<Self> {
        let fixed = bytes.get(16..FIXED_BYTES)?;
        let mut rest = &bytes[FIXED_BYTES..];
        let long = |at: usize| fixed[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let length = |at: usize| fixed[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let lengths = [length(16), length(20), length(24), length(28)];
        let locator = length(32)..length(36);
        let tag_count = usize::from(fixed[40]) << 8 | usize::from(fixed[41]);
        let mut last = [0; 16];
        last.copy_from_slice(&fixed[51..67]);
        let content = match (fixed[42], long(43)) {
            (0, 0) => ContentLocation::None,
            (1, bytes) => ContentLocation::Inline { bytes, sum: last },
            (2, bytes) => ContentLocation::File { bytes, id: FileId::decode(u128::from_be_bytes(last)) },
            _ => return None,
        };
        let mut take = |count: usize| -> Option<&'a [u8]> {
            let (part, after) = rest.split_at_checked(count)?;
            rest = after;
            Some(part)
        };
        let tags = take(tag_count * 8)?;
        let tags = tags.chunks(8).map(|tag| tag.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))).collect();
        let [key, variant, meta, lines] = [take(lengths[0])?, take(lengths[1])?, take(lengths[2])?, take(lengths[3])?];
        let is_whole = rest.is_empty() && key.get(locator.clone()).is_some();
        is_whole.then_some(Self {
            generation: long(0),
            useful_until_s: long(8),
            tags,
            key,
            locator,
            variant,
            meta,
            lines,
            content,
        })
    }

    /// Returns the data that purges compare.
    pub(super) fn subject(&self) -> Subject<'_> {
        let locator = &self.key[self.locator.clone()];
        Subject { key: self.key, locator, tags: &self.tags, generation: self.generation }
    }
}

/// Encodes the record of an object. Returns `None` if a field is too long.
pub(super) fn encode<M: Meta>(object: &Object<M>, content: ContentLocation) -> Option<Vec<u8>> {
    let mut meta = Vec::new();
    object.meta().encode(&mut meta);
    let mut bytes = vec![0; 16];
    bytes.extend_from_slice(&object.generation().to_be_bytes());
    bytes.extend_from_slice(&object.meta().useful_until_s().to_be_bytes());
    let key = object.key();
    for length in [key.as_bytes().len(), object.variant().len(), meta.len(), object.lines().len()] {
        bytes.extend_from_slice(&u32::try_from(length).ok()?.to_be_bytes());
    }
    let (start, end) = key.locator_range();
    bytes.extend_from_slice(&start.to_be_bytes());
    bytes.extend_from_slice(&end.to_be_bytes());
    bytes.extend_from_slice(&u16::try_from(object.tags().len()).ok()?.to_be_bytes());
    let (kind, last) = match content {
        ContentLocation::None => (0, [0; 16]),
        ContentLocation::Inline { sum, .. } => (1, sum),
        ContentLocation::File { id, .. } => (2, id.encode().to_be_bytes()),
    };
    bytes.push(kind);
    bytes.extend_from_slice(&content.bytes().to_be_bytes());
    bytes.extend_from_slice(&last);
    debug_assert_eq!(bytes.len(), FIXED_BYTES);
    for tag in object.tags() {
        bytes.extend_from_slice(&tag.to_be_bytes());
    }
    for part in [key.as_bytes(), object.variant(), &meta, object.lines()] {
        bytes.extend_from_slice(part);
    }
    let sum = checksum(&bytes[16..]);
    bytes[..16].copy_from_slice(&sum);
    Some(bytes)
}

/// Returns the estimated size in bytes of a record and its content on a volume.
pub(super) fn cost(record_bytes: usize, content: ContentLocation) -> u64 {
    /// Overhead of rows in three tables and of partly filled pages, as measured.
    const ROWS_BYTES: u64 = 200;
    const PAGE_BYTES: u64 = 4_096;
    let content = match content {
        ContentLocation::None => 0,
        ContentLocation::Inline { bytes, .. } if bytes <= PAGE_BYTES / 2 => bytes + bytes / 3,
        // redb allocates a power of two of pages for each such row.
        ContentLocation::Inline { bytes, .. } => (bytes + 64).div_ceil(PAGE_BYTES).next_power_of_two() * PAGE_BYTES,
        ContentLocation::File { bytes, .. } => file_bytes(bytes).div_ceil(PAGE_BYTES) * PAGE_BYTES,
    };
    record_bytes as u64 + ROWS_BYTES + content
}

#[cfg(test)]
mod tests {
    use super::{ContentLocation, Record, checksum, encode};
    use crate::folder::FileId;
    use crate::object::{Object, ObjectKey};
    use crate::tests::{Note, memory_body};

    #[test]
    fn a_record_is_whole_or_nothing() {
        let note = Note { tags: vec![b"t".to_vec(), b"u".to_vec()], useful_until_s: 77, text: b"etag".to_vec() };
        let key = ObjectKey::new(b"http://a.b/c", 7..12, 1);
        let object = Object::new(key, b"gzip", note, b"A: b\r\n"[..].into(), memory_body(b"content"), 5);
        let contents = [
            ContentLocation::None,
            ContentLocation::Inline { bytes: 7, sum: checksum(b"content") },
            ContentLocation::File { bytes: 1 << 40, id: FileId { stamp: 3, number: 9 } },
        ];
        for content in contents {
            let bytes = encode(&object, content).unwrap();
            let record = Record::decode(&bytes).unwrap();
            assert_eq!((record.generation, record.useful_until_s, record.content), (5, 77, content));
            assert_eq!(
                (record.key, record.variant, record.lines),
                (&b"http://a.b/c"[..], &b"gzip"[..], &b"A: b\r\n"[..])
            );
            assert_eq!((record.subject().locator, record.tags.as_slice()), (&b"a.b/c"[..], object.tags()));
            for end in 0..bytes.len() {
                assert_eq!(Record::decode(&bytes[..end]), None);
                assert_eq!(Record::decode_unchecked(&bytes[..end]), None);
                let mut wrong = bytes.clone();
                wrong[end] ^= 1;
                assert_eq!(Record::decode(&wrong), None, "{end}");
                let _ = Record::decode_unchecked(&wrong);
            }
            assert_eq!(Record::decode(&[&bytes[..], b"x"].concat()), None);
        }
    }
}
