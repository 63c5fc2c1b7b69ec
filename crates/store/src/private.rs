//! Creation of folders and files that are accessible only to their owner, regardless of the umask.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Creates the folder `path` if it is missing. If it exists, restricts its mode to the owner.
///
/// # Errors
/// Fails if the folder cannot be created or its mode cannot be restricted.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    close_to_others(path, 0o700)
}

/// Creates the file `path` if it is missing. If it exists, restricts its mode to the owner.
pub(crate) fn create_private_file(path: &Path) -> io::Result<std::fs::File> {
    let file = std::fs::File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    close_to_others(path, 0o600)?;
    Ok(file)
}

fn close_to_others(path: &Path, mode: u32) -> io::Result<()> {
    let found = std::fs::metadata(path)?.permissions().mode() & 0o7777;
    let of_others = found & 0o077;
    if of_others == 0 {
        return Ok(());
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| {
        let text = format!(
            "other users may read {} (mode {found:04o}), and its mode cannot be changed: {error}",
            path.display()
        );
        io::Error::new(error.kind(), text)
    })
}
