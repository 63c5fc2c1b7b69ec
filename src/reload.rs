//! `flatout reload` and `flatout upgrade`: commands to a running flatout.

use crate::admin::AdminArgs;
use clap::Args;
use std::process::ExitCode;

/// Exit code if something failed at run time. README, "Exit codes", lists all exit codes.
const EXIT_FAILED: u8 = 1;
/// Exit code if the command line is invalid.
const EXIT_USAGE: u8 = 2;

/// Reload the configuration of a running flatout
#[derive(Args, Debug)]
#[command(
    after_help = "Open connections stay open. If the new configuration has an error, none of it is applied and the \
    running configuration stays in use.\n\nExit codes:\n  \
    0  the configuration was reloaded\n  \
    1  the reload failed for a reason other than the configuration\n  \
    2  the configuration was rejected"
)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Upgrade a running flatout process to the installed binary, without downtime
#[derive(Args, Debug)]
#[command(
    after_help = "A new process starts with the same command line and takes over the listening sockets. The old process \
    finishes its requests and exits. If the new process fails to start, the old one continues to serve."
)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs the command and returns its exit code.
pub(crate) fn reload(arguments: &ReloadArgs) -> ExitCode {
    order(&arguments.admin, "/reload")
}

/// Runs the command and returns its exit code.
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
