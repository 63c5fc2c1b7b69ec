//! Tracking of one request to one origin.

use super::{Change, Ending, Group};
use flatout_config::model::Origin;
use std::sync::Arc;

/// Reason for the selection of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelectionReason {
    /// It was available.
    Plain,
    /// Its pause was over, and this request is the trial.
    Trial,
    /// No origin was available.
    LastResort,
}

/// One request to one origin, in progress until this is dropped. Dropped without a report, it counts as
/// [`Ending::Abandoned`].
#[derive(Debug)]
pub struct Ticket {
    group: Arc<Group>,
    index: usize,
    kind: SelectionReason,
    /// The last report, if any.
    reported: Option<Ending>,
}

impl Ticket {
    pub(super) const fn new(group: Arc<Group>, index: usize, kind: SelectionReason) -> Self {
        Self { group, index, kind, reported: None }
    }

    /// The origin's index.
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The origin.
    pub fn origin(&self) -> &Origin {
        &self.group.origins[self.index]
    }

    /// Returns whether this request is the trial of a failed origin.
    pub fn is_trial(&self) -> bool {
        self.kind != SelectionReason::Plain
    }

    /// Reports the outcome, at the latest with the head of the response; a response truncated afterwards is reported
    /// again as [`Ending::Failed`]. Other later reports are ignored. The request stays in progress until the ticket is
    /// dropped; only then does a response end a series of failures.
    pub fn report(&mut self, ending: Ending, now_ms: u64) -> Option<Change> {
        let (member, rules) = (&self.group.members[self.index], &self.group.rules);
        match (self.reported, ending) {
            (None, _) => {}
            (Some(Ending::Answered), Ending::Failed) => {
                self.reported = Some(ending);
                return member.handle_failure(now_ms, rules);
            }
            (Some(_), _) => return None,
        }
        self.reported = Some(ending);
        match self.kind {
            SelectionReason::Plain if ending == Ending::Failed => member.handle_failure(now_ms, rules),
            SelectionReason::Plain => None,
            SelectionReason::Trial => {
                let change = member.handle_trial(ending, now_ms, rules);
                member.end_trial();
                change
            }
            // While all are paused, every request may be one of these: another failure is no news.
            SelectionReason::LastResort => {
                member.handle_trial(ending, now_ms, rules).filter(|change| *change == Change::TrialPassed)
            }
        }
    }

    /// Reports the outcome and ends the request.
    pub fn finish(mut self, ending: Ending, now_ms: u64) -> Option<Change> {
        self.report(ending, now_ms)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let member = &self.group.members[self.index];
        match self.reported {
            Some(Ending::Answered) => member.handle_success(),
            None if self.kind == SelectionReason::Trial => member.end_trial(),
            _ => {}
        }
        member.end_request();
    }
}
