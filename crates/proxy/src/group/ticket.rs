//! One request to one origin.

use super::{Change, Ending, Group};
use flatout_config::model::Origin;
use std::sync::Arc;

/// How an origin came to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It was well.
    Plain,
    /// Its pause was over, and this request alone tries it.
    Trial,
    /// Nobody was well.
    LastResort,
}

/// One request to one origin: it counts as under way until this is dropped. Dropped without a report, it counts as
/// [`Ending::Abandoned`].
#[derive(Debug)]
pub struct Ticket {
    group: Arc<Group>,
    index: usize,
    kind: Kind,
    reported: bool,
}

impl Ticket {
    pub(super) const fn new(group: Arc<Group>, index: usize, kind: Kind) -> Self {
        Self { group, index, kind, reported: false }
    }

    /// The origin's index.
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The origin.
    pub fn origin(&self) -> &Origin {
        &self.group.origins[self.index]
    }

    /// Whether the origin has failed before and this request tries it.
    pub fn is_trial(&self) -> bool {
        self.kind != Kind::Plain
    }

    /// Tells how it went, at the head of the answer or later; only the first report counts. The request stays under way
    /// until the ticket is dropped.
    pub fn report(&mut self, ending: Ending, now_ms: u64) -> Option<Change> {
        if std::mem::replace(&mut self.reported, true) {
            return None;
        }
        let (member, rules) = (&self.group.members[self.index], &self.group.rules);
        match self.kind {
            Kind::Plain => member.handle_plain(ending, now_ms, rules),
            Kind::Trial => {
                let change = member.handle_trial(ending, now_ms, rules);
                member.end_trial();
                change
            }
            // Every request may be one of these while all are paused: another failure is no news.
            Kind::LastResort => {
                member.handle_trial(ending, now_ms, rules).filter(|change| *change == Change::TrialPassed)
            }
        }
    }

    /// Tells how it went, and ends the request.
    pub fn finish(mut self, ending: Ending, now_ms: u64) -> Option<Change> {
        self.report(ending, now_ms)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let member = &self.group.members[self.index];
        if self.kind == Kind::Trial && !self.reported {
            member.end_trial();
        }
        member.end_request();
    }
}
