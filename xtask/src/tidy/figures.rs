//! Figures that documents quote from kept results are the figures of those results.
//!
//! `results/quoted.tsv` has a line for each quotation: the document, the words quoted, and where each number in them
//! comes from. Columns are separated by tabs, sources by `;`, in the order of the numbers:
//!
//! | source | the number is |
//! |---|---|
//! | `FOLDER STEP[NAME=VALUE,…] SERVER MEASURE` | the median of that cell's figure |
//! | `FOLDER check N` | the ratio of the N-th check's only finding, or its figure where nothing is compared |
//! | `FOLDER check N min`, `… max` | the least and the greatest ratio of its findings |
//! | `FOLDER check N low`, `… high` | the end of the interval of its only finding's ratio |
//! | `given` | not measured: a setting of the experiment, or a fact of its time |
//!
//! `FOLDER` is a bundle below `results/`. `/ N` after a source divides its figure, for units. A number matches when the
//! figure, rounded to as many digits, is that number. In the paragraphs that begin with [`FOUND`], and in tables that
//! link a bundle, every number must be quoted.
//!
//! An end-to-end test compares the tables in docs/performance.md with the kept results.

use super::Finding;
use super::tree::Tree;
use crate::shell;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

const QUOTED: &str = "results/quoted.tsv";

/// Begins a paragraph in which every number is measured.
const FOUND: &str = "**New results.**";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(quoted) = tree.text(QUOTED) else { return findings };
    let mut reports = BTreeMap::new();
    let mut phrases: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (index, line) in quoted.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let (Some(document), Some(phrase), Some(sources)) = (columns.next(), columns.next(), columns.next()) else {
            findings.push(Finding::at(QUOTED, index + 1, "a line is a document, the words and their sources"));
            continue;
        };
        phrases.entry(document).or_default().push(phrase);
        let load = |folder: &str| read_report(folder);
        if let Err(why) = check_quotation(tree, &mut reports, load, document, phrase, sources) {
            findings.push(Finding::at(QUOTED, index + 1, why));
        }
    }
    for (document, phrases) in &phrases {
        findings.extend(unquoted(document, tree.text(document).unwrap_or(""), phrases));
    }
    findings
}

fn check_quotation(
    tree: &Tree,
    reports: &mut BTreeMap<String, Value>,
    load: impl Fn(&str) -> Result<Value, String>,
    document: &str,
    phrase: &str,
    sources: &str,
) -> Result<(), String> {
    let text = tree.text(document).ok_or_else(|| format!("there is no document {document}"))?;
    if !flat(text).contains(phrase) {
        return Err(format!("{document} does not say `{phrase}`"));
    }
    let numbers = numbers(phrase);
    let sources: Vec<&str> = sources.split(';').map(str::trim).collect();
    if numbers.len() != sources.len() {
        return Err(format!("`{phrase}` has {} numbers and {} sources", numbers.len(), sources.len()));
    }
    for (number, source) in numbers.iter().zip(sources) {
        if source == "given" {
            continue;
        }
        let (folder, rest) = source.split_once(' ').ok_or_else(|| format!("`{source}` names no figure"))?;
        if !reports.contains_key(folder) {
            reports.insert(folder.to_owned(), load(folder)?);
        }
        let (rest, divisor) = match rest.split_once(" / ") {
            Some((rest, divisor)) => (rest, divisor.parse().map_err(|_| format!("`{divisor}` divides nothing"))?),
            None => (rest, 1.0),
        };
        let figure: f64 = figure(&reports[folder], rest).ok_or_else(|| format!("{folder} has no figure `{rest}`"))?;
        let shown = rounded_as(figure / divisor, number);
        if shown != plain(number) {
            return Err(format!("{document} says {number} in `{phrase}`; {source} is {shown}"));
        }
    }
    Ok(())
}

/// Numbers in the paragraphs and tables of measurements that no quotation covers.
fn unquoted(document: &str, text: &str, phrases: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut line = 1;
    for paragraph in text.split("\n\n") {
        let first = line;
        line += paragraph.matches('\n').count() + 2;
        let rows: Vec<(usize, String)> = if paragraph.trim_start().starts_with(FOUND) {
            vec![(first, flat(paragraph))]
        } else {
            let cites = |row: &&str| {
                row.starts_with('|') && (row.contains("report.html)") || row.contains("flatout suite run"))
            };
            let rows = paragraph.lines().enumerate().filter(|(_, row)| cites(row));
            rows.map(|(index, row)| (first + index, row.to_owned())).collect()
        };
        for (line, mut rest) in rows {
            // The longest first, as one quotation may contain another.
            let mut phrases = phrases.to_vec();
            phrases.sort_by_key(|phrase| std::cmp::Reverse(phrase.len()));
            for phrase in phrases {
                rest = rest.replace(phrase, "");
            }
            for number in numbers(&rest) {
                findings.push(Finding::at(document, line, format!("{QUOTED} has no source for {number}")));
            }
        }
    }
    findings
}

/// A paragraph on one line.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The numbers of a text that stand alone: no part of a name, of a link's target or of inline code.
fn numbers(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = None;
    let mut is_code = false;
    let mut is_target = false;
    let mut before = ' ';
    for (at, c) in text.char_indices().chain(std::iter::once((text.len(), ' '))) {
        let is_part = c.is_ascii_digit() || (start.is_some() && (c == '.' || c == ','));
        match start {
            None if c.is_ascii_digit()
                && !is_code
                && !is_target
                && !before.is_alphanumeric()
                && !"-/".contains(before) =>
            {
                start = Some(at);
            }
            Some(from) if !is_part => {
                found.push(text[from..at].trim_end_matches(['.', ',']));
                start = None;
            }
            _ => {}
        }
        match c {
            '`' => is_code = !is_code,
            '(' if before == ']' => is_target = true,
            ')' => is_target = false,
            _ => {}
        }
        before = c;
    }
    found
}

fn plain(number: &str) -> String {
    number.replace(',', "")
}

/// The figure with as many digits as the number quoted has.
fn rounded_as(figure: f64, number: &str) -> String {
    let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len());
    format!("{figure:.digits$}")
}

/// The figure that a source names, in a bundle's `suite.json`.
fn figure(report: &Value, source: &str) -> Option<f64> {
    let words: Vec<&str> = source.split(' ').collect();
    if let ["check", number, rest @ ..] = words.as_slice() {
        let check = report["checks"].get(number.parse::<usize>().ok()?.checked_sub(1)?)?;
        let findings = check["findings"].as_array()?;
        let mut ratios = findings.iter().filter_map(|finding| finding["ratio"].as_f64()).collect::<Vec<_>>();
        ratios.sort_by(f64::total_cmp);
        return match (rest, findings.as_slice()) {
            (["min"], _) => ratios.first().copied(),
            (["max"], _) => ratios.last().copied(),
            ([], [finding]) => finding["ratio"].as_f64().or_else(|| finding["ours"].as_f64()),
            (["low"], [finding]) => finding["ratio_range"][0].as_f64(),
            (["high"], [finding]) => finding["ratio_range"][1].as_f64(),
            _ => None,
        };
    }
    let [step, server, measure] = words.as_slice() else { return None };
    let (step, values) = match step.split_once('[') {
        Some((step, values)) => (step, values.strip_suffix(']')?.split(',').collect()),
        None => (*step, Vec::new()),
    };
    let named = |list: &Value, key: &str, name: &str| {
        list.as_array().and_then(|list| list.iter().find(|entry| entry[key] == name)).cloned()
    };
    let step = named(&report["steps"], "name", step)?;
    let has = |cell: &Value, value: &&str| {
        let pair = value.split_once('=').unwrap_or((value, ""));
        cell["values"]
            .as_array()
            .is_some_and(|values| values.iter().any(|known| known[0] == pair.0 && known[1] == pair.1))
    };
    let cells = step["cells"].as_array()?;
    let cell = cells.iter().find(|cell| cell["server"] == **server && values.iter().all(|value| has(cell, value)))?;
    named(&cell["figures"], "measure", measure)?["median"].as_f64()
}

/// `suite.json` of a kept bundle, which is packed.
fn read_report(folder: &str) -> Result<Value, String> {
    let packed = shell::root().join("results").join(folder).join("suite.json.xz");
    let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(&packed).output();
    let output = output.map_err(|error| format!("cannot run xz: {error}"))?;
    if !output.status.success() {
        return Err(format!("cannot unpack {}: {}", packed.display(), String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{}: {error}", packed.display()))
}

#[cfg(test)]
mod tests {
    use super::{check_quotation, figure, numbers, unquoted};
    use crate::tidy::tree::Tree;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn report() -> Value {
        json!({
            "steps": [{ "name": "load", "cells": [
                { "server": "a", "values": [["n", "1"]], "figures": [{ "measure": "rate", "median": 1234.6 }] },
                { "server": "a", "values": [["n", "2"]], "figures": [{ "measure": "rate", "median": 99.96 }] },
            ] }],
            "checks": [
                { "findings": [{ "ratio": 0.958, "ratio_range": [0.9, 1.1] }] },
                { "findings": [{ "ratio": 0.5 }, { "ratio": 0.25 }] },
            ],
        })
    }

    #[test]
    fn sources_name_figures() {
        let report = report();
        for (source, expected) in [
            ("load[n=1] a rate", Some(1234.6)),
            ("load[n=2] a rate", Some(99.96)),
            ("load[n=3] a rate", None),
            ("load[n=1] b rate", None),
            ("check 1", Some(0.958)),
            ("check 1 high", Some(1.1)),
            ("check 2 min", Some(0.25)),
            ("check 2", None),
            ("check 0", None),
        ] {
            assert_eq!(figure(&report, source), expected, "{source}");
        }
    }

    #[test]
    fn a_wrong_figure_is_found() {
        let tree = Tree::of(&[("a.md", "It gives 1,235/s, which is\n0.96 × theirs.")]);
        let quote = |phrase: &str, sources: &str| {
            check_quotation(&tree, &mut BTreeMap::new(), |_| Ok(report()), "a.md", phrase, sources)
        };
        assert_eq!(quote("gives 1,235/s, which is 0.96 ×", "x load[n=1] a rate; x check 1"), Ok(()));
        assert!(quote("gives 1,235/s", "x load[n=2] a rate").unwrap_err().contains("is 100"));
        assert!(quote("gives 1,235/s", "x check 1; x check 1").is_err());
        assert!(quote("gives 1,236/s", "given").unwrap_err().contains("does not say"));
    }

    #[test]
    fn every_number_of_a_finding_has_a_source() {
        let text = "As of 1999.\n\n**New results.** It is 0.96 × in `-n 7`,\nand [12](x/13.md) at HTTP/2 and p99.\n";
        let lines: Vec<String> = unquoted("a.md", text, &["is 0.96 ×"]).iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["a.md:3: results/quoted.tsv has no source for 12"]);
        assert_eq!(numbers("1,448 and 1.5, then 3."), ["1,448", "1.5", "3"]);
    }
}
