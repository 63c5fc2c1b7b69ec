//! Data that the server reads from its own disks, perhaps damaged: volumes of the cache, and stored digests.

pub(crate) use flatout_serve::check_digest_entry;
pub(crate) use flatout_store::fuzzing::{check_index, check_record};

/// Records without their checksum: one with all parts and a body in the index, and an empty one.
pub(crate) const RECORD_SEEDS: &[&[u8]] = &[
    b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x4d\0\0\0\x0c\0\0\0\x04\0\0\0\x01\0\0\0\x06\0\0\0\x07\0\0\0\x0c\0\x01\
      \x01\0\0\0\0\0\0\0\x07checksum of bodytag-hashhttp://a.b/cgzipmA: b\r\n",
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
];

/// Targets of purges, and bytes whose number is that of the chunks of a file.
pub(crate) const INDEX_SEEDS: &[&[u8]] =
    &[b"a", b"khttp://a.b/c", b"ua.b/c", b"pa.b/", b"ha.b:80", b"t12345678", b"\0\x10", b"\x01\x20abcd"];

/// A key, and the value for it.
pub(crate) const DIGEST_SEEDS: &[&[u8]] = &[
    b"device..inode...size....modified........changed.........and then the digests of the file: 32, 64 and 16 bytes of them, \
      which are followed by four bytes of a day and eight of a checksum",
    b"",
];
