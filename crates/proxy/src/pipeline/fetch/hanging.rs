//! Attempts that hang: notes on stored responses, which clients then get stale instead of waiting.

use super::{Asked, Fetch};
use crate::fill::FillWriter;
use crate::meta::StoredResponse;
use crate::worker::ProxyWorker;
use flatout_cache::decision::OriginFailureKind;
use flatout_os::clock::Now;
use std::pin::pin;
use std::rc::Rc;

/// Maximum time between two notes about one attempt, in milliseconds. Shorter than a note is in force.
const NOTE_AGAIN_MS_MAX: u64 = 10_000;

/// Two readings of the clock may differ by this much less than the time between them, in milliseconds.
const CLOCK_ERROR_MS: u64 = 10;

impl Fetch {
    /// Sends the request. If its response head is late, notes that on the stored response that may be used instead, and
    /// reports it to waiting clients.
    pub(super) async fn ask_noting_hangs(&self, worker: &Rc<ProxyWorker>, writer: &FillWriter) -> Asked {
        let mut asking = pin!(self.ask(worker));
        let Some(kept) = self.substitute() else { return asking.await };
        let client = worker.client(&self.query.step);
        let mut wait_ms = self.query.step.hang_ms();
        let mut asked = client.within(wait_ms, asking.as_mut()).await;
        if asked.is_none() {
            writer.set_late();
        }
        loop {
            if let Some(asked) = asked {
                return asked;
            }
            kept.hang().set(Now::read().monotonic_ms);
            wait_ms = wait_ms.min(NOTE_AGAIN_MS_MAX);
            asked = client.within(wait_ms, asking.as_mut()).await;
        }
    }

    /// Updates the note that attempts hang, after an attempt that began at `began_ms` has ended.
    pub(super) fn note_attempt(&self, began_ms: u64, end: AttemptEnd) {
        let Some(kept) = &self.kept else { return };
        let (step, now_ms) = (&self.query.step, Now::read().monotonic_ms);
        let is_late = now_ms.saturating_sub(began_ms) + CLOCK_ERROR_MS >= step.hang_ms();
        match end.hangs(is_late, step.addresses.len() == 1) {
            Some(true) => kept.hang().set(now_ms),
            Some(false) => kept.hang().clear(),
            None => {}
        }
    }

    /// Notes that all clients have left an attempt that began at `began_ms` before its response head arrived.
    pub(super) fn note_abandoned(&self, began_ms: u64) {
        if let Some(kept) = self.substitute() {
            kept.hang().add_wait(Now::read().monotonic_ms, began_ms, self.query.step.hang_ms());
        }
    }

    /// Returns the stored response that may be used instead of waiting. Stored parts are not.
    fn substitute(&self) -> Option<&StoredResponse> {
        let is_usable = |kept: &&StoredResponse| {
            self.question.set.is_none() && self.may_stand_in(kept, OriginFailureKind::Unreachable)
        };
        self.kept.as_deref().filter(is_usable)
    }
}

/// The end of an attempt, as far as it shows whether the origin hangs.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttemptEnd {
    /// The origin has responded with this status.
    Response(u16),
    /// The request was refused with this status.
    Refusal(u16),
}

impl AttemptEnd {
    /// Returns whether the origin hangs after an attempt with this end; `None` if that is not known. `is_late` is true
    /// if the end came so late that the attempt had hung. `is_only_origin` is true if the group has one origin.
    const fn hangs(self, is_late: bool, is_only_origin: bool) -> Option<bool> {
        match self {
            Self::Response(500..) | Self::Refusal(_) if is_late => Some(true),
            Self::Refusal(504) => Some(true),
            Self::Response(_) => Some(false),
            // The only origin fails fast, so clients do not wait for it. A queue shows no such thing.
            Self::Refusal(502) if is_only_origin => Some(false),
            Self::Refusal(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AttemptEnd::{Refusal, Response};

    #[test]
    fn late_errors_and_timeouts_are_hangs_and_responses_end_them() {
        for (end, is_late, is_only_origin, expected) in [
            (Response(200), false, true, Some(false)),
            (Response(200), true, true, Some(false)),
            (Response(304), true, true, Some(false)),
            (Response(404), true, true, Some(false)),
            (Response(500), false, true, Some(false)),
            (Response(503), true, true, Some(true)),
            (Response(503), true, false, Some(true)),
            (Refusal(504), true, true, Some(true)),
            (Refusal(504), false, false, Some(true)),
            (Refusal(502), true, true, Some(true)),
            (Refusal(502), false, true, Some(false)),
            (Refusal(502), false, false, None),
            (Refusal(503), false, true, None),
        ] {
            assert_eq!(end.hangs(is_late, is_only_origin), expected, "{end:?} {is_late} {is_only_origin}");
        }
    }
}
