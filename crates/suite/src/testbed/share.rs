//! CPU quotas for servers. They simulate a small machine, which a single client can overload several times over.
//!
//! The quota is that of a cgroup, of version 1 or 2, whichever this machine supports.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Run time per period in microseconds: the shortest that the kernel accepts. The shorter it is, the less the bursts in
/// which servers run can be noticed.
const TURN_US: f64 = 1_000.0;

/// Timeout for the kernel to remove processes that have exited.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(2);

/// A cgroup, which is removed when the value is dropped.
#[derive(Debug)]
pub struct ControlGroup {
    folder: PathBuf,
}

/// Returns what is wrong with a quota, if anything.
pub fn fault(text: &str) -> Option<String> {
    let fits = text.parse().is_ok_and(|share: f64| (0.001..=1.0).contains(&share));
    (!fits).then(|| format!("{text:?} is not a share of a core: write 0.001 to 1"))
}

impl ControlGroup {
    /// Creates a cgroup whose processes may use this share of a core.
    ///
    /// # Errors
    /// Returns the reason this machine does not support it.
    pub fn make(name: &str, share: &str) -> Result<Self, String> {
        let share: f64 = share.parse().map_err(|_| format!("{share:?} is not a number"))?;
        let period_us = (TURN_US / share).round();
        let mut said = "no cgroup file system is mounted".to_owned();
        for root in roots() {
            let share = Self { folder: root.path.join(name) };
            match share.fill(&root, period_us) {
                Ok(()) => return Ok(share),
                Err(error) => said = format!("{}: {error}", share.folder.display()),
            }
        }
        Err(format!("the servers' CPU share cannot be limited: {said}"))
    }

    fn fill(&self, root: &Root, period_us: f64) -> std::io::Result<()> {
        if root.is_unified {
            // This has no effect if the controller is already enabled.
            let _switched = fs::write(root.path.join("cgroup.subtree_control"), "+cpu");
        }
        fs::create_dir(&self.folder)?;
        if root.is_unified {
            return fs::write(self.folder.join("cpu.max"), format!("{TURN_US} {period_us}"));
        }
        fs::write(self.folder.join("cpu.cfs_period_us"), period_us.to_string())?;
        fs::write(self.folder.join("cpu.cfs_quota_us"), TURN_US.to_string())
    }

    /// Returns the words before a command that start it within the cgroup.
    pub fn words(&self) -> Vec<String> {
        let processes = self.folder.join("cgroup.procs").display().to_string();
        ["/bin/sh", "-c", "echo $$ > \"$0\" && exec \"$@\"", &processes].map(str::to_owned).to_vec()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// A folder in which cgroups with a quota can be created.
struct Root {
    path: PathBuf,
    is_unified: bool,
}

fn roots() -> Vec<Root> {
    roots_of(&fs::read_to_string("/proc/self/mounts").unwrap_or_default())
}

fn roots_of(mounts: &str) -> Vec<Root> {
    let of = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let is_unified = kind == "cgroup2";
        let is_one = is_unified || (kind == "cgroup" && options.split(',').any(|option| option == "cpu"));
        is_one.then(|| Root { path: PathBuf::from(path), is_unified })
    };
    mounts.lines().filter_map(of).collect()
}

/// Removes the cgroups of processes that have exited. Returns their names.
pub(super) fn sweep(is_orphan: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut removed = Vec::new();
    for root in roots() {
        for entry in fs::read_dir(&root.path).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if is_orphan(&name) {
                remove(&entry.path());
                removed.push(name);
            }
        }
    }
    removed
}

/// Removes a cgroup, with all processes that still run in it.
fn remove(folder: &Path) {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let processes: BTreeSet<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        crate::server::group::signal(0, &processes, 9);
        // The kernel refuses this while the cgroup contains a process.
        let is_gone = fs::remove_dir(folder).is_ok() || !folder.exists();
        if is_gone || begun.elapsed() > EMPTY_TIMEOUT {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::{fault, roots_of};

    #[test]
    fn shares_are_of_one_core() {
        assert!(["0.04", "1", "0.001"].iter().all(|text| fault(text).is_none()));
        assert!(["0", "1.5", "-1", "NaN", "4%", ""].iter().all(|text| fault(text).is_some()));
    }

    #[test]
    fn both_kinds_of_control_groups_are_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup2 /u cgroup2 rw,nsdelegate 0 0\nx";
        let found: Vec<(String, bool)> =
            roots_of(mounts).into_iter().map(|root| (root.path.display().to_string(), root.is_unified)).collect();
        assert_eq!(found, [("/sys/fs/cgroup/cpu,cpuacct".to_owned(), false), ("/u".to_owned(), true)]);
    }
}
