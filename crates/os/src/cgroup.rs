//! The limits that the kernel sets for this process's cgroup, and its memory limit in particular.

use crate::procfs::read_memory_total;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder in which Linux mounts cgroups.
const ROOT: &str = "/sys/fs/cgroup";

/// Maximum number of path components examined; the kernel allows deeper hierarchies.
const DEPTH_MAX: usize = 64;

/// A setting of a cgroup controller.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The controller's name, such as `cpu` or `memory`.
    pub controller: &'a str,
    /// Name of the setting's file in cgroup v2.
    pub second: &'a str,
    /// Name of the setting's file in cgroup v1.
    pub first: &'a str,
    /// The mount folders of the controller in cgroup v1.
    pub first_folders: &'a [&'a str],
}

/// The files that may hold `setting` for this process: [`files`] for the content of `/proc/self/cgroup`.
pub fn own_files(setting: &Setting<'_>) -> Vec<PathBuf> {
    files(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default(), setting)
}

/// The files that may hold `setting` for a process: those of the process's cgroup first, then those of each ancestor.
/// `own` is the content of `/proc/PID/cgroup`: `0::/path` for v2, `4:cpu,cpuacct:/path` for v1.
pub fn files(own: &str, setting: &Setting<'_>) -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let mut files = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let of_first = controllers.split(',').any(|controller| controller == setting.controller);
        let (folders, name): (&[&str], _) = match (controllers, of_first) {
            // In hybrid mode, v2 is mounted in a folder next to the v1 controllers.
            ("", _) => (&["", "unified"], setting.second),
            (_, true) => (setting.first_folders, setting.first),
            (_, false) => continue,
        };
        for folder in folders {
            let own = Path::new(path.trim_start_matches('/'));
            // In a container, the path is the one on the host, but the container's own cgroup is mounted as the root.
            files.extend(own.ancestors().take(DEPTH_MAX).map(|group| root.join(folder).join(group).join(name)));
        }
    }
    files
}

/// The memory limit of a cgroup, in bytes.
const MEMORY: Setting<'_> =
    Setting { controller: "memory", second: "memory.max", first: "memory.limit_in_bytes", first_folders: &["memory"] };

/// Smallest value, in bytes, that means "no limit": cgroup v1 reports "no limit" as a number near 2^63.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// The limit of this process's memory, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The limit of the process's cgroup or of an ancestor, in bytes.
    Cgroup(u64),
    /// The machine's memory, in bytes; no cgroup has a lower limit.
    Machine(u64),
}

impl MemoryLimit {
    /// Reads the lowest limit. Returns `None` if neither a cgroup nor the kernel reports one.
    pub fn read() -> Option<Self> {
        let texts = own_files(&MEMORY).into_iter().filter_map(|file| fs::read_to_string(file).ok());
        Self::least(texts.filter_map(|text| parse_limit(&text)), read_memory_total())
    }

    fn least(cgroups: impl Iterator<Item = u64>, machine: Option<u64>) -> Option<Self> {
        let cgroup = cgroups.min().filter(|cgroup| machine.is_none_or(|machine| *cgroup < machine));
        cgroup.map(Self::Cgroup).or(machine.map(Self::Machine))
    }

    /// The limit in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Cgroup(bytes) | Self::Machine(bytes) => bytes,
        }
    }
}

/// Parses a limit in bytes. Returns `None` for `max` and for numbers near 2^63.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED_BYTES)
}

#[cfg(test)]
mod tests {
    use super::{MEMORY, MemoryLimit, files, parse_limit};

    #[test]
    fn limits_of_parent_cgroups_apply_in_both_versions() {
        let names = |own: &str| -> Vec<String> {
            files(own, &MEMORY).into_iter().map(|file| file.to_string_lossy().into_owned()).collect()
        };
        let second = names("0::/a.slice/b.scope\n");
        for file in ["a.slice/b.scope/memory.max", "a.slice/memory.max", "memory.max"] {
            assert!(second.contains(&format!("/sys/fs/cgroup/{file}")), "{second:?}");
        }
        let first = names("5:memory:/x:y\n4:cpu,cpuacct:/x\n1:name=systemd:/x\n");
        let expected =
            ["/sys/fs/cgroup/memory/x:y/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
        assert_eq!(first, expected);
        assert!(names("nonsense\n0:\n").is_empty());
    }

    #[test]
    fn the_lowest_limit_applies_and_max_means_none() {
        assert_eq!(parse_limit("536870912\n"), Some(512 << 20));
        assert!(["max\n", "9223372036854771712\n", "", "-1"].iter().all(|text| parse_limit(text).is_none()));
        let least = |cgroups: &[u64], machine| MemoryLimit::least(cgroups.iter().copied(), machine);
        assert_eq!(least(&[900, 500], Some(700)), Some(MemoryLimit::Cgroup(500)));
        assert_eq!(least(&[900], Some(700)), Some(MemoryLimit::Machine(700)));
        assert_eq!(least(&[900], None), Some(MemoryLimit::Cgroup(900)));
        assert_eq!((least(&[], Some(7)), least(&[], None)), (Some(MemoryLimit::Machine(7)), None));
    }
}
