//! `flatout run`: the sites of a configuration, for as long as the machine is up.

use crate::config::{Color, find};
use clap::Args;
use flatout_daemon::{Failure, Options, Source};
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve the sites of a configuration
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout run                    ./flatout.kdl, the user's, or /etc/flatout/flatout.kdl
  flatout run -c site.kdl

SIGHUP or `flatout reload` brings a changed configuration into force, wholly or not at all. SIGUSR2 or `flatout upgrade`
hands over to a new process of the program as it is now. SIGUSR1 prints the counters and reopens the logs. SIGTERM or
Ctrl-C finishes what is under way; a second one leaves at once.")]
pub(crate) struct RunArgs {
    /// The configuration
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Runs the verb and says how it ended.
pub(crate) fn run(arguments: &RunArgs) -> ExitCode {
    match find(arguments.config.as_deref()) {
        Ok(path) => {
            let style = arguments.color.style();
            flatout_daemon::run(Options { source: Source::File(path), style, needs_admin: true })
        }
        Err(message) => Failure::usage(message).report(),
    }
}
