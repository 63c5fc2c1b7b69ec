//! The receive window of a connection, and its share of the worker's budget.
//!
//! QUIC cannot revoke credit that a client has received. After a window shrinks, the client therefore has credit beyond
//! it, which counts against the budget until the client has used it up. If the length of a request is known, the window
//! shrinks before the request ends, as soon as the credit covers the rest of the content. When the request ends, the
//! client has about the initial window, and the connection has returned its share except for less than one read.

use super::receiving::READ_BYTES;
use super::settings::{CONNECTION_WINDOW_MAX, CONNECTION_WINDOW_MIN, WINDOW_CONTENT_BYTES};
use flatout_net::windows::{WindowBudget, WindowGrant};
use std::rc::Rc;

/// The receive window, and the client's credit beyond it.
pub(super) struct ReceiveCredit {
    grant: WindowGrant,
    window: u32,
    /// Maximum credit that the client has beyond the window. QUIC extends no credit before this many bytes were read.
    excess_bytes: u64,
    /// Number of bytes read from QUIC that were not delivered yet.
    undelivered_bytes: u64,
}

impl ReceiveCredit {
    /// Creates the initial window, which takes nothing from `budget`.
    pub(super) fn new(budget: &Rc<WindowBudget>) -> Self {
        let grant = WindowGrant::new(budget);
        Self { grant, window: CONNECTION_WINDOW_MIN, excess_bytes: 0, undelivered_bytes: 0 }
    }

    /// Handles content of a request of which `before` bytes were delivered earlier and `bytes` now. `left` is the
    /// number of bytes that follow, or `None` if that is unknown or other requests share the window. Returns new
    /// windows for QUIC, to be set one after the other.
    pub(super) fn handle_delivered(&mut self, before: u64, bytes: u64, left: Option<u64>) -> [Option<u32>; 2] {
        let doublings = |bytes: u64| (bytes / WINDOW_CONTENT_BYTES).checked_ilog2();
        let room = self.extra_bytes();
        let unread = left.map(|left| left.saturating_sub(self.undelivered_bytes));
        // The content of one read must be covered by the credit at the end.
        if unread.is_some_and(|unread| unread <= room + READ_BYTES as u64) && self.window > CONNECTION_WINDOW_MIN {
            return [self.shrink(), None];
        }
        if doublings(before + bytes) == doublings(before) || self.window == CONNECTION_WINDOW_MAX {
            return [None; 2];
        }
        let more = u64::from(CONNECTION_WINDOW_MAX - self.window);
        let wanted = unread.map_or(more, |unread| more.min(unread.saturating_sub(room)));
        let granted = self.grant.grow_to(room + wanted).saturating_sub(room).min(wanted);
        if granted == 0 {
            return [None; 2];
        }
        self.window += granted as u32;
        // The window covers all that the request still needs, so no further credit follows.
        [Some(self.window), if wanted < more { self.shrink() } else { None }]
    }

    /// Handles `bytes` read from QUIC, by which the client has used its credit.
    pub(super) fn handle_read(&mut self, bytes: u64) {
        self.undelivered_bytes = bytes;
        if self.excess_bytes > 0 {
            self.excess_bytes = self.excess_bytes.saturating_sub(bytes);
            self.grant.shrink_to(self.extra_bytes());
        }
    }

    /// Called when `bytes` of those read are being delivered.
    pub(super) fn begin_delivery(&mut self, bytes: usize) {
        self.undelivered_bytes = self.undelivered_bytes.saturating_sub(bytes as u64);
    }

    /// Reduces the window to the initial size. Returns the new size for QUIC if the window was larger.
    pub(super) fn shrink(&mut self) -> Option<u32> {
        self.excess_bytes = self.extra_bytes();
        let is_larger = std::mem::replace(&mut self.window, CONNECTION_WINDOW_MIN) > CONNECTION_WINDOW_MIN;
        is_larger.then_some(CONNECTION_WINDOW_MIN)
    }

    /// Returns the credit beyond the initial window.
    fn extra_bytes(&self) -> u64 {
        u64::from(self.window - CONNECTION_WINDOW_MIN) + self.excess_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{CONNECTION_WINDOW_MAX, CONNECTION_WINDOW_MIN, READ_BYTES, ReceiveCredit, WINDOW_CONTENT_BYTES};
    use flatout_net::windows::WindowBudget;
    use flatout_os::counter::Counter;
    use std::sync::Arc;

    const GROWTH: u64 = (CONNECTION_WINDOW_MAX - CONNECTION_WINDOW_MIN) as u64;

    fn credit(budget_bytes: u64) -> (ReceiveCredit, Arc<Counter>) {
        let granted = Arc::new(Counter::default());
        (ReceiveCredit::new(&WindowBudget::shown_in(budget_bytes, Arc::clone(&granted))), granted)
    }

    /// Reads and delivers a request of `length` bytes, in reads of up to `read_bytes`. Returns the windows.
    fn receive(credit: &mut ReceiveCredit, length: u64, read_bytes: u64, is_known: bool) -> Vec<u32> {
        let (mut windows, mut delivered) = (Vec::new(), 0);
        while delivered < length {
            let mut unread = read_bytes.min(length - delivered);
            credit.handle_read(unread);
            while unread > 0 {
                let bytes = unread.min(1400);
                credit.begin_delivery(bytes as usize);
                let left = is_known.then_some(length - delivered - bytes);
                windows.extend(credit.handle_delivered(delivered, bytes, left).into_iter().flatten());
                (delivered, unread) = (delivered + bytes, unread - bytes);
            }
        }
        windows
    }

    #[test]
    fn the_end_of_a_request_of_known_length_returns_its_share() {
        for read_bytes in [1400, 10_000, READ_BYTES as u64] {
            let (mut credit, granted) = credit(64 << 20);
            assert_eq!(
                receive(&mut credit, 1 << 20, read_bytes, true),
                [CONNECTION_WINDOW_MAX, CONNECTION_WINDOW_MIN],
                "{read_bytes}"
            );
            assert_eq!((granted.get(), credit.shrink()), (0, None), "{read_bytes}");
        }
    }

    #[test]
    fn a_short_request_takes_what_it_needs() {
        for read_bytes in [1400, 10_000, READ_BYTES as u64] {
            let (mut credit, granted) = credit(64 << 20);
            let windows = receive(&mut credit, 200_000, read_bytes, true);
            assert!(windows[0] < CONNECTION_WINDOW_MIN + 200_000, "{windows:?}");
            assert_eq!((windows[1], windows.len(), granted.get()), (CONNECTION_WINDOW_MIN, 2, 0), "{read_bytes}");
            assert_eq!(receive(&mut credit, WINDOW_CONTENT_BYTES - 1, read_bytes, true), []);
        }
    }

    #[test]
    fn unused_credit_counts_until_it_is_used() {
        let (mut credit, granted) = credit(64 << 20);
        assert_eq!(receive(&mut credit, 100_000, 1400, false), [CONNECTION_WINDOW_MAX]);
        assert_eq!((credit.shrink(), granted.get()), (Some(CONNECTION_WINDOW_MIN), GROWTH));
        credit.handle_read(GROWTH - 1000);
        assert_eq!(granted.get(), 1000);
        // The window grows by the same amount again, in addition to the credit that the client still has.
        assert_eq!(credit.handle_delivered(0, WINDOW_CONTENT_BYTES, None), [Some(CONNECTION_WINDOW_MAX), None]);
        assert_eq!(granted.get(), GROWTH + 1000);
        assert_eq!(credit.shrink(), Some(CONNECTION_WINDOW_MIN));
        credit.handle_read(GROWTH + 1000);
        assert_eq!((granted.get(), credit.shrink()), (0, None));
    }

    #[test]
    fn an_empty_budget_leaves_the_window_as_it_is() {
        let (mut credit, granted) = credit(0);
        assert_eq!(receive(&mut credit, 1 << 20, 1400, true), []);
        assert_eq!((credit.shrink(), granted.get()), (None, 0));
    }
}
