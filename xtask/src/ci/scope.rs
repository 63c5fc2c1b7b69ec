//! What a change can break: the packages that contain it or depend on it, and the end-to-end tests that look at it.

use crate::failure::{Context, Outcome};
use crate::shell;
use crate::tidy::tree::{Package, Tree};
use std::collections::BTreeSet;
use std::process::Command;

/// The end-to-end tests, by module, that look at each folder. A change elsewhere in a crate's dependencies is left to
/// `cargo xtask ci`.
const MODULES: &[(&str, &[&str])] = &[
    ("crates/access-log", &["access_log"]),
    ("crates/balance", &["accelerator::faults", "accelerator::targets"]),
    ("crates/cache", &["scenarios", "accelerator::visitors", "accelerator::poisoning"]),
    ("crates/client", &["bench", "lab::truth", "lab::secure"]),
    ("crates/config", &["config", "run", "docs"]),
    ("crates/daemon", &["admin", "reload", "run", "upgrade", "worker"]),
    ("crates/data", &["pages::database"]),
    ("crates/engine", &["config", "handlers", "explain", "run"]),
    ("crates/fastcgi", &["php"]),
    ("crates/handler", &["smoke", "handlers"]),
    ("crates/http", &["smoke", "bad_input", "conformance", "http2::errors", "http3::transport"]),
    ("crates/lab", &["bench", "lab::truth", "lab::refusals", "lab::questions"]),
    ("crates/load", &["bench", "lab::truth", "workload"]),
    ("crates/net", &["smoke", "tls"]),
    ("crates/os", &["smoke", "files", "run"]),
    ("crates/overload", &["accelerator::limits", "pages::backlog"]),
    ("crates/pages", &["pages"]),
    (
        "crates/proxy",
        &["scenarios", "accelerate", "accelerator::coalesce", "accelerator::faults", "accelerator::purge"],
    ),
    ("crates/reason", &["docs"]),
    ("crates/report", &["bench", "lab::report", "lab::schema"]),
    ("crates/serve", &["smoke", "files", "handlers", "syscalls"]),
    ("crates/server", &["smoke", "timeouts", "tls", "http2::errors"]),
    ("crates/store", &["accelerator::crash", "accelerator::damage", "accelerator::memory", "accelerator::purge"]),
    ("crates/suite", &["suite"]),
    ("crates/template", &["pages::check", "pages::injection"]),
    ("crates/units", &["cli"]),
    ("crates/upstream", &["scenarios", "accelerator::faults", "php"]),
    ("src", &["cli", "smoke", "config", "bench"]),
    ("docs", &["docs"]),
    ("README.md", &["docs"]),
    ("suites", &["suite"]),
    ("demo", &["pages::demo"]),
    ("tests/e2e.rs", &["smoke", "cli"]),
    ("tests/e2e/browser.rs", &["pictures"]),
    ("tests/e2e/harness.rs", &["smoke", "cli"]),
    ("tests/e2e/process.rs", &["reload", "run"]),
    ("tests/e2e/site.rs", &["reload"]),
    ("tests/e2e/skip.rs", &["smoke"]),
    ("tests/e2e/tool.rs", &["clients", "tls"]),
    ("tests/vectors", &["bad_input"]),
    ("tests/scenarios", &["scenarios"]),
];

/// Files that every package depends on.
const SHARED: &[&str] = &["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo/"];

/// What to test after a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The packages whose own tests run.
    pub(crate) packages: BTreeSet<String>,
    /// The modules of tests/e2e that run.
    pub(crate) modules: BTreeSet<String>,
    /// The number of packages of the workspace whose tests do not run.
    pub(crate) packages_left: usize,
}

impl Scope {
    /// The scope of everything that changed since `commit`, including what is not committed.
    pub(crate) fn since(commit: &str) -> Outcome<Self> {
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            shell::output_of(git.current_dir(shell::root()).args(arguments))
        };
        let mut paths = git(&["diff", "--name-only", "-z", commit, "--"]).cannot("find what changed")?;
        paths.push_str(&git(&["ls-files", "-z", "--others", "--exclude-standard"])?);
        let paths: BTreeSet<_> = paths.split_terminator('\0').collect();
        Ok(Self::of(&paths, &Tree::read()?.packages))
    }

    fn of(paths: &BTreeSet<&str>, packages: &[Package]) -> Self {
        let is_in = |path: &str, folder: &str| {
            path.strip_prefix(folder)
                .is_some_and(|rest| folder.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
        };
        let touches = |folder: &str| paths.iter().any(|path| is_in(path, folder));
        let all = SHARED.iter().any(|shared| touches(shared));
        let mut changed = BTreeSet::new();
        for package in packages {
            // The root package's folder contains everything.
            let own = if package.folder.is_empty() { "src" } else { &package.folder };
            if all || touches(own) {
                changed.insert(package.name.clone());
            }
        }
        // Whatever links a changed package has changed too; what only its tests use does not change a package.
        loop {
            let count = changed.len();
            for package in packages {
                if package.dependencies.iter().any(|used| !used.is_dev && changed.contains(&used.name)) {
                    changed.insert(package.name.clone());
                }
            }
            if changed.len() == count {
                break;
            }
        }
        let tests_use = |package: &&Package| package.dependencies.iter().any(|used| changed.contains(&used.name));
        let mut scope: BTreeSet<_> = packages.iter().filter(tests_use).map(|package| package.name.clone()).collect();
        scope.extend(changed);
        let mut modules: BTreeSet<String> = MODULES
            .iter()
            .filter(|(folder, _)| touches(folder))
            .flat_map(|(_, modules)| *modules)
            .map(|m| (*m).into())
            .collect();
        modules.extend(paths.iter().filter_map(|path| changed_module(path)));
        Self { packages_left: packages.len() - scope.len(), packages: scope, modules }
    }
}

/// The module of tests/e2e to which a file belongs: `http2::floods` for `tests/e2e/http2/floods.rs`.
fn changed_module(path: &str) -> Option<String> {
    let module = path.strip_prefix("tests/e2e/")?;
    let module = module.strip_suffix(".rs").or_else(|| module.rsplit_once('/').map(|(folder, _)| folder))?;
    // Two levels name a module of tests; deeper ones are parts of it.
    Some(module.split('/').take(2).collect::<Vec<_>>().join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Dependency;

    fn packages() -> Vec<Package> {
        let mut server = Package::of("flatout-server", "crates/server", &["flatout-http"]);
        server.dependencies.push(Dependency { name: "flatout-sim".into(), is_dev: true, is_ours: true });
        vec![
            Package::of("flatout", "", &["flatout-server", "flatout-report"]),
            server,
            Package::of("flatout-http", "crates/http", &["bytes"]),
            Package::of("flatout-report", "crates/report", &[]),
            Package::of("flatout-sim", "crates/sim", &[]),
            Package::of("xtask", "xtask", &[]),
        ]
    }

    fn scope(paths: &[&str]) -> (Vec<String>, Vec<String>) {
        let scope = Scope::of(&paths.iter().copied().collect(), &packages());
        assert_eq!(scope.packages.len() + scope.packages_left, packages().len());
        (scope.packages.into_iter().collect(), scope.modules.into_iter().collect())
    }

    #[test]
    fn a_change_reaches_those_that_depend_on_it() {
        for (path, packages, modules) in [
            ("crates/http/src/lib.rs", &["flatout", "flatout-http", "flatout-server"][..], MODULES[10].1),
            ("crates/report/src/lib.rs", &["flatout", "flatout-report"], &["bench", "lab::report", "lab::schema"]),
            // Only the server's tests use it.
            ("crates/sim/src/lib.rs", &["flatout-server", "flatout-sim"], &[]),
            ("src/bench/plan.rs", &["flatout"], &["bench", "cli", "config", "smoke"]),
            ("docs/config.md", &[], &["docs"]),
            ("tests/e2e/http2/floods.rs", &[], &["http2::floods"]),
            ("tests/e2e/http2/oracle.py", &[], &["http2"]),
            ("tests/e2e/accelerator/faults/retries.rs", &[], &["accelerator::faults"]),
            ("tests/e2e/files.rs", &[], &["files"]),
            ("crates/httpish/src/lib.rs", &[], &[]),
        ] {
            let mut modules = modules.to_vec();
            modules.sort_unstable();
            let (found_packages, found_modules) = scope(&[path]);
            assert_eq!((found_packages, found_modules), (own(packages), own(&modules)), "{path}");
        }
        assert_eq!(scope(&["Cargo.lock"]).0.len(), packages().len());
        assert_eq!(scope(&[]), (vec![], vec![]));
    }

    fn own(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn the_table_names_folders_and_modules_that_exist() {
        let tree = Tree::read().unwrap();
        for (folder, modules) in MODULES {
            assert!(tree.has(folder), "{folder}");
            for module in *modules {
                assert!(tree.has(&format!("tests/e2e/{}.rs", module.replace("::", "/"))), "{module} of {folder}");
            }
        }
    }
}
