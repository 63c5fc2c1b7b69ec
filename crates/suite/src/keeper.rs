//! The keeper: a suite runs in a child of the started process, which waits and cleans up.
//!
//! However the child ends, even by a panic or SIGKILL, its descendants become children of the keeper by the kernel's
//! rule for orphans, and the keeper stops them and removes networks and shares. If the keeper is killed, the kernel
//! notifies the child, which then stops in order. Only killing both at once leaves something behind: the next run
//! removes networks with all processes in them, and the next one into the same folder stops the servers that were
//! ready.

use crate::server::group;
use crate::testbed;
use flatout_client::{watch_endings, watch_interrupts};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The variable by which a child knows that its parent is its keeper: the parent's number.
const KEEPER: &str = "FLATOUT_SUITE_KEEPER";

/// Timeout for a stopped child to stop its servers, and for the keeper to stop the rest.
const END_TIMEOUT: Duration = Duration::from_secs(70);

/// Timeout for killed processes to end.
const LEFT_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// True when everything is over, for the signal thread.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Returns whether this process has a keeper. It is then notified when its keeper ends; processes it starts are not
/// the keeper's children, and have none.
pub fn is_kept() -> bool {
    let said = std::env::var(KEEPER).ok().and_then(|text| text.parse::<i32>().ok());
    let is_parent = || getppid().map(Pid::as_raw_pid) == said;
    if said.is_none() || !is_parent() {
        return false;
    }
    // Without kernel support, the keeper's end is not noticed, and the suite continues.
    let _set = set_parent_process_death_signal(Some(Signal::TERM));
    if !is_parent() {
        // It ended before that, without a notification.
        std::process::exit(128 + Signal::TERM.as_raw());
    }
    true
}

/// Runs this program once more as it was called, and waits for it. Returns the exit code.
///
/// # Errors
/// When it cannot be started.
pub fn keep() -> io::Result<u8> {
    group::adopt_orphans();
    let own = std::process::id();
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(KEEPER, own.to_string())
        .spawn()?;
    let told = BTreeSet::from([child.id()]);
    let also_told = told.clone();
    // Ctrl-C in a terminal reaches both; a second notification has no effect.
    watch_interrupts(move |_| group::signal(0, &told, Signal::INT.as_raw()))?;
    watch_endings(move || {
        group::signal(0, &also_told, Signal::TERM.as_raw());
        let begun = Instant::now();
        while !IS_OVER.load(Ordering::Acquire) && begun.elapsed() < END_TIMEOUT {
            std::thread::sleep(LOOK);
        }
    })?;
    let status = child.wait()?;
    end_left();
    if let Some(signal) = status.signal() {
        eprintln!(
            "flatout suite: signal {signal} killed the process that ran it; everything that it had started is stopped"
        );
    }
    for name in testbed::sweep() {
        eprintln!("flatout suite: the network {name} was left over and is removed");
    }
    IS_OVER.store(true, Ordering::Release);
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Ends whatever is left of what the child had started.
fn end_left() {
    let own = std::process::id();
    let begun = Instant::now();
    loop {
        let mut left = group::members_below(own);
        left.remove(&own);
        group::signal(0, &left, Signal::KILL.as_raw());
        group::reap_orphans(&BTreeSet::new());
        if left.is_empty() || begun.elapsed() > LEFT_TIMEOUT {
            return;
        }
        std::thread::sleep(LOOK);
    }
}
