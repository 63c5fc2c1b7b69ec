//! Queue for permits, whose length is bounded by the time that requests wait. Serves the oldest request first, or the
//! newest first under overload.

use super::kinds::Kind;
use super::{Place, QueueRefusal};
use flatout_overload::{QueueBound, QueueSettings, Subject};
use std::collections::VecDeque;
use std::task::Waker;

/// Waiting time of the oldest request above which the newest requests are served first, in milliseconds.
const NEWEST_FIRST_MS: u64 = 250;

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
}

impl PermitQueue {
    pub(super) fn new(settings: QueueSettings) -> Self {
        Self { entries: VecDeque::new(), granted: Vec::new(), next_number: 0, control: QueueBound::new(settings) }
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
            return Err(QueueRefusal::Full);
        }
        // Entries that may wait longer take no places from others.
        let bound = self.control.bound_within(wait_ms) as usize;
        let others = || self.entries.iter().filter(|entry| entry.wait_ms <= wait_ms);
        if self.entries.len() >= bound && others().count() >= bound {
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
    /// front would be served so late that their clients have left.
    fn is_overloaded(&self, now_ms: u64) -> bool {
        self.entries.front().is_some_and(|oldest| now_ms.saturating_sub(oldest.since_ms) > NEWEST_FIRST_MS)
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

    /// Removes an entry.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(at) = self.position(number) {
            self.entries.remove(at);
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
