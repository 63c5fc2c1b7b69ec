//! Positions of the readers of a fetch, and how long slow readers delay the others.
//!
//! Content that is not stored is buffered only up to a window, beyond which the writer waits for the slowest reader. A
//! reader is delayed by that from when it has passed on everything that has arrived. Readers are never equally fast, so
//! one that goes on reading may delay the others without limit. One that has paused is cut off: each reader has an
//! allowance, of which the delays that it causes take [`PACE_BYTES_PER_MS`], and to which it adds the bytes that it
//! takes while the writer waits for it.

use flatout_os::random::HashState;
use std::collections::HashMap;

/// Minimum pace in bytes per millisecond at which a reader may delay the others without limit: 64 kB/s.
const PACE_BYTES_PER_MS: u64 = 64;

/// Time in milliseconds for which a reader that takes nothing may delay the others. Positions are those of whole
/// segments, and the kernel buffers more, so that at the minimum pace a reader seems to pause for up to three seconds.
pub(super) const PAUSE_MS_MAX: u64 = 4_000;

/// The same after the reader has taken content in the meantime: the pace is averaged over this time.
const PAUSE_LATER_MS_MAX: u64 = 10_000;

#[derive(Debug)]
struct Reader {
    /// Position in bytes: all content before it has been passed on.
    at: u64,
    /// True if the writer waits for this reader, or its last wait was for this reader.
    blocks: bool,
    /// Bytes by which the reader may still fall short of the minimum pace while it delays others.
    allowance: u64,
}

impl Reader {
    /// Charges a delay of `delay_ms`. Returns whether the allowance is used up.
    fn charge(&mut self, delay_ms: u64) -> bool {
        self.allowance = self.allowance.saturating_sub(delay_ms.saturating_mul(PACE_BYTES_PER_MS));
        self.allowance == 0
    }

    /// Moves to the position `at`.
    fn advance(&mut self, at: u64) {
        if self.blocks {
            let taken = at.saturating_sub(self.at);
            self.allowance = self.allowance.saturating_add(taken).min(PAUSE_LATER_MS_MAX * PACE_BYTES_PER_MS);
        }
        self.at = at;
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
    /// Adds the reader `id` at the beginning of the content.
    pub(super) fn add(&mut self, id: u32) {
        self.all.insert(id, Reader { at: 0, blocks: false, allowance: PAUSE_MS_MAX * PACE_BYTES_PER_MS });
    }

    /// Moves the reader `id`, which needs no content before `at`, to that position.
    pub(super) fn skip_to(&mut self, id: u32, at: u64) {
        if let Some(reader) = self.all.get_mut(&id) {
            reader.at = at;
        }
    }

    /// Removes the reader `id`. Returns false if it has been cut off.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        self.all.remove(&id).is_some()
    }

    /// Records that the reader `id` has passed on all content before `at`. Returns whether it has moved, or `None` if
    /// it has been cut off.
    pub(super) fn advance(&mut self, id: u32, at: u64) -> Option<bool> {
        let reader = self.all.get_mut(&id)?;
        let has_moved = reader.at != at;
        reader.advance(at);
        Some(has_moved)
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
            reader.charge(now_ms.saturating_sub(since_ms));
            reader.blocks = false;
        }
    }

    /// Ends the wait. Removes the readers that have used up their allowance, and returns their positions.
    pub(super) fn end_wait(&mut self, now_ms: u64) -> Vec<u64> {
        self.holds_back = false;
        let Some(since_ms) = self.delayed_since_ms.take() else { return Vec::new() };
        let delay_ms = now_ms.saturating_sub(since_ms);
        let is_cut = |_: &u32, reader: &mut Reader| reader.blocks && reader.charge(delay_ms);
        self.all.extract_if(is_cut).map(|(_, reader)| reader.at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{PACE_BYTES_PER_MS, PAUSE_LATER_MS_MAX, PAUSE_MS_MAX, Readers};

    const FAST: u32 = 1;
    const SLOW: u32 = 2;
    const MIDDLE: u32 = 3;
    /// The time at which the first wait begins.
    const START_MS: u64 = 1_000_000;

    /// Readers, all at the beginning.
    fn readers(ids: &[u32]) -> Readers {
        let mut readers = Readers::default();
        for id in ids {
            readers.add(*id);
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
        assert!(readers.end_wait(delayed_ms + PAUSE_MS_MAX - 1).is_empty());
        readers.begin_wait(0, 10, delayed_ms + PAUSE_MS_MAX - 1);
        assert_eq!(readers.end_wait(delayed_ms + PAUSE_MS_MAX), [0]);
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
        assert_eq!(readers.end_wait(START_MS + 1 + PAUSE_MS_MAX), [0]);
        let allowances: Vec<_> = [FAST, MIDDLE].iter().map(|id| readers.all[id].allowance).collect();
        let full = PAUSE_MS_MAX * PACE_BYTES_PER_MS;
        assert_eq!(allowances, [full + 10, full + 10 - PACE_BYTES_PER_MS]);
    }

    /// Takes `step` bytes every `step_ms`, beside a reader that has always passed on everything and waits for more.
    /// Returns for how long that may go on, in milliseconds, if not for an hour.
    fn ms_until_cut(step: u64, step_ms: u64) -> Option<u64> {
        let mut readers = readers(&[FAST, SLOW]);
        readers.skip_to(FAST, u64::MAX);
        (1..=3_600_000 / step_ms).map(|round| round * step_ms).find(|passed_ms| {
            let at = readers.slowest().unwrap();
            readers.begin_wait(at, u64::MAX, START_MS + passed_ms - step_ms);
            let is_cut = !readers.end_wait(START_MS + passed_ms).is_empty();
            is_cut || readers.advance(SLOW, at + step).is_none()
        })
    }

    #[test]
    fn a_reader_that_goes_on_reading_is_never_cut_off() {
        // Nearly all of the time, the other reader waits for this one: 1 Gbit/s beside 50 Mbit/s, and beside 64 kB/s.
        assert_eq!(ms_until_cut(128 * 1024, 20), None);
        assert_eq!(ms_until_cut(192 * 1024, 3_000), None);
        // Below the minimum pace, or a byte a second.
        let half = ms_until_cut(PACE_BYTES_PER_MS / 2 * 1_000, 1_000);
        assert!(half.is_some_and(|after_ms| (7_000..=8_000).contains(&after_ms)), "{half:?}");
        assert_eq!(ms_until_cut(1, 1_000), Some(PAUSE_MS_MAX + 1_000));
    }

    /// However much it has taken.
    #[test]
    fn a_reader_that_pauses_later_is_cut_off() {
        let mut readers = readers(&[FAST, SLOW]);
        readers.skip_to(FAST, u64::MAX);
        readers.begin_wait(0, u64::MAX, START_MS);
        assert_eq!(readers.advance(SLOW, 1 << 30), Some(true));
        assert!(readers.end_wait(START_MS).is_empty());
        readers.begin_wait(1 << 30, u64::MAX, START_MS);
        assert!(readers.end_wait(START_MS + PAUSE_LATER_MS_MAX - 1).is_empty());
        readers.begin_wait(1 << 30, u64::MAX, START_MS);
        assert_eq!(readers.end_wait(START_MS + 1), [1 << 30]);
    }
}
