//! A bundle: a folder with a run's results and everything needed to repeat it.
//!
//! | file | content |
//! |---|---|
//! | `bundle.json` | name and version of the bundle format, and the copies of the input files |
//! | `run.json` | the result |
//! | `command.txt`, `seed.txt` | the command line in shell syntax; the seed of all random choices |
//! | `environment.json` | machine, kernel settings, version |
//! | `latency.hlog` | histograms of every step |
//! | `*.csv` | the result as tables |
//! | `report.html` | the report |
//! | `inputs/` | copies of the command's input files |
//!
//! `run.json` is written first, so that at least the result is saved if the disk fills up.

use super::output::write_whole;
use super::{command, hlog, html, method, series};
use flatout_load::report::{ReadError, RunReport};
use flatout_load::workload::{EntryContent, WorkloadEntry, urls};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The name and version of the bundle format.
const LAYOUT: &str = "flatout-bundle/1";

/// Maximum length of a result, and of a list in a bundle, in bytes. A result with a thousand steps is shorter.
pub const RESULT_BYTES_MAX: u64 = 1 << 30;

/// The content of `bundle.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    layout: String,
    /// Copies of the command's input files, in the order of the command line.
    inputs: Vec<Copied>,
}

/// A copied input file of the command.
#[derive(Debug, Serialize, Deserialize)]
struct Copied {
    /// Name of the file on the command line.
    name: String,
    /// Path of the copy within the bundle.
    copy: String,
}

/// The reason a result or a bundle cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read.
    #[error("cannot read {0}: {1}")]
    Io(PathBuf, io::Error),
    /// The file is not a result.
    #[error("{0}: {1}")]
    Result(PathBuf, ReadError),
    /// `bundle.json` is malformed. Contains the problem.
    #[error("{0}: {1}")]
    Manifest(PathBuf, String),
    /// The bundle's list of URLs names files, which are not in the bundle.
    #[error("{0} names files with @, which a bundle does not contain; run the bench with the original list")]
    NamesFiles(PathBuf),
}

/// Writes the bundle of a run into `folder`, and creates the folder if necessary. An existing bundle is replaced file
/// by file.
///
/// # Errors
/// Returns the path that could not be written or copied, with the cause. Files written before it remain.
pub fn write(folder: &Path, report: &RunReport) -> Result<(), (PathBuf, io::Error)> {
    let made = |path: PathBuf, result: io::Result<()>| result.map_err(|error| (path, error));
    made(folder.to_owned(), fs::create_dir_all(folder))?;
    let put = |name: &str, content: &[u8]| {
        let path = folder.join(name);
        let written = write_whole(&path, content);
        made(path, written)
    };
    let result = report.encode().map_err(|error| (folder.join("run.json"), io::Error::other(error)))?;
    put("run.json", result.as_bytes())?;
    put("command.txt", format!("{}\n", command::shell_line(&report.command)).as_bytes())?;
    put("seed.txt", format!("{}\n", report.seed).as_bytes())?;
    put("environment.json", format!("{:#}\n", method::environment(report)).as_bytes())?;
    put("latency.hlog", hlog::log(report).encode().as_bytes())?;
    for (name, table) in series::files(report) {
        put(name, table.as_bytes())?;
    }
    put("report.html", html::page(std::slice::from_ref(report)).as_bytes())?;
    let mut inputs = Vec::new();
    let names = command::inputs(&report.command);
    if !names.is_empty() {
        made(folder.join("inputs"), fs::create_dir_all(folder.join("inputs")))?;
    }
    for (index, name) in names.into_iter().map(|input| input.name).enumerate() {
        let file = Path::new(&name).file_name().map_or_else(String::new, |file| file.to_string_lossy().into_owned());
        let copy = format!("inputs/{index}-{file}");
        made(PathBuf::from(&name), fs::copy(&name, folder.join(&copy)).map(|_| ()))?;
        inputs.push(Copied { name, copy });
    }
    let manifest = serde_json::to_string_pretty(&Manifest { layout: LAYOUT.to_owned(), inputs });
    let manifest = manifest.map_err(|error| (folder.join("bundle.json"), io::Error::other(error)))?;
    put("bundle.json", format!("{manifest}\n").as_bytes())
}

/// Reads a result from a file, or from a bundle's folder.
///
/// # Errors
/// Fails if there is no result, or if it comes from another program or from a newer version.
pub fn read(path: &Path) -> Result<RunReport, OpenError> {
    let path = if path.is_dir() { path.join("run.json") } else { path.to_owned() };
    let failed = |error| OpenError::Io(path.clone(), error);
    let text = String::from_utf8(read_bounded(&path).map_err(failed)?)
        .map_err(|_| OpenError::Result(path.clone(), ReadError::Malformed("it is not UTF-8".to_owned())))?;
    RunReport::parse(&text).map_err(|error| OpenError::Result(path.clone(), error))
}

/// Returns what a rerun needs: the result, and the command, in which each input file is replaced by the path of its
/// copy. For a result without a bundle, the command has the original paths.
///
/// # Errors
/// Fails in the same cases as [`read`], and if the bundle is incomplete.
pub fn rerun(path: &Path) -> Result<(RunReport, Vec<String>), OpenError> {
    let report = read(path)?;
    let words = report.command.clone();
    if !path.is_dir() {
        let words = command::again(&words, |_, file| file.to_owned());
        return Ok((report, words));
    }
    let manifest_path = path.join("bundle.json");
    let bad = |what: String| OpenError::Manifest(manifest_path.clone(), what);
    let text = fs::read_to_string(&manifest_path).map_err(|error| OpenError::Io(manifest_path.clone(), error))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| bad(format!("not the list of a bundle: {error}")))?;
    if manifest.layout != LAYOUT {
        return Err(bad(format!("its layout is {:?}, but this flatout reads {LAYOUT}", manifest.layout)));
    }
    let files = command::inputs(&words);
    if manifest.inputs.iter().map(|input| &input.name).ne(files.iter().map(|file| &file.name)) {
        return Err(bad("its list of files does not match the command's".to_owned()));
    }
    for (input, file) in manifest.inputs.iter().zip(&files) {
        // A bundle from an untrusted source must not make this machine send files from outside the bundle.
        let copy = path.join(&input.copy);
        if !is_inside(path, &input.copy) || !copy.is_file() {
            return Err(bad(format!("the copy of {:?} is missing", input.name)));
        }
        if file.is_url_list && names_files(&copy)? {
            return Err(OpenError::NamesFiles(copy));
        }
    }
    let words =
        command::again(&words, |index, _| path.join(&manifest.inputs[index].copy).to_string_lossy().into_owned());
    Ok((report, words))
}

/// Returns whether a copy is in the folder of its bundle, also if it is a symbolic link.
fn is_inside(folder: &Path, copy: &str) -> bool {
    let is_below = Path::new(copy).components().all(|part| matches!(part, Component::Normal(_)));
    let real = |path: &Path| fs::canonicalize(path).ok();
    is_below && real(folder).zip(real(&folder.join(copy))).is_some_and(|(folder, copy)| copy.starts_with(folder))
}

/// Returns whether a list of URLs names files with the content of requests. The bench itself refuses a malformed list.
fn names_files(list: &Path) -> Result<bool, OpenError> {
    let text = read_bounded(list).map_err(|error| OpenError::Io(list.to_owned(), error))?;
    let names_file = |entry: &WorkloadEntry| matches!(entry.content, Some(EntryContent::File(_)));
    Ok(urls::parse(&text).is_ok_and(|workload| workload.entries.iter().any(names_file)))
}

/// Reads a file of at most [`RESULT_BYTES_MAX`] bytes.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let length = fs::metadata(path)?.len();
    if length > RESULT_BYTES_MAX {
        let text = format!("it has {length} bytes, which is more than the limit of {RESULT_BYTES_MAX}");
        return Err(io::Error::other(text));
    }
    fs::read(path)
}

#[cfg(test)]
mod tests;
