//! A log in a regular file: lines are appended, and the file is rotated when it is large or old. The file never ends
//! with a partial line.

use super::rotation::{delete_oldest, rotate_file};
use super::sink::{IncompleteWrite, Written};
use flatout_http::access::Rotation;
use rustix::fs::{fstat, ftruncate};
use rustix::io::{Errno, write};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Delay between a failed rotation and the next attempt, in seconds.
const RETRY_S: i64 = 60;

/// A regular file to which lines are appended.
#[derive(Debug)]
pub(super) struct FileTarget {
    file: File,
    /// The file's path with symbolic links resolved; `None` for standard output, which is never rotated.
    path: Option<PathBuf>,
    rotation: Rotation,
    size_bytes: u64,
    /// Time at which the file's first line was written, as far as that can be determined.
    began_s: i64,
    /// No rotation is attempted before this time.
    retry_s: i64,
    rotations: u64,
    complaint: Option<String>,
    /// True if the current failure has already been reported.
    complained: bool,
    /// True if a partial line could not be removed.
    within_line: bool,
}

impl FileTarget {
    pub(super) fn new(path: &Path, file: File, metadata: &Metadata, rotation: Rotation, unix_s: i64) -> Self {
        // A file created by an earlier process already has an age.
        let created = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let created_s = created.and_then(|since| i64::try_from(since.as_secs()).ok());
        let began_s = created_s.filter(|_| metadata.len() > 0).unwrap_or(unix_s);
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self { path: Some(path), rotation, size_bytes: metadata.len(), began_s, ..Self::of_stdout(file) }
    }

    pub(super) fn of_stdout(file: File) -> Self {
        Self {
            file,
            path: None,
            rotation: Rotation::default(),
            size_bytes: 0,
            began_s: 0,
            retry_s: i64::MIN,
            rotations: 0,
            complaint: None,
            complained: false,
            within_line: false,
        }
    }

    pub(super) const fn rotation(&self) -> Rotation {
        self.rotation
    }

    pub(super) const fn set_rotation(&mut self, rotation: Rotation) {
        self.rotation = rotation;
    }

    /// Returns whether the file is rotated by age.
    pub(super) const fn ages(&self) -> bool {
        self.rotation.age_max_s.is_some()
    }

    /// Returns the number of rotations since the last call, and resets it.
    pub(super) const fn take_rotations(&mut self) -> u64 {
        std::mem::replace(&mut self.rotations, 0)
    }

    /// Takes the failure that has not been reported yet, if any.
    pub(super) const fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    pub(super) fn write(&mut self, bytes: &[u8], unix_s: i64) -> Written {
        self.read_size();
        if self.within_line {
            match write(&self.file, b"\n") {
                Ok(_) => self.within_line = false,
                Err(errno) => return Written { bytes: 0, stop: Some(IncompleteWrite::Failed(errno.into())) },
            }
        }
        let mut taken = 0;
        while taken < bytes.len() {
            let piece = self.choose_piece(&bytes[taken..], unix_s);
            if self.size_bytes == 0 {
                self.began_s = unix_s;
            }
            let (count, failed) = self.append(piece);
            taken += count;
            if let Some(errno) = failed {
                return Written { bytes: taken, stop: Some(IncompleteWrite::Failed(errno.into())) };
            }
        }
        Written { bytes: taken, stop: None }
    }

    /// Returns the leading lines of `bytes` that fit into the file before its next rotation. Rotates the file if that
    /// is due.
    fn choose_piece<'a>(&mut self, bytes: &'a [u8], unix_s: i64) -> &'a [u8] {
        self.handle_time(unix_s);
        let Some(bytes_max) = self.rotation.bytes_max.filter(|_| self.path.is_some()) else { return bytes };
        let fitting = |room: u64| {
            let room = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            bytes[..room].iter().rposition(|&byte| byte == b'\n').map(|last| &bytes[..=last])
        };
        if let Some(piece) = fitting(bytes_max.saturating_sub(self.size_bytes)) {
            return piece;
        }
        if self.size_bytes > 0 && !self.rotate(unix_s) {
            return bytes;
        }
        fitting(bytes_max).unwrap_or_else(|| {
            // A line that exceeds the maximum file size is written to a file of its own.
            let line = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |end| end + 1);
            &bytes[..line]
        })
    }

    /// Appends `piece`. If an error occurs, only whole lines are appended and the error is returned too.
    fn append(&mut self, piece: &[u8]) -> (usize, Option<Errno>) {
        let mut count = 0;
        while count < piece.len() {
            match write(&self.file, &piece[count..]) {
                Ok(0) => return (self.take_back(piece, count), Some(Errno::NOSPC)),
                Ok(taken) => count += taken,
                Err(Errno::INTR) => {}
                Err(errno) => return (self.take_back(piece, count), Some(errno)),
            }
        }
        self.size_bytes += count as u64;
        (count, None)
    }

    /// Truncates the partial line after only `count` bytes of `piece` were written, unless another process has appended
    /// to the file since then. Returns the total length of the whole lines.
    fn take_back(&mut self, piece: &[u8], count: usize) -> usize {
        let whole = piece[..count].iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let size_bytes = self.size_bytes + count as u64;
        self.size_bytes += whole as u64;
        if whole < count {
            let is_last = self.path.is_some() && fstat(&self.file).is_ok_and(|stat| stat.st_size as u64 == size_bytes);
            self.within_line = !is_last || ftruncate(&self.file, self.size_bytes).is_err();
        }
        whole
    }

    /// Updates the size, because other processes may have truncated the file or appended to it.
    fn read_size(&mut self) {
        if let Ok(stat) = fstat(&self.file) {
            self.size_bytes = stat.st_size as u64;
        }
    }

    /// Rotates the file if it is old enough.
    pub(super) fn handle_time(&mut self, unix_s: i64) {
        let Some(age_max_s) = self.rotation.age_max_s else { return };
        let age_s = u64::try_from(unix_s.saturating_sub(self.began_s)).unwrap_or(0);
        if self.size_bytes > 0 && age_s >= age_max_s {
            // Another process may have truncated the file since the last check.
            self.read_size();
            if self.size_bytes > 0 {
                self.rotate(unix_s);
            }
        }
    }

    /// Rotates the file and continues in a new one. If that fails, continues in the current file.
    fn rotate(&mut self, unix_s: i64) -> bool {
        let Some(path) = self.path.clone().filter(|_| unix_s >= self.retry_s) else { return false };
        match self.try_rotate(&path, unix_s) {
            Ok(()) => {
                self.size_bytes = 0;
                self.began_s = unix_s;
                self.delete_oldest(&path);
                true
            }
            Err(error) => {
                self.retry_s = unix_s.saturating_add(RETRY_S);
                self.complain(format!("cannot rename the access log {}: {error}", path.display()));
                false
            }
        }
    }

    fn try_rotate(&mut self, path: &Path, unix_s: i64) -> io::Result<()> {
        let ours = self.file.metadata()?;
        let named = path.symlink_metadata();
        // If another process renamed or removed the file, only a new file must be created.
        let is_ours = named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()));
        let aside = is_ours.then(|| rotate_file(path, unix_s)).transpose()?;
        let mode = ours.permissions().mode() & 0o777;
        match OpenOptions::new().append(true).create(true).mode(mode).open(path) {
            Ok(file) => self.file = file,
            Err(error) => {
                if let Some(aside) = aside {
                    let _ = std::fs::rename(aside, path);
                }
                return Err(error);
            }
        }
        self.rotations += u64::from(is_ours);
        Ok(())
    }

    fn delete_oldest(&mut self, path: &Path) {
        match delete_oldest(path, self.rotation.keep) {
            Ok(()) => self.complained = false,
            Err(error) => {
                self.complain(format!("cannot delete old rotated files of the access log {}: {error}", path.display()));
            }
        }
    }

    fn complain(&mut self, text: String) {
        if !self.complained {
            self.complaint = Some(text);
        }
        self.complained = true;
    }
}

#[cfg(test)]
mod tests {
    use super::FileTarget;
    use flatout_http::access::Rotation;
    use std::fs::{self, OpenOptions};
    use std::path::{Path, PathBuf};

    const NOW_S: i64 = 784_111_777;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("flatout-file-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn open(path: &Path, rotation: Rotation) -> FileTarget {
        let file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        let metadata = file.metadata().unwrap();
        FileTarget::new(path, file, &metadata, rotation, NOW_S)
    }

    fn write(target: &mut FileTarget, text: &str, unix_s: i64) {
        let written = target.write(text.as_bytes(), unix_s);
        assert!(written.bytes == text.len() && written.stop.is_none(), "{written:?}");
    }

    #[test]
    fn age_counts_from_the_first_line() {
        let folder = folder("age");
        let path = folder.join("log");
        let mut target = open(&path, Rotation { age_max_s: Some(60), ..Rotation::default() });
        target.handle_time(NOW_S + 100);
        write(&mut target, "a\n", NOW_S + 100);
        target.handle_time(NOW_S + 159);
        assert_eq!(target.take_rotations(), 0);
        write(&mut target, "b\n", NOW_S + 160);
        assert_eq!(fs::read_to_string(folder.join("log.19941106-085217")).unwrap(), "a\n");
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), target.take_rotations()), ("b\n", 1));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn changes_by_other_processes_are_detected() {
        let folder = folder("others");
        let path = folder.join("log");
        let mut target = open(&path, Rotation { bytes_max: Some(10), ..Rotation::default() });
        write(&mut target, "12345678\n", NOW_S);
        // Emptied in place: there is room again.
        fs::write(&path, "").unwrap();
        write(&mut target, "abcdefgh\n", NOW_S);
        assert_eq!(fs::read_to_string(&path).unwrap(), "abcdefgh\n");
        // Renamed, and another in its place: the other is not rotated but appended to.
        fs::rename(&path, folder.join("renamed")).unwrap();
        fs::write(&path, "other\n").unwrap();
        write(&mut target, "next one\n", NOW_S);
        assert_eq!(fs::read_to_string(&path).unwrap(), "other\nnext one\n");
        assert_eq!(target.take_rotations(), 0);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn names_within_a_second_are_counted_and_a_link_stays() {
        let folder = folder("names");
        let (path, link) = (folder.join("real"), folder.join("link"));
        fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut target = open(&link, Rotation { bytes_max: Some(1), keep: 2, ..Rotation::default() });
        write(&mut target, "longer than may be\nb\nc\nd\n", NOW_S);
        let mut names: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["link", "real", "real.19941106-084937.1", "real.19941106-084937.2"]);
        assert_eq!(fs::read_to_string(&link).unwrap(), "d\n");
        assert_eq!(fs::read_to_string(folder.join("real.19941106-084937.2")).unwrap(), "c\n");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_failed_rotation_is_reported_once_and_logging_continues() {
        let folder = folder("cannot");
        let path = folder.join("inner/log");
        fs::create_dir(folder.join("inner")).unwrap();
        let mut target = open(&path, Rotation { bytes_max: Some(4), ..Rotation::default() });
        write(&mut target, "abc\n", NOW_S);
        fs::rename(folder.join("inner"), folder.join("moved")).unwrap();
        for minute in 0..3 {
            write(&mut target, "def\n", NOW_S + minute * 60);
            assert_eq!(target.take_complaint().is_some(), minute == 0);
        }
        assert_eq!(fs::read_to_string(folder.join("moved/log")).unwrap(), "abc\ndef\ndef\ndef\n");
        fs::remove_dir_all(folder).unwrap();
    }
}
