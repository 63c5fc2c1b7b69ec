//! `flatout report`: results shown again, laid over each other, or turned into other forms.

use clap::Args;
use flatout_load::report::RunReport;
use flatout_report::classic::Classic;
use flatout_report::output::{self, Output};
use flatout_report::style::Style;
use flatout_report::{bundle, hlog, html, prometheus, series, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The result could not be read or written.
const FAILED: u8 = 1;

/// Bad usage.
const USAGE: u8 = 2;

/// Show, overlay or convert results of `flatout bench`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  flatout report a.json                         the report as text
  flatout report a.json --view httperf          in the format of httperf
  flatout report a.json b.json --html ab.html   both runs overlaid on one page
  flatout report bundle/ --csv tables/          a bundle as CSV tables

Exit codes:
  0  success
  1  a result could not be read or written
  2  the command line is invalid")]
pub(crate) struct ReportArgs {
    /// Results: files from `flatout bench --json`, or folders from --bundle
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
    /// Write metrics to FILE for Prometheus' textfile collector (one result only)
    #[arg(long, value_name = "FILE")]
    prometheus: Option<String>,
    /// Write the histograms to FILE as an HdrHistogram log (one result only)
    #[arg(long, value_name = "FILE")]
    hlog: Option<String>,
    /// Write the result to FILE as JSON, several results as a list; `-` prints only the JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &ReportArgs) -> ExitCode {
    let one_only =
        [("--csv", args.csv.is_some()), ("--prometheus", args.prometheus.is_some()), ("--hlog", args.hlog.is_some())];
    if let (Some((flag, _)), true) = (one_only.iter().find(|(_, is_given)| *is_given), args.results.len() > 1) {
        return complain(&format!("{flag} takes one result only"), USAGE);
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
        // Who asked for files does not want the text besides.
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
    output::show(&shown.join("\n")).map_err(|error| format!("the report could not be written: {error}"))
}

fn json(reports: &[RunReport]) -> Result<String, String> {
    let written = match reports {
        [report] => return report.encode().map_err(|error| error.to_string()),
        reports => serde_json::to_string_pretty(reports),
    };
    written.map_err(|error| error.to_string())
}

/// Writes a file whole, or standard output.
pub(crate) fn write(name: &str, content: &str) -> Result<(), String> {
    Output::parse(name).write(content.trim_end()).map_err(|error| format!("cannot write {name}: {error}"))
}

/// Writes every table of a result into a folder, which is made.
pub(crate) fn write_tables(folder: &Path, report: &RunReport) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
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
