//! `flatout reload` and `flatout upgrade`: orders for a running flatout.

use crate::admin::AdminArgs;
use clap::Args;
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
    #[command(flatten)]
    admin: AdminArgs,
}

/// Have a running flatout hand over to the program as it is now
#[derive(Args, Debug)]
#[command(
    after_help = "A new process starts with the same command line and takes the listeners over; the old one finishes what is
under way. When the new one does not come up, the old one goes on as if nothing had been."
)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs the verb and says how it ended.
pub(crate) fn reload(arguments: &ReloadArgs) -> ExitCode {
    order(&arguments.admin, "/reload")
}

/// Runs the verb and says how it ended.
pub(crate) fn upgrade(arguments: &UpgradeArgs) -> ExitCode {
    order(&arguments.admin, "/upgrade")
}

fn order(admin: &AdminArgs, target: &str) -> ExitCode {
    match admin.ask("POST", target) {
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
