//! Cgroups for tests. If the user may not create one, the test is skipped.

use crate::e2e::skip::skip;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A group that is removed when dropped.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a group whose processes get this many milliseconds of CPU time per 100 ms.
    pub(crate) fn with_cpu_quota(name: &str, quota_ms: u32) -> Option<Self> {
        let quota_us = (1_000 * quota_ms).to_string();
        let first = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", quota_us.as_str())];
        Self::create(name, "cpu", &first, &[("cpu.max", &format!("{quota_us} 100000"))])
    }

    /// Creates a group whose processes get this many bytes of memory together.
    pub(crate) fn with_memory(name: &str, bytes: u64) -> Option<Self> {
        let bytes = bytes.to_string();
        Self::create(name, "memory", &[("memory.limit_in_bytes", &bytes)], &[("memory.max", &bytes)])
    }

    /// Creates a group with the settings `first` if cgroup v1 has the controller, otherwise with `second`.
    fn create(name: &str, controller: &str, first: &[(&str, &str)], second: &[(&str, &str)]) -> Option<Self> {
        let name = format!("flatout-{name}-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let (parent, settings) =
            if root.join(controller).is_dir() { (root.join(controller), first) } else { (root.to_owned(), second) };
        let group = fs::create_dir(parent.join(&name)).is_ok().then(|| Self(parent.join(&name)));
        let group =
            group.filter(|group| settings.iter().all(|(file, value)| fs::write(group.0.join(file), value).is_ok()));
        if group.is_none() {
            skip(&format!("this user may not create a cgroup with a limit of {controller}"));
        }
        group
    }

    /// Moves a process into the group.
    pub(crate) fn take(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// A command that runs its program in the group from the start.
    pub(crate) fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new("sh");
        let procs = self.0.join("cgroup.procs");
        command.arg("-c").arg("echo $$ > \"$0\" && exec \"$@\"").arg(procs).arg(program);
        command.env("RUST_BACKTRACE", "0");
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The processes have exited, or are about to.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}
