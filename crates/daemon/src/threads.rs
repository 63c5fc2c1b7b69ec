//! Explanations of why the kernel cannot start another thread, with advice on raising the limit.

use flatout_os::cgroup::{Setting, own_files};
use flatout_os::procfs::read_process_status;
use flatout_units::quantity::exact_size;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, getuid};
use std::fs;
use std::io;
use std::path::Path;

/// The cgroup setting that limits the number of processes and threads.
const PIDS: Setting<'_> =
    Setting { controller: "pids", second: "pids.max", first: "pids.max", first_folders: &["pids"] };

/// Address space that a thread needs, mostly for its stack, in bytes.
const THREAD_BYTES: u64 = 4 * 1024 * 1024;

/// Limits on the number of threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ThreadLimits {
    /// The user ID.
    user: u32,
    /// The task limit of the cgroup that has reached it: the cgroup of this process, or a parent.
    cgroup: Option<u64>,
    /// The limit of the address space (RLIMIT_AS) and its current size, in bytes.
    address_space: Option<(u64, u64)>,
    /// The limit on this user's processes and threads (RLIMIT_NPROC).
    processes: Option<u64>,
}

/// Returns the limit of the address space and its current size, in bytes, or `None` if there is no limit.
fn address_space() -> Option<(u64, u64)> {
    let max = getrlimit(Resource::As).current?;
    let status = read_process_status(std::process::id()).ok()?;
    Some((max, status.address_space_bytes))
}

/// Returns whether a thread would use up the address space.
const fn has_no_room((max, used): (u64, u64)) -> bool {
    used.saturating_add(THREAD_BYTES) > max
}

/// Checks that the address space has room for another thread and what it allocates. The kernel would create a thread
/// that uses up the address space, and the next allocation of any thread would then abort the process.
///
/// # Errors
/// ENOMEM, if there is no room.
pub(crate) fn check_address_space() -> io::Result<()> {
    if address_space().is_some_and(has_no_room) { Err(Errno::NOMEM.into()) } else { Ok(()) }
}

impl ThreadLimits {
    fn read() -> Self {
        Self {
            user: getuid().as_raw(),
            cgroup: own_files(&PIDS).iter().find_map(|file| reached(file)),
            address_space: address_space(),
            processes: getrlimit(Resource::Nproc).current,
        }
    }

    /// Returns a description of the limit that was reached, and the suggested remedy.
    fn explain(&self) -> (String, &'static str) {
        if let Some(max) = self.cgroup {
            let limit = format!("the cgroup's task limit of {max} is reached (pids.max)");
            return (
                limit,
                "fewer `workers`, or a higher limit: TasksMax= in a systemd unit, --pids-limit for a container",
            );
        }
        if let Some((max, _)) = self.address_space.filter(|space| has_no_room(*space)) {
            let limit =
                format!("the address space is limited to {} (ulimit -v), and a thread needs more", exact_size(max));
            return (limit, "fewer `workers`, or a higher limit: ulimit -v unlimited, LimitAS= in a systemd unit");
        }
        if let Some(max) = self.processes {
            let limit = format!("user {} may have at most {max} processes and threads (ulimit -u)", self.user);
            return (limit, "fewer `workers`, or a higher limit: ulimit -u, LimitNPROC= in a systemd unit");
        }
        let limit =
            "the kernel cannot create another thread: memory, kernel.threads-max or vm.max_map_count is exhausted"
                .to_owned();
        (
            limit,
            "fewer `workers`, or a higher limit: sysctl kernel.threads-max vm.max_map_count shows two of the limits",
        )
    }
}

/// Returns the limit in `file` if it has been reached.
fn reached(file: &Path) -> Option<u64> {
    let number = |file: &Path| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let max = number(file)?;
    number(&file.with_file_name("pids.current")).filter(|current| *current >= max).map(|_| max)
}

/// Returns the message for a thread that could not be started. `what` names the thread.
pub(crate) fn explain_failure(what: &str, error: &io::Error) -> String {
    let (limit, remedy) = ThreadLimits::read().explain();
    format!("cannot start {what}: {error}\n  {limit}\n  try: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::{ThreadLimits, reached};
    use std::fs;

    #[test]
    fn the_limit_that_was_reached_is_named() {
        let limits = ThreadLimits {
            user: 33,
            cgroup: Some(20),
            address_space: Some((1 << 30, (1 << 30) - 4096)),
            processes: Some(64),
        };
        let said = |limits: &ThreadLimits| limits.explain().0;
        assert_eq!(said(&limits), "the cgroup's task limit of 20 is reached (pids.max)");
        let limits = ThreadLimits { cgroup: None, ..limits };
        assert!(said(&limits).starts_with("the address space is limited to 1GiB (ulimit -v)"), "{}", said(&limits));
        let limits = ThreadLimits { address_space: Some((1 << 30, 4096)), ..limits };
        assert_eq!(said(&limits), "user 33 may have at most 64 processes and threads (ulimit -u)");
        assert!(said(&ThreadLimits::default()).contains("kernel.threads-max"));
    }

    #[test]
    fn a_cgroup_counts_when_it_is_full() {
        let folder = std::env::temp_dir().join(format!("flatout-threads-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let max = folder.join("pids.max");
        for (limit, current, expected) in [("20\n", "20\n", Some(20)), ("20\n", "19\n", None), ("max\n", "20\n", None)]
        {
            fs::write(&max, limit).unwrap();
            fs::write(folder.join("pids.current"), current).unwrap();
            assert_eq!(reached(&max), expected, "{limit} {current}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
