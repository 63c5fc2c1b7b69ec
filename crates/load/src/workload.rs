//! Workloads: lists of URLs with weights, sizes and digests, and the choice among them.
//!
//! | file | contents |
//! |---|---|
//! | `lines`, `fault` | incremental splitting into lines, and errors in them |
//! | `address`, `entry` | a URL in a list; an entry with its expected response; classes |
//! | `alias` | weighted choice in constant time |
//! | `urls`, `filelist` | lists of URLs requested in turn; WebStone's lists requested by weight |
//! | `fileset` | files to serve: those of WebStone and of the web96-like and web99-like workloads, and their content |
//! | `web96`, `web99` | choices similar to SPECweb96 and SPECweb99, with all parameters printed |
//! | `log`, `mine`, `replay` | access logs: parsing, conversion to a filelist, and replay |
//!
//! A [`Workload`] is a value shared by all threads. Random choices depend only on the run's seed and the number of the
//! request, so a run makes the same requests on any number of threads. (A known copy of WebStone's client seeds its
//! generator for every request, and so requests only one page.)
//!
//! By design, this module uses no files or sockets and computes no digests. Text is passed as an argument, in pieces of
//! any size.

pub mod address;
pub mod alias;
pub mod entry;
pub mod fault;
pub mod filelist;
pub mod fileset;
pub mod lines;
pub mod log;
pub mod mine;
pub mod replay;
pub mod urls;
pub mod web96;
pub mod web99;

pub use address::Address;
pub use entry::{Class, EntryContent, Method, WorkloadEntry};
pub use fault::{FaultKind, Faults, LineFault};
pub use log::{AccessLog, LogReader};
pub use replay::{Replay, ReplayRequest};

use crate::random::Random;
use alias::Alias;

/// Maximum number of entries in a workload. WebStone's own lists had room for 100.
pub const ENTRIES_MAX: usize = 1_000_000;

/// Maximum total size of targets and hosts in a list or a log, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// A workload: the possible requests and how they are chosen.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name in reports: `url-list`, `filelist`, `web96-like`, `web99-like` or `replay`.
    pub name: &'static str,
    /// The possible requests, at least one.
    pub entries: Vec<WorkloadEntry>,
    /// The classes to which entries refer by index, at least one.
    pub classes: Vec<Class>,
    /// Further parameters for reports, as names and values.
    pub parameters: Vec<(&'static str, String)>,
    /// Number of requests per session, if the workload defines it, in the syntax of `--session-length`.
    pub session_length: Option<&'static str>,
    choice: EntrySelection,
}

/// The rule by which the next entry is selected.
#[derive(Clone, Debug)]
enum EntrySelection {
    /// Entries are requested in order, and again from the beginning.
    InTurn,
    /// Entries are requested at random by weight.
    ByWeight(Alias),
}

/// ID of the random streams for choices.
const PURPOSE_CHOICE: u64 = 0x0063_686f_6963_6500;

impl Workload {
    /// Creates a workload whose entries are requested in order. Returns `None` without entries.
    pub fn in_turn(name: &'static str, entries: Vec<WorkloadEntry>) -> Option<Self> {
        (!entries.is_empty()).then(|| {
            let mut workload = Self::new(name, entries, Vec::new(), EntrySelection::InTurn);
            workload.classify();
            workload
        })
    }

    /// Creates a workload whose entries are requested by weight. Each entry has its own class; if there are many
    /// entries, each range of sizes has one. Returns `None` if no entry has a weight above 0.
    pub fn by_weight(name: &'static str, entries: Vec<WorkloadEntry>) -> Option<Self> {
        let alias = Alias::new(entries.iter().map(|entry| entry.weight))?;
        let mut workload = Self::new(name, entries, Vec::new(), EntrySelection::ByWeight(alias));
        workload.classify();
        Some(workload)
    }

    /// Creates a workload whose entries are requested by weight, with these names of the classes to which entries
    /// already refer.
    fn by_weight_in_classes(name: &'static str, entries: Vec<WorkloadEntry>, names: Vec<String>) -> Option<Self> {
        let alias = Alias::new(entries.iter().map(|entry| entry.weight))?;
        let classes = names.into_iter().map(Class::named).collect();
        let mut workload = Self::new(name, entries, classes, EntrySelection::ByWeight(alias));
        workload.count_classes();
        Some(workload)
    }

    fn new(name: &'static str, entries: Vec<WorkloadEntry>, classes: Vec<Class>, choice: EntrySelection) -> Self {
        Self { name, entries, classes, parameters: Vec::new(), session_length: None, choice }
    }

    fn classify(&mut self) {
        self.classes = entry::classify(&mut self.entries);
        self.count_classes();
    }

    /// Calculates the shares and mean sizes of the classes.
    fn count_classes(&mut self) {
        let total = self.weights_total();
        entry::count_classes(&mut self.classes, &self.entries, total, |entry| self.choice.weight(entry));
    }

    fn weights_total(&self) -> f64 {
        self.entries.iter().map(|entry| self.choice.weight(entry)).sum()
    }

    /// Returns the weighted mean of the expected body sizes in bytes; `None` if a size is unknown.
    pub fn body_bytes_mean(&self) -> Option<f64> {
        let bytes: Option<f64> =
            self.entries.iter().map(|entry| Some(entry.body_bytes? as f64 * self.choice.weight(entry))).sum();
        Some(bytes? / self.weights_total())
    }

    /// Returns the index of the entry for request number `request` of a run.
    pub fn choose(&self, seed: u64, request: u64) -> usize {
        match &self.choice {
            EntrySelection::InTurn => (request % self.entries.len() as u64) as usize,
            EntrySelection::ByWeight(alias) => alias.choose(&mut Random::stream(seed, PURPOSE_CHOICE, request)),
        }
    }

    /// Describes the workload in one line: name and parameters.
    pub fn describe(&self) -> String {
        let parameters: Vec<_> = self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let separator = if parameters.is_empty() { "" } else { ": " };
        format!("{}{separator}{}", self.name, parameters.join(", "))
    }
}

impl EntrySelection {
    /// Returns the relative frequency of an entry.
    fn weight(&self, entry: &WorkloadEntry) -> f64 {
        match self {
            Self::InTurn => 1.0,
            Self::ByWeight(_) => entry.weight,
        }
    }
}

/// Parses the value of `--workload`: `web96:OPS`, `web96:OPS,lambda=L` or `web99:CONNECTIONS`.
///
/// # Errors
/// Returns a sentence with the valid syntax.
pub fn parse_named(text: &str) -> Result<Workload, String> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let (load, option) = match rest.split_once(',') {
        Some((load, option)) => (load, Some(option)),
        None => (rest, None),
    };
    let load = load.parse::<f64>().ok().filter(|load| load.is_finite() && *load > 0.0);
    match (name, load, option) {
        ("web96", Some(ops_per_s), option) => {
            let lambda = match option.map(|option| option.strip_prefix("lambda=").map(str::parse::<f64>)) {
                None => web96::LAMBDA_DEFAULT,
                Some(Some(Ok(lambda))) => lambda,
                Some(_) => return Err("web96 has only one other parameter: web96:100,lambda=4".to_owned()),
            };
            web96::workload(ops_per_s, lambda).map_err(|error| error.to_string())
        }
        ("web99", Some(connections), None) => web99::workload(connections).map_err(|error| error.to_string()),
        ("web96", None, _) => Err("specify the number of operations per second, such as web96:100".to_owned()),
        ("web99", None, _) => Err("specify the number of connections, such as web99:50".to_owned()),
        _ => {
            Err(format!("there is no workload called {text:?}; use web96:OPS, web96:OPS,lambda=L or web99:CONNECTIONS"))
        }
    }
}

#[cfg(test)]
mod tests;
