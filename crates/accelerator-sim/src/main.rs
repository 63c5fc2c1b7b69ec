//! Runs seeds, or scenarios stored as JSON, and minimises what fails.

use flatout_accelerator_sim::minimise::minimise;
use flatout_accelerator_sim::{Figures, Scenario, run};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const HELP: &str = "usage: flatout-accelerator-sim FIRST COUNT   run COUNT seeds from FIRST on, and print the first that \
                    fails, minimised\n       flatout-accelerator-sim FILE.json…    run these scenarios";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, count] = &arguments[..]
        && let (Ok(first), Ok(count)) = (first.parse(), count.parse())
    {
        return run_seeds(first, count);
    }
    if arguments.is_empty() {
        eprintln!("{HELP}");
        return ExitCode::from(2);
    }
    let mut code = ExitCode::SUCCESS;
    for path in &arguments {
        let scenario = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Scenario>(&text).ok());
        match scenario.map(|scenario| run(&scenario)) {
            Some(Ok(_)) => println!("{path}: every invariant holds"),
            Some(Err(violation)) => {
                println!("{path}: {violation}");
                code = ExitCode::FAILURE;
            }
            None => {
                println!("{path}: not a scenario");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn run_seeds(first: u64, count: u64) -> ExitCode {
    let (next, failed) = (AtomicU64::new(first), Mutex::new(None));
    let end = first.saturating_add(count);
    let total = Mutex::new(Figures::default());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    match run(&Scenario::of(seed)) {
                        Ok(figures) => {
                            if let Ok(mut total) = total.lock() {
                                total.add(&figures);
                            }
                        }
                        Err(violation) => {
                            next.store(end, Ordering::Relaxed);
                            if let Ok(mut failed) = failed.lock()
                                && failed.as_ref().is_none_or(|(other, _)| seed < *other)
                            {
                                *failed = Some((seed, violation));
                            }
                        }
                    }
                }
            });
        }
    });
    let (Ok(failed), Ok(total)) = (failed.into_inner(), total.into_inner()) else { return ExitCode::FAILURE };
    let Some((seed, violation)) = failed else {
        println!("{count} seeds from {first} on: every invariant holds; {total:?}");
        return ExitCode::SUCCESS;
    };
    // Only the scenario goes to standard output, so that it can be redirected to a file.
    eprintln!("seed {seed}: {violation}");
    let smallest = minimise(&Scenario::of(seed), &violation.rule);
    match run(&smallest) {
        Err(violation) => eprintln!("minimised to {} actions: {violation}", smallest.actions.len()),
        Ok(_) => eprintln!("not repeatable"),
    }
    println!("{}", serde_json::to_string_pretty(&smallest).unwrap_or_default());
    ExitCode::FAILURE
}
