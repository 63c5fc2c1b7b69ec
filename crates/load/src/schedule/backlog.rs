//! Arrivals of an open loop: the next arrival, and waiting and dropped arrivals.

use super::cursor::Arrival;
use super::{Begin, Open, Schedule};
use crate::plan::{ReplayLine, Stop, Visit};

impl Schedule {
    fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the next arrival; `None` at the end.
    fn peek_arrival(&self) -> Option<Arrival> {
        let open = self.open.as_ref()?;
        let arrival = open.head.peek()?;
        (!self.is_past_end(open, arrival)).then_some(arrival)
    }

    fn is_past_end(&self, open: &Open, arrival: Arrival) -> bool {
        let Stop::Count(count) = self.plan.stop else { return arrival.intended_ns >= self.deadline_ns };
        open.first_measured.is_some_and(|first| arrival.number >= first.saturating_add(count))
    }

    /// Starts the next arrival if it is due and a slot is free.
    pub(super) fn take_arrival(&mut self, now_ns: u64) -> Option<Begin> {
        if self.stopped || self.open.is_none() {
            return None;
        }
        self.bound_backlog(now_ns);
        if let Some((visit, intended_ns)) = self.withdrawn.front().copied() {
            let slot = self.free.take()?;
            self.withdrawn.pop_front();
            self.start_visit(slot, visit, intended_ns);
            return Some(self.start_burst(slot, intended_ns));
        }
        let arrival = self.peek_arrival().filter(|arrival| arrival.intended_ns <= now_ns)?;
        // Visits with separate connections share none with other visits of their client.
        let line = arrival.line.filter(|_| matches!(self.plan.visit, Visit::Request));
        let client = line.map(|line| self.client_of(line));
        let slot = match client {
            None => self.free.take()?,
            Some(client) => {
                let (slot, is_own) = self.free.take_for(client)?;
                self.slots[slot as usize].is_open &= is_own;
                slot
            }
        };
        self.slots[slot as usize].client = client;
        self.open.as_mut()?.head.take();
        if let Some(line) = arrival.line {
            *self.in_progress_of(line) += 1;
        }
        self.see_off(arrival);
        self.start_visit(slot, arrival.number, arrival.intended_ns);
        Some(self.start_burst(slot, arrival.intended_ns))
    }

    /// Returns the number of a line's client within this share of a replay.
    pub(super) fn client_of(&self, line: ReplayLine) -> u32 {
        line.session / self.share.shares.max(1)
    }

    /// Notes at its last line that a client has finished, and closes its idle connections. Its busy connections follow
    /// when they become idle.
    fn see_off(&mut self, arrival: Arrival) {
        let Some(line) = arrival.line.filter(|line| line.is_last) else { return };
        let client = self.client_of(line);
        while let Some(slot) = self.free.take_from_gone(client) {
            self.slots[slot as usize].is_open = false;
        }
        self.drop_client(line);
    }

    /// Handles the end of a visit's burst. In a replay, the client may have ended with it.
    pub(super) fn end_burst(&mut self, slot: u32) {
        let Some(line) = self.line_of(self.slots[slot as usize].visit) else { return };
        *self.in_progress_of(line) -= 1;
        self.drop_client(line);
    }

    fn in_progress_of(&mut self, line: ReplayLine) -> &mut u32 {
        let client = self.client_of(line);
        &mut self.in_progress[client as usize]
    }

    /// Drops the client of a line if its last line has begun or was dropped, and no burst of it is in progress.
    fn drop_client(&mut self, line: ReplayLine) {
        if self.free.is_gone(self.client_of(line)) && *self.in_progress_of(line) == 0 {
            self.ended.push_back(line.session.into());
        }
    }

    /// Returns the time at which [`Schedule::next`] must be called for the next arrival.
    pub(super) fn arrival_ns(&self, now_ns: u64) -> Option<u64> {
        let intended_ns = match self.withdrawn.front() {
            Some((_, intended_ns)) => *intended_ns,
            None => self.peek_arrival()?.intended_ns,
        };
        if self.has_free() {
            return Some(intended_ns);
        }
        // Without a free slot, the arrival waits for an event, at most until it is dropped.
        let dropped_ns = self.deadline_ns.saturating_add(self.plan.drain_ns);
        (intended_ns <= now_ns && self.deadline_ns != u64::MAX).then_some(dropped_ns)
    }

    /// Returns the number of due arrivals that have not started, which are those between the two cursors.
    pub(super) fn count_backlog(&mut self, now_ns: u64) -> u64 {
        let Some(mut open) = self.open.take() else { return 0 };
        if open.tail.taken() < open.head.taken() {
            open.tail.clone_from(&open.head);
        }
        let has_free = self.has_free();
        while let Some(arrival) = open.tail.peek() {
            if arrival.intended_ns > now_ns || self.is_past_end(&open, arrival) {
                break;
            }
            open.tail.take();
            self.tally.waited += u64::from(!has_free);
        }
        let backlog = open.tail.taken() - open.head.taken();
        self.open = Some(open);
        backlog
    }

    /// Drops the oldest waiting arrivals beyond the limit. After the drain time, drops all waiting arrivals.
    pub(super) fn bound_backlog(&mut self, now_ns: u64) {
        let is_over = now_ns >= self.deadline_ns.saturating_add(self.plan.drain_ns);
        if self.has_free() && !is_over {
            return;
        }
        if is_over {
            let dropped = self.withdrawn.iter().filter(|(_, intended_ns)| self.is_measured(*intended_ns)).count();
            self.tally.dropped += dropped as u64;
            self.withdrawn.clear();
        }
        let backlog = self.count_backlog(now_ns);
        self.tally.backlog_peak = self.tally.backlog_peak.max(backlog);
        let backlog_max = if is_over { 0 } else { self.plan.backlog_max.div_ceil(u64::from(self.share.shares.max(1))) };
        for _ in backlog_max..backlog {
            let Some(arrival) = self.open.as_mut().and_then(|open| open.head.take()) else { return };
            self.tally.dropped += u64::from(self.is_measured(arrival.intended_ns));
            self.see_off(arrival);
        }
    }

    /// Returns whether nothing more will start and no timer or arrival is pending.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        let is_late = now_ns >= self.deadline_ns;
        if self.open.is_some() {
            return self.withdrawn.is_empty() && self.peek_arrival().is_none() && (is_late || self.unfinished == 0);
        }
        // A closed loop continues while one slot is active.
        is_late || self.requests_left == 0 || self.slots_held == 0
    }
}
