//! The kept result of the run whose tables docs/performance.md has: every sample, from which the tables are made.
//!
//! `results/bench-peers/SUITE.json` is what `--json` writes. The tables are always made of what is read back from it, so they
//! can be made again without measuring, and `cargo xtask tidy` can tell whether each figure in them is the run's own.

use super::cases::Case;
use super::cores::Cores;
use super::machine::Machine;
use super::report::{self, Run, SCHEMA};
use super::rounds::{CaseResult, Sample, Series};
use super::subjects::Subject;
use super::suites::{SUITES, Suite};
use crate::failure::{Context, Outcome};
use crate::shell;
use serde_json::Value;

/// Where a suite's result is kept.
pub(super) fn path(suite: &Suite) -> String {
    format!("results/bench-peers/{}.json", suite.name)
}

/// What stands in the place of a kept result where a run has none.
const NOT_KEPT: &str = "**The samples of this run were not kept, so no check compares these figures with them.**";

/// A run that was read back.
struct Kept {
    machine: Machine,
    cores: Cores,
    results: Vec<CaseResult>,
    rounds: usize,
    seconds: u64,
}

/// The tables of a kept result.
pub(super) fn markdown(suite: &'static Suite, text: &str) -> Outcome<String> {
    let value: Value = serde_json::from_str(text).cannot("read the kept result")?;
    let kept = Kept::of(suite, &value).cannot(&format!(
        "make the tables of {}: it is no {SCHEMA}, or has cases or subjects that this suite has no longer",
        path(suite)
    ))?;
    let Kept { machine, cores, results, rounds, seconds } = &kept;
    Ok(report::markdown(&Run { suite, machine, cores: *cores, results, rounds: *rounds, seconds: *seconds }))
}

/// Keeps a result and puts its tables into docs/performance.md.
pub(super) fn publish(suite: &'static Suite, text: &str) -> Outcome<()> {
    let markdown = markdown(suite, text)?;
    let file = shell::root().join(path(suite));
    std::fs::create_dir_all(file.parent().cannot("find the folder of results")?)
        .cannot("make the folder of results")?;
    std::fs::write(&file, text).cannot(&format!("write {}", path(suite)))?;
    report::write_into_doc(suite, &markdown)
}

/// Writes the tables again from stored results, as after a change of a target or of how they look.
pub(super) fn render(suite: &'static Suite) -> Outcome<()> {
    let text = std::fs::read_to_string(shell::root().join(path(suite))).cannot(&format!("read {}", path(suite)))?;
    report::write_into_doc(suite, &markdown(suite, &text)?)
}

/// What is wrong with the tables in docs/performance.md: each suite's are those of its kept result, or say that none was
/// kept. `read` gives the text of a file of the repository.
pub(crate) fn faults<'t>(read: impl Fn(&str) -> Option<&'t str>) -> Vec<String> {
    let Some(document) = read(report::DOC) else { return Vec::new() };
    let fault = |suite: &'static Suite| {
        let Ok(section) = report::section(document, suite) else {
            return Some(format!("it has no place for the suite {}", suite.name));
        };
        let Some(text) = read(&path(suite)) else {
            let is_said = section.trim_start().starts_with(NOT_KEPT);
            return (!is_said).then(|| format!("{} is not there, so the tables begin with: {NOT_KEPT}", path(suite)));
        };
        match markdown(suite, text) {
            Err(failure) => Some(failure.to_string()),
            Ok(made) => first_difference(section.trim(), made.trim()).map(|line| {
                format!(
                    "`{line}` is not what {} says; make the tables again: cargo xtask bench-peers --suite {} --render",
                    path(suite),
                    suite.name
                )
            }),
        }
    };
    SUITES.iter().filter_map(fault).collect()
}

/// The first line of a text that another has otherwise.
fn first_difference<'t>(text: &'t str, other: &str) -> Option<&'t str> {
    let mut others = other.lines();
    let found = text.lines().find(|line| others.next() != Some(line));
    found.or_else(|| others.next().map(|_| "the end"))
}

impl Kept {
    fn of(suite: &'static Suite, value: &Value) -> Option<Self> {
        if value["schema"] != SCHEMA || value["suite"] != suite.name {
            return None;
        }
        let fact = |fact: &Value| Some((text(&fact["name"])?, text(&fact["value"])?));
        let whole = |name: &str| usize::try_from(value[name].as_u64()?).ok();
        let results = list(&value["cases"], |case| result(suite, case))?;
        Some(Self {
            machine: Machine { facts: list(&value["machine"], fact)?, warnings: list(&value["warnings"], text)? },
            cores: Cores { server: whole("server_core")?, client: whole("client_core")? },
            results,
            rounds: whole("rounds")?,
            seconds: value["seconds"].as_u64()?,
        })
    }
}

fn result(suite: &'static Suite, value: &Value) -> Option<CaseResult> {
    let case = suite.cases.iter().find(|case| value["case"] == case.name)?;
    let left_out = |left_out: &Value| Some((subject(case, &left_out["subject"])?, text(&left_out["why"])?));
    Some(CaseResult {
        case,
        series: list(&value["series"], |value| series(case, value))?,
        left_out: list(&value["left_out"], left_out)?,
    })
}

fn series(case: &Case, value: &Value) -> Option<Series> {
    let sample = |value: &Value| {
        Some(Sample {
            cpu_ns: value["cpu_ns"].as_u64()?,
            client_ns: value["client_cpu_ns"].as_u64(),
            work: value["work"].as_f64()?,
            seconds: value["seconds"].as_f64()?,
            p99_us: value["p99_us"].as_u64(),
        })
    };
    Some(Series {
        subject: subject(case, &value["subject"])?,
        samples: list(&value["samples"], sample)?,
        shown: text(&value["command"])?,
        client: text(&value["client"])?,
        config: text(&value["config"]),
        tls: text(&value["tls"]),
    })
}

/// A subject of a case by its name. A case of clients names the server that they ask where that is left out.
fn subject(case: &Case, name: &Value) -> Option<Subject> {
    case.subjects.iter().chain([&super::subjects::NGINX]).find(|subject| *name == subject.name).copied()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// All of a list, or nothing.
fn list<T>(value: &Value, of: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A run of one case whose subjects cost 1, 2, 3 … µs a request.
    fn run_of(suite: &'static Suite) -> String {
        let case = &suite.cases[0];
        let series = |(subject, cost): (&Subject, u64)| Series {
            samples: (0..5)
                .map(|round| Sample {
                    cpu_ns: 1_000_003 * cost + 7 * round,
                    client_ns: Some(990_000_000),
                    work: 1_000.0,
                    seconds: 1.000_123,
                    p99_us: None,
                })
                .collect(),
            shown: format!("start {}", subject.name),
            client: "wrk".to_owned(),
            config: (cost == 2).then(|| "workers 1\n".to_owned()),
            ..Series::of(*subject)
        };
        let results = [CaseResult {
            case,
            series: case.subjects.iter().zip(1..).skip(1).map(series).collect(),
            left_out: vec![(case.subjects[0], "not here".to_owned())],
        }];
        let machine = Machine {
            facts: vec![("processor".to_owned(), "x | y".to_owned()), ("cores".to_owned(), "2".to_owned())],
            warnings: vec!["busy".to_owned()],
        };
        let cores = Cores { server: 0, client: 1 };
        let run = Run { suite, machine: &machine, cores, results: &results, rounds: 5, seconds: 1 };
        let json = report::json(&run);
        assert_eq!(markdown(suite, &json).unwrap(), report::markdown(&run), "what is read back is what was measured");
        json
    }

    #[test]
    fn tables_are_those_of_the_kept_result_or_say_that_there_is_none() {
        let suite = &SUITES[0];
        let json = run_of(suite);
        let made = markdown(suite, &json).unwrap();
        let document = |first: &str| {
            let sections = SUITES.iter().map(|suite| {
                let (begin, end) = suite.markers();
                let tables = if suite.name == SUITES[0].name { first } else { NOT_KEPT };
                format!("{begin}\n{}\n{end}\n", tables.trim_end())
            });
            sections.collect::<String>()
        };
        let with = |document: &str, kept: Option<&str>| {
            let mut files = BTreeMap::from([(report::DOC.to_owned(), document)]);
            files.extend(kept.map(|kept| (path(suite), kept)));
            faults(|path| files.get(path).copied())
        };
        assert_eq!(with(&document(&made), Some(&json)), Vec::<String>::new());
        assert_eq!(with(&document(NOT_KEPT), None), Vec::<String>::new());
        assert!(with(&document(&made), None)[0].contains("bench-peers.json is not there"));
        let wrong = made.replacen("**2.00** [2.00", "**1.90** [2.00", 1);
        let faults = with(&document(&wrong), Some(&json));
        assert!(
            faults.len() == 1 && faults[0].contains("**1.90** [2.00") && faults[0].contains("--render"),
            "{faults:?}"
        );
        assert!(with(&document(&format!("{made}\nand more")), Some(&json))[0].contains("--render"));
        let older = json.replace(SCHEMA, "flatout-bench-peers/2");
        assert!(with(&document(&made), Some(&older))[0].contains("it is no flatout-bench-peers/3"));
        assert_eq!(with("", None).len(), SUITES.len());
    }
}
