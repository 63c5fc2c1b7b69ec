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
//! generator for every request, and so requests one page only.)
//!
//! Absent by design: files, sockets and computation of digests. Texts are arguments, in pieces of any size.

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
pub use entry::{Class, Method, WorkloadEntry};
pub use fault::{FaultKind, Faults, LineFault};
pub use log::{AccessLog, LogReader};
pub use replay::{Replay, ReplayRequest};

use crate::random::Random;
use alias::Alias;

/// Maximum entries of a workload. The original's lists had room for 100.
pub const ENTRIES_MAX: usize = 1_000_000;

/// Maximum total bytes of targets and hosts in a list or a log.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// A workload: the possible requests, and their order.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name in reports: `url-list`, `filelist`, `web96-like`, `web99-like` or `replay`.
    pub name: &'static str,
    /// Possible requests, at least one.
    pub entries: Vec<WorkloadEntry>,
    /// The classes that entries name by their index, at least one.
    pub classes: Vec<Class>,
    /// Further parameters for reports, as names and values.
    pub parameters: Vec<(&'static str, String)>,
    /// Requests per session if the workload defines it, as in `--session-length`.
    pub session_length: Option<&'static str>,
    choice: EntrySelection,
}

/// Selection of the next entry.
#[derive(Clone, Debug)]
enum EntrySelection {
    /// In order, repeated from the beginning.
    InTurn,
    /// At random by weight.
    ByWeight(Alias),
}

/// ID of the random stream for choices.
const PURPOSE_CHOICE: u64 = 0x0063_686f_6963_6500;

impl Workload {
    /// A workload requested in order. `None` without entries.
    pub fn in_turn(name: &'static str, entries: Vec<WorkloadEntry>) -> Option<Self> {
        (!entries.is_empty()).then(|| {
            let mut workload = Self::new(name, entries, Vec::new(), EntrySelection::InTurn);
            workload.classify();
            workload
        })
    }

    /// A workload requested by the entries' weights, with a class per entry or, if there are many, per range of sizes.
    /// `None` if no entry has a weight above 0.
    pub fn by_weight(name: &'static str, entries: Vec<WorkloadEntry>) -> Option<Self> {
        let alias = Alias::new(entries.iter().map(|entry| entry.weight))?;
        let mut workload = Self::new(name, entries, Vec::new(), EntrySelection::ByWeight(alias));
        workload.classify();
        Some(workload)
    }

    /// The same with classes of its own, which the entries name already.
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

    /// Calculates the classes' shares and mean sizes.
    fn count_classes(&mut self) {
        let total = self.weights_total();
        entry::count_classes(&mut self.classes, &self.entries, total, |entry| self.choice.weight(entry));
    }

    fn weights_total(&self) -> f64 {
        self.entries.iter().map(|entry| self.choice.weight(entry)).sum()
    }

    /// Weighted mean of the expected body sizes in bytes; `None` if one is unknown.
    pub fn body_bytes_mean(&self) -> Option<f64> {
        let bytes: Option<f64> =
            self.entries.iter().map(|entry| Some(entry.body_bytes? as f64 * self.choice.weight(entry))).sum();
        Some(bytes? / self.weights_total())
    }

    /// Index of the entry for request number `request` of a run.
    pub fn choose(&self, seed: u64, request: u64) -> usize {
        match &self.choice {
            EntrySelection::InTurn => (request % self.entries.len() as u64) as usize,
            EntrySelection::ByWeight(alias) => alias.choose(&mut Random::stream(seed, PURPOSE_CHOICE, request)),
        }
    }

    /// Description in one line: name and parameters.
    pub fn describe(&self) -> String {
        let parameters: Vec<_> = self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let separator = if parameters.is_empty() { "" } else { ": " };
        format!("{}{separator}{}", self.name, parameters.join(", "))
    }
}

impl EntrySelection {
    /// Relative frequency of an entry.
    fn weight(&self, entry: &WorkloadEntry) -> f64 {
        match self {
            Self::InTurn => 1.0,
            Self::ByWeight(_) => entry.weight,
        }
    }
}

/// Parses `text` as in `--workload`: `web96:OPS`, `web96:OPS,lambda=L` or `web99:CONNECTIONS`.
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
        ("web96", None, _) => Err("give the number of operations per second, such as web96:100".to_owned()),
        ("web99", None, _) => Err("give the number of connections, such as web99:50".to_owned()),
        _ => Err(format!(
            "there is no workload called {text:?}; known are web96:OPS, web96:OPS,lambda=L and web99:CONNECTIONS"
        )),
    }
}

#[cfg(test)]
mod tests;
