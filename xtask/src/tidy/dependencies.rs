//! Each external dependency is justified in docs/decisions/dependencies.md, and each declared dependency is used by a
//! package.

use super::Finding;
use super::tree::Tree;
use std::collections::BTreeSet;

const REASONS: &str = "docs/decisions/dependencies.md";
const SECTION: &str = "Dependencies";
const WORKSPACE: &str = "Cargo.toml";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(section) = tree.text(REASONS).and_then(section) else {
        return vec![Finding::of(REASONS, format!("has no section \"{SECTION}\""))];
    };
    let mut used = BTreeSet::new();
    for package in &tree.packages {
        for dependency in &package.dependencies {
            used.insert(dependency.name.as_str());
            if !dependency.is_ours && !is_named(section, &dependency.name) {
                let manifest = format!("{}/{WORKSPACE}", package.folder);
                let text = format!("`{}` is not named in {REASONS}, \"{SECTION}\"", dependency.name);
                findings.push(Finding::of(manifest.trim_start_matches('/'), text));
            }
        }
    }
    for (line, name) in declared(tree.text(WORKSPACE).unwrap_or("")) {
        if !used.contains(name) {
            let text = format!("`{name}` is declared and no package uses it");
            findings.push(Finding::at(WORKSPACE, line, text));
        }
    }
    findings
}

/// The text from the section's heading to the next heading.
fn section(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(&format!("# {SECTION}\n"))?;
    Some(rest.find("\n#").map_or(rest, |end| &rest[..end]))
}

/// Returns true if the name stands in the text by itself: `h2` is not named by `h2o`.
fn is_named(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
}

/// The names below `[workspace.dependencies]`, with their lines.
fn declared(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    manifest.lines().enumerate().filter_map(move |(index, line)| {
        if line.starts_with('[') {
            inside = line.trim() == "[workspace.dependencies]";
            return None;
        }
        let (name, _) = line.split_once(['=', '.'])?;
        let name = name.trim();
        (inside && !name.is_empty() && !name.starts_with('#')).then_some((index + 1, name))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    fn findings(reasons: &str, manifest: &str) -> Vec<String> {
        let tree = Tree::of(&[(REASONS, reasons), (WORKSPACE, manifest)]).with(Package::of(
            "flatout-http",
            "crates/http",
            &["h2", "flatout-load"],
        ));
        check(&tree).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let found = findings("# Dependencies\nWe like h2o.\n# Next\nh2\n", "");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/http/Cargo.toml: `h2` is not named"));
        assert!(!findings("no such section", "").is_empty());
    }

    #[test]
    fn a_declared_dependency_that_nobody_uses_is_found() {
        let manifest = "[workspace.dependencies]\n# why\nh2 = \"1\"\nold = { version = \"1\" }\n[x]\ny = 1\n";
        let found = findings("## Dependencies\n| `h2` | HTTP/2 |\n", manifest);
        assert_eq!(found, ["Cargo.toml:4: `old` is declared and no package uses it"]);
    }
}
