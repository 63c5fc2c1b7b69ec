//! The `flatout bench` command lines that a suite will run, as far as they are known in advance. Bench's own parser
//! checks them before anything runs.

use crate::combine::combinations;
use crate::model::{Placed, Step, Suite};
use crate::run::words;
use crate::template::{Name, expand, names};
use flatout_config::model::Place;
use std::collections::HashSet;
use std::path::Path;

/// Stands for an address that is not known until the server runs.
const ADDRESS: &str = "127.0.0.1:1";

/// Stands for any other value that is not known until the run.
const UNKNOWN: &str = "1";

/// A command line of `flatout bench`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// Place of the first word that comes from the suite's file.
    pub place: Place,
    /// The words of the command line: `bench`, the URL, and the arguments.
    pub words: Vec<String>,
    /// True if all numbers in it are known, that is, none is taken from a figure of an earlier step.
    pub is_known: bool,
}

/// Returns the command lines of `step`, without duplicates.
pub fn command_lines(suite: &Suite, step: &Step) -> Vec<CommandLine> {
    let (mut lines, mut known) = (Vec::new(), HashSet::new());
    let is_taken = |word: &Placed| names(&word.text).any(|name| step.takes.iter().any(|take| take.name == name.name));
    let servers = || step.servers.iter().filter_map(|server| suite.server(&server.text));
    let scheme = if servers().any(|server| server.tls) { "https" } else { "http" };
    for values in combinations(suite, step, false) {
        let value = |name: Name<'_>| {
            let known = values.iter().find(|(other, _)| name.of.is_none() && other == name.name);
            Some(match (known, name.name) {
                (Some((_, value)), _) => value.clone(),
                (None, "url") => format!("http://{ADDRESS}"),
                (None, "address") => ADDRESS.to_owned(),
                (None, _) => UNKNOWN.to_owned(),
            })
        };
        let paths = [&step.path].into_iter().chain(step.paths.iter().map(|(_, path)| path));
        for path in paths {
            let url = format!("{scheme}://{ADDRESS}{}", expand(&path.text, &value));
            let first = Some(&step.first).filter(|first| !first.is_empty());
            for own in first.into_iter().chain([&step.bench]) {
                let filled: Vec<String> = own.iter().map(|word| expand(&word.text, &value)).collect();
                let words = words(&url, Path::new("result.json"), suite.seconds, None, &filled);
                if known.insert(words.clone()) {
                    let place = own.first().map_or(&step.place, |word| &word.place).clone();
                    lines.push(CommandLine { place, words, is_known: !own.iter().any(is_taken) });
                }
            }
        }
    }
    lines
}
