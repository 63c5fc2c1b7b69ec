//! The keeper, a supervisor process. The process that the user started is the keeper: it runs the suite in a child
//! process, waits for it, and cleans up.
//!
//! However the child ends, even by a panic or SIGKILL, the kernel makes its descendants children of the keeper. The
//! keeper stops them, and removes networks and cgroups. If the keeper is killed, the kernel notifies the child, which
//! then shuts down cleanly. Only if both are killed at once does anything remain: the next run removes the networks
//! with all processes in them, and the next run with the same output folder stops the servers that had become ready.

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

/// The environment variable that tells a child that its parent is its keeper. Its value is the parent's process ID.
const KEEPER: &str = "FLATOUT_SUITE_KEEPER";

/// Timeout for an interrupted child to stop its servers. After that, the keeper stops the remaining processes.
const END_TIMEOUT: Duration = Duration::from_secs(70);

/// Timeout for killed processes to exit.
const LEFT_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which the keeper checks for remaining processes.
const LOOK: Duration = Duration::from_millis(10);

/// True when everything has ended. Read by the signal thread.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Returns whether this process has a keeper. If so, requests a notification for when the keeper exits. Processes that
/// this process starts are not children of the keeper, and have no keeper.
pub fn is_kept() -> bool {
    let said = std::env::var(KEEPER).ok().and_then(|text| text.parse::<i32>().ok());
    let is_parent = || getppid().map(Pid::as_raw_pid) == said;
    if said.is_none() || !is_parent() {
        return false;
    }
    // Without kernel support, the suite continues when the keeper exits.
    let _set = set_parent_process_death_signal(Some(Signal::TERM));
    if !is_parent() {
        // The keeper exited before the notification was requested.
        std::process::exit(128 + Signal::TERM.as_raw());
    }
    true
}

/// Runs this program again as a child, with the same arguments, and waits for it. Returns the exit code.
///
/// # Errors
/// Fails if the child cannot be started.
pub fn keep() -> io::Result<u8> {
    group::adopt_orphans();
    let own = std::process::id();
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(KEEPER, own.to_string())
        .spawn()?;
    let told = BTreeSet::from([child.id()]);
    let also_told = told.clone();
    // Ctrl-C in a terminal reaches both processes. A second signal has no effect.
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
            "flatout suite: signal {signal} killed the process that ran the suite; all processes that it had started were stopped"
        );
    }
    for name in testbed::sweep() {
        eprintln!("flatout suite: removed the leftover network {name}");
    }
    IS_OVER.store(true, Ordering::Release);
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Stops all processes that the child has left running.
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
