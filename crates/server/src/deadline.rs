//! Deadlines of connections, and calls that wake them.
//!
//! A connection stores its own deadline, and updates the table only if the new deadline is earlier than the table's
//! entry. If the connection is woken too early, it enters the later deadline then. The hot path therefore does not
//! touch the table. Deadlines are accurate to one sweep interval, not to the millisecond.

use flatout_net::deadlines::{DeadlineId, Deadlines};
use std::task::Waker;

/// Time after which an incomplete request head or handshake may be closed in favour of a new connection that needs
/// a file descriptor, in milliseconds.
pub(crate) const INCOMPLETE_GRACE_MS: u64 = 1000;

/// An entry of the table, which belongs to the task of a connection.
#[derive(Debug)]
struct TimerEntry {
    /// The part that the client has not completed, and since when, in milliseconds.
    incomplete: Option<(Incomplete, u64)>,
    /// The reason the owner was woken, if it has not taken the call yet.
    call: Option<Call>,
    /// Wakes the owner.
    waker: Waker,
}

/// Part of a connection that the client has not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incomplete {
    /// A PROXY header, a TLS handshake, or the client preface of HTTP/2.
    Handshake,
    /// The head of a request.
    Head,
}

/// The reason the owner of an entry was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The deadline in the table passed.
    Expired,
    /// The worker is stopping: finish the current request, or close if idle.
    Drain,
    /// File descriptors have run out: close if idle, or if the request head or handshake has been incomplete for long.
    GiveWay,
    /// All clients together have too many incomplete parts of this kind, and the owner's is among the oldest: close if
    /// it is still incomplete.
    Displace(Incomplete),
    /// The worker's deadline for stopping has passed: close immediately.
    Abandon,
}

/// The deadlines of one worker's connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionDeadlines {
    entries: Deadlines<TimerEntry>,
    /// Number of calls that their owners have not taken.
    calls_waiting: usize,
    /// The last owner that `call_some` woke.
    hand: Option<DeadlineId>,
}

impl ConnectionDeadlines {
    /// Adds an entry whose owner is woken by `waker`.
    pub(crate) fn insert(&mut self, waker: Waker) -> DeadlineId {
        self.entries.insert(TimerEntry { incomplete: None, call: None, waker })
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, id: DeadlineId) {
        self.calls_waiting -= usize::from(self.entries.remove(id).call.is_some());
    }

    /// Sets the deadline at which the owner is woken, in milliseconds on the monotonic clock.
    pub(crate) fn set(&mut self, id: DeadlineId, deadline_ms: u64) {
        self.entries.set(id, deadline_ms);
    }

    /// Sets what the owner's client has not completed, and since when, in milliseconds.
    pub(crate) fn set_incomplete(&mut self, id: DeadlineId, incomplete: Option<(Incomplete, u64)>) {
        self.entries.owner_mut(id).incomplete = incomplete;
    }

    /// Returns whether any owner has a pending call. Only then do owners need to check for one.
    #[inline]
    pub(crate) const fn has_calls(&self) -> bool {
        self.calls_waiting > 0
    }

    /// Takes the pending call for the owner of `id`, if there is one.
    pub(crate) fn take_call(&mut self, id: DeadlineId) -> Option<Call> {
        let call = self.entries.owner_mut(id).call.take();
        self.calls_waiting -= usize::from(call.is_some());
        call
    }

    /// Wakes every owner whose deadline is at or before `now_ms`.
    pub(crate) fn handle_time(&mut self, now_ms: u64) {
        self.entries.handle_time(now_ms, |entry| {
            // An owner with another pending call receives this one at the next sweep, so no call is lost.
            let is_free = entry.call.is_none();
            if is_free {
                self.calls_waiting += entry.call(Call::Expired);
            }
            is_free
        });
    }

    /// Wakes every owner with `call`, which replaces pending calls.
    pub(crate) fn call_all(&mut self, call: Call) {
        for (_, entry) in self.entries.iter_mut() {
            self.calls_waiting += entry.call(call);
        }
    }

    /// Wakes the owners that have been incomplete longest. Considers owners that are incomplete in the way `kind` says
    /// (`None`: in any way), have been so since `until_ms` or earlier, and have no pending call. Wakes at most
    /// `count_max` of them and at most an eighth of all entries, so that a need for a few descriptors costs few
    /// clients. Returns the number of owners woken.
    pub(crate) fn call_oldest(
        &mut self,
        call: Call,
        count_max: usize,
        until_ms: u64,
        kind: Option<Incomplete>,
    ) -> usize {
        let due_max = count_max.min(self.entries.len().div_ceil(8));
        let mut due: Vec<(u64, &mut TimerEntry)> = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| entry.call.is_none())
            .filter_map(|(_, entry)| entry.incomplete.map(|(own, since_ms)| (own, since_ms, entry)))
            .filter(|(own, since_ms, _)| kind.is_none_or(|kind| kind == *own) && *since_ms <= until_ms)
            .map(|(_, since_ms, entry)| (since_ms, entry))
            .collect();
        due.sort_by_key(|(since_ms, _)| *since_ms);
        due.truncate(due_max);
        for (_, entry) in &mut due {
            self.calls_waiting += entry.call(call);
        }
        due.len()
    }

    /// Returns whether any owner has not yet taken `call`.
    pub(crate) fn has_call(&self, call: Call) -> bool {
        self.has_calls() && self.entries.iter().any(|(_, entry)| entry.call == Some(call))
    }

    /// Wakes up to `count_max` owners that have no pending call, continuing where the previous call stopped.
    pub(crate) fn call_some(&mut self, call: Call, count_max: usize) {
        let (hand, mut left) = (self.hand, count_max);
        for is_later in [true, false] {
            let entries =
                self.entries.iter_mut().filter(|(id, entry)| (Some(*id) > hand) == is_later && entry.call.is_none());
            for (id, entry) in entries.take(left) {
                self.calls_waiting += entry.call(call);
                self.hand = Some(id);
                left -= 1;
            }
        }
    }
}

impl TimerEntry {
    /// Wakes the owner with `call`. Returns the increase in the number of pending calls, 0 or 1.
    fn call(&mut self, call: Call) -> usize {
        self.waker.wake_by_ref();
        usize::from(self.call.replace(call).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, ConnectionDeadlines, Incomplete};
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
        let mut deadlines = ConnectionDeadlines::default();
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
        deadlines.call_some(Call::GiveWay, 2);
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
    fn the_oldest_incomplete_is_called_first() {
        let mut deadlines = ConnectionDeadlines::default();
        let ids: Vec<_> = (0..16).map(|_| deadlines.insert(Waker::noop().clone())).collect();
        let (head, handshake) = (Incomplete::Head, Incomplete::Handshake);
        for (index, kind, since_ms) in [(3, head, 50), (9, handshake, 20), (5, head, 40), (12, head, 90)] {
            deadlines.set_incomplete(ids[index], Some((kind, since_ms)));
        }
        let called = |deadlines: &mut ConnectionDeadlines| -> Vec<usize> {
            (0..ids.len()).filter(|&index| deadlines.take_call(ids[index]).is_some()).collect()
        };
        assert_eq!(deadlines.call_oldest(Call::GiveWay, 1, 80, None), 1);
        assert_eq!(called(&mut deadlines), [9]);
        assert_eq!(deadlines.call_oldest(Call::GiveWay, 32, 80, None), 2, "an eighth of all entries");
        assert_eq!(called(&mut deadlines), [5, 9]);
        assert_eq!(deadlines.call_oldest(Call::Displace(head), 1, u64::MAX, Some(head)), 1);
        assert_eq!(called(&mut deadlines), [5]);
        deadlines.set_incomplete(ids[9], None);
        deadlines.set_incomplete(ids[5], None);
        assert_eq!(deadlines.call_oldest(Call::GiveWay, 32, 80, None), 1, "the fourth is too young");
        assert_eq!(called(&mut deadlines), [3]);
    }
}
