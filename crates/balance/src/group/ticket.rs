//! Tracking of a request to an origin.

use super::{Change, Ending, Group};
use flatout_config::model::Origin;
use std::sync::Arc;

/// Reason for the selection of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelectionReason {
    /// The origin was available.
    Plain,
    /// The origin's pause was over, and this request is the trial.
    Trial,
    /// No origin was available, and this origin's pause ends first.
    LastResort,
}

/// A request to an origin, which counts as in progress until this is dropped. If it is dropped without a report, its
/// outcome is [`Ending::Abandoned`].
#[derive(Debug)]
pub struct Ticket {
    group: Arc<Group>,
    index: usize,
    kind: SelectionReason,
    /// The last outcome reported, if any.
    reported: Option<Ending>,
}

impl Ticket {
    pub(super) const fn new(group: Arc<Group>, index: usize, kind: SelectionReason) -> Self {
        Self { group, index, kind, reported: None }
    }

    /// Returns the origin's index.
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns the selected origin.
    pub fn origin(&self) -> &Origin {
        &self.group.origins[self.index]
    }

    /// Returns whether this request was sent to an origin that was not available: as a trial or as a last resort.
    #[cfg(test)]
    pub(super) fn is_trial(&self) -> bool {
        self.kind != SelectionReason::Plain
    }

    /// Reports the outcome, at the latest when the response head has arrived. If the response is truncated after that,
    /// report it again as [`Ending::Failed`]; other further reports are ignored. The request stays in progress until
    /// the ticket is dropped, and only then does a response end a series of failures. Returns the change in the
    /// origin's availability, if any.
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
            // While all origins are paused, every request is a last resort, so further failures are not reported as
            // changes.
            SelectionReason::LastResort => {
                member.handle_trial(ending, now_ms, rules).filter(|change| *change == Change::TrialPassed)
            }
        }
    }

    /// Reports the outcome and drops the ticket.
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
