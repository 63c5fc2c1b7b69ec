//! An open file and the identity of the version that was opened.

use rustix::fs::{MemfdFlags, Mode, OFlags, Stat, fstat, memfd_create, open};
use rustix::io::{Errno, pwrite};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Identifies one version of a file. Every write changes the times, every replacement the inode.
///
/// Timestamps have the kernel's granularity: nanoseconds since Linux 6.13, one tick (up to 10 ms) before. A reader of
/// a file younger than that must read it again later.
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
    /// The identity from `stat`.
    pub fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
            changed_ns: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
        }
    }

    /// The current identity of the file at `fd`.
    pub fn read(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_stat(&fstat(fd)?))
    }
}

/// An open file with the identity it had when opened.
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor; other workers may share it.
    pub fd: Arc<OwnedFd>,
    /// The version that was opened; `None` for a file that only this process writes, by appending.
    pub identity: Option<FileIdentity>,
    /// Dropped with the file.
    guard: Option<Guard>,
}

/// A value dropped together with a file or bytes, such as a reservation of a budget.
pub type Guard = Box<dyn fmt::Debug + Send + Sync>;

impl OpenFile {
    /// Version `identity` of a file that others may change.
    pub fn new(fd: OwnedFd, identity: FileIdentity) -> Self {
        Self { fd: Arc::new(fd), identity: Some(identity), guard: None }
    }

    /// A file written by this process, whose written bytes never change.
    pub const fn own(fd: Arc<OwnedFd>) -> Self {
        Self { fd, identity: None, guard: None }
    }

    /// The same file with a guard, dropped together with the last reference to the file.
    #[must_use]
    pub fn with_guard(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Returns whether the file's content is still that of the opened version.
    pub fn is_unchanged(&self) -> bool {
        let Some(opened) = self.identity else { return true };
        let Ok(stat) = fstat(&self.fd) else { return false };
        let identity = FileIdentity::from_stat(&stat);
        // A file that was renamed over or removed has a new change time because it lost its name. Its content is
        // unchanged, so readers may finish.
        let nameless = stat.st_nlink == 0;
        identity == opened || nameless && FileIdentity { changed_ns: opened.changed_ns, ..identity } == opened
    }

    /// Returns whether the file is unchanged in every respect and still has a name.
    pub fn is_current(&self) -> bool {
        self.identity.is_none_or(|opened| FileIdentity::read(&self.fd).is_ok_and(|identity| identity == opened))
    }
}

/// An unnamed file, deleted with its last descriptor: in `folder`, or in memory if the folder cannot hold such files,
/// as in a confined worker.
///
/// # Errors
/// If no descriptor or no memory is left.
pub fn create_nameless(folder: &Path) -> Result<OwnedFd, Errno> {
    create_nameless_on_disk(folder).or_else(|_| create_nameless_in_memory())
}

/// An unnamed file in memory.
///
/// # Errors
/// If no descriptor or no memory is left.
pub fn create_nameless_in_memory() -> Result<OwnedFd, Errno> {
    memfd_create(c"flatout-nameless", MemfdFlags::CLOEXEC)
}

/// An unnamed file in `folder`, never a memory file unless the folder itself is in memory.
///
/// # Errors
/// If the folder cannot hold unnamed files, or no descriptor is left.
pub fn create_nameless_on_disk(folder: &Path) -> Result<OwnedFd, Errno> {
    let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    open(folder, unnamed, Mode::RUSR | Mode::WUSR)
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// The kernel's error; NOSPC if a write takes 0 bytes without an error.
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
