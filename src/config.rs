//! `flatout validate`, `fmt`, `adapt`, `passwd` and `help`: commands for working with a configuration before it runs.

use crate::topics::{self, text_about};
use clap::{Args, CommandFactory, ValueEnum};
use flatout_config::{Code, Diagnostics, Disk, Style, adapt, format, load};
use flatout_daemon::here::{check_here, check_rights, find_exposed};
use flatout_load::FailureKind;
use flatout_load::judge::failing::Finding;
use flatout_load::judge::figures::effect;
use flatout_load::judge::{Evidence, Figure, InvalidReason};
use flatout_report::html::capital;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Read, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code if `fmt --check` found differences, or if something failed at run time.
const EXIT_FAILED: u8 = 1;

/// Exit code if the command line or the configuration is invalid.
const EXIT_USAGE: u8 = 2;

/// Maximum size of standard input, in bytes.
const INPUT_BYTES_MAX: u64 = 1024 * 1024;

/// Cost factor of bcrypt, which takes about a quarter of a second on current machines.
const BCRYPT_COST: u32 = 12;

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Color {
    /// Use colors on a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always use colors
    Always,
    /// Never use colors
    Never,
}

impl Color {
    /// Returns the style for standard error.
    pub(crate) fn style(self) -> Style {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match self {
            Self::Always => Style::Colour,
            Self::Auto if io::stderr().is_terminal() && !no_color => Style::Colour,
            Self::Auto | Self::Never => Style::Plain,
        }
    }
}

/// Check a configuration and report every error
///
/// Also checks that the folders and certificates exist, that the ports are free, and that no proxy forwards requests to
/// itself (a proxy loop).
#[derive(Args, Debug)]
#[command(after_help = "`flatout help CODE` explains an error code, such as C0102.\n\nExit codes:\n  \
    0  the configuration is valid\n  \
    2  the configuration is invalid, or something that it needs is not available on this machine")]
pub(crate) struct ValidateArgs {
    /// Configuration file, or `-` for standard input [default: as for `flatout run`]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Skip the checks that depend on this machine, for use in CI
    #[arg(long)]
    no_machine_checks: bool,
    /// Print the result as JSON to standard output
    #[arg(long)]
    json: bool,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Format configuration files in place, keeping their comments
#[derive(Args, Debug)]
#[command(after_help = "A file with an error is left unchanged.\n\nExit codes:\n  \
    0  success\n  \
    1  --check found a file that would change\n  \
    2  a file cannot be read or parsed")]
pub(crate) struct FmtArgs {
    /// Print the names of files that would change, without changing them
    #[arg(long)]
    check: bool,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
    /// Configuration files; `-` formats standard input to standard output [default: as for `flatout run`]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Convert a configuration between KDL and JSON
#[derive(Args, Debug)]
#[command(
    after_help = "The result goes to standard output. A .json file is converted to KDL, any other file to JSON. \
    flatout copies include, (env) and (file) without resolving them."
)]
pub(crate) struct AdaptArgs {
    /// Configuration file [default: as for `flatout run`]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Hash a password for basic-auth
#[derive(Args, Debug)]
#[command(
    after_help = "On a terminal, flatout prompts for the password twice without showing it. Otherwise it reads the first \
    line of standard input."
)]
pub(crate) struct PasswdArgs {
    /// Use argon2id (default)
    #[arg(long, conflicts_with = "bcrypt")]
    argon2: bool,
    /// Use bcrypt, which accepts passwords of up to 71 bytes
    #[arg(long)]
    bcrypt: bool,
}

/// Explain a command, an error code, a reason in a bench report, or a topic: gzip, tls, systemd, spa
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout help bench               a command
  flatout help C0102               an error code
  flatout help client-saturated    a reason in a bench report
  flatout help tls                 a topic")]
pub(crate) struct HelpArgs {
    /// Command, error code, reason or topic to explain
    #[arg(value_name = "COMMAND|CODE|REASON|TOPIC")]
    topics: Vec<String>,
}

/// Returns the path of the configuration to use: the one that was named, or else the first one that exists.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let mut candidates = vec![PathBuf::from("flatout.kdl")];
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = home("XDG_CONFIG_HOME").or_else(|| home("HOME").map(|home| home.join(".config")));
    candidates.extend(user.map(|user| user.join("flatout/flatout.kdl")));
    candidates.push(PathBuf::from("/etc/flatout/flatout.kdl"));
    if let Some(found) = candidates.iter().find(|path| path.exists()) {
        return Ok(found.clone());
    }
    let names: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
    Err(format!("no configuration found; searched for {}", names.join(", ")))
}

/// Prints the errors of a configuration and their number. Returns the exit code.
pub(crate) fn complain(path: &Path, diagnostics: &Diagnostics, style: Style) -> ExitCode {
    let count = diagnostics.count();
    let errors = if count == 1 { "error" } else { "errors" };
    eprint!("{}\n{}: {count} {errors}\n", diagnostics.render(style), path.display());
    ExitCode::from(EXIT_USAGE)
}

fn usage(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(EXIT_USAGE)
}

fn failed(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(EXIT_FAILED)
}

/// Prints to standard output. A closed pipe is not an error.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

pub(crate) fn validate(arguments: &ValidateArgs) -> ExitCode {
    let path = match find(arguments.config.as_deref()) {
        Ok(path) => path,
        Err(message) => return usage(&message),
    };
    match load(&path, &Disk) {
        Ok(config) => {
            let (mut faults, mut warnings) = (Vec::new(), Vec::new());
            if !arguments.no_machine_checks {
                (faults, warnings) = (check_here(&config), find_exposed(&config));
                // Last, because nothing else can be checked with the rights of a worker process.
                if faults.is_empty() {
                    faults.extend(check_rights(&config));
                }
            }
            if arguments.json {
                let mut result = Diagnostics::default().to_json();
                result["valid"] = faults.is_empty().into();
                result["here"] = faults.clone().into();
                result["warnings"] = warnings.clone().into();
                print(&format!("{result:#}\n"));
            }
            if !faults.is_empty() {
                for fault in faults.iter().filter(|_| !arguments.json) {
                    eprintln!("error: {fault}");
                }
                return ExitCode::from(EXIT_USAGE);
            }
            if !arguments.json {
                for warning in &warnings {
                    eprintln!("{warning}");
                }
                let sites = config.sites.len();
                let noun = if sites == 1 { "site" } else { "sites" };
                print(&format!("{} is valid: {sites} {noun}\n", path.display()));
            }
            ExitCode::SUCCESS
        }
        Err(diagnostics) if arguments.json => {
            print(&format!("{:#}\n", diagnostics.to_json()));
            ExitCode::from(EXIT_USAGE)
        }
        Err(diagnostics) => complain(&path, &diagnostics, arguments.color.style()),
    }
}

pub(crate) fn fmt(arguments: &FmtArgs) -> ExitCode {
    let files = if arguments.files.is_empty() {
        match find(None) {
            Ok(path) => vec![path],
            Err(message) => return usage(&message),
        }
    } else {
        arguments.files.clone()
    };
    let (mut unreadable, mut differs) = (false, false);
    for path in &files {
        match format_one(path, arguments) {
            Ok(changed) => differs |= changed,
            Err(_) => unreadable = true,
        }
    }
    match (unreadable, arguments.check && differs) {
        (true, _) => ExitCode::from(EXIT_USAGE),
        (false, true) => ExitCode::from(EXIT_FAILED),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// Formats one file and returns whether it changed or would change.
fn format_one(path: &Path, arguments: &FmtArgs) -> Result<bool, ExitCode> {
    if path.extension().is_some_and(|extension| extension == "json") {
        return Err(usage(&format!("{} is a JSON file, but fmt formats only KDL", path.display())));
    }
    let is_input = path == Path::new("-");
    let read = if is_input { read_input() } else { fs::read_to_string(path) };
    let text = read.map_err(|error| usage(&format!("cannot read {}: {error}", path.display())))?;
    let name = path.display().to_string();
    let formatted = format::format(&name, &text).map_err(|found| complain(path, &found, arguments.color.style()))?;
    let changed = formatted != text;
    if is_input && !arguments.check {
        print(&formatted);
    } else if changed {
        if !arguments.check {
            replace(path, &formatted).map_err(|error| usage(&format!("cannot write {name}: {error}")))?;
        }
        print(&format!("{name}\n"));
    }
    Ok(changed)
}

fn read_input() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        // Reject the input: a truncated input would be formatted as if it were complete.
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    Ok(text)
}

/// Replaces a file atomically, by writing a temporary file and renaming it. A concurrent reader sees either the old or
/// the new file, and a full disk loses nothing.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // If the path is a symbolic link, the link stays and its target is replaced.
    let path = path.canonicalize()?;
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}.new", std::process::id()));
    let written = write_like(&path, Path::new(&beside), text).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Creates a file with the permissions of an existing file. Until they are set, no other user can read the new file,
/// because it may contain password hashes.
fn write_like(old: &Path, new: &Path, text: &str) -> io::Result<()> {
    let rights = fs::metadata(old)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(text.as_bytes())?;
    // Only root can change the owner. For other users, the owner is usually the same, and otherwise nothing can be
    // done.
    let _ = fchown(&file, Some(rights.uid()), Some(rights.gid()));
    file.set_permissions(rights.permissions())?;
    file.sync_all()
}

pub(crate) fn adapt(arguments: &AdaptArgs) -> ExitCode {
    let path = match find(arguments.config.as_deref()) {
        Ok(path) => path,
        Err(message) => return usage(&message),
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return usage(&format!("cannot read {}: {error}", path.display())),
    };
    if path.extension().is_some_and(|extension| extension == "json") {
        return match adapt::json_to_kdl(&text) {
            Ok(kdl) => {
                print(&kdl);
                ExitCode::SUCCESS
            }
            Err(fault) => usage(&format!("{}:{}:{}: {}", path.display(), fault.line, fault.column, fault.message)),
        };
    }
    match adapt::kdl_to_json(&path.display().to_string(), &text) {
        Ok(json) => {
            print(&format!("{json:#}\n"));
            ExitCode::SUCCESS
        }
        Err(diagnostics) => complain(&path, &diagnostics, arguments.color.style()),
    }
}

pub(crate) fn passwd(arguments: &PasswdArgs) -> ExitCode {
    let password = match read_password() {
        Ok(password) => password,
        Err(message) => return usage(&message),
    };
    let hash = if arguments.bcrypt { hash_bcrypt(&password) } else { hash_argon2(&password) };
    match hash {
        Ok(hash) => {
            print(&format!("{hash}\n"));
            ExitCode::SUCCESS
        }
        Err(message) => failed(&message),
    }
}

fn read_password() -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot read the password: {error}");
    let password = if io::stdin().is_terminal() {
        let password = rpassword::prompt_password("Password: ").map_err(failed)?;
        if rpassword::prompt_password("Repeat the password: ").map_err(failed)? != password {
            return Err("the passwords do not match".into());
        }
        password
    } else {
        let mut line = String::new();
        io::stdin().lock().take(4096).read_line(&mut line).map_err(failed)?;
        line.trim_end_matches(['\n', '\r']).to_owned()
    };
    if password.is_empty() {
        return Err("the password is empty".into());
    }
    Ok(password)
}

fn hash_argon2(password: &str) -> Result<String, String> {
    use argon2::password_hash::PasswordHasher as _;
    let hash = argon2::Argon2::default().hash_password(password.as_bytes());
    hash.map(|hash| hash.to_string()).map_err(|error| format!("cannot hash the password: {error}"))
}

/// Hashes a password with bcrypt, which uses only the first 72 bytes. A longer password is rejected, not truncated.
fn hash_bcrypt(password: &str) -> Result<String, String> {
    if password.len() >= 72 {
        return Err("the password is too long for bcrypt, which accepts up to 71 bytes; use --argon2".into());
    }
    bcrypt::hash(password, BCRYPT_COST).map_err(|error| format!("cannot hash the password: {error}"))
}

pub(crate) fn help<C: CommandFactory>(arguments: &HelpArgs) -> ExitCode {
    let mut command = C::command();
    command.build();
    if let [topic] = &arguments.topics[..]
        && let Some(code) = Code::ALL.iter().find(|code| code.id().eq_ignore_ascii_case(topic))
    {
        print(&format!("{}: {}\n\n{}\n", code.id(), code.title(), code.text()));
        return ExitCode::SUCCESS;
    }
    if let [topic] = &arguments.topics[..]
        && let Some(reason) = InvalidReason::ALL.iter().find(|reason| reason.name() == topic)
    {
        print(&explain_reason(*reason));
        return ExitCode::SUCCESS;
    }
    if let [topic] = &arguments.topics[..]
        && command.find_subcommand(topic).is_none()
        && let Some(text) = text_about(topic)
    {
        print(text);
        // Some failures have the name of a topic, such as `tls`.
        if let Some(text) = text_of_failure(topic) {
            print(&format!("\nAs a failure in a bench report: {text}.\n"));
        }
        return ExitCode::SUCCESS;
    }
    if let [topic] = &arguments.topics[..]
        && let Some(text) = text_of_failure(topic)
    {
        print(&format!("{topic}: {}.\n", capital(text)));
        return ExitCode::SUCCESS;
    }
    let mut found = &mut command;
    for topic in &arguments.topics {
        if found.find_subcommand(topic).is_none() {
            let names: Vec<&str> = topics::names().collect();
            return usage(&format!(
                "no command, code, reason or topic is named `{topic}`\n  try: flatout --help, or a topic: {}",
                names.join(", ")
            ));
        }
        let Some(inner) = found.find_subcommand_mut(topic) else { return usage("no such command") };
        found = inner;
    }
    let help = found.render_long_help();
    print(&if io::stdout().is_terminal() { help.ansi().to_string() } else { help.to_string() });
    ExitCode::SUCCESS
}

/// Returns the meaning of a failure or note in a bench report, or of a failed request.
fn text_of_failure(name: &str) -> Option<&'static str> {
    let kind = || FailureKind::ALL.iter().find(|kind| kind.name() == name).map(|kind| kind.text());
    Finding::of_name(name).map(Finding::text).or_else(kind)
}

/// Explains a reason in a bench report: its meaning, the affected figures, and the remedy.
fn explain_reason(reason: InvalidReason) -> String {
    // Assume a closed loop in which all times are late, so that every figure that the reason can affect is listed.
    let evidence = Evidence { lag_p50_ns: u64::MAX, ..Evidence::crowded_throughout() };
    let touched: Vec<String> = Figure::ALL
        .iter()
        .map(|figure| (figure, effect(reason, *figure, &evidence)))
        .filter(|(_, soundness)| !soundness.is_sound())
        .map(|(figure, soundness)| format!("  {:<12}{} ({})", figure.name(), soundness.words(), figure.text()))
        .collect();
    let touched = if touched.is_empty() {
        "It affects no figure: all figures are valid.".to_owned()
    } else {
        format!("It may affect these figures:\n{}", touched.join("\n"))
    };
    format!("{}: {}.\n\n{touched}\n\nWhat to do: {}.\n", reason.name(), capital(reason.text()), reason.remedy())
}
