//! Queue for permits, whose length is bounded by the time that requests wait. Serves the oldest request first, or the
//! newest first under overload.

use flatout_overload::{QueueBound, QueueSettings};
use std::collections::VecDeque;
use std::task::Waker;

/// Waiting time of the oldest request above which the newest requests are served first, in milliseconds.
const NEWEST_FIRST_MS: u64 = 250;

#[derive(Debug)]
struct QueuedRequest {
    number: u64,
    since_ms: u64,
    waker: Option<Waker>,
}

/// Queue of requests. An entry is removed when it is granted a permit or when its request gives up. A waiting request
/// whose entry is gone therefore has a permit.
#[derive(Debug)]
pub(super) struct PermitQueue {
    /// Sorted by number.
    entries: VecDeque<QueuedRequest>,
    next_number: u64,
    control: QueueBound,
}

impl PermitQueue {
    pub(super) fn new(settings: QueueSettings) -> Self {
        Self { entries: VecDeque::new(), next_number: 0, control: QueueBound::new(settings) }
    }

    /// Returns the current maximum number of queued requests.
    pub(super) const fn bound(&self) -> usize {
        self.control.bound() as usize
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends an entry, and returns its number.
    pub(super) fn push(&mut self, now_ms: u64) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.entries.push_back(QueuedRequest { number, since_ms: now_ms, waker: None });
        number
    }

    /// Removes the entry that is granted a permit, which is the oldest or, under overload, the newest. Returns its
    /// waker if it has been polled.
    pub(super) fn pop(&mut self, now_ms: u64) -> Option<Waker> {
        let oldest_ms = now_ms.saturating_sub(self.entries.front()?.since_ms);
        // Under overload, requests at the front would be served so late that their clients have left.
        let is_overloaded = oldest_ms > NEWEST_FIRST_MS;
        let entry = if is_overloaded { self.entries.pop_back() } else { self.entries.pop_front() }?;
        if self.entries.is_empty() {
            self.control.handle_empty(now_ms);
        } else {
            self.control.handle_saturated(1, now_ms, || None);
        }
        entry.waker
    }

    /// Removes an entry. Returns false if it has already been granted a permit.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        self.position(number).is_some_and(|at| self.entries.remove(at).is_some())
    }

    /// Sets the waker of an entry. Returns false if it has already been granted a permit.
    pub(super) fn set_waker(&mut self, number: u64, waker: &Waker) -> bool {
        let Some(entry) = self.position(number).and_then(|at| self.entries.get_mut(at)) else { return false };
        match &mut entry.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }
}
