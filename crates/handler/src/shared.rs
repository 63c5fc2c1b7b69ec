//! Bytes shared by a cache and its responses. They are sliced without copying, and their references are counted without
//! atomic operations if only one worker uses them.

use crate::budget::{Budget, BudgetUser, Held};
use flatout_os::file::Guard;
use std::ops::{Deref, Range};
use std::rc::Rc;
use std::sync::Arc;

/// A slice of immutable bytes.
#[derive(Clone, derive_more::Debug)]
#[debug("SharedBytes({} bytes)", self.len())]
pub struct SharedBytes {
    bytes: Owner,
    start: usize,
    end: usize,
}

/// The owner of the bytes, which determines how references are counted.
#[derive(Clone)]
enum Owner {
    /// Owned by this worker.
    Worker(Rc<[u8]>),
    /// Owned by this worker, in the buffer in which they were received.
    Received(Rc<Vec<u8>>),
    /// Owned by this worker, and counted in a budget until the last slice is dropped.
    Counted(Rc<Counted>),
    /// Owned by this worker, with a guard that is dropped with the last slice.
    Guarded(Rc<Guarded>),
    /// Shared by all threads.
    Process(Arc<[u8]>),
}

/// Bytes with a guard that is dropped with them.
struct Guarded {
    bytes: Vec<u8>,
    _guard: Guard,
}

/// Bytes counted in a budget.
struct Counted {
    bytes: Vec<u8>,
    _held: Held,
}

impl SharedBytes {
    /// Takes over a buffer without copying it. Spare capacity is not released.
    pub fn from_buffer(buffer: Vec<u8>) -> Self {
        Self { end: buffer.len(), start: 0, bytes: Owner::Received(Rc::new(buffer)) }
    }

    /// Takes over a buffer and counts it among the pieces of `budget` until the last slice is dropped.
    pub fn counted(buffer: Vec<u8>, budget: &Arc<Budget>) -> Self {
        let mut held = Held::new(Arc::clone(budget), BudgetUser::Pieces);
        held.set(buffer.capacity() as u64);
        Self { end: buffer.len(), start: 0, bytes: Owner::Counted(Rc::new(Counted { bytes: buffer, _held: held })) }
    }

    /// Takes over a buffer. `guard` is dropped after the last slice.
    pub fn with_guard(buffer: Vec<u8>, guard: Guard) -> Self {
        Self { end: buffer.len(), start: 0, bytes: Owner::Guarded(Rc::new(Guarded { bytes: buffer, _guard: guard })) }
    }

    /// Refers to a shared buffer, which its owner can reuse once no slice is left.
    pub fn from_shared(buffer: Rc<Vec<u8>>) -> Self {
        Self { end: buffer.len(), start: 0, bytes: Owner::Received(buffer) }
    }

    /// Returns the sub-slice `range` of this slice.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {}", self.len());
        Self { bytes: self.bytes.clone(), start: self.start + range.start, end: self.start + range.end }
    }

    /// Removes the first `count` bytes, or all bytes if there are fewer.
    pub fn advance(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes = match &self.bytes {
            Owner::Worker(bytes) => &bytes[..],
            Owner::Received(bytes) => &bytes[..],
            Owner::Counted(counted) => &counted.bytes[..],
            Owner::Guarded(guarded) => &guarded.bytes[..],
            Owner::Process(bytes) => &bytes[..],
        };
        &bytes[self.start..self.end]
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { end: bytes.len(), start: 0, bytes: Owner::Worker(bytes.into()) }
    }
}

impl From<Arc<[u8]>> for SharedBytes {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self { end: bytes.len(), start: 0, bytes: Owner::Process(bytes) }
    }
}

impl From<&[u8]> for SharedBytes {
    fn from(bytes: &[u8]) -> Self {
        Self { end: bytes.len(), start: 0, bytes: Owner::Worker(bytes.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::SharedBytes;
    use crate::budget::{Budget, BudgetUser};
    use std::sync::Arc;

    #[test]
    fn parts_of_parts() {
        let whole = SharedBytes::from_buffer(b"0123456789".to_vec());
        assert_eq!(&*whole, &*SharedBytes::from(&whole[..]));
        let mut part = whole.slice(2..8).slice(1..4);
        assert_eq!(&*part, b"345");
        part.advance(2);
        assert_eq!(&*part, b"5");
        part.advance(9);
        assert!(part.is_empty());
        assert_eq!(whole.len(), 10);
        assert!(whole.slice(10..10).is_empty());
    }

    #[test]
    fn counted_bytes_are_given_back_with_the_last_part() {
        let budget = Arc::new(Budget::new(100));
        let whole = SharedBytes::counted(b"0123456789".to_vec(), &budget);
        let part = whole.slice(3..5);
        drop(whole);
        assert_eq!((&*part, budget.held(BudgetUser::Pieces)), (&b"34"[..], 10));
        drop(part);
        assert_eq!(budget.held(BudgetUser::Pieces), 0);
    }

    #[test]
    #[should_panic(expected = "of 3")]
    fn a_part_outside_is_a_defect() {
        let _ = SharedBytes::from(&b"abc"[..]).slice(1..4);
    }
}
