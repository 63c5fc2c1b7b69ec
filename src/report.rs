//! `flatout report`: shows results, overlays them, or converts them to other formats.

use clap::Args;
use flatout_load::report::RunReport;
use flatout_report::classic::Classic;
use flatout_report::output::{self, Output};
use flatout_report::style::Style;
use flatout_report::{bundle, hlog, html, prometheus, series, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code if a result could not be read or written.
const FAILED: u8 = 1;

/// Exit code for invalid usage.
const USAGE: u8 = 2;

/// Show, overlay or convert results from `flatout bench`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  flatout report a.json                         show the report as text
  flatout report a.json --view httperf          print it in the format of httperf
  flatout report a.json b.json --html ab.html   both runs overlaid on one page
  flatout report bundle/ --csv tables/          a bundle as CSV tables

Exit codes:
  0  success
  1  a result could not be read or written
  2  the command line is invalid")]
pub(crate) struct ReportArgs {
    /// Results: files from `flatout bench --json`, or folders from `--bundle`
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// Write all results to FILE, overlaid on one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Print in the format of httperf, webstone, ptester, wrk or autobench
    #[arg(long, value_name = "NAME", value_parser = Classic::parse)]
    view: Option<Classic>,
    /// Write the result as CSV tables to this folder (one result only)
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Write Prometheus metrics to FILE, for the textfile collector of node_exporter (one result only)
    #[arg(long, value_name = "FILE")]
    prometheus: Option<String>,
    /// Write the histograms to FILE as an HdrHistogram log (one result only)
    #[arg(long, value_name = "FILE")]
    hlog: Option<String>,
    /// Write the result to FILE as JSON, or multiple results as an array; `-` prints only the JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

/// Runs the command.
pub(crate) fn run(args: &ReportArgs) -> ExitCode {
    let one_only =
        [("--csv", args.csv.is_some()), ("--prometheus", args.prometheus.is_some()), ("--hlog", args.hlog.is_some())];
    if let (Some((flag, _)), true) = (one_only.iter().find(|(_, is_given)| *is_given), args.results.len() > 1) {
        return complain(&format!("{flag} takes only one result"), USAGE);
    }
    match show(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => complain(&text, FAILED),
    }
}

fn show(args: &ReportArgs) -> Result<(), String> {
    let reports: Vec<RunReport> = args
        .results
        .iter()
        .map(|path| bundle::read(path).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    let mut is_shown = false;
    let mut put = |output: Option<&String>, content: &dyn Fn() -> Result<String, String>| match output {
        Some(name) => {
            is_shown |= name == "-";
            write(name, &content()?)
        }
        None => Ok(()),
    };
    put(args.html.as_ref(), &|| Ok(html::page(&reports)))?;
    put(args.prometheus.as_ref(), &|| Ok(prometheus::metrics(&reports[0])))?;
    put(args.hlog.as_ref(), &|| Ok(hlog::log(&reports[0]).encode()))?;
    put(args.json.as_ref(), &|| json(&reports))?;
    if let Some(folder) = &args.csv {
        write_tables(folder, &reports[0])?;
    }
    if is_shown {
        return Ok(());
    }
    let style = Style::of(&std::io::stdout());
    let shown: Vec<String> = match args.view {
        Some(view) => reports.iter().map(|report| view.print(report)).collect(),
        // If files were requested, do not also print the text.
        None if args.html.is_some()
            || args.csv.is_some()
            || args.prometheus.is_some()
            || args.hlog.is_some()
            || args.json.is_some() =>
        {
            return Ok(());
        }
        None => reports.iter().map(|report| text::print(report, style)).collect(),
    };
    output::show(&shown.join("\n")).map_err(|error| format!("cannot write the report: {error}"))
}

fn json(reports: &[RunReport]) -> Result<String, String> {
    let written = match reports {
        [report] => return report.encode().map_err(|error| error.to_string()),
        reports => serde_json::to_string_pretty(reports),
    };
    written.map_err(|error| error.to_string())
}

/// Writes a file atomically, or to standard output if the name is `-`.
pub(crate) fn write(name: &str, content: &str) -> Result<(), String> {
    Output::parse(name).write(content.trim_end()).map_err(|error| format!("cannot write {name}: {error}"))
}

/// Writes every table of a result into a folder. Creates the folder if necessary.
pub(crate) fn write_tables(folder: &Path, report: &RunReport) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    let mut lost = Vec::new();
    for (name, table) in series::files(report) {
        let path = folder.join(name);
        if let Err(error) = fs::write(&path, table) {
            lost.push(format!("cannot write {}: {error}", path.display()));
        }
    }
    if lost.is_empty() { Ok(()) } else { Err(lost.join("; ")) }
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("report", text);
    ExitCode::from(code)
}
