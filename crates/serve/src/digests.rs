//! Digests of complete contents, which are not computed on an event loop.

use aws_lc_rs::digest::{Context, SHA256, SHA512};
use flatout_http::base64::BASE64;
use flatout_http::digest::{DigestAlgorithm, format_digest};
use flatout_os::file::FileIdentity;
use md5::{Digest as _, Md5};
use rustix::io::{Errno, pread};
use std::os::fd::OwnedFd;

/// Total size of the three digests, in bytes.
pub(crate) const DIGESTS_BYTES: usize = 32 + 64 + 16;

/// Size of the read buffer, in bytes.
const READ_BYTES: usize = 128 * 1024;

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
    /// `identity`.
    pub(crate) fn of_file(fd: &OwnedFd, identity: &FileIdentity) -> Option<Self> {
        let is_same = || FileIdentity::read(fd).is_ok_and(|now| now == *identity);
        let (mut hashing, mut offset, mut buffer) = (Hashing::new(), 0, vec![0; READ_BYTES]);
        while offset < identity.size_bytes && is_same() {
            match pread(fd, &mut buffer[..], offset) {
                // The file has been truncated since its version was loaded.
                Ok(0) => return None,
                Ok(count) => {
                    hashing.add(&buffer[..count]);
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        (offset == identity.size_bytes && is_same()).then(|| hashing.finish())
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
    use super::Digests;
    use crate::version::tests::temporary_folder;
    use flatout_http::digest::DigestAlgorithm;
    use flatout_os::file::FileIdentity;
    use std::fs;
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
        assert_eq!(Digests::of_file(&fd, &identity), Some(Digests::of_bytes(&content)));
        let other = FileIdentity { changed_ns: identity.changed_ns - 1, ..identity };
        assert_eq!(Digests::of_file(&fd, &other), None);
        let longer = FileIdentity { size_bytes: 400_000, ..identity };
        assert_eq!(Digests::of_file(&fd, &longer), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
