//! CPU quotas of the cgroup of this process.
//!
//! A quota limits the CPU time per period, which is usually 100 ms. A cgroup that has used up its quota is throttled
//! until the next period. Busy polling would use up the quota.

use flatout_os::cgroup::{Setting, own_files};
use std::fs;
use std::path::PathBuf;

/// Returns whether the cgroup of this process, or one of its ancestors, has a quota; false if that cannot be read.
pub fn has_quota() -> bool {
    quotas().next().is_some()
}

/// Returns the files with the quotas that apply to this process.
fn quotas() -> impl Iterator<Item = PathBuf> {
    own_files(&QUOTA).into_iter().filter(|file| fs::read_to_string(file).is_ok_and(|text| is_quota(&text)))
}

/// Throttling counts for each quota that applies to this process, innermost cgroup first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack(Vec<Periods>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Periods {
    /// Number of periods in which the cgroup had runnable tasks.
    periods: u64,
    /// Number of periods in which the cgroup used up its quota.
    throttled: u64,
}

impl HeldBack {
    /// Reads `cpu.stat` for each quota. Returns `None` without a quota.
    pub fn read() -> Option<Self> {
        let read = |quota: PathBuf| parse(&fs::read_to_string(quota.with_file_name("cpu.stat")).ok()?);
        let all: Vec<Periods> = quotas().filter_map(read).collect();
        (!all.is_empty()).then_some(Self(all))
    }

    /// Returns the share of the periods since `before` that were throttled by the most restrictive quota, 0 to 1.
    pub fn share_since(&self, before: &Self) -> f64 {
        let shares = self.0.iter().zip(&before.0).map(|(now, before)| now.share_since(*before));
        shares.fold(0.0, f64::max)
    }
}

impl Periods {
    fn share_since(self, before: Self) -> f64 {
        let periods = self.periods.saturating_sub(before.periods).max(1);
        self.throttled.saturating_sub(before.throttled).min(periods) as f64 / periods as f64
    }
}

/// Parses the lines `nr_periods 30` and `nr_throttled 2`, which exist in both cgroup versions.
fn parse(text: &str) -> Option<Periods> {
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(Periods { periods: of("nr_periods ")?, throttled: of("nr_throttled ")? })
}

/// The cgroup setting of the CPU quota.
const QUOTA: Setting<'_> =
    Setting { controller: "cpu", second: "cpu.max", first: "cpu.cfs_quota_us", first_folders: &["cpu", "cpu,cpuacct"] };

/// Returns whether a string is a quota: `5000 100000` and `5000` are, `max 100000` and `-1` are not.
fn is_quota(text: &str) -> bool {
    text.split_ascii_whitespace().next().and_then(|quota| quota.parse::<i64>().ok()).is_some_and(|quota| quota >= 0)
}

#[cfg(test)]
mod tests {
    use super::{HeldBack, Periods, QUOTA, is_quota, parse};
    use flatout_os::cgroup::files;

    #[test]
    fn a_quota_is_looked_for_from_the_own_group_up() {
        let names = |own: &str| -> Vec<String> {
            files(own, &QUOTA).into_iter().map(|file| file.to_string_lossy().into_owned()).collect()
        };
        let second = names("0::/a.slice/b.scope\n");
        for file in ["a.slice/b.scope/cpu.max", "a.slice/cpu.max", "cpu.max"] {
            assert!(second.contains(&format!("/sys/fs/cgroup/{file}")), "{second:?}");
        }
        let first = names("5:memory:/x\n4:cpu,cpuacct:/x:y\n1:name=systemd:/x\n");
        assert!(first.contains(&"/sys/fs/cgroup/cpu/x:y/cpu.cfs_quota_us".to_owned()), "{first:?}");
        assert!(first.iter().all(|file| !file.contains("memory") && !file.contains("cpu.max")), "{first:?}");
        assert!(names("").is_empty() && names("nonsense\n0:\n").is_empty());
    }

    #[test]
    fn being_held_back_is_a_share_of_the_periods_between_two_looks() {
        let at = |periods: u64, throttled: u64| {
            parse(&format!("usage_usec 7\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_time 9\n")).unwrap()
        };
        let percent = |now: Periods, before| (100.0 * now.share_since(before)).round() as u32;
        assert_eq!(percent(at(30, 28), at(10, 10)), 90);
        // The outer of the two quotas is the more restrictive one.
        let (before, now) = (HeldBack(vec![at(0, 0), at(0, 0)]), HeldBack(vec![at(50, 1), at(40, 30)]));
        assert_eq!((100.0 * now.share_since(&before)).round() as u32, 75);
        assert_eq!((percent(at(10, 0), at(10, 0)), percent(at(0, 0), at(9, 9))), (0, 0));
        assert_eq!((parse(""), parse("nr_periods x\nnr_throttled 1\n")), (None::<Periods>, None));
    }

    #[test]
    fn quotas_are_told_from_none() {
        for (text, expected) in [
            ("max 100000\n", false),
            ("5000 100000\n", true),
            ("-1\n", false),
            ("5000\n", true),
            ("", false),
            ("x", false),
        ] {
            assert_eq!(is_quota(text), expected, "{text:?}");
        }
    }
}
