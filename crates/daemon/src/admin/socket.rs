//! The admin socket.

use crate::failure::Failure;
use crate::socket_file::{BindFault, SocketFile};
use flatout_os::socket::find_path_owners;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Only the owner of the file can connect.
const MODE: u32 = 0o600;

/// Maximum number of commands that wait.
const BACKLOG: i32 = 128;

/// The bound admin socket, and its file.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    pub(crate) listener: UnixListener,
    pub(crate) file: SocketFile,
}

impl AdminSocket {
    /// Binds the socket at `path`, so that only its owner can access it. A stale socket file is replaced.
    ///
    /// # Errors
    /// If another process accepts connections at `path`, the file is not a socket, or the folder is not writable.
    pub(crate) fn bind(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let (socket, file) = SocketFile::bind(path, MODE, None, BACKLOG).map_err(|fault| match fault {
            BindFault::InUse => {
                let owner = find_path_owners(path).first().map_or_else(
                    || "another process".to_owned(),
                    |(pid, _)| format!("process {pid}"),
                );
                Failure::runtime(format!(
                    "another flatout ({owner}) uses the admin socket {shown}\n  try: flatout status, or set another path: \
                     admin \"…\" in the configuration, --admin PATH on the command line"
                ))
            }
            BindFault::NotSocket => Failure::usage(format!(
                "cannot create the admin socket {shown}: a file that is not a socket already exists at this path"
            )),
            BindFault::Access(error) | BindFault::Failed(error) => Failure::runtime(format!("cannot open the admin socket {shown}: {error}")),
        })?;
        Ok(Self { listener: UnixListener::from(socket), file })
    }

    /// Takes over the socket of another process.
    pub(crate) fn adopt(socket: OwnedFd, file: SocketFile) -> Self {
        Self { listener: UnixListener::from(socket), file }
    }
}

/// Connects to `path`. Returns `None` if no process is listening there.
pub(crate) fn connect(path: &Path) -> Result<Option<UnixStream>, io::Error> {
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(error),
    }
}
