//! Where pages and what they include are read from.

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A folder of pages. Names are relative to it, with `/` between their parts; none is empty, `.` or `..`.
pub trait Files {
    /// A file's content; one byte more than `bytes_max` when it is longer than that.
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>>;

    /// How a file is named to people: in diagnostics, in the log.
    fn show(&self, name: &str) -> String {
        name.to_owned()
    }
}

/// A folder on the disk, held open. No name leads out of it, through links neither.
#[derive(Debug)]
pub struct Folder {
    folder: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let shown = if path == Path::new(".") { PathBuf::new() } else { path.to_owned() };
        Ok(Self { folder: open(path, flags, Mode::empty())?, path: shown })
    }
}

impl Files for Folder {
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
        // Not blocking, should the name be a pipe's.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(openat2(&self.folder, name, flags, Mode::empty(), resolve)?);
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let mut content = Vec::new();
        file.take(bytes_max as u64 + 1).read_to_end(&mut content)?;
        Ok(content)
    }

    fn show(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

/// Files held in memory.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    files: BTreeMap<String, Vec<u8>>,
}

impl Memory {
    /// Nothing yet.
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

impl Files for Memory {
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
        let content = self.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(content[..content.len().min(bytes_max + 1)].to_vec())
    }
}
