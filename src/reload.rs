//! `flatout reload` and `flatout upgrade`: orders for a running flatout.

use clap::Args;
use flatout_daemon::admin::client::ask;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit codes, as everywhere in flatout: README, "Exit codes".
const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

/// Have a running flatout read its configuration again
#[derive(Args, Debug)]
#[command(
    after_help = "Connections are not touched. A configuration that is wrong anywhere is refused as a whole, and the
old one stays in force. The exit code is 0, 2 when the configuration was refused, or 1 when it failed otherwise."
)]
pub(crate) struct ReloadArgs {
    /// The admin socket [default: the user's or the system's]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
}

/// Have a running flatout hand over to the program as it is now
#[derive(Args, Debug)]
#[command(
    after_help = "A new process starts with the same command line and takes the listeners over; the old one finishes what is
under way. When the new one does not come up, the old one goes on as if nothing had been."
)]
pub(crate) struct UpgradeArgs {
    /// The admin socket [default: the user's or the system's]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
}

/// Runs the verb and says how it ended.
pub(crate) fn reload(arguments: &ReloadArgs) -> ExitCode {
    order(arguments.admin.as_ref(), "/reload")
}

/// Runs the verb and says how it ended.
pub(crate) fn upgrade(arguments: &UpgradeArgs) -> ExitCode {
    order(arguments.admin.as_ref(), "/upgrade")
}

fn order(admin: Option<&PathBuf>, target: &str) -> ExitCode {
    match ask(admin.map(PathBuf::as_path), "POST", target) {
        Ok(reply) if reply.status == 200 => {
            print!("{}", reply.body);
            ExitCode::SUCCESS
        }
        Ok(reply) => {
            eprint!("{}", reply.body);
            ExitCode::from(if reply.status == 422 { EXIT_USAGE } else { EXIT_FAILED })
        }
        Err(failure) => failure.report(),
    }
}
