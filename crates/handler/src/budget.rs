//! One memory limit for all content: stored responses, responses being fetched, windows between an origin and its
//! readers, and pieces that wait to be sent to a client.
//!
//! In-flight content may evict stored responses until it uses half of the budget. Beyond that, optional memory is refused
//! ([`Budget::try_take`]) and required memory is only counted ([`Budget::take`]): a forwarded response needs at least one
//! piece, so pieces become small ([`Budget::piece_bytes_max`]).
//!
//! Absent by design: sockets, files, the clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bound of one receive while memory is available, in bytes.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Upper bound of one receive while memory is short, in bytes. Each client then holds about this much.
pub const SMALL_PIECE_BYTES_MAX: usize = 16 * 1024;

/// The users of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetUser {
    /// Stored responses.
    Stored,
    /// Responses that are being fetched and will be stored.
    Fills,
    /// Responses that are forwarded to readers who have joined one fetch, and will not be stored.
    Windows,
    /// Pieces received from origins that have not been sent.
    Pieces,
    /// Content that has left the store while clients still read it.
    Released,
}

impl BudgetUser {
    /// All shares.
    pub const ALL: [Self; 5] = [Self::Stored, Self::Fills, Self::Windows, Self::Pieces, Self::Released];

    /// The name in `status` and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Fills => "fills",
            Self::Windows => "windows",
            Self::Pieces => "pieces",
            Self::Released => "released",
        }
    }
}

/// The budget, shared by all threads.
pub struct Budget {
    bytes_max: AtomicU64,
    held: [AtomicU64; BudgetUser::ALL.len()],
}

impl Budget {
    /// A budget of `bytes_max`.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max: AtomicU64::new(bytes_max), held: Default::default() }
    }

    /// The bound, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Changes the bound, in bytes. Memory in use stays; less is granted until usage falls below the bound.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Bytes held by `share`.
    pub fn held(&self, share: BudgetUser) -> u64 {
        self.of(share).load(Ordering::Relaxed)
    }

    /// Bytes held by all shares together.
    pub fn held_in_all(&self) -> u64 {
        BudgetUser::ALL.iter().fold(0, |sum: u64, share| sum.saturating_add(self.held(*share)))
    }

    /// Sets the bytes held by stored responses, as the store counts them.
    pub fn set_stored(&self, bytes: u64) {
        self.of(BudgetUser::Stored).store(bytes, Ordering::Relaxed);
    }

    /// Bytes that stored responses may take now: what the other shares leave, and at least half of the budget.
    pub fn stored_bytes_max(&self) -> u64 {
        let bytes_max = self.bytes_max();
        bytes_max - self.moving().min(bytes_max / 2)
    }

    /// Returns whether stored responses must be evicted.
    pub fn is_over(&self) -> bool {
        self.held(BudgetUser::Stored) > self.stored_bytes_max()
    }

    /// Returns whether `bytes` more would be granted.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.moving().saturating_add(bytes) <= self.bytes_max() / 2
    }

    /// Takes `bytes`, unless the shares other than stored responses would then exceed half of the budget. Returns
    /// whether it did.
    pub fn try_take(&self, share: BudgetUser, bytes: u64) -> bool {
        self.take(share, bytes);
        let fits = self.has_room(0);
        if !fits {
            self.give_back(share, bytes);
        }
        fits
    }

    /// Takes `bytes` unconditionally.
    pub fn take(&self, share: BudgetUser, bytes: u64) {
        self.of(share).fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back `bytes` taken earlier.
    pub fn give_back(&self, share: BudgetUser, bytes: u64) {
        self.of(share).fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Upper bound of one receive for a forwarded response, in bytes.
    pub fn piece_bytes_max(&self) -> usize {
        if self.is_short() { SMALL_PIECE_BYTES_MAX } else { PIECE_BYTES_MAX }
    }

    /// Returns whether the shares other than stored responses hold more than a quarter of the budget.
    pub fn is_short(&self) -> bool {
        self.moving() > self.bytes_max() / 4
    }

    /// Bytes held by the shares other than stored responses.
    fn moving(&self) -> u64 {
        BudgetUser::ALL[1..].iter().fold(0, |sum: u64, share| sum.saturating_add(self.held(*share)))
    }

    const fn of(&self, share: BudgetUser) -> &AtomicU64 {
        &self.held[share as usize]
    }
}

impl Default for Budget {
    /// An unbounded budget.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Budget");
        shown.field("bytes_max", &self.bytes_max());
        for share in BudgetUser::ALL {
            shown.field(share.name(), &self.held(share));
        }
        shown.finish()
    }
}

/// Bytes taken from a budget, given back on drop.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    share: BudgetUser,
    bytes: u64,
}

impl Held {
    /// A reservation of 0 bytes for `share`.
    pub const fn new(budget: Arc<Budget>, share: BudgetUser) -> Self {
        Self { budget, share, bytes: 0 }
    }

    /// The reserved bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` more if the budget grants them. Returns whether it did.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let granted = self.budget.try_take(self.share, bytes);
        if granted {
            self.bytes += bytes;
        }
        granted
    }

    /// Sets the reservation to exactly `bytes`, granted or not.
    pub fn set(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.budget.take(self.share, bytes - self.bytes);
        } else {
            self.budget.give_back(self.share, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Moves the reservation to `share`.
    pub fn move_to(&mut self, share: BudgetUser) {
        self.budget.take(share, self.bytes);
        self.budget.give_back(self.share, self.bytes);
        self.share = share;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give_back(self.share, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, BudgetUser, Held, PIECE_BYTES_MAX, SMALL_PIECE_BYTES_MAX};
    use std::sync::Arc;

    #[test]
    fn what_moves_is_granted_half_and_stored_responses_make_room_for_it() {
        let budget = Budget::new(1000);
        budget.set_stored(900);
        assert!(budget.try_take(BudgetUser::Fills, 300) && budget.is_over());
        assert_eq!(budget.stored_bytes_max(), 700);
        assert!(budget.try_take(BudgetUser::Windows, 200));
        assert!(!budget.try_take(BudgetUser::Fills, 1) && !budget.has_room(1) && budget.has_room(0));
        assert_eq!((budget.held(BudgetUser::Fills), budget.held_in_all()), (300, 1400));
        // What must be counted in any case never takes more than half from what is stored.
        budget.take(BudgetUser::Pieces, 5000);
        assert_eq!(budget.stored_bytes_max(), 500);
        budget.give_back(BudgetUser::Pieces, 5000);
        budget.set_stored(500);
        assert!(!budget.is_over());
        budget.set_bytes_max(800);
        assert!(budget.is_over());
    }

    #[test]
    fn pieces_are_small_once_a_quarter_is_taken() {
        let budget = Budget::new(1000);
        budget.set_stored(1000);
        assert_eq!(budget.piece_bytes_max(), PIECE_BYTES_MAX);
        budget.take(BudgetUser::Pieces, 251);
        assert_eq!(budget.piece_bytes_max(), SMALL_PIECE_BYTES_MAX);
        assert_eq!(Budget::default().piece_bytes_max(), PIECE_BYTES_MAX);
    }

    #[test]
    fn what_is_held_is_given_back() {
        let budget = Arc::new(Budget::new(100));
        let mut held = Held::new(Arc::clone(&budget), BudgetUser::Fills);
        assert!(held.try_grow(50) && !held.try_grow(1));
        held.move_to(BudgetUser::Windows);
        assert_eq!((budget.held(BudgetUser::Fills), budget.held(BudgetUser::Windows)), (0, 50));
        held.set(70);
        held.set(20);
        assert_eq!((held.bytes(), budget.held_in_all()), (20, 20));
        drop(held);
        assert_eq!(budget.held_in_all(), 0);
    }
}
