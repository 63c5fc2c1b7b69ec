//! A run as Markdown for people and as JSON for programs.

mod lines;

use super::cases::{Bound, Promise};
use super::cores::Cores;
use super::machine::Machine;
use super::rounds::{CaseResult, Series, Spread};
use super::subjects::Subject;
use super::suites::Suite;
use crate::failure::{Context, Outcome};
use crate::shell;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub(super) const DOC: &str = "docs/performance.md";

/// Name and number of the schema of a result.
pub(super) const SCHEMA: &str = "flatout-bench-peers/3";

/// A result needs this many rounds before anybody should quote it.
pub(super) const ROUNDS_MIN: usize = 5;

/// Everything that was measured.
pub(super) struct Run<'a> {
    pub(super) suite: &'a Suite,
    pub(super) machine: &'a Machine,
    pub(super) cores: Cores,
    pub(super) results: &'a [CaseResult],
    pub(super) rounds: usize,
    pub(super) seconds: u64,
}

/// The report between the document's markers.
pub(super) fn markdown(run: &Run<'_>) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} interleaved rounds of {} s each, every second one in the opposite order; server on core {}, client on \
         core {}. Medians, with the least and the most in brackets; ratios are taken within each round.\n",
        run.rounds, run.seconds, run.cores.server, run.cores.client
    );
    if run.rounds < ROUNDS_MIN {
        let _ = writeln!(text, "**Too few rounds to quote: at least {ROUNDS_MIN} are needed.**\n");
    }
    for warning in &run.machine.warnings {
        let _ = writeln!(text, "**Doubtful: {warning}.**\n");
    }
    let _ = writeln!(text, "| | |\n|---|---|");
    for (name, value) in &run.machine.facts {
        let _ = writeln!(text, "| {name} | {} |", value.replace('|', "\\|"));
    }
    let mut tables: Vec<&str> = Vec::new();
    for result in run.results {
        let Some(row) = result.case.row else {
            case_table(&mut text, result);
            continue;
        };
        // Its lines stand where the first of them does.
        if !tables.contains(&row.table) {
            tables.push(row.table);
            let shares = |other: &&CaseResult| other.case.row.is_some_and(|other| other.table == row.table);
            lines::table(&mut text, &run.results.iter().filter(shares).collect::<Vec<_>>());
        }
    }
    commands(&mut text, run.results);
    text
}

fn case_table(text: &mut String, result: &CaseResult) {
    let case = result.case;
    let _ = writeln!(text, "\n### {}\n", case.title);
    let _ = write!(text, "| | {} | {} |", case.kind.unit(), case.kind.rate_unit());
    if case.shows_p99 {
        text.push_str(" p99 ms |");
    }
    for reference in case.references {
        let _ = write!(text, " × {} |", reference.name);
    }
    let _ = writeln!(text, "\n|---|---:|---:|{}", "---:|".repeat(case.references.len() + usize::from(case.shows_p99)));
    for series in &result.series {
        let _ = write!(text, "| {} |", series.subject.name);
        let _ = write!(text, " {} |", spread(Spread::of(series.samples.iter().map(|sample| sample.cost()))));
        let rate = Spread::of(series.samples.iter().map(|sample| sample.rate()));
        let _ = write!(text, " {} |", rate.map_or_else(String::new, |rate| grouped(rate.median)));
        if case.shows_p99 {
            let p99 = series.samples.iter().filter_map(|sample| sample.p99_us).map(|us| us as f64 / 1e3);
            let _ = write!(text, " {} |", spread(Spread::of(p99)));
        }
        for reference in case.references {
            let ratio = if *reference == series.subject {
                "1".to_owned()
            } else {
                result
                    .ratio(series.subject, *reference)
                    .map_or_else(|| "–".to_owned(), |ratio| format!("{:.2}", ratio.median))
            };
            let _ = write!(text, " {ratio} |");
        }
        text.push('\n');
    }
    text.push('\n');
    for promise in case.promises {
        let _ = writeln!(text, "- {}", verdict(result, promise).text);
    }
    for line in agreed_tls(result).into_iter().chain(client_limited(result)) {
        let _ = writeln!(text, "- {line}");
    }
    for (subject, why) in &result.left_out {
        let _ = writeln!(text, "- {} was left out: {why}", subject.name);
    }
}

/// The TLS of each subject; those who agreed on the same stand together.
fn agreed_tls(result: &CaseResult) -> Vec<String> {
    let mut agreed: Vec<(&str, Vec<&str>)> = Vec::new();
    for series in &result.series {
        let Some(tls) = series.tls.as_deref() else { continue };
        match agreed.iter_mut().find(|known| known.0 == tls) {
            Some((_, names)) => names.push(series.subject.name),
            None => agreed.push((tls, vec![series.subject.name])),
        }
    }
    agreed.into_iter().map(|(tls, names)| format!("agreed on with {}: {tls}", names.join(" and "))).collect()
}

/// With this share of its core, a program has no more to give.
const SHARE_FULL: f64 = 0.95;

/// Whose rates say what the client can, and not what they can.
fn client_limited(result: &CaseResult) -> Option<String> {
    let limited =
        |series: &&Series| series.shares().is_some_and(|(server, client)| client >= SHARE_FULL && server < SHARE_FULL);
    let names: Vec<&str> = result.series.iter().filter(limited).map(|series| series.subject.name).collect();
    let all = names.join("; ");
    (!names.is_empty()).then(|| {
        format!("the client's core was full and the server's was not, so that the rate is the client's: {all}")
    })
}

struct Verdict {
    text: String,
    /// `None` when nothing was promised.
    is_held: Option<bool>,
}

fn verdict(result: &CaseResult, promise: &Promise) -> Verdict {
    let Promise { subject, reference, bound } = promise;
    let (ours, theirs) = (subject.name, reference.name);
    let said = match bound {
        Bound::CostAtMost(most) => format!("{ours}: cost at most {most:.2} × {theirs}"),
        Bound::RateAtLeast(least) => format!("{ours}: rate at least {least:.2} × {theirs}"),
        Bound::RateShown => format!("{ours}: rate × {theirs}"),
    };
    let Some(ratio) = result.promised(promise) else {
        let is_held = (*bound != Bound::RateShown).then_some(false);
        return Verdict { text: format!("{said}: not measured"), is_held };
    };
    let is_held = match bound {
        Bound::CostAtMost(most) => Some(ratio.median <= *most),
        Bound::RateAtLeast(least) => Some(ratio.median >= *least),
        Bound::RateShown => None,
    };
    let word = is_held.map_or("", |is_held| if is_held { ", held" } else { ", **missed**" });
    let Spread { median, min, max } = ratio;
    Verdict { text: format!("{said}: {median:.3} [{min:.3} – {max:.3}]{word}"), is_held }
}

/// The promises that were not held, a line each.
pub(super) fn missed(results: &[CaseResult]) -> Vec<String> {
    let mut lines = Vec::new();
    for result in results {
        for promise in result.case.promises {
            let verdict = verdict(result, promise);
            if verdict.is_held == Some(false) {
                lines.push(format!("{}: {}", result.case.name, verdict.text));
            }
        }
    }
    lines
}

/// The exact commands and configurations, each configuration once.
fn commands(text: &mut String, results: &[CaseResult]) {
    let _ = writeln!(text, "\n### Commands\n\n```text");
    let of_case = |result: &CaseResult| {
        let own = result.series.iter().map(|series| series.shown.clone());
        own.chain(result.series.iter().map(|series| series.client.clone())).collect::<Vec<_>>()
    };
    let mut seen = BTreeSet::from([String::new()]);
    for command in results.iter().flat_map(of_case) {
        if seen.insert(command.clone()) {
            let _ = writeln!(text, "{command}");
        }
    }
    let _ = writeln!(text, "```");
    for (subject, config, cases) in configurations(results) {
        let (name, cases) = (subject.name, cases.join(", "));
        let _ = writeln!(text, "\n### Configuration: {name} ({cases})\n\n```text\n{config}```");
    }
}

/// Each configuration once, with the cases that it served.
fn configurations(results: &[CaseResult]) -> Vec<(Subject, &str, Vec<&str>)> {
    let mut found: Vec<(Subject, &str, Vec<&str>)> = Vec::new();
    for result in results {
        for series in &result.series {
            let Some(config) = series.config.as_deref() else { continue };
            let name = result.case.row.map_or(result.case.name, |row| row.table);
            match found.iter_mut().find(|known| (known.0, known.1) == (series.subject, config)) {
                Some((_, _, cases)) if cases.contains(&name) => {}
                Some((_, _, cases)) => cases.push(name),
                None => found.push((series.subject, config, vec![name])),
            }
        }
    }
    found
}

fn spread(spread: Option<Spread>) -> String {
    let digits = |figure: f64| if figure < 100.0 { format!("{figure:.2}") } else { format!("{figure:.0}") };
    spread.map_or_else(String::new, |Spread { median, min, max }| {
        format!("**{}** [{} – {}]", digits(median), digits(min), digits(max))
    })
}

/// A whole number with a thin blank between its thousands.
fn grouped(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Every sample, for programs, as text.
pub(super) fn json(run: &Run<'_>) -> String {
    let facts = run.machine.facts.iter().map(|(name, value)| json!({ "name": name, "value": value }));
    let series = |series: &Series| {
        let samples = series.samples.iter().map(|sample| {
            json!({ "cpu_ns": sample.cpu_ns, "work": sample.work, "seconds": sample.seconds, "cost_us": sample.cost(),
                "rate": sample.rate(), "client_cpu_ns": sample.client_ns, "p99_us": sample.p99_us })
        });
        json!({
            "subject": series.subject.name,
            "command": series.shown,
            "client": series.client,
            "config": series.config,
            "tls": series.tls,
            "samples": samples.collect::<Vec<_>>(),
        })
    };
    let result = |result: &CaseResult| {
        let promises = result.case.promises.iter().map(|promise| {
            let ratio = result.promised(promise);
            let (cost_at_most, rate_at_least) = match promise.bound {
                Bound::CostAtMost(most) => (Some(most), None),
                Bound::RateAtLeast(least) => (None, Some(least)),
                Bound::RateShown => (None, None),
            };
            json!({
                "subject": promise.subject.name,
                "reference": promise.reference.name,
                "of": if cost_at_most.is_some() { "cost" } else { "rate" },
                "cost_at_most": cost_at_most,
                "rate_at_least": rate_at_least,
                "ratio_median": ratio.map(|ratio| ratio.median),
                "ratio_min": ratio.map(|ratio| ratio.min),
                "ratio_max": ratio.map(|ratio| ratio.max),
                "held": verdict(result, promise).is_held,
            })
        });
        json!({
            "case": result.case.name,
            "title": result.case.title,
            "unit": result.case.kind.unit(),
            "rate_unit": result.case.kind.rate_unit(),
            "series": result.series.iter().map(series).collect::<Vec<_>>(),
            "promises": promises.collect::<Vec<_>>(),
            "left_out": result.left_out.iter().map(|(subject, why)| json!({ "subject": subject.name, "why": why })).collect::<Vec<_>>(),
        })
    };
    let value = json!({
        "schema": SCHEMA,
        "suite": run.suite.name,
        "machine": facts.collect::<Vec<_>>(),
        "warnings": run.machine.warnings,
        "server_core": run.cores.server,
        "client_core": run.cores.client,
        "rounds": run.rounds,
        "seconds": run.seconds,
        "cases": run.results.iter().map(result).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

/// Puts the report between the suite's markers in docs/performance.md.
pub(super) fn write_into_doc(suite: &Suite, markdown: &str) -> Outcome<()> {
    let file = shell::root().join(DOC);
    let text = std::fs::read_to_string(&file).cannot(&format!("read {DOC}"))?;
    let text = replaced(&text, &suite.markers(), markdown)?;
    std::fs::write(&file, text).cannot(&format!("write {DOC}"))
}

fn replaced(text: &str, (begin, end): &(String, String), markdown: &str) -> Outcome<String> {
    let (before, _, after) = parts(text, begin, end)?;
    Ok(format!("{before}{begin}\n{}\n{end}{after}", markdown.trim_end()))
}

/// What stands between a suite's markers.
pub(super) fn section<'t>(text: &'t str, suite: &Suite) -> Outcome<&'t str> {
    let (begin, end) = suite.markers();
    parts(text, &begin, &end).map(|(_, section, _)| section)
}

/// What stands before the markers, between them and after them.
fn parts<'t>(text: &'t str, begin: &str, end: &str) -> Outcome<(&'t str, &'t str, &'t str)> {
    let missing = format!("find `{begin}` and `{end}` in {DOC}");
    let (before, rest) = text.split_once(begin).cannot(&missing)?;
    let (section, after) = rest.split_once(end).cannot(&missing)?;
    Ok((before, section, after))
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::super::rounds::Sample;
    use super::super::subjects::{APACHE, APACHE_DIGEST, BARE, FLATOUT, NGINX};
    use super::super::suites::SUITES;
    use super::*;

    fn series(subject: Subject, cpu_ns: u64) -> Series {
        let sample = Sample { cpu_ns, client_ns: Some(990_000), work: 1.0, seconds: 0.001, p99_us: None };
        Series { samples: vec![sample], ..Series::of(subject) }
    }

    fn result(ours: u64, floor: u64) -> CaseResult {
        CaseResult {
            case: CASES.iter().find(|case| case.name == "close").unwrap(),
            series: vec![series(BARE, floor), series(FLATOUT, ours)],
            left_out: vec![(NGINX, "not here".to_owned())],
        }
    }

    #[test]
    fn a_missed_target_an_absent_peer_and_a_busy_client_are_said_aloud() {
        assert_eq!(missed(&[result(11_000, 10_000)]), Vec::<String>::new());
        assert_eq!(missed(&[result(11_100, 10_000)]).len(), 1);
        let mut text = String::new();
        case_table(&mut text, &result(11_100, 10_000));
        assert!(text.contains("**missed**") && text.contains("nginx was left out: not here"), "{text}");
        assert!(text.contains("| flatout | **11.10** [11.10 – 11.10] | 1\u{202f}000 | 1.11 | – | – | – |"), "{text}");
        assert!(text.contains("the rate is the client's: bare loop; flatout"), "{text}");
    }

    #[test]
    fn a_ratio_without_a_promise_is_shown_and_cannot_be_missed() {
        let case = CASES.iter().find(|case| case.name == "jigsaw").unwrap();
        let result =
            CaseResult { case, series: vec![series(APACHE, 1), series(APACHE_DIGEST, 9)], left_out: Vec::new() };
        let shown = case.promises.iter().find(|promise| promise.subject == APACHE_DIGEST).unwrap();
        let verdict = verdict(&result, shown);
        assert!(verdict.is_held.is_none() && verdict.text.ends_with("1.000 [1.000 – 1.000]"), "{}", verdict.text);
        // What was promised of us and not measured is missed.
        assert_eq!(missed(&[result]).len(), 1);
    }

    #[test]
    fn those_who_agreed_on_the_same_tls_stand_together() {
        let with = |subject, tls: &str| Series { tls: Some(tls.to_owned()), ..series(subject, 1) };
        let series = vec![with(FLATOUT, "A"), with(APACHE, "B"), with(NGINX, "A")];
        let result = CaseResult { case: &CASES[0], series, left_out: Vec::new() };
        let lines = agreed_tls(&result);
        assert_eq!(lines, ["agreed on with flatout and nginx: A", "agreed on with apache2, ContentDigest Off: B"]);
    }

    #[test]
    fn only_what_stands_between_the_markers_is_replaced() {
        for suite in SUITES {
            let markers = suite.markers();
            let (begin, end) = &markers;
            let text = format!("a\n{begin}\nold\n{end}\nb\n");
            assert_eq!(replaced(&text, &markers, "new\n").unwrap(), format!("a\n{begin}\nnew\n{end}\nb\n"));
            assert!(replaced("no markers", &markers, "new").is_err());
            let doc = std::fs::read_to_string(shell::root().join(DOC)).unwrap();
            assert!(replaced(&doc, &markers, "new").is_ok(), "{}", suite.name);
        }
    }
}
