//! Volume events. Each kind has a name, a counter and a log line.

use crate::hold;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

flatout_reason::reasons! {
    /// Event on a volume.
    pub enum VolumeEvent { name, text, }
    BodyCorrupt, "body_corrupt", "The content of a stored response does not match its checksums: the entry is dropped and fetched again.";
    BodyMisplaced, "body_misplaced", "A file contains the content of another stored response: the entry is dropped and fetched again.";
    BodyTruncated, "body_truncated", "The file of a stored response has a different length than when it was written: the entry is dropped and fetched again.";
    BodyMissing, "body_missing", "The file of a stored response is missing: the entry is dropped and fetched again.";
    BodyUnreadable, "body_unreadable", "The file of a stored response cannot be read: the entry is dropped and fetched again.";
    RecordCorrupt, "record_corrupt", "An index record, or a small body stored inline in the index, does not match its checksum: the entry is dropped and fetched again.";
    VolumeFull, "volume_full", "The file system is full although the volume is below its limit: the volume keeps its stored responses, but stores no new ones.";
    VolumeHasRoom, "volume_has_room", "The file system has space again: the volume stores new responses.";
    IndexDestroyed, "index_destroyed", "The volume's index is missing or cannot be read: everything stored on the volume is lost and will be fetched again.";
    IndexOutdated, "index_outdated", "The volume's index was written by a version with a different format: everything stored on the volume is dropped and will be fetched again.";
    VolumeFailed, "volume_failed", "The volume failed: flatout does not use it until the next start, when it will be empty.";
}

impl VolumeEvent {
    /// Returns whether the event concerns a single stored response, so that it may be frequent.
    const fn is_of_entry(self) -> bool {
        matches!(
            self,
            Self::BodyCorrupt
                | Self::BodyMisplaced
                | Self::BodyTruncated
                | Self::BodyMissing
                | Self::BodyUnreadable
                | Self::RecordCorrupt
        )
    }
}

/// Callback for log lines.
pub type OnNotice = Box<dyn Fn(String) + Send + Sync>;

/// Maximum number of lines buffered until a listener is set.
const EARLY_MAX: usize = 64;

/// Number of events per kind of frequent event that are all logged. After that, a line is logged whenever the count
/// reaches a power of ten.
const LINES_MAX: u64 = 10;

/// Event counters, and the listener for log lines.
#[derive(Default, derive_more::Debug)]
#[debug("Notices({counts:?})")]
pub(crate) struct Notices {
    counts: [AtomicU64; VolumeEvent::ALL.len()],
    listener: OnceLock<OnNotice>,
    early: Mutex<Vec<String>>,
}

impl Notices {
    /// Counts and logs `event`. `place` is the volume or file; `detail` may be empty.
    pub(crate) fn report(&self, event: VolumeEvent, place: &dyn fmt::Display, detail: &str) {
        let count = self.counts[event as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if event.is_of_entry() && count > LINES_MAX && !is_power_of_ten(count) {
            return;
        }
        let mut line = format!("{place}: [{}] {}", event.name(), event.text());
        if !detail.is_empty() {
            line = format!("{line} ({detail})");
        }
        if event.is_of_entry() && count >= LINES_MAX {
            line = format!("{line} {count} so far.");
        }
        if let Some(listener) = self.listener.get() {
            return listener(line);
        }
        let mut early = hold(&self.early);
        if early.len() < EARLY_MAX {
            early.push(line);
        }
    }

    /// Sets the listener and passes buffered lines to it.
    pub(crate) fn listen(&self, listener: OnNotice) {
        if self.listener.set(listener).is_ok()
            && let Some(listener) = self.listener.get()
        {
            std::mem::take(&mut *hold(&self.early)).into_iter().for_each(listener);
        }
    }

    /// Returns the number of events of each kind.
    pub(crate) fn counts(&self) -> Vec<(VolumeEvent, u64)> {
        VolumeEvent::ALL.iter().map(|event| (*event, self.counts[*event as usize].load(Ordering::Relaxed))).collect()
    }
}

fn is_power_of_ten(mut count: u64) -> bool {
    while count >= 10 && count.is_multiple_of(10) {
        count /= 10;
    }
    count == 1
}

#[cfg(test)]
mod tests {
    use super::{Notices, VolumeEvent};
    use crate::hold;
    use std::sync::{Arc, Mutex};

    #[test]
    fn early_lines_are_delivered_and_floods_are_thinned_out() {
        let notices = Notices::default();
        notices.report(VolumeEvent::IndexDestroyed, &"/cache", "");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&lines);
        notices.listen(Box::new(move |line| hold(&listener).push(line)));
        for _ in 0..1_000 {
            notices.report(VolumeEvent::BodyCorrupt, &"/cache", "");
        }
        let lines = hold(&lines);
        assert!(lines[0].starts_with("/cache: [index_destroyed] "), "{}", lines[0]);
        assert_eq!(lines.len(), 1 + 10 + 2);
        assert!(lines[12].ends_with(" 1000 so far."), "{}", lines[12]);
        let counts = notices.counts();
        assert!(counts.contains(&(VolumeEvent::BodyCorrupt, 1_000)) && counts.contains(&(VolumeEvent::VolumeFull, 0)));
    }

    #[test]
    fn each_event_is_a_sentence() {
        assert!(VolumeEvent::ALL.iter().all(|event| event.text().ends_with('.')));
    }
}
