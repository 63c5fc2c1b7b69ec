//! The loads that the tests drive the client with.

use crate::{Drive, Made, RequestRecord};
use flatout_load::record::{ConnectionEnd, SentAgain};
use flatout_load::schedule::{Begin, Move, Visitor};
use std::sync::mpsc;

/// A closed loop. Each slot starts its next burst when the previous burst has ended, until a given number have started.
pub(crate) struct Script {
    pub(super) bursts_left: u32,
    pub(super) burst: u32,
    /// Number of bursts per connection; 0 for no limit.
    pub(super) calls: u32,
    /// Number of failures to connect after which a slot is given up.
    pub(super) pauses_left: u32,
    /// Slots that may start a burst, and the time since when they may.
    pub(super) free: Vec<(u32, u64)>,
    pub(super) slots: Vec<u32>,
    pub(super) under_way: u32,
    pub(super) begun: u32,
    /// Number of requests at the beginning that are not counted.
    pub(super) uncounted: u32,
    /// True if each connection is closed after its response; `leaving` lists the slots whose connections are to be
    /// closed.
    pub(super) leaves: bool,
    pub(super) leaving: Vec<u32>,
    /// True if the client of a slot, which has the slot's number, is dropped together with each such connection.
    pub(super) drops_clients: bool,
    pub(super) dropped: Vec<u64>,
    pub(super) ended: Vec<RequestRecord>,
    pub(super) made: Vec<Made>,
    pub(super) connections: Vec<ConnectionEnd>,
    pub(super) connecting: u32,
    pub(super) sent_again: Vec<(u32, SentAgain)>,
    /// Time from the end of a burst to the start of the next one of its slot, in nanoseconds.
    pub(super) pause_ns: u64,
    /// Slots whose connection the server closed between two bursts.
    pub(super) closed: Vec<u32>,
    /// Receives a message when a connection is about to be opened.
    pub(super) begins_to_connect: Option<mpsc::Sender<()>>,
    pub(super) ticks: u32,
    pub(super) gave_up: bool,
    /// Returns the client that makes the requests of a burst.
    pub(crate) visitor: Option<fn(&Begin) -> Visitor>,
}

impl Script {
    pub(crate) fn new(slots: u32, bursts: u32) -> Self {
        Self {
            bursts_left: bursts,
            burst: 1,
            calls: 0,
            pauses_left: 0,
            free: (0..slots).rev().map(|slot| (slot, 0)).collect(),
            slots: vec![0; slots as usize],
            under_way: 0,
            begun: 0,
            uncounted: 0,
            leaves: false,
            leaving: Vec::new(),
            drops_clients: false,
            dropped: Vec::new(),
            ended: Vec::new(),
            made: Vec::new(),
            connections: Vec::new(),
            connecting: 0,
            sent_again: Vec::new(),
            pause_ns: 0,
            closed: Vec::new(),
            begins_to_connect: None,
            ticks: 0,
            gave_up: false,
            visitor: None,
        }
    }

    fn begin(&mut self, slot: u32, now_ns: u64) -> Begin {
        self.bursts_left -= 1;
        self.under_way += 1;
        let calls = &mut self.slots[slot as usize];
        let connect = *calls == 0;
        *calls += 1;
        let closes = self.calls > 0 && *calls == self.calls;
        let visit = u64::from(self.bursts_left);
        if closes {
            *calls = 0;
        }
        Begin { slot, connect, burst: self.burst, closes, intended_ns: now_ns, visit, request: 0, call: 0 }
    }
}

impl Drive for Script {
    fn next(&mut self, now_ns: u64) -> Move {
        if let Some(slot) = self.leaving.pop() {
            return Move::Close(slot);
        }
        if let Some(number) = self.dropped.pop() {
            return Move::DropClient(number);
        }
        if self.bursts_left == 0 || self.gave_up {
            return if self.under_way == 0 { Move::Done } else { Move::Idle };
        }
        let due = self.free.iter().rposition(|(_, from_ns)| *from_ns <= now_ns);
        match due {
            Some(index) => {
                let (slot, _) = self.free.remove(index);
                Move::Begin(self.begin(slot, now_ns))
            }
            None => self.free.iter().map(|(_, from_ns)| *from_ns).min().map_or(Move::Idle, Move::WaitUntil),
        }
    }

    fn choose(&mut self, _begin: &Begin, nth: u32) -> u32 {
        nth
    }

    fn visitor(&self, begin: &Begin) -> Option<Visitor> {
        self.visitor.map(|visitor| visitor(begin))
    }

    fn handle_begun(&mut self, begin: &Begin, _now_ns: u64) -> bool {
        self.begun += begin.burst;
        self.begun > self.uncounted
    }

    fn handle_ended(&mut self, ended: &RequestRecord) {
        self.made.extend(ended.made);
        self.ended.push(*ended);
    }

    fn handle_sent_again(&mut self, requests: u32, why: SentAgain) {
        self.sent_again.push((requests, why));
    }

    fn handle_answered(&mut self, slot: u32, now_ns: u64, is_open: bool) -> Option<Begin> {
        self.under_way -= 1;
        if !is_open {
            self.slots[slot as usize] = 0;
        } else if self.calls == 0 {
            self.slots[slot as usize] = 1;
        }
        if self.leaves {
            self.slots[slot as usize] = 0;
            self.leaving.push(slot);
            self.dropped.extend(self.drops_clients.then_some(u64::from(slot)));
            self.free.push((slot, now_ns));
            return None;
        }
        if self.bursts_left == 0 {
            return None;
        }
        if self.pause_ns > 0 {
            self.free.push((slot, now_ns + self.pause_ns));
            return None;
        }
        Some(self.begin(slot, now_ns))
    }

    fn handle_failed(&mut self, slot: u32, now_ns: u64, connected: bool) {
        self.under_way -= 1;
        self.slots[slot as usize] = 0;
        if connected {
            self.free.push((slot, now_ns + self.pause_ns));
        } else {
            match self.pauses_left.checked_sub(1) {
                Some(left) => self.pauses_left = left,
                None => self.gave_up = true,
            }
            self.free.push((slot, now_ns + 1_000_000));
        }
    }

    fn handle_connecting(&mut self, _now_ns: u64) {
        self.connecting += 1;
        self.begins_to_connect.iter().for_each(|sender| sender.send(()).unwrap());
    }

    fn handle_connected(&mut self, _slot: u32, _made: &Made, _now_ns: u64) {}

    fn handle_connection_end(&mut self, end: &ConnectionEnd) {
        self.connections.push(*end);
    }

    fn handle_closed(&mut self, slot: u32) {
        self.closed.push(slot);
        self.slots[slot as usize] = 0;
    }

    fn handle_tick(&mut self, _now_ns: u64, _late_ns: u64, _connections: u32) {
        self.ticks += 1;
    }

    fn handle_interrupt(&mut self) {
        self.bursts_left = 0;
    }
}
