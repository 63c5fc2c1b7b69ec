//! The project's suites are valid, and the tables of earlier figures that they show exist.

#![allow(clippy::unwrap_used, clippy::panic)]

use flatout_config::Disk;
use flatout_suite::{history, measure::Measure, read};
use std::path::{Path, PathBuf};

fn suites() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites");
    let paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|ending| ending == "kdl")).collect();
    paths.sort();
    paths
}

#[test]
fn every_suite_reads_and_its_tables_belong_to_it() {
    let names: Vec<String> =
        suites().iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(
        names,
        [
            "bordermanager",
            "coyote",
            "iss",
            "jigsaw",
            "long-link",
            "overload",
            "peers",
            "php",
            "query",
            "tarantula",
            "waits"
        ]
    );
    for path in suites() {
        let suite = read(&path, &Disk).unwrap_or_else(|found| panic!("{found}"));
        assert_eq!(path.file_stem().unwrap().to_str(), Some(suite.name.as_str()));
        assert!(!suite.checks.is_empty() && suite.servers[0].program.name.text.len() > 2);
        // All others repeat an experiment of the 1990s.
        let is_of_today = matches!(suite.name.as_str(), "long-link" | "overload" | "peers" | "php" | "query" | "waits");
        assert_eq!(suite.seeds.is_empty(), is_of_today, "{}", suite.name);
        for seed in &suite.seeds {
            let table = history::read(&path.parent().unwrap().join("history"), &seed.text).unwrap();
            // "Name, year": every study dates from the time of the experiments that the suites repeat.
            let year = table.source[0].split_once(", ").and_then(|(_, rest)| rest.get(..4)?.parse::<u16>().ok());
            assert!(year.is_some_and(|year| (1996..=2000).contains(&year)), "{:?}", table.source[0]);
            for line in &table.source {
                if let Some(rest) = line.strip_prefix("beside ") {
                    let (head, columns) = rest.split_once(':').unwrap();
                    let (step, variable) = head.split_once(' ').unwrap();
                    assert!(suite.step(step).is_some() && suite.variable(variable).is_some(), "{line}");
                    for (measure, column) in columns.split_whitespace().map(|part| part.split_once('=').unwrap()) {
                        let column = column.split('*').next().unwrap();
                        assert!(Measure::parse(measure).is_some(), "{measure}");
                        assert!(table.columns.iter().any(|known| known == column), "{column}");
                    }
                }
                if let Some(rest) = line.strip_prefix("rank ") {
                    let words: Vec<&str> = rest.split_whitespace().collect();
                    assert!(suite.step(words[0]).is_some() && Measure::parse(words[1]).is_some(), "{line}");
                    assert!(words[2..].iter().all(|word| table.columns.iter().any(|known| known == word)), "{line}");
                }
            }
        }
    }
}
