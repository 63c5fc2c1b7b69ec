//! `flatout suite`: runs experiments described in files.

use crate::bench;
use crate::config::Color;
use clap::{Args, Subcommand};
use flatout_client::{watch_endings, watch_interrupts};
use flatout_config::{Diagnostics, Disk};
use flatout_lab::view::live::LiveLine;
use flatout_report::output::{self, Output, print};
use flatout_report::style::{Style, shown};
use flatout_suite::arguments::command_lines;
use flatout_suite::document::{Given, Verdict};
use flatout_suite::run::progress::SuiteProgress;
use flatout_suite::run::{self, Options, StopRequest, SuiteReporter};
use flatout_suite::why::Reason;
use flatout_suite::{Suite, SuiteReport, bundle, combine, keeper, server};
use flatout_units::show;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Exit code if something failed. Everything else was measured.
const FAILED: u8 = 1;

/// Exit code if the command line or the suite's file is invalid.
const USAGE: u8 = 2;

/// Exit code if a check was missed.
const MISSED: u8 = 4;

/// Exit code if a measurement has no valid figure.
const INVALID: u8 = 5;

/// Exit code after Ctrl-C, as shells report it.
const INTERRUPTED: u8 = 130;

/// Maximum time to stop the servers when a suite is interrupted.
const END_TIMEOUT: Duration = Duration::from_mins(1);

/// Run an experiment described in a file
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout suite list suites/coyote.kdl               show servers, steps and duration
  flatout suite run suites/coyote.kdl --quick        test that everything works
  flatout suite run suites/coyote.kdl --out coyote   run it and write its results to a folder
  flatout suite judge coyote                         re-evaluate the checks
  flatout suite tables coyote                        print the results as Markdown tables

To resume an interrupted suite, run the same command again.

Exit codes:
  0    everything was measured, and no check failed
  1    a server, a measurement or a testbed failed
  2    the command line or a file is invalid
  4    a check failed (not with --quick)
  5    a measurement has no valid figure (not with --quick)
  130  the run was interrupted")]
#[group(skip)]
pub(crate) struct SuiteArgs {
    #[command(subcommand)]
    verb: SuiteVerb,
}

#[derive(Subcommand, Debug)]
enum SuiteVerb {
    Run(RunArgs),
    List(ListArgs),
    Check(CheckArgs),
    Judge(JudgeArgs),
    Tables(TablesArgs),
    #[command(hide = true)]
    Probe(ProbeArgs),
}

/// Run suites, or resume interrupted ones
#[derive(Args, Debug)]
struct RunArgs {
    /// Suite files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Do a short run to test that everything works, with fewer repetitions and values
    ///
    /// Do not quote figures from a quick run. Its checks do not affect the exit code.
    #[arg(long)]
    quick: bool,
    /// Folder for the results [default: suite-results/NAME]
    ///
    /// If you run multiple suites, each gets a subfolder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only this step; may be repeated
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Delete earlier results in the folder and start over
    #[arg(long)]
    fresh: bool,
    /// Price of the machine in dollars, for figures per dollar
    #[arg(long, value_name = "DOLLARS", value_parser = parse_positive)]
    price: Option<f64>,
    /// Power consumption of the machine under load in watts, for figures per watt
    #[arg(long, value_name = "WATTS", value_parser = parse_positive)]
    watts: Option<f64>,
    /// Write the result to FILE as JSON; `-` prints only the JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Show the servers, steps and duration of suites, and which programs are installed
#[derive(Args, Debug)]
struct ListArgs {
    /// Suite files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show what `suite run --quick` would run
    #[arg(long)]
    quick: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Check suite files and report every error
#[derive(Args, Debug)]
struct CheckArgs {
    /// Suite files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Re-evaluate the checks of a finished run and rewrite its report
#[derive(Args, Debug)]
struct JudgeArgs {
    /// Folder of the run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Use the checks in this suite file instead of the one saved in the folder
    #[arg(long, value_name = "FILE")]
    suite: Option<PathBuf>,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Print the results of a run as Markdown tables
#[derive(Args, Debug)]
struct TablesArgs {
    /// Folder of the run
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Check from within a testbed whether a server is ready
#[derive(Args, Debug)]
struct ProbeArgs {
    address: SocketAddr,
    path: Option<String>,
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("{text:?} is not a number above 0"))
}

/// Runs the command.
pub(crate) fn run(args: &SuiteArgs) -> ExitCode {
    match &args.verb {
        SuiteVerb::Run(args) => run_all(args),
        SuiteVerb::List(args) => list(args),
        SuiteVerb::Check(args) => check(args),
        SuiteVerb::Judge(args) => judge(args),
        SuiteVerb::Tables(args) => match bundle::read(&args.folder) {
            Ok(report) => printed(&flatout_suite::report::tables(&report)),
            Err(error) => complain(&error.to_string(), FAILED),
        },
        SuiteVerb::Probe(args) => match server::ready::probe(args.address, args.path.as_deref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => {
                eprintln!("{}", shown(&text));
                ExitCode::from(FAILED)
            }
        },
    }
}

/// Reads all suites. Reports the errors in all of them at once.
fn read_all(files: &[PathBuf], color: Color, json: bool) -> Result<Vec<Suite>, ExitCode> {
    let (mut suites, mut wrong): (Vec<Suite>, Vec<Diagnostics>) = (Vec::new(), Vec::new());
    for file in files {
        match flatout_suite::read(file, &Disk) {
            Ok(suite) => suites.push(suite),
            Err(diagnostics) => wrong.push(diagnostics),
        }
    }
    let faults: Vec<String> = suites.iter().flat_map(faults_of_arguments).collect();
    if wrong.is_empty() && faults.is_empty() {
        return Ok(suites);
    }
    if json && !faults.is_empty() {
        let _printed = print(&format!("{:#}\n", json!({ "valid": false, "arguments": faults })));
    } else {
        for fault in &faults {
            eprintln!("error: {}", shown(fault));
        }
    }
    for diagnostics in &wrong {
        if json {
            // A closed pipe is not an error.
            let _printed = print(&format!("{:#}\n", diagnostics.to_json()));
        } else {
            eprint!("{}", diagnostics.render(color.style()));
        }
    }
    Err(ExitCode::from(USAGE))
}

/// Returns the errors in the bench arguments of a suite's steps, as `bench` itself reports them.
fn faults_of_arguments(suite: &Suite) -> Vec<String> {
    let mut faults: Vec<String> = Vec::new();
    for step in &suite.steps {
        for line in command_lines(suite, step) {
            let Err(text) = bench::check(&line.words, line.is_known) else { continue };
            let place = &line.place;
            let name = &step.name;
            let fault = format!("{}:{}:{}: step `{name}`: bench: {text}", place.file, place.line, place.column);
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    }
    faults
}

fn check(args: &CheckArgs) -> ExitCode {
    let suites = match read_all(&args.files, args.color, args.json) {
        Ok(suites) => suites,
        Err(code) => return code,
    };
    let text: String = if args.json {
        json!({ "valid": true }).to_string()
    } else {
        suites.iter().map(|suite| format!("{} is valid\n", suite.file.display())).collect()
    };
    printed(&text)
}

fn list(args: &ListArgs) -> ExitCode {
    let suites = match read_all(&args.files, args.color, args.json) {
        Ok(suites) => suites,
        Err(code) => return code,
    };
    let own = match own_program() {
        Ok(own) => own,
        Err(text) => return complain(&text, FAILED),
    };
    if args.json {
        let values: Vec<_> = suites.iter().map(|suite| listed_value(suite, args.quick, &own)).collect();
        return printed(&format!("{:#}\n", serde_json::Value::from(values)));
    }
    let text: Vec<String> = suites.iter().map(|suite| listed(suite, args.quick, &own)).collect();
    printed(&text.join("\n"))
}

fn listed_value(suite: &Suite, quick: bool, own: &std::path::Path) -> serde_json::Value {
    let servers = suite.servers.iter().map(|server| {
        let found = server::find(&server.program, own, env!("CARGO_PKG_VERSION"));
        let absent = found.as_ref().err().map(|why| json!({ "name": why.name, "text": why.text }));
        json!({
            "name": server.name,
            "program": found.as_ref().ok().map(|found| found.path.display().to_string()),
            "package": server.program.package,
            "absent": absent,
        })
    });
    let steps = suite.steps.iter().map(|step| {
        json!({
            "name": step.name,
            "about": step.about,
            "servers": step.servers.iter().map(|server| server.text.as_str()).collect::<Vec<_>>(),
            "measurements": run::measurements_of(suite, step, quick),
            "seconds": run::seconds_of_step(suite, step, quick),
        })
    });
    json!({
        "suite": suite.name,
        "about": suite.about,
        "file": suite.file.display().to_string(),
        "servers": servers.collect::<Vec<_>>(),
        "steps": steps.collect::<Vec<_>>(),
        "checks": suite.checks.iter().map(|check| check.name.as_str()).collect::<Vec<_>>(),
    })
}

fn listed(suite: &Suite, quick: bool, own: &std::path::Path) -> String {
    let mut text = format!("{}: {}\n", suite.name, suite.about);
    text.push_str("  servers\n");
    for server in &suite.servers {
        let state = match server::find(&server.program, own, env!("CARGO_PKG_VERSION")) {
            Ok(found) => found.version.unwrap_or_else(|| found.path.display().to_string()),
            Err(why) => format!("left out: {}", why.text),
        };
        let _written = writeln!(text, "    {:16} {state}", server.name);
    }
    text.push_str("  steps\n");
    let mut seconds = 0.0;
    for step in &suite.steps {
        let runs = run::measurements_of(suite, step, quick);
        let step_s = run::seconds_of_step(suite, step, quick);
        seconds += step_s;
        let names: Vec<String> =
            combine::variables_of(suite, step).iter().map(|variable| format!(" by {}", variable.name)).collect();
        let plural = show::plural(runs as u64, "measurement", "measurements");
        let _written = writeln!(text, "    {:16} {plural}{}, {}", step.name, names.concat(), lasting(step_s));
        if !step.about.is_empty() {
            let _written = writeln!(text, "    {:16} {}", "", step.about);
        }
    }
    let _written = write!(
        text,
        "  checks\n{}",
        suite.checks.iter().map(|check| format!("    {}\n", check.name)).collect::<String>()
    );
    let _written = writeln!(text, "  total: about {}", lasting(seconds));
    text
}

/// Formats a duration for people.
fn lasting(seconds: f64) -> String {
    match seconds.round() as u64 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Returns the path of this program, which makes every measurement.
fn own_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))
}

/// The request to stop. It is static, so that the threads that watch for signals can set it.
static STOP: StopRequest = StopRequest::new();

/// True when everything has been stopped, so that the process may exit.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// True if a signal other than Ctrl-C ends the process. The thread that watches for the signal then chooses the exit
/// code.
static IS_ENDED: AtomicBool = AtomicBool::new(false);

fn judge(args: &JudgeArgs) -> ExitCode {
    let file = args.suite.clone().unwrap_or_else(|| args.folder.join("suite.kdl"));
    let suites = match read_all(std::slice::from_ref(&file), args.color, false) {
        Ok(suites) => suites,
        Err(code) => return code,
    };
    let judged = bundle::read(&args.folder).and_then(|mut report| {
        if let Some(suite) = suites.first() {
            report.checks = flatout_suite::judge::judge(suite, &report, report.quick);
        }
        bundle::write(&args.folder, &report)?;
        Ok(report)
    });
    let report = match judged {
        Ok(report) => report,
        Err(error) => return complain(&error.to_string(), FAILED),
    };
    if let Err(error) = flatout_suite::report::write(&report, &args.folder) {
        return complain(&format!("cannot write the report: {error}"), FAILED);
    }
    // A closed pipe is not an error.
    let _printed = print(&flatout_suite::report::text(&report, Style::of(&io::stdout())));
    ExitCode::from(code_of(&report))
}

fn run_all(args: &RunArgs) -> ExitCode {
    if !keeper::is_kept() {
        return match keeper::keep() {
            Ok(code) => ExitCode::from(code),
            Err(error) => complain(&format!("cannot start this program again: {error}"), FAILED),
        };
    }
    let suites = match read_all(&args.files, args.color, args.json.as_deref() == Some("-")) {
        Ok(suites) => suites,
        Err(code) => return code,
    };
    let output = args.json.as_deref().map(Output::parse);
    if let Some(output) = &output
        && let Err(error) = output.check()
    {
        return complain(&format!("cannot write the result: {error}"), USAGE);
    }
    let own = match own_program() {
        Ok(own) => own,
        Err(text) => return complain(&text, FAILED),
    };
    let watching = watch_interrupts(|_| STOP.ask()).and_then(|()| {
        watch_endings(|| {
            IS_ENDED.store(true, Ordering::Release);
            STOP.ask();
            let begun = Instant::now();
            while !IS_OVER.load(Ordering::Acquire) && begun.elapsed() < END_TIMEOUT {
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    });
    if let Err(error) = watching {
        return complain(&error.to_string(), FAILED);
    }
    let several = suites.len() > 1;
    let (mut code, mut reports) = (0, Vec::new());
    for suite in &suites {
        let out = match (&args.out, several) {
            (Some(out), true) => out.join(&suite.name),
            (Some(out), false) => out.clone(),
            (None, _) => PathBuf::from("suite-results").join(&suite.name),
        };
        let options = Options {
            quick: args.quick,
            out: out.clone(),
            only: args.only.clone(),
            fresh: args.fresh,
            given: Given { dollars: args.price, watts: args.watts },
            command: std::env::args().collect(),
            own: own.clone(),
        };
        let mut shown = Shown::new();
        let ran = run::run(suite, &options, &mut shown, &STOP);
        shown.line.clear();
        match ran {
            Ok(report) => {
                code = worse(code, code_of(&report));
                if output != Some(Output::Stdout) {
                    // A closed pipe is not an error.
                    let page = out.join("report.html");
                    let text = flatout_suite::report::text(&report, Style::of(&io::stdout()));
                    let _printed = output::show(&format!("{text}{}\n{}\n", out.display(), page.display()));
                }
                reports.push(report);
            }
            Err(error) => {
                complain(&error.to_string(), USAGE);
                code = worse(code, if matches!(error, run::RunError::Bundle(_)) { FAILED } else { USAGE });
            }
        }
        if STOP.is_asked() {
            break;
        }
    }
    if let Some(output) = &output {
        let value = match reports.as_slice() {
            [report] if !several => serde_json::to_value(report),
            reports => serde_json::to_value(reports),
        };
        if let Err(error) = output.write(&format!("{:#}", value.unwrap_or_default())) {
            complain(&format!("cannot write the result: {error}"), FAILED);
            code = worse(code, FAILED);
        }
    }
    IS_OVER.store(true, Ordering::Release);
    if IS_ENDED.load(Ordering::Acquire) {
        std::thread::sleep(END_TIMEOUT);
    }
    ExitCode::from(code)
}

/// Returns the more important of two exit codes.
fn worse(one: u8, other: u8) -> u8 {
    const ORDER: [u8; 6] = [INTERRUPTED, FAILED, USAGE, MISSED, INVALID, 0];
    let rank = |code: u8| ORDER.iter().position(|known| *known == code).unwrap_or(0);
    if rank(one) <= rank(other) { one } else { other }
}

fn code_of(report: &SuiteReport) -> u8 {
    let failures = report.troubles.iter().any(|trouble| Reason::of(&trouble.why).is_none_or(Reason::is_failure));
    let is_missed = report.checks.iter().any(|check| check.verdict == Verdict::Missed);
    let is_invalid = report.steps.iter().flat_map(|step| &step.cells).any(flatout_suite::document::Cell::has_worthless);
    if report.interrupted {
        INTERRUPTED
    } else if failures {
        FAILED
    } else if report.quick {
        0
    } else if is_missed {
        MISSED
    } else if is_invalid {
        INVALID
    } else {
        0
    }
}

/// Shows progress on standard error.
struct Shown {
    line: LiveLine,
    is_terminal: bool,
}

impl Shown {
    fn new() -> Self {
        Self { line: LiveLine::new(), is_terminal: io::stderr().is_terminal() }
    }
}

impl SuiteReporter for Shown {
    fn tell(&mut self, told: &SuiteProgress<'_>) {
        if self.is_terminal {
            let left = lasting(told.left_s);
            self.line.show(&format!("{}/{}  {left} left  {}", told.done, told.all, told.what));
        }
    }

    fn say(&mut self, line: &str) {
        self.line.clear();
        eprintln!("{}", shown(line));
    }
}

fn printed(text: &str) -> ExitCode {
    match output::show(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("cannot write to standard output: {error}"), FAILED),
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("suite", text);
    ExitCode::from(code)
}
