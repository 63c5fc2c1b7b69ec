//! `flatout run`: serves the sites of a configuration.

use crate::config::{Color, find};
use clap::Args;
use flatout_daemon::{ConfigSource, Failure, Options};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run the server with a configuration file
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout run                    use the first configuration found
  flatout run -c site.kdl

Without -c, flatout uses the first of these files that exists: ./flatout.kdl, ~/.config/flatout/flatout.kdl \
($XDG_CONFIG_HOME), /etc/flatout/flatout.kdl.

Signals:
  SIGTERM, Ctrl-C   finish the requests in progress and exit; a second signal exits at once
  SIGHUP            reload the configuration, as `flatout reload` does
  SIGUSR1           print the counters and reopen the logs
  SIGUSR2           upgrade to the installed binary, as `flatout upgrade` does")]
pub(crate) struct RunArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Runs the command and returns its exit code.
pub(crate) fn run(arguments: &RunArgs) -> ExitCode {
    match find(arguments.config.as_deref()) {
        Ok(path) => {
            let style = arguments.color.style();
            flatout_daemon::run(Options { source: ConfigSource::File(path), style, needs_admin: true })
        }
        Err(message) => Failure::usage(message).report(),
    }
}
