//! Visits and their bursts.

use super::{Begin, Holding, Schedule};
use crate::plan::Visit;
use crate::random::Random;
use std::cmp::Reverse;

/// ID of the random streams for visits.
const PURPOSE_VISIT: u64 = 2;

impl Schedule {
    pub(super) fn is_measured(&self, intended_ns: u64) -> bool {
        self.measured_from_ns.is_some_and(|from_ns| intended_ns >= from_ns)
    }

    /// Returns whether a burst scheduled for `intended_ns` may start at `now_ns`. In a closed loop, the burst may have
    /// fewer requests than planned.
    fn may_begin(&self, intended_ns: u64, now_ns: u64) -> bool {
        !self.stopped
            && intended_ns < self.deadline_ns
            && now_ns < self.deadline_ns.saturating_add(self.plan.drain_ns)
            && (self.requests_left > 0 || !self.is_measured(intended_ns))
    }

    /// Continues a due slot: starts the next burst of its visit, or the next visit of a closed loop.
    pub(super) fn go_on(&mut self, slot: u32, due_ns: u64, now_ns: u64) -> Option<Begin> {
        if !self.may_begin(due_ns, now_ns) {
            self.abandon(slot);
            return None;
        }
        if self.slots[slot as usize].calls_left == 0 {
            let visit = self.visits_numbered * u64::from(self.share.shares) + u64::from(self.share.index);
            self.visits_numbered += 1;
            self.start_visit(slot, visit, due_ns);
        }
        Some(self.start_burst(slot, due_ns))
    }

    pub(super) fn start_visit(&mut self, slot: u32, visit: u64, intended_ns: u64) {
        let is_measured = self.is_measured(intended_ns);
        let state = &mut self.slots[slot as usize];
        state.visit = visit;
        state.call = 0;
        state.is_measured = is_measured;
        let draws = matches!(self.plan.visit, Visit::Session { .. }) || !self.plan.think_ns.is_zero();
        if draws {
            state.random = Random::stream(self.plan.seed, PURPOSE_VISIT, visit);
        }
        state.calls_left = match &self.plan.visit {
            Visit::Request => 1,
            Visit::Connection { calls } => *calls,
            Visit::Session { length } => length.draw_count(&mut state.random),
        };
        if !matches!(self.plan.visit, Visit::Request) {
            state.is_open = false;
        }
        self.slots_held += 1;
        self.tally.slots_peak = self.tally.slots_peak.max(self.slots_held);
        self.tally.visits += u64::from(is_measured);
        self.unfinished += 1;
    }

    pub(super) fn start_burst(&mut self, slot: u32, intended_ns: u64) -> Begin {
        let is_measured = self.is_measured(intended_ns);
        let state = &mut self.slots[slot as usize];
        state.holding = Holding::Burst;
        state.intended_ns = intended_ns;
        let call = state.call;
        state.call += 1;
        state.calls_left -= 1;
        if state.calls_left == 0 {
            self.unfinished -= 1;
        }
        let burst = self.plan.burst;
        if is_measured {
            if self.requests_left != u64::MAX {
                self.requests_left -= u64::from(burst);
            }
            self.tally.bursts += 1;
            self.tally.requests += u64::from(burst);
        }
        let number = match (&self.plan.visit, &self.open) {
            // The number must not depend on the number of threads, like the arrivals.
            (Visit::Request, Some(_)) => state.visit,
            (Visit::Connection { calls }, Some(_)) => {
                state.visit.saturating_mul(u64::from(*calls)).saturating_add(u64::from(call))
            }
            _ => {
                if let Some(Reverse(number)) = self.numbers_free.pop() {
                    number
                } else {
                    let number = self.bursts_numbered * u64::from(self.share.shares) + u64::from(self.share.index);
                    self.bursts_numbered += 1;
                    number
                }
            }
        };
        let closes = state.calls_left == 0 && !matches!(self.plan.visit, Visit::Request);
        Begin {
            slot,
            connect: !state.is_open,
            burst,
            closes,
            intended_ns,
            visit: state.visit,
            request: number.saturating_mul(u64::from(self.plan.burst)),
            call,
        }
    }

    /// Returns whether the numbers of requests follow from the number of their visit.
    pub(super) const fn is_numbered_by_visit(&self) -> bool {
        self.open.is_some() && !matches!(self.plan.visit, Visit::Session { .. })
    }

    /// Schedules a slot's next burst after a think time that starts at `ended_ns`. Starts the burst now if the think
    /// time is zero.
    pub(super) fn think(&mut self, slot: u32, ended_ns: u64, now_ns: u64) -> Option<Begin> {
        let state = &mut self.slots[slot as usize];
        let think_ns = if self.plan.think_ns.is_zero() { 0.0 } else { self.plan.think_ns.draw(&mut state.random) };
        let due_ns = ended_ns.saturating_add(think_ns as u64);
        if state.calls_left == 0 {
            self.slots_held -= 1;
        }
        state.holding = Holding::Thought;
        if due_ns <= now_ns {
            return self.go_on(slot, due_ns, now_ns);
        }
        if due_ns < self.deadline_ns {
            self.timers.push(Reverse((due_ns, slot)));
        } else {
            self.abandon(slot);
        }
        None
    }

    /// Schedules the next visit of a closed loop's slot.
    pub(super) fn wait(&mut self, slot: u32, due_ns: u64) {
        self.slots[slot as usize].holding = Holding::Thought;
        self.slots_held -= 1;
        self.timers.push(Reverse((due_ns, slot)));
    }

    /// Counts the measured part of a time for which a slot had no connection.
    pub(super) fn count_unconnected(&mut self, from_ns: u64, until_ns: u64) {
        let Some(measured_from_ns) = self.measured_from_ns else { return };
        let unconnected_ns = until_ns.min(self.deadline_ns).saturating_sub(from_ns.max(measured_from_ns));
        self.tally.unconnected_ns = self.tally.unconnected_ns.saturating_add(unconnected_ns);
    }

    /// Ends a visit that must not continue.
    fn abandon(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        if state.calls_left > 0 {
            state.calls_left = 0;
            self.unfinished -= 1;
            self.slots_held -= 1;
        }
        state.holding = Holding::Nothing;
        if self.open.is_some() {
            self.free(slot);
        }
    }

    /// Ends the visit of a slot in an open loop.
    pub(super) fn release(&mut self, slot: u32, now_ns: u64) {
        // Count waiting arrivals before the slot is free.
        self.bound_backlog(now_ns);
        self.end_burst(slot);
        self.slots[slot as usize].holding = Holding::Nothing;
        self.slots_held -= 1;
        self.free(slot);
    }

    fn free(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        if state.is_open {
            state.is_open = self.free.put_open(slot, state.client);
        } else {
            self.free.put_closed(slot);
        }
    }
}
