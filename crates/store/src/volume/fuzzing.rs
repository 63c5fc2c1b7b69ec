//! Checks of the decoders for data on a volume, for fuzzing.

use super::record::{Record, checksum, cost};
use crate::folder::FileId;
use crate::purge::PurgeTarget;
use crate::seal::{self, Identity};

/// Checks that a record is either decoded completely or rejected, and that every decoded record can be compared with a
/// purge. Adds a valid checksum, so that the code after the checksum is reached.
///
/// # Panics
/// Panics if a check fails.
pub fn check_record(bytes: &[u8]) {
    if let Some(record) = Record::decode(bytes) {
        assert_eq!(Record::decode_unchecked(bytes), Some(record));
    }
    let sealed = [&checksum(bytes)[..], bytes].concat();
    let record = Record::decode(&sealed);
    assert_eq!(record, Record::decode_unchecked(&sealed));
    let Some(record) = record else { return };
    let parts = [record.key, record.variant, record.meta, record.lines];
    let parts_bytes = parts.iter().map(|part| part.len()).sum::<usize>() + 8 * record.tags.len();
    assert!(parts_bytes < sealed.len() && record.locator.end <= record.key.len());
    assert_eq!(Record::decode_unchecked(&sealed[..sealed.len() - 1]), None);
    assert_eq!(Record::decode_unchecked(&[&sealed[..], b"x"].concat()), None);
    let subject = record.subject();
    assert!(PurgeTarget::All.names(&subject) && PurgeTarget::Key(record.key.into()).names(&subject));
    assert!(PurgeTarget::Url(subject.locator.into()).names(&subject));
    assert!(PurgeTarget::Prefix(subject.locator.into()).names(&subject));
    let _ = (PurgeTarget::Host(record.variant.into()).names(&subject), PurgeTarget::Tag(0).names(&subject));
    if record.content.bytes() < 1 << 40 {
        assert!(cost(sealed.len(), record.content) > sealed.len() as u64);
    }
}

/// Checks that every decoded purge target has the same encoding again, and that a seal with a valid checksum is either
/// the seal of its content or rejected.
///
/// # Panics
/// Panics if a check fails.
pub fn check_index(bytes: &[u8]) {
    if let Some(target) = PurgeTarget::decode(bytes) {
        assert_eq!(target.encode(), bytes);
    }
    let Some((&[count, size, ..], _)) = bytes.split_first_chunk::<2>() else { return };
    let identity = Identity {
        primary: checksum(&[count]),
        file: FileId::decode(u128::from_be_bytes(checksum(&[size]))),
        bytes: u64::from(size) << 14,
    };
    let sealed = [bytes, &checksum(bytes)].concat();
    if let Ok(sums) = seal::decode(&sealed, &identity) {
        assert_eq!(seal::encode(&identity, &sums), sealed);
    }
    // A seal with as many checksums as there are bytes is valid only if that is the number of chunks.
    let sums: Vec<u32> = bytes.iter().map(|byte| u32::from(*byte)).collect();
    let own = seal::encode(&identity, &sums);
    match seal::decode(&own, &identity) {
        Ok(found) => assert_eq!(*found, *sums),
        Err(_) => assert_ne!(sums.len() as u64, seal::chunk_count(identity.bytes)),
    }
}
