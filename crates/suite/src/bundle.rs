//! A bundle: the folder with the complete results of a suite's run.
//!
//! | file | content |
//! |---|---|
//! | `suite.kdl` | a copy of the suite's file |
//! | `state.json` | what must be the same when the run is resumed |
//! | `machine.json` | the machine |
//! | `steps/STEP/SERVER-VALUES-REPETITION.json` | the result of each measurement, with the bench's output in `.txt` and the servers' costs in `.cost.json` |
//! | `logs/`, `configs/` | the log of each server, and its files exactly as they were used |
//! | `suite.json` | the result, see [`crate::document`] |
//! | `report.html` | the report |
//! | `work/` | folders of servers and fixtures, during the run |
//!
//! A measurement is complete if its result exists and can be read. Resuming a run checks nothing else.

use crate::document::{ProcessCost, SuiteReport};
use crate::model::Suite;
use flatout_load::report::RunReport;
use flatout_os::clock;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name and version of the bundle format.
const LAYOUT: &str = "flatout-suite-bundle/1";

/// The files and folders of a bundle. `--fresh` removes these and nothing else.
const OURS: &[&str] = &[
    "suite.kdl",
    "machine.json",
    "suite.json",
    "report.html",
    "running.json",
    "steps",
    "logs",
    "configs",
    "work",
    // Removed last, because without this file the folder is not recognised as a bundle.
    "state.json",
];

/// The state that must be the same when a run is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ResumeState {
    layout: String,
    flatout_version: String,
    /// A digest of the executable, which distinguishes builds of the same version.
    program: String,
    quick: bool,
    begun_unix_ms: u64,
}

/// The reason a bundle cannot be written or resumed.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A system error. Contains the file or folder that it concerns.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// The folder contains files that do not belong to a bundle.
    #[error("{0} is not empty and not the result of a suite; choose another folder with --out")]
    Foreign(PathBuf),
    /// Another process is writing the bundle.
    #[error("another process is running a suite in {0}")]
    Busy(PathBuf),
    /// The bundle belongs to another suite, another version of the program or another kind of run. The text names the
    /// difference.
    #[error("{0} cannot be resumed: {1}; run with --fresh to start over, or choose another folder with --out")]
    Differs(PathBuf, String),
}

/// A bundle that is being written.
#[derive(Debug)]
pub struct Bundle {
    folder: PathBuf,
    /// Time at which the suite was first started, in milliseconds since the epoch.
    pub begun_unix_ms: u64,
    /// True if the folder contains earlier results.
    pub is_resumed: bool,
    /// The lock that this process holds while it writes.
    _lock: File,
}

/// The files of one measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFiles {
    /// Path of the result, relative to the bundle's folder.
    pub relative: String,
    /// Path of the result.
    pub result: PathBuf,
    /// Path of the bench's output.
    pub said: PathBuf,
    /// Path of the costs of every server.
    pub cost: PathBuf,
    /// Path to which the bench writes its result, until the result is known to be complete.
    pub part: PathBuf,
}

impl Bundle {
    /// Creates or resumes a bundle.
    ///
    /// # Errors
    /// Returns the reason the bundle cannot be created or resumed. In this case, a folder that is not a bundle is
    /// unchanged.
    pub fn open(folder: &Path, suite: &Suite, quick: bool, fresh: bool, own: &Path) -> Result<Self, BundleError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| BundleError::Io(path, error)
        };
        fs::create_dir_all(folder).map_err(io(folder))?;
        // Servers are started in their own folders, so all paths must be absolute.
        let folder = folder.canonicalize().map_err(io(folder))?;
        let state_path = folder.join("state.json");
        let known = state_path.exists();
        let is_empty = fs::read_dir(&folder).map_err(io(&folder))?.flatten().all(|entry| entry.file_name() == "lock");
        if !known && !is_empty {
            return Err(BundleError::Foreign(folder));
        }
        let lock_path = folder.join("lock");
        // Do not truncate the file, because it may be a link to another file.
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(io(&lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| BundleError::Busy(folder.clone()))?;
        end_leftovers(&folder);
        if known && fresh {
            for name in OURS {
                let path = folder.join(name);
                let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                match removed {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(BundleError::Io(path, error)),
                    _ => {}
                }
            }
        }
        let mut state = ResumeState {
            layout: LAYOUT.to_owned(),
            flatout_version: env!("CARGO_PKG_VERSION").to_owned(),
            program: digest(own).map_err(io(own))?,
            quick,
            begun_unix_ms: clock::unix_ms().unsigned_abs(),
        };
        let suite_path = folder.join("suite.kdl");
        let is_resumed = known && !fresh;
        if is_resumed {
            let there = fs::read_to_string(&state_path).map_err(io(&state_path))?;
            let there: ResumeState = serde_json::from_str(&there)
                .map_err(|error| BundleError::Differs(folder.clone(), format!("its state.json: {error}")))?;
            let was = fs::read_to_string(&suite_path).unwrap_or_default();
            if let Some(what) = difference(&state, &there, &suite.source, &was) {
                return Err(BundleError::Differs(folder, what));
            }
            state.begun_unix_ms = there.begun_unix_ms;
        } else {
            // The state file marks the folder as a bundle, so it is written first.
            let text = serde_json::to_string_pretty(&state).unwrap_or_default();
            write_whole(&state_path, text.as_bytes()).map_err(io(&state_path))?;
            write_whole(&suite_path, suite.source.as_bytes()).map_err(io(&suite_path))?;
        }
        Ok(Self { folder, begun_unix_ms: state.begun_unix_ms, is_resumed, _lock: lock })
    }

    /// Returns the bundle's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of a file in the bundle.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// Returns the files of one measurement.
    pub fn run_files(&self, step: &str, server: &str, values: &[(String, String)], repetition: u32) -> RunFiles {
        let mut name = server.to_owned();
        for (variable, value) in values {
            name.push('-');
            name.push_str(variable);
            name.push('=');
            name.push_str(&in_name(value));
        }
        let relative = format!("steps/{step}/{name}-{repetition}.json");
        let result = self.folder.join(&relative);
        let with = |ending: &str| result.with_file_name(format!("{name}-{repetition}{ending}"));
        RunFiles { said: with(".txt"), cost: with(".cost.json"), part: with(".json.part"), relative, result }
    }

    /// Reads the result of an earlier measurement; `None` if there is none.
    pub fn read_run(&self, files: &RunFiles) -> Option<(RunReport, Vec<ProcessCost>)> {
        let report = flatout_report::bundle::read(&files.result).ok()?;
        let cost = fs::read_to_string(&files.cost).ok().and_then(|text| serde_json::from_str(&text).ok());
        Some((report, cost.unwrap_or_default()))
    }

    /// Stores a measurement. The costs are written first, so that no result exists without them.
    ///
    /// # Errors
    /// Returns the error of the system if a file cannot be written.
    pub fn keep_run(&self, files: &RunFiles, cost: &[ProcessCost]) -> io::Result<()> {
        let text = serde_json::to_string_pretty(cost).unwrap_or_default();
        write_whole(&files.cost, text.as_bytes())?;
        fs::rename(&files.part, &files.result)
    }

    /// Writes the results of the suite so far.
    ///
    /// # Errors
    /// Returns what could not be written.
    pub fn write(&self, report: &SuiteReport) -> Result<(), BundleError> {
        write(&self.folder, report)
    }

    /// Records which servers and clients are running, so that a later run can stop them after a crash.
    pub fn note_running(&self, leaders: &[u32]) {
        let running: Vec<(u32, u64)> =
            leaders.iter().filter_map(|pid| Some((*pid, crate::testbed::begun_at(*pid)?))).collect();
        let text = serde_json::to_string(&running).unwrap_or_default();
        // A failure matters only after a crash, and the user then sees which processes are still running.
        let _written = write_whole(&self.path("running.json"), text.as_bytes());
    }

    /// Removes the files that are needed only during a run.
    pub fn tidy(&self) {
        // Files that remain only cost disk space.
        let _removed = fs::remove_dir_all(self.path("work"));
        let _removed = fs::remove_file(self.path("running.json"));
    }
}

/// Writes the result of a suite into a bundle's folder.
///
/// # Errors
/// Returns the file that cannot be written, with the cause.
pub fn write(folder: &Path, report: &SuiteReport) -> Result<(), BundleError> {
    let path = folder.join("suite.json");
    let text =
        serde_json::to_string_pretty(report).map_err(|error| BundleError::Io(path.clone(), io::Error::other(error)))?;
    write_whole(&path, format!("{text}\n").as_bytes()).map_err(|error| BundleError::Io(path, error))
}

/// Reads the result of a suite from a bundle's folder.
///
/// # Errors
/// Returns the reason it cannot be read.
pub fn read(folder: &Path) -> Result<SuiteReport, BundleError> {
    let path = folder.join("suite.json");
    let text = fs::read_to_string(&path).map_err(|error| BundleError::Io(path.clone(), error))?;
    let report: SuiteReport =
        serde_json::from_str(&text).map_err(|error| BundleError::Io(path.clone(), io::Error::other(error)))?;
    if report.schema == crate::document::SCHEMA {
        return Ok(report);
    }
    let what = format!("it is {:?}, but this program reads {:?}", report.schema, crate::document::SCHEMA);
    Err(BundleError::Io(path, io::Error::other(what)))
}

/// Describes the difference between two states and between two suite files; `None` if there is no difference.
fn difference(now: &ResumeState, there: &ResumeState, text: &str, was: &str) -> Option<String> {
    if text != was {
        let line = text.lines().zip(was.lines()).position(|(now, was)| now != was);
        let line = line.unwrap_or_else(|| text.lines().count().min(was.lines().count()));
        return Some(format!("the suite's file has changed; the first change is on line {}", line + 1));
    }
    if now.layout != there.layout {
        return Some(format!("it has the layout {:?}", there.layout));
    }
    if now.flatout_version != there.flatout_version {
        return Some(format!(
            "it was started by flatout {}, but this is {}",
            there.flatout_version, now.flatout_version
        ));
    }
    if now.program != there.program {
        return Some(format!("it was started by another build of flatout {}", there.flatout_version));
    }
    let how = |quick: bool| if quick { "with --quick" } else { "without --quick" };
    (now.quick != there.quick).then(|| format!("it was started {}, but this is {}", how(there.quick), how(now.quick)))
}

/// Timeout for killed processes to exit.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Stops servers and clients that a crash left running, if their process IDs still belong to them, and waits for their
/// end.
fn end_leftovers(folder: &Path) {
    let text = fs::read_to_string(folder.join("running.json")).unwrap_or_default();
    let running: Vec<(u32, u64)> = serde_json::from_str(&text).unwrap_or_default();
    for (pid, begun) in running {
        if crate::testbed::begun_at(pid) == Some(begun) {
            let members = crate::server::group::members(pid);
            crate::server::group::signal(pid, &members, 9);
            let killed = Instant::now();
            while !crate::server::group::members(pid).is_empty() && killed.elapsed() < END_TIMEOUT {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Returns a digest of a file that distinguishes builds. It protects against mistakes, not against attacks.
fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = std::hash::DefaultHasher::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(format!("{:016x}", hasher.finish())),
            length => hasher.write(&piece[..length]),
        }
    }
}

/// Converts a value to a part of a file name. If characters must be replaced, a checksum of the value keeps the name
/// unique.
fn in_name(value: &str) -> String {
    /// Maximum length of the part, in bytes.
    const BYTES_MAX: usize = 40;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+');
    if !value.is_empty() && value.len() <= BYTES_MAX && value.chars().all(is_plain) {
        return value.to_owned();
    }
    let plain: String = value.chars().map(|c| if is_plain(c) { c } else { '_' }).take(BYTES_MAX).collect();
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(value.as_bytes());
    format!("{plain}~{:08x}", hasher.finish() as u32)
}

/// Writes a file atomically, and creates its folder if necessary.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    flatout_report::output::write_whole(path, content)
}

#[cfg(test)]
mod tests {
    use super::{ResumeState, difference, in_name};

    #[test]
    fn values_become_parts_of_names_and_stay_apart() {
        assert_eq!((in_name("317"), in_name("0.5x")), ("317".to_owned(), "0.5x".to_owned()));
        assert_ne!(in_name("a/b"), in_name("a b"));
        assert!(!in_name("../../x").contains('/') && in_name(&"y".repeat(900)).len() < 60);
    }

    #[test]
    fn a_resumption_says_what_differs() {
        let state = ResumeState {
            layout: String::new(),
            flatout_version: "1".to_owned(),
            program: "a".to_owned(),
            quick: false,
            begun_unix_ms: 0,
        };
        let other = |change: fn(&mut ResumeState)| {
            let mut other = state.clone();
            change(&mut other);
            difference(&state, &other, "x\ny", "x\ny").unwrap_or_default()
        };
        assert_eq!(
            difference(&state, &state, "x\ny", "x\nz").unwrap(),
            "the suite's file has changed; the first change is on line 2"
        );
        assert_eq!(
            difference(&state, &state, "x\ny", "x").unwrap(),
            "the suite's file has changed; the first change is on line 2"
        );
        assert!(other(|state| state.flatout_version.push('2')).contains("started by flatout 12, but this is 1"));
        assert!(other(|state| state.program.push('b')).contains("another build"));
        assert!(other(|state| state.quick = true).contains("started with --quick, but this is without --quick"));
        assert_eq!(difference(&state, &state, "x", "x"), None);
    }
}
