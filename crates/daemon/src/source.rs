//! The source of the configuration: a file, or command-line flags.

use crate::channel::path_bytes;
use crate::failure::Failure;
use flatout_config::model::Config;
use flatout_config::{Disk, Sources, Style, load};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The source of the configuration.
#[derive(Clone, Debug)]
pub enum ConfigSource {
    /// This file and the files that it includes.
    File(PathBuf),
    /// Settings from flags. They never change, but a reload reopens the folders, certificates and logs that they name.
    Flags(Box<Config>),
}

impl ConfigSource {
    /// Reads the configuration. Diagnostics are formatted in `style`.
    ///
    /// # Errors
    /// Returns all diagnostics if the configuration is invalid, with exit code 2.
    pub fn load(&self, style: Style) -> Result<Config, Failure> {
        self.load_from(&Disk, style)
    }

    /// Reads the configuration from `sources`. Diagnostics are formatted in `style`.
    ///
    /// # Errors
    /// Returns all diagnostics if the configuration is invalid, with exit code 2.
    pub(crate) fn load_from(&self, sources: &dyn Sources, style: Style) -> Result<Config, Failure> {
        match self {
            Self::File(path) => load(path, sources).map_err(|diagnostics| {
                let count = diagnostics.count();
                let errors = if count == 1 { "error" } else { "errors" };
                Failure::diagnostics(format!("{}\n{}: {count} {errors}", diagnostics.render(style), path.display()))
            }),
            Self::Flags(config) => Ok((**config).clone()),
        }
    }

    /// The path of the configuration file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Flags(_) => None,
        }
    }
}

/// The files and folders that were read for a configuration. From these, a worker process reads the same configuration
/// without access to the disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RecordedFiles {
    files: Vec<RecordedFile>,
    folders: Vec<RecordedFolder>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedFile {
    #[serde(with = "path_bytes")]
    path: PathBuf,
    content: Vec<u8>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedFolder {
    #[serde(with = "path_bytes")]
    path: PathBuf,
    names: Vec<OsString>,
}

/// Reads from the disk, and records everything that is read.
#[derive(Debug, Default)]
pub(crate) struct RecordingDisk(RefCell<RecordedFiles>);

impl RecordingDisk {
    /// Returns everything that was read.
    pub(crate) fn into_recorded(self) -> RecordedFiles {
        self.0.into_inner()
    }
}

impl Sources for RecordingDisk {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        let content = Disk.read(path, bytes_max)?;
        self.0.borrow_mut().files.push(RecordedFile { path: path.to_owned(), content: content.clone() });
        Ok(content)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let names = Disk.list(folder)?;
        self.0.borrow_mut().folders.push(RecordedFolder { path: folder.to_owned(), names: names.clone() });
        Ok(names)
    }

    fn identify(&self, path: &Path) -> PathBuf {
        Disk.identify(path)
    }

    fn variable(&self, name: &str) -> Option<String> {
        Disk.variable(name)
    }
}

impl Sources for RecordedFiles {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        let file = self.files.iter().find(|file| file.path == path).ok_or(ErrorKind::NotFound)?;
        Ok(file.content[..file.content.len().min(bytes_max.saturating_add(1))].to_vec())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let folder = self.folders.iter().find(|known| known.path == folder).ok_or(ErrorKind::NotFound)?;
        Ok(folder.names.clone())
    }

    fn identify(&self, path: &Path) -> PathBuf {
        Disk.identify(path)
    }

    fn variable(&self, name: &str) -> Option<String> {
        Disk.variable(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{ConfigSource, RecordedFiles, RecordingDisk};
    use flatout_config::Style;
    use std::fs;

    #[test]
    fn a_recorded_configuration_reads_the_same_without_its_files() {
        let folder = std::env::temp_dir().join(format!("flatout-recorded-{}", std::process::id()));
        fs::create_dir_all(folder.join("sites")).unwrap();
        fs::write(folder.join("main.kdl"), "include \"sites/*.kdl\"\nworkers 3\n").unwrap();
        let site = "site \"a.test\" { listen \"127.0.0.1:1\"; respond 200 (file)\"text\"; }";
        fs::write(folder.join("sites/a.kdl"), site).unwrap();
        fs::write(folder.join("sites/text"), "from a file").unwrap();
        let source = ConfigSource::File(folder.join("main.kdl"));
        let disk = RecordingDisk::default();
        let config = source.load_from(&disk, Style::Plain).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let text = serde_json::to_string(&disk.into_recorded()).unwrap();
        let recorded: RecordedFiles = serde_json::from_str(&text).unwrap();
        assert_eq!(source.load_from(&recorded, Style::Plain).unwrap().sites, config.sites);
        assert!(source.load(Style::Plain).is_err());
    }
}
