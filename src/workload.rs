//! `flatout workload`: creates files to serve, makes lists from logs, and finds errors in a list or a log.

use clap::{Args, Subcommand, ValueEnum};
use flatout_lab::view::live::LiveLine;
use flatout_lab::workload::{ReadError, make, read_list, read_log};
use flatout_load::workload::fileset::Fileset;
use flatout_load::workload::log::parse_line;
use flatout_load::workload::mine::mine;
use flatout_load::workload::web96::LAMBDA_DEFAULT;
use flatout_load::workload::{AccessLog, Faults, Replay, Workload, filelist, urls};
use flatout_report::output::{self, Output, print};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code if the command failed, or if an input is malformed.
const FAILED: u8 = 1;

/// Exit code for invalid usage: the request is contradictory or impossible.
const USAGE: u8 = 2;

/// Version of the JSON output.
const SCHEMA_VERSION: u32 = 1;

/// The default load for which web96 and web99 are sized, in operations per second or connections.
const LOAD_DEFAULT: f64 = 100.0;

/// Default number of URLs in a mined list. A guess: more than a cache is likely to hold in memory by accident.
const URLS_MAX_DEFAULT: usize = 10_000;

/// Create test files, make filelists from access logs, and check lists
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout workload make webstone-standard ./files     then: flatout serve ./files
  flatout workload make web96 ./files --rate 100      45 folders, 230 MB
  flatout workload mine access.log --output filelist  then: flatout bench URL --filelist filelist
  flatout workload check filelist                     list malformed lines
  flatout workload check access.log --json

Exit codes:
  0  success
  1  lines are malformed, or a file could not be written
  2  the command line is invalid, or a file cannot be read")]
#[group(skip)]
pub(crate) struct WorkloadArgs {
    #[command(subcommand)]
    verb: WorkloadVerb,
}

#[derive(Subcommand, Debug)]
enum WorkloadVerb {
    Make(MakeArgs),
    Mine(MineArgs),
    Check(CheckArgs),
}

/// Create the files of a classic benchmark and a filelist with their sizes and digests
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout workload make webstone-standard ./files
  flatout workload make webstone-simple ./files
  flatout workload make web96 ./files --rate 1000 --lambda 4
  flatout workload make web99 ./files --connections 50

The files are the same on every machine and compress poorly. Pass the filelist in the folder to \
`flatout bench --filelist`. `flatout workload make` overwrites only files that it created itself.")]
struct MakeArgs {
    /// Benchmark to create the files for
    set: Set,
    /// Folder for the files: a new folder, an empty one, or one with an earlier set for the same benchmark
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// web96: target rate in operations per second; sets the number of folders [default: 100]
    #[arg(long, value_name = "OPS")]
    rate: Option<f64>,
    /// web96: lambda of the Poisson distribution over the files in a class [default: 4]
    #[arg(long, value_name = "L")]
    lambda: Option<f64>,
    /// web99: target number of connections; sets the number of folders [default: 100]
    #[arg(long, value_name = "N")]
    connections: Option<f64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Set {
    /// WebStone's filelist.standard: five files from 500 B to 5 MB
    WebstoneStandard,
    /// One file of 1,024 bytes
    WebstoneSimple,
    /// SPECweb96's folders: 36 files each, in four size classes
    Web96,
    /// SPECweb99's folders: like those of web96; --connections sets their number
    Web99,
}

/// Make a weighted filelist from the GET requests with status 200 in an access log
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout workload mine access.log > filelist
  zcat access.log.*.gz | flatout workload mine - --top 100 --output filelist

The log may be in common, combined or flatout's JSON format. The sizes in the log are comments in the filelist, and \
`flatout bench` does not check them, unless you specify --verify-sizes.")]
struct MineArgs {
    /// Access log, or `-` for standard input
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Write the filelist to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Maximum number of URLs; keeps the most frequently requested ones
    #[arg(long, value_name = "N", default_value_t = URLS_MAX_DEFAULT)]
    top: usize,
    /// Let `flatout bench` check the body size of each URL whose log lines all have the same size
    ///
    /// The log of a server that compresses contains the sizes of compressed responses.
    #[arg(long)]
    verify_sizes: bool,
    /// Skip malformed lines instead of failing
    #[arg(long)]
    skip_malformed: bool,
    /// Print a summary as JSON
    #[arg(long, requires = "output")]
    json: bool,
}

/// Check a filelist, a list of URLs or an access log, and print a summary
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout workload check filelist
  flatout workload check urls.txt --as urls
  flatout workload check access.log --json")]
struct CheckArgs {
    /// File to check, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Kind of file [default: a log if the first line is a log line, else a filelist]
    #[arg(long = "as", value_name = "KIND")]
    kind: Option<WorkloadFormat>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WorkloadFormat {
    /// WebStone filelist: URLs with weights and sizes
    Filelist,
    /// List of URLs to request in order
    Urls,
    /// Access log
    Log,
}

/// Runs the command.
pub(crate) fn run(arguments: &WorkloadArgs) -> ExitCode {
    let ended = match &arguments.verb {
        WorkloadVerb::Make(arguments) => run_make(arguments),
        WorkloadVerb::Mine(arguments) => run_mine(arguments),
        WorkloadVerb::Check(arguments) => run_check(arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((text, code)) => {
            output::complain("workload", &text);
            ExitCode::from(code)
        }
    }
}

/// An error message and an exit code.
type Complaint = (String, u8);

fn unreadable(error: &ReadError) -> Complaint {
    let code = if matches!(error, ReadError::Malformed(..)) { FAILED } else { USAGE };
    (error.to_string(), code)
}

/// Writes output for people to standard output.
fn show(text: &str) -> Result<(), Complaint> {
    told(output::show(text))
}

/// Writes output for programs to standard output.
fn put(text: &str) -> Result<(), Complaint> {
    told(print(text))
}

fn told(written: std::io::Result<()>) -> Result<(), Complaint> {
    written.map_err(|error| (format!("cannot write the result: {error}"), FAILED))
}

fn document(kind: &str, mut fields: Value) -> String {
    fields["schema"] = json!("flatout-workload");
    fields["schema_version"] = json!(SCHEMA_VERSION);
    fields["kind"] = json!(kind);
    format!("{fields:#}\n")
}

fn run_make(arguments: &MakeArgs) -> Result<(), Complaint> {
    let MakeArgs { rate, lambda, connections, .. } = *arguments;
    let set = match (arguments.set, rate, lambda, connections) {
        (Set::WebstoneStandard, None, None, None) => Ok(Fileset::webstone_standard()),
        (Set::WebstoneSimple, None, None, None) => Ok(Fileset::webstone_simple()),
        (Set::Web96, rate, lambda, None) => {
            Fileset::web96(rate.unwrap_or(LOAD_DEFAULT), lambda.unwrap_or(LAMBDA_DEFAULT))
        }
        (Set::Web99, None, None, connections) => Fileset::web99(connections.unwrap_or(LOAD_DEFAULT)),
        _ => {
            let text = "use --rate and --lambda only for web96, and --connections only for web99";
            return Err((text.to_owned(), USAGE));
        }
    };
    let set = set.map_err(|error| (error.to_string(), USAGE))?;
    let live = LiveLine::new();
    let total = set.files.len();
    let made = make(&set, &arguments.folder, |count| {
        if count % 36 == 0 {
            live.show(&format!("{count} of {total} files"));
        }
    });
    live.clear();
    let list = made.map_err(|error| {
        let code = if matches!(error, flatout_lab::workload::MakeError::Io { .. }) { FAILED } else { USAGE };
        (error.to_string(), code)
    })?;
    if arguments.json {
        let parameters: serde_json::Map<_, _> =
            set.parameters.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        return put(&document(
            "fileset",
            json!({
                "set": set.name, "files": total, "bytes": set.bytes_total(), "folder": arguments.folder,
                "filelist": list, "parameters": parameters,
            }),
        ));
    }
    let mut text = format!("{}: {}, {} bytes\n", set.name, count(total, "file"), set.bytes_total());
    for (name, value) in &set.parameters {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name}: {value}");
    }
    let _ = writeln!(text, "filelist: {}", list.display());
    show(&text)
}

fn run_mine(arguments: &MineArgs) -> Result<(), Complaint> {
    let log = read_log(&arguments.log).map_err(|error| unreadable(&error))?;
    if !log.faults.is_empty() && !arguments.skip_malformed {
        let advice = "\n  use --skip-malformed to skip such lines";
        let error = ReadError::Malformed(arguments.log.clone(), log.faults);
        return Err((format!("{error}{advice}"), FAILED));
    }
    let mined = mine(&log, arguments.top, arguments.verify_sizes);
    if mined.urls == 0 {
        let name = arguments.log.display();
        return Err((format!("{name} contains no GET request with status 200{}", skipped(&log)), FAILED));
    }
    let Some(path) = &arguments.output else {
        eprintln!("{}", summary(&log, &mined));
        return put(&mined.text);
    };
    let text = mined.text.trim_end_matches('\n');
    Output::File(path.clone())
        .write(text)
        .map_err(|error| (format!("cannot write {}: {error}", path.display()), FAILED))?;
    if arguments.json {
        let fields = json!({
            "log": log_value(&log), "filelist": path, "urls": mined.urls, "requests": mined.requests,
            "urls_left_out": mined.left_out,
        });
        return put(&document("mined", fields));
    }
    eprintln!("{}", summary(&log, &mined));
    Ok(())
}

fn summary(log: &AccessLog, mined: &flatout_load::workload::mine::Mined) -> String {
    let mut text = format!(
        "{0} lines: {2} for {1}",
        log.lines,
        count(mined.urls, "URL"),
        count(usize::try_from(mined.requests).unwrap_or(usize::MAX), "request")
    );
    if mined.left_out > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, "; {} with fewer requests left out", count(mined.left_out, "URL"));
    }
    if !log.faults.is_empty() {
        let _ = write!(text, "; {} malformed lines skipped", log.faults.count);
    }
    text + &skipped(log)
}

/// Lists the number of skipped lines by reason.
fn skipped(log: &AccessLog) -> String {
    log.skips().map(|(skip, lines)| format!("\n  {lines} skipped: {}", skip.text())).collect()
}

fn run_check(arguments: &CheckArgs) -> Result<(), Complaint> {
    let path = &arguments.file;
    let kind = match arguments.kind {
        Some(kind) => kind,
        None if path == Path::new("-") => {
            return Err((
                "specify the format of standard input: --as filelist, --as urls or --as log".to_owned(),
                USAGE,
            ));
        }
        None => guess(path).map_err(|error| unreadable(&error))?,
    };
    if kind == WorkloadFormat::Log {
        let log = read_log(path).map_err(|error| unreadable(&error))?;
        let replay = Replay::of(&log, 1.0);
        let faults = if log.faults.is_empty() { replay.as_ref().err().cloned() } else { Some(log.faults.clone()) };
        return tell(arguments, "log", log_value(&log), &log_text(&log, replay.as_ref().ok()), faults);
    }
    let text = read_list(path).map_err(|error| unreadable(&error))?;
    let (name, parsed) = match kind {
        WorkloadFormat::Urls => ("urls", urls::parse(&text)),
        _ => ("filelist", filelist::parse(&text)),
    };
    match parsed {
        Ok(workload) => tell(arguments, name, list_value(&workload), &list_text(&workload), None),
        Err(faults) => tell(arguments, name, json!({}), "", Some(faults)),
    }
}

/// Returns the kind of a file, judged by its first line that is neither blank nor a comment.
fn guess(path: &Path) -> Result<WorkloadFormat, ReadError> {
    use std::io::Read as _;
    let failed = |error| ReadError::Io(path.to_owned(), error);
    let mut beginning = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(64 << 10).read_to_end(&mut beginning).map_err(failed)?;
    let is_telling = |line: &&[u8]| !line.trim_ascii().is_empty() && !line.starts_with(b"#");
    let first = beginning.split(|&byte| byte == b'\n').find(is_telling).unwrap_or_default();
    let is_log = first.starts_with(b"{") || parse_line(first).is_ok();
    Ok(if is_log { WorkloadFormat::Log } else { WorkloadFormat::Filelist })
}

/// Prints the result. Reports malformed lines.
fn tell(
    arguments: &CheckArgs,
    kind: &str,
    mut fields: Value,
    text: &str,
    faults: Option<Faults>,
) -> Result<(), Complaint> {
    let path = &arguments.file;
    let Some(faults) = faults else {
        if arguments.json {
            fields["faults"] = json!([]);
            fields["faults_count"] = json!(0);
            return put(&document(kind, fields));
        }
        return show(text);
    };
    if arguments.json {
        let of = |fault: &flatout_load::workload::LineFault| {
            let line = (fault.line > 0).then_some(fault.line);
            json!({ "line": line, "fault": fault.kind.name(), "text": fault.kind.text(), "excerpt": fault.excerpt })
        };
        fields["faults"] = faults.first.iter().map(of).collect();
        fields["faults_count"] = json!(faults.count);
        put(&document(kind, fields))?;
    } else {
        show(text)?;
    }
    let lines = faults.count;
    let what = if lines == 1 { "1 error".to_owned() } else { format!("{lines} errors") };
    let list = faults.to_string().replace('\n', "\n  ");
    Err((format!("{} has {what}:\n  {list}", path.display()), FAILED))
}

fn list_value(workload: &Workload) -> Value {
    let class = |class: &flatout_load::workload::Class| json!({ "name": class.name, "share": class.share, "body_bytes_mean": class.body_bytes_mean });
    let entries = &workload.entries;
    json!({
        "urls": entries.len(),
        "sizes_known": entries.iter().filter(|entry| entry.body_bytes.is_some()).count(),
        "digests_known": entries.iter().filter(|entry| entry.sha256.is_some()).count(),
        "body_bytes_mean": workload.body_bytes_mean(),
        "classes": workload.classes.iter().map(class).collect::<Vec<_>>(),
    })
}

fn list_text(workload: &Workload) -> String {
    let entries = &workload.entries;
    let sizes = entries.iter().filter(|entry| entry.body_bytes.is_some()).count();
    let digests = entries.iter().filter(|entry| entry.sha256.is_some()).count();
    let mut text = format!(
        "{}; {} known, {} known\n",
        count(entries.len(), "URL"),
        count(sizes, "size"),
        count(digests, "digest")
    );
    if let Some(mean) = workload.body_bytes_mean() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "the mean body size is {mean:.0} bytes");
    }
    for class in &workload.classes {
        let _ = writeln!(text, "{:6.2} %  {}", 100.0 * class.share, class.name);
    }
    text
}

fn log_value(log: &AccessLog) -> Value {
    let skipped: serde_json::Map<_, _> =
        log.skips().map(|(skip, lines)| (skip.name().to_owned(), json!(lines))).collect();
    json!({
        "lines": log.lines, "requests": log.requests.len(), "urls": log.entries.len(), "clients": log.clients,
        "skipped": skipped,
    })
}

fn log_text(log: &AccessLog, replay: Option<&Replay>) -> String {
    let mut text = format!(
        "{} lines; {} for {} from {}\n",
        log.lines,
        count(log.requests.len(), "request"),
        count(log.entries.len(), "URL"),
        count(log.clients as usize, "client")
    );
    if let Some(replay) = replay {
        let last = replay.requests.last().map_or(0, |request| request.at_ns);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:.3} s long, {}", last as f64 / 1e9, count(replay.sessions as usize, "session"));
    }
    text + skipped(log).trim_start_matches('\n') + if log.skipped_total() > 0 { "\n" } else { "" }
}

/// Formats a number with a noun: `1 file`, `2 files`.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
