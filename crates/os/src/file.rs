//! An open file and the identity of the version that was opened.

use rustix::fs::{MemfdFlags, Mode, OFlags, Stat, fstat, memfd_create, open};
use rustix::io::{Errno, pread, pwrite};
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

/// Bytes at each end of a content that a [`ContentSample`] has.
const SAMPLE_BYTES: usize = 1024;

/// The beginning and the end of a content. If a longer content was written in its place, the beginning or the bytes at
/// the earlier end are nearly always others. A change of nothing but the middle goes unnoticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentSample(Box<[u8]>);

impl ContentSample {
    /// Reads the sample of the first `size_bytes` bytes of the file `fd`.
    ///
    /// # Errors
    /// The kernel's error, or NODATA if the file is shorter.
    pub fn read(fd: impl AsFd, size_bytes: u64) -> Result<Self, Errno> {
        let each = size_bytes.min(SAMPLE_BYTES as u64);
        let mut bytes = vec![0; 2 * each as usize];
        let (beginning, end) = bytes.split_at_mut(each as usize);
        read_exact_at(&fd, beginning, 0)?;
        read_exact_at(&fd, end, size_bytes - each)?;
        Ok(Self(bytes.into()))
    }

    /// The bytes of the beginning, followed by those of the end.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn read_exact_at(fd: impl AsFd, mut buffer: &mut [u8], mut offset: u64) -> Result<(), Errno> {
    while !buffer.is_empty() {
        match pread(&fd, &mut *buffer, offset) {
            Ok(0) => return Err(Errno::NODATA),
            Ok(count) => {
                offset += count as u64;
                buffer = &mut buffer[count..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// An open file with the identity that it had when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor, which workers may share.
    pub fd: Arc<OwnedFd>,
    /// The version that was opened; `None` for a file that only this process writes, by appending.
    pub identity: Option<FileIdentity>,
    /// A sample of the version that was opened; `None` if any change is one of the content.
    sample: Option<ContentSample>,
    /// A value dropped together with the file.
    guard: Option<Guard>,
}

/// A value dropped together with a file or a buffer, such as a reservation from a budget.
pub type Guard = Box<dyn fmt::Debug + Send + Sync>;

impl OpenFile {
    /// An open file that others may change. `identity` is the version that was opened, and `sample` is of the same
    /// version. Without a sample, any change of the identity is taken for one of the content.
    pub fn new(fd: OwnedFd, identity: FileIdentity, sample: Option<ContentSample>) -> Self {
        Self { fd: Arc::new(fd), identity: Some(identity), sample, guard: None }
    }

    /// A file that only this process writes, whose written bytes never change.
    pub const fn own(fd: Arc<OwnedFd>) -> Self {
        Self { fd, identity: None, sample: None, guard: None }
    }

    /// The same file with a guard, dropped together with the last reference to the file.
    #[must_use]
    pub fn with_guard(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Returns whether the bytes that the file had when it was opened are still there, as far as this can be told without
    /// reading all of them again. Callers read the bytes that they need before they call this.
    pub fn is_intact(&self) -> bool {
        let Some(opened) = self.identity else { return true };
        let Ok(now) = FileIdentity::read(&self.fd) else { return false };
        if now == opened {
            return true;
        }
        // The file was truncated, or overwritten and is as long as before.
        if now.size_bytes < opened.size_bytes
            || now.size_bytes == opened.size_bytes && now.modified_ns != opened.modified_ns
        {
            return false;
        }
        // Either the file has grown: a log was appended to, or a longer content was written in place. Or only its change
        // time is different: it was linked, renamed, removed or replaced, its owner or its permissions have changed, or
        // it was overwritten and its modification time put back. The sample tells the first of these from the last,
        // unless only the middle of the file was overwritten. To cut every download that may be such a case would cut
        // far more downloads of which all bytes are there.
        self.sample
            .as_ref()
            .is_some_and(|sample| ContentSample::read(&self.fd, opened.size_bytes).is_ok_and(|now| now == *sample))
    }

    /// Returns the sample of the version that was opened.
    pub const fn sample(&self) -> Option<&ContentSample> {
        self.sample.as_ref()
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

#[cfg(test)]
mod tests {
    use super::{ContentSample, FileIdentity, OpenFile};
    use rustix::io::Errno;
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
    use std::path::{Path, PathBuf};

    const BYTES: usize = 10_000;

    fn temporary_file(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("flatout-file-{name}-{}", std::process::id()));
        fs::write(&path, vec![b'o'; BYTES]).unwrap();
        path
    }

    /// Opens the file, whose identity is then different from that after any later change.
    fn open(path: &Path) -> OpenFile {
        let file = File::open(path).unwrap();
        let identity = FileIdentity::read(&file).unwrap();
        let sample = ContentSample::read(&file, identity.size_bytes).unwrap();
        let opened = FileIdentity { modified_ns: identity.modified_ns, changed_ns: 0, ..identity };
        OpenFile::new(file.into(), opened, Some(sample))
    }

    #[test]
    fn a_content_that_is_still_there_is_intact() {
        let path = temporary_file("intact");
        let writable = || File::options().write(true).open(&path).unwrap();
        let opened = open(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(opened.is_intact() && !opened.is_current());
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert!(opened.is_intact());
        // As long as before, the time put back.
        let opened = open(&path);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        writable().write_all_at(b"new", BYTES as u64).unwrap();
        writable().set_modified(modified).unwrap();
        assert!(!opened.is_intact());
        // As long as before, at another time.
        let opened = open(&path);
        writable().set_modified(modified + std::time::Duration::from_secs(1)).unwrap();
        assert!(!opened.is_intact());
        let opened = open(&path);
        writable().set_len(BYTES as u64).unwrap();
        assert!(!opened.is_intact());
        let opened = open(&path);
        fs::write(&path, vec![b'n'; BYTES + 1]).unwrap();
        assert!(!opened.is_intact());
        let opened = open(&path);
        fs::remove_file(&path).unwrap();
        assert!(opened.is_intact());
    }

    #[test]
    fn a_sample_has_both_ends() {
        let path = temporary_file("sample");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let sample = || ContentSample::read(&file, BYTES as u64).unwrap();
        let before = sample();
        file.write_all_at(b"n", BYTES as u64 / 2).unwrap();
        assert_eq!(sample(), before);
        for at in [0, BYTES as u64 - 1] {
            file.write_all_at(b"n", at).unwrap();
            assert_ne!(sample(), before);
            file.write_all_at(b"o", at).unwrap();
        }
        assert_eq!(ContentSample::read(&file, 3).unwrap().bytes(), b"oooooo");
        assert_eq!(ContentSample::read(&file, BYTES as u64 + 1), Err(Errno::NODATA));
        fs::remove_file(path).unwrap();
    }
}
