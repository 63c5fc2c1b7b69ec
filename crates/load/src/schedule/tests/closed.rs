use super::super::{RETRY_PAUSE_NS_MAX, RETRY_PAUSE_NS_MIN};
use super::{Fate, MS, SECOND_NS, answered, assert_requests_distinct, run, run_watched};
use crate::plan::{Dist, Plan, Stop, Visit, WarmUp};
use std::collections::BTreeSet;

fn closed(connections: u32, stop: Stop) -> Plan {
    Plan { connections, stop, ..Plan::default() }
}

#[test]
fn a_count_is_exact_over_any_threads_connections_and_bursts() {
    for (connections, threads, count, burst) in [
        (1, 1, 1, 1),
        (64, 3, 1_000, 1),
        (7, 2, 8, 1),
        (64, 8, 3, 1),
        (3, 2, 1_000, 7),
        (5, 5, 5, 10),
        (2, 1, 101, 100),
    ] {
        let plan = Plan { burst, ..closed(connections, Stop::Count(count)) };
        let outcome = run(&plan, threads, answered(MS));
        let requests = count * u64::from(burst);
        assert_eq!(outcome.requests(), requests, "{connections} {threads} {count} {burst}");
        assert_eq!((outcome.tally.requests, outcome.tally.bursts), (requests, outcome.begun.len() as u64));
        assert_requests_distinct(&outcome.begun);
    }
}

#[test]
fn every_connection_is_kept_and_busy_all_the_time() {
    let outcome = run(&closed(4, Stop::After { duration_ns: 100 * MS }), 2, answered(MS));
    assert_eq!(outcome.begun.len(), 400);
    assert_eq!(outcome.begun.iter().filter(|begun| begun.begin.connect).count(), 4);
    assert!(outcome.begun.iter().all(|begun| begun.at_ns == begun.begin.intended_ns && !begun.begin.closes));
    assert_eq!((outcome.tally.slots_peak, outcome.tally.visits_completed), (4, 400));
}

#[test]
fn nothing_is_begun_at_or_after_the_deadline() {
    let outcome = run(&closed(1, Stop::After { duration_ns: 10 * MS }), 1, answered(MS));
    let last = outcome.begun.last().unwrap();
    assert_eq!((outcome.begun.len(), last.at_ns), (10, SECOND_NS + 9 * MS));
}

#[test]
fn a_connection_for_each_visit_is_new_and_closed_after_its_calls() {
    let plan = Plan { visit: Visit::Connection { calls: 3 }, ..closed(2, Stop::After { duration_ns: 30 * MS }) };
    let outcome = run(&plan, 1, answered(MS));
    assert!(outcome.begun.iter().all(|begun| begun.begin.connect == (begun.begin.call == 0)));
    assert!(outcome.begun.iter().all(|begun| begun.begin.closes == (begun.begin.call == 2)));
    assert_eq!((outcome.tally.visits, outcome.tally.visits_completed, outcome.tally.bursts), (20, 20, 60));
}

#[test]
fn thinking_lowers_the_rate_as_the_law_says() {
    // N = X (R + Z): 20 connections, 2 ms of service and 8 ms of think time give 2,000 requests per second.
    let plan = Plan { think_ns: Dist::Exp(8e6), ..closed(20, Stop::After { duration_ns: 20 * SECOND_NS }) };
    let outcome = run(&plan, 2, answered(2 * MS));
    assert!(outcome.begun.len().abs_diff(40_000) < 800, "{}", outcome.begun.len());
    assert!(outcome.begun.iter().all(|begun| begun.at_ns == begun.begin.intended_ns));
}

#[test]
fn thinkers_do_not_all_begin_at_once() {
    let plan = Plan { think_ns: Dist::Fixed(1e9), ..closed(100, Stop::After { duration_ns: SECOND_NS }) };
    let outcome = run(&plan, 1, answered(MS));
    let in_first_tenth = outcome.begun.iter().filter(|begun| begun.at_ns < SECOND_NS + 100 * MS).count();
    assert!((1..30).contains(&in_first_tenth), "{in_first_tenth}");
}

#[test]
fn warm_up_is_before_the_count_and_before_the_time() {
    let warm_up = WarmUp::For { duration_ns: 50 * MS };
    let outcome = run(&Plan { warm_up, ..closed(2, Stop::Count(10)) }, 1, answered(MS));
    let measured = outcome.begun.iter().filter(|begun| begun.begin.intended_ns >= SECOND_NS + 50 * MS).count();
    assert_eq!((measured, outcome.begun.len(), outcome.tally.requests), (10, 110, 10));
    let plan = Plan { warm_up, ..closed(2, Stop::After { duration_ns: 20 * MS }) };
    assert_eq!(run(&plan, 1, answered(MS)).begun.len(), 140);
}

#[test]
fn a_warm_up_by_steady_state_lasts_until_it_is_told_to_end() {
    let warm_up = WarmUp::Steady { duration_ns_max: 99 * SECOND_NS };
    let plan = Plan { warm_up, ..closed(1, Stop::Count(10)) };
    let outcome = run_watched(&plan, 1, answered(MS), |schedules, now_ns| {
        if now_ns >= SECOND_NS + 30 * MS {
            schedules[0].begin_measuring(SECOND_NS + 40 * MS);
            schedules[0].begin_measuring(0); // a second word changes nothing
        }
    });
    assert_eq!((outcome.begun.len(), outcome.tally.requests), (50, 10));
}

#[test]
fn stop_ends_the_run_at_once() {
    let outcome = run_watched(&closed(3, Stop::Count(1_000)), 1, answered(MS), |schedules, now_ns| {
        if now_ns >= SECOND_NS + 5 * MS {
            schedules[0].stop();
        }
    });
    assert_eq!(outcome.begun.len(), 15 + 3, "those that were answered at that moment had gone on");
}

#[test]
fn a_server_that_never_answered_is_given_up() {
    let plan = closed(4, Stop::After { duration_ns: 60 * SECOND_NS });
    let outcome = run(&plan, 2, |_, _| Fate::Refused(1));
    assert_eq!((outcome.begun.len(), outcome.tally.slots_given_up), (4, 4));
    assert!(outcome.ended_ns < SECOND_NS + MS);
}

#[test]
fn a_server_that_died_is_tried_with_growing_pauses() {
    let plan = closed(1, Stop::Count(1_000));
    let dies_ns = SECOND_NS + 5 * MS;
    let outcome = run(&plan, 1, |_, now_ns| if now_ns < dies_ns { Fate::Answered(MS, true) } else { Fate::Refused(0) });
    let tries: Vec<u64> = outcome.begun.iter().map(|begun| begun.at_ns).filter(|at_ns| *at_ns >= dies_ns).collect();
    let pauses: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[..3], [RETRY_PAUSE_NS_MIN, 2 * RETRY_PAUSE_NS_MIN, 4 * RETRY_PAUSE_NS_MIN]);
    assert_eq!(pauses.iter().max(), Some(&RETRY_PAUSE_NS_MAX));
    assert_eq!((tries.last(), outcome.tally.slots_given_up), (Some(&(dies_ns + plan.timeout_ns)), 1));
}

#[test]
fn a_run_for_a_time_finds_a_server_that_came_back() {
    let plan = closed(1, Stop::After { duration_ns: 60 * SECOND_NS });
    let is_down = |now_ns: u64| (10 * SECOND_NS..50 * SECOND_NS).contains(&now_ns);
    let outcome = run(&plan, 1, |_, now_ns| if is_down(now_ns) { Fate::Refused(0) } else { Fate::Answered(MS, true) });
    assert!(outcome.begun.iter().filter(|begun| begun.at_ns > 51 * SECOND_NS).count() > 9_000);
    // It was down for 40 of the seconds; the last pause is at most a second.
    assert!((40 * SECOND_NS..=41 * SECOND_NS).contains(&outcome.tally.unconnected_ns), "{:?}", outcome.tally);
}

#[test]
fn the_time_without_a_connection_is_counted_in_the_measured_span() {
    let plan = Plan {
        warm_up: WarmUp::For { duration_ns: 10 * SECOND_NS },
        ..closed(2, Stop::After { duration_ns: 10 * SECOND_NS })
    };
    // The server dies in the warm-up, and attempts to connect take half a second.
    let is_down = |now_ns: u64| now_ns >= 5 * SECOND_NS;
    let refused = Fate::Refused(SECOND_NS / 2);
    let outcome = run(&plan, 1, |_, now_ns| if is_down(now_ns) { refused } else { Fate::Answered(MS, true) });
    assert_eq!(outcome.tally.unconnected_ns, 2 * 10 * SECOND_NS);
    // The failure of a connection that was open is none of connecting.
    let outcome = run(&closed(2, Stop::Count(100)), 1, |_, _| Fate::Failed(MS));
    assert_eq!(outcome.tally.unconnected_ns, 0);
}

#[test]
fn a_request_that_failed_is_followed_by_a_new_one_on_a_new_connection() {
    let plan = closed(2, Stop::Count(100));
    let outcome = run(&plan, 1, |begin, _| match begin.request % 10 {
        5 => Fate::Failed(MS),
        7 => Fate::Answered(MS, false),
        _ => Fate::Answered(MS, true),
    });
    assert_eq!(outcome.requests(), 100);
    assert_eq!(outcome.begun.iter().filter(|begun| begun.begin.connect).count(), 2 + 20);
}

#[test]
fn events_of_slots_that_are_not_at_work_change_nothing() {
    let plan = closed(2, Stop::Count(3));
    let mut schedule = super::Schedule::begin(&plan, plan.shares(1, 0, 1)[0], 0).unwrap();
    assert_eq!(schedule.handle_answered(0, 1, true), None);
    assert_eq!(schedule.handle_answered(99, 1, true), None);
    schedule.handle_failed(0, 1, false);
    schedule.handle_failed(99, 1, false);
    schedule.handle_closed(99);
    schedule.handle_connected(99);
    assert_eq!(schedule.tally(), super::Tally::default());
}

#[test]
fn slots_without_a_stream_are_not_used_and_the_others_send_their_requests() {
    // The only usable slot gets its response before, at the same time as, or after the others are withdrawn.
    for after_ns in [MS, 2 * MS, 3 * MS] {
        let outcome = run(&closed(8, Stop::Count(20)), 1, |begin, _| match begin.slot {
            0 => Fate::Answered(2 * MS, true),
            _ => Fate::Unusable(after_ns),
        });
        assert_eq!((outcome.begun.len(), outcome.tally.requests, outcome.tally.visits), (20, 20, 20), "{after_ns}");
        assert!(outcome.begun.iter().all(|begun| begun.begin.slot == 0 && begun.at_ns == begun.begin.intended_ns));
        let tally = outcome.tally;
        assert_eq!((tally.slots_peak, tally.slots_unusable, tally.streams_max), (1, 7, Some(1)));
        // All requests of a list are sent.
        let numbers: BTreeSet<u64> = outcome.begun.iter().map(|begun| begun.begin.request).collect();
        assert_eq!(numbers, (0..20).collect(), "{after_ns}");
    }
}

#[test]
fn connections_start_evenly_over_the_ramp_which_is_not_measured() {
    let ramped = Plan { ramp_ns: 40 * MS, ..closed(4, Stop::After { duration_ns: 20 * MS }) };
    for (warm_up, until_ms) in [(WarmUp::None, 60), (WarmUp::For { duration_ns: 5 * MS }, 65)] {
        for threads in [1, 2, 3] {
            let outcome = run(&Plan { warm_up, ..ramped.clone() }, threads, answered(MS));
            let connects = outcome.begun.iter().filter(|begun| begun.begin.connect);
            let mut starts: Vec<_> = connects.map(|begun| begun.at_ns - SECOND_NS).collect();
            starts.sort_unstable();
            assert_eq!(starts, [0, 10 * MS, 20 * MS, 30 * MS]);
            let last = outcome.begun.iter().map(|begun| begun.at_ns - SECOND_NS).max();
            assert_eq!((outcome.tally.requests, last), (4 * 20, Some((until_ms - 1) * MS)));
        }
    }
    // A count is that of the measured requests.
    let outcome = run(&Plan { stop: Stop::Count(50), ..ramped }, 2, answered(MS));
    assert_eq!((outcome.tally.requests, outcome.requests()), (50, 50 + 40 + 30 + 20 + 10));
}
