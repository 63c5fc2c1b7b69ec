//! Tests that cannot run on this machine are skipped by name, with a reason.

use std::io::Write as _;

/// If set, a test that would be skipped fails.
const NO_SKIP: &str = "FLATOUT_NO_SKIP";

/// Reports that the rest of the current test cannot run here; the test then returns.
///
/// # Panics
/// If the environment has FLATOUT_NO_SKIP.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os(NO_SKIP).is_none(), "{NO_SKIP} is set and this test cannot run here: {reason}");
    let thread = std::thread::current();
    // Written directly, because the test harness captures the output of `eprintln!` in passing tests.
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {reason}", thread.name().unwrap_or("a test"));
}
