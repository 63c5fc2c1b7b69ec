//! Our cost beside the bare loop, other servers and other clients: one interleaved run, CPU time a request.
//!
//! Requests a second say how fast a machine is; processor time a request says what a server costs, and holds
//! still when the machine is shared. The server is pinned to one core and the client to another; a server's
//! on-CPU nanoseconds are read from the kernel before and after each round, over all its processes. Rounds of
//! all subjects take turns, so that a machine that slows down slows all of them down. What is compared is
//! always the ratio within one round; what is quoted is the median of the rounds, with the least and the most.

mod answers;
mod bench;
mod cases;
mod clients;
mod configs;
mod cores;
mod coyote;
mod dynamic;
mod fronts;
mod kept;
mod machine;
mod origin;
mod proc;
mod query;
mod report;
mod rounds;
mod servers;
mod site;
mod subjects;
mod suites;
mod timed;

use crate::failure::{Context, Outcome};
use crate::shell;
pub(crate) use kept::faults;

use bench::Bench;
use cases::Case;
use machine::Machine;
use rounds::CaseResult;
use std::path::PathBuf;
use std::time::Duration;
use suites::{SUITES, Suite};

const USAGE: &str = "\
usage: cargo xtask bench-peers [OPTIONS]

  --suite NAME    another suite than the first; they are listed below
  --quick         few and short rounds: to see that everything runs, not to quote
  --rounds N      rounds of every case (a result needs at least 5)
  --seconds N     seconds of each round
  --only CASE     one case alone, or the cases of one table; may be repeated
  --json FILE     write every sample to a file as well, after each case
  --doc           keep the result in results/bench-peers/ and write its tables into docs/performance.md whatever was
                  measured; without it, only a whole run does: every case, at least 5 rounds, nobody left out
  --no-doc        leave docs/performance.md as it is
  --render        measure nothing: make the tables in docs/performance.md again of the kept result
  --check         fail when a target is missed

FLATOUT_BIN names the binary to measure; without it, target/release/flatout.";

struct Options {
    suite: &'static Suite,
    rounds: usize,
    seconds: u64,
    only: Vec<String>,
    json: Option<PathBuf>,
    doc: Doc,
    checks: bool,
    renders: bool,
}

/// When the published tables are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doc {
    /// By a run that anybody may quote.
    WhenWhole,
    Always,
    Never,
}

/// `cargo xtask bench-peers`.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let Some(options) = parse(args)? else {
        println!("{USAGE}");
        for suite in SUITES {
            println!("\n{}: {} ({} rounds of {} s)", suite.name, suite.title, suite.rounds, suite.seconds);
            for case in suite.cases {
                println!("  {:<24}{}", case.name, case.title);
            }
        }
        return Ok(());
    };
    if options.renders {
        return kept::render(options.suite);
    }
    let cases: Vec<&Case> = options.suite.cases.iter().filter(|case| options.takes(case)).collect();
    if cases.is_empty() {
        return Err("no case is left to measure; `bench-peers --help` lists them".into());
    }
    let flatout =
        std::env::var_os("FLATOUT_BIN").map_or_else(|| shell::target_dir().join("release/flatout"), PathBuf::from);
    let (rounds, seconds) = (options.rounds, options.seconds);
    eprintln!("about {} to go", in_words(estimate(&cases, rounds, seconds)));
    let bench = Bench::prepare(flatout)?;
    let machine = Machine::describe(&bench);
    for warning in &machine.warnings {
        eprintln!("!!! {warning}");
    }
    let cores = bench.cores();
    let mut results: Vec<CaseResult> = Vec::new();
    let run = |results: &[CaseResult]| {
        report::json(&report::Run { suite: options.suite, machine: &machine, cores, results, rounds, seconds })
    };
    for case in cases {
        results.push(rounds::measure(case, &bench, rounds, seconds));
        if let Some(file) = &options.json {
            // After each case: what a later one breaks must not take this one with it.
            std::fs::write(file, run(&results)).cannot(&format!("write {}", file.display()))?;
        }
    }
    let result = run(&results);
    println!("\n{}", kept::markdown(options.suite, &result)?);
    let left_out: usize = results.iter().map(|result| result.left_out.len()).sum();
    if options.publishes(left_out) {
        kept::publish(options.suite, &result)?;
    } else {
        eprintln!("docs/performance.md left as it is");
    }
    let missed = report::missed(&results);
    for line in &missed {
        eprintln!("!!! {line}");
    }
    if left_out > 0 {
        return Err("bench-peers: somebody was left out; the tables say who and why".into());
    }
    if options.checks && !missed.is_empty() {
        return Err("bench-peers: not every target was held".into());
    }
    Ok(())
}

/// About how long a run takes.
fn estimate(cases: &[&Case], rounds: usize, seconds: u64) -> Duration {
    let subjects: usize = cases.iter().map(|case| case.subjects.len()).sum();
    let warm_up = Duration::from_secs(1);
    let round = Duration::from_secs(seconds) + AROUND_A_ROUND;
    let turns = u32::try_from(rounds).unwrap_or(u32::MAX);
    (warm_up + AROUND_A_ROUND + round.saturating_mul(turns)).saturating_mul(u32::try_from(subjects).unwrap_or(u32::MAX))
}

/// Starting a client, and waiting for what it left behind; as seen, and only for the estimate.
const AROUND_A_ROUND: Duration = Duration::from_millis(150);

fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 90 { format!("{seconds} seconds") } else { format!("{} minutes", seconds.div_ceil(60)) }
}

impl Options {
    fn takes(&self, case: &Case) -> bool {
        let named = |wanted: &String| wanted == case.name || case.row.is_some_and(|row| wanted == row.table);
        self.only.is_empty() || self.only.iter().any(named)
    }

    /// Returns true if such a run replaces the published tables.
    fn publishes(&self, left_out: usize) -> bool {
        match self.doc {
            Doc::Always => true,
            Doc::Never => false,
            Doc::WhenWhole => self.only.is_empty() && self.rounds >= report::ROUNDS_MIN && left_out == 0,
        }
    }
}

/// `None` when help is asked for.
fn parse(args: &[String]) -> Outcome<Option<Options>> {
    let suite = SUITES.first().cannot("find a suite")?;
    let mut options = Options {
        suite,
        rounds: 0,
        seconds: 0,
        only: Vec::new(),
        json: None,
        doc: Doc::WhenWhole,
        checks: false,
        renders: false,
    };
    let (mut rounds, mut seconds) = (None, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cannot(&format!("do without a value after {arg}"));
        match arg.as_str() {
            "--suite" => {
                let name = value()?;
                options.suite = Suite::named(name).cannot(&format!("find a suite named `{name}`"))?;
            }
            "--quick" => (rounds, seconds) = (Some(3), Some(1)),
            "--rounds" => rounds = Some(value()?.parse().cannot("read the number of rounds")?),
            "--seconds" => seconds = Some(value()?.parse().cannot("read the seconds of a round")?),
            "--only" => options.only.push(value()?.clone()),
            "--json" => options.json = Some(PathBuf::from(value()?)),
            "--doc" => options.doc = Doc::Always,
            "--no-doc" => options.doc = Doc::Never,
            "--check" => options.checks = true,
            "--render" => options.renders = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("bench-peers does not know `{other}`\n{USAGE}").into()),
        }
    }
    options.rounds = rounds.unwrap_or(options.suite.rounds);
    options.seconds = seconds.unwrap_or(options.suite.seconds);
    if options.rounds == 0 || options.seconds == 0 {
        return Err("a run needs at least one round of one second".into());
    }
    Ok(Some(options))
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
        assert_eq!((options.rounds, options.seconds, options.doc), (3, 2, Doc::Never));
        let takes = |options: &Options, name: &str| {
            let case = options.suite.cases.iter().find(|case| case.name == name);
            case.is_some_and(|case| options.takes(case))
        };
        assert!(takes(&options, "keep-alive") && !takes(&options, "large-file"));
        let options = parsed("--suite coyote --only coyote-5").unwrap().unwrap();
        assert_eq!((options.rounds, options.seconds), (5, 1));
        assert!(takes(&options, "coyote-5-317") && !takes(&options, "coyote-50-317"));
        for bad in ["--rounds", "--rounds x", "--rounds 0", "--fast", "--suite x"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(parsed("--help").unwrap().is_none());
    }

    #[test]
    fn only_a_whole_run_replaces_the_published_tables_unasked() {
        let publishes = |line: &str, left_out| parsed(line).unwrap().unwrap().publishes(left_out);
        assert!(publishes("", 0) && publishes("--rounds 5", 0));
        assert!(!publishes("", 1) && !publishes("--no-doc", 0));
        for partial in ["--quick", "--rounds 4", "--only keep-alive"] {
            assert!(!publishes(partial, 0), "{partial}");
            assert!(publishes(&format!("{partial} --doc"), 1), "{partial}");
        }
    }

    #[test]
    fn a_whole_run_stays_within_seventeen_minutes() {
        for suite in SUITES {
            let cases: Vec<&Case> = suite.cases.iter().collect();
            let time = estimate(&cases, suite.rounds, suite.seconds);
            assert!(time < Duration::from_mins(17), "{}: {}", suite.name, in_words(time));
        }
        assert_eq!(in_words(Duration::from_secs(61)), "61 seconds");
    }
}
