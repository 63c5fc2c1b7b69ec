//! A bundle: a folder with everything about a suite's run.
//!
//! | file | content |
//! |---|---|
//! | `suite.kdl` | a copy of the suite's file |
//! | `state.json` | the state that a resumption must match |
//! | `machine.json` | the machine |
//! | `steps/STEP/SERVER-VALUES-REPETITION.json` | each measurement's result, with the bench's output in `.txt` and the servers' costs in `.cost.json` |
//! | `logs/`, `configs/` | each server's log, and its files exactly as they were used |
//! | `suite.json` | the result, see [`crate::document`] |
//! | `report.html` | the report |
//! | `work/` | folders of servers and fixtures, during the run |
//!
//! A measurement is complete if its result exists and is readable: a resumption checks nothing else.

use crate::document::{ProcessCost, SuiteReport};
use crate::model::Suite;
use flatout_load::report::RunReport;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Name and number of the layout.
const LAYOUT: &str = "flatout-suite-bundle/1";

/// The files of a bundle: `--fresh` removes these and nothing else.
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
    // The last: without it the folder is not recognised as a bundle.
    "state.json",
];

/// The state that a resumption must match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ResumeState {
    layout: String,
    flatout_version: String,
    /// A digest of the program, which tells builds of one version apart.
    program: String,
    quick: bool,
    begun_unix_ms: u64,
}

/// Why a bundle cannot be written or resumed.
#[derive(Debug)]
pub enum BundleError {
    /// A file or folder, and what the system said.
    Io(PathBuf, io::Error),
    /// The folder holds something else.
    Foreign(PathBuf),
    /// Another process writes it.
    Busy(PathBuf),
    /// It is of another suite, program or way to run: what differs.
    Differs(PathBuf, String),
}

impl std::fmt::Display for BundleError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(path, error) => write!(formatter, "{}: {error}", path.display()),
            Self::Foreign(path) => {
                write!(
                    formatter,
                    "{} is not empty and not the result of a suite; choose another folder with --out",
                    path.display()
                )
            }
            Self::Busy(path) => write!(formatter, "another process is running a suite into {}", path.display()),
            Self::Differs(path, what) => write!(
                formatter,
                "{} cannot be resumed: {what}; run with --fresh to start over, or choose another folder with --out",
                path.display()
            ),
        }
    }
}

impl std::error::Error for BundleError {}

/// A bundle that is being written.
#[derive(Debug)]
pub struct Bundle {
    folder: PathBuf,
    /// When the suite first started, in milliseconds since the epoch.
    pub begun_unix_ms: u64,
    /// True if the folder has earlier results.
    pub is_resumed: bool,
    /// Held while this process writes.
    _lock: File,
}

/// One measurement's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFiles {
    /// The result, relative to the folder.
    pub relative: String,
    /// The result.
    pub result: PathBuf,
    /// The bench's output.
    pub said: PathBuf,
    /// The costs of every server.
    pub cost: PathBuf,
    /// The bench's output file before the result is known to be complete.
    pub part: PathBuf,
}

impl Bundle {
    /// Makes or resumes a bundle.
    ///
    /// # Errors
    /// Why that is not possible; nothing of a folder that is not ours was changed then.
    pub fn open(folder: &Path, suite: &Suite, quick: bool, fresh: bool, own: &Path) -> Result<Self, BundleError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| BundleError::Io(path, error)
        };
        fs::create_dir_all(folder).map_err(io(folder))?;
        // Servers are started in folders of their own, so every path must hold from anywhere.
        let folder = folder.canonicalize().map_err(io(folder))?;
        let state_path = folder.join("state.json");
        let known = state_path.exists();
        let is_empty = fs::read_dir(&folder).map_err(io(&folder))?.flatten().all(|entry| entry.file_name() == "lock");
        if !known && !is_empty {
            return Err(BundleError::Foreign(folder));
        }
        let lock_path = folder.join("lock");
        // Never truncated: it may be a link to another file.
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
            begun_unix_ms: crate::run::now_unix_ms(),
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
            // By its state a folder is known as ours, so that goes first.
            let text = serde_json::to_string_pretty(&state).unwrap_or_default();
            write_whole(&state_path, text.as_bytes()).map_err(io(&state_path))?;
            write_whole(&suite_path, suite.source.as_bytes()).map_err(io(&suite_path))?;
        }
        Ok(Self { folder, begun_unix_ms: state.begun_unix_ms, is_resumed, _lock: lock })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A path in it.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    /// The files of one measurement.
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

    /// A measurement that was made before.
    pub fn read_run(&self, files: &RunFiles) -> Option<(RunReport, Vec<ProcessCost>)> {
        let report = flatout_report::bundle::read(&files.result).ok()?;
        let cost = fs::read_to_string(&files.cost).ok().and_then(|text| serde_json::from_str(&text).ok());
        Some((report, cost.unwrap_or_default()))
    }

    /// Stores a measurement: its costs first, so that no result exists without them.
    ///
    /// # Errors
    /// What could not be written.
    pub fn keep_run(&self, files: &RunFiles, cost: &[ProcessCost]) -> io::Result<()> {
        let text = serde_json::to_string_pretty(cost).unwrap_or_default();
        write_whole(&files.cost, text.as_bytes())?;
        fs::rename(&files.part, &files.result)
    }

    /// Writes the result as far as it is known.
    ///
    /// # Errors
    /// What could not be written.
    pub fn write(&self, report: &SuiteReport) -> Result<(), BundleError> {
        write(&self.folder, report)
    }

    /// Records the running servers, for recovery after a crash.
    pub fn note_running(&self, leaders: &[u32]) {
        let running: Vec<(u32, u64)> =
            leaders.iter().filter_map(|pid| Some((*pid, crate::testbed::begun_at(*pid)?))).collect();
        let text = serde_json::to_string(&running).unwrap_or_default();
        // It only helps after a crash; what it cannot help then, the user sees.
        let _written = write_whole(&self.path("running.json"), text.as_bytes());
    }

    /// Removes what only a run needs.
    pub fn tidy(&self) {
        // Left-overs cost room and nothing else.
        let _removed = fs::remove_dir_all(self.path("work"));
        let _removed = fs::remove_file(self.path("running.json"));
    }
}

/// Writes a result into a bundle's folder.
///
/// # Errors
/// The file that cannot be written.
pub fn write(folder: &Path, report: &SuiteReport) -> Result<(), BundleError> {
    let path = folder.join("suite.json");
    let text =
        serde_json::to_string_pretty(report).map_err(|error| BundleError::Io(path.clone(), io::Error::other(error)))?;
    write_whole(&path, format!("{text}\n").as_bytes()).map_err(|error| BundleError::Io(path, error))
}

/// Reads a result.
///
/// # Errors
/// Why there is none.
pub fn read(folder: &Path) -> Result<SuiteReport, BundleError> {
    let path = folder.join("suite.json");
    let text = fs::read_to_string(&path).map_err(|error| BundleError::Io(path.clone(), error))?;
    let report: SuiteReport =
        serde_json::from_str(&text).map_err(|error| BundleError::Io(path.clone(), io::Error::other(error)))?;
    if report.schema == crate::document::SCHEMA {
        return Ok(report);
    }
    let what = format!("it is {:?}, and this program reads {:?}", report.schema, crate::document::SCHEMA);
    Err(BundleError::Io(path, io::Error::other(what)))
}

/// The difference, as text.
fn difference(now: &ResumeState, there: &ResumeState, text: &str, was: &str) -> Option<String> {
    if text != was {
        let line = text.lines().zip(was.lines()).position(|(now, was)| now != was);
        let line = line.unwrap_or_else(|| text.lines().count().min(was.lines().count()));
        return Some(format!("the suite's file has changed, first in line {}", line + 1));
    }
    if now.layout != there.layout {
        return Some(format!("it has the layout {:?}", there.layout));
    }
    if now.flatout_version != there.flatout_version {
        return Some(format!(
            "it was started by flatout {}, and this is {}",
            there.flatout_version, now.flatout_version
        ));
    }
    if now.program != there.program {
        return Some(format!("it was started by another build of flatout {}", there.flatout_version));
    }
    let how = |quick: bool| if quick { "with --quick" } else { "without --quick" };
    (now.quick != there.quick).then(|| format!("it was started {}, and this is {}", how(there.quick), how(now.quick)))
}

/// Stops servers that a crash left behind, if their process IDs still belong to them.
fn end_leftovers(folder: &Path) {
    let text = fs::read_to_string(folder.join("running.json")).unwrap_or_default();
    let running: Vec<(u32, u64)> = serde_json::from_str(&text).unwrap_or_default();
    for (pid, begun) in running {
        if crate::testbed::begun_at(pid) == Some(begun) {
            let members = crate::server::group::members(pid);
            crate::server::group::signal(pid, &members, 9);
        }
    }
}

/// A digest of a file, to tell builds apart; it guards against mistakes and not against malice.
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

/// A value as part of a file name; if that needs changes, a checksum of its bytes distinguishes it.
fn in_name(value: &str) -> String {
    /// Longest part of a name.
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

/// Writes a file whole, in a folder that is created if necessary.
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
            "the suite's file has changed, first in line 2"
        );
        assert_eq!(difference(&state, &state, "x\ny", "x").unwrap(), "the suite's file has changed, first in line 2");
        assert!(other(|state| state.flatout_version.push('2')).contains("started by flatout 12, and this is 1"));
        assert!(other(|state| state.program.push('b')).contains("another build"));
        assert!(other(|state| state.quick = true).contains("started with --quick, and this is without --quick"));
        assert_eq!(difference(&state, &state, "x", "x"), None);
    }
}
