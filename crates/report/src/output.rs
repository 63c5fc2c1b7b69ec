//! The destination of a result: standard output, or a file, which is replaced atomically.

use super::style::shown;
use super::wrap::wrap;
use flatout_load::report::visible::visible_lines;
use rustix::fs::{Access, access};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Maximum number of symbolic links that are followed from a name to its file. The kernel has the same limit.
const LINKS_MAX: usize = 40;

/// The destination of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, on which the JSON replaces the text report.
    Stdout,
    /// A file with this path. An existing regular file is replaced only when the new one is complete. If the path is a
    /// pipe or a device, the JSON is written to it.
    File(PathBuf),
}

impl Output {
    /// Parses a path; `-` is standard output.
    pub fn parse(text: &str) -> Self {
        if text == "-" { Self::Stdout } else { Self::File(text.into()) }
    }

    /// Writes `text`, followed by a line end.
    pub fn write(&self, text: &str) -> io::Result<()> {
        let text = format!("{text}\n");
        match self {
            Self::Stdout => print(&text),
            Self::File(path) => match Destination::find(path)? {
                Destination::Stdout => print(&text),
                Destination::Stderr => io::stderr().lock().write_all(text.as_bytes()),
                Destination::Into(path) => OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes()),
                Destination::Replace(path) => write_whole(&path, text.as_bytes()),
            },
        }
    }

    /// Checks before a long run that the output can be written: that the folder exists and is writable.
    pub fn check(&self) -> io::Result<()> {
        let Self::File(path) = self else { return Ok(()) };
        match Destination::find(path)? {
            Destination::Stdout | Destination::Stderr => Ok(()),
            // Opening a pipe would wait for its reader, and closing it would make the reader stop.
            Destination::Into(path) => Ok(access(path, Access::WRITE_OK)?),
            Destination::Replace(path) => {
                let aside = aside(&path);
                fs::write(&aside, "")?;
                fs::remove_file(aside)
            }
        }
    }
}

/// The kind of file that a path leads to.
#[derive(Debug, PartialEq, Eq)]
enum Destination {
    /// Standard output of this process, by the name of its descriptor.
    Stdout,
    /// Standard error of this process, by the name of its descriptor.
    Stderr,
    /// A file that cannot be replaced, because it is not a regular file or has no name. It is opened and written to.
    Into(PathBuf),
    /// A regular file, or no file yet, after following all links.
    Replace(PathBuf),
}

impl Destination {
    fn find(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            if let Some(descriptor) = own_descriptor(&path) {
                return Ok(match descriptor {
                    1 => Self::Stdout,
                    2 => Self::Stderr,
                    _ => Self::Into(path),
                });
            }
            // The target of a relative link starts from the link's folder.
            match fs::read_link(&path) {
                Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
                Err(_) => return Self::of_file(path),
            }
        }
        Err(rustix::io::Errno::LOOP.into())
    }

    fn of_file(path: PathBuf) -> io::Result<Self> {
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(metadata) if !metadata.is_file() => Ok(Self::Into(path)),
            // If the folder has a problem, writing the file will report it.
            Ok(_) | Err(_) => Ok(Self::Replace(path)),
        }
    }
}

/// Returns the number of the descriptor if the path names an open descriptor of this process, such as `/dev/fd/3`.
fn own_descriptor(path: &Path) -> Option<u32> {
    let descriptor = path.file_name()?.to_str()?.parse().ok()?;
    let folder = fs::canonicalize(path.parent()?).ok()?;
    let is_own = fs::canonicalize("/proc/self/fd").is_ok_and(|own| own == folder);
    is_own.then_some(descriptor)
}

/// Writes text to standard output, which may be a terminal. Makes control characters visible, except for the lab's own
/// colours, and breaks long lines between words if standard output is a terminal.
pub fn show(text: &str) -> io::Result<()> {
    let stdout = io::stdout();
    let text = shown(text);
    match rustix::termios::tcgetwinsize(&stdout) {
        Ok(size) => print(&wrap(&text, size.ws_col.into())),
        Err(_) => print(&text),
    }
}

/// Writes an error of a command to standard error. Makes control characters visible.
pub fn complain(verb: &str, text: &str) {
    eprintln!("flatout {verb}: {}", visible_lines(text));
}

/// Writes to standard output unchanged, for programs. If the reader has closed the pipe (`| head`), that is not an
/// error.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a file under another name and then renames it. So no reader sees a partial file, and a full disk does not
/// damage an earlier file. The new file has the permissions of the earlier one.
///
/// # Errors
/// Returns the first error. The partial file is removed.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let aside = aside(path);
    let mut written = fs::write(&aside, content);
    if let (Ok(()), Ok(earlier)) = (&written, fs::metadata(path)) {
        written = fs::set_permissions(&aside, earlier.permissions());
    }
    let written = written.and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _removed = fs::remove_file(&aside);
    }
    written
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::{Destination, Output};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::path::{Path, PathBuf};
    use std::thread;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("flatout-output-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn output(&self, name: &str) -> (Output, PathBuf) {
            let path = self.0.join(name);
            (Output::parse(path.to_str().unwrap()), path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _removed = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = Folder::new("file");
        let (output, path) = folder.output("result.json");
        output.check().unwrap();
        assert!(!path.exists());
        output.write("{}").unwrap();
        output.write("{\"a\":1}").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}\n");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
        fs::remove_dir_all(&folder.0).unwrap();
        assert!(output.check().is_err() && output.write("x").is_err());
        assert_eq!(Output::parse("-"), Output::Stdout);
    }

    #[test]
    fn a_pipe_is_written_to_and_stays_one() {
        let folder = Folder::new("pipe");
        let (output, path) = folder.output("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        output.check().unwrap();
        let reader = {
            let path = path.clone();
            thread::spawn(move || fs::read_to_string(path).unwrap())
        };
        output.write("{}").unwrap();
        assert_eq!(reader.join().unwrap(), "{}\n");
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn links_are_followed_and_stay_links() {
        let folder = Folder::new("link");
        fs::create_dir(folder.0.join("real")).unwrap();
        // One link leads to the other, relative to its folder, and the last link leads to a file that does not exist
        // yet.
        let (output, link) = folder.output("link.json");
        symlink("real/next", &link).unwrap();
        symlink("result.json", folder.0.join("real/next")).unwrap();
        for text in ["{}", "{\"a\":1}"] {
            output.check().unwrap();
            output.write(text).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(folder.0.join("real/result.json")).unwrap(), format!("{text}\n"));
            assert_eq!(fs::read_dir(folder.0.join("real")).unwrap().count(), 2);
        }
        let (output, round) = folder.output("round");
        symlink("round", &round).unwrap();
        assert!(output.check().is_err() && output.write("x").is_err());
    }

    #[test]
    fn devices_and_descriptors_are_written_to_and_folders_are_not() {
        let output = Output::parse("/dev/null");
        output.check().unwrap();
        output.write("{}").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(Destination::find(Path::new("/dev/stdout")).unwrap(), Destination::Stdout);
        assert_eq!(Destination::find(Path::new("/dev/fd/2")).unwrap(), Destination::Stderr);
        let (reader, writer) = std::io::pipe().unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&writer);
        let output = Output::parse(&format!("/dev/fd/{descriptor}"));
        output.check().unwrap();
        output.write("{}").unwrap();
        drop(writer);
        assert_eq!(std::io::read_to_string(reader).unwrap(), "{}\n");
        assert!(Output::parse("/").check().is_err());
    }
}
