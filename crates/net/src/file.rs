//! An open file and the identity of the version that was opened.

use rustix::fs::{MemfdFlags, Mode, OFlags, Stat, fstat, memfd_create, open};
use rustix::io::{Errno, pwrite};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// What tells one version of a file from another. Any write changes the times, any replacement the inode.
///
/// Times are as fine as the kernel keeps them: nanoseconds since Linux 6.13, one tick (up to 10 ms) before. Whoever
/// reads a file younger than that must read it again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Change time in nanoseconds since 1970; a file's owner cannot set it back.
    pub changed_ns: i128,
}

impl FileIdentity {
    /// The identity in `stat`.
    pub fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
            changed_ns: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
        }
    }

    /// The identity of the file behind `fd`, now.
    pub fn read(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_stat(&fstat(fd)?))
    }
}

/// A file held open together with the identity it had.
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor, which other workers may hold too.
    pub fd: Arc<OwnedFd>,
    /// The version that was opened; `None` for a file that only this process writes, and only at its end.
    pub identity: Option<FileIdentity>,
    /// Dropped with the file.
    guard: Option<Guard>,
}

/// What is dropped with a file or with bytes, such as a part of a budget.
pub type Guard = Box<dyn fmt::Debug + Send + Sync>;

impl OpenFile {
    /// The version `identity` of somebody's file.
    pub fn new(fd: OwnedFd, identity: FileIdentity) -> Self {
        Self { fd: Arc::new(fd), identity: Some(identity), guard: None }
    }

    /// A file of our own, of which what is written once never changes.
    pub const fn own(fd: Arc<OwnedFd>) -> Self {
        Self { fd, identity: None, guard: None }
    }

    /// The same file with a guard, which is dropped together with the last reference to the file.
    #[must_use]
    pub fn with_guard(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Whether the file's content is still that of the version that was opened.
    pub fn is_unchanged(&self) -> bool {
        let Some(opened) = self.identity else { return true };
        let Ok(stat) = fstat(&self.fd) else { return false };
        let identity = FileIdentity::from_stat(&stat);
        // A file that has been renamed over or removed has a new change time for the loss of its name. Its content is
        // what it was, and whoever is reading it may read it to its end.
        let nameless = stat.st_nlink == 0;
        identity == opened || nameless && FileIdentity { changed_ns: opened.changed_ns, ..identity } == opened
    }

    /// Whether the file is still, in every respect and by some name, the version that was opened.
    pub fn is_current(&self) -> bool {
        self.identity.is_none_or(|opened| FileIdentity::read(&self.fd).is_ok_and(|identity| identity == opened))
    }
}

/// A file without a name, gone with the last who holds it: in `folder`, or in memory where no such file can be had there, as
/// in a worker that is confined.
///
/// # Errors
/// When the kernel has no descriptor or no memory to give.
pub fn create_nameless(folder: &Path) -> Result<OwnedFd, Errno> {
    create_nameless_on_disk(folder).or_else(|_| memfd_create(c"flatout-nameless", MemfdFlags::CLOEXEC))
}

/// The same, never in memory of the kernel unless that is what `folder` lies in.
///
/// # Errors
/// When no such file can be had there, or no descriptor.
pub fn create_nameless_on_disk(folder: &Path) -> Result<OwnedFd, Errno> {
    let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    open(folder, unnamed, Mode::RUSR | Mode::WUSR)
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// What the kernel says; NOSPC when it takes nothing and does not say why.
pub fn write_all_at(fd: impl AsFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pwrite(&fd, bytes, offset) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => {
                offset += count as u64;
                bytes = &bytes[count..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
