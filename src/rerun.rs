//! `flatout rerun`: a bench again, as its bundle has it.

use clap::Args;
use flatout_report::{bundle, command, output};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The bench could not be started.
const FAILED: u8 = 1;

/// Bad usage.
const USAGE: u8 = 2;

/// Repeat a bench run from its bundle or result
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  flatout rerun bundle/                          repeat the run with the files saved in the bundle
  flatout rerun bundle/ -- --json again.json     and write its result to a file
  flatout rerun a.json --show                    print the command only
  flatout rerun bundle/ -- -H 'Cookie: a=b'      with a header that results leave out, as it may be secret

If the result comes from another version of flatout, this version runs it and prints a note. The exit code is that of \
`flatout bench`, or 1 if it could not be started, or 2 if the bundle cannot be used.")]
pub(crate) struct RerunArgs {
    /// Folder from `flatout bench --bundle`, or file from `flatout bench --json`
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// Print the command line and run nothing
    #[arg(long)]
    show: bool,
    /// More arguments for `flatout bench`
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(args: RerunArgs) -> ExitCode {
    let (report, words) = match bundle::rerun(&args.bundle) {
        Ok(found) => found,
        Err(error) => return complain(&error.to_string(), USAGE),
    };
    // The program's own name is whatever it was then; the verb must be the bench.
    let Some((_, words)) = words.split_first().filter(|(_, words)| words.first().is_some_and(|verb| verb == "bench"))
    else {
        return complain("the result has no command of `flatout bench` to repeat", USAGE);
    };
    let mut words = words.to_vec();
    let missing: Vec<String> = command::not_kept(&report.command)
        .into_iter()
        .filter(|name| !args.arguments.iter().any(|word| gives_header(word, name)))
        .collect();
    if !missing.is_empty() {
        let text = format!(
            "the run sent {}, which results do not store; give it again: -- -H '{}: ...'",
            missing.join(" and "),
            missing[0]
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
            Err(error) => complain(&format!("the command could not be written: {error}"), FAILED),
        };
    }
    let version = env!("CARGO_PKG_VERSION");
    if report.flatout_version != version {
        eprintln!(
            "flatout rerun: note: the run was measured by flatout {}, and this is {version}",
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

fn gives_header(word: &str, name: &str) -> bool {
    let header = word.strip_prefix("--header=").or(word.strip_prefix("-H")).unwrap_or(word);
    header.split_once(':').is_some_and(|(given, _)| given.trim().eq_ignore_ascii_case(name))
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("rerun", text);
    ExitCode::from(code)
}
