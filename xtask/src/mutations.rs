//! Whether the simulation of the accelerator catches mistakes: each mutation of [`MUTATIONS`] must break an invariant.
//!
//! A copy of the sources contains all mutations, each behind a condition on the environment, so one build serves all of
//! them. The first run, without any, shows that the copy otherwise behaves like the sources.

mod table;

use crate::failure::{Context, Outcome};
use crate::shell;
use crate::tidy::tree::listed_files;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use table::MUTATIONS;

/// A mistake in the product.
pub(crate) struct Mutation {
    name: &'static str,
    /// What the mutated product does; it completes the sentence "The accelerator …".
    effect: &'static str,
    patches: &'static [Patch],
}

/// A change of one file.
struct Patch {
    /// The file, relative to the root.
    path: &'static str,
    /// The text to replace, which occurs once.
    old: &'static str,
    /// The text in its place. `MUTATED` stands for the condition under which the mutation is active.
    new: &'static str,
}

/// The environment variable that names the active mutation.
const VARIABLE: &str = "FLATOUT_MUTATION";

/// Seeds that are tried for each mutation.
const SEEDS_MAX: u32 = 20_000;

/// Seeds that must hold without any mutation.
const SEEDS_UNCHANGED: u32 = 1_000;

/// The document with the table of results, and the lines around the table.
const DOCUMENT: &str = "docs/contributing.md";
const BEGIN: &str = "<!-- Written by `cargo xtask mutations` -->\n";
const END: &str = "<!-- End of what `cargo xtask mutations` writes -->\n";

/// Builds the simulation with all mutations, or those named, and tries seeds until each is caught.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let chosen: Vec<&Mutation> =
        MUTATIONS.iter().filter(|mutation| args.is_empty() || args.iter().any(|arg| arg == mutation.name)).collect();
    if let Some(arg) = args.iter().find(|arg| MUTATIONS.iter().all(|mutation| mutation.name != **arg)) {
        return Err(format!("no mutation is called `{arg}`").into());
    }
    let binary = build()?;
    if let Some((seed, rule)) = first_violation(&binary, "", SEEDS_UNCHANGED)? {
        return Err(format!("seed {seed} fails without a mutation: {rule}").into());
    }
    let (mut rows, mut missed) = (String::new(), Vec::new());
    for mutation in &chosen {
        let Some((seed, rule)) = first_violation(&binary, mutation.name, SEEDS_MAX)? else {
            println!("{:<32} NOT CAUGHT by {SEEDS_MAX} seeds", mutation.name);
            missed.push(mutation.name);
            continue;
        };
        println!("{:<32} seed {seed}: {rule}", mutation.name);
        let rule = rule.replace('|', "\\|");
        let _ = writeln!(rows, "| `{}` | {} | {seed} | {rule} |", mutation.name, mutation.effect);
    }
    if !missed.is_empty() {
        return Err(format!("no seed catches {}", missed.join(", ")).into());
    }
    if chosen.len() == MUTATIONS.len() {
        write_table(&rows)?;
    }
    Ok(())
}

/// Builds the simulation from the mutated copy.
fn build() -> Outcome<PathBuf> {
    let folder = std::path::absolute(shell::target_dir().join("mutations")).cannot("find the target folder")?;
    let (source, target) = (folder.join("source"), folder.join("build"));
    copy_sources(&shell::root(), &source)?;
    let mut command = shell::cargo();
    command.current_dir(&source).args(["build", "--package", "flatout-accelerator-sim"]);
    // The copy has its own workspace, so nothing may lead cargo back to this one.
    command.env("CARGO_TARGET_DIR", &target).env_remove("CARGO_MANIFEST_DIR");
    let status = command.status().cannot("build the mutated simulation")?;
    if status.success() {
        Ok(target.join("debug/flatout-accelerator-sim"))
    } else {
        Err(format!("the mutated sources in {} do not compile", source.display()).into())
    }
}

/// Copies what has changed since the last run, so that cargo compiles no more than that.
fn copy_sources(root: &Path, to: &Path) -> Outcome<()> {
    for path in listed_files(root)? {
        let (full, copy) = (root.join(&path), to.join(&path));
        if !full.is_file() || full.is_symlink() {
            continue;
        }
        let mut bytes = fs::read(&full).cannot(&format!("read {path}"))?;
        if patches().any(|(_, patch)| patch.path == path) {
            let text = String::from_utf8(bytes).cannot(&format!("read {path}"))?;
            bytes = mutate(&path, text)?.into_bytes();
        }
        if fs::read(&copy).is_ok_and(|before| before == bytes) {
            continue;
        }
        let parent = copy.parent().cannot("find the folder of a file")?;
        fs::create_dir_all(parent).cannot(&format!("create {}", parent.display()))?;
        fs::write(&copy, bytes).cannot(&format!("write {}", copy.display()))?;
    }
    Ok(())
}

fn patches() -> impl Iterator<Item = (&'static Mutation, &'static Patch)> {
    MUTATIONS.iter().flat_map(|mutation| mutation.patches.iter().map(move |patch| (mutation, patch)))
}

/// The text of the file `path` with all mutations.
fn mutate(path: &str, mut text: String) -> Outcome<String> {
    for (mutation, patch) in patches().filter(|(_, patch)| patch.path == path) {
        let count = text.matches(patch.old).count();
        if count != 1 {
            return Err(format!("the text of the mutation `{}` occurs {count} times in {path}", mutation.name).into());
        }
        let condition = format!("std::env::var_os(\"{VARIABLE}\").is_some_and(|name| name == \"{}\")", mutation.name);
        text = text.replace(patch.old, &patch.new.replace("MUTATED", &format!("({condition})")));
    }
    Ok(text)
}

/// The first seed up to `seeds_max` that fails, and the broken invariant.
fn first_violation(binary: &Path, mutation: &str, seeds_max: u32) -> Outcome<Option<(u32, String)>> {
    let mut command = Command::new(binary);
    command.args(["1", &seeds_max.to_string()]).env(VARIABLE, mutation).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut simulation = command.spawn().cannot("start the simulation")?;
    let output = simulation.stderr.take().cannot("read what the simulation prints")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).cannot("read what the simulation prints")?;
    // It goes on to minimise the scenario, which is of no use here.
    let _ = simulation.kill();
    let status = simulation.wait().cannot("wait for the simulation")?;
    if line.is_empty() && status.success() {
        return Ok(None);
    }
    parse_violation(&line).cannot(&format!("understand what the simulation prints: {line:?}")).map(Some)
}

/// The seed and the invariant in `seed 7: request 3: RULE (DETAILS)`.
fn parse_violation(line: &str) -> Option<(u32, String)> {
    let (seed, rest) = line.strip_prefix("seed ")?.split_once(": request ")?;
    let (_, rule) = rest.trim_end().split_once(": ")?;
    let rule = rule.split(" (response").next()?.split(", \"").next()?;
    Some((seed.parse().ok()?, rule.to_owned()))
}

fn write_table(rows: &str) -> Outcome<()> {
    let path = shell::root().join(DOCUMENT);
    let text = fs::read_to_string(&path).cannot(&format!("read {DOCUMENT}"))?;
    let (before, rest) = text.split_once(BEGIN).cannot("find the beginning of the table of mutations")?;
    let (_, after) = rest.split_once(END).cannot("find the end of the table of mutations")?;
    let head = "| mutation | The accelerator … | first seed | violation |\n|---|---|---:|---|\n";
    let text = format!("{before}{BEGIN}\n{head}{rows}\n{END}{after}");
    fs::write(&path, text).cannot(&format!("write {DOCUMENT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_changes_the_present_sources_and_is_documented() {
        let root = shell::root();
        let document = fs::read_to_string(root.join(DOCUMENT)).unwrap();
        for mutation in MUTATIONS {
            assert!(document.contains(&format!("| `{}` |", mutation.name)), "{}", mutation.name);
            for Patch { path, old, new } in mutation.patches {
                let text = fs::read_to_string(root.join(path)).unwrap();
                assert_eq!(text.matches(old).count(), 1, "{} in {path}", mutation.name);
                assert!(new.contains("MUTATED"), "{} in {path}", mutation.name);
            }
        }
    }

    #[test]
    fn a_text_that_is_gone_is_an_error() {
        let (_, patch) = patches().next().unwrap();
        assert!(mutate(patch.path, String::new()).is_err());
        assert!(mutate(patch.path, patch.old.repeat(2)).is_err());
    }

    #[test]
    fn violations_are_read() {
        let line = "seed 12: request 0: the response has private (response 3 to request 1, control \"private\")\n";
        assert_eq!(parse_violation(line), Some((12, "the response has private".to_owned())));
        assert_eq!(parse_violation("Segmentation fault\n"), None);
    }
}
