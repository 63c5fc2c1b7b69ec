use super::{Begin, Fate, MS, Outcome, SECOND_NS, answered, assert_requests_distinct, run, run_watched};
use crate::plan::{ArrivalKind, Arrivals, Dist, Loop, Plan, ReplayLines, Stop, Visit, WarmUp};
use std::sync::Arc;

fn open(kind: ArrivalKind, rate_per_s: f64, connections: u32, stop: Stop) -> Plan {
    Plan { kind: Loop::Open(Arrivals::constant(kind, rate_per_s)), connections, stop, ..Plan::default() }
}

fn fixed(rate_per_s: f64, connections: u32, duration_ns: u64) -> Plan {
    open(ArrivalKind::Fixed, rate_per_s, connections, Stop::After { duration_ns })
}

fn intended(outcome: &Outcome) -> Vec<(u64, u64)> {
    let mut all: Vec<_> = outcome.begun.iter().map(|begun| (begun.begin.intended_ns, begun.begin.request)).collect();
    all.sort_unstable();
    all
}

#[test]
fn arrivals_come_by_the_clock_whatever_the_server_does() {
    let outcome = run(&fixed(1_000.0, 64, SECOND_NS), 1, answered(10 * MS));
    assert_eq!(outcome.begun.len(), 1_000);
    assert!(outcome.begun.iter().all(|begun| begun.at_ns == begun.begin.intended_ns));
    assert!(outcome.begun.iter().enumerate().all(|(n, begun)| begun.at_ns == SECOND_NS + n as u64 * MS));
    assert_eq!((outcome.tally.waited, outcome.tally.dropped, outcome.tally.slots_peak), (0, 0, 10));
    assert_eq!(outcome.begun.iter().filter(|begun| begun.begin.connect).count(), 10, "idle connections are used first");
}

#[test]
fn arrivals_and_their_numbers_are_the_same_on_any_number_of_threads() {
    for kind in [ArrivalKind::Fixed, ArrivalKind::Exp, ArrivalKind::Uniform { spread: 0.3 }] {
        let plan = open(kind, 1_000.0, 64, Stop::After { duration_ns: SECOND_NS });
        let one = intended(&run(&plan, 1, answered(MS)));
        for threads in [2, 3, 7] {
            assert_eq!(intended(&run(&plan, threads, answered(MS))), one, "{kind:?} {threads}");
        }
    }
}

#[test]
fn agents_share_a_plan_as_threads_do() {
    let plan = open(ArrivalKind::Exp, 100.0, 10, Stop::Count(500));
    let shares: Vec<_> = (0..3).flat_map(|agent| plan.shares(2, agent, 3)).collect();
    assert_eq!(shares.iter().map(|share| share.connections).sum::<u32>(), 10);
    let mut numbers: Vec<u64> = Vec::new();
    for share in shares {
        let mut schedule = super::Schedule::begin(&plan, share, 0).unwrap();
        let mut now_ns = 0;
        loop {
            match schedule.next(now_ns) {
                super::Move::Begin(begin) => {
                    numbers.push(begin.visit);
                    schedule.handle_answered(begin.slot, now_ns, true);
                }
                super::Move::Close(_) | super::Move::DropClient(_) => {}
                super::Move::WaitUntil(due_ns) => now_ns = due_ns,
                super::Move::Idle | super::Move::Done => break,
            }
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..500).collect::<Vec<_>>());
}

#[test]
fn what_a_stalled_server_should_have_answered_is_measured() {
    // 100 requests per second of 1 ms each, and the server stalls for one second in three. Without coordinated
    // omission, a third of the requests takes half a second on average.
    let plan = fixed(100.0, 4, 30 * SECOND_NS);
    let mut free_ns = 0;
    let outcome = run(&plan, 1, |_, now_ns| {
        let mut begun_ns = now_ns.max(free_ns);
        let into_ns = begun_ns % (3 * SECOND_NS);
        if into_ns < SECOND_NS {
            begun_ns += SECOND_NS - into_ns;
        }
        free_ns = begun_ns + MS;
        Fate::Answered(free_ns - now_ns, true)
    });
    assert_eq!(outcome.begun.len(), 3_000);
    let mut responses: Vec<u64> = outcome.begun.iter().map(|begun| begun.ended_ns - begun.begin.intended_ns).collect();
    responses.sort_unstable();
    let slow = responses.iter().filter(|response_ns| **response_ns > 50 * MS).count();
    assert!(slow.abs_diff(1_000) < 80, "{slow}");
    assert!(responses[2_999] > 990 * MS && responses[1_500] <= 2 * MS);
    // Only four requests could be in progress; the others waited, and were counted as waiting.
    assert!(outcome.tally.waited > 900 && outcome.tally.backlog_peak > 90, "{:?}", outcome.tally);
}

#[test]
fn a_count_of_arrivals_is_exact_after_a_warm_up() {
    for warm_up in [WarmUp::None, WarmUp::For { duration_ns: 333 * MS }] {
        for threads in [1, 3] {
            let plan = Plan { warm_up, ..open(ArrivalKind::Exp, 300.0, 9, Stop::Count(500)) };
            let outcome = run(&plan, threads, answered(MS));
            assert_eq!((outcome.tally.visits, outcome.tally.visits_completed), (500, 500));
            let measured_ns = SECOND_NS + if warm_up == WarmUp::None { 0 } else { 333 * MS };
            let counted = outcome.begun.iter().filter(|begun| begun.begin.intended_ns >= measured_ns).count();
            assert_eq!(counted, 500);
        }
    }
    let warm_up = WarmUp::Steady { duration_ns_max: SECOND_NS };
    let plan = Plan { warm_up, ..open(ArrivalKind::Exp, 300.0, 9, Stop::Count(500)) };
    let outcome = run_watched(&plan, 3, answered(MS), |schedules, now_ns| {
        if now_ns >= SECOND_NS + 500 * MS {
            for schedule in schedules {
                schedule.begin_measuring(SECOND_NS + 510 * MS);
            }
        }
    });
    assert_eq!(outcome.tally.visits, 500);
}

#[test]
fn too_long_a_backlog_drops_the_oldest_and_counts_them() {
    let plan = Plan { backlog_max: 10, ..fixed(1_000.0, 1, SECOND_NS) };
    let outcome = run(&plan, 1, answered(100 * MS));
    let tally = outcome.tally;
    assert_eq!(tally.visits + tally.dropped, 1_000);
    assert!(tally.dropped > 900 && tally.backlog_peak >= 11, "{tally:?}");
    // A visit that started while others arrived had waited for at most ten others.
    let mut before_end = outcome.begun.iter().filter(|begun| begun.at_ns < 2 * SECOND_NS);
    assert!(before_end.all(|begun| begun.at_ns - begun.begin.intended_ns <= 11 * MS), "{tally:?}");
}

#[test]
fn what_waits_at_the_end_is_begun_until_the_drain_time_is_over() {
    let drained = Plan { drain_ns: 100 * SECOND_NS, ..fixed(100.0, 1, SECOND_NS) };
    let outcome = run(&drained, 1, answered(20 * MS));
    assert_eq!((outcome.begun.len(), outcome.tally.dropped), (100, 0));
    assert!(outcome.begun.last().unwrap().at_ns > 2 * SECOND_NS);
    let cut = Plan { drain_ns: 200 * MS, ..drained };
    let outcome = run(&cut, 1, answered(20 * MS));
    assert_eq!((outcome.begun.len(), outcome.tally.dropped), (60, 40));
    let never = Plan { drain_ns: 0, ..cut };
    let outcome = run(&never, 1, answered(20 * MS));
    assert_eq!((outcome.begun.len(), outcome.tally.dropped), (50, 50));
}

#[test]
fn a_server_that_never_answers_does_not_keep_the_run_from_ending() {
    // The driver's timeout fails each request after 2 s.
    let plan = Plan { drain_ns: SECOND_NS, ..fixed(100.0, 5, SECOND_NS) };
    let outcome = run(&plan, 2, |_, _| Fate::Failed(2 * SECOND_NS));
    assert_eq!(outcome.begun.len() as u64 + outcome.tally.dropped, 100);
    assert_eq!(outcome.begun.len(), 5);
    assert_eq!(outcome.ended_ns, outcome.begun.iter().map(|begun| begun.ended_ns).max().unwrap());
}

#[test]
fn refused_connections_use_up_their_arrivals() {
    let outcome = run(&fixed(100.0, 5, SECOND_NS), 1, |_, _| Fate::Refused(1_000));
    assert_eq!((outcome.begun.len(), outcome.tally.dropped), (100, 0));
}

#[test]
fn a_visit_may_be_a_connection_with_calls() {
    let plan = Plan { visit: Visit::Connection { calls: 5 }, ..open(ArrivalKind::Fixed, 50.0, 100, Stop::Count(50)) };
    let outcome = run(&plan, 3, answered(MS));
    assert_eq!((outcome.begun.len(), outcome.tally.visits_completed), (250, 50));
    assert!(outcome.begun.iter().all(|begun| begun.begin.connect == (begun.begin.call == 0)));
    assert!(outcome.begun.iter().all(|begun| begun.begin.closes == (begun.begin.call == 4)));
    assert_requests_distinct(&outcome.begun);
    // Only the first call starts by the clock; the others follow the responses.
    let second = outcome.begun.iter().find(|begun| begun.begin.call == 1).unwrap();
    assert_eq!(second.begin.intended_ns, second.at_ns);
}

#[test]
fn sessions_have_their_lengths_and_think_times() {
    let plan = Plan {
        visit: Visit::Session { length: Dist::parse_number("30%:1,70%:5..15").unwrap() },
        think_ns: Dist::Uniform { from: 5e6, to: 15e6 },
        ..open(ArrivalKind::Exp, 100.0, 1_000, Stop::Count(4_000))
    };
    let outcome = run(&plan, 2, answered(MS));
    assert_eq!((outcome.tally.visits, outcome.tally.visits_completed, outcome.tally.waited), (4_000, 4_000, 0));
    let mean = outcome.begun.len() as f64 / 4_000.0;
    assert!((mean - 7.3).abs() < 0.2, "{mean}");
    assert_requests_distinct(&outcome.begun);
    let mut by_visit = std::collections::BTreeMap::<u64, Vec<&super::Begun>>::new();
    for begun in &outcome.begun {
        by_visit.entry(begun.begin.visit).or_default().push(begun);
    }
    for calls in by_visit.values() {
        assert!(calls.len() == 1 || (5..=15).contains(&calls.len()));
        assert!(calls.windows(2).all(|pair| {
            let think_ns = pair[1].begin.intended_ns - pair[0].ended_ns;
            (5 * MS..15 * MS).contains(&think_ns) && pair[1].begin.slot == pair[0].begin.slot
        }));
    }
}

#[test]
fn sessions_are_the_same_on_any_number_of_threads() {
    let plan = Plan {
        visit: Visit::Session { length: Dist::Exp(4.0) },
        think_ns: Dist::Exp(5e6),
        ..open(ArrivalKind::Exp, 100.0, 1_000, Stop::Count(300))
    };
    let times = |threads| {
        let outcome = run(&plan, threads, answered(MS));
        let mut times: Vec<_> =
            outcome.begun.iter().map(|begun| (begun.begin.visit, begun.begin.call, begun.at_ns)).collect();
        times.sort_unstable();
        times
    };
    assert_eq!(times(1), times(4));
}

#[test]
fn a_session_goes_on_with_a_new_connection_when_the_server_closed_the_old_one() {
    let plan = Plan {
        visit: Visit::Session { length: Dist::Fixed(3.0) },
        think_ns: Dist::Fixed(5e6),
        ..open(ArrivalKind::Fixed, 10.0, 4, Stop::Count(1))
    };
    let mut was_closed = false;
    let outcome = run_watched(&plan, 1, answered(MS), |schedules, now_ns| {
        if now_ns == SECOND_NS + MS && !was_closed {
            was_closed = true;
            return;
        }
        if was_closed {
            schedules[0].handle_closed(0);
        }
    });
    let connects: Vec<bool> = outcome.begun.iter().map(|begun| begun.begin.connect).collect();
    assert_eq!(connects, vec![true, true, true]);
}

#[test]
fn a_connection_is_opened_only_if_no_open_one_is_idle() {
    let plan = fixed(1_000.0, 8, SECOND_NS);
    let mut schedule = super::Schedule::begin(&plan, plan.shares(1, 0, 1)[0], 0).unwrap();
    let begin = |schedule: &mut super::Schedule, at_ms: u64| match schedule.next(at_ms * MS) {
        super::Move::Begin(begin) => (begin.slot, begin.connect),
        other => panic!("{other:?}"),
    };
    let answer = |schedule: &mut super::Schedule, slot, at_ms: u64| {
        assert_eq!(schedule.handle_answered(slot, at_ms * MS + 1, true), None);
    };
    assert_eq!((begin(&mut schedule, 0), begin(&mut schedule, 1)), ((0, true), (1, true)));
    answer(&mut schedule, 0, 1);
    answer(&mut schedule, 1, 1);
    // The connection that became idle last is used first, and the other one only if both are needed.
    for at_ms in [2, 3] {
        assert_eq!(begin(&mut schedule, at_ms), (1, false));
        answer(&mut schedule, 1, at_ms);
    }
    assert_eq!((begin(&mut schedule, 4), begin(&mut schedule, 5)), ((1, false), (0, false)));
    answer(&mut schedule, 1, 5);
    answer(&mut schedule, 0, 5);
    // The server closes the connection that became idle last.
    schedule.handle_closed(0);
    assert_eq!((begin(&mut schedule, 6), begin(&mut schedule, 7)), ((1, false), (2, true)));
}

#[test]
fn a_slot_that_was_withdrawn_has_no_connection_when_it_is_used_again() {
    let plan = fixed(1_000.0, 2, SECOND_NS);
    let mut schedule = super::Schedule::begin(&plan, plan.shares(1, 0, 1)[0], 0).unwrap();
    let begin = |schedule: &mut super::Schedule, at_ms: u64| match schedule.next(at_ms * MS) {
        super::Move::Begin(begin) => begin,
        other => panic!("{other:?}"),
    };
    let first = begin(&mut schedule, 0);
    assert_eq!(schedule.handle_answered(first.slot, 1, true), None);
    // The server permits fewer streams on the next connection, and then more.
    let again = begin(&mut schedule, 1);
    assert_eq!((again.slot, again.connect), (first.slot, false));
    schedule.handle_unusable(&again, 1);
    schedule.handle_usable(again.slot, 2, MS + 1);
    schedule.handle_closed(again.slot);
    // The withdrawn arrival and the next one have a slot each, and there is no third.
    let slots = [begin(&mut schedule, 2), begin(&mut schedule, 2)].map(|begin| (begin.slot, begin.connect));
    assert!(slots.contains(&(0, true)) && slots.contains(&(1, true)), "{slots:?}");
    assert!(!matches!(schedule.next(3 * MS), super::Move::Begin(_)));
}

#[test]
fn sessions_are_cut_at_the_deadline_and_not_called_complete() {
    let plan = Plan {
        visit: Visit::Session { length: Dist::Fixed(90.0) },
        think_ns: Dist::Fixed(10e6),
        ..fixed(10.0, 100, SECOND_NS)
    };
    let outcome = run(&plan, 1, answered(MS));
    assert_eq!((outcome.tally.visits, outcome.tally.visits_completed), (10, 1));
    assert!(outcome.begun.iter().all(|begun| begun.begin.intended_ns < 2 * SECOND_NS));
}

#[test]
fn bursts_are_sent_whole() {
    let plan = Plan { burst: 8, ..fixed(100.0, 4, SECOND_NS) };
    let outcome = run(&plan, 2, answered(MS));
    assert_eq!((outcome.requests(), outcome.begun.len(), outcome.tally.requests), (800, 100, 800));
    assert_requests_distinct(&outcome.begun);
    assert_eq!(plan.offered_per_s(), Some(800.0));
}

#[test]
fn a_replay_keeps_the_times_of_its_log() {
    let times = [0, MS, MS, 50 * MS, 51 * MS];
    let plan = Plan {
        kind: Loop::Open(Arrivals::replay(Arc::new(ReplayLines::of(times.into_iter().zip([0, 1, 0, 2, 1]))))),
        connections: 3,
        stop: Stop::Count(1_000),
        ..Plan::default()
    };
    let outcome = run(&plan, 2, answered(2 * MS));
    let begun: Vec<_> = intended(&outcome);
    let expected: Vec<_> = times.iter().enumerate().map(|(n, time_ns)| (SECOND_NS + time_ns, n as u64)).collect();
    assert_eq!(begun, expected);
}

#[test]
fn a_late_driver_begins_late_and_keeps_what_was_intended() {
    let plan = fixed(1_000.0, 64, SECOND_NS);
    let mut schedule = super::Schedule::begin(&plan, plan.shares(1, 0, 1)[0], 0).unwrap();
    let late_ns = 20 * MS;
    let mut begins: Vec<Begin> = Vec::new();
    while let super::Move::Begin(begin) = schedule.next(late_ns) {
        begins.push(begin);
    }
    assert_eq!(begins.len(), 21);
    assert!(begins.iter().enumerate().all(|(n, begin)| begin.intended_ns == n as u64 * MS));
    assert_eq!(schedule.tally().waited, 0, "the driver was late, not a connection");
}

#[test]
fn an_arrival_whose_slot_has_no_stream_waits_for_another_slot_with_its_intended_start() {
    let one_of = |usable: u32| {
        move |begin: &Begin, _| {
            if begin.slot < usable { Fate::Answered(9 * MS / 4, true) } else { Fate::Unusable(MS / 2) }
        }
    };
    let outcome = run(&fixed(1_000.0, 4, 10 * MS), 1, one_of(2));
    let starts: Vec<u64> = outcome.begun.iter().map(|begun| begun.at_ns - begun.begin.intended_ns).collect();
    assert_eq!(intended(&outcome).len(), 10);
    // The third arrival tries slot 2 and the fourth tries slot 3, each of which is found unusable half a millisecond
    // later. Then another slot is idle. The two usable slots are too few for the rate, so later arrivals wait too.
    assert_eq!(starts, [0, 0, 2, 2, 3, 3, 4, 4, 5, 5].map(|quarters| quarters * MS / 4));
    assert_eq!((outcome.tally.requests, outcome.tally.dropped, outcome.tally.slots_unusable), (10, 0, 2));
    // With a single usable slot that is busy for a long time, arrivals wait, and the wait is theirs.
    let slow = |begin: &Begin, _| if begin.slot == 0 { Fate::Answered(3 * MS, true) } else { Fate::Unusable(0) };
    let outcome = run(&fixed(1_000.0, 4, 10 * MS), 1, slow);
    assert_eq!(outcome.begun.last().map(|begun| begun.at_ns - begun.begin.intended_ns), Some(18 * MS));
    assert!(outcome.begun.is_sorted_by_key(|begun| begun.begin.intended_ns), "{outcome:#?}");
    assert_eq!((outcome.tally.requests, outcome.tally.waited > 0), (10, true));
}

#[test]
fn the_rate_rises_evenly_over_the_ramp_which_is_not_measured() {
    let arrivals = Arrivals::constant(ArrivalKind::Fixed, 1_000.0);
    let plan = Plan {
        kind: Loop::Open(arrivals),
        ramp_ns: 100 * MS,
        stop: Stop::After { duration_ns: 100 * MS },
        ..Plan::default()
    };
    for threads in [1, 3] {
        let outcome = run(&plan, threads, answered(MS));
        let begun_before = |ms: u64| outcome.begun.iter().filter(|begun| begun.at_ns < SECOND_NS + ms * MS).count();
        // The integral of the rate: 1,000/s times t²/2 over 100 ms.
        assert_eq!([25, 50, 75, 100, 150, 200].map(begun_before), [4, 13, 29, 50, 100, 150]);
        assert_eq!((outcome.tally.requests, outcome.begun.len()), (100, 150));
        let counted = run(&Plan { stop: Stop::Count(30), ..plan.clone() }, threads, answered(MS));
        assert_eq!((counted.tally.requests, counted.begun.len()), (30, 80));
    }
}
