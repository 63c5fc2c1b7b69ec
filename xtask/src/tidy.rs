//! The rules of the house, one file each, over one reading of the repository.

mod circles;
mod copies;
mod dead_files;
mod dependencies;
mod direction;
mod doc_comments;
mod door;
mod figures;
mod finding;
mod imports;
mod licences;
mod links;
mod modules;
mod names;
mod purity;
mod remaining;
mod restated;
mod safety;
mod sizes;
mod sleeps;
mod source;
pub(crate) mod tree;
mod twins;
mod vocabulary;
mod words;

use crate::failure::Outcome;
use finding::Finding;
use tree::Tree;

/// A rule: its name, what it holds up, and how it is checked.
type Rule = (&'static str, &'static str, fn(&Tree) -> Vec<Finding>);

const RULES: &[Rule] = &[
    ("direction", "crates depend downwards only", direction::check),
    ("circles", "at most three files of a crate depend on each other", circles::check),
    ("copies", "one splitter of hosts, list of connection fields, q-value parser and percent coder", copies::check),
    ("twins", "no two crates have more than ten equal lines, whatever their names", twins::check),
    ("purity", "http, cache and load see no socket, file, thread, clock or terminal", purity::check),
    ("door", "one door to the world: the clock, a thread's pause and randomness are in crates/os", door::check),
    ("sleeps", "no unit test sleeps", sleeps::check),
    ("dead-files", "every source, test and document is reached from somewhere", dead_files::check),
    ("safety", "`unsafe` in crates/os only, each with its reason", safety::check),
    ("figures", "documents quote kept results as they are", figures::check),
    ("links", "relative links lead somewhere", links::check),
    ("words", "no machine paths and no loose ends", words::check),
    ("vocabulary", "the field's terms, and no private words", vocabulary::check),
    ("names", "a type name has few meanings", names::check),
    ("doc-comments", "a doc comment says what its item is", doc_comments::check),
    ("restated", "a doc comment says more than its item's name", restated::check),
    ("dependencies", "each dependency's reason stands in docs/decisions/dependencies.md", dependencies::check),
    ("licences", "others' packages come from crates.io under a licence that deny.toml allows", licences::check),
    ("sizes", "neither a source file nor ARCHITECTURE.md outgrows its reader", sizes::check),
];

/// Checks every rule and prints what breaks it.
pub(crate) fn run() -> Outcome<()> {
    let tree = Tree::read()?;
    let mut broken = 0;
    for (name, why, check) in RULES {
        let findings = check(&tree);
        let verdict = if findings.is_empty() { "ok" } else { "BROKEN" };
        println!("{verdict:>6}  {name}: {why}");
        for finding in &findings {
            println!("        {finding}");
        }
        broken += findings.len();
    }
    for (kind, lines) in [("size", sizes::ratchet(&tree)), ("docs", restated::ratchet(&tree))] {
        for line in lines {
            println!("{kind:>6}  {line}");
        }
    }
    match broken {
        0 => Ok(()),
        1 => Err("tidy: one place to mend".into()),
        many => Err(format!("tidy: {many} places to mend").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tree::Package;

    /// A small repository that keeps every rule: a rule that finds something here is too strict.
    #[test]
    fn a_tidy_tree_passes_every_rule() {
        let tree = Tree::of(&[
            ("README.md", "See [how](docs/how.md#it-works), with [crates](docs/decisions/dependencies.md).\n"),
            ("docs/how.md", "# It works\n"),
            ("ARCHITECTURE.md", "# Architecture\n"),
            ("docs/decisions/dependencies.md", "# Dependencies\n- `bytes`: buffers\n"),
            ("Cargo.toml", "[workspace.dependencies]\nbytes = \"1\"\n"),
            ("crates/http/src/lib.rs", "//! Core.\nmod head;\n#[cfg(test)] mod tests { use std::fs; }\n"),
            ("crates/http/src/head.rs", "use core::net::IpAddr;\n"),
        ])
        .with(Package::of("flatout-http", "crates/http", &["bytes"]));
        for (name, _, check) in RULES {
            assert_eq!(check(&tree), [], "{name}");
        }
    }
}
