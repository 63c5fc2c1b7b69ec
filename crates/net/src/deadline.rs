//! When each connection's patience ends: a dense table of deadlines, looked through a few times a second.
//!
//! Setting a deadline is one store, so the hot path pays nothing for timers; looking through 10,000 of them takes
//! tens of microseconds. Deadlines are kept to the tick of the sweep, not to the millisecond.

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
    /// The owner waits for a request to begin, and can be called away without loss.
    idle: bool,
    /// Wakes the owner; `None` in a free slot.
    waker: Option<Waker>,
}

/// Why the owner of a slot was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Its deadline passed.
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
}

impl Deadlines {
    /// Takes a slot for the owner of `waker`.
    pub fn insert(&mut self, waker: Waker) -> SlotId {
        let slot = Slot { deadline_ms: u64::MAX, call: None, idle: false, waker: Some(waker) };
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return SlotId(index);
        }
        self.slots.push(slot);
        SlotId(self.slots.len() as u32 - 1)
    }

    /// Gives a slot back.
    pub fn remove(&mut self, id: SlotId) {
        let slot = &mut self.slots[id.0 as usize];
        slot.waker = None;
        slot.deadline_ms = u64::MAX;
        slot.call = None;
        self.free.push(id.0);
    }

    /// Sets the deadline, and whether its owner is idle until then.
    #[inline]
    pub fn set(&mut self, id: SlotId, deadline_ms: u64, idle: bool) {
        let slot = &mut self.slots[id.0 as usize];
        slot.deadline_ms = deadline_ms;
        slot.idle = idle;
    }

    /// Takes the call that waits for the owner of `id`, if there is one.
    #[inline]
    pub fn take_call(&mut self, id: SlotId) -> Option<Call> {
        self.slots[id.0 as usize].call.take()
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
            if slot.deadline_ms <= now_ms {
                slot.deadline_ms = u64::MAX;
                slot.call(Call::Expired);
            }
        }
    }

    /// Calls every owner.
    pub fn call_all(&mut self, call: Call) {
        for slot in &mut self.slots {
            slot.call(call);
        }
    }

    /// Calls up to `count_max` idle owners and says how many.
    pub fn call_idle(&mut self, call: Call, count_max: usize) -> usize {
        let mut called = 0;
        for slot in self.slots.iter_mut().filter(|slot| slot.idle && slot.call.is_none() && slot.waker.is_some()) {
            if called == count_max {
                break;
            }
            slot.call(call);
            called += 1;
        }
        called
    }
}

impl Slot {
    fn call(&mut self, call: Call) {
        if let Some(waker) = &self.waker {
            self.call = Some(call);
            waker.wake_by_ref();
        }
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
        deadlines.set(early, 10, true);
        deadlines.set(late, 20, false);
        deadlines.handle_time(9);
        assert_eq!(deadlines.take_call(early), None);
        deadlines.handle_time(10);
        deadlines.handle_time(11);
        assert_eq!(deadlines.take_call(early), Some(Call::Expired));
        assert_eq!((deadlines.take_call(early), deadlines.take_call(late)), (None, None));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(deadlines.call_idle(Call::GiveWay, 5), 1);
        deadlines.call_all(Call::Drain);
        assert_eq!(deadlines.take_call(late), Some(Call::Drain));
    }

    #[test]
    fn slots_are_used_again() {
        let waker = Waker::from(Arc::new(Wakes::default()));
        let mut deadlines = Deadlines::default();
        let first = deadlines.insert(waker.clone());
        deadlines.set(first, 1, true);
        deadlines.remove(first);
        assert!(deadlines.is_empty());
        deadlines.handle_time(100);
        let second = deadlines.insert(waker);
        assert_eq!((first, deadlines.len()), (second, 1));
        assert_eq!(deadlines.take_call(second), None);
    }
}
