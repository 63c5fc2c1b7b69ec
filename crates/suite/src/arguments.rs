//! The command lines of `flatout bench` that a suite's steps will run, as far as they are known in advance, for
//! checks by bench's own parser.

use crate::combine::combinations;
use crate::model::{Placed, Step, Suite};
use crate::run::words;
use crate::template::{Name, expand, names};
use flatout_config::model::Place;
use std::collections::HashSet;
use std::path::Path;

/// Placeholder of an address until its server runs.
const ADDRESS: &str = "127.0.0.1:1";

/// Placeholder of other values that only a run determines.
const UNKNOWN: &str = "1";

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The place of its first own word.
    pub place: Place,
    /// `bench`, the URL and all that follows.
    pub words: Vec<String>,
    /// True if all its numbers are known: none is a figure of an earlier step.
    pub is_known: bool,
}

/// The command lines of `step`, each once.
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
