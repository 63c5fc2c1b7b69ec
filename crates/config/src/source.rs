//! Sources of files and variables: the disk and the environment, or memory in tests.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Access to the files and environment variables of a configuration.
pub trait Sources {
    /// Reads a file. If it is longer than `bytes_max`, returns only its first `bytes_max` + 1 bytes.
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>>;

    /// Lists the names in a folder, in any order.
    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// Returns an identifier of the file that is the same for every path to it.
    fn identify(&self, path: &Path) -> PathBuf;

    /// Returns the value of an environment variable, or `None` if the variable is not set or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;
}

/// The disk and the environment of this process. The path `-` means standard input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Sources for Disk {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        if path == Path::new("-") {
            io::stdin().lock().take(bytes_max as u64 + 1).read_to_end(&mut content)?;
            return Ok(content);
        }
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        file.take(bytes_max as u64 + 1).read_to_end(&mut content)?;
        Ok(content)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn identify(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn variable(&self, name: &str) -> Option<String> {
        // No variable can have such a name, and `std::env::var` might panic.
        if name.is_empty() || name.contains(['=', '\0']) {
            return None;
        }
        std::env::var(name).ok()
    }
}

/// Files and variables held in memory.
#[derive(Clone, Debug, Default)]
pub struct MemorySource {
    files: BTreeMap<PathBuf, Vec<u8>>,
    variables: BTreeMap<String, String>,
}

impl MemorySource {
    /// Creates a source without files or variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        self.files.insert(path.into(), content.into());
        self
    }

    /// Adds a variable.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }
}

impl Sources for MemorySource {
    fn read(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        let content = self.files.get(&self.identify(path)).ok_or(io::ErrorKind::NotFound)?;
        Ok(content[..content.len().min(bytes_max + 1)].to_vec())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let folder = self.identify(folder);
        let inside = self.files.keys().filter(|path| path.parent() == Some(&folder));
        Ok(inside.filter_map(|path| path.file_name().map(OsString::from)).collect())
    }

    fn identify(&self, path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    plain.pop();
                }
                other => plain.push(other),
            }
        }
        plain
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }
}
