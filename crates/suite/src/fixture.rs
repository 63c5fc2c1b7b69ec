//! Fixtures: files for servers, created once per suite.
//!
//! Random bytes come from a fixed seed, so that a suite serves the same content everywhere.

use crate::combine::Values;
use crate::document::Why;
use crate::model::{Fixture, FixturePart, Placed, Suite};
use crate::template::{self, Name};
use crate::why::Reason;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Maximum length of a generated file, in bytes.
pub const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// Maximum number of files and subfolders in a folder that is copied.
const COPIED_MAX: usize = 100_000;
const COPIED_DEPTH_MAX: usize = 32;

/// Creates fixtures.
pub struct Maker<'s> {
    /// The suite whose fixtures are created.
    pub suite: &'s Suite,
    /// True if files are created only for the values of variables that `quick` keeps.
    pub quick: bool,
    /// Path of the flatout executable.
    pub own: &'s Path,
    /// Names and folders of the fixtures created so far.
    pub made: Vec<(String, PathBuf)>,
}

/// Parses a length in bytes, up to [`FILE_BYTES_MAX`].
pub fn parse_length(text: &str) -> Option<u64> {
    text.parse().ok().filter(|bytes| *bytes <= FILE_BYTES_MAX)
}

impl Maker<'_> {
    /// Creates a fixture in `folder`, or uses the folder unchanged if it exists. The fixture is created under another
    /// name and then renamed, so that an incomplete fixture is never used.
    pub fn make(&mut self, fixture: &Fixture, folder: &Path) -> Result<(), Why> {
        if !folder.is_dir() {
            let mut aside = folder.as_os_str().to_owned();
            aside.push(".part");
            let aside = PathBuf::from(aside);
            let failed = |text: String| Reason::FixtureFailed.why(format!("fixture {}: {text}", fixture.name));
            let said = |error: io::Error| failed(error.to_string());
            if aside.exists() {
                fs::remove_dir_all(&aside).map_err(said)?;
            }
            fs::create_dir_all(&aside).map_err(said)?;
            for piece in &fixture.pieces {
                self.piece(piece, &aside).map_err(failed)?;
            }
            fs::rename(&aside, folder).map_err(said)?;
        }
        self.made.push((fixture.name.clone(), folder.to_owned()));
        Ok(())
    }

    fn piece(&self, piece: &FixturePart, folder: &Path) -> Result<(), String> {
        match piece {
            FixturePart::Bytes { name, bytes } => self.each(&[name, bytes], |values| {
                let (file, text) = (self.fill(name, values), self.fill(bytes, values));
                let length = parse_length(&text).ok_or_else(|| format!("{text:?} is not a length in bytes"))?;
                write_random(&below(folder, &file)?, length).map_err(|error| format!("{file}: {error}"))
            }),
            FixturePart::Text { name, content, bytes } => {
                let texts: Vec<&Placed> = [Some(name), Some(content), bytes.as_ref()].into_iter().flatten().collect();
                self.each(&texts, |values| {
                    let file = self.fill(name, values);
                    let text = self.fill(content, values);
                    let text = match bytes {
                        Some(bytes) => grow(&text, &self.fill(bytes, values))?,
                        None => text,
                    };
                    fs::write(below(folder, &file)?, text).map_err(|error| format!("{file}: {error}"))
                })
            }
            FixturePart::Certificate { name, key } => {
                let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
                let made = rcgen::generate_simple_self_signed(names).map_err(|error| error.to_string())?;
                // The key must still be readable after a server has dropped root privileges.
                for (file, text) in [(name, made.cert.pem()), (key, made.signing_key.serialize_pem())] {
                    fs::write(below(folder, &file.text)?, text).map_err(|error| format!("{}: {error}", file.text))?;
                }
                Ok(())
            }
            FixturePart::Folder { from } => {
                let beside = self.suite.file.parent().unwrap_or(Path::new(""));
                let from = beside.join(self.fill(from, &Vec::new()));
                let mut left = COPIED_MAX;
                copy(&from, folder, COPIED_DEPTH_MAX, &mut left).map_err(|error| format!("{}: {error}", from.display()))
            }
            FixturePart::Workload { arguments } => {
                let arguments: Vec<String> = arguments.iter().map(|word| self.fill(word, &Vec::new())).collect();
                let (set, options) = arguments.split_first().ok_or("no workload is named")?;
                let output = Command::new(self.own)
                    .args(["workload", "make", set])
                    .arg(folder)
                    .args(options)
                    .stdin(Stdio::null())
                    .output()
                    .map_err(|error| error.to_string())?;
                if output.status.success() {
                    Ok(())
                } else {
                    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
                }
            }
        }
    }

    /// Calls `make` once for every combination of the variables that these settings name.
    fn each(&self, texts: &[&Placed], mut make: impl FnMut(&Values) -> Result<(), String>) -> Result<(), String> {
        let is_named =
            |name: &str| texts.iter().any(|text| template::names(&text.text).any(|found| found.name == name));
        let mut combinations: Vec<Values> = vec![Vec::new()];
        for variable in self.suite.variables.iter().filter(|variable| is_named(&variable.name)) {
            let values = crate::combine::values_of(self.suite, variable, self.quick);
            combinations = combinations
                .iter()
                .flat_map(|known| {
                    values.iter().map(move |value| {
                        known.iter().cloned().chain([(variable.name.clone(), value.clone())]).collect()
                    })
                })
                .collect();
        }
        combinations.iter().try_for_each(&mut make)
    }

    fn fill(&self, text: &Placed, values: &Values) -> String {
        template::expand(&text.text, &|name: Name<'_>| {
            let known = values.iter().find(|(known, _)| name.of.is_none() && known == name.name);
            let made = || self.made.iter().find(|(known, _)| name.of.is_none() && known == name.name);
            known.map(|(_, value)| value.clone()).or_else(|| made().map(|(_, path)| path.display().to_string()))
        })
    }
}

/// Returns the path of a file in the folder, and creates its parent folders.
fn below(folder: &Path, name: &str) -> Result<PathBuf, String> {
    if name.starts_with('/') || name.split('/').any(|part| part.is_empty() || part == "..") {
        return Err(format!("{name:?} is not a valid file name inside the folder"));
    }
    let path = folder.join(name);
    let parent = path.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    Ok(path)
}

/// Replaces each `{fill}` with filler text, in equal shares, so that the result has a length of `bytes`.
fn grow(text: &str, bytes: &str) -> Result<String, String> {
    /// Filler text that compresses no better than an ordinary page.
    const WORDS: &str =
        "The quick brown fox jumps over the lazy dog while seventeen packets wait for the wire to clear. ";
    /// Maximum length of the result, in bytes, because it is held in memory.
    const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;
    let wanted = parse_length(bytes).filter(|bytes| *bytes <= TEXT_BYTES_MAX);
    let wanted = wanted.ok_or_else(|| format!("{bytes:?} is not a length in bytes"))? as usize;
    let places = text.matches("{fill}").count();
    if places == 0 {
        return Err("a string with a fixed length needs `{fill}`".to_owned());
    }
    let bare = text.replace("{fill}", "").len();
    let room = wanted
        .checked_sub(bare)
        .ok_or_else(|| format!("the string has {bare} bytes without `{{fill}}`, more than the required {wanted}"))?;
    let mut words = WORDS.chars().cycle();
    let mut parts = text.split("{fill}");
    let mut grown = parts.next().unwrap_or_default().to_owned();
    for (place, part) in parts.enumerate() {
        grown.extend(words.by_ref().take(room * (place + 1) / places - room * place / places));
        grown.push_str(part);
    }
    Ok(grown)
}

fn write_random(path: &Path, length: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut random = flatout_load::random::Random::new(length);
    let mut left = length;
    while left > 0 {
        let piece = random.next_u64().to_le_bytes();
        let taken = left.min(piece.len() as u64) as usize;
        file.write_all(&piece[..taken])?;
        left -= taken as u64;
    }
    file.flush()
}

/// Copies a folder. Symbolic links are not followed.
fn copy(from: &Path, to: &Path, depth: usize, left: &mut usize) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other("folders are nested too deeply"));
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        *left = left.checked_sub(1).ok_or_else(|| io::Error::other("there are too many files"))?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target, depth - 1, left)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{below, grow};
    use std::path::Path;

    #[test]
    fn a_text_grows_to_its_length_and_says_when_it_is_too_long() {
        let grown = grow("<p>{fill}</p>", "317").unwrap();
        assert_eq!((grown.len(), grown.starts_with("<p>The quick"), grown.ends_with("</p>")), (317, true, true));
        assert_eq!(grow("<p>{fill}</p>", "7").unwrap(), "<p></p>");
        assert_eq!(grow("{fill}|{fill}", "8").unwrap(), "The| qui");
        assert!(grow("<p>{fill}</p>", "6").unwrap_err().contains("7 bytes without"));
        assert!(grow("x", "6").is_err() && grow("{fill}", "x").is_err());
    }

    #[test]
    fn names_stay_below_the_folder() {
        for name in ["../x", "/x", "a//b", "a/../../x"] {
            assert!(below(Path::new("/nonexistent"), name).is_err(), "{name}");
        }
    }
}
