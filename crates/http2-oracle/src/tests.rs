//! Connections at random, given to this core, to the h2 crate and to PyPI's h2: no difference that the tables do not
//! list, and no row of a table without a difference. `FLATOUT_SEEDS=100000` tries more.

use crate::differences::{H2_CRATE, PYTHON_H2, parse};
use crate::generate::generate;
use crate::{FieldList, Verdict, compare, our_verdicts, their_verdicts};
use flatout_http::http2::connection::Role;
use flatout_http::http2::frame::ErrorCode;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seeds of each role, unless `FLATOUT_SEEDS` says otherwise: enough for every row of the tables.
const SEEDS: u64 = 4000;

struct Case {
    role: Role,
    seed: u64,
    bytes: Vec<u8>,
    ours: Vec<Verdict>,
}

fn seeds() -> u64 {
    std::env::var("FLATOUT_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap())
}

fn cases() -> Vec<Case> {
    let of = |role| {
        (1..=seeds()).map(move |seed| {
            let bytes = generate(seed, role);
            let ours = our_verdicts(role, &bytes);
            Case { role, seed, bytes, ours }
        })
    };
    of(Role::Server).chain(of(Role::Client)).collect()
}

/// Compares the verdicts on all cases.
fn judge(cases: &[Case], table: &'static str, mut theirs: impl FnMut(usize, &Case) -> Vec<Verdict>) {
    let rows = parse(table);
    let mut used = vec![0_usize; rows.len()];
    let (mut unknown, mut agreed) = (BTreeMap::<String, (usize, String)>::new(), BTreeSet::new());
    for (number, case) in cases.iter().enumerate() {
        let Some(found) = compare(&case.bytes, &case.ours, &theirs(number, case)) else {
            agreed.extend(case.ours.iter().map(Verdict::label));
            continue;
        };
        if let Some(row) = rows.iter().position(|row| row.explains(&found)) {
            used[row] += 1;
        } else {
            let class = format!("{} | {} | {}", found.frame, found.ours, found.theirs);
            let example = || (0, format!("{:?}, seed {}, {}", case.role, case.seed, found.text));
            unknown.entry(class).or_insert_with(example).0 += 1;
        }
    }
    let mut text = String::new();
    for (class, (count, example)) in &unknown {
        writeln!(text, "{count} × {class}\n  {example}").unwrap();
    }
    for (row, used) in rows.iter().zip(&used) {
        println!("{used:>8} × {}", row.text());
    }
    println!("agreed: {agreed:?}");
    assert!(unknown.is_empty(), "differences that no row explains:\n{text}");
    if seeds() >= SEEDS {
        let idle: Vec<String> = rows
            .iter()
            .zip(&used)
            .filter(|(row, used)| **used == 0 && !row.is_rare)
            .map(|(row, _)| row.text())
            .collect();
        assert!(idle.is_empty(), "rows without a difference: {idle:#?}");
        assert!(agreed.len() > 20, "few verdicts in common: {agreed:?}");
    }
}

#[test]
fn the_h2_crate_agrees_but_for_what_the_table_lists() {
    judge(&cases(), H2_CRATE, |_, case| their_verdicts(case.role, &case.bytes));
}

#[test]
fn pypis_h2_agrees_but_for_what_the_table_lists() {
    let cases = cases();
    let theirs = python_verdicts(&cases);
    judge(&cases, PYTHON_H2, |number, _| theirs[number].clone());
}

/// The verdicts of PyPI's h2 on all cases, from one process.
fn python_verdicts(cases: &[Case]) -> Vec<Vec<Verdict>> {
    let mut input = String::new();
    for case in cases {
        input.push_str(if case.role == Role::Server { "server " } else { "client " });
        case.bytes.iter().for_each(|byte| write!(input, "{byte:02x}").unwrap());
        input.push('\n');
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = folder.join("../../target/tools/http2/bin/python");
    let mut child = Command::new(&python)
        .arg(folder.join("python_h2.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; please run: tools/setup.sh test", python.display()));
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let verdicts: Vec<Vec<Verdict>> = text
        .lines()
        .map(|line| serde_json::from_str::<Vec<Value>>(line).unwrap().iter().map(verdict).collect())
        .collect();
    assert_eq!(verdicts.len(), cases.len());
    verdicts
}

fn verdict(value: &Value) -> Verdict {
    let number = |at: usize| value[at].as_u64().unwrap() as u32;
    let code = |at: usize| ErrorCode::from_number(number(at));
    match value[0].as_str().unwrap() {
        "nothing" => Verdict::Nothing,
        "message" => {
            Verdict::Message { stream: number(1), fields: message(&value[2]), ends: value[3].as_bool().unwrap() }
        }
        "data" => Verdict::Data { stream: number(1), content: bytes(&value[2]), ends: value[3].as_bool().unwrap() },
        "trailers" => Verdict::Trailers { stream: number(1), fields: fields(&value[2]) },
        "reset" => Verdict::Reset { stream: number(1), code: code(2) },
        "stream" => Verdict::StreamError { stream: number(1), code: code(2), name: code(2).name().to_owned() },
        "connection" => Verdict::ConnectionError { code: code(1), name: code(1).name().to_owned() },
        _ => Verdict::ConnectionError { code: ErrorCode::Internal, name: format!("fault {}", value[1]) },
    }
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn fields(list: &Value) -> FieldList {
    let field = |field: &Value| (String::from_utf8_lossy(&bytes(&field[0])).into_owned(), bytes(&field[1]));
    let mut list: FieldList = list.as_array().unwrap().iter().map(field).collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

/// The fields of a head, with the authority and without the scheme, as this core reports them.
fn message(list: &Value) -> FieldList {
    let mut list = fields(list);
    let is_request = list.iter().any(|(name, _)| name == ":method");
    if let Some(at) = list.iter().position(|(name, _)| name == "host" && is_request) {
        let (_, host) = list.remove(at);
        if !list.iter().any(|(name, _)| name == ":authority") {
            list.push((":authority".to_owned(), host));
        }
    }
    list.retain(|(name, _)| name != ":scheme");
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}
