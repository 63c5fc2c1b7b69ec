//! Slots without a visit, with or without an open connection.
//!
//! In a replay, an open connection belongs to a client of the log. It is used only for that client, and closed after
//! the client's last line. If all connections of the plan are in use and another client needs a connection, the
//! connection that has been idle longest is closed.

use std::collections::VecDeque;

/// Stands for no slot or no client.
const NONE: u32 = u32::MAX;

/// Stored instead of a client's slot after the client's last line.
const GONE: u32 = u32::MAX - 1;

/// Links of a free slot with an open connection.
#[derive(Clone, Copy, Debug)]
struct FreeLinks {
    /// The slots that were added just before and just after this slot.
    older: u32,
    newer: u32,
    client: u32,
    /// The client's next newer slot. The client's newest slot refers to its oldest.
    next_of_client: u32,
}

/// All free slots. Allocates only when it is created.
#[derive(Clone, Debug)]
pub(super) struct Free {
    closed: VecDeque<u32>,
    oldest: u32,
    newest: u32,
    links: Box<[FreeLinks]>,
    /// Newest free slot with an open connection of each client, or [`NONE`], or [`GONE`].
    newest_of: Box<[u32]>,
    /// Slots whose connections must be closed.
    leaving: VecDeque<u32>,
}

impl Free {
    /// Creates an empty set with capacity for these slots and clients.
    pub(super) fn new(slots: usize, clients: usize) -> Self {
        let link = FreeLinks { older: NONE, newer: NONE, client: NONE, next_of_client: NONE };
        Self {
            closed: VecDeque::with_capacity(slots),
            oldest: NONE,
            newest: NONE,
            links: vec![link; slots].into_boxed_slice(),
            newest_of: vec![NONE; clients].into_boxed_slice(),
            leaving: VecDeque::with_capacity(if clients == 0 { 0 } else { slots }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.oldest == NONE
    }

    /// Adds a slot without a connection.
    pub(super) fn put_closed(&mut self, slot: u32) {
        self.closed.push_back(slot);
    }

    /// Adds a slot with an open connection. Returns false if the connection must be closed because its client has
    /// finished.
    pub(super) fn put_open(&mut self, slot: u32, client: Option<u32>) -> bool {
        let client = client.unwrap_or(NONE);
        let newest_of = self.newest_of.get(client as usize).copied().unwrap_or(NONE);
        if newest_of == GONE {
            self.leaving.push_back(slot);
            self.closed.push_back(slot);
            return false;
        }
        let mut link = FreeLinks { older: self.newest, newer: NONE, client, next_of_client: slot };
        if let Some(before) = self.links.get_mut(newest_of as usize) {
            link.next_of_client = std::mem::replace(&mut before.next_of_client, slot);
        }
        match self.links.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.links[slot as usize] = link;
        if let Some(newest_of) = self.newest_of.get_mut(client as usize) {
            *newest_of = slot;
        }
        true
    }

    /// Takes a slot for a visit without a client: the one whose open connection became idle last, so that connections
    /// that the load does not need remain idle. Takes a slot without a connection only if no connection is idle, so that
    /// a new one is opened only if it is needed. The connection of a client is only the last resort.
    pub(super) fn take(&mut self) -> Option<u32> {
        match self.links.get(self.newest as usize) {
            Some(newest) if newest.client == NONE => Some(self.unlink(self.newest)),
            _ => self.closed.pop_front().or_else(|| self.take_oldest()),
        }
    }

    /// Takes a slot for a client's visit. Also returns whether the slot's connection belongs to the client. The
    /// connection of another client is of no use, so slots without a connection come first.
    pub(super) fn take_for(&mut self, client: u32) -> Option<(u32, bool)> {
        match self.take_own(client) {
            Some(slot) => Some((slot, true)),
            None => Some((self.closed.pop_front().or_else(|| self.take_oldest())?, false)),
        }
    }

    /// Handles that the open connection of a slot in this set was closed. A slot whose connection belongs to a client
    /// remains in its place, because only that client looks for it.
    pub(super) fn handle_closed(&mut self, slot: u32) {
        if self.links[slot as usize].client == NONE {
            let slot = self.unlink(slot);
            self.closed.push_back(slot);
        }
    }

    /// Takes an open slot of a client that has finished, to close its connection.
    pub(super) fn take_from_gone(&mut self, client: u32) -> Option<u32> {
        let taken = self.take_own(client);
        match (taken, self.newest_of.get_mut(client as usize)) {
            (Some(slot), _) => {
                self.leaving.push_back(slot);
                self.closed.push_back(slot);
            }
            (None, Some(newest_of)) => *newest_of = GONE,
            (None, None) => {}
        }
        taken
    }

    /// Returns whether a client has finished.
    pub(super) fn is_gone(&self, client: u32) -> bool {
        self.newest_of.get(client as usize) == Some(&GONE)
    }

    /// Takes the next slot whose connection must be closed. The slot may be in use again.
    pub(super) fn take_leaving(&mut self) -> Option<u32> {
        self.leaving.pop_front()
    }

    fn take_oldest(&mut self) -> Option<u32> {
        let client = self.links.get(self.oldest as usize)?.client;
        // The oldest slot overall is also the oldest of its client.
        self.take_own(client).or_else(|| Some(self.unlink(self.oldest)))
    }

    /// Takes the client's oldest open slot.
    fn take_own(&mut self, client: u32) -> Option<u32> {
        let newest_of = self.newest_of.get_mut(client as usize)?;
        let oldest = self.links.get(*newest_of as usize)?.next_of_client;
        if *newest_of == oldest {
            *newest_of = NONE;
        } else {
            let next = self.links[oldest as usize].next_of_client;
            self.links[*newest_of as usize].next_of_client = next;
        }
        Some(self.unlink(oldest))
    }

    fn unlink(&mut self, slot: u32) -> u32 {
        let FreeLinks { older, newer, .. } = self.links[slot as usize];
        match self.links.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.links.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::{Free, NONE};
    use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

    const SLOTS: u32 = 6;

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Take,
        TakeFor(u32),
        PutOpen(u32),
        PutShared,
        PutClosed,
        Closed(usize),
        Gone(u32),
    }

    fn any_act() -> impl Strategy<Value = Act> {
        prop_oneof![
            Just(Act::Take),
            (0..4_u32).prop_map(Act::TakeFor),
            (0..4_u32).prop_map(Act::PutOpen),
            Just(Act::PutShared),
            Just(Act::PutClosed),
            (0..SLOTS as usize).prop_map(Act::Closed),
            (0..4_u32).prop_map(Act::Gone),
        ]
    }

    proptest! {
        /// Compares the set with lists that are searched: each action takes the same slots in the same order.
        #[test]
        fn it_is_as_good_as_searching(acts in proptest::collection::vec(any_act(), 0..200)) {
            let mut free = Free::new(SLOTS as usize, 4);
            let (mut closed, mut open): (Vec<u32>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
            let (mut taken, mut gone): (Vec<u32>, Vec<u32>) = ((0..SLOTS).collect(), Vec::new());
            for act in acts {
                match act {
                    Act::Take | Act::TakeFor(_) => {
                        // A client uses its oldest connection first, and a visit without a client the newest one.
                        let (own, found) = if let Act::TakeFor(client) = act {
                            (open.iter().position(|(_, of)| *of == client), free.take_for(client))
                        } else {
                            let newest = open.len().checked_sub(1).filter(|newest| open[*newest].1 == NONE);
                            (newest, free.take().map(|slot| (slot, newest.is_some())))
                        };
                        let expected = if let Some(index) = own {
                            Some((open.remove(index).0, true))
                        } else if !closed.is_empty() {
                            Some((closed.remove(0), false))
                        } else if !open.is_empty() {
                            Some((open.remove(0).0, false))
                        } else {
                            None
                        };
                        prop_assert_eq!(found, expected);
                        taken.extend(found.map(|(slot, _)| slot));
                    }
                    Act::PutOpen(client) => if let Some(slot) = taken.pop() {
                        let is_kept = free.put_open(slot, Some(client));
                        prop_assert_eq!(is_kept, !gone.contains(&client));
                        if is_kept { open.push((slot, client)) } else { closed.push(slot) }
                    },
                    Act::PutShared => if let Some(slot) = taken.pop() {
                        prop_assert!(free.put_open(slot, None));
                        open.push((slot, NONE));
                    },
                    Act::Closed(nth) => if let Some((slot, client)) = open.get(nth).copied() {
                        free.handle_closed(slot);
                        if client == NONE {
                            closed.push(open.remove(nth).0);
                        }
                    },
                    Act::PutClosed => if let Some(slot) = taken.pop() {
                        free.put_closed(slot);
                        closed.push(slot);
                    },
                    Act::Gone(client) => {
                        while let Some(slot) = free.take_from_gone(client) {
                            let index = open.iter().position(|(_, of)| *of == client);
                            prop_assert_eq!(index.map(|index| open.remove(index).0), Some(slot));
                            closed.push(slot);
                            prop_assert!(free.leaving.contains(&slot));
                        }
                        prop_assert!(open.iter().all(|(_, of)| *of != client));
                        gone.push(client);
                    }
                }
                prop_assert_eq!(free.is_empty(), closed.is_empty() && open.is_empty());
                while free.take_leaving().is_some() {}
            }
        }
    }
}
