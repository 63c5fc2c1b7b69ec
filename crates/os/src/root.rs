//! Opening names below a folder under the kernel's resolution rules, and the reasons for failure.

mod links;

use crate::file::FileIdentity;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2, statat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of attempts of openat2 with RESOLVE_BENEATH: it returns EAGAIN if a rename anywhere raced with it.
const RACES_MAX: u32 = 16;

/// The kind of file that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A regular file, with its identity.
    File(FileIdentity),
    /// A folder, which is not opened.
    Folder,
}

/// The reason why a name below a folder cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenFault {
    /// No file has this name.
    NotFound,
    /// A symbolic link leads out of the folder and of the trusted folders, or links form a loop.
    OutsideRoot,
    /// Permissions forbid access.
    Forbidden,
    /// The name refers to a device, a pipe or a socket.
    NotAFile,
    /// No descriptor or memory is left.
    NoDescriptor,
    /// The names kept changing during every attempt.
    Unsettled,
    /// The kernel reported another error.
    Failed,
}

/// A served folder, held open so that renaming or replacing it does not redirect requests.
#[derive(Debug)]
pub struct Root {
    folder: Arc<OwnedFd>,
    /// The folder's absolute paths when it was opened: as configured, and with symbolic links resolved.
    paths: [PathBuf; 2],
    /// Other folders that symbolic links may lead into.
    trusted: Vec<Arc<Self>>,
}

impl Root {
    /// Opens the folder at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = Arc::new(open(path, flags, Mode::empty())?);
        let named = std::path::absolute(path)?;
        let real = path.canonicalize().unwrap_or_else(|_| named.clone());
        Ok(Self { folder, paths: [named, real], trusted: Vec::new() })
    }

    /// The same folder, but with symbolic links allowed to lead into the folders in `trusted`, and from there into each
    /// other.
    #[must_use]
    pub fn trusting(&self, trusted: Vec<Arc<Self>>) -> Self {
        Self { folder: Arc::clone(&self.folder), paths: self.paths.clone(), trusted }
    }

    /// Returns whether symbolic links may lead out of the folder into a trusted one.
    pub fn trusts_any(&self) -> bool {
        !self.trusted.is_empty()
    }

    /// Device number and inode number of the folder itself.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&*self.folder)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// The kind of file at `name`, relative to the folder. The file is not opened, so devices and pipes are not
    /// affected.
    pub fn identify(&self, name: &[u8]) -> Result<Named, OpenFault> {
        let stat = self.stat(name)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Named::File(FileIdentity::from_stat(&stat))),
            FileType::Directory => Ok(Named::Folder),
            _ => Err(OpenFault::NotAFile),
        }
    }

    /// The kernel's metadata of `name`, whatever kind of file it is. Links are followed as long as they stay inside the
    /// folder and the trusted folders.
    pub fn stat(&self, name: &[u8]) -> Result<Stat, OpenFault> {
        // No link can lead a single name elsewhere, except the name itself. One system call instead of three.
        let is_single = !name.is_empty() && name != b".." && !name.contains(&b'/');
        if is_single {
            let stat = statat(&*self.folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fault_of)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                return Ok(stat);
            }
        }
        let fd = self.open_name(name, OFlags::PATH)?;
        fstat(&fd).map_err(fault_of)
    }

    /// Opens the folder `name` for listing.
    pub fn open_folder(&self, name: &[u8]) -> Result<OwnedFd, OpenFault> {
        self.open_name(name, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens the regular file `name` for reading.
    pub fn open_file(&self, name: &[u8]) -> Result<(OwnedFd, FileIdentity), OpenFault> {
        // Non-blocking and without a controlling terminal, in case the name now refers to a pipe or a terminal.
        let fd = self.open_name(name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = fstat(&fd).map_err(fault_of)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(OpenFault::NotAFile);
        }
        Ok((fd, FileIdentity::from_stat(&stat)))
    }

    fn open_name(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, OpenFault> {
        let name = if name.is_empty() { b"." } else { name };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..RACES_MAX {
            match openat2(&*self.folder, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // An absolute link, or a link that leads out of the folder. It may lead into a trusted folder.
                Err(Errno::XDEV) if self.trusts_any() => return links::open_linked(self, name, flags),
                other => return other.map_err(fault_of),
            }
        }
        Err(OpenFault::Unsettled)
    }
}

fn fault_of(errno: Errno) -> OpenFault {
    match errno {
        // INVAL is returned for a name with a NUL byte, which no file has.
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => OpenFault::NotFound,
        // A link out of the folder, or a loop of links.
        Errno::XDEV | Errno::LOOP => OpenFault::OutsideRoot,
        Errno::ACCESS | Errno::PERM => OpenFault::Forbidden,
        Errno::NXIO | Errno::NODEV => OpenFault::NotAFile,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => OpenFault::NoDescriptor,
        _ => OpenFault::Failed,
    }
}

/// Checks that this kernel has openat2, which serving files requires: Linux 5.6 or later, and no sandbox that forbids
/// it.
pub fn check_kernel(path: &Path) -> io::Result<()> {
    let root = Root::open(path)?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(&*root.folder, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Named, OpenFault, Root};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn temporary_folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("flatout-net-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn names_never_leave_the_root() {
        let folder = temporary_folder("root");
        fs::create_dir_all(folder.join("in/sub")).unwrap();
        fs::write(folder.join("secret"), "s").unwrap();
        fs::write(folder.join("in/a"), "a").unwrap();
        symlink("../secret", folder.join("in/up")).unwrap();
        symlink(folder.join("secret"), folder.join("in/absolute")).unwrap();
        symlink("a", folder.join("in/beside")).unwrap();
        symlink("circle", folder.join("in/circle")).unwrap();
        symlink("/proc/self/root", folder.join("in/magic")).unwrap();
        let root = Root::open(&folder.join("in")).unwrap();
        assert!(matches!(root.identify(b"a"), Ok(Named::File(_))));
        assert!(matches!(root.identify(b"beside"), Ok(Named::File(_))));
        assert_eq!(root.identify(b"sub"), Ok(Named::Folder));
        assert_eq!(root.identify(b""), Ok(Named::Folder));
        for name in
            [&b"up"[..], b"absolute", b"../secret", b"sub/../../secret", b"/etc/passwd", b"circle", b"magic/etc"]
        {
            assert_eq!(root.identify(name), Err(OpenFault::OutsideRoot), "{}", String::from_utf8_lossy(name));
            assert_eq!(root.open_file(name).err(), Some(OpenFault::OutsideRoot));
        }
        assert_eq!(root.identify(b"a/b"), Err(OpenFault::NotFound));
        assert_eq!(root.identify(b"a\0b"), Err(OpenFault::NotFound));
        assert_eq!(root.identify(&[b'x'; 300]), Err(OpenFault::NotFound));
        assert_eq!(root.open_file(b"sub").err(), Some(OpenFault::NotAFile));
        fs::remove_dir_all(folder).unwrap();
    }
}
