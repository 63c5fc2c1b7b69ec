//! The connection that a group of slots shares.

use super::connection::StreamConnection;
use crate::Drive;
use crate::failure::IDLE_NS_MIN;
use crate::worker::ClientShared;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::sync::Notify;

/// The connection that a group of slots shares.
#[derive(Default)]
pub(crate) struct SharedConnection {
    pub(super) state: RefCell<SharedConnectionState>,
    pub(super) changed: Notify,
    /// Number that distinguishes successive connections of the group.
    pub(super) generation: Cell<u64>,
    /// True if the server closed the previous connection.
    pub(super) was_lost: Cell<bool>,
    /// The generation of the last connection that the server closed.
    pub(super) lost: Cell<u64>,
    /// Number of streams that the server permits on a connection, if known, at most as many as the group can use.
    pub(super) streams_max: Cell<Option<u32>>,
}

#[derive(Default)]
pub(super) enum SharedConnectionState {
    #[default]
    None,
    Connecting,
    /// The connection is open.
    Open(StreamConnection, Rc<ConnectionUsage>),
}

/// How bursts have used a connection.
pub(super) struct ConnectionUsage {
    /// Number of complete responses.
    pub(super) replies: Rc<Cell<u64>>,
    /// Number of bursts in progress.
    bursts: Cell<u32>,
    /// Time at which a burst ended last, in nanoseconds.
    ended_ns: Cell<u64>,
}

impl ConnectionUsage {
    /// Creates the usage of a new connection, whose complete responses are counted in `replies`.
    pub(super) fn new(replies: Rc<Cell<u64>>) -> Self {
        Self { replies, bursts: Cell::new(0), ended_ns: Cell::new(0) }
    }

    /// Handles the start of a burst. Returns whether the connection had been used and then been idle for
    /// [`IDLE_NS_MIN`].
    pub(super) fn begin(&self, now_ns: u64) -> bool {
        let bursts = self.bursts.get();
        self.bursts.set(bursts + 1);
        bursts == 0 && self.replies.get() > 0 && now_ns.saturating_sub(self.ended_ns.get()) >= IDLE_NS_MIN
    }

    /// Handles the end of a burst.
    pub(super) fn end(&self, now_ns: u64) {
        self.bursts.set(self.bursts.get().saturating_sub(1));
        self.ended_ns.set(now_ns);
    }
}

impl SharedConnection {
    /// Drops connection `generation` if it is still the current one. Returns whether it was.
    pub(super) fn forget(&self, generation: u64, was_lost: bool) -> bool {
        let is_news =
            self.generation.get() == generation && matches!(*self.state.borrow(), SharedConnectionState::Open(..));
        if is_news {
            self.state.replace(SharedConnectionState::None);
            self.was_lost.set(was_lost);
            if was_lost {
                self.lost.set(generation);
            }
        }
        is_news
    }

    /// Returns whether connection `generation` is still the current one.
    pub(super) fn is_open(&self, generation: u64) -> bool {
        self.generation.get() == generation && matches!(*self.state.borrow(), SharedConnectionState::Open(..))
    }

    /// Returns whether the group has a connection.
    pub(super) fn has_connection(&self) -> bool {
        matches!(*self.state.borrow(), SharedConnectionState::Open(..))
    }

    /// Closes the connection at the end of the run.
    pub(crate) fn close(&self) {
        if let SharedConnectionState::Open(connection, _) = self.state.take() {
            connection.close();
        }
    }

    pub(super) fn settle(&self, state: SharedConnectionState) {
        self.state.replace(state);
        self.changed.notify_waiters();
    }
}

/// Handles that the server closed connection `generation`. If it is still the current one, reports this for each slot of
/// the group, of which `slot` is one.
pub(super) fn handle_lost<D: Drive>(shared: &ClientShared<D>, group: &SharedConnection, slot: u32, generation: u64) {
    if !group.forget(generation, true) {
        return;
    }
    let streams = shared.settings.streams.map_or(1, |streams| streams.per_connection.max(1));
    let first = slot - slot % streams;
    let mut drive = shared.drive.borrow_mut();
    for slot in first..first.saturating_add(streams).min(shared.slots.len() as u32) {
        drive.handle_closed(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionUsage, IDLE_NS_MIN};
    use std::rc::Rc;

    #[test]
    fn a_connection_was_idle_if_it_was_used_and_no_burst_was_in_progress() {
        let usage = ConnectionUsage::new(Rc::default());
        assert!(!usage.begin(10 * IDLE_NS_MIN), "the connection is new");
        usage.replies.set(1);
        assert!(!usage.begin(20 * IDLE_NS_MIN), "a burst is in progress");
        usage.end(20 * IDLE_NS_MIN);
        usage.end(21 * IDLE_NS_MIN);
        assert!(!usage.begin(22 * IDLE_NS_MIN - 1), "the last burst has just ended");
        usage.end(30 * IDLE_NS_MIN);
        assert!(usage.begin(31 * IDLE_NS_MIN));
        assert!(!usage.begin(40 * IDLE_NS_MIN), "a burst is in progress");
    }
}
