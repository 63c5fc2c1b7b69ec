//! Execution of one thread's share of a plan: which bursts to start, when, and on which connections.
//!
//! The driver calls [`Schedule::next`] to get a [`Move`], and reports events by [`Schedule::handle_answered`],
//! [`Schedule::handle_failed`] and [`Schedule::handle_closed`]. A *slot* represents one connection. Slots are numbered
//! from 0 up to the share's connections, and each holds at most one visit. An arrival without a free slot waits with
//! its intended time unchanged, so that the delay caused by a stalled server is measured (no coordinated omission).
//! Waiting arrivals use no memory: they are generated again when their turn comes.
//!
//! In a replay, a connection serves only one client of the log. If a client's last response is late, the client opens
//! another connection for its next line, at the time in the log.
//!
//! `next` and the event handlers do not allocate.

mod backlog;
mod cursor;
mod free;
mod retry;
mod slot;
mod visits;

pub use retry::{RETRY_PAUSE_NS_MAX, RETRY_PAUSE_NS_MIN};

use crate::plan::{Arrivals, Loop, Plan, PlanError, ReplayLine, Share, Stop, Visit, portion};
use crate::random::Random;
use cursor::Cursor;
use free::Free;
use retry::{Retries, Retry};
use serde::{Deserialize, Serialize};
use slot::{ConnectionSlot, Holding};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// ID of the random streams for the starts of a closed loop.
const PURPOSE_START: u64 = 3;

/// A burst to start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The slot of the burst's connection, from 0.
    pub slot: u32,
    /// True if the connection must be opened first. Never true if the slot has a reusable connection.
    pub connect: bool,
    /// Number of requests to send without waiting for responses, at least 1.
    pub burst: u32,
    /// True if the connection must be closed after this burst, as the burst's last request announces.
    pub closes: bool,
    /// Intended start, in nanoseconds on the driver's clock.
    pub intended_ns: u64,
    /// Number of the visit over all threads, from 0. In a replay, it selects the request.
    pub visit: u64,
    /// Number of the first request of the burst; the others count up from it. The numbers are unique in the run, over
    /// all threads, and select URLs.
    pub request: u64,
    /// Index of the burst within its visit, from 0.
    pub call: u32,
}

/// The simulated client that makes the requests of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// Number of the client: its slot or, in a replay, the number of the session. Clients with the same number follow
    /// one another.
    pub number: u64,
    /// Distinguishes successive clients with the same number.
    pub visit: u64,
    /// True if the client's last burst has begun. A late response to an earlier burst is of no use to the client.
    pub is_last: bool,
}

/// The next action of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Start a burst, then call again.
    Begin(Begin),
    /// Close the connection of this slot, which is no longer needed, then call again.
    Close(u32),
    /// Drop what is stored of the client with this number, which has ended, then call again. Only in a replay: other
    /// clients are replaced by the next one of their slot.
    DropClient(u64),
    /// Call again at this time, or after any event.
    WaitUntil(u64),
    /// Call again after any event.
    Idle,
    /// Nothing more starts. Requests in progress may still be awaited.
    Done,
}

/// Counts of a schedule. They cover the measured span unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Visits started.
    pub visits: u64,
    /// Visits that completed all their bursts.
    pub visits_completed: u64,
    /// Bursts started.
    pub bursts: u64,
    /// Requests started.
    pub requests: u64,
    /// Arrivals dropped because they exceeded the backlog limit or the drain time.
    pub dropped: u64,
    /// Arrivals that waited for a free connection, including warm-up.
    pub waited: u64,
    /// Maximum number of waiting arrivals, including warm-up.
    pub backlog_peak: u64,
    /// Maximum number of slots that held a visit at once, including warm-up.
    pub slots_peak: u32,
    /// Slots that were given up because connecting failed.
    pub slots_given_up: u32,
    /// Closed loop: time for which slots had no connection because connecting failed, from the start of a failed attempt
    /// to the end of the pause after it, summed over slots, in nanoseconds.
    #[serde(default)]
    pub unconnected_ns: u64,
    /// Slots that could not be used, because the server permits fewer streams on a connection than were requested.
    #[serde(default)]
    pub slots_unusable: u32,
    /// Number of streams on a connection that the server permits, if slots could not be used: the number stated last,
    /// and the smallest of all threads.
    #[serde(default)]
    pub streams_max: Option<u32>,
}

impl Tally {
    /// Adds another share's counts. Peaks are also added, which gives an upper bound.
    pub fn merge(&mut self, other: &Self) {
        self.visits += other.visits;
        self.visits_completed += other.visits_completed;
        self.bursts += other.bursts;
        self.requests += other.requests;
        self.dropped += other.dropped;
        self.waited += other.waited;
        self.backlog_peak += other.backlog_peak;
        self.slots_peak += other.slots_peak;
        self.slots_given_up += other.slots_given_up;
        self.unconnected_ns = self.unconnected_ns.saturating_add(other.unconnected_ns);
        self.slots_unusable += other.slots_unusable;
        self.streams_max = self.streams_max.into_iter().chain(other.streams_max).min();
    }
}

/// Arrivals of an open loop that have not started.
#[derive(Clone, Debug)]
struct Open {
    /// The next arrival to start.
    head: Cursor,
    /// The first arrival that is not due yet, if arrivals wait. Never before `head` when it is used.
    tail: Cursor,
    /// Number of the first measured arrival, if known.
    first_measured: Option<u64>,
}

/// Scheduler of one share.
#[derive(Clone, Debug)]
pub struct Schedule {
    plan: Plan,
    share: Share,
    slots: Box<[ConnectionSlot]>,
    free: Free,
    /// Replay: number of bursts in progress of each client.
    in_progress: Box<[u32]>,
    /// Replay: numbers of clients whose last line and whose bursts have ended.
    ended: VecDeque<u64>,
    /// Times at which slots continue, as pairs of a time in nanoseconds and a slot.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    open: Option<Open>,
    /// Arrivals of an open loop whose slot could not be used: numbers and intended starts. They start before all others.
    withdrawn: VecDeque<(u64, u64)>,
    measured_from_ns: Option<u64>,
    /// Nothing that is scheduled at this time or later starts.
    deadline_ns: u64,
    /// Closed loop: number of measured requests that this share may still start.
    requests_left: u64,
    /// Number of visits (in a closed loop) and of bursts that this share has numbered so far.
    visits_numbered: u64,
    bursts_numbered: u64,
    /// Numbers of withdrawn bursts, which the next bursts get.
    numbers_free: BinaryHeap<Reverse<u64>>,
    slots_held: u32,
    /// Number of slots whose visit has further bursts to start.
    unfinished: u32,
    retries: Retries,
    stopped: bool,
    tally: Tally,
}

impl Schedule {
    /// Starts a share at `start_ns`, which is the same for all threads of all agents (on each agent's clock).
    pub fn begin(plan: &Plan, share: Share, start_ns: u64) -> Result<Self, PlanError> {
        plan.check()?;
        if share.connections == 0 || share.index >= share.shares {
            return Err(PlanError::Connections(share.connections));
        }
        let open = match &plan.kind {
            Loop::Closed => None,
            Loop::Open(arrivals) => {
                let head = Cursor::new(arrivals.after_ramp(plan.ramp_ns).times(plan.seed), share, start_ns);
                Some(Open { tail: head.clone(), head, first_measured: None })
            }
        };
        let count = share.connections as usize;
        let sessions = match &plan.kind {
            Loop::Open(arrivals) => arrivals.replay.as_ref().map_or(0, |lines| lines.sessions()),
            Loop::Closed => 0,
        };
        let clients = sessions.div_ceil(share.shares) as usize;
        let mut schedule = Self {
            plan: plan.clone(),
            share,
            slots: vec![ConnectionSlot::new(); count].into_boxed_slice(),
            free: Free::new(count, clients),
            in_progress: vec![0; clients].into_boxed_slice(),
            ended: VecDeque::with_capacity(clients),
            timers: BinaryHeap::with_capacity(count),
            open,
            withdrawn: VecDeque::new(),
            measured_from_ns: None,
            deadline_ns: u64::MAX,
            requests_left: u64::MAX,
            visits_numbered: 0,
            bursts_numbered: 0,
            numbers_free: BinaryHeap::new(),
            slots_held: 0,
            unfinished: 0,
            retries: Retries::new(plan.timeout_ns),
            stopped: false,
            tally: Tally::default(),
        };
        if let Some(unmeasured_ns) = plan.unmeasured_ns() {
            schedule.begin_measuring(start_ns.saturating_add(unmeasured_ns));
        }
        schedule.fill(start_ns);
        Ok(schedule)
    }

    /// Initialises every slot: free, or due at the start.
    fn fill(&mut self, start_ns: u64) {
        let mut random = Random::stream(self.plan.seed, PURPOSE_START, u64::from(self.share.index));
        for slot in 0..self.share.connections {
            if self.open.is_some() {
                self.free.put_closed(slot);
                continue;
            }
            // Randomise starts if there is think time, so that connections do not proceed in waves.
            let think_ns = self.plan.think_ns.draw(&mut random) * random.next_f64();
            self.slots[slot as usize].holding = Holding::Thought;
            // The connections of all threads together start evenly over the ramp.
            let connection = self.share.first_connection.saturating_add(slot);
            let ramp_ns = portion(self.plan.ramp_ns, connection, self.plan.connections_used());
            self.timers.push(Reverse((start_ns.saturating_add(ramp_ns).saturating_add(think_ns as u64), slot)));
        }
    }

    /// Returns what to do at `now_ns`.
    pub fn next(&mut self, now_ns: u64) -> Move {
        if self.stopped {
            return Move::Done;
        }
        if let Some(number) = self.ended.pop_front() {
            return Move::DropClient(number);
        }
        while let Some(slot) = self.free.take_leaving() {
            let state = &self.slots[slot as usize];
            // The slot may have been used since, and its connection closed.
            if state.holding == Holding::Nothing && !state.is_open {
                return Move::Close(slot);
            }
        }
        while let Some(&Reverse((due_ns, slot))) = self.timers.peek() {
            if due_ns > now_ns {
                break;
            }
            self.timers.pop();
            if let Some(begin) = self.go_on(slot, due_ns, now_ns) {
                return Move::Begin(begin);
            }
        }
        if let Some(begin) = self.take_arrival(now_ns) {
            return Move::Begin(begin);
        }
        let timer_ns = self.timers.peek().map(|Reverse((due_ns, _))| *due_ns);
        match [timer_ns, self.arrival_ns(now_ns)].into_iter().flatten().min() {
            Some(due_ns) => Move::WaitUntil(due_ns),
            None if self.is_over(now_ns) => Move::Done,
            None => Move::Idle,
        }
    }

    /// Handles the last response of a slot's burst. `is_open` says whether the connection is reusable. Returns the
    /// slot's next burst if it starts immediately, which is the fast path of a closed loop. After `None`, call
    /// [`Schedule::next`].
    pub fn handle_answered(&mut self, slot: u32, now_ns: u64, is_open: bool) -> Option<Begin> {
        let state = self.slots.get_mut(slot as usize).filter(|state| state.holding == Holding::Burst)?;
        state.is_open = is_open;
        state.connect_failures = 0;
        if state.calls_left == 0 {
            self.tally.visits_completed += u64::from(state.is_measured);
            if !matches!(self.plan.visit, Visit::Request) {
                state.is_open = false; // the request announced the close
            }
            if self.open.is_some() {
                self.release(slot, now_ns);
                return self.take_arrival(now_ns);
            }
        }
        self.think(slot, now_ns, now_ns)
    }

    /// Handles a failed burst, whose connection is closed. `connected` says whether the connection had been
    /// established. The visit ends. Call [`Schedule::next`] afterwards.
    pub fn handle_failed(&mut self, slot: u32, now_ns: u64, connected: bool) {
        let Some(state) = self.slots.get_mut(slot as usize).filter(|state| state.holding == Holding::Burst) else {
            return;
        };
        state.is_open = false;
        if state.calls_left > 0 {
            self.unfinished -= 1;
            state.calls_left = 0;
        }
        if self.open.is_some() {
            self.release(slot, now_ns);
            return;
        }
        if connected {
            state.connect_failures = 0;
            self.retries.handle_connected();
            self.wait(slot, now_ns);
            return;
        }
        state.connect_failures = state.connect_failures.saturating_add(1);
        let (begun_ns, failures) = (state.intended_ns, state.connect_failures);
        let is_counted = matches!(self.plan.stop, Stop::Count(_));
        match self.retries.decide(now_ns, failures, is_counted) {
            Retry::After { pause_ns } => {
                let due_ns = now_ns.saturating_add(pause_ns);
                self.count_unconnected(begun_ns, due_ns);
                self.wait(slot, due_ns);
            }
            Retry::GiveUp => {
                self.count_unconnected(begun_ns, now_ns);
                self.slots[slot as usize].holding = Holding::Retired;
                self.slots_held -= 1;
                self.tally.slots_given_up += 1;
            }
        }
    }

    /// Withdraws a burst that has not started, because the server permits at most `streams_max` streams on a connection.
    /// The slot is not used until [`Schedule::handle_usable`]. In an open loop, the arrival waits for another slot, and
    /// its intended start remains. In a closed loop, the next burst gets the numbers of the requests. Call
    /// [`Schedule::next`] afterwards, even after [`Move::Done`].
    pub fn handle_unusable(&mut self, begin: &Begin, streams_max: u32) {
        let Some(state) = self.slots.get_mut(begin.slot as usize).filter(|state| state.holding == Holding::Burst)
        else {
            return;
        };
        state.holding = Holding::Retired;
        state.is_open = false;
        if state.calls_left > 0 {
            self.unfinished -= 1;
            state.calls_left = 0;
        }
        if state.is_measured {
            self.tally.visits -= 1;
            self.tally.bursts -= 1;
            self.tally.requests -= u64::from(begin.burst);
            if self.requests_left != u64::MAX {
                self.requests_left += u64::from(begin.burst);
            }
        }
        if !self.is_numbered_by_visit() {
            self.numbers_free.push(Reverse(begin.request / u64::from(begin.burst.max(1))));
        }
        self.slots_held -= 1;
        self.tally.slots_unusable += 1;
        self.tally.streams_max = Some(self.tally.streams_max.map_or(streams_max, |before| before.min(streams_max)));
        self.tally.slots_peak = self.tally.slots_peak.min(self.share.connections - self.tally.slots_unusable);
        if self.open.is_some() {
            self.tally.waited += u64::from(self.free.is_empty());
            self.withdrawn.push_back((begin.visit, begin.intended_ns));
        } else if let Some(idle) = self.slots.iter().position(|state| state.holding == Holding::Nothing) {
            // This slot had nothing left to do before the burst was withdrawn.
            self.slots[idle].holding = Holding::Thought;
            self.timers.push(Reverse((begin.intended_ns, idle as u32)));
        }
    }

    /// Handles that the server now permits `streams_max` streams on a connection, so that a slot can be used. Call
    /// [`Schedule::next`] afterwards, even after [`Move::Done`].
    pub fn handle_usable(&mut self, slot: u32, streams_max: u32, now_ns: u64) {
        let Some(state) = self.slots.get_mut(slot as usize).filter(|state| state.holding == Holding::Retired) else {
            return;
        };
        self.tally.slots_unusable -= 1;
        self.tally.streams_max = (self.tally.slots_unusable > 0).then_some(streams_max);
        if self.open.is_some() {
            state.holding = Holding::Nothing;
            self.free.put_closed(slot);
        } else {
            state.holding = Holding::Thought;
            self.timers.push(Reverse((now_ns, slot)));
        }
    }

    /// Returns the intended start of a burst that waited until another slot had opened the connection: in a closed loop
    /// `now_ns`, because a stream is used as soon as it is available.
    pub fn intended_after_wait(&self, begin: &Begin, now_ns: u64) -> u64 {
        if self.open.is_some() { begin.intended_ns } else { now_ns }
    }

    /// Handles a connection that the server closed between bursts. The visit, if any, continues on a new connection. If
    /// several slots share the connection, call this for each of them; bursts in progress are not affected.
    pub fn handle_closed(&mut self, slot: u32) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let was_open = std::mem::take(&mut state.is_open);
        if was_open && state.holding == Holding::Nothing && self.open.is_some() {
            self.free.handle_closed(slot);
        }
    }

    /// Handles an established connection by resetting the pause between connection attempts.
    pub fn handle_connected(&mut self, slot: u32) {
        self.retries.handle_connected();
        if let Some(state) = self.slots.get_mut(slot as usize) {
            state.connect_failures = 0;
        }
    }

    /// Ends the warm-up: from `from_ns` on, the time and the counts of the plan's stop condition apply. `from_ns` must
    /// be the same for all threads, and preferably lies slightly in the future. Plans with a fixed warm-up call this
    /// themselves.
    pub fn begin_measuring(&mut self, from_ns: u64) {
        if self.measured_from_ns.is_some() {
            return;
        }
        self.measured_from_ns = Some(from_ns);
        match self.plan.stop {
            Stop::After { duration_ns } | Stop::Tight { duration_ns_max: duration_ns, .. } => {
                self.deadline_ns = from_ns.saturating_add(duration_ns);
            }
            Stop::Count(count) if self.open.is_none() => {
                // The count is proportional to the thread's connections, so that no thread is idle while others work.
                let connections = self.plan.connections_used();
                let before = |connection| portion(count, connection, connections);
                let end = self.share.first_connection.saturating_add(self.share.connections);
                let bursts = before(end.min(connections)) - before(self.share.first_connection);
                self.requests_left = bursts.saturating_mul(u64::from(self.plan.burst));
            }
            Stop::Count(_) => {}
        }
        if let (Some(open), Stop::Count(_)) = (&mut self.open, self.plan.stop) {
            open.first_measured = Some(open.head.first_from(from_ns));
        }
    }

    /// Returns the start of measuring, if known, in nanoseconds on the driver's clock.
    pub fn measured_from_ns(&self) -> Option<u64> {
        self.measured_from_ns
    }

    /// Returns the time from which on nothing is scheduled, if known, in nanoseconds on the driver's clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        (self.deadline_ns != u64::MAX).then_some(self.deadline_ns)
    }

    /// Returns whether no planned burst is left to start, or their time is over. Requests in progress may still be
    /// awaited.
    pub fn has_begun_all(&self, now_ns: u64) -> bool {
        now_ns >= self.deadline_ns || self.requests_left == 0 || self.timers.is_empty() && self.is_over(now_ns)
    }

    /// Ends the run early: nothing more starts, and waiting arrivals do not count as dropped.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Returns the number of arrivals that wait for a free slot at `now_ns`.
    pub fn backlog(&mut self, now_ns: u64) -> u64 {
        self.count_backlog(now_ns)
    }

    /// Returns the client that makes the requests of a burst. In a closed loop of single requests, it is the connection,
    /// or the stream of a shared one. In a replay, it is a session of the log, whose bursts may overlap. Otherwise each
    /// visit is a new client.
    pub fn visitor(&self, begin: &Begin) -> Visitor {
        let (slot, is_request) = (u64::from(begin.slot), matches!(self.plan.visit, Visit::Request));
        match &self.plan.kind {
            Loop::Closed if is_request => Visitor { number: slot, visit: 0, is_last: false },
            Loop::Open(Arrivals { replay: Some(_), .. }) => match self.line_of(begin.visit) {
                Some(line) => {
                    let is_last = self.free.is_gone(self.client_of(line));
                    Visitor { number: line.session.into(), visit: 0, is_last }
                }
                None => Visitor { number: slot, visit: begin.visit, is_last: true },
            },
            _ => Visitor { number: slot, visit: begin.visit, is_last: begin.closes || is_request },
        }
    }

    /// Returns the line of a replay that a visit requests.
    fn line_of(&self, visit: u64) -> Option<ReplayLine> {
        match &self.plan.kind {
            Loop::Open(Arrivals { replay: Some(lines), .. }) => lines.get(visit),
            _ => None,
        }
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }
}

#[cfg(test)]
mod tests;
