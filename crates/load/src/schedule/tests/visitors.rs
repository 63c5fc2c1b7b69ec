//! Tests of who makes the requests of a burst.

use super::{MS, Schedule};
use crate::plan::{ArrivalKind, Arrivals, Dist, Loop, Plan, ReplayLines, Stop, Visit};
use crate::schedule::Move;
use std::sync::Arc;

/// Runs a plan with one thread, and returns the client of each burst: its number, its visit, and whether it ends. Every
/// response takes a millisecond, and every second one ends its connection.
fn visitors(plan: &Plan) -> Vec<(u64, u64, bool)> {
    let share = plan.shares(1, 0, 1)[0];
    let mut schedule = Schedule::begin(plan, share, 0).unwrap();
    let (mut now_ns, mut found) = (0, Vec::new());
    loop {
        let mut next = schedule.next(now_ns);
        while let Move::Begin(begin) = next {
            let visitor = schedule.visitor(&begin);
            found.push((visitor.number, visitor.visit, visitor.is_last));
            now_ns += MS;
            let at_once = schedule.handle_answered(begin.slot, now_ns, found.len() % 2 == 0);
            next = at_once.map_or_else(|| schedule.next(now_ns), Move::Begin);
        }
        match next {
            Move::WaitUntil(due_ns) => now_ns = due_ns,
            Move::Done => return found,
            _ => {}
        }
    }
}

#[test]
fn a_connection_of_a_closed_loop_is_one_client() {
    // With think times, the connections take turns.
    let think_ns = Dist::Fixed(5.0 * MS as f64);
    let plan = Plan { think_ns, connections: 2, stop: Stop::Count(6), ..Plan::default() };
    let mut found = visitors(&plan);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, [(0, 0, false), (1, 0, false)]);
}

#[test]
fn each_visit_with_its_own_connection_is_a_new_client() {
    for visit in [Visit::Connection { calls: 3 }, Visit::Session { length: Dist::Fixed(3.0) }] {
        let plan = Plan { visit, connections: 1, stop: Stop::Count(6), ..Plan::default() };
        let expected = [0, 1].map(|visit| [(0, visit, false), (0, visit, false), (0, visit, true)]);
        assert_eq!(visitors(&plan), expected.concat());
    }
}

#[test]
fn each_arrival_is_a_new_client() {
    let kind = Loop::Open(Arrivals::constant(ArrivalKind::Fixed, 100.0));
    let plan = Plan { kind, connections: 1, stop: Stop::Count(3), ..Plan::default() };
    assert_eq!(visitors(&plan), [(0, 0, true), (0, 1, true), (0, 2, true)]);
    let plan = Plan { visit: Visit::Connection { calls: 2 }, ..plan };
    let expected = [0, 1, 2].map(|visit| [(0, visit, false), (0, visit, true)]);
    assert_eq!(visitors(&plan), expected.concat());
}

#[test]
fn a_session_of_a_log_is_one_client() {
    let lines = ReplayLines::of([(0, 0), (MS, 1), (5 * MS, 0), (6 * MS, 0), (9 * MS, 1)]);
    let kind = Loop::Open(Arrivals::replay(Arc::new(lines)));
    let plan = Plan { kind, connections: 4, stop: Stop::Count(5), ..Plan::default() };
    let expected = [(0, 0, false), (1, 0, false), (0, 0, false), (0, 0, true), (1, 0, true)];
    assert_eq!(visitors(&plan), expected);
    assert_eq!(visitors(&Plan { visit: Visit::Connection { calls: 1 }, ..plan }), expected);
}

#[test]
fn a_session_ends_when_its_last_line_begins_even_if_a_response_is_late() {
    let lines = ReplayLines::of([(0, 0), (MS, 1), (2 * MS, 0), (3 * MS, 1)]);
    let kind = Loop::Open(Arrivals::replay(Arc::new(lines)));
    for visit in [Visit::Request, Visit::Connection { calls: 1 }] {
        let plan = Plan { kind: kind.clone(), visit, connections: 4, stop: Stop::Count(4), ..Plan::default() };
        let mut schedule = Schedule::begin(&plan, plan.shares(1, 0, 1)[0], 0).unwrap();
        let begun = [0, MS, 2 * MS].map(|now_ns| match schedule.next(now_ns) {
            Move::Begin(begin) => begin,
            other => panic!("{other:?}"),
        });
        // No response has arrived, and the first session has begun its last line.
        assert_eq!(begun.map(|begin| schedule.visitor(&begin).is_last), [true, false, true]);
        // The client is dropped when the late response has arrived too.
        schedule.handle_answered(begun[2].slot, 2 * MS, false);
        assert_eq!(schedule.next(2 * MS), Move::WaitUntil(3 * MS));
        schedule.handle_failed(begun[0].slot, 2 * MS, true);
        assert_eq!(schedule.next(2 * MS), Move::DropClient(0));
        assert_eq!(schedule.next(2 * MS), Move::WaitUntil(3 * MS));
    }
    // The last line of a session that is dropped ends it too.
    let plan = Plan { kind, connections: 1, backlog_max: 0, stop: Stop::Count(4), ..Plan::default() };
    let mut schedule = Schedule::begin(&plan, plan.shares(1, 0, 1)[0], 0).unwrap();
    let Move::Begin(begin) = schedule.next(0) else { panic!("nothing is due") };
    assert!(!schedule.visitor(&begin).is_last);
    assert!(!matches!(schedule.next(2 * MS), Move::Begin(_)));
    assert_eq!((schedule.visitor(&begin).is_last, schedule.tally().dropped), (true, 2));
    // The other session has no request in progress when its last line is dropped.
    assert!(!matches!(schedule.next(3 * MS), Move::DropClient(_)));
    assert_eq!((schedule.next(3 * MS), schedule.tally().dropped), (Move::DropClient(1), 3));
    schedule.handle_answered(begin.slot, 4 * MS, false);
    assert_eq!((schedule.next(4 * MS), schedule.next(4 * MS)), (Move::DropClient(0), Move::Done));
}
