//! What the rules look at: every file of the repository and every package of the workspace.

use super::modules::{self, Reached};
use super::source::Source;
use crate::failure::{Context, Outcome};
use crate::shell;
use serde_json::Value;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The repository as the rules see it. Paths are relative to its root, with `/` between their parts.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Every file that is tracked, or is neither tracked nor ignored; `None` where it is not text.
    pub(crate) files: BTreeMap<String, Option<String>>,
    /// The workspace's packages.
    pub(crate) packages: Vec<Package>,
    /// Other people's packages that a build for this system uses, directly or not.
    pub(crate) foreign: Vec<Foreign>,
    /// Each Rust file's tokens, read once.
    sources: OnceCell<BTreeMap<String, Source>>,
    reached: OnceCell<Reached>,
}

/// A package that is not ours.
#[derive(Debug, Default, Clone)]
pub(crate) struct Foreign {
    /// Name and version.
    pub(crate) name: String,
    /// The licence expression that it declares.
    pub(crate) license: Option<String>,
    /// Where cargo has it from; `None` for a folder.
    pub(crate) source: Option<String>,
}

/// One package of the workspace.
#[derive(Debug, Default, Clone)]
pub(crate) struct Package {
    /// As Cargo.toml names it.
    pub(crate) name: String,
    /// Its folder; empty for the root package.
    pub(crate) folder: String,
    /// The first file of each target.
    pub(crate) target_roots: Vec<String>,
    /// What it names in Cargo.toml.
    pub(crate) dependencies: Vec<Dependency>,
    /// Every package that a build of it links, each with one way that leads there.
    pub(crate) reaches: BTreeMap<String, Vec<String>>,
}

/// One dependency, as its package names it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Dependency {
    /// The package depended on.
    pub(crate) name: String,
    /// True if only tests see it.
    pub(crate) is_dev: bool,
    /// True if it is a package of this workspace.
    pub(crate) is_ours: bool,
}

impl Tree {
    /// Reads the repository that this program belongs to.
    pub(crate) fn read() -> Outcome<Self> {
        let root = shell::root();
        let mut files = BTreeMap::new();
        for path in listed_files(&root)? {
            let full = root.join(&path);
            // Symbolic links and files whose deletion is not staged are nobody's text.
            if full.is_file() && !full.is_symlink() {
                let bytes = std::fs::read(&full).cannot(&format!("read {path}"))?;
                files.insert(path, String::from_utf8(bytes).ok());
            }
        }
        let metadata = metadata()?;
        let (packages, foreign) = (packages(&metadata, &root)?, foreign(&metadata)?);
        Ok(Self { files, packages, foreign, ..Self::default() })
    }

    /// A small tree for a rule's own test.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned())));
        Self { files: files.collect(), ..Self::default() }
    }

    /// The same with a package.
    #[cfg(test)]
    pub(crate) fn with(mut self, package: Package) -> Self {
        self.packages.push(package);
        self
    }

    /// The text of a file, if it exists and is text.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// All text files.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// All Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.sources().iter().map(|(path, source)| (path.as_str(), source))
    }

    /// The tokens of a Rust file.
    pub(crate) fn source(&self, path: &str) -> Option<&Source> {
        self.sources().get(path)
    }

    fn sources(&self) -> &BTreeMap<String, Source> {
        self.sources.get_or_init(|| {
            let rust = self.texts().filter(|(path, _)| has_extension(path, "rs"));
            rust.map(|(path, text)| (path.to_owned(), Source::read(text))).collect()
        })
    }

    /// The Rust files that some target compiles; true where only tests do.
    pub(crate) fn reached(&self) -> &Reached {
        self.reached.get_or_init(|| modules::reached(self))
    }

    /// All Rust files except those that only tests compile.
    pub(crate) fn product(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.rust().filter(|(path, _)| self.reached().get(*path) != Some(&true))
    }

    /// The Rust files below the `src` folder of a package, except those that only tests compile.
    pub(crate) fn product_of(&self, package: &Package) -> impl Iterator<Item = (&str, &Source)> {
        let folder = package.source_folder();
        self.product()
            .filter(move |(path, _)| path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/')))
    }

    /// Returns true if a file or a folder of that path exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty() || self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&folder))
    }
}

impl Package {
    /// The folder of its sources, `src` for the root package.
    pub(crate) fn source_folder(&self) -> String {
        join(&self.folder, "src")
    }

    /// A package for a rule's own test.
    #[cfg(test)]
    pub(crate) fn of(name: &str, folder: &str, dependencies: &[&str]) -> Self {
        let dependency =
            |name: &&str| Dependency { name: (*name).to_owned(), is_dev: false, is_ours: name.starts_with("flatout") };
        Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            target_roots: vec![join(folder, "src/lib.rs")],
            dependencies: dependencies.iter().map(dependency).collect(),
            reaches: BTreeMap::new(),
        }
    }
}

/// Returns true if a path ends in `.extension`.
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|own| own == extension)
}

/// The folder a file lies in; empty at the root.
pub(crate) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Joins two relative paths and resolves `.` and `..`; `None` when that leads out of the repository.
pub(crate) fn resolve(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn join(folder: &str, file: &str) -> String {
    if folder.is_empty() { file.to_owned() } else { format!("{folder}/{file}") }
}

/// Every file that is tracked, or is neither tracked nor ignored, relative to `root`.
pub(crate) fn listed_files(root: &Path) -> Outcome<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    if let Ok(list) = shell::output_of(&mut git) {
        return Ok(list.split_terminator('\0').map(str::to_owned).collect());
    }
    // An unpacked source archive has no index: everything but what cargo builds counts.
    let mut found = Vec::new();
    walk(root, "", &mut found)?;
    Ok(found)
}

fn walk(root: &Path, folder: &str, found: &mut Vec<String>) -> Outcome<()> {
    let entries = std::fs::read_dir(root.join(folder)).cannot(&format!("list {folder}/"))?;
    for entry in entries {
        let entry = entry.cannot(&format!("list {folder}/"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = join(folder, &name);
        if !entry.path().is_dir() {
            found.push(path);
        } else if name != "target" && name != ".git" {
            walk(root, &path, found)?;
        }
    }
    Ok(())
}

fn metadata() -> Outcome<Value> {
    let version = shell::output_of(Command::new("rustc").arg("-vV"))?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).cannot("find the host's name in `rustc -vV`")?;
    let text = shell::output_of(shell::cargo().args([
        "metadata",
        "--format-version=1",
        // Packages for other systems are not built here and need not be fetched.
        "--filter-platform",
        host,
    ]))?;
    serde_json::from_str(&text).cannot("read cargo's metadata")
}

fn packages(metadata: &Value, root: &Path) -> Outcome<Vec<Package>> {
    let members: BTreeSet<&str> = array(&metadata["workspace_members"]).filter_map(Value::as_str).collect();
    let mut names = BTreeMap::new();
    for package in array(&metadata["packages"]) {
        names.insert(text(&package["id"])?, text(&package["name"])?);
    }
    let links = normal_links(metadata)?;
    let mut found = Vec::new();
    for package in array(&metadata["packages"]) {
        let id = text(&package["id"])?;
        if !members.contains(id) {
            continue;
        }
        let relative = |path: &str| {
            let path = Path::new(path);
            let path = path.strip_prefix(root).unwrap_or(path);
            path.to_string_lossy().into_owned()
        };
        let mut target_roots = Vec::new();
        for target in array(&package["targets"]) {
            target_roots.push(relative(text(&target["src_path"])?));
        }
        let mut dependencies = Vec::new();
        for dependency in array(&package["dependencies"]) {
            dependencies.push(Dependency {
                name: text(&dependency["name"])?.to_owned(),
                is_dev: dependency["kind"] == "dev",
                is_ours: dependency["path"].is_string(),
            });
        }
        found.push(Package {
            name: text(&package["name"])?.to_owned(),
            folder: folder_of(&relative(text(&package["manifest_path"])?)).to_owned(),
            target_roots,
            dependencies,
            reaches: reaches(id, &links, &names),
        });
    }
    Ok(found)
}

fn foreign(metadata: &Value) -> Outcome<Vec<Foreign>> {
    let members: BTreeSet<&str> = array(&metadata["workspace_members"]).filter_map(Value::as_str).collect();
    let mut found = Vec::new();
    for package in array(&metadata["packages"]) {
        if !members.contains(text(&package["id"])?) {
            found.push(Foreign {
                name: format!("{} {}", text(&package["name"])?, text(&package["version"])?),
                license: package["license"].as_str().map(str::to_owned),
                source: package["source"].as_str().map(str::to_owned),
            });
        }
    }
    Ok(found)
}

/// For each package of the whole graph, what a build of it links: no dev- and no build-dependencies.
fn normal_links(metadata: &Value) -> Outcome<BTreeMap<&str, Vec<&str>>> {
    let mut links = BTreeMap::new();
    for node in array(&metadata["resolve"]["nodes"]) {
        let mut targets = Vec::new();
        for dependency in array(&node["deps"]) {
            if array(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null()) {
                targets.push(text(&dependency["pkg"])?);
            }
        }
        links.insert(text(&node["id"])?, targets);
    }
    Ok(links)
}

fn reaches(
    start: &str,
    links: &BTreeMap<&str, Vec<&str>>,
    names: &BTreeMap<&str, &str>,
) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut seen = BTreeSet::from([start]);
    let mut waiting = vec![(start, Vec::new())];
    while let Some((id, way)) = waiting.pop() {
        for next in links.get(id).into_iter().flatten() {
            if seen.insert(next) {
                let name = names.get(next).copied().unwrap_or(next).to_owned();
                let mut way = way.clone();
                way.push(name.clone());
                found.insert(name, way.clone());
                waiting.push((next, way));
            }
        }
    }
    found
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Outcome<&str> {
    value.as_str().cannot("find an expected name in cargo's metadata")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_resolve_inside_the_repository_only() {
        assert_eq!(resolve("docs", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("docs", "./a/../b.md").as_deref(), Some("docs/b.md"));
        assert_eq!(resolve("docs", "../../outside"), None);
    }

    #[test]
    fn a_package_reaches_what_its_dependencies_link_and_says_how() {
        let links = BTreeMap::from([("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["a"])]);
        let names = BTreeMap::from([("a", "a"), ("b", "b"), ("c", "libc")]);
        let found = reaches("a", &links, &names);
        assert_eq!(found["libc"], ["b", "libc"]);
        assert!(!found.contains_key("a"));
    }
}
