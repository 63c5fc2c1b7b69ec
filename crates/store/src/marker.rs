//! Hit-for-miss markers of keys whose responses cannot be shared, so that requests for them do not wait for one
//! another.

use crate::{Marker, hold};
use flatout_os::random::Prehashed;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// Maximum number of markers. Each takes about 50 bytes.
const MARKERS_MAX: usize = 65_536;

/// Number of separately locked shards.
const SHARDS: usize = 16;

/// A marker is not replaced by one whose expiry differs by less than this, in milliseconds.
const NEW_MS: u64 = 100;

#[derive(Debug, Default)]
struct MarkerShard {
    members: HashMap<u64, (Marker, u64), Prehashed>,
    /// Hashes in order of creation, each with the number that distinguishes a marker from a later one for the same key.
    order: VecDeque<(u64, u64)>,
    count: u64,
}

/// Markers by hash of the key. A hash collision only makes clients fetch separately.
#[derive(Debug)]
pub(crate) struct Markers {
    shards: Box<[Mutex<MarkerShard>]>,
}

impl Markers {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, hash: u64) -> &Mutex<MarkerShard> {
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    pub(crate) fn set(&self, hash: u64, marker: Marker) {
        let mut shard = hold(self.shard(hash));
        // Do not replace a very recent marker.
        let is_new =
            |known: &Marker| known.reason == marker.reason && marker.until_ms.abs_diff(known.until_ms) < NEW_MS;
        if shard.members.get(&hash).is_some_and(|(known, _)| is_new(known)) {
            return;
        }
        shard.count += 1;
        let count = shard.count;
        shard.members.insert(hash, (marker, count));
        shard.order.push_back((hash, count));
        while shard.order.len() > MARKERS_MAX / SHARDS {
            let Some((oldest, count)) = shard.order.pop_front() else { break };
            if shard.members.get(&oldest).is_some_and(|(_, other)| *other == count) {
                shard.members.remove(&oldest);
            }
        }
    }

    pub(crate) fn get(&self, hash: u64) -> Option<Marker> {
        hold(self.shard(hash)).members.get(&hash).map(|(marker, _)| *marker)
    }

    pub(crate) fn remove(&self, hash: u64) {
        hold(self.shard(hash)).members.remove(&hash);
    }

    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            *hold(shard) = MarkerShard::default();
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| hold(shard).members.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{MARKERS_MAX, Markers};
    use crate::Marker;

    #[test]
    fn markers_are_bounded_and_the_oldest_go() {
        let markers = Markers::new();
        let marker = |reason| Marker { reason, until_ms: 10 };
        let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in 0..3 * MARKERS_MAX as u64 {
            markers.set(spread(number), marker(number as u16));
            // One that is made again and again stays, and takes one place in the end.
            markers.set(spread(7), marker(1));
        }
        assert!(markers.len() <= MARKERS_MAX as u64);
        assert_eq!(markers.get(spread(7)), Some(marker(1)));
        assert_eq!(markers.get(spread(8)), None);
        markers.remove(spread(7));
        assert_eq!(markers.get(spread(7)), None);
        markers.clear();
        assert_eq!(markers.len(), 0);
    }
}
