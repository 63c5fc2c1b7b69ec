//! Positions of the readers of a fetch, and how long slow readers delay the others.
//!
//! Content that is not stored is buffered only up to a window, beyond which the writer waits for the slowest reader. A
//! reader is delayed by that from when it has passed on everything that has arrived. Each reader that the writer waits
//! for is charged with this time, and cut off if it has delayed the others for too long.

use flatout_os::random::HashState;
use std::collections::HashMap;

/// Time in milliseconds for which a reader may delay the other readers of its fetch. It may also delay them for a tenth
/// of the time, without limit, because readers are never equally fast.
pub(super) const DELAY_MS_MAX: u64 = 2_000;

/// Time without delay that makes up for a unit of delay, so that a delay for a tenth of the time is free.
const FREE_SHARE: u64 = 9;

#[derive(Debug)]
struct Reader {
    /// Position in bytes: all content before it has been passed on.
    at: u64,
    /// True if the writer waits for this reader.
    blocks: bool,
    /// Delays that this reader has caused and not made up for, in milliseconds times [`FREE_SHARE`].
    debt: u64,
    /// When `debt` was last updated, in milliseconds.
    counted_ms: u64,
}

impl Reader {
    /// Charges the delay from `since_ms` to `now_ms`. Returns whether the reader has delayed others for too long.
    fn charge(&mut self, since_ms: u64, now_ms: u64) -> bool {
        let delay_ms = now_ms.saturating_sub(since_ms);
        let made_up = since_ms.saturating_sub(self.counted_ms);
        self.debt = self.debt.saturating_sub(made_up).saturating_add(delay_ms.saturating_mul(FREE_SHARE));
        self.counted_ms = now_ms;
        self.debt >= DELAY_MS_MAX * FREE_SHARE
    }
}

/// The readers of a fetch.
#[derive(Debug, Default)]
pub(super) struct Readers {
    all: HashMap<u32, Reader, HashState>,
    /// True while the writer waits for slow readers.
    pub(super) holds_back: bool,
    /// The time since which a reader has been delayed by the writer's current wait, in milliseconds.
    delayed_since_ms: Option<u64>,
}

impl Readers {
    /// Adds the reader `id`, which begins at `at`.
    pub(super) fn add(&mut self, id: u32, at: u64) {
        self.all.insert(id, Reader { at, blocks: false, debt: 0, counted_ms: 0 });
    }

    /// Removes the reader `id`. Returns whether it was one.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        self.all.remove(&id).is_some()
    }

    /// Records that the reader `id` has passed on all content before `at`. Returns whether it has moved, or `None` if
    /// it has been cut off.
    pub(super) fn advance(&mut self, id: u32, at: u64) -> Option<bool> {
        let reader = self.all.get_mut(&id)?;
        Some(std::mem::replace(&mut reader.at, at) != at)
    }

    /// Returns the number of readers.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the position of the slowest reader.
    pub(super) fn slowest(&self) -> Option<u64> {
        self.all.values().map(|reader| reader.at).min()
    }

    /// Records that the writer, which has received `bytes` bytes, begins to wait for the readers at or before `limit`.
    pub(super) fn begin_wait(&mut self, limit: u64, bytes: u64, now_ms: u64) {
        for reader in self.all.values_mut() {
            reader.blocks = reader.at <= limit;
        }
        let is_delayed = self.all.values().any(|reader| reader.at >= bytes);
        self.delayed_since_ms = is_delayed.then_some(now_ms);
        self.holds_back = true;
    }

    /// Records, while the writer waits, that the reader `id` has passed on everything that has arrived.
    pub(super) fn set_delayed(&mut self, id: u32, now_ms: u64) {
        let since_ms = *self.delayed_since_ms.get_or_insert(now_ms);
        if let Some(reader) = self.all.get_mut(&id).filter(|reader| reader.blocks) {
            // It has caught up, but has delayed those that did so earlier.
            reader.charge(since_ms, now_ms);
            reader.blocks = false;
        }
    }

    /// Ends the wait. Removes the readers that have delayed others for too long, and returns their positions.
    pub(super) fn end_wait(&mut self, now_ms: u64) -> Vec<u64> {
        self.holds_back = false;
        let Some(since_ms) = self.delayed_since_ms.take() else { return Vec::new() };
        let is_cut = |_: &u32, reader: &mut Reader| reader.blocks && reader.charge(since_ms, now_ms);
        self.all.extract_if(is_cut).map(|(_, reader)| reader.at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{DELAY_MS_MAX, Readers};

    const FAST: u32 = 1;
    const SLOW: u32 = 2;
    const MIDDLE: u32 = 3;
    /// The time at which the first wait begins.
    const START_MS: u64 = 1_000_000;

    /// Readers, all at the beginning.
    fn readers(ids: &[u32]) -> Readers {
        let mut readers = Readers::default();
        for id in ids {
            readers.add(*id, 0);
        }
        readers
    }

    #[test]
    fn a_paused_reader_is_cut_off_once_it_has_delayed_another_for_too_long() {
        let mut readers = readers(&[FAST, SLOW]);
        readers.begin_wait(0, 10, START_MS);
        // The fast reader needs a minute for what has arrived, and is not delayed until then.
        let delayed_ms = START_MS + 60_000;
        assert_eq!(readers.advance(FAST, 10), Some(true));
        readers.set_delayed(FAST, delayed_ms);
        assert!(readers.end_wait(delayed_ms + DELAY_MS_MAX - 1).is_empty());
        readers.begin_wait(0, 10, delayed_ms + DELAY_MS_MAX - 1);
        assert_eq!(readers.end_wait(delayed_ms + DELAY_MS_MAX), [0]);
        assert_eq!((readers.advance(SLOW, 5), readers.remove(SLOW), readers.count()), (None, false, 1));
        assert_eq!((readers.advance(FAST, 10), readers.slowest()), (Some(false), Some(10)));
    }

    #[test]
    fn no_reader_is_cut_off_for_delaying_nobody() {
        let mut alone = readers(&[SLOW]);
        alone.begin_wait(0, 10, START_MS);
        assert!(alone.end_wait(u64::MAX).is_empty());
        // Both are slow. The one that happens to be ahead is not waiting for content.
        let mut both = readers(&[SLOW, MIDDLE]);
        assert_eq!(both.advance(MIDDLE, 9), Some(true));
        both.begin_wait(9, 10, START_MS);
        assert!(both.end_wait(u64::MAX).is_empty());
        assert_eq!(both.count(), 2);
    }

    #[test]
    fn a_reader_that_has_caught_up_is_charged_only_until_then() {
        let mut readers = readers(&[FAST, MIDDLE, SLOW]);
        readers.begin_wait(9, 10, START_MS);
        for (id, after_ms) in [(FAST, 1), (MIDDLE, 2)] {
            assert_eq!(readers.advance(id, 10), Some(true));
            readers.set_delayed(id, START_MS + after_ms);
        }
        assert_eq!(readers.end_wait(START_MS + 1 + DELAY_MS_MAX), [0]);
        let debts: Vec<_> = [FAST, MIDDLE].iter().map(|id| readers.all[id].debt).collect();
        assert_eq!(debts, [0, super::FREE_SHARE]);
    }

    /// Returns the number of rounds of 100 ms after which the slow reader is cut off if it delays the fast one for
    /// `delay_ms` in each of them.
    fn rounds_until_cut(delay_ms: u64) -> Option<u64> {
        let mut readers = readers(&[FAST, SLOW]);
        (1..=10_000).find(|round| {
            let (begun_ms, bytes) = (START_MS + 100 * round, 10 * round);
            readers.begin_wait(bytes - 10, bytes, begun_ms);
            assert!(readers.advance(FAST, bytes).is_some());
            readers.set_delayed(FAST, begun_ms);
            assert!(readers.advance(SLOW, bytes - 10).is_some());
            !readers.end_wait(begun_ms + delay_ms).is_empty()
        })
    }

    #[test]
    fn a_slightly_slower_reader_is_never_cut_off() {
        assert_eq!((rounds_until_cut(0), rounds_until_cut(10)), (None, None));
        // Twice as much: half of each delay is free.
        let rounds = rounds_until_cut(20).unwrap();
        assert!((170..=190).contains(&rounds), "{rounds}");
        // The other one gets almost nothing.
        assert_eq!(rounds_until_cut(100), Some(DELAY_MS_MAX / 100));
    }
}
