//! Outcomes of pages' responses: one table with name, status and meaning, for the log and the counters. Failures of
//! runs, and refusals on a page's behalf, have their own tables in [`crate::sandbox::failure`] and
//! [`crate::api::refusal()`].

use crate::api::refusal::PageRefusal;
use crate::sandbox::failure::FailureKind;
use flatout_reason::join;

flatout_reason::reasons! {
    /// The outcome of a page's response, except failures of its code.
    pub enum PageOutcome {
        name,
        /// The status of the response; 0 for the page's own.
        status: u16,
        text,
    }
    Answered, "page_answered", 0, "A page responded within its first time slice.";
    AnsweredLater, "page_answered_later", 0, "A page responded after it had waited for something, or for its turn.";
    Streamed, "page_streamed", 0, "A page started its response early: it called `flush()`.";
    Slash, "page_folder_slash", 301, "A folder with an index page was requested without the trailing slash: 301.";
    Options, "page_options", 204, "OPTIONS requested the methods of a page: 204.";
    Events, "page_events", 200, "A browser subscribed to change events of the development mode (`dev`): 200.";
    Malformed, "page_malformed", 500, "The page, or what it includes, does not compile: 500.";
    Unreadable, "page_unreadable", 500, "The page, or what it includes, cannot be read: 500.";
    Changing, "page_changing", 503, "The page changed each time it was read: 503.";
    Busy, "page_busy", 503, "Too many pages are waiting on this worker: 503.";
    OutputBudget, "page_output_budget", 503, "The limit of page output that waits for clients, or for this client, is reached: 503.";
    NoInterpreter, "page_no_interpreter", 500, "The interpreter for pages could not be created: 500.";
}

/// The outcome of a page's response, including failures of its run and refusals on its behalf, as one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(u8);

const OWN: usize = PageOutcome::NAMES.len();
const FAILURES: usize = FailureKind::NAMES.len();
const COUNT: usize = OWN + FAILURES + PageRefusal::NAMES.len();

impl Outcome {
    /// The names, in the order of the table.
    pub const NAMES: &'static [&'static str; COUNT] =
        &join(&[PageOutcome::NAMES, FailureKind::NAMES, PageRefusal::NAMES]);

    /// The meanings, in the order of the table.
    pub const TEXTS: &'static [&'static str; COUNT] =
        &join(&[PageOutcome::TEXTS, FailureKind::TEXTS, PageRefusal::TEXTS]);

    /// The outcome of a page.
    pub const fn page(outcome: PageOutcome) -> Self {
        Self(outcome as u8)
    }

    /// A failed run.
    pub const fn failure(kind: FailureKind) -> Self {
        Self(OWN as u8 + kind as u8)
    }

    /// A refusal on a page's behalf.
    pub const fn refusal(refusal: PageRefusal) -> Self {
        Self((OWN + FAILURES) as u8 + refusal as u8)
    }

    /// The index into [`Outcome::NAMES`].
    pub const fn index(self) -> u8 {
        self.0
    }

    /// The stable name.
    pub fn name(self) -> &'static str {
        Self::NAMES.get(usize::from(self.0)).copied().unwrap_or("-")
    }

    /// The status of the response; 0 for the page's own.
    pub fn status(self) -> u16 {
        let index = usize::from(self.0);
        if let Some(outcome) = PageOutcome::ALL.get(index) {
            return outcome.status();
        }
        if let Some(kind) = FailureKind::ALL.get(index - OWN) {
            return kind.status();
        }
        PageRefusal::ALL.get(index - OWN - FAILURES).map_or(500, |refusal| refusal.status())
    }

    /// The meaning.
    pub fn text(self) -> &'static str {
        Self::TEXTS.get(usize::from(self.0)).copied().unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, PageOutcome};
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_statuses_are_told() {
        assert_eq!(Outcome::NAMES.iter().collect::<HashSet<_>>().len(), Outcome::NAMES.len());
        for (index, name) in Outcome::NAMES.iter().enumerate() {
            let outcome = Outcome(index as u8);
            let text = outcome.text();
            assert_eq!((outcome.name(), text), (*name, Outcome::TEXTS[index]));
            assert!(name.starts_with("page_") && text.ends_with('.'), "{name}: {text}");
            let status = outcome.status();
            let is_told = text.ends_with(&format!(": {status}.")) || text.contains(&format!("; {status} to"));
            assert!(status == 0 || is_told, "{name}: {text}");
        }
        assert_eq!(Outcome::page(PageOutcome::Busy).status(), 503);
        assert_eq!(Outcome(Outcome::NAMES.len() as u8).text(), "");
    }
}
