//! Tests of replays. Each client of the log has its own connections, which no other client uses.

use super::{Begin, Begun, Fate, MS, Outcome, SECOND_NS, Schedule, answered, run};
use crate::plan::{Arrivals, Loop, Plan, ReplayLines, Stop, Visit};
use crate::schedule::Move;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns the plan of a replay of lines, each with its time in milliseconds and its client.
fn replay(lines: &[(u64, u32)], connections: u32) -> Plan {
    let times = lines.iter().map(|(at_ms, session)| (at_ms * MS, *session));
    Plan {
        kind: Loop::Open(Arrivals::replay(Arc::new(ReplayLines::of(times)))),
        connections,
        stop: Stop::Count(lines.len() as u64),
        ..Plan::default()
    }
}

/// Returns the lines of each connection, in the order of the requests.
fn connections(outcome: &Outcome) -> Vec<Vec<u64>> {
    let mut now: BTreeMap<(usize, u32), Vec<u64>> = BTreeMap::new();
    let mut all = Vec::new();
    for Begun { share, begin, .. } in &outcome.begun {
        let lines = now.entry((*share, begin.slot)).or_default();
        if begin.connect && !lines.is_empty() {
            all.push(std::mem::take(lines));
        }
        lines.push(begin.visit);
    }
    all.extend(now.into_values());
    all.sort_unstable();
    all
}

#[test]
fn a_client_keeps_its_connection_and_no_other_uses_it() {
    let lines = [(0, 0), (10, 1), (20, 0), (30, 2), (40, 1), (50, 0), (60, 2)];
    for threads in [1, 2, 3] {
        let outcome = run(&replay(&lines, 9), threads, answered(MS));
        assert_eq!(connections(&outcome), [vec![0, 2, 5], vec![1, 4], vec![3, 6]], "{threads} threads");
        assert!(outcome.begun.iter().all(|begun| begun.at_ns == begun.begin.intended_ns));
    }
}

#[test]
fn a_late_answer_does_not_delay_the_clients_next_line() {
    // The first response takes a second: the client's next lines are sent on another connection when they are due.
    let lines = [(0, 0), (10, 0), (20, 0), (25, 1), (1500, 0)];
    let late = |begin: &Begin, _| Fate::Answered(if begin.visit == 0 { SECOND_NS } else { MS }, true);
    let outcome = run(&replay(&lines, 9), 1, late);
    assert!(outcome.begun.iter().all(|begun| begun.at_ns == begun.begin.intended_ns), "{outcome:?}");
    assert_eq!(connections(&outcome), [vec![0], vec![1, 2, 4], vec![3]]);
}

#[test]
fn a_connection_that_the_server_closed_is_replaced() {
    let outcome = run(&replay(&[(0, 0), (10, 0), (20, 0)], 4), 1, |begin, _| Fate::Answered(MS, begin.visit != 0));
    assert_eq!(connections(&outcome), [vec![0], vec![1, 2]]);
    let outcome = run(&replay(&[(0, 0), (10, 0), (20, 0)], 4), 1, |begin, _| match begin.visit {
        0 => Fate::Refused(MS),
        _ => Fate::Answered(MS, true),
    });
    assert_eq!(connections(&outcome), [vec![0], vec![1, 2]]);
}

#[test]
fn where_all_connections_are_taken_the_longest_idle_is_closed() {
    let lines = [(0, 0), (10, 1), (20, 2), (30, 1), (40, 0), (50, 2)];
    let outcome = run(&replay(&lines, 2), 1, answered(MS));
    // Client 2 takes the place of client 0. Client 0 later takes the place of client 1, which has ended by then.
    assert_eq!(connections(&outcome), [vec![0], vec![1, 3], vec![2, 5], vec![4]]);
    assert_eq!((outcome.begun.len(), outcome.tally.slots_peak), (6, 1));
    // A single connection serves all clients one after another.
    let outcome = run(&replay(&lines, 1), 1, answered(MS));
    assert_eq!(connections(&outcome).len(), 6);
}

#[test]
fn a_client_that_has_gone_leaves_no_connection() {
    // Client 0 has two connections when its last line begins: one is idle, and the other still waits for its response.
    let plan = replay(&[(0, 0), (1, 0), (2, 0), (10, 0), (50, 1)], 8);
    let mut schedule = Schedule::begin(&plan, plan.shares(1, 0, 1)[0], 0).unwrap();
    let begin = |schedule: &mut Schedule, now_ns| match schedule.next(now_ns) {
        Move::Begin(begin) => begin.slot,
        other => panic!("{other:?}"),
    };
    let first = begin(&mut schedule, 0);
    let second = begin(&mut schedule, MS);
    let third = begin(&mut schedule, 2 * MS);
    for slot in [first, second] {
        assert_eq!(schedule.handle_answered(slot, 3 * MS, true), None);
    }
    assert_eq!(begin(&mut schedule, 10 * MS), first);
    assert_eq!(schedule.next(10 * MS), Move::Close(second));
    assert_eq!(schedule.next(10 * MS), Move::WaitUntil(50 * MS));
    schedule.handle_answered(first, 11 * MS, true);
    assert_eq!(schedule.next(11 * MS), Move::Close(first));
    // The server closed this connection.
    schedule.handle_answered(third, 12 * MS, false);
    assert_eq!(schedule.next(12 * MS), Move::DropClient(0));
    assert_eq!(schedule.next(12 * MS), Move::WaitUntil(50 * MS));
    let last = begin(&mut schedule, 50 * MS);
    schedule.handle_answered(last, 51 * MS, true);
    let moves = [(); 3].map(|()| schedule.next(51 * MS));
    assert_eq!(moves, [Move::DropClient(1), Move::Close(last), Move::Done]);
}

#[test]
fn what_would_ask_for_lines_again_or_later_is_refused() {
    let plan = replay(&[(0, 0)], 1);
    for plan in [
        Plan { burst: 2, ..plan.clone() },
        Plan { visit: Visit::Connection { calls: 2 }, ..plan.clone() },
        Plan { visit: Visit::Session { length: crate::plan::Dist::Fixed(1.0) }, ..plan.clone() },
        Plan { think_ns: crate::plan::Dist::Fixed(1.0), ..plan.clone() },
    ] {
        assert!(plan.check().unwrap_err().to_string().contains("each request in its log once"));
    }
    // A connection per line also keeps clients separate.
    let each = Plan { visit: Visit::Connection { calls: 1 }, ..replay(&[(0, 0), (10, 0), (20, 1)], 2) };
    let outcome = run(&each, 1, answered(MS));
    assert!(outcome.begun.iter().all(|begun| begun.begin.connect && begun.begin.closes));
    assert_eq!(outcome.tally.visits_completed, 3);
}

proptest! {
    #[test]
    fn every_line_is_asked_for_once_and_by_its_own_client(
        mut lines in proptest::collection::vec((0_u64..200, 0_u32..8), 1..60),
        connections_max in 1_u32..12,
        threads in 1_u32..4,
        answers in proptest::collection::vec((1_u64..60, 0_u32..10), 7),
    ) {
        lines.sort_by_key(|(at_ms, _)| *at_ms);
        // Sessions are numbered without gaps.
        let names: BTreeSet<u32> = lines.iter().map(|(_, session)| *session).collect();
        for (_, session) in &mut lines {
            *session = names.iter().position(|name| name == session).unwrap() as u32;
        }
        let outcome = run(&replay(&lines, connections_max), threads, |begin, _| {
            let (after_ms, fate) = answers[begin.visit as usize % answers.len()];
            match fate {
                0 => Fate::Failed(after_ms * MS),
                1 => Fate::Refused(after_ms * MS),
                other => Fate::Answered(after_ms * MS, other != 2),
            }
        });
        let mut visits: Vec<u64> = outcome.begun.iter().map(|begun| begun.begin.visit).collect();
        visits.sort_unstable();
        prop_assert_eq!(visits, (0..lines.len() as u64).collect::<Vec<_>>());
        for connection in connections(&outcome) {
            let clients: BTreeSet<u32> = connection.iter().map(|line| lines[*line as usize].1).collect();
            prop_assert_eq!(clients.len(), 1, "{:?}", connection);
        }
        for begun in &outcome.begun {
            prop_assert!(begun.begin.intended_ns == SECOND_NS + lines[begun.begin.visit as usize].0 * MS);
        }
    }
}
