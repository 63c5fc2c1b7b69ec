//! Distribution of the process's descriptors among workers.

use crate::failure::Failure;
use flatout_serve::cache::CacheLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One worker's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Upper bound of its open connections.
    pub(crate) connections_max: usize,
    /// Upper bound of its open files.
    pub(crate) files_max: usize,
}

/// Each worker uses a quarter of its descriptors for open files, at most the cache's own bound. `listeners` is the
/// number of addresses: each worker has a socket for each, and the control thread holds a copy.
pub(crate) fn share_descriptors(limit: u64, worker_count: usize, listeners: usize) -> Shares {
    // Standard streams, logs, signals, and the admin socket with its connections.
    const PROCESS: usize = 16;
    // Each worker's first listener twice, folder, runtime, timer, and temporary files.
    const WORKER: usize = 12;
    // Below that, serving is impossible; the kernel will report errors.
    const CONNECTIONS_MIN: usize = 8;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let worker = WORKER + 2 * listeners.saturating_sub(1);
    let share = (limit.saturating_sub(PROCESS) / worker_count.max(1)).saturating_sub(worker);
    let files_max = (share / 4).clamp(1, CacheLimits::DEFAULT.descriptors_max);
    Shares { connections_max: share.saturating_sub(files_max).max(CONNECTIONS_MIN), files_max }
}

/// Raises the limit of open files to `wanted`, by default as far as the kernel permits, and returns the new limit.
///
/// # Errors
/// If `wanted` exceeds what the kernel permits.
pub(crate) fn raise_open_files(wanted: Option<u64>) -> Result<u64, Failure> {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let wanted = wanted.unwrap_or(hard);
    // Root may raise the hard limit as well, up to fs.nr_open.
    let maximum = if wanted > hard { Some(wanted) } else { limit.maximum };
    let asked = Rlimit { current: Some(wanted).filter(|&wanted| wanted != u64::MAX), maximum };
    // An implicit value is not worth failing for.
    if setrlimit(Resource::Nofile, asked).is_err() && wanted > hard {
        let nr_open = flatout_os::procfs::sysctl("fs.nr_open").unwrap_or_default();
        return Err(Failure::runtime(format!(
            "cannot have {wanted} files open: the hard limit is {hard}, and only root may raise it, up to {nr_open} (fs.nr_open)\n  \
                 try: LimitNOFILE={wanted} in the systemd unit, or ulimit -Hn {wanted} as root before the start"
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
