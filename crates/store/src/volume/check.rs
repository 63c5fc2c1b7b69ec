//! Verification of body files on a volume's verification thread: before restored content is first sent, and daily by a
//! scrubber.

use super::Volume;
use super::record::primary_of;
use crate::folder::{Check, FileId};
use crate::hold;
use crate::notice::VolumeEvent;
use crate::object::Meta;
use crate::proof::{Buffer, Proof};
use crate::seal::{CHUNK_BYTES, Identity};
use flatout_os::clock;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Interval at which the verification thread checks whether the volume is still in use.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Delay from the start of the thread to the first scrub, so that reads at start-up take precedence.
const FIRST_DELAY: Duration = Duration::from_mins(10);

/// Interval between the starts of consecutive scrubs.
const ROUND: Duration = Duration::from_hours(24);

/// Target duration of a scrub, which determines the rate together with the number of stored bytes.
const ROUND_TARGET: Duration = Duration::from_hours(20);

/// Minimum and maximum rate, in bytes per second. Above 4.8 TB, a scrub takes longer than the target.
const RATE_MIN: u64 = 1 << 20;
const RATE_MAX: u64 = 64 << 20;

/// Schedule of the chunks to verify. Time is passed as an argument.
#[derive(Debug)]
pub(super) struct Pace {
    round_begins: Instant,
    done_bytes: u64,
}

impl Pace {
    /// Creates a schedule whose first scrub begins [`FIRST_DELAY`] after `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { round_begins: now + FIRST_DELAY, done_bytes: 0 }
    }

    /// Returns how long to wait at `now` before the next chunk is due, given `stored_bytes` on the volume.
    pub(super) fn wait(&self, now: Instant, stored_bytes: u64) -> Duration {
        let rate = (stored_bytes / ROUND_TARGET.as_secs()).clamp(RATE_MIN, RATE_MAX);
        let due = self.round_begins + Duration::from_millis(self.done_bytes.saturating_mul(1_000) / rate);
        due.saturating_duration_since(now)
    }

    /// Adds `bytes` to the number of bytes verified in this scrub.
    pub(super) fn add(&mut self, bytes: u64) {
        self.done_bytes = self.done_bytes.saturating_add(bytes);
    }

    /// Ends a scrub. The next scrub begins a day after this one began.
    pub(super) fn end_round(&mut self, now: Instant) {
        *self = Self { round_begins: (self.round_begins + ROUND).max(now), done_bytes: 0 };
    }
}

/// Position of the scrubber.
#[derive(Debug)]
pub(super) struct Scrub {
    pace: Pace,
    /// The file that was opened last, in the order of the index.
    last: Option<FileId>,
    current: Option<Scrubbed>,
}

#[derive(Debug)]
struct Scrubbed {
    file: FileId,
    fd: OwnedFd,
    proof: Proof,
    offset: u64,
    bytes: u64,
}

impl Scrub {
    pub(super) fn new(now: Instant) -> Self {
        Self { pace: Pace::new(now), last: None, current: None }
    }
}

impl<M: Meta> Volume<M> {
    /// Handles queued checks, and scrubs when there are none, until the volume goes out of use.
    pub(super) fn check_on(&self) {
        let mut buffer = Buffer::default();
        let mut scrub = Scrub::new(clock::now());
        let mut wait = Duration::ZERO;
        while !self.is_over() {
            if let Some(check) = self.folder.next_check(wait.min(TIMEOUT)) {
                self.check(check, &mut buffer);
                wait = Duration::ZERO;
            } else {
                wait = self.scrub(&mut scrub, clock::now(), &mut buffer);
            }
        }
    }

    /// Refuses further checks. Called when the thread ends.
    pub(super) fn stop_checking(&self) {
        self.folder.end_checks();
    }

    fn check(&self, check: Check, buffer: &mut Buffer) {
        if check.reply.is_closed() {
            return;
        }
        let outcome = check.file.verify(check.range, buffer);
        if let Err(event) = outcome {
            self.drop_body(check.file.id(), event);
        }
        // The requester may no longer be waiting.
        let _ = check.reply.send(outcome.is_ok());
    }

    /// Verifies the next chunk if it is due at `now`. Returns how long to wait before calling this again.
    pub(super) fn scrub(&self, scrub: &mut Scrub, now: Instant, buffer: &mut Buffer) -> Duration {
        let wait = scrub.pace.wait(now, self.folder.used_bytes());
        if !wait.is_zero() {
            return wait;
        }
        let Some(current) = &mut scrub.current else {
            self.begin_next(scrub, now);
            return Duration::ZERO;
        };
        let end = (current.offset + CHUNK_BYTES).min(current.bytes);
        let outcome = current.proof.verify(&current.fd, current.offset..end, buffer);
        scrub.pace.add(end - current.offset);
        current.offset = end;
        if let Err(event) = outcome {
            self.drop_body(current.file, event);
        }
        if outcome.is_err() || end == current.bytes {
            scrub.current = None;
        }
        Duration::ZERO
    }

    /// Opens the next file, or ends the scrub if there is none.
    fn begin_next(&self, scrub: &mut Scrub, now: Instant) {
        let Some(index) = self.index() else { return scrub.pace.end_round(now) };
        let next = match index.next_body(scrub.last) {
            Ok(next) => next,
            Err(error) => return self.fail("cannot read the index", &error),
        };
        let Some((file, key, bytes)) = next else {
            scrub.last = None;
            return scrub.pace.end_round(now);
        };
        scrub.last = Some(file);
        match self.folder.open_file_directly(file) {
            Ok(fd) => {
                let proof = Proof::new(Identity { primary: primary_of(&key), file, bytes });
                scrub.current = Some(Scrubbed { file, fd, proof, offset: 0, bytes });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.drop_body(file, VolumeEvent::BodyMissing);
            }
            Err(_) => self.drop_body(file, VolumeEvent::BodyUnreadable),
        }
    }

    /// Removes the object whose content is in `file` from the index and from memory because of `event`. Does nothing if
    /// the index no longer references the file.
    pub(super) fn drop_body(&self, file: FileId, event: VolumeEvent) {
        let Some(index) = self.index() else { return };
        let (id, key) = match index.find_body(file) {
            Ok(Some(found)) => found,
            // The object was evicted or replaced during the check.
            Ok(None) => return,
            Err(error) => return self.fail("cannot read the index", &error),
        };
        let named = format!("{}", String::from_utf8_lossy(&key).escape_debug());
        self.folder.errors.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.shared.notices.report(event, &self.folder.path.display(), &format!("{named}, {file}"));
        hold(&self.pending).remove_body(id, file);
        self.drop_from_memory(&key, file);
        self.folder.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_DELAY, Pace, RATE_MIN, ROUND};
    use std::time::{Duration, Instant};

    #[test]
    fn a_volume_is_gone_through_once_a_day_and_not_faster_than_needed() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(pace.wait(start, 1 << 40), FIRST_DELAY);
        let mut now = start + FIRST_DELAY;
        let (stored, chunk) = (100 << 30, 256 << 10);
        for _ in 0..stored / chunk {
            now += pace.wait(now, stored);
            pace.add(chunk);
        }
        now += pace.wait(now, stored);
        let took = now.duration_since(start + FIRST_DELAY);
        assert!(took > Duration::from_hours(19) && took < Duration::from_hours(21), "{took:?}");
        pace.end_round(now);
        assert_eq!(now + pace.wait(now, stored) - start, FIRST_DELAY + ROUND);
        // Little is read at least rate, and a machine that slept does not catch up twice.
        let late = now + ROUND * 3;
        assert_eq!(pace.wait(late, 0), Duration::ZERO);
        pace.add(RATE_MIN);
        pace.end_round(late);
        assert_eq!(pace.wait(late, 0), Duration::ZERO);
        pace.add(RATE_MIN);
        assert_eq!(pace.wait(late, 0), Duration::from_secs(1));
    }
}
