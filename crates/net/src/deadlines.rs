//! Deadlines in a dense table that its owner scans a few times a second.
//!
//! Setting a deadline is one store, and scanning 10,000 entries takes tens of microseconds. In return, deadlines are
//! only as accurate as the interval between scans. The table reads no clock: time is an argument, in a unit that the
//! owner chooses.

use slab::Slab;

/// The value that stands for no deadline. No time reaches it.
pub const NEVER: u64 = u64::MAX;

/// Identifies an entry from its insertion to its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadlineId(usize);

/// A table of deadlines, each with a value that identifies its owner.
#[derive(Debug)]
pub struct Deadlines<T>(Slab<(u64, T)>);

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Self(Slab::new())
    }
}

impl<T> Deadlines<T> {
    /// Adds an entry without a deadline.
    pub fn insert(&mut self, owner: T) -> DeadlineId {
        DeadlineId(self.0.insert((NEVER, owner)))
    }

    /// Removes an entry and returns its owner.
    pub fn remove(&mut self, id: DeadlineId) -> T {
        self.0.remove(id.0).1
    }

    /// Replaces the deadline of an entry. [`NEVER`] clears it.
    pub fn set(&mut self, id: DeadlineId, deadline: u64) {
        self.0[id.0].0 = deadline;
    }

    /// Returns the owner of an entry.
    pub fn owner_mut(&mut self, id: DeadlineId) -> &mut T {
        &mut self.0[id.0].1
    }

    /// Returns the number of entries, with or without a deadline.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the owners of all entries.
    pub fn iter(&self) -> impl Iterator<Item = (DeadlineId, &T)> {
        self.0.iter().map(|(index, (_, owner))| (DeadlineId(index), owner))
    }

    /// Iterates over the owners of all entries.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (DeadlineId, &mut T)> {
        self.0.iter_mut().map(|(index, (_, owner))| (DeadlineId(index), owner))
    }

    /// Calls `handle` with every owner whose deadline is at or before `now`, and clears the deadline if `handle`
    /// returns true. Returns the earliest deadline that is still set.
    pub fn handle_time(&mut self, now: u64, mut handle: impl FnMut(&mut T) -> bool) -> Option<u64> {
        let mut earliest = NEVER;
        for (_, (deadline, owner)) in &mut self.0 {
            if *deadline <= now && *deadline != NEVER && handle(owner) {
                *deadline = NEVER;
            }
            earliest = earliest.min(*deadline);
        }
        Some(earliest).filter(|earliest| *earliest != NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::{Deadlines, NEVER};

    #[test]
    fn only_what_is_due_is_handled_and_once() {
        let mut deadlines = Deadlines::default();
        let (early, late) = (deadlines.insert("early"), deadlines.insert("late"));
        let handled = |deadlines: &mut Deadlines<&'static str>, now, takes| {
            let mut handled = Vec::new();
            let left = deadlines.handle_time(now, |owner| {
                handled.push(*owner);
                takes
            });
            (handled, left)
        };
        assert_eq!(handled(&mut deadlines, NEVER, true), (vec![], None));
        deadlines.set(early, 10);
        deadlines.set(late, 20);
        assert_eq!(handled(&mut deadlines, 9, true), (vec![], Some(10)));
        assert_eq!(handled(&mut deadlines, 10, false), (vec!["early"], Some(10)), "not taken: it stays due");
        assert_eq!(handled(&mut deadlines, 10, true), (vec!["early"], Some(20)));
        assert_eq!(handled(&mut deadlines, 19, true), (vec![], Some(20)));
        deadlines.set(late, NEVER);
        assert_eq!(handled(&mut deadlines, NEVER - 1, true), (vec![], None));
    }

    #[test]
    fn an_entry_that_is_used_again_has_no_deadline() {
        let mut deadlines = Deadlines::default();
        let first = deadlines.insert('a');
        deadlines.set(first, 1);
        assert_eq!((deadlines.remove(first), deadlines.is_empty()), ('a', true));
        let second = deadlines.insert('b');
        assert_eq!((first, deadlines.len(), *deadlines.owner_mut(second)), (second, 1, 'b'));
        assert_eq!(deadlines.handle_time(100, |_| true), None);
    }
}
