//! Episodes of overload: when one begins, when it ends, and how much was refused meanwhile.

use std::collections::BTreeMap;

/// Time without refusals after which an episode ends, in milliseconds. At most one episode therefore begins, and at most
/// one ends, in this time.
pub const QUIET_MS: u64 = 10_000;

/// Numbers of refused connections, requests or the like, by reason.
pub type Refusals = BTreeMap<&'static str, u64>;

/// A time during which a server refused connections or requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Episode {
    /// Time of the first sample with refusals, in milliseconds.
    pub began_ms: u64,
    /// Time of the last sample with refusals, in milliseconds.
    pub last_ms: u64,
    /// Refused connections and requests.
    pub refusals: Refusals,
}

/// Beginning or end of an episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EpisodeEvent {
    /// It began, with the refusals since the previous sample.
    Began(Episode),
    /// It ended.
    Ended(Episode),
}

/// Finds episodes in samples of counters, which begin at 0.
#[derive(Debug, Default)]
pub struct EpisodeWatch {
    counts: Refusals,
    episode: Option<Episode>,
}

impl EpisodeWatch {
    /// Returns the current episode, if there is one.
    pub const fn episode(&self) -> Option<&Episode> {
        self.episode.as_ref()
    }

    /// Handles a sample of all counters.
    pub fn handle_sample(&mut self, counts: Refusals, now_ms: u64) -> Option<EpisodeEvent> {
        let mut growth = counts.clone();
        growth.retain(|name, count| {
            *count = count.saturating_sub(self.counts.get(name).copied().unwrap_or(0));
            *count > 0
        });
        self.counts = counts;
        if growth.is_empty() {
            return self
                .episode
                .take_if(|episode| now_ms.saturating_sub(episode.last_ms) >= QUIET_MS)
                .map(EpisodeEvent::Ended);
        }
        let is_new = self.episode.is_none();
        let episode = self.episode.get_or_insert_with(|| Episode { began_ms: now_ms, ..Episode::default() });
        episode.last_ms = now_ms;
        for (name, grown) in growth {
            let total = episode.refusals.entry(name).or_default();
            *total = total.saturating_add(grown);
        }
        is_new.then(|| EpisodeEvent::Began(episode.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Episode, EpisodeEvent, EpisodeWatch, QUIET_MS};

    #[test]
    fn an_episode_begins_with_the_first_refusal_and_ends_after_ten_quiet_seconds() {
        let mut watch = EpisodeWatch::default();
        assert_eq!(watch.handle_sample([("queue", 0), ("pages", 0)].into(), 1_000), None);
        let began = watch.handle_sample([("queue", 2), ("pages", 0)].into(), 2_000).unwrap();
        let expected = Episode { began_ms: 2_000, last_ms: 2_000, refusals: [("queue", 2)].into() };
        assert_eq!(began, EpisodeEvent::Began(expected));
        assert_eq!(watch.handle_sample([("queue", 4), ("pages", 3)].into(), 5_000), None);
        assert_eq!(watch.handle_sample([("queue", 4), ("pages", 3)].into(), 4_999 + QUIET_MS), None);
        assert_eq!(watch.episode().unwrap().refusals, [("queue", 4), ("pages", 3)].into());
        let ended = watch.handle_sample([("queue", 4), ("pages", 3)].into(), 5_000 + QUIET_MS).unwrap();
        let refusals = [("queue", 4), ("pages", 3)].into();
        assert_eq!(ended, EpisodeEvent::Ended(Episode { began_ms: 2_000, last_ms: 5_000, refusals }));
        assert_eq!(watch.handle_sample([("queue", 4), ("pages", 3)].into(), 90_000), None);
        assert_eq!(watch.episode(), None);
    }

    /// Otherwise an overload that comes and goes would fill the log.
    #[test]
    fn one_pair_of_events_in_ten_seconds() {
        let mut watch = EpisodeWatch::default();
        let mut events = Vec::new();
        let (mut refused, mut told) = (0, 0);
        for now_ms in (0..60_000).step_by(1_000) {
            // Refusals in every fourth second of the first half minute.
            refused += u64::from(now_ms < 30_000 && now_ms / 1_000 % 4 == 0);
            if let Some(event) = watch.handle_sample([("queue", refused)].into(), now_ms) {
                if let EpisodeEvent::Ended(Episode { refusals, .. }) = &event {
                    told += refusals["queue"];
                }
                events.push((now_ms, matches!(event, EpisodeEvent::Began(_))));
            }
        }
        assert_eq!(events, [(0, true), (38_000, false)]);
        assert_eq!((told, refused), (8, 8), "every refusal is counted");
    }
}
