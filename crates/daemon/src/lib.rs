//! The life of the process: startup, reload, upgrade, drain, and the admin interface.
//!
//! By default, two processes serve a configuration file (`worker-process`). The supervisor reads and opens everything
//! that needs privileges or the disk, but reads nothing from the network. It starts the worker process, which is
//! confined and serves requests. Otherwise, a single process does everything.
//!
//! In the serving process, the main thread is the control thread. It handles no requests, so it may block. It opens
//! everything that was not received from a supervisor, starts the workers, and then waits for commands and for workers
//! that exit.
//!
//! | file | content |
//! |---|---|
//! | [`source`] | the source of the configuration |
//! | `start` | startup, from a configuration to running workers, in the order that privileges require |
//! | `control` | the event loop of the control thread |
//! | `reload` | the atomic switch to a new configuration |
//! | `upgrade`, `inherit` | handing over to a new process, and taking over from a previous one |
//! | `listeners`, `arrange` | sockets by address, and stable listener numbers |
//! | `socket_file` | files of Unix sockets, for listeners and for the admin socket |
//! | `quic` | UDP sockets for HTTP/3, and the keys of its connections |
//! | `workers`, `events` | worker threads, their commands, and events |
//! | [`admin`], [`status`], `metrics`, `unsent` | the admin socket, status and metrics; memory of unsent responses |
//! | `certificates`, `authority` | TLS certificates, and the local certificate authority |
//! | `folders` | folders that were replaced by others of the same path |
//! | `watch` | file changes reported by the kernel |
//! | `confine`, `seccomp`, `privileges` | confinement and privileges |
//! | `limits`, `shares`, `memory`, `threads` | resource limits |
//! | `prepare` | creation of missing logs and folders before root privileges are dropped |
//! | `service_manager`, `banner` | notifications to systemd, and the first lines of output |
//! | `supervisor` | the supervisor: starting, reloading and replacing the worker process |
//! | `link`, `receive` | the worker process's link to its supervisor, and what the worker process receives at startup |
//! | `messages`, `channel` | messages between supervisor and worker process, and their transport |
//! | `accelerate` | opening the store, and the operators' view of it |
//! | [`purge`], [`cache`], [`store`] | operators' queries to the store of origin responses |
//! | `spec` | compilation of the configured sites |
//! | [`here`] | checks of a configuration against this machine |
//! | [`failure`] | failures, and exit codes |
//!
//! This crate handles no connections and no requests.

mod accelerate;
pub mod admin;
mod arrange;
mod authority;
mod banner;
pub mod cache;
mod certificates;
mod channel;
mod confine;
mod control;
mod events;
pub mod failure;
mod folders;
pub mod here;
mod inherit;
mod limits;
mod link;
mod listeners;
mod memory;
mod messages;
mod metrics;
mod notices;
pub mod overload;
mod prepare;
mod privileges;
pub mod purge;
mod quic;
mod receive;
mod reload;
mod seccomp;
mod service_manager;
mod shares;
mod socket_file;
pub mod source;
mod spec;
mod start;
pub mod status;
pub mod store;
mod supervisor;
mod threads;
mod unsent;
mod upgrade;
mod watch;
mod workers;

pub use failure::Failure;
pub use source::ConfigSource;

use control::Control;
use flatout_config::Style;
use link::SupervisorLink;
use messages::ToSupervisor;
use start::{Bound, Unprivileged};
use std::process::ExitCode;
use supervisor::Supervisor;

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

/// Serves until stopped, and returns the exit code. Unless `worker-process` is off, a supervisor and a worker process
/// serve a configuration file; otherwise, a single process does.
pub fn run(options: Options) -> ExitCode {
    if let Some(link) = SupervisorLink::find() {
        return work(options, link);
    }
    let bound = Bound::open(options).and_then(Bound::give_up_privileges);
    let ended = match bound {
        Ok(stage) if stage.is_for_worker_process() => stage.supervise().and_then(Supervisor::run),
        stage => stage.and_then(Unprivileged::start_workers).and_then(Control::run),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Serves as the worker process of a supervisor. If startup fails, the reason is sent to the supervisor.
fn work(options: Options, link: SupervisorLink) -> ExitCode {
    let reporter = link.reporter();
    let mut link = Some(link);
    let started =
        Bound::receive(options, &mut link).and_then(Bound::give_up_privileges).and_then(Unprivileged::start_workers);
    match started {
        Ok(control) => {
            drop(reporter);
            control.run().unwrap_or_else(|failure| failure.report())
        }
        Err(failure) => {
            let code = ExitCode::from(failure.code);
            let sent = reporter.map(|reporter| reporter.send(&ToSupervisor::Failed(failure.clone().shortened()), &[]));
            if !matches!(sent, Some(Ok(()))) {
                failure.report();
            }
            code
        }
    }
}
