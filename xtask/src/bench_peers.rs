//! Our cost beside the bare loop, nginx, lighttpd and wrk: one interleaved run, CPU time a request.
//!
//! Requests a second say how fast a machine is; processor time a request says what a server costs, and holds
//! still when the machine is shared. The server is pinned to one core and the client to another; a server's
//! on-CPU nanoseconds are read from the kernel before and after each round, over all its processes. Rounds of
//! all subjects take turns, so that a machine that slows down slows all of them down. What is compared is
//! always the ratio within one round; what is quoted is the median of the rounds, with the least and the most.

mod cases;
mod clients;
mod machine;
mod proc;
mod report;
mod rounds;
mod servers;

use crate::failure::{Context, Outcome};
use crate::shell;
use cases::Case;
use machine::Machine;
use rounds::CaseResult;
use servers::{Bench, Subject};
use std::path::PathBuf;

const USAGE: &str = "\
usage: cargo xtask bench-peers [OPTIONS]

  --quick         few and short rounds: to see that everything runs, not to quote
  --rounds N      rounds of every case (7; a result needs at least 5)
  --seconds N     seconds of each round (3)
  --only CASE     one case alone; may be repeated
  --json FILE     write every sample to a file as well
  --no-doc        leave docs/performance.md as it is
  --check         fail when a target is missed

FLATOUT_BIN names the binary to measure; without it, target/release/flatout.";

struct Options {
    rounds: usize,
    seconds: u64,
    only: Vec<String>,
    json: Option<PathBuf>,
    writes_doc: bool,
    checks: bool,
}

/// `cargo xtask bench-peers`.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let Some(options) = parse(args)? else {
        println!("{USAGE}");
        println!("\ncases:");
        for case in cases::CASES {
            println!("  {:<16}{}", case.name, case.title);
        }
        return Ok(());
    };
    let cases: Vec<&Case> = cases::CASES.iter().filter(|case| options.takes(case.name)).collect();
    if cases.is_empty() {
        return Err("no case is left to measure; `bench-peers --help` lists them".into());
    }
    let flatout =
        std::env::var_os("FLATOUT_BIN").map_or_else(|| shell::target_dir().join("release/flatout"), PathBuf::from);
    let bench = Bench::prepare(flatout)?;
    let machine = Machine::describe(&bench);
    for warning in &machine.warnings {
        eprintln!("!!! {warning}");
    }
    let mut results: Vec<CaseResult> = Vec::new();
    for case in cases {
        results.push(rounds::measure(case, &bench, options.rounds, options.seconds)?);
    }
    let run = report::Run { machine: &machine, results: &results, rounds: options.rounds, seconds: options.seconds };
    let markdown = report::markdown(&run);
    println!("\n{markdown}");
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", report::json(&run));
        std::fs::write(file, text).cannot(&format!("write {}", file.display()))?;
    }
    if options.writes_doc {
        report::write_into_doc(&markdown)?;
    }
    let missed = report::missed(&results);
    for line in &missed {
        eprintln!("!!! {line}");
    }
    if options.checks && !missed.is_empty() {
        return Err("bench-peers: not every target was held".into());
    }
    Ok(())
}

impl Options {
    fn takes(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }
}

/// `None` when help is asked for.
fn parse(args: &[String]) -> Outcome<Option<Options>> {
    let mut options = Options { rounds: 7, seconds: 3, only: Vec::new(), json: None, writes_doc: true, checks: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cannot(&format!("do without a value after {arg}"));
        match arg.as_str() {
            "--quick" => (options.rounds, options.seconds) = (3, 1),
            "--rounds" => options.rounds = value()?.parse().cannot("read the number of rounds")?,
            "--seconds" => options.seconds = value()?.parse().cannot("read the seconds of a round")?,
            "--only" => options.only.push(value()?.clone()),
            "--json" => options.json = Some(PathBuf::from(value()?)),
            "--no-doc" => options.writes_doc = false,
            "--check" => options.checks = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("bench-peers does not know `{other}`\n{USAGE}").into()),
        }
    }
    if options.rounds == 0 || options.seconds == 0 {
        return Err("a run needs at least one round of one second".into());
    }
    Ok(Some(options))
}

/// What a loud note says of a subject that cannot take part.
fn missing(subject: Subject, why: &str) {
    eprintln!("!!! {} is left out: {why}", subject.name());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Outcome<Option<Options>> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&args)
    }

    #[test]
    fn options_are_read_and_wrong_ones_refused() {
        let options = parsed("--quick --seconds 2 --only keep-alive --no-doc").unwrap().unwrap();
        assert_eq!((options.rounds, options.seconds, options.writes_doc), (3, 2, false));
        assert!(options.takes("keep-alive") && !options.takes("large-file"));
        for bad in ["--rounds", "--rounds x", "--rounds 0", "--fast"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(parsed("--help").unwrap().is_none());
    }
}
