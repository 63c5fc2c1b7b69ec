//! The memory budget for content: the configured budget, within the kernel's limit.

use crate::failure::Failure;
use flatout_config::model::StoreBudget;
use flatout_os::cgroup::MemoryLimit;
use flatout_units::quantity::exact_size;
use std::sync::OnceLock;

/// The default budget is the limit divided by this number.
const PART: u64 = 4;

/// Returns the kernel's memory limit for this process, as of the first call, because a confined process cannot read it.
pub(crate) fn memory_limit() -> Option<MemoryLimit> {
    static LIMIT: OnceLock<Option<MemoryLimit>> = OnceLock::new();
    *LIMIT.get_or_init(MemoryLimit::read)
}

/// Returns the default budget in bytes: a quarter of the cgroup's limit, if there is one. Otherwise, the built-in
/// default, but at most a quarter of the machine's memory.
pub(crate) fn default_bytes(limit: Option<MemoryLimit>) -> u64 {
    match limit {
        Some(MemoryLimit::Cgroup(bytes)) => bytes / PART,
        Some(MemoryLimit::Machine(bytes)) => StoreBudget::MEMORY_BYTES_DEFAULT.min(bytes / PART),
        None => StoreBudget::MEMORY_BYTES_DEFAULT,
    }
}

/// Returns the budget for the configured size `asked`, and a message if the budget depends on a cgroup.
///
/// # Errors
/// If `asked` exceeds `limit`, because the kernel would kill the process before the budget is used up.
pub(crate) fn decide_budget(asked: Option<u64>, limit: Option<MemoryLimit>) -> Result<(u64, Option<String>), Failure> {
    let Some(asked) = asked else {
        let bytes = default_bytes(limit);
        let note = match limit {
            Some(MemoryLimit::Cgroup(limit)) => Some(format!(
                "note: the cache may use {} of memory, a quarter of the cgroup's limit of {}",
                exact_size(bytes),
                exact_size(limit)
            )),
            _ => None,
        };
        return Ok((bytes, note));
    };
    match limit.filter(|limit| asked > limit.bytes()) {
        None => Ok((asked, None)),
        Some(limit) => {
            let whose = match limit {
                MemoryLimit::Cgroup(_) => "the limit of its cgroup is",
                MemoryLimit::Machine(_) => "this machine has",
            };
            let (asked, allowed) = (exact_size(asked), exact_size(limit.bytes()));
            let quarter = exact_size(limit.bytes() / PART);
            Err(Failure::usage(format!(
                "the cache may use {asked} of memory, but {whose} {allowed}\n  try: --memory {quarter}, or `store memory=\"{quarter}\"` in the configuration"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{decide_budget, default_bytes};
    use flatout_os::cgroup::MemoryLimit;

    #[test]
    fn the_default_follows_the_cgroup_and_says_so() {
        let (bytes, note) = decide_budget(None, Some(MemoryLimit::Cgroup(512 << 20))).unwrap();
        assert_eq!(bytes, 128 << 20);
        let note = note.unwrap();
        assert!(note.contains("128MiB") && note.contains("512MiB"), "{note}");
        assert_eq!(decide_budget(None, Some(MemoryLimit::Machine(64 << 30))).unwrap(), (256 << 20, None));
        assert_eq!(default_bytes(Some(MemoryLimit::Machine(512 << 20))), 128 << 20);
        assert_eq!(default_bytes(None), 256 << 20);
    }

    #[test]
    fn a_budget_above_the_limit_is_an_error_that_names_both() {
        let error = decide_budget(Some(2 << 30), Some(MemoryLimit::Cgroup(1 << 30))).unwrap_err();
        assert!(error.text.contains("2GiB") && error.text.contains("1GiB"), "{}", error.text);
        assert_eq!(decide_budget(Some(1 << 30), Some(MemoryLimit::Cgroup(1 << 30))).unwrap(), (1 << 30, None));
        assert!(decide_budget(Some(2 << 30), Some(MemoryLimit::Machine(1 << 30))).is_err());
    }
}
