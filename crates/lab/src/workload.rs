//! Workloads on this machine: reading lists and logs, and writing sets of files to be served.

use aws_lc_rs::digest::{Context, SHA256};
use flatout_load::workload::fileset::{ContentGenerator, FileSpec, Fileset};
use flatout_load::workload::{AccessLog, EntryContent, Faults, LogReader, Workload, filelist, urls};
use rustix::fs::statvfs;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum length of a list, in bytes.
pub const LIST_BYTES_MAX: u64 = 256 << 20;

/// Maximum length of the content of a request, in bytes. It is held in memory.
pub const CONTENT_BYTES_MAX: u64 = 64 << 20;

/// Maximum length of the contents of all requests of a list together, in bytes.
pub const CONTENTS_BYTES_MAX: u64 = 256 << 20;

/// Name of the list that is written next to the files of a set.
pub const FILELIST_NAME: &str = "filelist";

/// Number of bytes read or written at once.
const PIECE_BYTES: usize = 64 << 10;

/// The reason a workload could not be read from a file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("cannot read {0}: {1}")]
    Io(PathBuf, io::Error),
    /// The file is larger than [`LIST_BYTES_MAX`].
    #[error("{0} is larger than {LIST_BYTES_MAX} bytes")]
    TooLarge(PathBuf),
    /// The content of a request is larger than [`CONTENT_BYTES_MAX`].
    #[error("{0} is larger than {CONTENT_BYTES_MAX} bytes")]
    ContentTooLarge(PathBuf),
    /// The contents of all requests of a list are larger than [`CONTENTS_BYTES_MAX`].
    #[error("with {0}, the contents of all requests together are larger than {CONTENTS_BYTES_MAX} bytes")]
    ContentsTooLarge(PathBuf),
    /// The file is compressed. Contains the format, and a program that decompresses it.
    #[error("{0} is compressed with {1}; decompress it first, for example with {2}")]
    Compressed(PathBuf, &'static str, &'static str),
    /// The list names files, which agents do not read: they send only what the controller gives them.
    #[error("{0} names files with @, which agents do not read; write the bodies into the list")]
    NamesFiles(PathBuf),
    /// Some lines are malformed, or the file is empty.
    #[error("{0} cannot be used:\n  {lines}", lines = .1.to_string().replace('\n', "\n  "))]
    Malformed(PathBuf, Faults),
}

/// Reads a list in WebStone's format.
///
/// # Errors
/// Returns the reason, with the numbers of malformed lines.
pub fn read_filelist(path: &Path) -> Result<Workload, ReadError> {
    filelist::parse(&read_list(path)?).map_err(|faults| ReadError::Malformed(path.to_owned(), faults))
}

/// Reads a list of URLs that are requested in turn. If `may_read_files`, also reads the files with the content of
/// requests that the list names.
///
/// # Errors
/// Returns the reason, with the numbers of malformed lines.
pub fn read_urls(path: &Path, may_read_files: bool) -> Result<Workload, ReadError> {
    let mut workload =
        urls::parse(&read_list(path)?).map_err(|faults| ReadError::Malformed(path.to_owned(), faults))?;
    if !may_read_files && workload.entries.iter().any(|entry| matches!(entry.content, Some(EntryContent::File(_)))) {
        return Err(ReadError::NamesFiles(path.to_owned()));
    }
    read_contents(&mut workload, path.parent().unwrap_or(Path::new("")))?;
    Ok(workload)
}

/// Reads the files with the content of requests. Names are relative to `folder`. Each file is read once.
fn read_contents(workload: &mut Workload, folder: &Path) -> Result<(), ReadError> {
    let mut contents: HashMap<Box<str>, Arc<[u8]>> = HashMap::new();
    let mut bytes_left = CONTENTS_BYTES_MAX;
    for entry in &mut workload.entries {
        let Some(EntryContent::File(name)) = &entry.content else { continue };
        let content = match contents.get(name) {
            Some(content) => Arc::clone(content),
            None => Arc::from(read_content(&folder.join(&**name))?),
        };
        // Each request contains a copy.
        let Some(left) = bytes_left.checked_sub(content.len() as u64) else {
            return Err(ReadError::ContentsTooLarge(folder.join(&**name)));
        };
        bytes_left = left;
        contents.insert(name.clone(), Arc::clone(&content));
        entry.content = Some(EntryContent::Bytes(content));
    }
    Ok(())
}

/// Reads the content of requests, from standard input if the path is `-`.
///
/// # Errors
/// Fails if the content cannot be read, or is larger than [`CONTENT_BYTES_MAX`].
pub fn read_content(path: &Path) -> Result<Vec<u8>, ReadError> {
    let failed = |error| ReadError::Io(path.to_owned(), error);
    let mut content = Vec::new();
    open(path).map_err(failed)?.take(CONTENT_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    let is_too_large = content.len() as u64 > CONTENT_BYTES_MAX;
    if is_too_large { Err(ReadError::ContentTooLarge(path.to_owned())) } else { Ok(content) }
}

/// Reads an access log, from standard input if the path is `-`, within the limits of [`AccessLog`]. Malformed lines are
/// reported in the result.
///
/// # Errors
/// Fails if the log cannot be read.
pub fn read_log(path: &Path) -> Result<AccessLog, ReadError> {
    let failed = |error| ReadError::Io(path.to_owned(), error);
    let mut input = open(path).map_err(failed)?;
    let mut reader = LogReader::default();
    let mut piece = vec![0; PIECE_BYTES];
    let mut is_first = true;
    loop {
        match input.read(&mut piece) {
            Ok(0) => return Ok(reader.finish()),
            Ok(bytes) if std::mem::take(&mut is_first) => {
                reject_compressed(path, &piece[..bytes])?;
                if !reader.handle_bytes(&piece[..bytes]) {
                    return Ok(reader.finish());
                }
            }
            Ok(bytes) if reader.handle_bytes(&piece[..bytes]) => {}
            Ok(_) => return Ok(reader.finish()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Reads an access log in which every line must be valid.
///
/// # Errors
/// Fails if the log cannot be read. If lines are malformed, the error lists their numbers.
pub fn read_sound_log(path: &Path) -> Result<AccessLog, ReadError> {
    let log = read_log(path)?;
    if log.faults.is_empty() { Ok(log) } else { Err(ReadError::Malformed(path.to_owned(), log.faults)) }
}

/// Rejects a file that is compressed, by its first bytes.
fn reject_compressed(path: &Path, first: &[u8]) -> Result<(), ReadError> {
    let formats: [(&[u8], _, _); 3] =
        [(b"\x1f\x8b", "gzip", "zcat"), (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"), (b"\xfd7zXZ\0", "xz", "xzcat")];
    match formats.into_iter().find(|(magic, ..)| first.starts_with(magic)) {
        Some((_, format, program)) => Err(ReadError::Compressed(path.to_owned(), format, program)),
        None => Ok(()),
    }
}

/// Reads the text of a list, from standard input if the path is `-`.
///
/// # Errors
/// Fails if the list cannot be read, or is too large.
pub fn read_list(path: &Path) -> Result<Vec<u8>, ReadError> {
    let failed = |error| ReadError::Io(path.to_owned(), error);
    let mut text = Vec::new();
    open(path).map_err(failed)?.take(LIST_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    reject_compressed(path, &text)?;
    if text.len() as u64 > LIST_BYTES_MAX { Err(ReadError::TooLarge(path.to_owned())) } else { Ok(text) }
}

fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(Box::new(file))
}

/// The reason a set of files was not written completely.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The folder contains something other than an earlier set with the same name.
    #[error(
        "{0} contains other files, which flatout does not overwrite; use a folder that is empty or does not exist yet"
    )]
    NotEmpty(PathBuf),
    /// The disk has less free space than the set needs.
    #[error("the files need {needed} bytes, but the disk has only {free} left")]
    NoRoom {
        /// Number of free bytes.
        free: u64,
        /// Number of bytes that the set needs.
        needed: u64,
    },
    /// Writing failed.
    #[error("cannot write {path}: {error} ({written} of {files} files were written)")]
    Io {
        /// The file, as given on the command line.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
        /// Number of files written so far, which remain.
        written: usize,
        /// Number of files in the set.
        files: usize,
    },
}

/// Writes the files of a set into a folder, and a list with the size and SHA-256 of each. Creates the folder if
/// necessary. `progress` receives the number of files written so far. Returns the path of the list.
///
/// # Errors
/// Returns the reason the set was not written completely.
pub fn make(set: &Fileset, folder: &Path, mut progress: impl FnMut(usize)) -> Result<PathBuf, MakeError> {
    let files = set.files.len();
    let failed = |path: &Path, written: usize| {
        let path = path.to_owned();
        move |error| MakeError::Io { path, error, written, files }
    };
    fs::create_dir_all(folder).map_err(failed(folder, 0))?;
    if !is_ours(folder, set.name).map_err(failed(folder, 0))? {
        return Err(MakeError::NotEmpty(folder.to_owned()));
    }
    check_room(set, folder)?;
    let list = folder.join(FILELIST_NAME);
    // Write a preliminary list first, so that an interrupted set is recognised. The complete list with digests replaces
    // it at the end.
    fs::write(&list, set.filelist(|_| None)).map_err(failed(&list, 0))?;
    let mut digests = Vec::with_capacity(files);
    for (index, file) in set.files.iter().enumerate() {
        let path = folder.join(file.path.trim_start_matches('/'));
        digests.push(write_file(file, &path).map_err(failed(&path, index))?);
        progress(index + 1);
    }
    let text = set.filelist(|index| digests.get(index).copied());
    fs::write(&list, text).map_err(failed(&list, files))?;
    Ok(list)
}

/// Returns whether a folder is empty, or contains a set with this name that was written by this program.
fn is_ours(folder: &Path, name: &str) -> io::Result<bool> {
    if fs::read_dir(folder)?.next().is_none() {
        return Ok(true);
    }
    let wanted = format!("# {name}: ");
    let mut beginning = vec![0; wanted.len()];
    match File::open(folder.join(FILELIST_NAME)).and_then(|mut list| list.read_exact(&mut beginning)) {
        Ok(()) => Ok(beginning == wanted.as_bytes()),
        Err(_) => Ok(false),
    }
}

fn check_room(set: &Fileset, folder: &Path) -> Result<(), MakeError> {
    // Rewriting a set takes no additional space. If the free space is unknown, a shortage will show when writing.
    let Ok(status) = statvfs(folder) else { return Ok(()) };
    let there: u64 = set
        .files
        .iter()
        .filter_map(|file| fs::metadata(folder.join(file.path.trim_start_matches('/'))).ok())
        .map(|metadata| metadata.len())
        .sum();
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    let needed = set.bytes_total().saturating_sub(there);
    if needed > free { Err(MakeError::NoRoom { free, needed }) } else { Ok(()) }
}

/// Writes a file. Removes the file if that fails, because a truncated file would look complete.
fn write_file(file: &FileSpec, path: &Path) -> io::Result<[u8; 32]> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let written = write_content(file, path);
    if written.is_err() {
        // The first error is the one that is reported.
        let _ = fs::remove_file(path);
    }
    written
}

fn write_content(file: &FileSpec, path: &Path) -> io::Result<[u8; 32]> {
    let mut output = File::create(path)?;
    let mut content = ContentGenerator::of(&file.path);
    let mut digest = Context::new(&SHA256);
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = file.bytes;
    while left > 0 {
        let bytes = left.min(PIECE_BYTES as u64) as usize;
        content.fill(&mut piece[..bytes]);
        digest.update(&piece[..bytes]);
        output.write_all(&piece[..bytes])?;
        left -= bytes as u64;
    }
    let mut sum = [0; 32];
    sum.copy_from_slice(digest.finish().as_ref());
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::{FILELIST_NAME, MakeError, ReadError, make, read_filelist, read_log, read_sound_log, read_urls};
    use aws_lc_rs::digest::{SHA256, digest};
    use flatout_load::workload::fileset::Fileset;
    use std::fs;
    use std::path::{Path, PathBuf};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("flatout-workload-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_set_is_what_its_list_says() {
        let folder = Folder::new("set");
        let set = Fileset::web96(0.01, 4.0).unwrap();
        let mut told = Vec::new();
        let list = make(&set, &folder.0, |count| told.push(count)).unwrap();
        assert_eq!((list.as_path(), told), (folder.0.join(FILELIST_NAME).as_path(), (1..=36).collect()));
        let workload = read_filelist(&list).unwrap();
        assert_eq!(workload.entries.len(), 36);
        for entry in &workload.entries {
            let content = fs::read(folder.0.join(&entry.address.target[1..])).unwrap();
            assert_eq!(Some(content.len() as u64), entry.body_bytes);
            assert_eq!(Some(digest(&SHA256, &content).as_ref()), entry.sha256.as_ref().map(<[u8; 32]>::as_slice));
        }
        // Writing the set again gives the same files. Another set is rejected, and so is a folder with other files.
        let before = fs::read(&list).unwrap();
        make(&set, &folder.0, |_| {}).unwrap();
        assert_eq!(fs::read(&list).unwrap(), before);
        let refused = make(&Fileset::webstone_standard(), &folder.0, |_| {});
        assert!(matches!(refused, Err(MakeError::NotEmpty(_))), "{refused:?}");
        fs::remove_file(&list).unwrap();
        assert!(make(&set, &folder.0, |_| {}).unwrap_err().to_string().contains("does not overwrite"));
    }

    #[test]
    fn a_failed_write_names_the_file() {
        let folder = Folder::new("blocked");
        fs::create_dir_all(&folder.0).unwrap();
        let set = Fileset::webstone_standard();
        let list = make(&set, &folder.0, |_| {}).unwrap();
        fs::remove_file(folder.0.join("file50k.html")).unwrap();
        fs::create_dir(folder.0.join("file50k.html")).unwrap();
        let error = make(&set, &folder.0, |_| {}).unwrap_err().to_string();
        assert!(error.contains("file50k.html") && error.contains("(2 of 5 files were written)"), "{error}");
        assert!(folder.0.join("file5k.html").is_file() && list.is_file());
    }

    #[test]
    fn lists_and_logs_say_their_lines() {
        let folder = Folder::new("lists");
        fs::create_dir_all(&folder.0).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.0.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let list = file("list", "/a 1\n/b x\nnothing 3\n");
        let error = read_filelist(&list).unwrap_err().to_string();
        assert!(error.contains("\n  line 2: the weight") && error.contains("\n  line 3: there is no URL"), "{error}");
        assert_eq!(read_urls(&file("urls", "/a\n/b\n"), true).unwrap().entries.len(), 2);
        let log = "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1\nnonsense\n";
        let log = file("log", log);
        assert_eq!(read_log(&log).unwrap().requests.len(), 1);
        assert!(read_sound_log(&log).unwrap_err().to_string().contains("line 2: "));
        assert!(matches!(read_log(&folder.0), Err(ReadError::Io(..))));
        let compressed = folder.0.join("log.gz");
        fs::write(&compressed, b"\x1f\x8b\x08\x00rest").unwrap();
        let errors = [read_sound_log(&compressed).unwrap_err(), read_filelist(&compressed).unwrap_err()];
        for error in errors.map(|error| error.to_string()) {
            assert!(
                error.ends_with("log.gz is compressed with gzip; decompress it first, for example with zcat"),
                "{error}"
            );
        }
        assert!(matches!(read_filelist(Path::new("/nowhere/list")), Err(ReadError::Io(..))));
    }
}
