//! Where a result is written: standard output, or a file that is whole whenever it is there.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where JSON goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, in place of the text for people.
    Stdout,
    /// This file; it replaces one of that name only once it is complete.
    File(PathBuf),
}

impl Output {
    /// `-` is standard output, everything else a file.
    pub fn parse(text: &str) -> Self {
        if text == "-" { Self::Stdout } else { Self::File(text.into()) }
    }

    /// Writes `text` and a line end.
    pub fn write(&self, text: &str) -> io::Result<()> {
        match self {
            Self::Stdout => print(&format!("{text}\n")),
            Self::File(path) => replace(path, &format!("{text}\n")),
        }
    }

    /// Says before a long run what would only fail after it: a folder that is not there, or that may not be written to.
    pub fn check(&self) -> io::Result<()> {
        match self {
            Self::Stdout => Ok(()),
            Self::File(path) => {
                let aside = aside(path);
                fs::write(&aside, "")?;
                fs::remove_file(aside)
            }
        }
    }
}

/// Writes to standard output. A reader that has gone away (`| head`) is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes aside and renames, so that no reader ever sees half a file and a full disk spoils no earlier one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let aside = aside(path);
    let written = fs::write(&aside, text).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // The first error is the one to tell.
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
    use super::Output;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = std::env::temp_dir().join(format!("flatout-output-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("result.json");
        let output = Output::parse(path.to_str().unwrap());
        output.check().unwrap();
        assert!(!path.exists());
        output.write("{}").unwrap();
        output.write("{\"a\":1}").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(output.check().is_err() && output.write("x").is_err());
        assert_eq!(Output::parse("-"), Output::Stdout);
    }
}
