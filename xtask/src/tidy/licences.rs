//! Other people's packages come from crates.io, under a licence that deny.toml allows.
//!
//! `cargo deny` checks this and more where it is installed. This part needs nothing but cargo's own metadata, and so
//! is checked everywhere. Absent: known holes and withdrawn releases, which only a database knows.

use super::Finding;
use super::tree::{Foreign, Tree};

const POLICY: &str = "deny.toml";

/// As cargo writes the one registry that we use.
const REGISTRIES: &[&str] =
    &["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let policy = tree.text(POLICY).unwrap_or("");
    let allowed = allowed(policy);
    let problems = tree.foreign.iter().flat_map(|package| {
        let problems = [source_problem(package), license_problem(package, &allowed)];
        problems.into_iter().flatten().map(|why| format!("{}: {why}", package.name))
    });
    problems.map(|text| Finding::of(POLICY, text)).collect()
}

fn source_problem(package: &Foreign) -> Option<String> {
    match &package.source {
        None => Some("comes from a folder that is not part of the workspace".to_owned()),
        Some(source) if REGISTRIES.contains(&source.as_str()) => None,
        Some(source) => Some(format!("comes from {source}")),
    }
}

fn license_problem(package: &Foreign, allowed: &[&str]) -> Option<String> {
    let Some(license) = &package.license else { return Some("declares no licence".to_owned()) };
    match Expression::new(license).verdict(allowed) {
        Some(true) => None,
        Some(false) => Some(format!("`{license}` is not among the licences that are allowed")),
        None => Some(format!("`{license}` is no licence expression")),
    }
}

/// The strings of `allow` in `[licenses]`.
fn allowed(policy: &str) -> Vec<&str> {
    let section = policy.split_once("[licenses]\n").map_or("", |(_, rest)| rest);
    let section = section.find("\n[").map_or(section, |end| &section[..end]);
    let list = section.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
    let lines = list.map_or("", |(list, _)| list).lines();
    lines.flat_map(|line| line.split('#').next().unwrap_or("").split('"').skip(1).step_by(2)).collect()
}

/// An SPDX licence expression while it is read.
struct Expression {
    words: Vec<String>,
    at: usize,
}

impl Expression {
    fn new(text: &str) -> Self {
        // Cargo's old way to write a choice is a slash.
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        Self { words: spaced.split_whitespace().map(str::to_owned).collect(), at: 0 }
    }

    /// `None` when it is not one.
    fn verdict(mut self, allowed: &[&str]) -> Option<bool> {
        let verdict = self.any(allowed)?;
        (self.at == self.words.len()).then_some(verdict)
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at).is_some_and(|next| next == word);
        self.at += usize::from(is_next);
        is_next
    }

    fn any(&mut self, allowed: &[&str]) -> Option<bool> {
        let mut verdict = self.every(allowed)?;
        while self.takes("OR") {
            verdict |= self.every(allowed)?;
        }
        Some(verdict)
    }

    fn every(&mut self, allowed: &[&str]) -> Option<bool> {
        let mut verdict = self.one(allowed)?;
        while self.takes("AND") {
            verdict &= self.one(allowed)?;
        }
        Some(verdict)
    }

    fn one(&mut self, allowed: &[&str]) -> Option<bool> {
        if self.takes("(") {
            let verdict = self.any(allowed)?;
            return self.takes(")").then_some(verdict);
        }
        let mut license = self.name()?;
        if self.takes("WITH") {
            license = format!("{license} WITH {}", self.name()?);
        }
        Some(allowed.contains(&license.as_str()))
    }

    fn name(&mut self) -> Option<String> {
        let word = self.words.get(self.at).filter(|word| !["(", ")", "OR", "AND", "WITH"].contains(&word.as_str()))?;
        self.at += 1;
        Some(word.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "[bans]\nallow = [\"GPL-3.0\"]\n[licenses]\n# why\nallow = [\n  \"MIT\", # \"Nokia\"\n  \"Apache-2.0 WITH LLVM-exception\",\n]\n[sources]\nallow = [\"X\"]\n";

    fn findings(license: Option<&str>, source: Option<&str>) -> Vec<String> {
        let mut tree = Tree::of(&[(POLICY, SAMPLE)]);
        tree.foreign.push(Foreign {
            name: "x 1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
        });
        check(&tree).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn the_list_of_the_right_section_is_read() {
        assert_eq!(allowed(SAMPLE), ["MIT", "Apache-2.0 WITH LLVM-exception"]);
    }

    #[test]
    fn a_licence_or_a_source_that_is_not_allowed_is_found() {
        let registry = Some(REGISTRIES[0]);
        assert_eq!(findings(Some("MIT"), registry), [""; 0]);
        let expected = "deny.toml: x 1.0.0: `GPL-3.0` is not among the licences that are allowed";
        assert_eq!(findings(Some("GPL-3.0"), registry), [expected]);
        assert_eq!(findings(None, registry), ["deny.toml: x 1.0.0: declares no licence"]);
        assert_eq!(
            findings(Some("MIT"), Some("git+https://a.org/x")),
            ["deny.toml: x 1.0.0: comes from git+https://a.org/x"]
        );
        assert_eq!(findings(Some("MIT"), None).len(), 1);
    }

    #[test]
    fn expressions_are_weighed_as_spdx_says() {
        let verdict = |text| Expression::new(text).verdict(&["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"]);
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR GPL-3.0) AND Zlib",
            "Apache-2.0 WITH LLVM-exception OR X",
            // AND binds closer.
            "MIT OR X AND Y",
        ] {
            assert_eq!(verdict(good), Some(true), "{good}");
        }
        for bad in ["Apache-2.0", "MIT AND X", "(MIT OR X) AND Y", "MIT WITH LLVM-exception"] {
            assert_eq!(verdict(bad), Some(false), "{bad}");
        }
        for broken in ["", "MIT OR", "(MIT", "MIT Zlib", "OR MIT"] {
            assert_eq!(verdict(broken), None, "{broken}");
        }
    }
}
