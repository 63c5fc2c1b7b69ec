//! At most [`FILES_MAX`] files of a crate depend on each other in a circle, directly or through others: to understand one
//! of them, you have to read all of them.
//!
//! A file depends on another if it names one of its items. A file that re-exports or imports an item does not own it.
//! Inline modules belong to their file; `super` in them leads to the parent of the file.

use super::Finding;
use super::imports::{Import, imports, path_at};
use super::remaining::{Found, compare};
use super::source::{Kind, Source};
use super::tree::{Package, Tree};
use std::collections::{BTreeMap, BTreeSet, HashSet};

const FILES_MAX: usize = 3;

/// How many re-exports are followed to find the owner of an item.
const STEPS_MAX: usize = 8;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for package in &tree.packages {
        for circle in Crate::read(tree, package).circles() {
            let place = found.entry(package.name.clone()).or_default();
            place.figures.push(circle.len());
            let text =
                format!("{} files depend on each other, at most {FILES_MAX} may: {}", circle.len(), circle.join(", "));
            place.findings.push(Finding::of(&package.source_folder(), text));
        }
    }
    compare(tree, "circles", found)
}

/// A module's path below its crate, without the crate.
type ModulePath = Vec<String>;

/// The files of a crate that are not tests.
struct Crate<'t> {
    files: BTreeMap<ModulePath, File<'t>>,
}

struct File<'t> {
    path: &'t str,
    /// Every path in its imports, and every path in its code with at least two parts.
    paths: Vec<Vec<String>>,
    /// The names that it imports or re-exports, and their paths.
    names: BTreeMap<String, Vec<String>>,
}

impl<'t> Crate<'t> {
    fn read(tree: &'t Tree, package: &Package) -> Self {
        let folder = package.source_folder();
        let mut files: BTreeMap<ModulePath, File<'_>> = BTreeMap::new();
        for (path, source) in tree.product_of(package) {
            // The library comes before a program of the same package.
            files.entry(module_path(&path[folder.len() + 1..])).or_insert_with(|| File::read(path, source));
        }
        Self { files }
    }

    /// The paths of the files in each circle of more than [`FILES_MAX`].
    fn circles(&self) -> Vec<Vec<&'t str>> {
        let reached: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = {
            let arrows: BTreeMap<_, _> =
                self.files.iter().map(|(path, file)| (path, self.arrows(path, file))).collect();
            self.files.keys().map(|path| (path, reach(path, &arrows))).collect()
        };
        let mut placed = BTreeSet::new();
        let mut circles = Vec::new();
        for (path, reaches) in &reached {
            let circle: Vec<&ModulePath> =
                reaches.iter().copied().filter(|other| reached[other].contains(path)).collect();
            if circle.len() > FILES_MAX && placed.insert(circle[0]) {
                circles.push(circle.iter().map(|path| self.files[*path].path).collect());
            }
        }
        circles
    }

    /// The other files that a file depends on.
    fn arrows(&self, path: &ModulePath, file: &File<'_>) -> BTreeSet<&ModulePath> {
        file.paths.iter().filter_map(|named| self.owner(path, named)).filter(|owner| *owner != path).collect()
    }

    /// The file that owns what a path leads to; `None` if it leads out of the crate.
    fn owner(&self, file: &ModulePath, path: &[String]) -> Option<&ModulePath> {
        let (mut module, mut rest) = self.resolve(file, path)?;
        for _ in 0..STEPS_MAX {
            let Some(path) = rest.first().and_then(|name| self.files[&module].names.get(name)) else { break };
            let Some((next, mut next_rest)) = self.resolve(&module, path) else { break };
            next_rest.extend(rest.drain(1..));
            (module, rest) = self.descend(next, next_rest);
        }
        self.files.get_key_value(&module).map(|(module, _)| module)
    }

    /// The file in which a path begins or continues, and the rest of the path.
    fn resolve(&self, file: &ModulePath, path: &[String]) -> Option<(ModulePath, Vec<String>)> {
        let mut module = file.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (module, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
                    module.pop()?;
                    rest = after;
                }
            }
            child => {
                module.push(child.to_owned());
                self.files.get(&module)?;
                rest = &path[1..];
            }
        }
        let (module, rest) = self.descend(module, rest.to_vec());
        self.files.contains_key(&module).then_some((module, rest))
    }

    /// Goes into the modules that the path names.
    fn descend(&self, mut module: ModulePath, mut rest: Vec<String>) -> (ModulePath, Vec<String>) {
        let mut used = 0;
        for name in &rest {
            module.push(name.clone());
            if !self.files.contains_key(&module) {
                module.pop();
                break;
            }
            used += 1;
        }
        rest.drain(..used);
        (module, rest)
    }
}

impl<'t> File<'t> {
    fn read(path: &'t str, source: &Source) -> Self {
        let mut file = Self { path, paths: Vec::new(), names: BTreeMap::new() };
        let mut words = HashSet::new();
        let (mut own_imports, mut re_exports) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < source.tokens.len() {
            if source.test_mask[at] {
                at += 1;
            } else if let Some((imports, end)) = imports(source, at) {
                if is_public(source, at) { &mut re_exports } else { &mut own_imports }.extend(imports);
                at = end;
            } else {
                if let Kind::Word(word) = &source.tokens[at].kind {
                    words.insert(word.as_str());
                    let named = named_path(source, at);
                    at += (named.len() * 3).saturating_sub(3);
                    if named.len() > 1 {
                        file.paths.push(named);
                    }
                }
                at += 1;
            }
        }
        for Import { name, path } in own_imports.iter().chain(&re_exports) {
            file.names.extend(name.clone().map(|name| (name, path.clone())));
        }
        // A re-export is a dependency only if the file uses the name itself.
        re_exports.retain(|import| import.name.as_ref().is_some_and(|name| words.contains(name.as_str())));
        file.paths.extend(own_imports.into_iter().chain(re_exports).map(|import| import.path));
        file
    }
}

/// The module path of a file, from its path below `src/`.
fn module_path(inside: &str) -> ModulePath {
    let mut path: ModulePath = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_root = path.len() == 1 && matches!(path[0].as_str(), "lib" | "main");
    if is_root || path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    path
}

/// Returns true if `pub` or `pub(…)` stands before the token at `at`.
fn is_public(source: &Source, at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|index| source.tokens.get(index));
    match before(1) {
        Some(token) if token.is_mark(')') => {
            let open = (0..at).rev().find(|index| source.tokens[*index].is_mark('('));
            open.is_some_and(|open| open > 0 && source.tokens[open - 1].is_word("pub"))
        }
        Some(token) => token.is_word("pub"),
        None => false,
    }
}

/// The words of `a::b::c` from `at` on; none if it is a name, or the end of a path such as `<A as B>::c::d`.
fn named_path(source: &Source, at: usize) -> Vec<String> {
    let colons = |at: usize| source.matches(at, &[":", ":"]);
    if !colons(at + 1) || (at > 1 && colons(at - 2)) { Vec::new() } else { path_at(source, at) }
}

/// Every key that `start` reaches, and `start` itself if it is on a circle.
fn reach<'p>(
    start: &'p ModulePath,
    arrows: &BTreeMap<&'p ModulePath, BTreeSet<&'p ModulePath>>,
) -> BTreeSet<&'p ModulePath> {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(path) = waiting.pop() {
        waiting.extend(arrows[path].iter().copied().filter(|next| seen.insert(*next)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/a/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = Tree::of(&files).with(Package::of("flatout-a", "crates/a", &[]));
        check(&tree).into_iter().map(|finding| finding.to_string()).collect()
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a; mod b; mod c; mod d; mod e;");

    #[test]
    fn a_circle_of_four_is_found_whatever_its_arrows_are_written_as() {
        let found = findings(&[
            ROOT,
            ("a.rs", "use crate::{b::{self, B as Other}, e::E};"),
            ("b.rs", "pub struct B; fn b() { super::c::c(); }"),
            ("c/mod.rs", "use super::d::D;"),
            ("d.rs", "mod low; use self::low::Low; pub struct D;"),
            ("d/low.rs", "pub struct Low; fn a(_: crate::a::A) {}"),
            ("e.rs", "pub struct E;"),
        ]);
        let circle = "5 files depend on each other, at most 3 may: crates/a/src/a.rs, crates/a/src/b.rs, \
                      crates/a/src/c/mod.rs, crates/a/src/d.rs, crates/a/src/d/low.rs";
        assert_eq!(found, [format!("crates/a/src: {circle}")]);
    }

    #[test]
    fn re_exports_lead_to_the_owner() {
        let free = [
            ("lib.rs", "mod a; mod b; mod c; pub use a::A; use b::B;"),
            ("a.rs", "pub struct A; use super::B;"),
            ("b.rs", "pub struct B; use crate::C;"),
            ("c.rs", "pub struct C; use crate::Root;"),
        ];
        assert_eq!(findings(&free), [""; 0]);
        let mut circle = free;
        circle[0].1 = "mod a; mod b; mod c; pub use a::A; use b::B; pub use c::C; pub struct Root(A);";
        let found = findings(&circle);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/a/src: 4 files"), "{found:?}");
    }

    #[test]
    fn three_files_tests_and_other_crates_are_free() {
        let found = findings(&[
            ROOT,
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A; #[cfg(test)] mod tests { use crate::d::D; }"),
            ("d.rs", "use crate::a::A; use std::e::E; fn d() { x.e::<u8>(); other::e::f(); }"),
            ("e.rs", "use crate::d::D;"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
