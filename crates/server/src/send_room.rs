//! A larger send buffer in the kernel for a large response to a client that reads fast.
//!
//! The kernel buffers little for each client ([`NOT_SENT_BYTES_MAX`](flatout_os::socket::NOT_SENT_BYTES_MAX)), because
//! clients that do not read would otherwise pin memory. But the less it buffers, the more often a fast client waits for
//! the next write, and each write costs CPU time. A client that has just proved to be fast therefore gets more room,
//! from a budget that all clients of the worker share. Clients that stop reading afterwards can use up the budget, but
//! not exceed it.

use flatout_net::windows::{WindowBudget, WindowGrant};
use flatout_os::socket::{not_sent_bytes_max, set_not_sent_bytes_max};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// The least room that is worth two system calls, in bytes.
const ROOM_BYTES_MIN: u32 = 256 << 10;

/// A client is fast if it takes this many bytes within the time of its [`RoomRule`].
const FAST_BYTES: u64 = 1 << 20;

/// How fast a client must be, and the room that it then has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RoomRule {
    /// The room, in bytes.
    room_bytes: u32,
    /// Upper bound of the time for [`FAST_BYTES`], in nanoseconds.
    fast_ns: u64,
    /// True if a client that becomes slower loses the room before the end of the response.
    follows: bool,
}

impl RoomRule {
    /// HTTP/1.1: a response delays no other. At least 80 Mbit/s; the kernel's default send buffer does not grow beyond
    /// this room.
    pub(crate) const HTTP1: Self = Self { room_bytes: 4 << 20, fast_ns: 100_000_000, follows: false };

    /// HTTP/2: a client that takes 1 MiB within 10 ms takes this room within 2.5 ms.
    pub(crate) const HTTP2: Self = Self { room_bytes: 256 << 10, fast_ns: 10_000_000, follows: true };
}

/// Measures how fast a client accepts a response, and holds the room that it has been granted.
#[derive(Debug)]
pub(crate) struct SendRoom {
    rule: &'static RoomRule,
    /// Bytes taken since `since_ns`, on the precise clock.
    taken_bytes: u64,
    since_ns: u64,
    raised: Option<Raised>,
}

/// A bound that was raised.
#[derive(Debug)]
struct Raised {
    /// The part of the budget, returned when this is dropped.
    _grant: WindowGrant,
    /// The bound that the connection had before, in bytes.
    before: u32,
    /// The bound is restored, but the kernel may still hold more: it has taken nothing since.
    is_restored: bool,
}

impl SendRoom {
    /// For a response whose first bytes were sent at `now_ns`.
    pub(crate) const fn new(rule: &'static RoomRule, now_ns: u64) -> Self {
        Self { rule, taken_bytes: 0, since_ns: now_ns, raised: None }
    }

    /// Records that the kernel took `bytes` of a response of which more follows. Raises the bound of a fast client as
    /// far as the budget permits, and restores it if the rule says so and the client has become slower. `now_ns` is
    /// read once per [`FAST_BYTES`], or, if a slower client loses its room, for every call while it has any.
    pub(crate) fn handle_taken(
        &mut self,
        fd: BorrowedFd<'_>,
        budget: &Rc<WindowBudget>,
        bytes: u64,
        now_ns: impl FnOnce() -> u64,
    ) {
        if bytes > 0 && self.raised.as_ref().is_some_and(|raised| raised.is_restored) {
            // The kernel takes more only when it holds less than the bound.
            self.raised = None;
        }
        self.taken_bytes += bytes;
        let is_watched = self.raised.as_ref().is_some_and(|raised| self.rule.follows && !raised.is_restored);
        if self.taken_bytes < FAST_BYTES && !is_watched {
            return;
        }
        let now_ns = now_ns();
        let is_fast = now_ns.saturating_sub(self.since_ns) <= self.rule.fast_ns;
        if self.taken_bytes >= FAST_BYTES {
            (self.taken_bytes, self.since_ns) = (0, now_ns);
            if is_fast && self.raised.is_none() {
                self.raise(fd, budget);
            }
        }
        if !is_fast && is_watched {
            self.restore(fd);
            (self.taken_bytes, self.since_ns) = (0, now_ns);
        }
    }

    fn raise(&mut self, fd: BorrowedFd<'_>, budget: &Rc<WindowBudget>) {
        let Ok(before) = not_sent_bytes_max(fd) else { return };
        if before >= ROOM_BYTES_MIN {
            return;
        }
        let grant = WindowGrant::new(budget);
        let wanted = self.rule.room_bytes;
        let granted = u32::try_from(grant.grow_to(wanted.into())).unwrap_or(wanted);
        if granted >= ROOM_BYTES_MIN && set_not_sent_bytes_max(fd, granted).is_ok() {
            self.raised = Some(Raised { _grant: grant, before, is_restored: false });
        }
    }

    fn restore(&mut self, fd: BorrowedFd<'_>) {
        if let Some(raised) = &mut self.raised
            && !std::mem::replace(&mut raised.is_restored, true)
        {
            // If the connection has failed, it no longer matters.
            let _ = set_not_sent_bytes_max(fd, raised.before);
        }
    }

    /// Restores the limit at the end of the response.
    pub(crate) fn lower(&mut self, fd: BorrowedFd<'_>) {
        self.restore(fd);
        self.raised = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SEND_BUFFER_BYTES_MAX;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    use std::os::fd::{AsFd, OwnedFd};

    const USUAL_BYTES: u32 = 64 << 10;

    /// The size of a write.
    const PIECE_BYTES: u64 = 64 << 10;

    const MS: u64 = 1_000_000;

    /// A socket, the worker's budget, and the response on it.
    struct Fixture {
        socket: OwnedFd,
        budget: Rc<WindowBudget>,
        room: SendRoom,
    }

    impl Fixture {
        fn new(rule: &'static RoomRule, budget_bytes: u64) -> Self {
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            set_not_sent_bytes_max(socket.as_fd(), USUAL_BYTES).unwrap();
            Self { socket, budget: WindowBudget::new(budget_bytes), room: SendRoom::new(rule, 0) }
        }

        /// The kernel takes `bytes` at `now_ns`.
        fn take(&mut self, bytes: u64, now_ns: u64) {
            self.room.handle_taken(self.socket.as_fd(), &self.budget, bytes, || now_ns);
        }

        fn bound(&self) -> u32 {
            not_sent_bytes_max(self.socket.as_fd()).unwrap()
        }

        /// Returns whether the whole budget is there.
        fn is_budget_whole(&self, bytes: u64) -> bool {
            WindowGrant::new(&self.budget).grow_to(bytes) == bytes / 2
        }
    }

    #[test]
    fn a_client_is_fast_if_it_takes_a_mebibyte_in_the_time_of_its_rule() {
        for rule in [&RoomRule::HTTP1, &RoomRule::HTTP2] {
            for (late_ns, bound) in [(0, rule.room_bytes), (1, USUAL_BYTES)] {
                let mut fixture = Fixture::new(rule, SEND_BUFFER_BYTES_MAX);
                for _ in 0..15 {
                    let fd = fixture.socket.as_fd();
                    let clock = || unreachable!("the clock is read once per mebibyte");
                    fixture.room.handle_taken(fd, &fixture.budget, PIECE_BYTES, clock);
                }
                fixture.take(PIECE_BYTES, rule.fast_ns + late_ns);
                assert_eq!(fixture.bound(), bound, "{rule:?}");
                // A client that was slow can become fast.
                fixture.take(FAST_BYTES, 2 * rule.fast_ns + late_ns);
                assert_eq!(fixture.bound(), rule.room_bytes, "{rule:?}");
            }
        }
    }

    #[test]
    fn a_fast_client_has_room_until_its_response_ends() {
        for rule in [&RoomRule::HTTP1, &RoomRule::HTTP2] {
            let budget_bytes = 2 * u64::from(rule.room_bytes);
            let mut fixture = Fixture::new(rule, budget_bytes);
            fixture.take(FAST_BYTES, rule.fast_ns);
            assert_eq!(fixture.bound(), rule.room_bytes);
            assert!(!fixture.is_budget_whole(budget_bytes));
            fixture.room.lower(fixture.socket.as_fd());
            assert_eq!(fixture.bound(), USUAL_BYTES);
            assert!(fixture.is_budget_whole(budget_bytes));
            fixture.take(FAST_BYTES, 2 * rule.fast_ns);
            assert_eq!(fixture.bound(), rule.room_bytes);
        }
    }

    #[test]
    fn an_http2_client_that_becomes_slower_loses_its_room() {
        let budget_bytes = 2 * u64::from(RoomRule::HTTP2.room_bytes);
        let mut fixture = Fixture::new(&RoomRule::HTTP2, budget_bytes);
        fixture.take(FAST_BYTES, 5 * MS);
        fixture.take(FAST_BYTES / 2, 10 * MS);
        fixture.take(FAST_BYTES / 2, 15 * MS);
        assert_eq!(fixture.bound(), RoomRule::HTTP2.room_bytes, "it takes 1 MiB in 10 ms");
        fixture.take(PIECE_BYTES, 25 * MS);
        assert_eq!(fixture.bound(), RoomRule::HTTP2.room_bytes, "the time is not over");
        fixture.take(PIECE_BYTES, 25 * MS + 1);
        assert_eq!(fixture.bound(), USUAL_BYTES);
        // The kernel still holds what it took.
        fixture.take(0, 28 * MS);
        assert!(!fixture.is_budget_whole(budget_bytes));
        fixture.take(PIECE_BYTES, 30 * MS);
        assert!(fixture.is_budget_whole(budget_bytes));
        // Fast again: 1 MiB since it lost its room.
        fixture.take(FAST_BYTES - PIECE_BYTES, 25 * MS + 1 + RoomRule::HTTP2.fast_ns);
        assert_eq!(fixture.bound(), RoomRule::HTTP2.room_bytes);
    }

    #[test]
    fn an_http1_client_that_becomes_slower_has_its_room_until_the_response_ends() {
        let mut fixture = Fixture::new(&RoomRule::HTTP1, SEND_BUFFER_BYTES_MAX);
        fixture.take(FAST_BYTES, RoomRule::HTTP1.fast_ns);
        fixture.take(FAST_BYTES, 10 * RoomRule::HTTP1.fast_ns);
        assert_eq!(fixture.bound(), RoomRule::HTTP1.room_bytes);
    }

    /// The sentence about HTTP/2 in the module's documentation.
    #[test]
    fn a_client_with_http2_room_takes_it_in_three_milliseconds() {
        let RoomRule { room_bytes, fast_ns, .. } = RoomRule::HTTP2;
        assert!(fast_ns * u64::from(room_bytes) / FAST_BYTES <= 3 * MS);
    }

    #[test]
    fn without_budget_nobody_has_more_room() {
        for rule in [&RoomRule::HTTP1, &RoomRule::HTTP2] {
            let mut fixture = Fixture::new(rule, u64::from(ROOM_BYTES_MIN));
            fixture.take(FAST_BYTES, rule.fast_ns);
            assert_eq!(fixture.bound(), USUAL_BYTES);
        }
    }

    #[test]
    fn a_connection_without_a_bound_is_left_alone() {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let fd = socket.as_fd();
        let mut room = SendRoom::new(&RoomRule::HTTP1, 0);
        room.handle_taken(fd, &WindowBudget::new(SEND_BUFFER_BYTES_MAX), FAST_BYTES, || 1);
        assert!(room.raised.is_none() && not_sent_bytes_max(fd).unwrap() > RoomRule::HTTP1.room_bytes);
    }
}
