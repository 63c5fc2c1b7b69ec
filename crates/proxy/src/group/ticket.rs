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
    /// The last report; `None`: there was none.
    reported: Option<Ending>,
}

impl Ticket {
    pub(super) const fn new(group: Arc<Group>, index: usize, kind: Kind) -> Self {
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

    /// Whether the origin has failed before and this request tries it.
    pub fn is_trial(&self) -> bool {
        self.kind != Kind::Plain
    }

    /// Tells how it went, at the head of the answer at the latest; an answer that breaks off afterwards is reported as
    /// [`Ending::Failed`] once more. Other reports after the first do not count. The request stays under way until the
    /// ticket is dropped, and only then an answer counts as a success that ends a row of failures.
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
            Kind::Plain if ending == Ending::Failed => member.handle_failure(now_ms, rules),
            Kind::Plain => None,
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
        match self.reported {
            Some(Ending::Answered) => member.handle_success(),
            None if self.kind == Kind::Trial => member.end_trial(),
            _ => {}
        }
        member.end_request();
    }
}
