//! Binding of the admin socket, and replacement of stale socket files.

use crate::failure::Failure;
use rustix::fs::{Mode, chmod, chown};
use rustix::net::sockopt::socket_peercred;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The bound admin socket. On drop, its file is removed, unless the file belongs to another process by then.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and inode number of this process's socket file.
    identity: (u64, u64),
}

impl AdminSocket {
    /// Binds the socket at `path`, so that only its owner can access it. A stale socket file is replaced.
    ///
    /// # Errors
    /// If another process accepts connections at `path`, the file is not a socket, or the folder is not writable.
    pub(crate) fn bind(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let failed = |error: io::Error| Failure::runtime(format!("cannot open the admin socket {shown}: {error}"));
        if let Ok(stream) = UnixStream::connect(path) {
            let owner = socket_peercred(&stream)
                .map_or_else(|_| "another process".to_owned(), |peer| format!("process {}", peer.pid));
            return Err(Failure::runtime(format!(
                "another flatout ({owner}) uses the admin socket {shown}\n  try: flatout status, or set another path: \
                 admin \"…\" in the configuration, --admin PATH on the command line"
            )));
        }
        if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket()) {
            return Err(Failure::usage(format!(
                "cannot create the admin socket {shown}: a file that is not a socket already exists at this path"
            )));
        }
        // The socket is bound under another name and then renamed. So the name always exists, and the file never has a
        // mode that permits access by other users.
        let aside = aside(path);
        let _ = fs::remove_file(&aside);
        let listener = UnixListener::bind(&aside).map_err(failed)?;
        let settle = || -> io::Result<(u64, u64)> {
            chmod(&aside, Mode::RUSR | Mode::WUSR)?;
            fs::rename(&aside, path)?;
            identity(path)
        };
        let identity = settle().inspect_err(|_| drop(fs::remove_file(&aside))).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), identity })
    }

    /// Takes over the socket of the previous process. Returns `None` if the file no longer exists, so that no client
    /// could find it. The file belongs to the previous process until [`own_file`](Self::own_file) is called: if this
    /// process fails, the previous process still serves there.
    pub(crate) fn adopt(socket: OwnedFd, path: &Path) -> Option<Self> {
        identity(path).ok()?;
        Some(Self { listener: UnixListener::from(socket), path: path.to_owned(), identity: (0, 0) })
    }

    /// Makes this process remove the file on drop.
    pub(crate) fn own_file(&mut self) {
        if let Ok(identity) = identity(&self.path) {
            self.identity = identity;
        }
    }

    /// Leaves the file to another process: it is not removed on drop.
    pub(crate) fn leave_file(&mut self) {
        self.identity = (0, 0);
    }

    /// Changes the owner of the file to the configured user.
    pub(crate) fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        Ok(chown(&self.path, Some(uid), Some(gid))?)
    }

    /// The path of the socket file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // The file may belong to another process by now.
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

/// Connects to `path`. Returns `None` if no process is listening there.
pub(crate) fn connect(path: &Path) -> Result<Option<UnixStream>, io::Error> {
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::AdminSocket;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn stale_files_are_replaced_living_ones_are_not() {
        let folder = std::env::temp_dir().join(format!("flatout-admin-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("sock");
        let mut first = AdminSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = AdminSocket::bind(&path).unwrap_err();
        assert!(refused.text.contains(&format!("process {}", std::process::id())), "{refused}");
        // The process that hands over leaves the file to the next. A process that fails before it serves leaves it as
        // well.
        drop(AdminSocket::adopt(first.listener.try_clone().unwrap().into(), &path).unwrap());
        assert!(path.exists());
        let mut next = AdminSocket::adopt(first.listener.try_clone().unwrap().into(), &path).unwrap();
        next.own_file();
        first.leave_file();
        drop(first);
        assert!(AdminSocket::bind(&path).is_err());
        drop(next);
        assert!(!path.exists());
        // The file that a killed process leaves.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(AdminSocket::bind(&path).unwrap());
        fs::write(&path, b"precious").unwrap();
        assert!(AdminSocket::bind(&path).unwrap_err().text.contains("not a socket"));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_dir_all(folder).unwrap();
    }
}
