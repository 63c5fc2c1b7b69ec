//! Creates missing logs, the state folder and the folders of volumes before root privileges are dropped, and makes
//! the configured user their owner. Existing ones are unchanged.

use crate::failure::Failure;
use flatout_config::model::Config;
use flatout_http::access::LogDestination;
use flatout_os::process::Identity;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, mkdir, open};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Creates the missing logs and folders of `config`, owned by `identity`.
///
/// # Errors
/// If a file or folder in a folder that only root can write cannot be created.
pub(crate) fn prepare_files(config: &Config, identity: Identity) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::runtime(format!(
            "cannot create {} for user {} and group {}: {error}",
            path.display(),
            identity.uid,
            identity.gid
        ))
    };
    for log in config.logs.iter().map(|log| &log.settings) {
        if let LogDestination::File(path) = &log.target
            && is_missing(path)
            && is_protected(path, 1)
        {
            create_file(path, log.mode, identity).map_err(|error| failed(path, error))?;
        }
    }
    for path in config.state.iter().chain(config.store.disks.iter().map(|(path, _)| path)) {
        if is_missing(path) && is_protected(path, 0) {
            create_folder(path, identity).map_err(|error| failed(path, error))?;
        }
    }
    Ok(())
}

fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Returns whether the folder of `path` belongs to root, and no other user can redirect the path by a symbolic link
/// or another folder. Anything else is created later, with the configured user's permissions.
///
/// Other users may write in the last `shared_max` folders: `O_EXCL` protects a new file, but not a new folder.
fn is_protected(path: &Path, shared_max: usize) -> bool {
    let Some(folder) = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned)) else {
        return false;
    };
    let is_root = |folder: &Path| folder.symlink_metadata().is_ok_and(|metadata| metadata.uid() == 0);
    // In a sticky folder only the owner of an entry can replace it.
    let is_fixed = |folder: &Path| {
        folder.symlink_metadata().is_ok_and(|metadata| metadata.mode() & 0o022 == 0 || metadata.mode() & 0o1000 != 0)
    };
    folder.canonicalize().is_ok_and(|real| real == folder)
        && folder.ancestors().all(is_root)
        && folder.ancestors().skip(shared_max).all(is_fixed)
}

fn create_file(path: &Path, mode: u32, identity: Identity) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::from_raw_mode(mode)) {
        // Another process created it first: the file belongs to it.
        Err(Errno::EXIST) => return Ok(()),
        opened => opened?,
    };
    give(&file, identity)
}

fn create_folder(path: &Path, identity: Identity) -> io::Result<()> {
    match mkdir(path, Mode::RWXU) {
        Err(Errno::EXIST) => return Ok(()),
        made => made?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    give(&open(path, flags, Mode::empty())?, identity)
}

fn give(file: &impl std::os::fd::AsFd, identity: Identity) -> io::Result<()> {
    Ok(fchown(file, Some(Uid::from_raw(identity.uid)), Some(Gid::from_raw(identity.gid)))?)
}
