//! All fuzzers over their seeds and so many mutations each: `smoke [ITERATIONS] [SEED]`. Fails when an invariant
//! breaks, or when the canary's known defect is not found.

use flatout_fuzz::mutate::{Random, mutate};
use flatout_fuzz::{FUZZERS, Fuzzer};
use std::panic::{catch_unwind, set_hook, take_hook};
use std::process::ExitCode;

const ITERATIONS: u64 = 20_000;
const SEED: u64 = 0x5eed;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (Ok(iterations), Ok(seed)) = (numbers.next().unwrap_or(Ok(ITERATIONS)), numbers.next().unwrap_or(Ok(SEED)))
    else {
        eprintln!("usage: smoke [ITERATIONS] [SEED], both whole numbers");
        return ExitCode::from(2);
    };
    let mut sound = true;
    for fuzzer in FUZZERS {
        let failure = find_failure(fuzzer, iterations, seed);
        match (&failure, fuzzer.must_fail) {
            (None, false) => println!("{:14} {iterations} inputs, no failure", fuzzer.name),
            (Some(_), true) => println!("{:14} found its known defect, as it must", fuzzer.name),
            (None, true) => println!("{:14} did NOT find its known defect: the smoke run sees nothing", fuzzer.name),
            (Some(input), false) => println!("{:14} FAILS for \"{}\" (seed {seed})", fuzzer.name, input.escape_ascii()),
        }
        sound &= failure.is_some() == fuzzer.must_fail;
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first input for which the fuzzer panics.
fn find_failure(fuzzer: &Fuzzer, iterations: u64, seed: u64) -> Option<Vec<u8>> {
    let mut random = Random::new(seed);
    let quiet = fuzzer.must_fail;
    let hook = take_hook();
    if quiet {
        set_hook(Box::new(|_| {}));
    } else {
        set_hook(hook);
    }
    let seeds = fuzzer.seeds.iter().map(|seed| seed.to_vec());
    let mutations = (0..iterations).map(|_| mutate(&mut random, fuzzer.seeds));
    let failure = seeds.chain(mutations).find(|input| catch_unwind(|| (fuzzer.check)(input)).is_err());
    if quiet {
        let _ = take_hook();
    }
    failure
}
