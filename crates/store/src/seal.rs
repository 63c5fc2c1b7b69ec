//! Seal of a body file: data after the content with which the content is verified.
//!
//! | offset | bytes | contents |
//! |---|---|---|
//! | 0 | n | the content |
//! | | | zeros up to a multiple of 4,096 |
//! | | 4 each | CRC32C of each chunk of 256 KiB, the last one of what is left |
//! | | 8 | `FLATOUT` and the format's number |
//! | | 16 | the hash of the key, as in the index |
//! | | 16 | the file's own name |
//! | | 8, 4 | bytes of the content; bytes of a chunk |
//! | | 16 | the first half of the SHA-256 of checksums and footer |
//!
//! Numbers are big-endian. The content is contiguous and begins at offset 0, so a range of the content is a range of
//! the file and can be sent with sendfile.
//!
//! This module does no I/O; callers read and write the files.

use crate::folder::FileId;
use crate::notice::VolumeEvent;
use crate::volume::record::{Primary, checksum};

/// Size of a chunk, which has one checksum, in bytes. Larger chunks would delay the first byte; smaller chunks would
/// cost more memory and reads.
pub(crate) const CHUNK_BYTES: u64 = 256 * 1024;

/// Alignment of the seal and of direct I/O, in bytes.
pub(crate) const PAGE_BYTES: u64 = 4_096;

const MAGIC: &[u8; 8] = b"FLATOUT\x01";

const FOOTER_BYTES: u64 = 8 + 16 + 16 + 8 + 4 + 16;

/// Identity of the content of a file, which the seal records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) primary: Primary,
    pub(crate) file: FileId,
    /// Length of the content in bytes.
    pub(crate) bytes: u64,
}

/// Returns the number of chunks in `bytes` bytes of content.
pub(crate) const fn chunk_count(bytes: u64) -> u64 {
    bytes.div_ceil(CHUNK_BYTES)
}

/// Returns the offset of the seal for `bytes` bytes of content.
pub(crate) const fn seal_offset(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES
}

/// Returns the length in bytes of the seal for `bytes` bytes of content.
pub(crate) const fn seal_bytes(bytes: u64) -> u64 {
    chunk_count(bytes) * 4 + FOOTER_BYTES
}

/// Returns the length in bytes of a sealed file with `bytes` bytes of content.
pub(crate) const fn file_bytes(bytes: u64) -> u64 {
    seal_offset(bytes) + seal_bytes(bytes)
}

/// Calculates the chunk checksums of content as it arrives.
#[derive(Debug, Default)]
pub(crate) struct ChunkSums {
    done: Vec<u32>,
    open: u32,
    open_bytes: u64,
}

impl ChunkSums {
    /// Adds the next bytes of the content.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = bytes.len().min((CHUNK_BYTES - self.open_bytes) as usize);
            let (part, rest) = bytes.split_at(count);
            self.open = crc32c::crc32c_append(self.open, part);
            self.open_bytes += count as u64;
            if self.open_bytes == CHUNK_BYTES {
                self.done.push(self.open);
                (self.open, self.open_bytes) = (0, 0);
            }
            bytes = rest;
        }
    }

    /// Returns the checksums of all chunks.
    pub(crate) fn finish(mut self) -> Box<[u32]> {
        if self.open_bytes > 0 {
            self.done.push(self.open);
        }
        self.done.into()
    }
}

/// Returns the checksum of a chunk.
pub(crate) fn sum(chunk: &[u8]) -> u32 {
    crc32c::crc32c(chunk)
}

/// Encodes the seal for the content `identity` with these chunk checksums.
pub(crate) fn encode(identity: &Identity, sums: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sums.len() * 4 + FOOTER_BYTES as usize);
    for sum in sums {
        bytes.extend_from_slice(&sum.to_be_bytes());
    }
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&identity.primary);
    bytes.extend_from_slice(&identity.file.encode().to_be_bytes());
    bytes.extend_from_slice(&identity.bytes.to_be_bytes());
    bytes.extend_from_slice(&(CHUNK_BYTES as u32).to_be_bytes());
    let own = checksum(&bytes);
    bytes.extend_from_slice(&own);
    bytes
}

/// Decodes a seal, and returns its chunk checksums.
///
/// # Errors
/// Fails if the seal is damaged or belongs to content other than `identity`.
pub(crate) fn decode(bytes: &[u8], identity: &Identity) -> Result<Box<[u32]>, VolumeEvent> {
    let (rest, own) = bytes.split_last_chunk::<16>().ok_or(VolumeEvent::BodyTruncated)?;
    if checksum(rest) != *own {
        return Err(VolumeEvent::BodyCorrupt);
    }
    // The seal is intact, but may belong to another file, so compare the identity.
    let sums = rest.len().checked_sub(FOOTER_BYTES as usize - 16).ok_or(VolumeEvent::BodyCorrupt)?;
    let (sums, _) = rest.split_at(sums);
    let sums: Box<[u32]> = sums.as_chunks().0.iter().map(|sum| u32::from_be_bytes(*sum)).collect();
    if encode(identity, &sums) != bytes || sums.len() as u64 != chunk_count(identity.bytes) {
        return Err(VolumeEvent::BodyMisplaced);
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::{
        CHUNK_BYTES, ChunkSums, Identity, PAGE_BYTES, chunk_count, decode, encode, file_bytes, seal_bytes, sum,
    };
    use crate::folder::FileId;
    use crate::notice::VolumeEvent;

    const IDENTITY: Identity =
        Identity { primary: [7; 16], file: FileId { stamp: 3, number: 9 }, bytes: 2 * CHUNK_BYTES + 100 };

    fn sums_of(content: &[u8], step: usize) -> Box<[u32]> {
        let mut sums = ChunkSums::default();
        content.chunks(step).for_each(|part| sums.add(part));
        sums.finish()
    }

    #[test]
    fn checksums_do_not_depend_on_how_content_arrives() {
        let content: Vec<u8> = (0..IDENTITY.bytes).map(|number| (number * 31 / 7) as u8).collect();
        let sums = sums_of(&content, content.len());
        assert_eq!(sums.len() as u64, chunk_count(IDENTITY.bytes));
        for step in [1, 4_095, CHUNK_BYTES as usize, CHUNK_BYTES as usize + 1] {
            assert_eq!(sums_of(&content, step), sums, "{step}");
        }
        let single: Box<[u32]> = content.chunks(CHUNK_BYTES as usize).map(sum).collect();
        assert_eq!(single, sums);
        assert_eq!(sums_of(&content[..CHUNK_BYTES as usize], 1_000).len(), 1);
        assert!(sums_of(&[], 1).is_empty());
    }

    #[test]
    fn a_seal_is_that_of_its_content_or_refused() {
        let sums = [1, 2, u32::MAX];
        let bytes = encode(&IDENTITY, &sums);
        assert_eq!(bytes.len() as u64, seal_bytes(IDENTITY.bytes));
        assert_eq!(file_bytes(IDENTITY.bytes), 2 * CHUNK_BYTES + PAGE_BYTES + seal_bytes(IDENTITY.bytes));
        assert_eq!(decode(&bytes, &IDENTITY), Ok(Box::from(sums)));
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert_eq!(decode(&wrong, &IDENTITY), Err(VolumeEvent::BodyCorrupt), "{at}");
            assert!(decode(&bytes[..at], &IDENTITY).is_err(), "{at}");
        }
        let others = [
            Identity { primary: [8; 16], ..IDENTITY },
            Identity { file: FileId { stamp: 3, number: 10 }, ..IDENTITY },
            Identity { bytes: IDENTITY.bytes + 1, ..IDENTITY },
        ];
        for other in others {
            assert_eq!(decode(&bytes, &other), Err(VolumeEvent::BodyMisplaced));
        }
        // The right identity with a checksum too many.
        assert_eq!(decode(&encode(&IDENTITY, &[1, 2, 3, 4]), &IDENTITY), Err(VolumeEvent::BodyMisplaced));
    }
}
