//! The life of the process: start, reload, upgrade, drain, and the admin interface.
//!
//! The main thread is the control thread: it handles no requests, and so may block. It opens everything, starts the
//! workers, and then waits for signals, for the admin socket, and for workers that end.
//!
//! | file | content |
//! |---|---|
//! | [`source`] | the source of the configuration |
//! | `start` | from a configuration to running workers, in the order that privileges require |
//! | `control` | the event loop of the control thread |
//! | `reload` | the atomic switch to a new configuration |
//! | `upgrade`, `inherit` | handing over to a new process, and taking over |
//! | `listeners`, `arrange` | sockets by address; stable listener numbers |
//! | `workers`, `event_sender` | worker threads, their commands, and events |
//! | [`admin`], [`status`], `metrics` | the admin socket, status and metrics |
//! | `certificates`, `authority` | TLS certificates, and the local certificate authority |
//! | `watch` | file changes reported by the kernel |
//! | `confine`, `privileges`, `shares`, `threads` | confinement, privileges and resource limits |
//! | `supervisor` | systemd |
//! | `accelerate` | opening the store, and the operators' view of it |
//! | [`purge`], [`cache`], [`store`] | operators' queries to the store of origin responses |
//! | `logs`, `spec` | the configuration's logs, and its compiled sites |
//! | [`here`] | checks of a configuration against this machine |
//! | [`failure`] | failures, and exit codes |
//!
//! Absent by design: requests. No connection is handled here.

mod accelerate;
pub mod admin;
mod arrange;
mod authority;
mod banner;
pub mod cache;
mod certificates;
mod confine;
mod control;
mod events;
pub mod failure;
pub mod here;
mod inherit;
mod listeners;
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
pub use source::ConfigSource;

use flatout_config::Style;
use std::process::ExitCode;

/// Options of the process.
#[derive(Clone, Debug)]
pub struct Options {
    /// The source of the configuration.
    pub source: ConfigSource,
    /// The style of diagnostics.
    pub style: Style,
    /// True if the process must not run without its admin socket.
    pub needs_admin: bool,
}

/// Serves until stopped, and returns the exit code.
pub fn run(options: Options) -> ExitCode {
    match start::start(options).and_then(control::Control::run) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
