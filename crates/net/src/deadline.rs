//! When each connection's patience ends: a dense table of deadlines, looked through a few times a second.
//!
//! A connection keeps its own deadline and writes it here only when it comes earlier than what stands here; called too
//! early, it writes the later one. So the hot path does not touch the table at all, and looking through 10,000 slots
//! takes tens of microseconds. Deadlines are kept to the tick of the sweep, not to the millisecond.

use std::task::Waker;

/// A connection's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId(u32);

#[derive(Debug)]
struct Slot {
    /// Milliseconds on the monotonic clock; `u64::MAX` when none is set.
    deadline_ms: u64,
    /// The deadline passed, or the owner was called for another reason, and the owner has not looked yet.
    call: Option<Call>,
    /// Wakes the owner; `None` in a free slot.
    waker: Option<Waker>,
}

/// Why the owner of a slot was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The deadline that stands in the table passed.
    Expired,
    /// The worker is stopping: finish, or leave if idle.
    Drain,
    /// Descriptors ran out: leave if idle.
    GiveWay,
    /// The worker's own deadline for stopping passed: leave at once.
    Abandon,
}

/// The deadlines of one worker's connections.
#[derive(Debug, Default)]
pub struct Deadlines {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Calls that their owners have not taken.
    calls_waiting: usize,
    /// Where `call_some` goes on.
    hand: usize,
}

impl Deadlines {
    /// Takes a slot for the owner of `waker`.
    pub fn insert(&mut self, waker: Waker) -> SlotId {
        let slot = Slot { deadline_ms: u64::MAX, call: None, waker: Some(waker) };
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return SlotId(index);
        }
        self.slots.push(slot);
        SlotId(self.slots.len() as u32 - 1)
    }

    /// Gives a slot back.
    pub fn remove(&mut self, id: SlotId) {
        self.take_call(id);
        let slot = &mut self.slots[id.0 as usize];
        slot.waker = None;
        slot.deadline_ms = u64::MAX;
        self.free.push(id.0);
    }

    /// Sets the deadline at which the owner is called.
    pub fn set(&mut self, id: SlotId, deadline_ms: u64) {
        self.slots[id.0 as usize].deadline_ms = deadline_ms;
    }

    /// Whether anyone was called and has not looked: only then need an owner ask for its call.
    #[inline]
    pub const fn has_calls(&self) -> bool {
        self.calls_waiting > 0
    }

    /// Takes the call that waits for the owner of `id`, if there is one.
    pub fn take_call(&mut self, id: SlotId) -> Option<Call> {
        let call = self.slots[id.0 as usize].call.take();
        self.calls_waiting -= usize::from(call.is_some());
        call
    }

    /// How many slots are taken.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether none is taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls everyone whose deadline is at or before `now_ms`.
    pub fn handle_time(&mut self, now_ms: u64) {
        for slot in &mut self.slots {
            // Whoever was called for another reason is called for this one at the next sweep: no call is lost.
            if slot.deadline_ms <= now_ms && slot.call.is_none() {
                slot.deadline_ms = u64::MAX;
                self.calls_waiting += slot.call(Call::Expired);
            }
        }
    }

    /// Calls every owner; a call that waits already gives way to this one, and so does its deadline.
    pub fn call_all(&mut self, call: Call) {
        for slot in &mut self.slots {
            self.calls_waiting += slot.call(call);
        }
    }

    /// Calls up to `count_max` owners who have not been called, others each time.
    pub fn call_some(&mut self, call: Call, count_max: usize) {
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

impl Slot {
    /// Returns how many calls more are waiting.
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
        assert!(deadlines.is_empty());
        deadlines.handle_time(100);
        let second = deadlines.insert(waker);
        assert_eq!((first, deadlines.len()), (second, 1));
        assert_eq!(deadlines.take_call(second), None);
    }
}
