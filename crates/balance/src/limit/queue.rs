//! Queue for permits, whose length is bounded by the time that requests wait. Serves the oldest request first, or the
//! newest first under overload.

use super::kinds::Kind;
use super::{OVERLOAD_WAIT_MS, Place, QueueRefusal};
use flatout_overload::{QueueBound, QueueSettings, Subject};
use std::collections::VecDeque;
use std::task::Waker;

/// Waiting time of the oldest request above which the newest requests are served first, in milliseconds, if the queue has
/// been full since, many requests give up, or the request may not wait for longer than [`OVERLOAD_WAIT_MS`].
const NEWEST_FIRST_MS: u64 = 250;

/// Number of served entries that offset one that gives up, and the excess from which the queue is overloaded: many more
/// than one in five entries give up.
const SERVED_PER_GIVEN_UP: u32 = 4;
const GIVEN_UP_MANY: u32 = 32;

/// Divisor of the length of the queue that yields the share of a client.
const CLIENT_SHARE: usize = 4;

#[derive(Debug)]
struct QueuedRequest {
    number: u64,
    since_ms: u64,
    wait_ms: u64,
    kind: Kind,
    client: Option<Subject>,
    waker: Option<Waker>,
}

/// Queue of requests. An entry is removed when it is granted a permit or when its request gives up.
#[derive(Debug)]
pub(super) struct PermitQueue {
    /// Sorted by number.
    entries: VecDeque<QueuedRequest>,
    /// Places granted to requests that have not taken them yet.
    granted: Vec<(u64, Place)>,
    next_number: u64,
    control: QueueBound,
    /// When a request last found the queue full, in milliseconds.
    full_ms: Option<u64>,
    /// Rises with each entry that gives up, and falls with each that is served.
    given_up: u32,
}

impl PermitQueue {
    pub(super) fn new(settings: QueueSettings) -> Self {
        let (entries, granted, control) = (VecDeque::new(), Vec::new(), QueueBound::new(settings));
        Self { entries, granted, next_number: 0, control, full_ms: None, given_up: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends an entry that is to wait for at most `wait_ms`, and returns its number.
    pub(super) fn push(
        &mut self,
        kind: Kind,
        client: Option<Subject>,
        (now_ms, wait_ms): (u64, u64),
    ) -> Result<u64, QueueRefusal> {
        if self.entries.len() >= self.control.bound() as usize {
            self.full_ms = Some(now_ms);
            return Err(QueueRefusal::Full);
        }
        // Entries that may wait longer take no places from others.
        let bound = self.control.bound_within(wait_ms) as usize;
        let others = || self.entries.iter().filter(|entry| entry.wait_ms <= wait_ms);
        if self.entries.len() >= bound && others().count() >= bound {
            self.full_ms = Some(now_ms);
            return Err(QueueRefusal::Full);
        }
        if let Some(client) = client {
            let share = (bound / CLIENT_SHARE).max(1);
            if others().filter(|entry| entry.client == Some(client)).count() >= share {
                return Err(QueueRefusal::ClientShare);
            }
        }
        let number = self.next_number;
        self.next_number += 1;
        self.entries.push_back(QueuedRequest { number, since_ms: now_ms, wait_ms, kind, client, waker: None });
        Ok(number)
    }

    /// Returns whether the next permit goes to the newest entry instead of the oldest: under overload, requests at the
    /// front would be served so late that their clients have left. As long as the queue is never full and few entries
    /// give up, all entries are served in time, and those that may wait for long are served in order.
    fn is_overloaded(&self, now_ms: u64) -> bool {
        self.entries.front().is_some_and(|oldest| {
            let is_full = || self.full_ms.is_some_and(|full_ms| full_ms >= oldest.since_ms);
            now_ms.saturating_sub(oldest.since_ms) > NEWEST_FIRST_MS
                && (oldest.wait_ms <= OVERLOAD_WAIT_MS || is_full() || self.given_up >= GIVEN_UP_MANY)
        })
    }

    /// Returns the kind of the entry that gets the next permit.
    pub(super) fn next(&self, now_ms: u64) -> Option<Kind> {
        let next = if self.is_overloaded(now_ms) { self.entries.back() } else { self.entries.front() };
        next.map(|entry| entry.kind)
    }

    /// Grants a place to the [`next`](Self::next) entry. Returns its waker if it has been polled.
    pub(super) fn grant(&mut self, place: Place, now_ms: u64) -> Option<Waker> {
        let entry = if self.is_overloaded(now_ms) { self.entries.pop_back() } else { self.entries.pop_front() }?;
        self.granted.push((entry.number, place));
        self.given_up = self.given_up.saturating_sub(1);
        if self.entries.is_empty() {
            self.control.handle_empty(now_ms);
        } else {
            self.control.handle_saturated(1, now_ms, || None);
        }
        entry.waker
    }

    /// Takes the place that has been granted to an entry, if one has.
    pub(super) fn take_granted(&mut self, number: u64) -> Option<Place> {
        let at = self.granted.iter().position(|(other, _)| *other == number)?;
        Some(self.granted.swap_remove(at).1)
    }

    /// Removes an entry that gives up.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(at) = self.position(number) {
            self.entries.remove(at);
            self.given_up = (self.given_up + SERVED_PER_GIVEN_UP).min(2 * GIVEN_UP_MANY);
        }
    }

    /// Sets the waker of an entry.
    pub(super) fn set_waker(&mut self, number: u64, waker: &Waker) {
        let Some(entry) = self.position(number).and_then(|at| self.entries.get_mut(at)) else { return };
        match &mut entry.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }
}
