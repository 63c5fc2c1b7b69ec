//! File rotation: the name of a rotated file, and the deletion of surplus rotated files.

use super::text::format_stamp;
use rustix::fs::{CWD, RenameFlags, rename, renameat_with};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of names tried for one second. More than one name is needed only if a file fills up within a second.
const NAMES_MAX: u32 = 10_000;

/// Renames `path` to `path.YYYYMMDD-HHMMSS`, with a suffix `.1`, `.2` and so on if that name exists. Never replaces a
/// file.
pub(super) fn rotate_file(path: &Path, unix_s: i64) -> io::Result<PathBuf> {
    let stamp = format_stamp(unix_s);
    for count in 0..NAMES_MAX {
        let mut name = OsString::from(path);
        name.push(format!(".{stamp}"));
        if count > 0 {
            name.push(format!(".{count}"));
        }
        let aside = PathBuf::from(name);
        match renameat_with(CWD, path, CWD, &aside, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(aside),
            Err(Errno::EXIST) => {}
            // The file system cannot exclude replacement, so the name is checked before the rename.
            Err(Errno::INVAL | Errno::NOSYS) if aside.symlink_metadata().is_ok() => {}
            Err(Errno::INVAL | Errno::NOSYS) => return rename(path, &aside).map(|()| aside).map_err(io::Error::from),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many files were rotated within a second"))
}

/// Deletes the oldest rotated files beyond `keep`; 0 keeps all files. Only regular files whose names match the pattern
/// exactly are deleted.
pub(super) fn delete_oldest(path: &Path, keep: u32) -> io::Result<()> {
    let Some(name) = path.file_name().filter(|_| keep > 0) else { return Ok(()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut aside = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(key) = parse_aside(name, &entry.file_name())
            && entry.file_type()?.is_file()
        {
            aside.push((key, entry.path()));
        }
    }
    aside.sort();
    let too_many = aside.len().saturating_sub(keep as usize);
    for (_, path) in &aside[..too_many] {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Parses the timestamp and the counter of a name of the form `name.YYYYMMDD-HHMMSS[.n]`. The results sort by age.
fn parse_aside(name: &OsStr, candidate: &OsStr) -> Option<(Vec<u8>, u32)> {
    let rest = candidate.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b".")?;
    let (stamp, rest) = rest.split_at_checked(15)?;
    let is_stamp = stamp.iter().enumerate().all(|(index, byte)| match index {
        8 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let count = match rest {
        [] => 0,
        [b'.', digits @ ..] if matches!(digits.first(), Some(b'1'..=b'9')) && digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok()?.parse().ok()?
        }
        _ => return None,
    };
    is_stamp.then(|| (stamp.to_vec(), count))
}

#[cfg(test)]
mod tests {
    use super::parse_aside;
    use std::ffi::OsStr;

    #[test]
    fn only_the_exact_pattern_counts() {
        let parse = |candidate: &str| parse_aside(OsStr::new("a.log"), OsStr::new(candidate));
        assert_eq!(parse("a.log.20261121-030045"), Some((b"20261121-030045".to_vec(), 0)));
        assert_eq!(parse("a.log.20261121-030045.12"), Some((b"20261121-030045".to_vec(), 12)));
        for other in [
            "a.log",
            "a.log.1",
            "a.log.20261121-03004",
            "a.log.20261121-030045.gz",
            "a.log.20261121-030045.",
            "a.log.20261121-030045.0",
            "a.log.20261121-030045.1a",
            "a.log.20261121_030045",
            "a.logx20261121-030045",
            "b.log.20261121-030045",
            "a.log.20261121-030045.99999999999",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
        assert!(parse("a.log.20261121-030045") < parse("a.log.20261121-030045.2"));
        assert!(parse("a.log.20261121-030045.2") < parse("a.log.20261121-030045.10"));
    }
}
