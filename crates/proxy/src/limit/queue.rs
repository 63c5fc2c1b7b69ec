//! Who waits for a place: first come, first served.

use std::collections::VecDeque;
use std::task::Waker;

#[derive(Debug)]
struct Entry {
    number: u64,
    deadline_ms: u64,
    waker: Option<Waker>,
}

/// The queue. An entry leaves it when it is given a place or gives up; so who finds its own gone has a place.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By number, so by deadline as well: all wait equally long.
    entries: VecDeque<Entry>,
    next_number: u64,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Joins the end; the entry's number.
    pub(super) fn push(&mut self, deadline_ms: u64) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.entries.push_back(Entry { number, deadline_ms, waker: None });
        number
    }

    /// Takes the first, which has a place now, and its waker when it has been polled.
    pub(super) fn pop(&mut self) -> Option<Waker> {
        self.entries.pop_front()?.waker
    }

    /// Leaves; false when it has been given a place.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        self.position(number).is_some_and(|at| self.entries.remove(at).is_some())
    }

    /// Has `waker` called when it is given a place; false when it has been given one.
    pub(super) fn set_waker(&mut self, number: u64, waker: &Waker) -> bool {
        let Some(entry) = self.position(number).and_then(|at| self.entries.get_mut(at)) else { return false };
        match &mut entry.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    /// The wakers of those whose deadline has come. They leave by themselves.
    pub(super) fn take_expired_wakers(&mut self, now_ms: u64) -> Vec<Waker> {
        let expired = self.entries.iter_mut().take_while(|entry| entry.deadline_ms <= now_ms);
        expired.filter_map(|entry| entry.waker.take()).collect()
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }
}
