//! How a command finds the running process: by `--admin`, or by the admin socket in the configuration that `run` would
//! use.

use crate::config::find;
use clap::Args;
use flatout_config::model::Admin;
use flatout_config::{Disk, load_admin};
use flatout_daemon::Failure;
use flatout_daemon::admin::client::{AdminReply, Candidate, ask};
use flatout_daemon::admin::path::Places;
use std::path::{Path, PathBuf};

// No doc comment: clap would take it for the description of the verb.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct AdminArgs {
    /// Admin socket of the running process [default: from the configuration, else the user's or the system's]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    /// Read the admin socket's path from this configuration [default: as for `flatout run`]
    #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
}

impl AdminArgs {
    /// Sends a request to the process that these flags, or the configuration, select.
    pub(crate) fn ask(&self, method: &str, target: &str) -> Result<AdminReply, Failure> {
        ask(&self.candidates()?, method, target)
    }

    fn candidates(&self) -> Result<Vec<Candidate>, Failure> {
        match (&self.admin, &self.config) {
            (Some(path), _) => Ok(vec![Candidate::new(path.clone())]),
            (None, Some(config)) => candidates_of(config),
            (None, None) => Ok(usual_candidates()),
        }
    }
}

/// Returns the admin sockets of a process that runs `config`.
fn candidates_of(config: &Path) -> Result<Vec<Candidate>, Failure> {
    let shown = config.display();
    if let Err(error) = config.metadata() {
        return Err(Failure::usage(format!("cannot read {shown}: {error}")));
    }
    match load_admin(config, &Disk) {
        Admin::Path(path) => Ok(vec![Candidate { path, named_in: Some(config.to_owned()) }]),
        Admin::Default => Ok(system_candidates()),
        Admin::Off => Err(Failure::usage(format!(
            "{shown} disables the admin socket (admin off=#true)\n  try: admin \"/run/flatout.sock\", or signals: \
             SIGHUP reloads, SIGUSR1 prints the counters"
        ))),
    }
}

/// Returns the sockets to try if no flag selects one. The socket of the configuration that `run` would use comes first.
/// The user's and the system's follow, because `flatout accelerate` runs without a configuration.
fn usual_candidates() -> Vec<Candidate> {
    let named = found_admin().map(|(config, path)| Candidate { path, named_in: Some(config) });
    let mut candidates: Vec<Candidate> = named.into_iter().collect();
    for candidate in system_candidates() {
        if candidates.iter().all(|known| known.path != candidate.path) {
            candidates.push(candidate);
        }
    }
    candidates
}

/// Returns the user's admin socket and the system's.
pub(crate) fn system_candidates() -> Vec<Candidate> {
    Places::read().candidates().into_iter().map(Candidate::new).collect()
}

/// Returns the configuration that `run` would use and its admin socket. Returns `None` if there is no such
/// configuration or it has no admin socket.
pub(crate) fn found_admin() -> Option<(PathBuf, PathBuf)> {
    let config = find(None).ok()?;
    match load_admin(&config, &Disk) {
        Admin::Path(path) => Some((config, path)),
        Admin::Default | Admin::Off => None,
    }
}
