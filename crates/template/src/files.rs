//! Sources of pages and included files.

use std::collections::BTreeMap;
use std::io;

/// A folder of pages. Names are relative to the folder and use `/` as separator. No component is empty, `.` or `..`.
pub trait Files {
    /// Reads a file. If it is longer than `bytes_max`, returns only its first `bytes_max` + 1 bytes.
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>>;

    /// The display name of a file, for diagnostics and the log.
    fn show(&self, name: &str) -> String {
        name.to_owned()
    }
}

/// Files in memory, for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    files: BTreeMap<String, Vec<u8>>,
}

impl MemoryFiles {
    /// Creates an empty folder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, name: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        self.files.insert(name.into(), content.into());
        self
    }
}

impl Files for MemoryFiles {
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
        let content = self.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(content[..content.len().min(bytes_max + 1)].to_vec())
    }
}
