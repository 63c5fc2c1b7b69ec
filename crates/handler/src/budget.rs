//! One memory limit for all content: stored responses, responses being fetched, windows between an origin and its
//! readers, pieces waiting to be sent to a client, and copies of request content for retries.
//!
//! In-flight content may displace stored responses until it uses half of the budget. Beyond that, optional memory is
//! refused ([`Budget::try_take`]), while required memory is only counted ([`Budget::take`]): a forwarded response needs
//! at least one piece, so pieces become smaller instead ([`Budget::piece_bytes_max`]).
//!
//! Absent by design: sockets, files and the clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum size of one receive call while memory is available, in bytes.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of one receive call while memory is short, in bytes. Each client then occupies about this much.
pub const SMALL_PIECE_BYTES_MAX: usize = 16 * 1024;

flatout_reason::reasons! {
    /// A use of memory from the budget.
    pub enum BudgetUser { name, }
    /// Stored responses.
    Stored, "stored";
    /// Responses that are being fetched and will be stored.
    Fills, "fills";
    /// Responses that are forwarded to several clients that share one fetch, and will not be stored.
    Windows, "windows";
    /// Pieces received from origins that have not been sent yet.
    Pieces, "pieces";
    /// Content that was removed from the store while clients still read it.
    Released, "released";
    /// Copies of request content sent to an origin, kept for a retry.
    Retries, "retries";
}

/// The memory budget, shared by all threads.
pub struct Budget {
    bytes_max: AtomicU64,
    held: [AtomicU64; BudgetUser::ALL.len()],
}

impl Budget {
    /// Creates a budget of `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max: AtomicU64::new(bytes_max), held: Default::default() }
    }

    /// Returns the size of the budget, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Changes the size of the budget, in bytes. Memory in use is unaffected; further memory is refused until usage is
    /// below the new limit.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Returns the number of bytes held by `share`.
    pub fn held(&self, share: BudgetUser) -> u64 {
        self.of(share).load(Ordering::Relaxed)
    }

    /// Returns the number of bytes held by all users together.
    pub fn held_in_all(&self) -> u64 {
        BudgetUser::ALL.iter().fold(0, |sum: u64, share| sum.saturating_add(self.held(*share)))
    }

    /// Sets the number of bytes held by stored responses, which the store counts.
    pub fn set_stored(&self, bytes: u64) {
        self.of(BudgetUser::Stored).store(bytes, Ordering::Relaxed);
    }

    /// Returns how many bytes stored responses may occupy now: what the other users leave, and at least half of the
    /// budget.
    pub fn stored_bytes_max(&self) -> u64 {
        let bytes_max = self.bytes_max();
        bytes_max - self.moving().min(bytes_max / 2)
    }

    /// Returns whether stored responses must be evicted.
    pub fn is_over(&self) -> bool {
        self.held(BudgetUser::Stored) > self.stored_bytes_max()
    }

    /// Returns whether [`Self::try_take`] would grant `bytes`.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.moving().saturating_add(bytes) <= self.bytes_max() / 2
    }

    /// Takes `bytes`, unless the users other than stored responses would then exceed half of the budget. Returns
    /// whether the bytes were taken.
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

    /// Returns `bytes` taken earlier to the budget.
    pub fn give_back(&self, share: BudgetUser, bytes: u64) {
        self.of(share).fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the maximum size of one receive call for a forwarded response, in bytes.
    pub fn piece_bytes_max(&self) -> usize {
        if self.is_short() { SMALL_PIECE_BYTES_MAX } else { PIECE_BYTES_MAX }
    }

    /// Returns whether the users other than stored responses hold more than a quarter of the budget.
    pub fn is_short(&self) -> bool {
        self.moving() > self.bytes_max() / 4
    }

    /// Returns the number of bytes held by the users other than stored responses.
    fn moving(&self) -> u64 {
        BudgetUser::ALL[1..].iter().fold(0, |sum: u64, share| sum.saturating_add(self.held(*share)))
    }

    const fn of(&self, share: BudgetUser) -> &AtomicU64 {
        &self.held[share as usize]
    }
}

impl Default for Budget {
    /// Creates an unlimited budget.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Budget");
        shown.field("bytes_max", &self.bytes_max());
        for &share in BudgetUser::ALL {
            shown.field(share.name(), &self.held(share));
        }
        shown.finish()
    }
}

/// Bytes taken from a budget. Dropping this returns them.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    share: BudgetUser,
    bytes: u64,
}

impl Held {
    /// Creates a reservation of 0 bytes for `share`.
    pub const fn new(budget: Arc<Budget>, share: BudgetUser) -> Self {
        Self { budget, share, bytes: 0 }
    }

    /// Returns the budget that the bytes are taken from.
    pub const fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Returns the number of reserved bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves `bytes` more if the budget grants them. Returns whether it did.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let granted = self.budget.try_take(self.share, bytes);
        if granted {
            self.bytes += bytes;
        }
        granted
    }

    /// Sets the reservation to exactly `bytes`, even if the budget would not grant them.
    pub fn set(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.budget.take(self.share, bytes - self.bytes);
        } else {
            self.budget.give_back(self.share, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Transfers the reservation to another user of the budget.
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
    fn content_in_flight_gets_half_and_evicts_stored_responses() {
        let budget = Budget::new(1000);
        budget.set_stored(900);
        assert!(budget.try_take(BudgetUser::Fills, 300) && budget.is_over());
        assert_eq!(budget.stored_bytes_max(), 700);
        assert!(budget.try_take(BudgetUser::Windows, 200));
        assert!(!budget.try_take(BudgetUser::Fills, 1) && !budget.has_room(1) && budget.has_room(0));
        assert_eq!((budget.held(BudgetUser::Fills), budget.held_in_all()), (300, 1400));
        // Memory that must always be counted never displaces more than half of the budget from stored responses.
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
    fn reservations_are_released() {
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
