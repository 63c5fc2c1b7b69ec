//! The path of the admin socket: the configured path, or the system's default for run-time files.

use flatout_config::model::Admin;
use rustix::process::geteuid;
use std::path::PathBuf;

/// The file name of the socket.
const NAME: &str = "flatout.sock";

/// The facts from the environment that determine the default path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The service's run-time folder from systemd (`RUNTIME_DIRECTORY`).
    pub runtime_directory: Option<PathBuf>,
    /// The user's run-time folder (`XDG_RUNTIME_DIR`).
    pub xdg_runtime: Option<PathBuf>,
    /// True if the user is root.
    pub root: bool,
}

impl Places {
    /// Reads the environment of this process.
    pub fn read() -> Self {
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        // If there are several folders, systemd separates them by colons. The first folder is used.
        let runtime_directory = folder("RUNTIME_DIRECTORY").map(|list| match list.to_str() {
            Some(text) => PathBuf::from(text.split(':').next().unwrap_or_default()),
            None => list,
        });
        Self { runtime_directory, xdg_runtime: folder("XDG_RUNTIME_DIR"), root: geteuid().is_root() }
    }

    /// Returns the default path, or `None` if the system has no such folder for this user.
    pub fn default_path(&self) -> Option<PathBuf> {
        if let Some(folder) = &self.runtime_directory {
            return Some(folder.join(NAME));
        }
        if self.root {
            return Some(PathBuf::from("/run").join(NAME));
        }
        self.xdg_runtime.as_ref().map(|folder| folder.join(NAME))
    }

    /// Returns the path for the setting `admin`, or `None` if the admin socket is disabled.
    pub fn resolve(&self, admin: &Admin) -> Option<PathBuf> {
        match admin {
            Admin::Off => None,
            Admin::Path(path) => Some(path.clone()),
            Admin::Default => self.default_path(),
        }
    }

    /// Returns the paths where an operator's command may find the socket, the most likely first. A service has a
    /// separate folder, which is not in the operator's environment.
    pub fn candidates(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.default_path().into_iter().collect();
        for more in [
            self.xdg_runtime.as_ref().map(|folder| folder.join(NAME)),
            Some(PathBuf::from("/run/flatout").join(NAME)),
            Some(PathBuf::from("/run").join(NAME)),
        ] {
            paths.extend(more.filter(|path| !paths.contains(path)));
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::Places;
    use flatout_config::model::Admin;
    use std::path::{Path, PathBuf};

    #[test]
    fn the_nearest_folder_is_taken() {
        let user = Places { runtime_directory: None, xdg_runtime: Some("/run/user/1000".into()), root: false };
        let path = |places: &Places| places.resolve(&Admin::Default);
        assert_eq!(path(&user), Some("/run/user/1000/flatout.sock".into()));
        assert_eq!(path(&Places { root: true, ..user.clone() }), Some("/run/flatout.sock".into()));
        let service = Places { runtime_directory: Some("/run/flatout".into()), ..user.clone() };
        assert_eq!(path(&service), Some("/run/flatout/flatout.sock".into()));
        assert_eq!(path(&Places::default()), None);
        assert_eq!(user.resolve(&Admin::Off), None);
        assert_eq!(user.resolve(&Admin::Path("a".into())), Some(PathBuf::from("a")));
        let candidates = user.candidates();
        assert_eq!(candidates[0], Path::new("/run/user/1000/flatout.sock"));
        assert_eq!(candidates.len(), 3);
    }
}
