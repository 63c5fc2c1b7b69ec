//! What is asked for: lists of URLs with weights, sizes and digests, and who asks for which of them when.
//!
//! | file | what it knows |
//! |---|---|
//! | `lines`, `fault` | lines of a text that came in pieces, and what can be wrong with one |
//! | `address`, `entry` | a URL as a list has it; an entry with what is known of its answer; classes |
//! | `alias` | a choice by weights, in constant time |
//! | `urls`, `filelist` | lists of URLs asked for in turn; WebStone's lists asked for by weight |
//! | `fileset` | files to serve: WebStone's and those of the web96-like and web99-like workloads, and what is in them |
//! | `web96`, `web99` | choices like those of SPECweb96 and SPECweb99, every parameter printed |
//! | `log`, `mine`, `replay` | access logs: read, made into a filelist, and asked for again |
//!
//! A [`Workload`] is a value that all threads share. What is left to chance follows from the run's seed and the number of
//! the request, so a run asks for the same on any number of threads. (A known copy of WebStone's client seeds its
//! generator anew for every request, and so asks for one page for ever.)
//!
//! Absent on purpose: files, sockets and digests' computation. Texts are arguments, and come in whatever pieces.

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

pub use address::{Address, Origin};
pub use entry::{Class, Entry, Method};
pub use fault::{FaultKind, Faults, LineFault};
pub use log::{Log, LogReader};
pub use replay::{Replay, ReplayRequest};

use crate::random::Random;
use alias::Alias;

/// Most entries of a workload. The lists of the original had room for 100.
pub const ENTRIES_MAX: usize = 1_000_000;

/// Most bytes of all targets and hosts of a list or a log together.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// A workload: what can be asked for, and in what order it is.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What it is called in reports: `url-list`, `filelist`, `web96-like`, `web99-like` or `replay`.
    pub name: &'static str,
    /// What can be asked for, at least one.
    pub entries: Vec<Entry>,
    /// The classes that entries name by their index, at least one.
    pub classes: Vec<Class>,
    /// What else decides it, to be printed with every result, as name and value.
    pub parameters: Vec<(&'static str, String)>,
    /// How many requests a session has, where the workload says so, as `--session-length` has it.
    pub session_length: Option<&'static str>,
    choice: Choice,
}

/// How the next entry is found.
#[derive(Clone, Debug)]
enum Choice {
    /// One after the other, from the beginning again at the end.
    InTurn,
    /// By chance, each by its weight.
    ByWeight(Alias),
}

/// What the choice of entries draws its random numbers for.
const PURPOSE_CHOICE: u64 = 0x0063_686f_6963_6500;

impl Workload {
    /// A workload asked for in turn. `None` when there are no entries.
    pub fn in_turn(name: &'static str, entries: Vec<Entry>) -> Option<Self> {
        (!entries.is_empty()).then(|| {
            let mut workload = Self::new(name, entries, Vec::new(), Choice::InTurn);
            workload.classify();
            workload
        })
    }

    /// A workload asked for by the entries' weights, with a class for each entry or, if there are many, for each range
    /// of sizes. `None` when no entry has a weight above 0.
    pub fn by_weight(name: &'static str, entries: Vec<Entry>) -> Option<Self> {
        let alias = Alias::new(entries.iter().map(|entry| entry.weight))?;
        let mut workload = Self::new(name, entries, Vec::new(), Choice::ByWeight(alias));
        workload.classify();
        Some(workload)
    }

    /// The same with classes of its own, which the entries name already.
    fn by_weight_in_classes(name: &'static str, entries: Vec<Entry>, names: Vec<String>) -> Option<Self> {
        let alias = Alias::new(entries.iter().map(|entry| entry.weight))?;
        let classes = names.into_iter().map(Class::named).collect();
        let mut workload = Self::new(name, entries, classes, Choice::ByWeight(alias));
        workload.count_classes();
        Some(workload)
    }

    fn new(name: &'static str, entries: Vec<Entry>, classes: Vec<Class>, choice: Choice) -> Self {
        Self { name, entries, classes, parameters: Vec::new(), session_length: None, choice }
    }

    fn classify(&mut self) {
        self.classes = entry::classify(&mut self.entries);
        self.count_classes();
    }

    /// Fills in the classes' shares and mean sizes.
    fn count_classes(&mut self) {
        let total = self.weights_total();
        entry::count_classes(&mut self.classes, &self.entries, total, |entry| self.choice.weight(entry));
    }

    fn weights_total(&self) -> f64 {
        self.entries.iter().map(|entry| self.choice.weight(entry)).sum()
    }

    /// Mean of the bodies that are expected, in bytes, each weighted as it is asked for; `None` when one is not known.
    pub fn body_bytes_mean(&self) -> Option<f64> {
        let bytes: Option<f64> =
            self.entries.iter().map(|entry| Some(entry.body_bytes? as f64 * self.choice.weight(entry))).sum();
        Some(bytes? / self.weights_total())
    }

    /// The index of the entry that request number `request` of a run asks for.
    pub fn choose(&self, seed: u64, request: u64) -> usize {
        match &self.choice {
            Choice::InTurn => (request % self.entries.len() as u64) as usize,
            Choice::ByWeight(alias) => alias.choose(&mut Random::stream(seed, PURPOSE_CHOICE, request)),
        }
    }

    /// How it is described in one line: name and parameters.
    pub fn describe(&self) -> String {
        let parameters: Vec<_> = self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let separator = if parameters.is_empty() { "" } else { ": " };
        format!("{}{separator}{}", self.name, parameters.join(", "))
    }
}

impl Choice {
    /// How often an entry is asked for, beside the others.
    fn weight(&self, entry: &Entry) -> f64 {
        match self {
            Self::InTurn => 1.0,
            Self::ByWeight(_) => entry.weight,
        }
    }
}

/// `text` as `--workload` has it: `web96:OPS`, `web96:OPS,lambda=L` or `web99:CONNECTIONS`.
///
/// # Errors
/// A sentence that says what is right.
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
                Some(_) => return Err("web96 has one parameter more: web96:100,lambda=4".to_owned()),
            };
            web96::workload(ops_per_s, lambda).map_err(|error| error.to_string())
        }
        ("web99", Some(connections), None) => web99::workload(connections).map_err(|error| error.to_string()),
        ("web96", None, _) => Err("say how many operations a second it is for, such as web96:100".to_owned()),
        ("web99", None, _) => Err("say how many connections it is for, such as web99:50".to_owned()),
        _ => Err(format!(
            "no workload is called {text:?}; there are web96:OPS, web96:OPS,lambda=L and web99:CONNECTIONS"
        )),
    }
}

#[cfg(test)]
mod tests;
