//! Deadlines of connections, in a dense table that is scanned a few times a second.
//!
//! A connection stores its own deadline and updates the table only if the new one is earlier than the entry; if it is
//! woken too early, it writes the later one. So the hot path does not touch the table, and scanning 10,000 entries
//! takes tens of microseconds. Deadlines are precise to one sweep, not to the millisecond.

use std::task::Waker;

/// Index of a connection's entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

#[derive(Debug)]
struct TimerEntry {
    /// Milliseconds on the monotonic clock; `u64::MAX` when none is set.
    deadline_ms: u64,
    /// The deadline passed, or the owner was woken for another reason, and has not taken the call yet.
    call: Option<Call>,
    /// Wakes the owner; `None` in a free entry.
    waker: Option<Waker>,
}

/// Why the owner of an entry was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The deadline in the table passed.
    Expired,
    /// The worker is stopping: finish the request, or close if idle.
    Drain,
    /// Descriptors ran out: close if idle.
    GiveWay,
    /// The worker's own deadline for stopping passed: close immediately.
    Abandon,
}

/// The deadlines of one worker's connections.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    slots: Vec<TimerEntry>,
    free: Vec<u32>,
    /// Calls that their owners have not taken.
    calls_waiting: usize,
    /// Position where `call_some` continues.
    hand: usize,
}

impl Deadlines {
    /// Allocates an entry for the owner of `waker`.
    pub(crate) fn insert(&mut self, waker: Waker) -> SlotId {
        let slot = TimerEntry { deadline_ms: u64::MAX, call: None, waker: Some(waker) };
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return SlotId(index);
        }
        self.slots.push(slot);
        SlotId(self.slots.len() as u32 - 1)
    }

    /// Frees an entry.
    pub(crate) fn remove(&mut self, id: SlotId) {
        self.take_call(id);
        let slot = &mut self.slots[id.0 as usize];
        slot.waker = None;
        slot.deadline_ms = u64::MAX;
        self.free.push(id.0);
    }

    /// Sets the deadline at which the owner is woken.
    pub(crate) fn set(&mut self, id: SlotId, deadline_ms: u64) {
        self.slots[id.0 as usize].deadline_ms = deadline_ms;
    }

    /// Returns whether any call has not been taken. Owners need to look for theirs only then.
    #[inline]
    pub(crate) const fn has_calls(&self) -> bool {
        self.calls_waiting > 0
    }

    /// Takes the pending call for the owner of `id`, if there is one.
    pub(crate) fn take_call(&mut self, id: SlotId) -> Option<Call> {
        let call = self.slots[id.0 as usize].call.take();
        self.calls_waiting -= usize::from(call.is_some());
        call
    }

    /// Number of entries in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Wakes every owner whose deadline is at or before `now_ms`.
    pub(crate) fn handle_time(&mut self, now_ms: u64) {
        for slot in &mut self.slots {
            // An owner with another pending call receives this one at the next sweep: no call is lost.
            if slot.deadline_ms <= now_ms && slot.call.is_none() {
                slot.deadline_ms = u64::MAX;
                self.calls_waiting += slot.call(Call::Expired);
            }
        }
    }

    /// Wakes every owner; replaces pending calls and clears deadlines.
    pub(crate) fn call_all(&mut self, call: Call) {
        for slot in &mut self.slots {
            self.calls_waiting += slot.call(call);
        }
    }

    /// Wakes up to `count_max` owners that have no pending call, different ones each time.
    pub(crate) fn call_some(&mut self, call: Call, count_max: usize) {
        let mut called = 0;
        for _ in 0..self.slots.len() {
            if called >= count_max {
                return;
            }
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if slot.call.is_none() && slot.waker.is_some() {
                self.calls_waiting += slot.call(call);
                called += 1;
            }
        }
    }
}

impl TimerEntry {
    /// Returns the number of calls added, 0 or 1.
    fn call(&mut self, call: Call) -> usize {
        let Some(waker) = &self.waker else { return 0 };
        waker.wake_by_ref();
        usize::from(self.call.replace(call).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Deadlines};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Wakes(AtomicUsize);
    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_what_is_due_is_called_and_once() {
        let wakes = Arc::new(Wakes::default());
        let mut deadlines = Deadlines::default();
        let (early, late) =
            (deadlines.insert(Waker::from(wakes.clone())), deadlines.insert(Waker::from(wakes.clone())));
        deadlines.set(early, 10);
        deadlines.set(late, 20);
        deadlines.handle_time(9);
        assert_eq!(deadlines.take_call(early), None);
        deadlines.handle_time(10);
        deadlines.handle_time(11);
        assert!(deadlines.has_calls());
        assert_eq!(deadlines.take_call(early), Some(Call::Expired));
        assert!(!deadlines.has_calls());
        assert_eq!((deadlines.take_call(early), deadlines.take_call(late)), (None, None));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        deadlines.call_some(Call::GiveWay, 1);
        deadlines.call_some(Call::GiveWay, 1);
        assert_eq!((deadlines.take_call(early), deadlines.take_call(late)), (Some(Call::GiveWay), Some(Call::GiveWay)));
        deadlines.call_all(Call::Drain);
        deadlines.call_all(Call::Abandon);
        assert_eq!(deadlines.take_call(late), Some(Call::Abandon));
        deadlines.remove(early);
        assert!(!deadlines.has_calls());
        deadlines.set(late, 30);
        deadlines.call_all(Call::Drain);
        deadlines.handle_time(40);
        assert_eq!(deadlines.take_call(late), Some(Call::Drain), "a deadline does not hide another call");
        deadlines.handle_time(40);
        assert_eq!(deadlines.take_call(late), Some(Call::Expired), "and comes after it");
    }

    #[test]
    fn slots_are_used_again() {
        let waker = Waker::from(Arc::new(Wakes::default()));
        let mut deadlines = Deadlines::default();
        let first = deadlines.insert(waker.clone());
        deadlines.set(first, 1);
        deadlines.remove(first);
        assert_eq!(deadlines.len(), 0);
        deadlines.handle_time(100);
        let second = deadlines.insert(waker);
        assert_eq!((first, deadlines.len()), (second, 1));
        assert_eq!(deadlines.take_call(second), None);
    }
}
