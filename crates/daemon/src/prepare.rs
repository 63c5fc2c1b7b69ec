//! Creates missing log files, the state folder and volume folders before root privileges are dropped, and makes the
//! configured user their owner. Existing files and folders are not changed.

use crate::failure::Failure;
use flatout_config::model::Config;
use flatout_http::access::LogDestination;
use flatout_os::process::Identity;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, mkdir, open};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Creates the missing log files and folders of `config`, owned by `identity`.
///
/// # Errors
/// If a file or folder cannot be created in a folder in which only root may write.
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

/// Returns whether root owns the folder of `path` and all folders above it, and no other user can redirect the path
/// with a symbolic link or another folder. Files in other folders are created later, with the permissions of the
/// configured user.
///
/// Other users may write in the last `shared_max` folders of the path. `O_EXCL` protects new files in such folders, but
/// there is no such protection for new folders.
fn is_protected(path: &Path, shared_max: usize) -> bool {
    let Some(folder) = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned)) else {
        return false;
    };
    let is_root = |folder: &Path| folder.symlink_metadata().is_ok_and(|metadata| metadata.uid() == 0);
    // In a folder with the sticky bit, only the owner of an entry can replace it.
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
        // Another process has created the file in the meantime, so it belongs to that process.
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
