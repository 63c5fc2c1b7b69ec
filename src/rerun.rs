//! `flatout rerun`: repeats a bench from its bundle.

use clap::Args;
use flatout_report::{bundle, command, output};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Exit code if the bench could not be started.
const FAILED: u8 = 1;

/// Exit code for invalid usage.
const USAGE: u8 = 2;

/// Repeat a bench run from its bundle or result
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  flatout rerun bundle/                          repeat the run with the files saved in the bundle
  flatout rerun bundle/ -- --json again.json     and write the result to a file
  flatout rerun a.json --show                    only print the command
  flatout rerun bundle/ -- -H 'Cookie: a=b'      supply a header that results do not store

If the result comes from another version of flatout, the command prints a note and uses this version. The exit code is \
that of `flatout bench`, 1 if the run could not be started, or 2 if the bundle cannot be used.")]
pub(crate) struct RerunArgs {
    /// Folder from `flatout bench --bundle`, or file from `flatout bench --json`
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// Print the command line without running it
    #[arg(long)]
    show: bool,
    /// Additional arguments for `flatout bench`
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: RerunArgs) -> ExitCode {
    let (report, words) = match bundle::rerun(&args.bundle) {
        Ok(found) => found,
        Err(error) => return complain(&error.to_string(), USAGE),
    };
    // Ignore the name of the program that wrote the result; the command must be the bench.
    let Some((_, words)) = words.split_first().filter(|(_, words)| words.first().is_some_and(|verb| verb == "bench"))
    else {
        return complain("the result contains no `flatout bench` command to repeat", USAGE);
    };
    let mut words = words.to_vec();
    let missing: Vec<String> = command::not_kept(&report.command)
        .into_iter()
        .filter(|name| !args.arguments.iter().any(|word| gives(word, name)))
        .collect();
    if !missing.is_empty() {
        let again = match &*missing[0] {
            flag if flag.starts_with("--") => format!("{flag} '...'"),
            name => format!("-H '{name}: ...'"),
        };
        let text =
            format!("the run sent {}, which results do not store; specify it again: -- {again}", missing.join(" and "));
        return complain(&text, USAGE);
    }
    let mut local = command::not_repeated(&report.command).into_iter();
    if let Some((flag, value)) = local.find(|(flag, _)| !args.arguments.iter().any(|word| gives(word, flag))) {
        let again = command::shell_line(&[flag.clone(), value]);
        let text = format!(
            "the run used {flag}, which is not taken from a result, because the result may be from someone else; specify \
             it again: -- {again}"
        );
        return complain(&text, USAGE);
    }
    if !words.iter().chain(&args.arguments).any(|word| word == "--seed" || word.starts_with("--seed=")) {
        words.extend(["--seed".to_owned(), report.seed.to_string()]);
    }
    words.extend(args.arguments);
    let line = command::shell_line(&words);
    if args.show {
        return match output::show(&format!("flatout {line}\n")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&format!("cannot write the command: {error}"), FAILED),
        };
    }
    let version = env!("CARGO_PKG_VERSION");
    if report.flatout_version != version {
        eprintln!(
            "flatout rerun: note: the run was measured by flatout {}, but this is {version}",
            report.flatout_version
        );
    }
    eprintln!("flatout {line}");
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return complain(&format!("cannot find this program: {error}"), FAILED),
    };
    match Command::new(program).args(&words).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)),
        Err(error) => complain(&format!("the bench could not be started: {error}"), FAILED),
    }
}

/// Returns whether an argument specifies a header or a flag with this name.
fn gives(word: &str, name: &str) -> bool {
    if name.starts_with("--") {
        return word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
    }
    let header = word.strip_prefix("--header=").or(word.strip_prefix("-H")).unwrap_or(word);
    header.split_once(':').is_some_and(|(given, _)| given.trim().eq_ignore_ascii_case(name))
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("rerun", text);
    ExitCode::from(code)
}
