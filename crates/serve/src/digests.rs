//! Digests of complete contents, which are not computed on an event loop.

use aws_lc_rs::digest::{Context, SHA256, SHA512};
use flatout_http::base64::BASE64;
use flatout_http::digest::{DigestAlgorithm, format_digest};
use flatout_os::clock;
use flatout_os::file::FileIdentity;
use md5::{Digest as _, Md5};
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Total size of the three digests, in bytes.
pub(crate) const DIGESTS_BYTES: usize = 32 + 64 + 16;

/// Size of the read buffer, in bytes.
const READ_BYTES: usize = 128 * 1024;

/// Size above which a file is large, in bytes: hashing it takes longer than any other job of the thread pool.
pub(crate) const LARGE_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Minimum size of the sections of a large file, in bytes. The kernel reads ahead less than that (`read_ahead_kb`), so
/// that the end of a section is in the page cache only if it was there before.
const SECTION_BYTES: u64 = 32 * 1024 * 1024;

/// The time of reading after which there is a pause of the same duration.
const BUSY_MAX: Duration = Duration::from_millis(10);

/// Maximum duration of a pause, in case that the disk is very slow.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// All digests of a content, computed in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    /// SHA-256, SHA-512 and MD5, concatenated.
    bytes: [u8; DIGESTS_BYTES],
}

impl Digests {
    /// Computes the digests of `content`.
    pub(crate) fn of_bytes(content: &[u8]) -> Self {
        let mut hashing = Hashing::new();
        hashing.add(content);
        hashing.finish()
    }

    /// Computes the digests of the file at `fd`. Returns `None` if reading fails, or as soon as the file does not have
    /// `identity` or `is_wanted` returns false.
    ///
    /// A large file is read considerately: what was not in the page cache before does not stay there, where it would
    /// displace files that clients request, and the disk is left to others for half of the time.
    pub(crate) fn of_file(fd: &OwnedFd, identity: &FileIdentity, is_wanted: impl Fn() -> bool) -> Option<Self> {
        let is_same = || FileIdentity::read(fd).is_ok_and(|now| now == *identity);
        let (mut hashing, mut offset, size_bytes) = (Hashing::new(), 0, identity.size_bytes);
        while offset < size_bytes {
            let end = if size_bytes - offset < 2 * SECTION_BYTES { size_bytes } else { offset + SECTION_BYTES };
            let is_considerate = size_bytes > LARGE_FILE_BYTES && !is_cached(fd, end - 1);
            hashing.add_range(fd, offset..end, is_considerate, || is_wanted() && is_same())?;
            if is_considerate {
                // If the call fails, the content stays in the page cache, which is acceptable.
                let _ = fadvise(fd, offset, NonZeroU64::new(end - offset), Advice::DontNeed);
            }
            offset = end;
        }
        is_same().then(|| hashing.finish())
    }

    /// Returns the digests as they are stored: SHA-256, SHA-512 and MD5.
    pub(crate) const fn as_bytes(&self) -> &[u8; DIGESTS_BYTES] {
        &self.bytes
    }

    /// Parses what [`Self::as_bytes`] returns. Returns `None` if the length is wrong.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self { bytes: bytes.try_into().ok()? })
    }

    /// Returns the SHA-256 digest.
    pub(crate) fn sha256(&self) -> &[u8] {
        &self.bytes[..32]
    }

    /// Returns the value of Repr-Digest or Content-Digest.
    pub(crate) fn field_value(&self, algorithm: DigestAlgorithm) -> String {
        let digest = match algorithm {
            DigestAlgorithm::Sha256 => self.sha256(),
            DigestAlgorithm::Sha512 => &self.bytes[32..96],
        };
        format_digest(algorithm, digest)
    }

    /// Returns the value of Content-MD5 (RFC 1864).
    pub(crate) fn md5_value(&self) -> String {
        BASE64.encode(&self.bytes[96..])
    }
}

/// Returns whether the byte of the file `fd` at `offset` is in the page cache. If it is not, the kernel may begin to
/// read it.
fn is_cached(fd: &OwnedFd, offset: u64) -> bool {
    preadv2(fd, &mut [IoSliceMut::new(&mut [0])], offset, ReadWriteFlags::NOWAIT).is_ok_and(|count| count > 0)
}

struct Hashing {
    sha256: Context,
    sha512: Context,
    md5: Md5,
}

impl Hashing {
    fn new() -> Self {
        Self { sha256: Context::new(&SHA256), sha512: Context::new(&SHA512), md5: Md5::new() }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.sha512.update(bytes);
        self.md5.update(bytes);
    }

    /// Adds `range` of the file `fd`. If `pauses` is true, pauses for as long as reading takes. Returns `None` if reading
    /// failed or `may_continue` returned false.
    fn add_range(
        &mut self,
        fd: &OwnedFd,
        range: Range<u64>,
        pauses: bool,
        may_continue: impl Fn() -> bool,
    ) -> Option<()> {
        let (mut offset, mut busy, mut buffer) = (range.start, Duration::ZERO, vec![0; READ_BYTES]);
        while offset < range.end {
            if !may_continue() {
                return None;
            }
            let wanted = (range.end - offset).min(READ_BYTES as u64) as usize;
            let began = clock::now();
            let read = pread(fd, &mut buffer[..wanted], offset);
            busy += clock::since(began);
            match read {
                // The file has been truncated since its version was loaded.
                Ok(0) => return None,
                Ok(count) => {
                    self.add(&buffer[..count]);
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
            if pauses && busy >= BUSY_MAX {
                clock::sleep(std::mem::take(&mut busy).min(PAUSE_MAX));
            }
        }
        Some(())
    }

    fn finish(self) -> Digests {
        let mut bytes = [0; DIGESTS_BYTES];
        bytes[..32].copy_from_slice(self.sha256.finish().as_ref());
        bytes[32..96].copy_from_slice(self.sha512.finish().as_ref());
        bytes[96..].copy_from_slice(&self.md5.finalize());
        Digests { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::{Digests, LARGE_FILE_BYTES, SECTION_BYTES, is_cached};
    use crate::version::tests::temporary_folder;
    use flatout_http::digest::DigestAlgorithm;
    use flatout_os::file::FileIdentity;
    use rustix::fs::{Advice, fadvise};
    use rustix::io::pread;
    use std::fs;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    #[test]
    fn digests_of_the_standards() {
        // RFC 9530 appendix B.1, and RFC 1321 A.5.
        let hello = Digests::of_bytes(b"{\"hello\": \"world\"}\n");
        assert_eq!(
            hello.field_value(DigestAlgorithm::Sha256),
            "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
        );
        let abc = Digests::of_bytes(b"abc");
        assert_eq!(abc.md5_value(), "kAFQmDzST7DWlj99KOF/cg==");
        assert!(abc.field_value(DigestAlgorithm::Sha512).starts_with("sha-512=:3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5"));
        assert_eq!(Digests::from_bytes(abc.as_bytes()), Some(abc));
        assert_eq!(Digests::from_bytes(b"short"), None);
    }

    #[test]
    fn a_file_is_hashed_as_one_version_only() {
        let folder = temporary_folder("digests");
        let content = vec![7; 300_000];
        fs::write(folder.join("a"), &content).unwrap();
        let fd: OwnedFd = fs::File::open(folder.join("a")).unwrap().into();
        let identity = FileIdentity::read(&fd).unwrap();
        assert_eq!(Digests::of_file(&fd, &identity, || true), Some(Digests::of_bytes(&content)));
        let other = FileIdentity { changed_ns: identity.changed_ns - 1, ..identity };
        assert_eq!(Digests::of_file(&fd, &other, || true), None);
        let longer = FileIdentity { size_bytes: 400_000, ..identity };
        assert_eq!(Digests::of_file(&fd, &longer, || true), None);
        assert_eq!(Digests::of_file(&fd, &identity, || false), None);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_large_file_is_cached_afterwards_only_where_it_was_before() {
        let folder = temporary_folder("considerate");
        let file = fs::File::create_new(folder.join("a")).unwrap();
        let content = vec![7; LARGE_FILE_BYTES as usize + 1];
        (&file).write_all(&content).unwrap();
        file.sync_all().unwrap();
        let fd: OwnedFd = fs::File::open(folder.join("a")).unwrap().into();
        let identity = FileIdentity::read(&fd).unwrap();
        fadvise(&fd, 0, None, Advice::DontNeed).unwrap();
        // The kernel reads what is not in the page cache, so each byte can be examined only once.
        if is_cached(&fd, 0) {
            eprintln!("skipped: the file system of the temporary folder has no page cache");
        } else {
            // The second section was in the page cache, and the first was not.
            assert_eq!(pread(&fd, &mut [0_u8], LARGE_FILE_BYTES), Ok(1));
            assert_eq!(Digests::of_file(&fd, &identity, || true), Some(Digests::of_bytes(&content)));
            let ends = [SECTION_BYTES - 1, LARGE_FILE_BYTES].map(|end| is_cached(&fd, end));
            assert_eq!(ends, [false, true]);
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
