//! Kinds of requests to an origin, and how long each takes to be answered, alone and among others.
//!
//! A kind is a path, or, as long as nothing is known about the path, its folder. Each kind has a mean delay for each
//! level of concurrency, so that the delays of the *same* kind can be compared: if they grow with the number of
//! requests, the origin is overloaded; if they do not, a long delay is only a request that waits for something, such as
//! a long poll.
//!
//! The table has a fixed size. Its numbers are independent of each other and updated without a lock: a lost update of a
//! mean does not matter. Paths that are requested often displace others.

use super::{SAMPLES_MIN, SLOW_US};
use crate::group::hash_key;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Number of kinds in the table of an origin.
const SLOTS: usize = 128;

/// Number of levels of concurrency. Level n begins at 2^n requests that wait for a response head.
const LEVELS: usize = 14;

/// Number of requests among few, one after another, that must have grown for their kind to take that long alone.
const FEW_GROWN: u32 = 2;

/// Number of samples after which a mean follows new samples by an eighth of the difference.
const SAMPLES_MAX: u32 = 8;

/// Maximum number of misses that a kind in frequent use survives before it is displaced.
const STRENGTH_MAX: u32 = 15;

/// Strength from which a path is named. Each path that is named makes a series in a system that stores metrics, and a
/// path may be secret, such as one that is sent to a person to reset a password.
const NAMED_STRENGTH_MIN: u32 = 4;

/// Maximum length of the path kept to name a kind, in bytes.
const NAME_BYTES_MAX: usize = 80;

/// The path and the folder of a request in the table; `None` if the table has no room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    path: Option<Entry>,
    folder: Option<Entry>,
}

/// An entry of the table. Another path may displace it, and then has another tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    index: u8,
    tag: u32,
}

/// Mean delay of a kind at the lowest level of concurrency at which it has been measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    entry: Entry,
    level: usize,
    /// In microseconds, at least 1.
    mean_us: u32,
}

#[derive(Debug)]
struct Slot {
    /// Upper half of the hash, never 0 in use.
    tag: AtomicU32,
    strength: AtomicU32,
    /// Number of requests of this path that wait for a response head.
    asking: AtomicU32,
    /// Latest time in milliseconds at which a delay had grown with the number of requests; 0 if none ever had.
    grown_ms: AtomicU64,
    /// Number of requests in succession whose delays had grown although they were among few.
    few_grown: AtomicU32,
    /// For each level, the mean delay in microseconds in the upper half, and the number of samples in the lower half.
    means: [AtomicU64; LEVELS],
    name: Mutex<String>,
}

#[derive(Debug)]
pub(super) struct Kinds {
    slots: Box<[Slot]>,
}

impl Kinds {
    pub(super) fn new() -> Self {
        let slot = |_| Slot {
            tag: AtomicU32::new(0),
            strength: AtomicU32::new(0),
            asking: AtomicU32::new(0),
            grown_ms: AtomicU64::new(0),
            few_grown: AtomicU32::new(0),
            means: [const { AtomicU64::new(0) }; LEVELS],
            name: Mutex::new(String::new()),
        };
        Self { slots: (0..SLOTS).map(slot).collect() }
    }

    /// Finds the kind of a request for `path`, and adds it to the table if there is room.
    pub(super) fn find(&self, path: &[u8]) -> Kind {
        let folder = path.iter().rposition(|&byte| byte == b'/').map_or(path, |slash| &path[..slash]);
        // The folder of `/a/b` must differ from the path `/a`.
        Kind { path: self.find_slot(hash_key(path), path), folder: self.find_slot(!hash_key(folder), folder) }
    }

    fn find_slot(&self, hash: u64, name: &[u8]) -> Option<Entry> {
        let (index, tag) = (hash as usize % SLOTS, ((hash >> 32) as u32).max(1));
        let (slot, entry) = (&self.slots[index], Entry { index: index as u8, tag });
        let strength = slot.strength.load(Relaxed);
        if slot.tag.load(Relaxed) == tag {
            if strength < STRENGTH_MAX {
                slot.strength.store(strength + 1, Relaxed);
            }
            return Some(entry);
        }
        if slot.asking.load(Relaxed) > 0 {
            return None;
        }
        if strength > 0 {
            slot.strength.store(strength - 1, Relaxed);
            return None;
        }
        slot.tag.store(tag, Relaxed);
        slot.strength.store(1, Relaxed);
        slot.forget();
        let mut kept = slot.name.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clear();
        kept.push_str(&String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MAX)]));
        Some(entry)
    }

    /// Returns the slot of an entry, unless another path has displaced it.
    fn slot(&self, entry: Entry) -> Option<&Slot> {
        self.slots.get(usize::from(entry.index)).filter(|slot| slot.tag.load(Relaxed) == entry.tag)
    }

    fn slots(&self, kind: Kind) -> impl Iterator<Item = &Slot> {
        [kind.path, kind.folder].into_iter().flatten().filter_map(|entry| self.slot(entry))
    }

    /// Returns the count of the path's requests. It is the same for [`begin`](Self::begin) and [`end`](Self::end) even if
    /// another path displaces this one in between.
    fn counter(&self, kind: Kind) -> Option<&AtomicU32> {
        kind.path.map(|entry| &self.slots[usize::from(entry.index)].asking)
    }

    /// Counts a request of this kind that waits for a response head.
    pub(super) fn begin(&self, kind: Kind) {
        if let Some(asking) = self.counter(kind) {
            asking.fetch_add(1, Relaxed);
        }
    }

    /// Ends what [`begin`](Self::begin) began.
    pub(super) fn end(&self, kind: Kind) {
        if let Some(asking) = self.counter(kind) {
            asking.fetch_sub(1, Relaxed);
        }
    }

    /// Returns the number of requests for this path that wait for a response head; 0 if its table has no room for it.
    pub(super) fn asking(&self, kind: Kind) -> u32 {
        self.counter(kind).map_or(0, |asking| asking.load(Relaxed))
    }

    /// Returns whether a request for exactly this path has been answered.
    pub(super) fn is_path_known(&self, kind: Kind) -> bool {
        kind.path.and_then(|path| self.slot(path)).is_some_and(|slot| slot.shortest_us().is_some())
    }

    /// Adds a delay that was measured while `asking` requests waited for a head.
    pub(super) fn add(&self, kind: Kind, asking: u32, delay_us: u64) {
        for slot in self.slots(kind) {
            add(&slot.means[level(asking)], delay_us);
        }
    }

    /// Adds the delay of a request that got no response, although others did. It is known of this path alone, and says
    /// nothing about concurrency, so that it counts as if the request had been alone.
    pub(super) fn add_missing(&self, kind: Kind, delay_us: u64) {
        if let Some(slot) = kind.path.and_then(|path| self.slot(path)) {
            add(&slot.means[0], delay_us);
        }
    }

    /// Adds a delay that does not come from the number of requests, and would have been the same among fewer.
    pub(super) fn add_below(&self, base: Base, asking: u32, delay_us: u64) {
        let Some(slot) = self.slot(base.entry) else { return };
        for mean in &slot.means[..level(asking)] {
            if unpack(mean.load(Relaxed)).1 > 0 {
                add(mean, delay_us);
            }
        }
    }

    /// Notes that a delay of a kind has grown with the number of requests.
    pub(super) fn note_grown(&self, base: Base, now_ms: u64) {
        if let Some(slot) = self.slot(base.entry) {
            slot.grown_ms.store(now_ms.max(1), Relaxed);
        }
    }

    /// Handles a delay of a request before which few were waiting. If several in succession have grown, the kind now takes
    /// this long alone, for example because of other parameters, and its delays among few become those. Returns whether
    /// that is so.
    pub(super) fn handle_few(&self, base: Base, has_grown: bool, delay_us: u64) -> bool {
        let Some(slot) = self.slot(base.entry) else { return false };
        let grown = slot.few_grown.load(Relaxed);
        if !has_grown {
            // A load first, so that workers do not contend for the cache line.
            if grown > 0 {
                slot.few_grown.store(0, Relaxed);
            }
            return false;
        }
        slot.few_grown.store(grown + 1, Relaxed);
        if grown + 1 < FEW_GROWN {
            return false;
        }
        slot.few_grown.store(0, Relaxed);
        for mean in &slot.means[..(base.level + 2).min(LEVELS)] {
            if unpack(mean.load(Relaxed)).1 > 0 {
                mean.store(pack(u32::try_from(delay_us).unwrap_or(u32::MAX), SAMPLES_MIN), Relaxed);
            }
        }
        true
    }

    /// Returns whether a delay of this kind has grown with the number of requests since a time.
    pub(super) fn has_grown(&self, kind: Kind, samples_min: u32, since_ms: u64) -> bool {
        let slot = self.base(kind, samples_min).and_then(|base| self.slot(base.entry));
        slot.is_some_and(|slot| slot.has_grown(since_ms))
    }

    /// Returns the shortest mean delay of this kind in microseconds, at any concurrency.
    pub(super) fn shortest_us(&self, kind: Kind) -> Option<u32> {
        self.slots(kind).find_map(Slot::shortest_us)
    }

    /// Returns whether this kind takes long even alone, because it does at every concurrency.
    pub(super) fn is_slow(&self, kind: Kind) -> bool {
        self.shortest_us(kind).is_some_and(|shortest_us| shortest_us >= SLOW_US)
    }

    /// Returns how long this kind takes at the lowest concurrency at which it has been measured, with at least
    /// `samples_min` samples.
    pub(super) fn base(&self, kind: Kind, samples_min: u32) -> Option<Base> {
        [kind.path, kind.folder].into_iter().flatten().find_map(|entry| {
            let known = |(level, mean): (usize, &AtomicU64)| {
                let (mean_us, count) = unpack(mean.load(Relaxed));
                (count >= samples_min).then_some(Base { entry, level, mean_us: mean_us.max(1) })
            };
            self.slot(entry)?.means.iter().enumerate().find_map(known)
        })
    }

    /// Returns the highest number of requests, below that of `asking`, up to which the kind is known to take less than
    /// twice as long as in `base`.
    pub(super) fn good_concurrency(&self, base: Base, asking: u32) -> u32 {
        let Some(slot) = self.slot(base.entry) else { return 1 };
        let mut good = 0;
        for (above, mean) in slot.means[..level(asking)].iter().enumerate().skip(base.level) {
            match unpack(mean.load(Relaxed)) {
                (_, 0) => {}
                (mean_us, _) if u64::from(mean_us) < 2 * u64::from(base.mean_us) => good = above,
                _ => break,
            }
        }
        1 << good
    }

    /// Forgets the delays of the kinds whose shortest mean, in microseconds, meets a condition, because the origin has
    /// turned out to be different.
    pub(super) fn forget(&self, is_one: impl Fn(u32) -> bool) {
        for slot in &self.slots {
            if slot.shortest_us().is_some_and(&is_one) {
                slot.forget();
            }
        }
    }

    /// Forgets the delays of the kinds that have grown since a time.
    pub(super) fn forget_grown(&self, since_ms: u64) {
        self.slots.iter().filter(|slot| slot.has_grown(since_ms)).for_each(Slot::forget);
    }

    /// Returns up to `count_max` of the paths that are requested often, those with the most requests that wait for a
    /// response head, and the numbers of these requests, in descending order.
    pub(super) fn most_frequent(&self, count_max: usize) -> Vec<(String, u32)> {
        // Names are cut, so that long paths may share one.
        let mut named: BTreeMap<String, u32> = BTreeMap::new();
        for slot in &self.slots {
            let asking = slot.asking.load(Relaxed);
            if asking > 0 && slot.strength.load(Relaxed) >= NAMED_STRENGTH_MIN {
                let name = slot.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let count = named.entry(name).or_default();
                *count = count.saturating_add(asking);
            }
        }
        let mut paths: Vec<_> = named.into_iter().collect();
        paths.sort_by_key(|(_, asking)| Reverse(*asking));
        paths.truncate(count_max);
        paths
    }
}

impl Slot {
    /// Returns the shortest mean delay in microseconds.
    fn shortest_us(&self) -> Option<u32> {
        let known = self.means.iter().map(|mean| unpack(mean.load(Relaxed))).filter(|(_, count)| *count > 0);
        known.map(|(mean_us, _)| mean_us).min()
    }

    fn has_grown(&self, since_ms: u64) -> bool {
        let grown_ms = self.grown_ms.load(Relaxed);
        grown_ms > 0 && grown_ms >= since_ms
    }

    fn forget(&self) {
        self.grown_ms.store(0, Relaxed);
        self.few_grown.store(0, Relaxed);
        for mean in &self.means {
            mean.store(0, Relaxed);
        }
    }
}

impl Base {
    /// Returns the mean delay in microseconds, at least 1.
    pub(super) const fn mean_us(self) -> u32 {
        self.mean_us
    }

    /// Returns how many times as long a delay is as the mean.
    pub(super) fn ratio(self, delay_us: u64) -> f64 {
        delay_us as f64 / f64::from(self.mean_us)
    }

    /// Returns whether a delay measured among `asking` requests says anything about growth: at least twice as many as
    /// at the end of the base's level.
    pub(super) fn is_comparable(self, asking: u32) -> bool {
        level(asking) >= self.level + 2
    }
}

fn level(asking: u32) -> usize {
    (asking.max(1).ilog2() as usize).min(LEVELS - 1)
}

fn add(mean: &AtomicU64, delay_us: u64) {
    let (mean_us, count) = unpack(mean.load(Relaxed));
    let count = (count + 1).min(SAMPLES_MAX);
    let delay_us = i64::try_from(delay_us).unwrap_or(i64::MAX).min(i64::from(u32::MAX));
    let new_us = i64::from(mean_us) + (delay_us - i64::from(mean_us)) / i64::from(count);
    mean.store(pack(new_us as u32, count), Relaxed);
}

const fn pack(mean_us: u32, count: u32) -> u64 {
    (mean_us as u64) << 32 | count as u64
}

/// Splits a mean into microseconds and the number of samples.
const fn unpack(mean: u64) -> (u32, u32) {
    ((mean >> 32) as u32, mean as u32)
}

#[cfg(test)]
mod tests {
    use super::{Kinds, NAME_BYTES_MAX, NAMED_STRENGTH_MIN, SLOTS};

    #[test]
    fn a_path_is_known_by_its_folder_until_it_is_known_itself() {
        let kinds = Kinds::new();
        let poll = kinds.find(b"/api/wait/1");
        assert_eq!(kinds.base(poll, 1), None);
        kinds.add(poll, 1, 25_000_000);
        let other = kinds.find(b"/api/wait/2");
        assert_eq!(kinds.base(other, 1).unwrap().mean_us(), 25_000_000);
        kinds.add(other, 1, 1_000);
        assert_eq!(kinds.base(other, 1).unwrap().mean_us(), 1_000);
        assert_eq!(kinds.base(poll, 1).unwrap().mean_us(), 25_000_000);
        // The folder /api/wait is not the path /api/wait.
        assert_eq!(kinds.base(kinds.find(b"/api/wait"), 1), None);
    }

    #[test]
    fn means_belong_to_a_level_of_concurrency() {
        let kinds = Kinds::new();
        let page = kinds.find(b"/page");
        for (asking, delay_us) in [(1, 1_000), (4, 1_500), (64, 10_000)] {
            (0..8).for_each(|_| kinds.add(page, asking, delay_us));
        }
        let base = kinds.base(page, 8).unwrap();
        assert_eq!(base.mean_us(), 1_000);
        assert!(!base.is_comparable(3) && base.is_comparable(4));
        assert_eq!((kinds.good_concurrency(base, 64), kinds.good_concurrency(base, 4)), (4, 1));
        // A mean follows what it measures.
        (0..100).for_each(|_| kinds.add(page, 1, 9_000));
        assert!(kinds.base(page, 8).unwrap().mean_us() > 8_900);
        assert_eq!(kinds.shortest_us(page), Some(1_500));
        kinds.forget(|mean_us| mean_us > 1_500);
        assert!(kinds.base(page, 1).is_some());
        kinds.forget(|mean_us| mean_us == 1_500);
        assert_eq!(kinds.base(page, 1), None);
        // What never got a response is slow, but its folder is not.
        let (never, other) = (kinds.find(b"/folder/never"), kinds.find(b"/folder/other"));
        kinds.add_missing(never, 30_000_000);
        assert_eq!((kinds.shortest_us(never), kinds.shortest_us(other)), (Some(30_000_000), None));
    }

    /// If requests among few take much longer, one after another, the kind does.
    #[test]
    fn a_kind_that_takes_longer_alone_has_a_new_base() {
        let kinds = Kinds::new();
        let page = kinds.find(b"/page");
        for (asking, delay_us) in [(1, 1_000), (2, 1_000), (4, 1_500)] {
            (0..8).for_each(|_| kinds.add(page, asking, delay_us));
        }
        let base = kinds.base(page, 2).unwrap();
        for (has_grown, is_slow) in [(true, false), (false, false), (true, false), (true, true), (true, false)] {
            assert_eq!(kinds.handle_few(base, has_grown, 900_000), is_slow);
        }
        let base = kinds.base(page, 2).unwrap();
        assert_eq!((base.level, base.mean_us()), (0, 900_000));
        // Higher levels stay, so that a kind with such delays is not slow, and the next delays count.
        assert_eq!(kinds.shortest_us(page), Some(1_500));
        kinds.add(page, 1, 3_000);
        assert_eq!(kinds.base(page, 2).unwrap().mean_us(), 601_000);
    }

    /// However many paths are requested, the table does not grow, and what is requested often stays.
    #[test]
    fn what_is_requested_often_stays() {
        let kinds = Kinds::new();
        let page = kinds.find(b"/often");
        kinds.add(page, 1, 1_000);
        for number in 0..100 * SLOTS {
            let one = kinds.find(format!("/items/{number}").as_bytes());
            kinds.begin(one);
            kinds.add(one, 1, 9_000);
            kinds.end(one);
            if number % 100 == 0 {
                assert_eq!(kinds.find(b"/often").path, page.path);
                // What has been displaced is neither read nor written.
                kinds.add(kinds.find(b"/rarely"), 1, 5_000);
            }
        }
        assert_eq!(kinds.base(kinds.find(b"/often"), 1).unwrap().mean_us(), 1_000);
        assert!(kinds.most_frequent(2).is_empty());
        let path = [b'x'; 4 * NAME_BYTES_MAX];
        for _ in 1..NAMED_STRENGTH_MIN {
            let _ = kinds.find(&path);
        }
        let long = kinds.find(&path);
        (0..3).for_each(|_| kinds.begin(long));
        kinds.begin(page);
        let most = kinds.most_frequent(2);
        assert_eq!(most.last(), Some(&("/often".to_owned(), 1)));
        if long.path.is_some() {
            assert_eq!((most[0].0.len(), most[0].1), (NAME_BYTES_MAX, 3));
            assert_eq!(kinds.most_frequent(1), most[..1]);
        }
        kinds.end(page);
        assert!(!kinds.most_frequent(2).contains(&("/often".to_owned(), 1)));
    }

    #[test]
    fn a_path_that_is_requested_rarely_is_not_named() {
        let kinds = Kinds::new();
        for expected in [0, 0, 0, 1] {
            kinds.begin(kinds.find(b"/reset/secret"));
            assert_eq!(kinds.most_frequent(8).len(), expected);
        }
    }
}
