//! The lab's findings about simulated servers whose properties are known.

use flatout_load::plan::arrivals::Level;
use flatout_load::plan::{ArrivalKind, Arrivals, Loop, Plan, Stop};
use flatout_load::stats::knee::{KneeEnding, KneePlan, KneeSearch, TrialOutcome};
use flatout_load::stats::overload::{Recovery, Second, recovery};
use flatout_sim::truth::md1_quantile;
use flatout_sim::{Model, Server, drive, drive_observed};

const SECOND_NS: u64 = 1_000_000_000;
const ONE_WORKER: Model = Model::Workers { workers: 1, service_ns: 1_000_000 };

fn plan(arrivals: Arrivals, duration_ns: u64, seed: u64) -> Plan {
    Plan {
        kind: Loop::Open(arrivals),
        connections: 20_000,
        stop: Stop::After { duration_ns },
        drain_ns: 600 * SECOND_NS,
        seed,
        ..Plan::default()
    }
}

/// The rate at which the 99th percentile of a queue with chance arrivals is 5 ms, by Erlang's formula.
fn true_knee() -> f64 {
    let (mut low, mut high) = (10.0, 990.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if md1_quantile(middle / 1000.0, 1_000_000, 0.99) <= 5e6 { low = middle } else { high = middle }
    }
    low
}

#[test]
fn the_knee_of_a_queue_is_where_erlang_has_it() {
    let search_plan = KneePlan { short_ns: 20 * SECOND_NS, long_ns: 200 * SECOND_NS, ..KneePlan::DEFAULT };
    for seed in 0..5 {
        let mut search = KneeSearch::new(search_plan);
        let mut number = 0;
        while let Some(trial) = search.next() {
            // Another stretch of chance for each trial, as time has.
            number += 1;
            let arrivals = Arrivals::constant(ArrivalKind::Exp, trial.rate_per_s);
            let plan = plan(arrivals, trial.duration_ns, 1000 * seed + number);
            let driven = drive(&plan, Server::new(ONE_WORKER), 0).unwrap();
            let p99_ns = driven.recorder.response.histogram().value_at_quantile(0.99);
            search.handle(if p99_ns < 5_000_000 { TrialOutcome::Met } else { TrialOutcome::Missed });
        }
        let knee = search.knee();
        let (met, truth) = (knee.met_per_s.unwrap(), true_knee());
        assert_eq!(knee.ending, KneeEnding::Found);
        assert!((met / truth - 1.0).abs() < 0.05, "{met} instead of {truth} after {} trials", knee.trials.len());
    }
}

#[test]
fn a_server_is_itself_again_when_its_line_is_gone() {
    // Ten seconds of twice too much leave 10,000 in the line; at half of what the server can do, 500 a second go. So 19.8 s
    // later those who come wait for less than 100 ms, and second 20 is the first that is good throughout.
    let level = |rate: f64, duration_ns: u64| Level { from_per_s: rate, to_per_s: rate, duration_ns };
    let levels = vec![level(2000.0, 10 * SECOND_NS), level(500.0, u64::MAX)];
    let arrivals = Arrivals { levels, ..Arrivals::constant(ArrivalKind::Fixed, 1.0) };
    let mut seconds: Vec<Second> = (0..30).map(|at| Second { after_ns: at * SECOND_NS, offered: 0, good: 0 }).collect();
    drive_observed(&plan(arrivals, 40 * SECOND_NS, 1), Server::new(ONE_WORKER), 0, &mut |sample| {
        let Some(after_ns) = sample.intended_ns.checked_sub(10 * SECOND_NS) else { return };
        let second = &mut seconds[(after_ns / SECOND_NS) as usize];
        second.offered += 1;
        second.good += u64::from(sample.response_ns() < 100_000_000);
    })
    .unwrap();
    assert_eq!(recovery(&seconds), Some(Recovery::After(20 * SECOND_NS)));
    assert_eq!(recovery(&seconds[..15]), Some(Recovery::NotWithin(15 * SECOND_NS)));
}
