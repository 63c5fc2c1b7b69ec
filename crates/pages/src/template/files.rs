//! Sources of pages and their includes.

use flatout_net::root::{OpenFault, Root};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// A folder of pages. Names are relative to it, with `/` as separator; no component is empty, `.` or `..`.
pub trait Files {
    /// A file's content; one byte more than `bytes_max` if it is longer.
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>>;

    /// The display name of a file, for diagnostics and the log.
    fn show(&self, name: &str) -> String {
        name.to_owned()
    }
}

/// A folder on disk, held open. No name leads out of it, not even through links.
#[derive(Debug)]
pub struct TemplateFolder {
    folder: Root,
    path: PathBuf,
}

impl TemplateFolder {
    /// Opens the folder at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let shown = if path == Path::new(".") { PathBuf::new() } else { path.to_owned() };
        Ok(Self { folder: Root::open(path)?, path: shown })
    }
}

impl Files for TemplateFolder {
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
        let (file, _) = self.folder.open_file(name.as_bytes()).map_err(error_of)?;
        let mut content = Vec::new();
        File::from(file).take(bytes_max as u64 + 1).read_to_end(&mut content)?;
        Ok(content)
    }

    fn show(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

/// The fault as an error that describes the problem with the name.
pub(crate) fn error_of(fault: OpenFault) -> io::Error {
    match fault {
        OpenFault::NotFound => io::ErrorKind::NotFound.into(),
        OpenFault::Forbidden => io::ErrorKind::PermissionDenied.into(),
        OpenFault::OutsideRoot => io::Error::other("it leads out of the folder"),
        OpenFault::NotAFile => io::Error::other("it is no regular file"),
        OpenFault::NoDescriptor => io::Error::other("no file descriptor is left"),
        OpenFault::Unsettled | OpenFault::Failed => io::Error::other("it cannot be opened"),
    }
}

/// Files in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    files: BTreeMap<String, Vec<u8>>,
}

impl MemoryFiles {
    /// An empty folder.
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
