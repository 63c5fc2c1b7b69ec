//! The life of the process: start, reload, upgrade, drain, and what operators ask it.
//!
//! The main thread is the control thread: it serves nobody, and so can do what takes time. It opens everything, starts
//! the workers, and then waits for signals, for the admin socket, and for workers that end.
//!
//! | file | what it knows |
//! |---|---|
//! | [`source`] | where the configuration comes from |
//! | `start` | from a configuration to running workers, in the order that privileges allow |
//! | `control` | waiting, and who is told what |
//! | `reload` | from one configuration to the next, wholly or not at all |
//! | `upgrade`, `inherit` | handing over to a new process, and being one |
//! | `listeners`, `arrange` | sockets by address; numbers that stay |
//! | `workers`, `bell` | threads, what they are told, and how their ends are known |
//! | [`admin`], [`status`], `metrics` | what operators ask and are told |
//! | `certificates`, `authority` | what https shows, and our own certificate authority |
//! | `watch` | changes of files, as the kernel tells them |
//! | `confine`, `privileges`, `shares`, `threads` | what the process may do |
//! | `supervisor` | systemd |
//! | `accelerate` | the store opened, and shown to operators |
//! | [`purge`], [`cache`], [`store`] | what operators ask of the store that holds origins' answers |
//! | `logs`, `spec` | the configuration's logs, its sites put to use |
//! | [`here`] | what a configuration needs of this machine |
//! | [`failure`] | what went wrong, and the exit code |
//!
//! Absent by design: requests. No connection is touched here.

mod accelerate;
pub mod admin;
mod arrange;
mod authority;
mod banner;
mod bell;
pub mod cache;
mod certificates;
mod confine;
mod control;
pub mod failure;
pub mod here;
mod inherit;
mod listeners;
mod logs;
mod memory;
mod metrics;
mod prepare;
mod privileges;
pub mod purge;
mod reload;
mod shares;
pub mod source;
mod spec;
mod start;
pub mod status;
pub mod store;
mod supervisor;
mod threads;
mod upgrade;
mod watch;
mod workers;

pub use failure::Failure;
pub use source::Source;

use flatout_config::Style;
use std::process::ExitCode;

/// What the process is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the configuration comes from.
    pub source: Source,
    /// How diagnostics look.
    pub style: Style,
    /// Whether the process must not run without its admin socket.
    pub needs_admin: bool,
}

/// Serves until it is told to stop, and says how that ended.
pub fn run(options: Options) -> ExitCode {
    match start::start(options).and_then(control::Control::run) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
