//! `flatout completions`: shell completions for the command line.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Print shell completions
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout completions bash > /etc/bash_completion.d/flatout
  flatout completions zsh > /usr/local/share/zsh/site-functions/_flatout
  flatout completions fish > ~/.config/fish/completions/flatout.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for
    shell: Shell,
}

/// Runs the command and returns its exit code.
pub(crate) fn run<C: CommandFactory>(arguments: &CompletionsArgs) -> ExitCode {
    let mut text = Vec::new();
    generate(arguments.shell, &mut C::command(), "flatout", &mut text);
    // A closed pipe is not an error.
    let _ = io::stdout().write_all(&text);
    ExitCode::SUCCESS
}
