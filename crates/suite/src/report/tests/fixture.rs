//! Invented results of suites, for tests of the reports.

use crate::document::{
    Cell, CheckEntry, CheckFinding, ConfigEntry, Figure, Given, RunEntry, SeedTable, ServerEntry, StepEntry,
    SuiteReport, TestbedEntry, Trouble, VariableValues, Verdict, Why,
};
use flatout_load::report::MachineReport;

/// Text that would become an element if a page did not escape it.
pub(super) const EVIL: &str = "<script>alert(1)</script>\"'><img src=x>";

/// The repetitions of every cell, enough for intervals.
const REPETITIONS: u32 = 6;

fn figure(measure: &str, unit: &str, around: f64) -> Figure {
    let values: Vec<f64> = (0..REPETITIONS).map(|index| around * (1.0 + 0.004 * f64::from(index % 3))).collect();
    let (min, max) = (around, around * 1.008);
    let repetitions = (0..REPETITIONS).collect();
    Figure { measure: measure.to_owned(), unit: unit.to_owned(), values, repetitions, median: around * 1.004, min, max }
}

fn cell(server: &str, values: &[(&str, &str)], per_s: f64, offered: Option<f64>) -> Cell {
    let mut figures = vec![
        figure("requests-per-s", "1/s", per_s),
        figure("goodput-per-s", "1/s", per_s * 0.99),
        figure("bytes-per-s", "B/s", per_s * 500.0),
        figure("server-cpu-per-request", "ns", 1e9 / per_s),
        figure("response-p99", "ns", 3e6),
        figure("error-share", "", 0.0),
    ];
    figures.extend(offered.map(|offered| figure("offered-per-s", "1/s", offered)));
    let run = |repetition| RunEntry {
        repetition,
        path: format!("steps/x/{server}-{repetition}.json"),
        ..RunEntry::default()
    };
    Cell {
        server: server.to_owned(),
        values: values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        figures,
        runs: (0..REPETITIONS).map(run).collect(),
        ..Cell::default()
    }
}

fn why(text: &str) -> Why {
    Why { name: "program-missing".to_owned(), text: text.to_owned() }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Two steps, three servers of which one is missing, two tables, checks with each verdict, and a server that died.
pub(super) fn report() -> SuiteReport {
    let bars = ["317", "204317"].iter().flat_map(|size| {
        [("flatout", 20_000.0), ("flatout-again", 20_010.0), ("nginx", 12_000.0)]
            .map(|(server, per_s)| cell(server, &[("size", size)], per_s, None))
    });
    let rates = [100.0, 200.0, 300.0].iter().flat_map(|rate| {
        let rate_text = format!("{rate}");
        ["flatout", "nginx"].map(|server| cell(server, &[("rate", &rate_text)], *rate, Some(*rate)))
    });
    let finding = |verdict: Verdict, sentence: &str| CheckFinding {
        values: vec![("size".to_owned(), "317".to_owned())],
        verdict,
        sentence: sentence.to_owned(),
        ..CheckFinding::default()
    };
    let check = |name: &str, verdict: Verdict, sentence: &str| CheckEntry {
        name: name.to_owned(),
        step: "hits".to_owned(),
        measure: "server-cpu-per-request".to_owned(),
        of: "flatout".to_owned(),
        verdict,
        findings: vec![finding(verdict, sentence)],
    };
    SuiteReport {
        schema: crate::document::SCHEMA.to_owned(),
        suite: "coyote".to_owned(),
        about: "Pages of two sizes".to_owned(),
        file: "suites/coyote.kdl".to_owned(),
        flatout_version: "0.1.0".to_owned(),
        command: words(&["flatout", "suite", "run", "suites/coyote.kdl"]),
        begun_unix_ms: 1_795_000_000_000,
        repetitions: REPETITIONS,
        seconds: 2.0,
        machine: MachineReport {
            cpu_model: "Some CPU".to_owned(),
            cpu_mhz: Some(2000),
            cores: 2,
            kernel: "6.1".to_owned(),
            memory_bytes: 16 << 30,
            ..MachineReport::default()
        },
        server_cores: vec![0],
        client_cores: vec![1],
        given: Given { dollars: Some(500.0), watts: None },
        seeds: vec![
            SeedTable {
                name: "coyote-page-sizes".to_owned(),
                source: words(&["Coyote, 1998: nine pages.", "beside hits size: requests-per-s=hits_per_s"]),
                columns: words(&["bytes", "hits_per_s"]),
                rows: vec![words(&["317", "84.18"]), words(&["204317", "6.49"])],
            },
            SeedTable {
                name: "history".to_owned(),
                source: words(&["SPECweb96, 1996: published.", "rank hits requests-per-s ops mhz"]),
                columns: words(&["date", "maker", "model", "mhz", "ops"]),
                rows: vec![words(&["May 98", "HP", "NetServer", "400", "2131"])],
            },
        ],
        variables: vec![VariableValues { name: "size".to_owned(), values: words(&["317", "204317"]) }],
        servers: vec![
            ServerEntry {
                name: "flatout".to_owned(),
                version: Some("flatout 0.1.0".to_owned()),
                configs: vec![ConfigEntry { path: "configs/flatout/x.kdl".to_owned(), text: "workers 1\n".to_owned() }],
                ..ServerEntry::default()
            },
            ServerEntry {
                name: "h2o".to_owned(),
                absent: Some(why("h2o is not installed; the Debian package h2o provides it")),
                ..ServerEntry::default()
            },
        ],
        testbeds: vec![TestbedEntry {
            name: "wire".to_owned(),
            hosts: 2,
            absent: Some(why("network namespaces require root")),
            ..TestbedEntry::default()
        }],
        steps: vec![
            StepEntry {
                name: "hits".to_owned(),
                about: "hits a second".to_owned(),
                variables: words(&["size"]),
                servers: words(&["flatout", "flatout-again", "nginx"]),
                bench: words(&["--connections", "5"]),
                cells: bars.collect(),
                ..StepEntry::default()
            },
            StepEntry {
                name: "rates".to_owned(),
                variables: words(&["rate"]),
                servers: words(&["flatout", "nginx"]),
                cells: rates.collect(),
                ..StepEntry::default()
            },
            StepEntry { name: "wire".to_owned(), absent: Some(why("networks need root")), ..StepEntry::default() },
        ],
        checks: vec![
            check("ours costs less", Verdict::Met, "flatout has 50.0 µs, nginx has 83.3 µs"),
            check("ours is ahead", Verdict::Missed, "flatout has 83.3 µs, nginx has 50.0 µs"),
            check("h2o too", Verdict::NotJudged, "h2o was left out"),
        ],
        troubles: vec![Trouble {
            why: Why { name: "died".to_owned(), text: "nginx ended by signal 9".to_owned() },
            place: "suites/coyote.kdl:40".to_owned(),
            server: Some("nginx".to_owned()),
            step: Some("hits".to_owned()),
            log_tail: words(&["[emerg] something"]),
        }],
        ..SuiteReport::default()
    }
}

/// Returns the same report with markup in every string that comes from outside.
pub(super) fn hostile() -> SuiteReport {
    let mut report = report();
    let evil = || EVIL.to_owned();
    report.suite = evil();
    report.about = evil();
    report.command = vec![evil()];
    report.machine.cpu_model = evil();
    report.troubles[0].log_tail = vec![evil()];
    report.servers[0].configs[0].text = evil();
    report.servers[0].name = evil();
    report.checks[0].findings[0].sentence = evil();
    report.seeds[0].rows[0][1] = evil();
    report.seeds[0].source[0] = evil();
    for cell in &mut report.steps[0].cells {
        cell.values[0].1 = evil();
        cell.server.push_str(EVIL);
    }
    for server in &mut report.steps[0].servers {
        server.push_str(EVIL);
    }
    report
}
