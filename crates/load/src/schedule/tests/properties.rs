use super::{Fate, SECOND_NS, assert_requests_distinct, run};
use crate::plan::{ArrivalKind, Arrivals, Dist, Loop, Plan, Stop, Visit, WarmUp};
use crate::random::Random;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

fn any_plan() -> impl Strategy<Value = Plan> {
    let kind = prop_oneof![
        Just(ArrivalKind::Fixed),
        Just(ArrivalKind::Exp),
        (0.0..=1.0).prop_map(|spread| ArrivalKind::Uniform { spread }),
    ];
    let looped = prop_oneof![
        Just(Loop::Closed),
        (kind, 1.0..500.0).prop_map(|(kind, rate)| Loop::Open(Arrivals::constant(kind, rate))),
    ];
    let visit = prop_oneof![
        Just(Visit::Request),
        (1_u32..5).prop_map(|calls| Visit::Connection { calls }),
        (0.0..6.0).prop_map(|mean| Visit::Session { length: Dist::Exp(mean) }),
    ];
    let stop = prop_oneof![
        (1_u64..400).prop_map(Stop::Count),
        (1_u64..2 * SECOND_NS).prop_map(|duration_ns| Stop::After { duration_ns }),
    ];
    let warm_up = prop_oneof![Just(WarmUp::None), (0..SECOND_NS).prop_map(|duration_ns| WarmUp::For { duration_ns })];
    let think = prop_oneof![Just(Dist::ZERO), (0.0..20e6).prop_map(Dist::Exp)];
    let numbers = (1_u32..6, 1_u32..20, any::<u64>(), 0_u64..50, 0_u64..SECOND_NS);
    (looped, visit, stop, warm_up, think, numbers).prop_map(
        |(kind, visit, stop, warm_up, think_ns, (burst, connections, seed, backlog_max, drain_ns))| Plan {
            kind,
            visit,
            burst,
            think_ns,
            connections,
            warm_up,
            stop,
            backlog_max,
            drain_ns,
            seed,
            ..Plan::default()
        },
    )
}

proptest! {
    /// Whatever the plan is and however the server fails, the run ends, no slot is used twice at once (the harness
    /// checks that), nothing starts before its time or is intended after the end, and every arrival is started or
    /// counted as dropped.
    #[test]
    fn every_arrival_is_begun_or_counted(plan in any_plan(), threads in 1_u32..4, faults in 0_u64..4) {
        let mut random = Random::new(plan.seed);
        let outcome = run(&plan, threads, |begin, _| {
            let after_ns = 100_000 + random.below(10_000_000);
            match random.below(10) {
                0 if faults > 0 => Fate::Failed(after_ns),
                1 if faults > 1 => Fate::Answered(after_ns, false),
                2 if faults > 2 => Fate::Refused(after_ns),
                _ => Fate::Answered(after_ns, !begin.closes),
            }
        });
        let measured_ns = SECOND_NS + match plan.warm_up { WarmUp::For { duration_ns } => duration_ns, _ => 0 };
        assert_requests_distinct(&outcome.begun);
        prop_assert!(outcome.begun.iter().all(|begun| begun.at_ns >= begun.begin.intended_ns));
        prop_assert!(outcome.begun.iter().all(|begun| begun.begin.burst >= 1 && begun.begin.burst <= plan.burst));
        let shares = plan.shares(threads, 0, 1);
        prop_assert!(outcome.begun.iter().all(|begun| begun.begin.slot < shares[begun.share].connections));
        if let Stop::After { duration_ns } = plan.stop {
            prop_assert!(outcome.begun.iter().all(|begun| begun.begin.intended_ns < measured_ns + duration_ns));
        }
        let measured: u64 = outcome.begun.iter()
            .filter(|begun| begun.begin.intended_ns >= measured_ns).map(|begun| u64::from(begun.begin.burst)).sum();
        prop_assert_eq!(measured, outcome.tally.requests);
        match (&plan.kind, plan.stop) {
            (Loop::Open(arrivals), stop) => {
                let times = arrivals.times(plan.seed).map(|time_ns| SECOND_NS + time_ns)
                    .skip_while(|time_ns| *time_ns < measured_ns);
                let expected = match stop {
                    Stop::Count(count) => count,
                    Stop::After { duration_ns } => {
                        times.take_while(|time_ns| *time_ns < measured_ns + duration_ns).count() as u64
                    }
                    Stop::Tight { .. } => 0,
                };
                prop_assert_eq!(outcome.tally.visits + outcome.tally.dropped, expected);
            }
            (Loop::Closed, Stop::Count(count)) if faults < 3 => prop_assert_eq!(measured, count * u64::from(plan.burst)),
            (Loop::Closed, _) => {}
        }
    }
}
