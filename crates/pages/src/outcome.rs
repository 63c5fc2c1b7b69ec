//! Outcomes of pages' responses: one table with name, status and meaning, for the log and the counters. Failures of
//! runs, and refusals on a page's behalf, have their own tables in [`crate::sandbox::failure`] and
//! [`crate::api::refusal()`].

use crate::api::refusal::PageRefusal;
use crate::sandbox::failure::FailureKind;
use flatout_handler::routed::Refusal;
use flatout_reason::Outcome;

flatout_reason::reasons! {
    /// The outcome of a page's response, except failures of its code.
    pub enum PageOutcome {
        name,
        /// The status of the response; 0 for the page's own.
        status: u16,
        text,
    }
    Answered, "page_answered", 0, "A page responded within its first time slice.";
    AnsweredLater, "page_answered_later", 0, "A page responded after it had waited for an operation or for its next time slice.";
    Streamed, "page_streamed", 0, "A page started its response early: it called `flush()`.";
    Slash, "page_folder_slash", 308, "A folder with an index page was requested without the trailing slash: 308.";
    Options, "page_options", 204, "OPTIONS requested the methods of a page: 204.";
    Events, "page_events", 200, "A browser subscribed to change events of the development mode (`dev`): 200.";
    Malformed, "page_malformed", 500, "The page or an included file does not compile: 500.";
    Unreadable, "page_unreadable", 500, "The page or an included file cannot be read: 500.";
    Changing, "page_changing", 503, "The page changed during every attempt to read it: 503.";
    Busy, "page_busy", 503, "Too many pages are waiting on this worker: 503.";
    OutputBudget, "page_output_budget", 503, "The limit of page output that waits for clients, or for this client, is reached: 503.";
    NoInterpreter, "page_no_interpreter", 500, "The interpreter for pages could not be created: 500.";
}

impl From<PageOutcome> for Refusal {
    fn from(outcome: PageOutcome) -> Self {
        refuse(outcome.status(), outcome)
    }
}

impl From<FailureKind> for Refusal {
    fn from(kind: FailureKind) -> Self {
        refuse(kind.status(), kind)
    }
}

impl From<PageRefusal> for Refusal {
    fn from(refusal: PageRefusal) -> Self {
        refuse(refusal.status(), refusal)
    }
}

/// The refusal with `status`. Its sentence only tells visitors that they are not at fault.
fn refuse(status: u16, outcome: impl Into<Outcome>) -> Refusal {
    let text = match status {
        // Messages of refusals are for visitors as well: the page does not accept their content.
        400..=499 => "This page does not accept the content of this request.",
        503 | 507 => "This page needs too many resources at the moment. Please try again.",
        _ => "This page has an error. It is not your fault; the operator of the site can find it in the log.",
    };
    let refusal = Refusal::new(status, text, outcome).with("Cache-Control", "no-store");
    if status == 503 { refusal.with("Retry-After", "1") } else { refusal }
}

#[cfg(test)]
mod tests {
    use super::PageOutcome;
    use crate::api::refusal::PageRefusal;
    use crate::sandbox::failure::FailureKind;
    use flatout_handler::routed::Refusal;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_statuses_are_told() {
        let own = PageOutcome::ALL.iter().map(|&outcome| Refusal::from(outcome));
        let failures = FailureKind::ALL.iter().map(|&kind| Refusal::from(kind));
        let refusals = PageRefusal::ALL.iter().map(|&refusal| Refusal::from(refusal));
        let all: Vec<Refusal> = own.chain(failures).chain(refusals).collect();
        assert_eq!(all.iter().map(|refusal| refusal.outcome.name()).collect::<HashSet<_>>().len(), all.len());
        for Refusal { status, outcome, .. } in all {
            let (name, text) = (outcome.name(), outcome.text());
            assert!(name.starts_with("page_") && text.ends_with('.'), "{name}: {text}");
            let is_told = text.ends_with(&format!(": {status}.")) || text.contains(&format!("; {status} to"));
            assert!(status == 0 || is_told, "{name}: {text}");
        }
        assert_eq!(Refusal::from(PageOutcome::Busy).status, 503);
    }
}
