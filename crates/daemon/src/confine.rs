//! Confinement by Landlock: worker threads may read below the configured roots, write in the folders of pages'
//! databases, and open nothing else.
//!
//! The control thread is not confined: it reads the configuration, certificates and logs, and starts an upgrade. A
//! thread's confinement is permanent, so a reload cannot add folders outside of it.

use flatout_engine::spec::Spec;
use landlock::{
    ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, path_beneath_rules,
};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Files read by name resolution: the resolver's configuration, and the libraries of its modules.
const RESOLVER_FILES: [&str; 8] = [
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/lib",
    "/usr/lib",
];

/// The paths that worker threads may read or write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Confinement {
    paths: BTreeSet<PathBuf>,
    /// Of those, the folders that they may also write.
    written: BTreeSet<PathBuf>,
}

impl Confinement {
    /// All folders that requests may reach, by their canonical paths.
    pub(crate) fn of(spec: &Spec) -> Self {
        // The rule applies to the current folder; a link that changes later leads outside.
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // Threads for name resolution are started by workers, and read the resolver's files.
        let resolver = RESOLVER_FILES.iter().map(Path::new).filter(|path| spec.asks_by_name() && path.exists());
        let written: BTreeSet<PathBuf> = spec.written_folders().map(|path| real(&path)).collect();
        let paths = spec.folders().chain(resolver).map(real).chain(written.iter().cloned()).collect();
        Self { paths, written }
    }

    /// The first path in `wanted` that lies outside.
    pub(crate) fn find_outside<'a>(&self, wanted: &'a Self) -> Option<&'a Path> {
        let is_inside =
            |path: &Path, allowed: &BTreeSet<PathBuf>| allowed.iter().any(|folder| path.starts_with(folder));
        let read = wanted.paths.iter().find(|path| !is_inside(path, &self.paths));
        let written = wanted.written.iter().find(|path| !is_inside(path, &self.written));
        read.or(written).map(PathBuf::as_path)
    }

    /// Confines this thread permanently. Returns whether the kernel supports it.
    ///
    /// # Errors
    /// If the kernel has Landlock but refuses.
    pub(crate) fn enter(&self) -> io::Result<bool> {
        // The latest version known here; the crate omits anything that the kernel does not support.
        const KNOWN: ABI = ABI::V5;
        let confine = || -> Result<RulesetStatus, RulesetError> {
            let reading = AccessFs::ReadFile | AccessFs::ReadDir;
            let rules = Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?.create()?;
            let writing = reading | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
            let rules = rules.add_rules(path_beneath_rules(&self.paths, reading))?;
            Ok(rules.add_rules(path_beneath_rules(&self.written, writing))?.restrict_self()?.ruleset)
        };
        confine().map(|status| status != RulesetStatus::NotEnforced).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::Confinement;
    use std::fs;
    use std::io::{ErrorKind, Write as _};
    use std::path::Path;

    fn confinement(paths: &[&Path]) -> Confinement {
        Confinement { paths: paths.iter().map(|path| path.to_path_buf()).collect(), ..Confinement::default() }
    }

    #[test]
    fn a_folder_contains_what_is_below_it_and_not_its_neighbours() {
        let allowed = confinement(&[Path::new("/srv/www")]);
        for (path, inside) in
            [("/srv/www", true), ("/srv/www/a/b", true), ("/srv/www2", false), ("/srv", false), ("/", false)]
        {
            assert_eq!(allowed.find_outside(&confinement(&[Path::new(path)])).is_none(), inside, "{path}");
        }
    }

    #[test]
    fn a_confined_thread_reads_its_folder_and_nothing_else() {
        const NAME: &str = "confine::tests::a_confined_thread_reads_its_folder_and_nothing_else";
        let folder = std::env::temp_dir().join(format!("flatout-confine-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("page"), b"here").unwrap();
        let allowed = confinement(&[&folder]);
        let thread = std::thread::spawn({
            let folder = folder.clone();
            move || {
                if !allowed.enter().unwrap() {
                    // Written directly: the test harness withholds what `println!` prints in a test that passes.
                    let _ = writeln!(std::io::stderr(), "SKIPPED {NAME}: this kernel has no Landlock");
                    return;
                }
                assert_eq!(fs::read(folder.join("page")).unwrap(), b"here");
                let denied = |result: std::io::Result<()>| result.unwrap_err().kind();
                assert_eq!(denied(fs::read("/etc/passwd").map(|_| ())), ErrorKind::PermissionDenied);
                assert_eq!(denied(fs::write(folder.join("page"), b"")), ErrorKind::PermissionDenied);
            }
        });
        thread.join().unwrap();
        // Other threads are not.
        assert!(fs::read("/etc/passwd").is_ok());
        fs::remove_dir_all(folder).unwrap();
    }
}
