//! The two cores a run uses: the first that we may run on, and the first other that shares nothing with it.

use crate::failure::{Context, Outcome};
use std::fs;

/// Where the server runs and where the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cores {
    pub(super) server: usize,
    pub(super) client: usize,
}

impl Cores {
    /// Two of those that this process may run on.
    pub(super) fn choose() -> Outcome<Self> {
        // What sched_getaffinity would answer, without an unsafe call.
        let status = fs::read_to_string("/proc/self/status").cannot("read /proc/self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let allowed = list.and_then(numbers).cannot("read which cores we may use in /proc/self/status")?;
        Self::among(&allowed, siblings).cannot("give server and client a core each: there is one")
    }

    /// Threads of one core share its units: a client there would slow the server down.
    fn among(allowed: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Option<Self> {
        let server = *allowed.first()?;
        let threads = siblings(server);
        let mut others = allowed.iter().copied().filter(|core| *core != server);
        let apart = others.clone().find(|core| !threads.contains(core));
        Some(Self { server, client: apart.or_else(|| others.next())? })
    }
}

fn siblings(core: usize) -> Vec<usize> {
    let list = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"));
    // A machine that does not say is taken to have none.
    list.ok().as_deref().and_then(numbers).unwrap_or_default()
}

/// Reads the kernel's lists: `0-2,5`.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        found.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(numbers("\t0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(numbers("none"), None);
    }

    #[test]
    fn threads_of_one_core_are_used_only_when_there_is_nothing_else() {
        let pairs = |core| if core < 2 { vec![0, 1] } else { vec![2, 3] };
        assert_eq!(Cores::among(&[0, 1, 2, 3], pairs), Some(Cores { server: 0, client: 2 }));
        assert_eq!(Cores::among(&[0, 1], pairs), Some(Cores { server: 0, client: 1 }));
        assert_eq!(Cores::among(&[4, 7], |_| Vec::new()), Some(Cores { server: 4, client: 7 }));
        assert_eq!(Cores::among(&[3], pairs), None);
    }
}
