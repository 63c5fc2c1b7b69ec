//! Changes of the permissions of socket files by reloads and upgrades.

use super::Address;
use crate::failure::{Failure, say};
use crate::socket_file::SocketFile;
use flatout_config::model;
use flatout_os::process::find_group;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::rc::Rc;

/// New permissions of a socket file. Until they are committed, the file has only those that both configurations grant. If
/// this value is dropped without [`commit`](Self::commit), the file gets back the permissions that it had.
#[derive(Debug)]
pub(crate) struct AccessChange {
    file: Rc<SocketFile>,
    /// Mode and group.
    old: (u32, u32),
    new: (u32, u32),
    is_committed: bool,
}

impl AccessChange {
    /// Prepares the permissions in `config` for the socket files of `addresses`.
    ///
    /// # Errors
    /// If a group does not exist, or this process may not set the permissions. Then all files have those that they had.
    pub(crate) fn prepare<'a>(
        addresses: impl IntoIterator<Item = &'a Address>,
        config: &model::Config,
    ) -> Result<Vec<Self>, Failure> {
        addresses.into_iter().filter_map(|address| Self::new(address, config).transpose()).collect()
    }

    /// Sets the permissions in `config`, which is in use. A failure is only reported.
    pub(crate) fn apply(addresses: &[Address], config: &model::Config) {
        for address in addresses {
            match Self::new(address, config) {
                Ok(change) => change.into_iter().for_each(Self::commit),
                Err(failure) => say(&format!("warning: {failure}")),
            }
        }
    }

    /// Returns `None` if there is no file, or nothing to change.
    fn new(address: &Address, config: &model::Config) -> Result<Option<Self>, Failure> {
        let (Some(file), Some(listener)) = (&address.file, config.listeners.get(address.id as usize)) else {
            return Ok(None);
        };
        let gid = find_gid(listener)?;
        let change = Self::reduce(file, listener.access.mode, gid);
        change.map_err(|error| explain_access(listener, &error))
    }

    /// Takes all permissions from `file` that are not in `mode`. If `gid` is given and is another group than that of the
    /// file, which is not changed yet, the group has none.
    fn reduce(file: &Rc<SocketFile>, mode: u32, gid: Option<u32>) -> io::Result<Option<Self>> {
        let old = file.access()?;
        let new = (mode, gid.unwrap_or(old.1));
        if old == new {
            return Ok(None);
        }
        if old.1 != new.1 && !SocketFile::may_set_group(new.1) {
            return Err(Errno::PERM.into());
        }
        let group_bits = if old.1 == new.1 { 0o070 } else { 0 };
        file.set_mode(old.0 & new.0 & (0o707 | group_bits))?;
        Ok(Some(Self { file: Rc::clone(file), old, new, is_committed: false }))
    }

    /// Sets the new permissions.
    pub(crate) fn commit(mut self) {
        self.is_committed = true;
        self.set(self.new);
    }

    fn set(&self, (mode, gid): (u32, u32)) {
        if let Err(error) = self.file.set_access(mode, gid) {
            say(&format!("warning: cannot set the permissions of {}: {error}", self.file.path().display()));
        }
    }
}

impl Drop for AccessChange {
    fn drop(&mut self) {
        if !self.is_committed {
            self.set(self.old);
        }
    }
}

/// Looks up the configured group of a socket file.
pub(crate) fn find_gid(listener: &model::Listener) -> Result<Option<u32>, Failure> {
    let Some(name) = &listener.access.group else { return Ok(None) };
    let gid = find_group(name).map_err(|error| explain_access(listener, &error))?;
    gid.ok_or_else(|| explain_access(listener, &"there is no such group")).map(Some)
}

/// Explains why the permissions of a socket file could not be set.
pub(super) fn explain_access(listener: &model::Listener, error: &dyn fmt::Display) -> Failure {
    let advice = listener.access.group.as_ref().map_or_else(String::new, |name| {
        format!("\n  try: a group to which the user of flatout belongs, instead of {name}")
    });
    Failure::runtime(format!("cannot set the permissions of {}: {error}{advice}", listener.address))
}

#[cfg(test)]
mod tests {
    use super::AccessChange;
    use crate::socket_file::SocketFile;
    use crate::socket_file::tests::folder;
    use rustix::process::geteuid;
    use std::fs;
    use std::rc::Rc;

    #[test]
    fn a_change_reduces_permissions_until_it_is_committed_or_dropped() {
        let folder = folder("socket-access");
        let (_socket, file) = SocketFile::bind(&folder.join("sock"), 0o660, None, 1).unwrap();
        let file = Rc::new(file);
        let gid = file.access().unwrap().1;
        let reduce = |mode, gid| AccessChange::reduce(&file, mode, gid).unwrap();
        assert!(reduce(0o660, None).is_none() && reduce(0o660, Some(gid)).is_none());
        let change = reduce(0o646, None);
        assert_eq!(file.access().unwrap(), (0o640, gid));
        drop(change);
        assert_eq!(file.access().unwrap(), (0o660, gid));
        reduce(0o646, None).unwrap().commit();
        assert_eq!(file.access().unwrap(), (0o646, gid));
        // Only root may set a group to which it does not belong.
        if geteuid().is_root() {
            let change = reduce(0o666, Some(gid + 1));
            assert_eq!(file.access().unwrap(), (0o606, gid));
            drop(change);
            assert_eq!(file.access().unwrap(), (0o646, gid));
            reduce(0o666, Some(gid + 1)).unwrap().commit();
            assert_eq!(file.access().unwrap(), (0o666, gid + 1));
        } else {
            assert!(AccessChange::reduce(&file, 0o600, Some(0)).is_err());
            assert_eq!(file.access().unwrap(), (0o646, gid));
        }
        drop(file);
        fs::remove_dir_all(folder).unwrap();
    }
}
