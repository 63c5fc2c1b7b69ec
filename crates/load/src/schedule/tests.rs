//! Tests of schedules against a server in virtual time.

mod closed;
mod open;
mod properties;
mod replay;
mod visitors;

use super::{Begin, Move, Schedule, Tally};
use crate::plan::Plan;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;

/// The outcome of a burst.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// A response after this time, in nanoseconds; true if the connection stays open.
    Answered(u64, bool),
    /// A failure of an established connection after this time, in nanoseconds.
    Failed(u64),
    /// A failed connection attempt after this time, in nanoseconds.
    Refused(u64),
    /// A burst withdrawn after this time, in nanoseconds, because the server permits only one stream.
    Unusable(u64),
}

/// A burst that was started.
#[derive(Clone, Copy, Debug)]
struct Begun {
    share: usize,
    at_ns: u64,
    begin: Begin,
    ended_ns: u64,
}

#[derive(Debug)]
struct Outcome {
    begun: Vec<Begun>,
    tally: Tally,
    ended_ns: u64,
}

impl Outcome {
    fn requests(&self) -> u64 {
        self.begun.iter().map(|begun| u64::from(begun.begin.burst)).sum()
    }
}

/// Runs a plan on this many threads against a server that decides the outcome of each burst. `start_ns` is 1 s, so that
/// nothing relies on a clock that starts at zero.
fn run(plan: &Plan, threads: u32, fate: impl FnMut(&Begin, u64) -> Fate) -> Outcome {
    run_watched(plan, threads, fate, |_, _| ())
}

fn run_watched(
    plan: &Plan,
    threads: u32,
    mut fate: impl FnMut(&Begin, u64) -> Fate,
    mut watch: impl FnMut(&mut [Schedule], u64),
) -> Outcome {
    let start_ns = SECOND_NS;
    let shares = plan.shares(threads, 0, 1);
    let mut schedules: Vec<_> = shares.iter().map(|share| Schedule::begin(plan, *share, start_ns).unwrap()).collect();
    let mut events: BinaryHeap<Reverse<(u64, usize, u32)>> = BinaryHeap::new();
    let mut fates = std::collections::HashMap::new();
    let mut begun: Vec<Begun> = Vec::new();
    let mut now_ns = start_ns;
    let mut begin_one = |share: usize, begin: Begin, now_ns: u64, events: &mut BinaryHeap<_>| {
        let fate = fate(&begin, now_ns);
        let (Fate::Answered(after_ns, _) | Fate::Failed(after_ns) | Fate::Refused(after_ns) | Fate::Unusable(after_ns)) =
            fate;
        let ended_ns = now_ns + after_ns;
        events.push(Reverse((ended_ns, share, begin.slot)));
        if !matches!(fate, Fate::Unusable(_)) {
            begun.push(Begun { share, at_ns: now_ns, begin, ended_ns });
        }
        ((share, begin.slot), (fate, begin))
    };
    for _ in 0..10_000_000 {
        watch(&mut schedules, now_ns);
        let mut wake_ns = u64::MAX;
        for (share, schedule) in schedules.iter_mut().enumerate() {
            loop {
                match schedule.next(now_ns) {
                    Move::Begin(begin) => {
                        let (slot, fate) = begin_one(share, begin, now_ns, &mut events);
                        assert!(fates.insert(slot, fate).is_none(), "slot {slot:?} was not free");
                    }
                    Move::Close(slot) => assert!(!fates.contains_key(&(share, slot)), "slot {slot} is at work"),
                    Move::DropClient(_) => {}
                    Move::WaitUntil(due_ns) => {
                        assert!(due_ns > now_ns, "a wait for what is due");
                        wake_ns = wake_ns.min(due_ns);
                        break;
                    }
                    Move::Idle => {
                        assert!(events.iter().any(|Reverse((_, of, _))| *of == share), "idle for ever");
                        break;
                    }
                    Move::Done => break,
                }
            }
        }
        let next_ns = events.peek().map_or(u64::MAX, |Reverse((ended_ns, _, _))| *ended_ns).min(wake_ns);
        if next_ns == u64::MAX {
            assert!(fates.is_empty());
            let mut tally = Tally::default();
            for schedule in &schedules {
                tally.merge(&schedule.tally());
            }
            assert!(schedules.iter_mut().all(|schedule| schedule.next(now_ns) == Move::Done));
            return Outcome { begun, tally, ended_ns: now_ns };
        }
        now_ns = next_ns;
        while events.peek().is_some_and(|Reverse((ended_ns, _, _))| *ended_ns <= now_ns) {
            let Some(Reverse((_, share, slot))) = events.pop() else { break };
            let (fate, begin) = fates.remove(&(share, slot)).unwrap();
            match fate {
                Fate::Answered(_, is_open) => {
                    schedules[share].handle_connected(slot);
                    if let Some(begin) = schedules[share].handle_answered(slot, now_ns, is_open) {
                        let (slot, fate) = begin_one(share, begin, now_ns, &mut events);
                        assert!(fates.insert(slot, fate).is_none(), "slot {slot:?} was not free");
                    }
                }
                Fate::Failed(_) => schedules[share].handle_failed(slot, now_ns, true),
                Fate::Refused(_) => schedules[share].handle_failed(slot, now_ns, false),
                Fate::Unusable(_) => schedules[share].handle_unusable(&begin, 1),
            }
        }
    }
    panic!("the run has no end");
}

fn answered(after_ns: u64) -> impl FnMut(&Begin, u64) -> Fate {
    move |begin, _| Fate::Answered(after_ns, !begin.closes)
}

/// Asserts that request numbers are unique.
fn assert_requests_distinct(begun: &[Begun]) {
    let mut seen = BTreeSet::new();
    for Begun { begin, .. } in begun {
        assert!((0..u64::from(begin.burst)).all(|offset| seen.insert(begin.request + offset)), "{begin:?}");
    }
}
