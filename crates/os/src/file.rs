//! An open file and the identity of the version that was opened.

use rustix::fs::{MemfdFlags, Mode, OFlags, Stat, fstat, memfd_create, open};
use rustix::io::{Errno, pwrite};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Identifies one version of a file. Every write changes the times, and every replacement changes the inode.
///
/// Timestamps have the kernel's granularity: nanoseconds since Linux 6.13, one tick (up to 10 ms) before. If a file was
/// changed less than that before it was read, the reader must read it again later.
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
    /// Change time in nanoseconds since 1970; unlike the modification time, a file's owner cannot set it.
    pub changed_ns: i128,
}

impl FileIdentity {
    /// Converts the kernel's metadata.
    pub fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
            changed_ns: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
        }
    }

    /// Reads the current identity of the open file `fd`.
    pub fn read(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_stat(&fstat(fd)?))
    }
}

/// An open file with the identity that it had when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor, which workers may share.
    pub fd: Arc<OwnedFd>,
    /// The version that was opened; `None` for a file that only this process writes, by appending.
    pub identity: Option<FileIdentity>,
    /// A value dropped together with the file.
    guard: Option<Guard>,
}

/// A value dropped together with a file or a buffer, such as a reservation from a budget.
pub type Guard = Box<dyn fmt::Debug + Send + Sync>;

impl OpenFile {
    /// An open file that others may change. `identity` is the version that was opened.
    pub fn new(fd: OwnedFd, identity: FileIdentity) -> Self {
        Self { fd: Arc::new(fd), identity: Some(identity), guard: None }
    }

    /// A file that only this process writes, whose written bytes never change.
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
        // When a file is removed or another is renamed over it, it loses its name, which updates its change time. Its
        // content is unchanged, so readers may finish.
        let nameless = stat.st_nlink == 0;
        identity == opened || nameless && FileIdentity { changed_ns: opened.changed_ns, ..identity } == opened
    }

    /// Returns whether the file is unchanged in every respect and still has a name.
    pub fn is_current(&self) -> bool {
        self.identity.is_none_or(|opened| FileIdentity::read(&self.fd).is_ok_and(|identity| identity == opened))
    }
}

/// Size of a page of the page cache, in bytes; some kernels have larger pages. A sendfile that starts in the middle of
/// a page takes 18 µs longer than one that starts at a page boundary (Linux 6.18, loopback), as long as sending another
/// 200 KiB.
pub const PAGE_BYTES: u64 = 4096;

/// Creates an unnamed file, which is deleted when its last descriptor is closed. The file is in `folder`, or in memory
/// if the folder cannot hold such files, as in a confined worker.
///
/// # Errors
/// If no descriptor or no memory is left.
pub fn create_nameless(folder: &Path) -> Result<OwnedFd, Errno> {
    create_nameless_on_disk(folder).or_else(|_| create_nameless_in_memory())
}

/// Creates an unnamed file in memory.
///
/// # Errors
/// If no descriptor or no memory is left.
pub fn create_nameless_in_memory() -> Result<OwnedFd, Errno> {
    memfd_create(c"flatout-nameless", MemfdFlags::CLOEXEC)
}

/// Creates an unnamed file in `folder`; never a memory file unless the folder itself is in memory.
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
/// The kernel's error, or NOSPC if a write succeeds but writes 0 bytes.
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
