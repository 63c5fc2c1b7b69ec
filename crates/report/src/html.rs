//! The report as a single self-contained HTML page with inline SVG. It needs no network access, scripts or fonts.
//!
//! The page is self-explanatory. It begins with the verdict in words and ends with everything needed to repeat the run:
//! machine, versions, command, seed and limits. It supports light and dark mode, phones and print. The charts of
//! several runs are overlaid.

mod method;
mod plots;
mod tables;

pub(super) use plots::whole_points;
pub use plots::{figure, swatch};

use super::verdict::{self, Tone, Verdict};
use flatout_http::date::format_date;
use flatout_load::report::RunReport;
use flatout_units::show;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style sheet with colours and sizes, also for dark mode, phones and print.
const STYLE: &str = include_str!("html/report.css");

/// The Content-Security-Policy of the page: whatever a result contains, the page loads nothing, and only its own style
/// applies.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Returns the page of one run, or of several runs whose charts are overlaid.
pub fn page(reports: &[RunReport]) -> String {
    let names = names(reports);
    let title = names.join(" · ");
    let header = html! {
        h1 { (title) }
        @for (index, report) in reports.iter().enumerate() { (summary(index, report, &names[index], reports.len() > 1)) }
    };
    let main = html! {
        (tables::steps(reports, &names))
        (plots::all(reports, &names))
        (tables::phases(reports, &names))
        (tables::errors(reports, &names))
        (tables::classes(reports, &names))
        (tables::costs(reports, &names))
        (tables::agents(reports, &names))
        (method::findings(reports, &names))
        (method::repeat(reports, &names))
    };
    document(&format!("{title} – load report"), "", &header, &main)
}

/// Returns a complete page: a head that forbids loading, the default style and `more_style`, and the content.
pub fn document(title: &str, more_style: &str, header: &Markup, main: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "flatout " (env!("CARGO_PKG_VERSION")) };
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(more_style)) }
            }
            body {
                header { (header) }
                main { (main) }
                footer { p { "Written by flatout " (env!("CARGO_PKG_VERSION")) ". This page is self-contained." } }
            }
        }
    }
    .into_string()
}

/// Returns the label of each run, with a number if several runs have the same label.
fn names(reports: &[RunReport]) -> Vec<String> {
    let name = |index: usize| {
        let label = &reports[index].label;
        let is_alone = reports.iter().filter(|other| other.label == *label).count() == 1;
        if is_alone { label.clone() } else { format!("{label} ({})", index + 1) }
    };
    (0..reports.len()).map(name).collect()
}

fn summary(index: usize, report: &RunReport, name: &str, is_named: bool) -> Markup {
    let Verdict { tone, headline, figures, reasons } = verdict::of(report);
    let class = match tone {
        Tone::Good => "good",
        Tone::Partly | Tone::Failed => "failed",
        Tone::Invalid => "invalid",
    };
    html! {
        section.verdict.(class) {
            @if is_named { h2 { (swatch(index, false)) (name) } }
            p.headline { (headline) }
            p.figures { (figures) }
            @if !reasons.is_empty() { ul { @for reason in &reasons { li { (reason) } } } }
            p.facts {
                (report.url) ", " (report.protocol) ", " (date(report.begun_unix_ms)) ", flatout " (report.flatout_version)
                @if report.agents > 0 { ", " (show::plural(u64::from(report.agents), "agent", "agents")) }
            }
        }
    }
}

/// Formats a time in the format of HTTP, to the second.
pub fn date(unix_ms: u64) -> String {
    let date = format_date((unix_ms / 1000).cast_signed());
    String::from_utf8_lossy(&date).into_owned()
}

/// Returns the text with its first letter in upper case.
pub fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests;
