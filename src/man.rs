//! `flatout man`: the manual pages, generated from the same text as `--help`.

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use flatout_daemon::Failure;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print the manual page, or write one page per command
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout man | man -l -
  flatout man --dir /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write flatout.1 and one page per command to this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the command and returns its exit code.
pub(crate) fn run<C: CommandFactory>(arguments: &ManArgs) -> ExitCode {
    let mut command = C::command();
    command.build();
    let written = match &arguments.dir {
        Some(folder) => write_all(C::command(), folder),
        None => render(&command).map(|page| {
            // A closed pipe is not an error.
            let _ = io::stdout().write_all(&page);
        }),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::runtime(format!("cannot write the manual pages: {error}")).report(),
    }
}

fn render(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

fn write_all(command: Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)
}
