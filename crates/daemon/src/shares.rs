//! Distribution of the process's descriptors among the workers.

use crate::failure::Failure;
use flatout_serve::cache::CacheLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One worker's share of the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Maximum number of open connections.
    pub(crate) connections_max: usize,
    /// Maximum number of open files.
    pub(crate) files_max: usize,
}

/// Computes each worker's share of `limit` descriptors. A quarter of a share is for open files, but not more than the
/// default limit of the file cache. `listeners` is the number of addresses: each worker has a socket for each address,
/// and the control thread has a copy of it.
pub(crate) fn share_descriptors(limit: u64, worker_count: usize, listeners: usize) -> Shares {
    // For the standard streams, logs, signals, and the admin socket with its connections.
    const PROCESS: usize = 16;
    // For the socket of each worker's first listener and its copy, a folder, the runtime, the timer, and temporary
    // files.
    const WORKER: usize = 12;
    // With fewer descriptors, serving is impossible; the kernel will then report errors.
    const CONNECTIONS_MIN: usize = 8;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let worker = WORKER + 2 * listeners.saturating_sub(1);
    let share = (limit.saturating_sub(PROCESS) / worker_count.max(1)).saturating_sub(worker);
    let files_max = (share / 4).clamp(1, CacheLimits::DEFAULT.descriptors_max);
    Shares { connections_max: share.saturating_sub(files_max).max(CONNECTIONS_MIN), files_max }
}

/// Raises the limit of open files to `wanted`, or by default as far as the kernel permits. Returns the new limit.
///
/// # Errors
/// If `wanted` exceeds what the kernel permits.
pub(crate) fn raise_open_files(wanted: Option<u64>) -> Result<u64, Failure> {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let wanted = wanted.unwrap_or(hard);
    // Root may also raise the hard limit, up to fs.nr_open.
    let maximum = if wanted > hard { Some(wanted) } else { limit.maximum };
    let asked = Rlimit { current: Some(wanted).filter(|&wanted| wanted != u64::MAX), maximum };
    // If no value is configured, a failure is ignored.
    if setrlimit(Resource::Nofile, asked).is_err() && wanted > hard {
        let nr_open = flatout_os::procfs::sysctl("fs.nr_open").unwrap_or_default();
        return Err(Failure::runtime(format!(
            "cannot keep {wanted} files open: the hard limit is {hard}, and only root can raise it, up to {nr_open} \
                 (fs.nr_open)\n  try: LimitNOFILE={wanted} in the systemd unit, or ulimit -Hn {wanted} as root before \
                 starting flatout"
        )));
    }
    Ok(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::share_descriptors;

    #[test]
    fn descriptors_are_shared_out() {
        for (limit, workers, connections_max, files_max) in [
            (64, 1, 27, 9),
            (1024, 1, 747, 249),
            (1024, 4, 180, 60),
            (1_048_576, 2, 523_756, 512),
            (u64::MAX, 1, usize::MAX - 540, 512),
            (10, 8, 8, 1),
        ] {
            let shares = share_descriptors(limit, workers, 1);
            assert_eq!((shares.connections_max, shares.files_max), (connections_max, files_max), "{limit} {workers}");
        }
        assert!(share_descriptors(1024, 1, 50).connections_max < share_descriptors(1024, 1, 1).connections_max);
    }
}
