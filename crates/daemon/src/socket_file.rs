//! Files of Unix sockets: binding, replacement of stale files, permissions, and removal at the end.
//!
//! Another user may be permitted to write to the folder and replace the file by a link while this process is still root.
//! So permissions are changed through a descriptor of the file itself, never through its path.

use flatout_os::clock::sleep;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid, chmod, chownat, fchmod, flock, fstat, open,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use rustix::process::{getegid, geteuid, getgroups};
use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the lock of a folder is tried, and the interval between two attempts.
const LOCK_ATTEMPTS: usize = 100;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// The reason why no socket could be bound at a path.
#[derive(Debug)]
pub(crate) enum BindFault {
    /// A process listens at the path.
    InUse,
    /// A file that is not a socket exists at the path.
    NotSocket,
    /// The permissions of the file cannot be set.
    Access(io::Error),
    /// The kernel's reason.
    Failed(io::Error),
}

impl From<Errno> for BindFault {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

/// The file of a socket. On drop, it is removed if it belongs to this process and no other file has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The file itself. While it is open, no other file can have its inode number.
    fd: OwnedFd,
    /// False if the file belongs to another process.
    is_own: Cell<bool>,
}

impl SocketFile {
    /// Binds a listening socket at `path`, whose file has the permissions `mode` and the group `gid`, if one is given. A
    /// stale socket file is replaced.
    ///
    /// # Errors
    /// If another process listens at `path`, the file is not a socket, or the folder is not writable.
    pub(crate) fn bind(path: &Path, mode: u32, gid: Option<u32>, backlog: i32) -> Result<(OwnedFd, Self), BindFault> {
        let address = SocketAddrUnix::new(path)?;
        let socket = new_socket()?;
        // The kernel creates the file with the socket's mode, less the process's mask. Until it has its group, only its
        // owner may connect.
        fchmod(&socket, Mode::from_raw_mode(mode & 0o700))?;
        let _lock = lock_folder(path);
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(path)?;
                bind(&socket, &address)?;
            }
            bound => bound?,
        }
        // Until it listens, a process that does not lock the folder would take the file for a stale one.
        listen(&socket, backlog)?;
        let (fd, stat) = open_socket(path)?;
        // A link to, or the name of, another user's socket is not the file that was bound.
        if stat.st_uid != geteuid().as_raw() || stat.st_nlink != 1 {
            return Err(BindFault::Failed(io::Error::other("another process has replaced the file")));
        }
        let file = Self { path: path.to_owned(), fd, is_own: Cell::new(true) };
        let set = file.access().and_then(|(_, own)| file.set_access(mode, gid.unwrap_or(own)));
        set.map_err(BindFault::Access)?;
        Ok((socket, file))
    }

    /// Takes over the socket file of the previous process. Returns `None` if there is no socket at the path, so that no
    /// client could find this one. The file belongs to the previous process until [`own`](Self::own) is called: if this
    /// process fails, the previous process still serves there.
    pub(crate) fn adopt(path: &Path) -> Option<Self> {
        let (fd, _) = open_socket(path).ok()?;
        Some(Self { path: path.to_owned(), fd, is_own: Cell::new(false) })
    }

    /// Makes this process remove the file on drop.
    pub(crate) fn own(&self) {
        self.is_own.set(true);
    }

    /// Leaves the file to another process: it is not removed on drop.
    pub(crate) fn leave(&self) {
        self.is_own.set(false);
    }

    /// Returns whether the file belongs to this process.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own.get()
    }

    /// Returns the mode and the group of the file.
    pub(crate) fn access(&self) -> io::Result<(u32, u32)> {
        let stat = fstat(&self.fd)?;
        Ok((stat.st_mode & 0o777, stat.st_gid))
    }

    /// Sets the mode and the group of the file, unless it has them. If the group cannot be set, the old one
    /// gets no permissions.
    pub(crate) fn set_access(&self, mode: u32, gid: u32) -> io::Result<()> {
        let (mode_before, gid_before) = self.access()?;
        if gid != gid_before {
            // Neither group gets what is meant for the other one.
            self.set_mode(mode_before & mode & 0o707)?;
            let group_set = self.give_to(None, Some(gid));
            if group_set.is_err() {
                self.set_mode(mode & 0o707)?;
                return group_set;
            }
        }
        self.set_mode(mode)
    }

    /// Returns whether this process may set the group of a file that it owns. It needs to be root, or belong to the group.
    pub(crate) fn may_set_group(gid: u32) -> bool {
        let gid = Gid::from_raw(gid);
        geteuid().is_root() || getegid() == gid || getgroups().is_ok_and(|groups| groups.contains(&gid))
    }

    /// Sets the mode of the file, unless it has it.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        if self.access()?.0 != mode {
            // The kernel follows this link to the file itself, whose descriptor no other call accepts before Linux 6.6.
            chmod(format!("/proc/self/fd/{}", self.fd.as_raw_fd()), Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    /// Changes the owner and the group of the file, if they are given.
    pub(crate) fn give_to(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        Ok(chownat(&self.fd, "", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH)?)
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode number.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        fstat(&self.fd).ok().map(|stat| identity(&stat))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may belong to another process by now.
        let is_there = || open_socket(&self.path).is_ok_and(|(_, stat)| Some(identity(&stat)) == self.identity());
        if self.is_own() && is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Opens the file of a socket, but not what a symbolic link at its path leads to.
fn open_socket(path: &Path) -> Result<(OwnedFd, Stat), BindFault> {
    let fd = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Socket { Ok((fd, stat)) } else { Err(BindFault::NotSocket) }
}

/// Locks the folder of `path` until the descriptor is closed, so that no other flatout replaces a file there at the same
/// time. Everyone who may read the folder can hold this lock, so after a second, this process goes on without it.
fn lock_folder(path: &Path) -> Option<OwnedFd> {
    let folder = open(path.parent()?, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    for _ in 0..LOCK_ATTEMPTS {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => sleep(LOCK_INTERVAL),
            locked => return locked.ok().map(|()| folder),
        }
    }
    None
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Removes a socket file whose process has exited.
fn remove_stale(path: &Path) -> Result<(), BindFault> {
    check_unused(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BindFault::Failed(error)),
        _ => Ok(()),
    }
}

/// Checks that no process listens at `path`, to which this process connects, and that the file there, if any, is a socket.
///
/// # Errors
/// If a process listens, the file is not a socket, or the kernel does not report it.
fn check_unused(path: &Path) -> Result<(), BindFault> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(BindFault::NotSocket),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BindFault::Failed(error)),
    }
    let socket = new_socket()?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        // If not, its queue is full, or it is a socket of another type.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(BindFault::InUse),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
        Err(Errno::ACCESS) => {
            let text = "a socket to which this user may not connect already exists at this path";
            Err(BindFault::Failed(io::Error::other(text)))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{BindFault, SocketFile, check_unused, lock_folder};
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::os::unix::net::{UnixDatagram, UnixListener};
    use std::path::{Path, PathBuf};

    pub(crate) fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("flatout-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn stale_files_are_replaced_and_live_ones_are_not() {
        let folder = folder("socket-file");
        let path = folder.join("sock");
        let bind = |mode: u32| SocketFile::bind(&path, mode, None, 1);
        let is_in_use = |result: Result<_, BindFault>| matches!(result, Err(BindFault::InUse));
        let (socket, first) = bind(0o666).unwrap();
        assert_eq!(mode(&path), 0o666);
        first.set_access(0o600, first.access().unwrap().1).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(is_in_use(bind(0o600)));
        // Nobody accepts, so the queue is full after the second attempt. Nobody waits for it.
        assert!(matches!(check_unused(&path), Err(BindFault::InUse)));
        assert!(is_in_use(bind(0o600)));
        // The process that hands over leaves the file to the next. A process that fails before it serves leaves it as
        // well.
        drop(SocketFile::adopt(&path).unwrap());
        assert!(path.exists());
        let next = SocketFile::adopt(&path).unwrap();
        assert_eq!(next.identity(), first.identity());
        next.own();
        first.leave();
        drop(first);
        assert!(is_in_use(bind(0o600)));
        drop(next);
        assert!(!path.exists() && SocketFile::adopt(&path).is_none());
        drop(socket);
        // The file that a killed process leaves. It is not the previous one, which is not removed for it.
        let (_old, stale) = bind(0o600).unwrap();
        fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        drop(stale);
        assert!(path.exists());
        let (_socket, file) = bind(0o640).unwrap();
        assert_eq!(mode(&path), 0o640);
        drop(file);
        assert!(!path.exists());
        // A socket of another kind, such as that of a log, and a file.
        let datagrams = UnixDatagram::bind(&path).unwrap();
        assert!(is_in_use(bind(0o600)));
        drop(datagrams);
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"precious").unwrap();
        assert!(matches!(bind(0o600), Err(BindFault::NotSocket)));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_dir_all(folder).unwrap();
    }

    /// Somebody who may write to the folder replaces the socket by links.
    #[test]
    fn permissions_are_never_changed_through_a_link() {
        let folder = folder("socket-link");
        let (path, precious, moved) = (folder.join("sock"), folder.join("precious"), folder.join("moved"));
        fs::write(&precious, b"secret").unwrap();
        fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
        let (_socket, file) = SocketFile::bind(&path, 0o600, None, 1).unwrap();
        fs::rename(&path, &moved).unwrap();
        symlink(&precious, &path).unwrap();
        let gid = |path: &Path| fs::metadata(path).unwrap().gid();
        let (before, another) = (gid(&precious), gid(&precious) + u32::from(rustix::process::geteuid().is_root()));
        file.set_access(0o666, another).unwrap();
        file.give_to(None, Some(another)).unwrap();
        assert_eq!((mode(&precious), mode(&moved)), (0o600, 0o666));
        assert_eq!((gid(&precious), gid(&moved)), (before, another));
        // A link is neither followed nor replaced nor removed, wherever it leads.
        let refused = |result: Result<_, BindFault>| assert!(matches!(result, Err(BindFault::NotSocket)), "{result:?}");
        refused(SocketFile::bind(&path, 0o666, None, 1));
        assert!(SocketFile::adopt(&path).is_none());
        drop(file);
        fs::remove_file(&path).unwrap();
        symlink(&moved, &path).unwrap();
        refused(SocketFile::bind(&path, 0o666, None, 1));
        assert!(SocketFile::adopt(&path).is_none());
        fs::remove_dir_all(folder).unwrap();
    }

    /// Two processes that find the same stale file do not remove each other's socket.
    #[test]
    fn of_many_that_bind_at_once_one_succeeds() {
        let folder = folder("socket-race");
        let path = folder.join("sock");
        for _ in 0..20 {
            drop(UnixListener::bind(&path).unwrap());
            let bound: Vec<_> = std::thread::scope(|scope| {
                let bind = || SocketFile::bind(&path, 0o600, None, 16).ok();
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(bound.len(), 1);
            assert!(matches!(check_unused(&path), Err(BindFault::InUse)));
        }
        // Nobody can keep this process from binding for long.
        let _held = lock_folder(&path).unwrap();
        assert!(SocketFile::bind(&path, 0o600, None, 1).is_ok());
        fs::remove_dir_all(folder).unwrap();
    }
}
